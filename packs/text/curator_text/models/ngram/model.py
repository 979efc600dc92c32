"""A language model of n-grams with back-off, asked about many sentences at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy as np

BEGIN, END = b"<s>", b"</s>"
UNKNOWN = 0  # the number of a word that the model does not know
_WORDS_MAX = 1_000_000  # whose numbers are kept before all are forgotten: some 0.1 GB


class Table(Protocol):
    """N-grams of one length."""

    def find(self, keys: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place of each n-gram, int64, -1 where it is not there, and its key, uint64. `keys`: of the
        n-grams without their first words, of a word alone its number; `words`: the numbers of these first
        words."""

    def probabilities(self, places: np.ndarray) -> np.ndarray:
        """log10, float64."""

    def backoffs(self, places: np.ndarray) -> np.ndarray:
        """log10, float64; of the longest n-grams there are none."""


@dataclass
class Ngrams:
    """What a file holds. `ids`: the numbers of words, int64. `unigrams`: log10 of probability and of back-off
    of words by their numbers, float64 each, for the caller to keep. `gaps`: an n-gram may be there although
    the one that begins a word later is not."""

    ids: Callable[[Sequence[bytes]], np.ndarray]
    unigrams: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    tables: Sequence[Table]  # of 2, 3, … words
    gaps: bool = False


class NgramModel:
    """Numbers of words are asked for once and kept."""

    def __init__(self, ngrams: Ngrams) -> None:
        self._ngrams = ngrams
        self._known: dict[bytes, int] = {}

    def scores(self, sentences: Sequence[Sequence[bytes]]) -> np.ndarray:
        """log10 of the probability of each sentence with its end, float64: words after the mark of a
        beginning."""
        if not sentences:
            return np.zeros(0)
        words = [word for sentence in sentences for word in (BEGIN, *sentence, END)]
        ends = np.cumsum([len(sentence) + 2 for sentence in sentences])
        found = self._each(self._numbers(words), np.concatenate([[0], ends[:-1]]))
        return np.add.reduceat(found, np.concatenate([[0], ends[:-1]]))

    def _numbers(self, words: list[bytes]) -> np.ndarray:
        if len(self._known) > _WORDS_MAX:
            self._known.clear()
        found = np.fromiter(map(self._known.get, words, repeat(-1)), np.int64, len(words))
        at = np.flatnonzero(found < 0)
        if len(at):
            new = list({words[place] for place in at})
            self._known |= zip(new, self._ngrams.ids(new).tolist(), strict=True)
            found[at] = [self._known[words[place]] for place in at]
        return found

    def _each(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """log10 of the probability of each word after those before it; 0 for the mark of a beginning."""
        at = np.arange(len(ids))
        before = at - np.repeat(starts, np.diff(starts, append=len(ids)))  # so many words of the sentence
        best, backoff = self._ngrams.unigrams(ids)
        longest = np.ones(len(ids), np.int64)
        backoffs = [backoff] if self._ngrams.tables else []
        keys = ids.astype(np.uint64)
        for length, table in enumerate(self._ngrams.tables, 2):
            at = at[before[at] >= length - 1]
            places, keys[at] = table.find(keys[at], ids[at - length + 1])
            there = places >= 0
            best[at[there]] = table.probabilities(places[there])
            longest[at[there]] = length
            if length <= len(self._ngrams.tables):
                backoffs.append(np.zeros(len(ids)))
                backoffs[-1][at[there]] = table.backoffs(places[there])
            if not self._ngrams.gaps:
                at = at[there]
        for length, backoff in enumerate(backoffs, 1):  # of the words before, where no n-gram has them all
            shorter = np.flatnonzero((longest <= length) & (before >= length))
            best[shorter] += backoff[shorter - 1]
        best[starts] = 0.0
        return best
