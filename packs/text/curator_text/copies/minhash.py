"""MinHash signatures of texts: what near-duplicates are found by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from curator import RecipeError
from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Stage
from curator.ngrams.folding import warm_up
from curator.ngrams.hashing import GROUP_CHARS, Grams, char_grams, groups, word_grams
from curator_text.copies.sketch import sketches

_SHINGLE = re.compile(r"([1-9]\d*) (word|char)s?")


@dataclass(kw_only=True)
class Minhash(Stage):
    """Add the MinHash signature of a text, from which near-duplicates are found.

    The share of places in which two signatures agree estimates the Jaccard similarity J of the two sets of
    shingles, with a standard error of at most sqrt(J (1 - J) / hashes).

    `shingle`: what is compared, so many consecutive words or characters: `5 words`, `24 chars`. A text that
    is shorter has one shingle, all of it; a text without a letter or digit has no signature (null), like
    null. `hashes`: values of a signature, and `seed`: which; only signatures of the same `shingle`, `hashes`,
    `seed` and `normalize` can be compared. `output`: the column with the signature (fixed_size_list<uint32>).
    `shingles`: a column for the hashes of all shingles too (list<uint32>, sorted, each once), from which the
    exact similarity follows; null for none.

    `normalize`: compare words only: lower case, without punctuation and diacritics, whatever the white space
    (see `curator.ngrams.folding`). Without it words are what white space divides. Between words of characters
    stands one space.
    """

    column: str = "text"
    shingle: str = "5 words"
    hashes: int = 112
    seed: int = 1
    output: str = "minhash"
    normalize: bool = True
    shingles: str | None = None

    def __post_init__(self) -> None:
        found = _SHINGLE.fullmatch(self.shingle)
        if not found:
            raise RecipeError("text.minhash: shingle is a number of words or chars, as in '5 words' or '24 "
                              "chars', "
                              f"not {self.shingle!r}")
        if not 1 <= self.hashes <= 4096:
            raise RecipeError(f"text.minhash: hashes must be from 1 to 4096, got {self.hashes}")
        if self.shingles == self.output:
            raise RecipeError(f"text.minhash: output and shingles are one column, {self.output!r}; give them "
                              "two names")
        self._n, self._of_words = int(found[1]), found[2] == "word"

    def contract(self) -> Contract:
        adds: dict[str, pa.DataType | None] = {self.output: pa.list_(pa.uint32(), self.hashes)}
        if self.shingles:
            adds[self.shingles] = pa.list_(pa.uint32())
        return Contract(needs={self.column: pa.string()}, adds=adds)

    def setup(self, ctx: Context) -> None:
        warm_up(self.normalize)

    def process(self, batch: Batch) -> Batch:
        texts = batch.rows.column(self.column).to_pylist()
        signatures = np.empty((len(texts), self.hashes), np.uint32)
        present = np.zeros(len(texts), bool)
        sets: dict[int, np.ndarray] = {}
        # Shingles of characters are five times as many.
        chars = GROUP_CHARS if self._of_words else GROUP_CHARS // 4
        for rows in groups(texts, chars):
            grams = self.grams([texts[row] or "" for row in rows])
            present[rows] = np.diff(grams.of) > 0
            signatures[rows] = sketches(grams, self.hashes, self.seed)
            if self.shingles:
                sets |= zip(rows, shingle_sets(grams), strict=True)
        values = pa.array(signatures.reshape(-1))
        columns: dict[str, Any] = {
            self.output: pa.FixedSizeListArray.from_arrays(values, self.hashes, mask=pa.array(~present))}
        if self.shingles:
            columns[self.shingles] = _lists([sets[row] for row in range(len(texts))], present)
        return batch.with_columns(columns)

    def grams(self, texts: list[str]) -> Grams:
        """The shingles of each text."""
        return (word_grams if self._of_words else char_grams)(texts, self._n, self.normalize)


def shingle_sets(grams: Grams) -> Iterator[np.ndarray]:
    """Of each text the hashes of its shingles, 32 bits of each, sorted, each once."""
    texts = np.repeat(np.arange(len(grams.of) - 1, dtype=np.uint64), np.diff(grams.of))
    # `np.unique` would hash, 100 times slower
    both = np.sort(texts << np.uint64(32) | grams.hashes >> np.uint64(32))
    both = both[np.append(True, both[1:] != both[:-1])[:len(both)]]
    ends = np.searchsorted(both >> np.uint64(32), np.arange(len(grams.of), dtype=np.uint64))
    values = both.astype(np.uint32)
    return (values[start:stop] for start, stop in pairwise(ends))


def _lists(values: list[np.ndarray], present: np.ndarray) -> pa.Array:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    joined = np.concatenate([np.empty(0, np.uint32), *values])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(joined), mask=pa.array(~present))
