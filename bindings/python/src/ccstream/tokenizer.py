"""Texts to token ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy

from . import _ccstream
from .dataset import Dataset


class Tokenizer:
    """The tokenizer of a dataset, of a file or of a file's bytes: a SentencePiece model, a WordPiece
    vocabulary, CLIP's merges, or a tokenizer.json of byte-level BPE. "clip", where no file has this name, is CLIP's tokenizer, which is built in.

    Any number of threads may use one. NotFoundError: the dataset has none, there is no such file;
    CorruptError: the file is none of these; UnsupportedError: a tokenizer.json of another kind.
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
        """Size of the vocabulary; ids are below it."""
        return self._handle.vocabulary

    @property
    def pad(self) -> int:
        """The id that fills a row."""
        return self._handle.pad

    @property
    def begin(self) -> int:
        """The id before a text."""
        return self._handle.begin

    @property
    def end(self) -> int:
        """The id after a text, also in a row that is too short for it."""
        return self._handle.end

    @property
    def eos_id(self) -> int:
        """`end` by the name of open_clip and transformers. A text tower that takes the features of the end token
        must find this id: open_clip's with "pool_type": "eos", "eos_id": eos_id in text_cfg. Its default, argmax,
        takes the largest id of a row, which is the end token of CLIP's tokenizer alone; ccstream.torch.check_text
        compares a model with a tokenizer."""
        return self._handle.end

    def encode(self, texts: Sequence[str], max_tokens: int = 30, clean: bool = True) -> tuple[numpy.ndarray, numpy.ndarray]:
        """tokens int32 (len(texts), max_tokens), each row padded at its end, and lengths int32
        (len(texts)), the tokens before the padding. clean: the paper's cleaning of captions, as
        clean_captions of DataLoader; CLIP's tokenizer has its own instead. UsageError: max_tokens is not 2 to 4096."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of texts, not one text")
        encoded = [text.encode("utf-8", "replace") for text in texts]
        tokens = numpy.empty((len(texts), max_tokens), numpy.int32)
        lengths = numpy.empty(len(texts), numpy.int32)
        self._handle.encode(encoded, tokens, lengths, max_tokens, clean)
        return tokens, lengths
