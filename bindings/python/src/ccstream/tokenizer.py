"""Texts to token ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy

from . import _ccstream
from .dataset import Dataset


class Tokenizer:
    """The tokenizer of a dataset, or of a file: a SentencePiece model or a WordPiece vocabulary.

    Any number of threads may use one. NotFoundError, FileNotFoundError: the dataset has none, there is no
    such file; CorruptError: the file is neither.
    """

    def __init__(self, source: Dataset | bytes | str | os.PathLike[str]):
        if isinstance(source, Dataset):
            self._handle = _ccstream.Tokenizer(source._handle)
        elif isinstance(source, bytes):
            self._handle = _ccstream.Tokenizer(source)
        else:
            with open(os.fspath(source), "rb") as file:
                self._handle = _ccstream.Tokenizer(file.read())

    def __len__(self) -> int:
        """Size of the vocabulary; ids are below it."""
        return self._handle.vocabulary

    @property
    def pad(self) -> int:
        """The id that fills a row."""
        return self._handle.pad

    def encode(self, texts: Sequence[str], max_tokens: int = 30, clean: bool = True) -> tuple[numpy.ndarray, numpy.ndarray]:
        """tokens int32 (len(texts), max_tokens), each row padded at its end, and lengths int32
        (len(texts)), the tokens before the padding. clean: the paper's cleaning of captions, as
        clean_captions of DataLoader. UsageError: max_tokens is not 2 to 4096."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        tokens = numpy.empty((len(texts), max_tokens), numpy.int32)
        lengths = numpy.empty(len(texts), numpy.int32)
        self._handle.encode(encoded, tokens, lengths, max_tokens, clean)
        return tokens, lengths
