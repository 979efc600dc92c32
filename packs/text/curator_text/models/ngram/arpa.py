"""Language models as text: the ARPA format, as SRILM, KenLM and others write it.

Lines of a section are read in pieces, and of what the head says nothing is made but a comparison at the end
of each section.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from curator.api.errors import CuratorError
from curator_text.models.ngram.hashes import longer_keys
from curator_text.models.ngram.model import BEGIN, END, UNKNOWN, Ngrams

_UNKNOWN_WORDS = (b"<unk>", b"<UNK>")
_UNKNOWN_LOG10 = -100.0  # of a word that is not known, in a model without `<unk>`, as KenLM takes it
_ORDERS_MAX = 32
_LINES = 50_000  # in memory at a time


class Damaged(Exception):
    """What is wrong with a file."""


class SortedTable:
    """N-grams by their keys, ascending."""

    def __init__(self, keys: np.ndarray, values: np.ndarray) -> None:
        self._keys, self._values = keys, values

    def find(self, keys: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = longer_keys(keys, words)
        return self.places(keys), keys

    def places(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key, -1 where it is not."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, places, -1)

    def probabilities(self, places: np.ndarray) -> np.ndarray:
        return self._values[places, 0].astype(np.float64)

    def backoffs(self, places: np.ndarray) -> np.ndarray:
        return self._values[places, 1].astype(np.float64)


def read_arpa(path: str | Path) -> Ngrams:
    """The model in a file on this machine, maybe with gzip.

    Raises:
        CuratorError: it is no such file, or it is damaged; says where and what is wrong.
    """
    lines = _Lines(path)
    try:
        return _read(lines)
    except (Damaged, OSError, EOFError) as error:
        raise CuratorError(f"{str(path)!r}, line {lines.number}, is no language model in the ARPA format: "
                           f"{error}") from error
    finally:
        lines.close()


class _Lines:
    """Lines without their ends; `number` is that of the last one."""

    def __init__(self, path: str | Path) -> None:
        try:
            with open(path, "rb") as file:
                packed = file.read(2) == b"\x1f\x8b"
            self._file = gzip.open(path, "rb") if packed else open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise CuratorError(f"{str(path)!r} cannot be read: {error}") from error
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._file:
            self.number += 1
            yield line.strip()

    def close(self) -> None:
        self._file.close()


def _read(lines: _Lines) -> Ngrams:
    rows = iter(lines)
    counts = _head(rows)
    words: dict[bytes, int] = dict.fromkeys(_UNKNOWN_WORDS, UNKNOWN)
    unigrams = np.zeros((0, 2), np.float32)
    tables: list[SortedTable] = []
    gaps = False
    for length, count in enumerate(counts, 1):
        if next((row for row in rows if row), b"") != b"\\%d-grams:" % length:
            raise Damaged(f"\\{length}-grams: should stand here")
        values, ids = _section(rows, length, count, words)
        if length == 1:
            unigrams = _unigrams(values, ids[:, 0], len(words) - 1)
            continue
        keys, shorter = ids[:, -1].astype(np.uint64), ids[:, -1].astype(np.uint64)
        for place in range(length - 2, -1, -1):
            shorter, keys = keys, longer_keys(keys, ids[:, place])
        order = np.argsort(keys, kind="stable")
        gaps = gaps or bool(length > 2 and len(keys) and (tables[-1].places(shorter) < 0).any())
        tables.append(SortedTable(keys[order], values[order]))
    if next((row for row in rows if row), b"") != b"\\end\\":
        raise Damaged("\\end\\ should stand here")
    for mark in (BEGIN, END):
        if mark not in words:
            raise Damaged(f"it has no word {mark.decode()}, which a model of sentences has")

    def ids_of(asked: Sequence[bytes]) -> np.ndarray:
        return np.array([words.get(word, UNKNOWN) for word in asked], np.int64)

    def unigrams_of(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = unigrams[ids].astype(np.float64)
        return found[:, 0].copy(), found[:, 1].copy()

    return Ngrams(ids_of, unigrams_of, tables, gaps)


def _head(rows: Iterator[bytes]) -> list[int]:
    """How many n-grams there are said to be of 1, 2, … words."""
    for number, row in enumerate(rows):
        if row == b"\\data\\":
            break
        if number > 1000:
            raise Damaged("\\data\\ stands nowhere near the beginning")
    counts: list[int] = []
    for row in rows:
        if not row:
            break
        name, _, value = row.partition(b"=")
        if name.split() != [b"ngram", b"%d" % (len(counts) + 1)] or not value.strip().isdigit():
            raise Damaged(f"'ngram {len(counts) + 1}=…' should stand here")
        counts.append(int(value))
    if not 1 <= len(counts) <= _ORDERS_MAX or not counts[0]:
        raise Damaged(f"its head names {len(counts)} lengths of n-grams; \\data\\ and 'ngram 1=…' come first")
    return counts


def _section(rows: Iterator[bytes], length: int, count: int,
             words: dict[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
    """log10 of probability and back-off, float32 [n, 2], and numbers of words, int64 [n, length]. Of the
    first section the words are learned."""
    values, ids = [np.zeros((0, 2), np.float32)], [np.zeros((0, length), np.int64)]
    left = count
    while left:
        parts = [row.split() for row in islice(rows, min(left, _LINES))]
        if not parts or any(not length < len(part) <= length + 2 for part in parts):
            raise Damaged(f"here or shortly before stands no {length}-gram, and {left:,} of {count:,} are "
                          "still due")
        left -= len(parts)
        if length == 1:
            for part in parts:
                words.setdefault(part[1], len(words) - 1)
        try:
            ids.append(np.array([[words[word] for word in part[1:length + 1]] for part in parts], np.int64))
            values.append(np.array([(part[0], part[length + 1] if len(part) > length + 1 else b"0")
                                    for part in parts]).astype(np.float32))
        except KeyError as error:
            raise Damaged(f"the word {error.args[0].decode('utf-8', 'replace')!r} is none of its "
                          "1-grams") from error
        except ValueError as error:
            raise Damaged(f"here or shortly before stands no number: {error}") from error
        if not np.isfinite(values[-1]).all() or (values[-1][:, 0] > 0).any():
            raise Damaged("here or shortly before is a logarithm of a probability that is above 0, or no "
                          "number")
    return np.concatenate(values), np.concatenate(ids)


def _unigrams(values: np.ndarray, ids: np.ndarray, words: int) -> np.ndarray:
    table = np.zeros((words, 2), np.float32)
    table[UNKNOWN, 0] = _UNKNOWN_LOG10
    table[ids] = values
    return table
