"""Texts to what a language model of n-grams says of them."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from curator.api.errors import CuratorError
from curator.models.loading import fetch
from curator_text.models.ngram.arpa import read_arpa
from curator_text.models.ngram.ccnet import normalised
from curator_text.models.ngram.kenlm_file import MAGIC, read_kenlm
from curator_text.models.ngram.model import NgramModel
from curator_text.tokens.tokenizers import open_sentencepiece

_FILE = re.compile(r"\.(arpa|bin|binary|klm|kenlm|mmap|lm)(\.gz)?$")
_ZERO_IS_SPACE = bytes.maketrans(b"\0", b" ")
_WORDS_AT_ONCE = 1 << 16  # some 20 MB of numbers


def is_ngram_file(model: str) -> bool:
    """Whether a name is that of a file with n-grams, and not of a repository or folder."""
    return _FILE.search(model) is not None and not Path(model).is_dir()


class NgramReader:
    """`pieces`: a sentencepiece model that cuts texts into the model's words; None: they are cut at spaces.
    `ccnet`: texts are normalised as CCNet does. `lines`: each line is a sentence, else each text."""

    def __init__(self, model: str, pieces: str | None, ccnet: bool, lines: bool) -> None:
        self._scores = _scorer(fetch(model))
        self._pieces = None if pieces is None else open_sentencepiece(pieces)
        self._ccnet, self._lines = ccnet, lines

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The sum of the logarithms of the probabilities of each text's words and ends of sentences
        (float64), and their number; 0 of a text without words."""
        sentences, of = [], []
        for number, text in enumerate(texts):
            for sentence in text.split("\n") if self._lines else [text]:
                sentences.append(normalised(sentence) if self._ccnet else sentence)
                of.append(number)
        words = self._words(sentences)
        there = [number for number, found in enumerate(words) if found]
        sums, counts = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
        lengths = np.array([len(words[number]) + 1 for number in there], np.int64)
        for part in np.split(np.arange(len(there)), _cuts(lengths)):
            found = self._scores([words[there[at]] for at in part])
            np.add.at(sums, [of[there[at]] for at in part], np.asarray(found) * math.log(10))
        np.add.at(counts, [of[number] for number in there], lengths)
        return sums, counts

    def _words(self, sentences: list[str]) -> list[list[bytes]]:
        if self._pieces is not None:
            sentences = [" ".join(found) for found in self._pieces.encode(sentences, out_type=str)]
        return [sentence.encode("utf-8", "surrogatepass").translate(_ZERO_IS_SPACE).split()
                for sentence in sentences]


def _scorer(path: Path) -> Callable[[Sequence[Sequence[bytes]]], Sequence[float] | np.ndarray]:
    """What gives log10 of sentences: the library kenlm, which takes half the time, if it is installed and
    reads the file, else our own reading."""
    with open(path, "rb") as file:
        begin = file.read(97)
    binary = begin.startswith(MAGIC)
    try:
        library = importlib.import_module("kenlm")
    except ImportError:
        library = None
    if library is None or begin.startswith(b"\x1f\x8b"):
        return NgramModel((read_kenlm if binary else read_arpa)(path)).scores
    if binary and not begin.endswith(b"\1"):  # of a type that we read, which looks more closely
        read_kenlm(path)
    config = library.Config()
    config.show_progress, config.arpa_complain = False, library.ARPALoadComplain.NONE
    try:
        opened = library.Model(str(path), config)
    except (OSError, RuntimeError) as error:
        raise CuratorError(f"{str(path)!r} is no language model that KenLM can read: {error}") from error
    return lambda sentences: [opened.score(b" ".join(words)) for words in sentences]


def _cuts(lengths: np.ndarray) -> np.ndarray:
    """Where to cut, so that a part has some `_WORDS_AT_ONCE` words."""
    parts = np.cumsum(lengths) // _WORDS_AT_ONCE
    return np.flatnonzero(np.diff(parts, prepend=0))
