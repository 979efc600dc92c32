"""Hashes of n consecutive words or characters (shingles), for many texts at once.

A hash depends on the words and on nothing else: not on the text around it, nor on the batch, the machine or
the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from curator.ngrams.folding import END, SPACE, Folded, fold

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word is lost in a product modulo 2^64
MULTIPLIER = 0xD6E8FEB86659FD93  # Source: the mixer rrmxmx and its relatives; this one by degski
_MIX = np.uint64(MULTIPLIER)
_HALF = np.uint64(32)
_WINDOW = 8  # bytes of a word hashed at once
_WINDOWS_MAX = 8  # a word that is longer is hashed by itself
# worked on at once: below, the cost of numpy's calls shows; above, arrays leave the cache
GROUP_CHARS = 200_000
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WINDOW + 1)], np.uint64)


@dataclass(frozen=True)
class Words:
    """The words of folded texts: word w is `data[starts[w]:stops[w]]`, in UTF-8; text d has words `of[d]` up
    to `of[d + 1]`."""

    data: np.ndarray  # uint8
    starts: np.ndarray  # int64
    stops: np.ndarray
    of: np.ndarray  # int64, one more than texts

    def text(self, first: int, count: int) -> str:
        """`count` words from word `first` on, one space between two."""
        spans = zip(self.starts[first:first + count].tolist(), self.stops[first:first + count].tolist(),
                    strict=True)
        return b" ".join(self.data[start:stop].tobytes() for start, stop in spans).decode()


@dataclass(frozen=True)
class Grams:
    """Hashes in order of place: uint64; those of text d are `hashes[of[d]:of[d + 1]]`. An equal one may come
    several times."""

    hashes: np.ndarray
    of: np.ndarray  # int64, one more than texts


def groups(texts: Sequence[str | None], chars: int = GROUP_CHARS) -> Iterator[list[int]]:
    """The places of the texts, in groups of about so many characters; those of ASCII, which are done faster,
    by themselves."""
    kinds: tuple[list[int], list[int]] = ([], [])
    for row, text in enumerate(texts):
        kinds[text is None or text.isascii()].append(row)
    for rows in kinds:
        first = size = 0
        for place, row in enumerate(rows, 1):
            size += len(texts[row] or "") + 1
            if size >= chars or place == len(rows):
                yield rows[first:place]
                first, size = place, 0


def split_words(folded: Folded) -> Words:
    """What spaces divide."""
    data, starts = folded.codes, folded.starts
    if data.dtype != np.uint8:
        data = np.frombuffer(data.tobytes().decode("utf-32-le").encode(), np.uint8)
        starts = np.flatnonzero(data == END)[:-1] + 1
    inside = data > SPACE
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    begins = edges[0::2]
    return Words(data, begins, edges[1::2], np.append(np.searchsorted(begins, starts), len(begins)))


def hash_words(words: Words) -> np.ndarray:
    """A hash for each word, uint64."""
    # the 8 bytes from each place on
    windows = np.ndarray((len(words.data) - _WINDOW + 1,), "<u8", words.data, strides=(1,))
    sizes = words.stops - words.starts
    hashes = mixed(windows[words.starts] & _MASKS[np.minimum(sizes, _WINDOW)])
    which = np.flatnonzero(sizes > _WINDOW)
    for done in range(_WINDOW, _WINDOW * _WINDOWS_MAX, _WINDOW):
        if not len(which):
            return hashes
        more = windows[words.starts[which] + done] & _MASKS[np.minimum(sizes[which] - done, _WINDOW)]
        hashes[which] = mixed(hashes[which] * _BASE + more)
        which = which[sizes[which] > done + _WINDOW]
    for word in which.tolist():
        hashes[word] = xxhash.xxh3_64_intdigest(words.data[words.starts[word]:words.stops[word]].data)
    return hashes


def word_grams(texts: list[str], n: int, normalize: bool = True) -> Grams:
    """Every `n` consecutive words of each text. A text of fewer words has one of all its words, one without
    words has none."""
    words = split_words(fold(texts, normalize))
    return grams(hash_words(words), words.of, n)


def char_grams(texts: list[str], n: int, normalize: bool = True) -> Grams:
    """Every `n` consecutive characters of each text, its words being divided by one space; else as
    `word_grams`."""
    folded = fold(texts, normalize)
    inside = folded.codes > SPACE
    kept = inside.copy()
    kept[1:] |= inside[:-1]  # of the spaces behind a word the first
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    of = np.append(np.searchsorted(edges[0::2], folded.starts), len(edges) // 2)
    last = of[1:][of[1:] > of[:-1]] - 1
    kept[edges[1::2][last]] = False  # but none behind the last word of a text
    before = np.append(0, np.cumsum(kept))
    return grams(folded.codes[kept].astype(np.uint64), before[np.append(folded.starts, len(kept))], n)


def grams(hashes: np.ndarray, of: np.ndarray, n: int) -> Grams:
    """Hashes of `n` consecutive words, given the hash of each; a text of fewer has one of all."""
    if not len(hashes):
        return Grams(np.empty(0, np.uint64), np.zeros_like(of))
    rolled, sizes = rolling(hashes, n), np.diff(of)
    inside = np.ones(len(hashes), bool)
    full = of[1:][sizes >= n]
    if n > 1:
        # here the next text would have a part in it
        inside[(full[:, None] - np.arange(1, n)).ravel()] = False
    short = np.flatnonzero((sizes > 0) & (sizes < n))
    if len(short):
        inside[:of[-1]] &= np.repeat(sizes >= n, sizes)
        inside[of[short]] = True
        rolled[of[short]] = polynomials(hashes, of[short], sizes[short])
    counts = np.where(sizes >= n, sizes - n + 1, np.minimum(sizes, 1))
    return Grams(mixed(rolled[inside]), np.append(0, np.cumsum(counts)))


def rolling(hashes: np.ndarray, n: int) -> np.ndarray:
    """The polynomial, modulo 2^64, of each word and the n - 1 behind it; behind the last word there are
    zeros.

    By doubling: those of 2k words follow from those of k, so it takes about 2 log2(n) operations a word.
    """
    total, base, width = hashes, int(_BASE), 1
    for bit in bin(n)[3:]:
        total = _joined(total, total, width, base)
        base, width = base * base % (1 << 64), 2 * width
        if bit == "1":
            total = _joined(total, hashes, width, int(_BASE))
            base, width = base * int(_BASE) % (1 << 64), width + 1
    return total.copy() if total is hashes else total


def _joined(first: np.ndarray, second: np.ndarray, width: int, base: int) -> np.ndarray:
    """Polynomials of `first`, raised by `base`, and of the `second` that begins `width` words behind it."""
    total = first * np.uint64(base)
    total[:-width] += second[width:]
    return total


def polynomials(hashes: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The polynomial of so many words from each start on; that of n words equals `rolling` there."""
    total = np.zeros(len(starts), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        more = np.flatnonzero(sizes > place)
        total[more] = total[more] * _BASE + hashes[starts[more] + place]
    return total


def mixed(values: np.ndarray) -> np.ndarray:
    """Each value with all its bits mixed, by a bijection of 64 bits."""
    values = values ^ (values >> _HALF)
    values *= _MIX
    values ^= values >> _HALF
    values *= _MIX
    values ^= values >> _HALF
    return values
