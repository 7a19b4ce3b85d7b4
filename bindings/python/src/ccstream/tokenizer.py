"""Texts to token ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy

from . import _ccstream
from .dataset import Dataset


class Tokenizer:
    """The tokenizer of a dataset, of a file, or of a file's bytes: a SentencePiece model, a WordPiece vocabulary, CLIP's
    merges, or a tokenizer.json of byte-level BPE. "clip" is the built-in CLIP tokenizer, unless a file has this name.

    Any number of threads may use one. NotFoundError: the dataset has no tokenizer, or no such file; CorruptError: the
    file has none of these formats; UnsupportedError: a tokenizer.json of another kind.
    """

    def __init__(self, source: Dataset | bytes | str | os.PathLike[str]):
        if isinstance(source, Dataset):
            self._handle = _ccstream.Tokenizer(source._handle)
        elif isinstance(source, bytes):
            self._handle = _ccstream.Tokenizer(source)
        else:
            self._handle = _ccstream.Tokenizer(os.fspath(source))

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens, texts end with {self.end})"

    def __len__(self) -> int:
        """Size of the vocabulary; token ids are below it."""
        return self._handle.vocabulary

    @property
    def pad(self) -> int:
        """The padding id."""
        return self._handle.pad

    @property
    def begin(self) -> int:
        """The id before the tokens of a text; below 0: none."""
        return self._handle.begin

    @property
    def end(self) -> int:
        """The id after the tokens of a text; a truncated row ends with it too."""
        return self._handle.end

    @property
    def eos_id(self) -> int:
        """`end` under the name that open_clip and transformers use. A text tower that pools at the end token must use this
        id: in open_clip set "pool_type": "eos", "eos_id": eos_id in text_cfg. open_clip's default, argmax, pools at the
        largest id of a row, which is the end token only with CLIP's tokenizer. ccstream.torch.check_text compares a model
        with a tokenizer."""
        return self._handle.end

    def encode(self, texts: Sequence[str], max_tokens: int = 30, clean: bool = True) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Returns tokens, int32 (len(texts), max_tokens), each row padded at its end, and lengths, int32 (len(texts)), the
        number of tokens before the padding. clean: the paper's caption cleaning, as clean_captions of DataLoader; CLIP's
        tokenizer always uses its own. UsageError: max_tokens is not in [2, 4096]."""
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, not one text")
        encoded = [text.encode("utf-8", "replace") for text in texts]
        tokens = numpy.empty((len(texts), max_tokens), numpy.int32)
        lengths = numpy.empty(len(texts), numpy.int32)
        self._handle.encode(encoded, tokens, lengths, max_tokens, clean)
        return tokens, lengths
