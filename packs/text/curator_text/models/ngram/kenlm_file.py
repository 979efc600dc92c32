"""The binary files of KenLM: of its type `probing`, which its build_binary makes by default, and its tries.

Ours because the library comes as a source only, and needs a compiler; it is not needed here. Everything is
little endian; sizes are compared with that of the file before anything is made of them. Tables stay in the
file (memory-mapped), so that all workers of a machine share them.

Source: kpu/kenlm, lm/{binary_format,search_hashed,vocab}.cc, util/probing_hash_table.hh, version 5 of the
format.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curator.api.errors import CuratorError
from curator_text.models.ngram.arpa import Damaged
from curator_text.models.ngram.hashes import longer_keys, word_hashes
from curator_text.models.ngram.model import BEGIN, END, UNKNOWN, Ngrams
from curator_text.models.ngram.trie import read_trie

MAGIC = b"mmap lm http://kheafield.com/code format version 5\n\0"
_CHECK = MAGIC.ljust(56, b"\0") + struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 0xFFFFFFFF, 0, 1)
_PROBING, _REST, _TRIE, _LAST = 0, 1, 2, 5  # types; from the third on tries, also quantised and with arrays
_WORD = np.dtype([("key", "<u8"), ("id", "<u4")])
_UNIGRAM = np.dtype([("probability", "<f4"), ("backoff", "<f4")])
_MIDDLE = np.dtype([("key", "<u8"), ("probability", "<f4"), ("backoff", "<f4")])
_LONGEST = np.dtype([("key", "<u8"), ("probability", "<f4")])
_STEPS_MAX = 1 << 16  # from where a key should be; in a table that is two thirds full it is some hundred


class ProbingTable:
    """A hash table in the file: a key lies where its remainder says, or after what lies there."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def find(self, keys: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = longer_keys(keys, words)
        return self.places(keys), keys

    def places(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key, int64; -1 where it is not.

        Raises:
            ValueError: the table has no end, as it is damaged.
        """
        size = len(self.rows)
        places = (keys % np.uint64(size)).astype(np.int64)
        found = np.full(len(keys), -1, np.int64)
        left = np.arange(len(keys))
        for _ in range(min(size, _STEPS_MAX)):
            here = self.rows["key"][places[left]]
            same = here == keys[left]
            found[left[same]] = places[left[same]]
            left = left[~same & (here != 0)]
            if not len(left):
                return found
            places[left] = (places[left] + 1) % size
        raise ValueError("a hash table of the language model is full: the file is damaged")

    def probabilities(self, places: np.ndarray) -> np.ndarray:
        return -np.abs(self.rows["probability"][places].astype(np.float64))  # its sign says something else

    def backoffs(self, places: np.ndarray) -> np.ndarray:
        return self.rows["backoff"][places].astype(np.float64)


def read_kenlm(path: str | Path) -> Ngrams:
    """The model in a file on this machine.

    Raises:
        CuratorError: it is no binary file of KenLM of a type that is read, or it is damaged; says what is
        wrong.
    """
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise CuratorError(f"{str(path)!r} cannot be read as a language model: {error}") from error
    try:
        return _read(data)
    except (Damaged, struct.error) as error:
        raise CuratorError(f"{str(path)!r} is no language model of KenLM that can be read: {error}. Files "
                           "that build_binary makes by default will do, and ARPA files") from error


def _read(data: mmap.mmap) -> Ngrams:
    if data[:len(_CHECK)] != _CHECK:
        raise Damaged("it does not begin with KenLM's mark and numbers of version 5")
    order, multiplier, kind, _, version = struct.unpack_from("<B3xfI?3xI", data, 88)
    if kind == _REST or not _PROBING <= kind <= _LAST:
        name = "probing with rest costs" if kind == _REST else f"number {kind}"
        raise Damaged(f"its type is {name}, and probing and tries are known: make one by "
                      "`build_binary probing model.arpa model.bin`")
    if version != (kind >= _TRIE) or order < 2 or not (kind >= _TRIE or 1 <= multiplier <= 1000):
        raise Damaged(f"its numbers make no sense: version {version}, order {order}, multiplier {multiplier}")
    counts = struct.unpack_from(f"<{order}Q", data, 108)
    if max(counts) > 8 * len(data):
        raise Damaged(f"it is said to hold {max(counts):,} n-grams, and has {len(data):,} bytes")
    taken = _Taken(data, -(-(108 + 8 * order) // 8) * 8)
    ngrams = read_trie(taken, counts, kind - _TRIE) if kind >= _TRIE else _probing(taken, counts, multiplier)
    try:
        known = ngrams.ids([BEGIN, END])
    except ValueError as error:
        raise Damaged(str(error)) from error
    if not known.all():
        raise Damaged("it does not know the beginning and the end of a sentence, <s> and </s>")
    return ngrams


def _probing(taken: _Taken, counts: Sequence[int], multiplier: float) -> Ngrams:
    if struct.unpack_from("<I", taken.data, taken.at)[0] != 0:
        raise Damaged("its vocabulary is of another version")
    taken.at += 8
    words = ProbingTable(taken.rows(_WORD, _buckets(counts[0], multiplier)))
    unigrams = taken.rows(_UNIGRAM, counts[0] + 1)
    tables = [ProbingTable(taken.rows(_MIDDLE if length < len(counts) else _LONGEST,
                                      _buckets(count, multiplier)))
              for length, count in enumerate(counts[1:], 2)]

    def ids(asked: Sequence[bytes]) -> np.ndarray:
        places = words.places(word_hashes(asked))
        found = np.where(places >= 0, words.rows["id"][places], UNKNOWN).astype(np.int64)
        if found.max(initial=0) >= len(unigrams):
            raise ValueError("the language model gives a word a number that it does not have: the file is "
                             "damaged")
        return found

    def values(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = unigrams[numbers]
        return -np.abs(found["probability"].astype(np.float64)), found["backoff"].astype(np.float64)

    return Ngrams(ids, values, tables)


def _buckets(count: int, multiplier: float) -> int:
    """As KenLM reckons, in float32."""
    return max(count + 1, int(np.float32(multiplier) * np.float32(count)))


class _Taken:
    """Tables one after the other."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data, self.at = data, at

    def rows(self, kind: np.dtype, count: int) -> np.ndarray:
        size = count * kind.itemsize
        if self.at + size > len(self.data):
            raise Damaged(f"it ends at byte {len(self.data):,}, before a table of {count:,} rows that begins "
                          f"at byte {self.at:,}")
        found = np.frombuffer(self.data, kind, count=count, offset=self.at)
        self.at += size
        return found
