"""Trained models as torch modules: exported by ccstream-export and loaded by open_clip."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ._ccstream import UnsupportedError
from .model import run_program
from .norms import NORMS
from .tokenizer import Tokenizer

_TOKENIZERS = ("tokenizer.model", "vocab.txt", "tokenizer.json")


class Encoder(nn.Module):
    """A dual encoder whose towers are open_clip's, in `model`; train or freeze them as any module.

    image_size: side of input images in pixels. tokenizer: a ccstream.Tokenizer. context_length: tokens per row.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, context_length: int, image_size: int,
                 mean: Sequence[float], deviation: Sequence[float]):
        super().__init__()
        self.model, self.tokenizer, self.context_length, self.image_size = model, tokenizer, context_length, image_size
        self.mean, self.deviation = tuple(mean), tuple(deviation)

    def tokenize(self, texts: Sequence[str], clean: bool = False) -> Tensor:
        """int64 (N, context_length); clean: apply the caption cleaning of training."""
        tokens, _ = self.tokenizer.encode(texts, self.context_length, clean)
        return torch.from_numpy(tokens).long()

    def encode_image(self, images: Tensor) -> Tensor:
        """(N, D), L2-normalised. images: uint8 (N, S, S, 3), as in batches, which are normalised here, or already normalised
        floats (N, 3, S, S)."""
        if images.dtype == torch.uint8:
            mean, deviation = (torch.tensor(x, device=images.device).view(3, 1, 1) for x in (self.mean, self.deviation))
            images = (images.permute(0, 3, 1, 2) / 255 - mean) / deviation
        features: Tensor = self.model.encode_image(images)  # type: ignore[operator]
        return nn.functional.normalize(features, dim=-1)

    def encode_text(self, tokens: Tensor) -> Tensor:
        """(N, D), L2-normalised. tokens: (N, context_length) of tokenize(), or batch["tokens"] with that many tokens per row."""
        features: Tensor = self.model.encode_text(tokens.long())  # type: ignore[operator]
        return nn.functional.normalize(features, dim=-1)

    def forward(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_image(images), self.encode_text(tokens)


def load_model(path: str | os.PathLike[str], *, ema: bool = False) -> Encoder:
    """Loads a run of ccstream-train, one of its checkpoints, or a folder of open_clip or Hugging Face as a module in eval
    mode. Its towers are open_clip's own, or timm's and BERT's as wrapped by open_clip. ema: use the averaged weights of a
    run with --ema. UnsupportedError: open_clip 3 is not installed (BERT also needs transformers), or open_clip has no
    such model, as for a run on images only."""
    try:
        import open_clip
    except ImportError:
        raise UnsupportedError("load_model needs open_clip: pip install open_clip_torch timm transformers") from None
    with tempfile.TemporaryDirectory(prefix="ccstream-model-") as work:
        out = os.path.join(work, "model")
        run_program("ccstream-export", path, "--format", "open_clip", "--quiet", "-o", out, *(["--ema"] if ema else []))
        with open(os.path.join(out, "open_clip_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        model = open_clip.create_model(f"local-dir:{out}")
        files = [name for name in _TOKENIZERS if os.path.exists(os.path.join(out, name))]
        tokenizer = Tokenizer(os.path.join(out, files[0]) if files else "clip")
    text, images = config["model_cfg"]["text_cfg"], config["preprocess_cfg"]
    size = config["model_cfg"]["vision_cfg"]["image_size"]
    mean, deviation = images.get("mean", NORMS["clip"][0]), images.get("std", NORMS["clip"][1])
    return Encoder(model, tokenizer, text.get("context_length", 77), size, mean, deviation).eval()
