"""Words of many documents at once: where each begins and ends, split once for all statistics.

White space and marks divide a text into words and marks, by the rules in `curator_text.measures.marks`.

Scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan) would need a dictionary. Here a
boundary lies between two of their letters where a fixed hash of the pair says so, at a rate that gives words
of the usual length on average: 1.79 characters in Chinese (jieba 1.73), 1.82 in Japanese (MeCab 1.89), 5.0 in
Thai (newmm 5.5). Equal text is divided equally wherever it stands, so that counts and repetition behave as in
other languages. Known difference: such a word is no word of the language; look at none of them, count them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, Ranges, sums_before
from curator_text.measures.marks import cut_at_marks, find_marks

# Of 256 pairs of letters, how many have a boundary between them.
_BOUNDARIES = np.zeros(ch.KINDS, np.uint32)
_BOUNDARIES[ch.CJK], _BOUNDARIES[ch.MAINLAND] = 128, 72
_APART = ~(ch.SPACELESS | ch.WHITE | ch.members(ch.MARK))


class Words:
    """Words and marks of all documents, in order. Those of document d are `of[d]` up to `of[d + 1]`; likewise
    chunks, which are found at once: words only when they are asked for."""

    chunks: Ranges  # what white space divides
    chunk_of: np.ndarray  # int64, one more than documents

    def __init__(self, joined: Joined) -> None:
        white = joined.kinds <= ch.SPACE
        edges = np.flatnonzero(white[1:] != white[:-1]) + 1
        self._joined, self._edges = joined, edges
        self.chunks = Ranges(edges[0::2], edges[1::2])
        self.chunk_of = joined.offsets(self.chunks.starts)

    @cached_property
    def starts(self) -> np.ndarray:
        return self._words[0]

    @cached_property
    def stops(self) -> np.ndarray:
        return self._words[1]

    @cached_property
    def of(self) -> np.ndarray:
        return self._joined.offsets(self.starts)

    @cached_property
    def wordy(self) -> np.ndarray:
        """Of each word, has it a character other than punctuation and symbols (bool)."""
        return self._contents[0]

    @cached_property
    def wordy_before(self) -> np.ndarray:
        """How many wordy ones are before each word, and in all: int64, one more than words."""
        return sums_before(self.wordy)

    @cached_property
    def alphabetic_before(self) -> np.ndarray:
        """The same of words that have a letter."""
        return sums_before(self._contents[1])

    @cached_property
    def marks(self) -> Ranges:
        """Every mark that a rule names, also inside words."""
        return find_marks(self._joined.kinds)

    @cached_property
    def spaceless(self) -> np.ndarray:
        """Where the letters of scripts without spaces are: CJK and MAINLAND, for lesser kinds wrap around."""
        return np.flatnonzero(self._joined.kinds - np.uint8(ch.CJK) <= 1)

    @cached_property
    def _words(self) -> tuple[np.ndarray, np.ndarray]:
        kinds = self._joined.kinds
        cut = np.zeros(len(kinds), bool)  # where a word begins, or one ends
        cut[self._edges] = True
        cut_at_marks(self._joined, self.marks, self.chunks, cut)
        _cut_without_spaces(self._joined, self.spaceless, cut)
        edges = np.flatnonzero(cut)
        begins = np.flatnonzero(kinds[edges] > ch.SPACE)
        return edges[begins], edges[begins + 1]

    @cached_property
    def _contents(self) -> tuple[np.ndarray, np.ndarray]:
        kinds = self._joined.kinds
        return _contents(kinds, self.starts, self.stops, kinds[self.starts])


def split(joined: Joined) -> Words:
    """Split all documents into words and marks."""
    return Words(joined)


def _contents(kinds: np.ndarray, starts: np.ndarray, stops: np.ndarray,
              first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each word: is it more than symbols, has it a letter. Most are told by their first character."""
    wordy, alphabetic = ~ch.SYMBOLS[first], ch.ALPHA[first]
    mixed = np.flatnonzero(~alphabetic & (stops - starts > 1))
    if len(mixed):
        pairs = np.empty(2 * len(mixed), np.int64)
        pairs[0::2], pairs[1::2] = starts[mixed], stops[mixed]
        least = np.minimum.reduceat(kinds, pairs)[0::2]  # letters come first among the kinds, symbols last
        wordy[mixed] = least < ch.SYMBOL
        alphabetic[mixed] = least <= ch.MAINLAND
    return wordy, alphabetic


def _cut_without_spaces(joined: Joined, at: np.ndarray, cut: np.ndarray) -> None:
    if not len(at):
        return
    kinds, codes = joined.kinds, joined.codes
    before = kinds[at - 1]
    mixed = (codes[at - 1] * np.uint32(0x9E3779B1) ^ codes[at]) * np.uint32(0x85EBCA6B)
    inside = ch.SPACELESS[before] | (before == ch.MARK)
    cut[at[np.where(inside, mixed >> 24 < _BOUNDARIES[kinds[at]], _APART[before])]] = True
    cut[at[_APART[kinds[at + 1]]] + 1] = True
