"""Embeddings of trained models as NumPy arrays, without torch. For torch modules see ccstream.torch.load_model."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from . import _ccstream
from .writer import Writer


def find_program(name: str) -> str:
    """Path of a ccstream program: next to this package, or in PATH. NotFoundError."""
    here = Path(__file__).parent.resolve()
    built = Path(os.path.abspath(__file__)).parent.parent.parent  # in a build folder these files are links
    for folder in (here / "bin", built / "bin", Path(sys.executable).parent):
        if os.access(folder / name, os.X_OK) and not (folder / name).is_dir():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise _ccstream.NotFoundError(f"the program {name} is neither next to the package nor in PATH; install ccstream's programs "
                                      "(docs/install.md), and add their folder to PATH")
    return found


def run_program(name: str, *arguments: str | os.PathLike[str]) -> None:
    """Runs a program and waits for it. Failure raises the matching exception with the program's error output."""
    done = subprocess.run([find_program(name), *(os.fspath(a) for a in arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        kind = {64: _ccstream.UsageError, 65: _ccstream.CorruptError, 66: _ccstream.NotFoundError, 69: _ccstream.UnsupportedError,
                74: _ccstream.StorageError}.get(done.returncode, _ccstream.Error)
        raise kind(done.stderr.strip() or f"{name} ended with status {done.returncode}")


class Model:
    """A trained model: a run of ccstream-train, one of its checkpoints, or a folder of open_clip or Hugging Face.

    Each call of encode_image or encode_text starts a ccstream-eval process, so encode many items per call.
    device: "cpu", "cuda", "cuda:N" or "auto". threads: 0: all CPUs. ema: use the averaged weights of a run with --ema.
    NotFoundError: no such model, or the program ccstream-eval is missing.
    """

    def __init__(self, path: str | os.PathLike[str], *, device: str = "cpu", threads: int = 0, ema: bool = False):
        self.path = os.fspath(path)
        self._options = ["--device", device, "--threads", str(threads), *(["--ema"] if ema else [])]
        if not os.path.exists(self.path):
            raise _ccstream.NotFoundError(f"{self.path}: no such run or model")
        find_program("ccstream-eval")

    def __repr__(self) -> str:
        return f"Model({self.path!r})"

    def encode_image(self, images: Sequence[Any], *, transform: str = "own", batch_size: int = 128) -> numpy.ndarray:
        """float32 (N, D), L2-normalised.

        images: a list whose items are bytes of image files (JPEG, PNG, WebP, GIF) or uint8 arrays (H, W, 3), or one uint8
        array (N, H, W, 3). transform: "own", "crop", "squash" or "clip", as --transform of ccstream-eval.
        CorruptError: an image cannot be decoded.
        """
        if len(images) == 0:
            raise _ccstream.UsageError("images: expected at least one image")
        with tempfile.TemporaryDirectory(prefix="ccstream-model-") as work:
            with Writer(os.path.join(work, "data")) as writer:
                for i, image in enumerate(images):
                    writer.add(image if isinstance(image, bytes) else encode_png(image), [], id=i)
            self._embed(work, "--data", os.path.join(work, "data"), "--transform", transform, "--batch-size", str(batch_size))
            return _load(work, "images")

    def encode_text(self, texts: Sequence[str], *, batch_size: int = 128) -> numpy.ndarray:
        """float32 (N, D), L2-normalised. The caption cleaning of training is not applied, but CLIP's tokenizer applies its
        own; line breaks become spaces."""
        if isinstance(texts, str) or len(texts) == 0:
            raise _ccstream.UsageError("texts: expected a list of at least one text")
        with tempfile.TemporaryDirectory(prefix="ccstream-model-") as work:
            with open(os.path.join(work, "prompts"), "w", encoding="utf-8", errors="replace", newline="\n") as file:
                file.writelines(text.replace("\r", " ").replace("\n", " ") + "\n" for text in texts)
            self._embed(work, "--prompts", os.path.join(work, "prompts"), "--batch-size", str(batch_size))
            return _load(work, "prompts")

    def _embed(self, work: str, *arguments: str) -> None:
        run_program("ccstream-eval", "embed", self.path, "--quiet", "-o", os.path.join(work, "out"), *arguments, *self._options)


def _load(work: str, name: str) -> numpy.ndarray:
    array: numpy.ndarray = numpy.load(os.path.join(work, f"out.{name}.npy"), allow_pickle=False)
    return array


def encode_png(pixels: Any) -> bytes:
    """Losslessly encodes uint8 (H, W, 3) RGB as PNG. UsageError: another shape or dtype."""
    rgb = numpy.ascontiguousarray(pixels)
    if rgb.dtype != numpy.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0:
        raise _ccstream.UsageError(f"an image is {rgb.dtype} {rgb.shape}: expected uint8 (H, W, 3), or the bytes of a file")
    height, width = rgb.shape[:2]
    rows = numpy.zeros((height, 1 + 3 * width), numpy.uint8)  # byte 0 of each row is its filter type
    rows[:, 1:] = rgb.reshape(height, 3 * width)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)) + chunk(b"IEND", b""))
