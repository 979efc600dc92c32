"""KenLM's tries: its types `trie`, quantised, and with compressed pointers.

An n-gram is a way from its last word to its first: each word has the range of those that stand before it
one level further, by their numbers. A level is a table of rows of so many bits. Probabilities and back-offs
are in the rows, or, quantised, in tables that the rows point to. Of a pointer to the next level, which never
falls from row to row, the highest bits may be told by a list of the rows from which on they are higher.

Source: kpu/kenlm, lm/{search_trie,trie,quantize,bhiksha}.{hh,cc}, version 1 of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_text.models.ngram.arpa import Damaged
from curator_text.models.ngram.hashes import word_hashes
from curator_text.models.ngram.model import UNKNOWN, Ngrams

_UNIGRAM = np.dtype([("probability", "<f4"), ("backoff", "<f4"), ("next", "<u8")])
_PROBABILITY_BITS, _WEIGHT_BITS = 31, 63  # in the rows: a probability without its sign, and a back-off
_QUANTISED, _POINTERS = 1, 2  # what the type of a file says, beside that it is a trie

Ranges = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # from where to where the next level has them


class Bits:
    """Numbers of up to 57 bits, the lowest bit first, at any bit of a part of a file."""

    def __init__(self, data: Any, at: int, size: int) -> None:
        self._words = np.ndarray((size - 7,), "<u8", data, at, (1,))  # at each byte the eight from there on

    def read(self, at: np.ndarray, bits: int) -> np.ndarray:
        found = self._words[at >> 3] >> (at & 7).astype(np.uint64)
        return found & np.uint64((1 << bits) - 1)


@dataclass
class Level:
    """N-grams of one length. `before`: where those of a shorter one are. `bits`: of a row, of the number of
    its word, and of its weights. `tables`: the values of quantised probabilities and back-offs. `pointers`:
    those to the next level; None of the longest n-grams."""

    rows: Bits
    count: int
    bits: tuple[int, int, int]
    before: Ranges
    tables: tuple[np.ndarray, np.ndarray | None] | None
    pointers: Pointers | None

    def find(self, keys: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row_bits, word_bits, _ = self.bits
        wanted = words.astype(np.uint64)
        low, end = self.before(keys.astype(np.int64))
        low, end = np.clip(low, 0, self.count), np.clip(end, 0, self.count)  # the file may be damaged
        high = end.copy()
        left = np.flatnonzero(low < high)
        while len(left):
            middle = (low[left] + high[left]) >> 1
            smaller = self.rows.read(middle * row_bits, word_bits) < wanted[left]
            low[left] = np.where(smaller, middle + 1, low[left])
            high[left] = np.where(smaller, high[left], middle)
            left = left[low[left] < high[left]]
        there = low < end
        there[there] = self.rows.read(low[there] * row_bits, word_bits) == wanted[there]
        places = np.where(there, low, -1)
        return places, places.astype(np.uint64)

    def probabilities(self, places: np.ndarray) -> np.ndarray:
        at = places * self.bits[0] + self.bits[1]
        if self.tables is None:
            found = self.rows.read(at, _PROBABILITY_BITS).astype(np.uint32) | np.uint32(1 << 31)
            return found.view(np.float32).astype(np.float64)
        values, backoffs = self.tables
        skipped = 0 if backoffs is None else len(backoffs).bit_length() - 1
        return values[self.rows.read(at + skipped, len(values).bit_length() - 1)].astype(np.float64)

    def backoffs(self, places: np.ndarray) -> np.ndarray:
        at = places * self.bits[0] + self.bits[1]
        if self.tables is None:
            found = self.rows.read(at + _PROBABILITY_BITS, 32).astype(np.uint32)
            return found.view(np.float32).astype(np.float64)
        values = self.tables[1]
        assert values is not None, "the longest n-grams have no back-off"
        return values[self.rows.read(at, len(values).bit_length() - 1)].astype(np.float64)

    def ranges(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row_bits, word_bits, weight_bits = self.bits
        assert self.pointers is not None, "nothing is longer than the longest n-grams"
        begins, ends = (self.pointers.told(self.rows.read(at * row_bits + word_bits + weight_bits,
                                                          self.pointers.bits), at)
                        for at in (places, places + 1))
        return begins, ends


@dataclass
class Pointers:
    """`bits`: of a pointer that stand in its row. `rises`: rows from which on what is above them is higher by
    one, the first 0; None where all of a pointer stands in its row."""

    bits: int
    rises: np.ndarray | None

    def told(self, low: np.ndarray, places: np.ndarray) -> np.ndarray:
        low = low.astype(np.int64)
        if self.rises is None:
            return low
        return (np.searchsorted(self.rises, places.astype(np.uint64), side="right") - 1 << self.bits) | low


def read_trie(taken: Any, counts: Sequence[int], kind: int) -> Ngrams:
    """The model. `taken`: what gives parts of the file, one after the other, from the vocabulary on;
    `counts`: of n-grams by length; `kind`: what the type adds to that of a plain trie."""
    order = len(counts)
    words = int(taken.rows(np.dtype("<u8"), 1)[0])
    if words > counts[0]:
        raise Damaged(f"its vocabulary is said to have {words:,} words of {counts[0]:,}")
    hashes = taken.rows(np.dtype("<u8"), counts[0])[:words]
    tables = _tables(taken, order) if kind & _QUANTISED else [None] * (order - 1)
    unigrams = taken.rows(_UNIGRAM, counts[0] + 2)
    before: Ranges = lambda ids: (unigrams["next"][ids].astype(np.int64),  # noqa: E731
                                  unigrams["next"][ids + 1].astype(np.int64))
    levels: list[Level] = []
    for length in range(2, order + 1):
        longest = length == order
        pointers = None if longest else _pointers(taken, counts[length - 1], counts[length],
                                                  bool(kind & _POINTERS))
        levels.append(_level(taken, counts, length, tables[length - 2], pointers, before))
        before = levels[-1].ranges

    def ids(asked: Sequence[bytes]) -> np.ndarray:
        wanted = word_hashes(asked)
        at = np.minimum(np.searchsorted(hashes, wanted), max(0, len(hashes) - 1))
        same = hashes[at] == wanted if len(hashes) else np.zeros(len(wanted), bool)
        return np.where(same, at + 1, UNKNOWN)

    def values(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = unigrams[numbers]
        return -np.abs(found["probability"].astype(np.float64)), found["backoff"].astype(np.float64)

    return Ngrams(ids, values, levels)


def _tables(taken: Any, order: int) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """The values of quantised probabilities and back-offs, by length from 2 on."""
    version, probability_bits, backoff_bits = taken.rows(np.dtype("u1"), 8)[:3].tolist()
    if version != 2 or not 1 <= probability_bits <= 25 or not 1 <= backoff_bits <= 25:
        raise Damaged(f"its quantisation makes no sense: version {version}, {probability_bits} and "
                      f"{backoff_bits} bits")
    number = np.dtype("<f4")
    middle = [(taken.rows(number, 1 << probability_bits), taken.rows(number, 1 << backoff_bits))
              for _ in range(order - 2)]
    return [*middle, (taken.rows(number, 1 << probability_bits), None)]


def _pointers(taken: Any, rows: int, further: int, compressed: bool) -> Pointers:
    """Those of a level of so many rows to one of `further`; where they are compressed, with their list."""
    bits = further.bit_length()
    if not compressed:
        return Pointers(bits, None)
    begin = taken.at
    version, most = taken.rows(np.dtype("u1"), 2).tolist()
    if version != 0:
        raise Damaged(f"its compressed pointers are of version {version}")
    # as many of the highest bits as make the file the smallest
    told = min(range(min(bits, most) + 1), key=lambda n: (further >> (bits - n)) * 64 - (rows + 1) * n)
    size = (further >> (bits - told)) + 1
    taken.at = -(-begin // 8) * 8 + 8
    rises = taken.rows(np.dtype("<u8"), size)
    if (rises[1:] < rises[:-1]).any():
        raise Damaged("its compressed pointers are not in order")
    taken.at = begin + 8 * (1 + size) + 7
    return Pointers(bits - told, rises)


def _level(taken: Any, counts: Sequence[int], length: int,
           tables: tuple[np.ndarray, np.ndarray | None] | None, pointers: Pointers | None,
           before: Ranges) -> Level:
    word_bits = counts[0].bit_length()
    if tables is None:
        weight_bits = _PROBABILITY_BITS if pointers is None else _WEIGHT_BITS
    else:
        weight_bits = sum(len(table).bit_length() - 1 for table in tables if table is not None)
    count = counts[length - 1]
    row_bits = word_bits + weight_bits + (pointers.bits if pointers else 0)
    size = ((1 + count) * row_bits + 7) // 8 + 8
    at = taken.at
    taken.rows(np.dtype("u1"), size)  # is it there?
    return Level(Bits(taken.data, at, size), count, (row_bits, word_bits, weight_bits), before, tables,
                 pointers)
