"""How alike two lists of bit hashes are, by the share of them that agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator_dedup.near.measures import Hamming, is_list

ENOUGH = 2  # hashes that agree, where both records have so many: two that share one title are no copies


@dataclass(frozen=True)
class SharedHashes(Hamming):
    """The share of the hashes of the shorter of two lists that agree with one of the other list.

    Equal hashes of a record count once, nulls not at all, and their order does not matter. Two hashes agree
    if they differ in `within` bits at most. Of A and B with a and b hashes, x of A's agree with one of B's,
    and y of B's with one of A's: then the similarity is min(x, y) / min(a, b). It is 0 where no two hashes
    are within `distance` bits (by these records meet), and where min(x, y) is below 2, unless one of the
    lists has one hash only.

    `share`: the least similarity of a pair. `within`: at least `distance`. `column`, `distance`, `hashes`: as
    for `Hamming`.

    Keys are as those of `Hamming`, but of 24 bits and more, so many that 90 % of the hashes meet that are
    `distance` bits apart: records of which two agree so closely meet with 99 %.

    A sketch is the hashes in order, each once, the first one again where there are fewer than `hashes`.

    Source: a share of the frames that must agree, as in vPDQ
    (github.com/facebook/ThreatExchange/tree/main/vpdq).
    """

    share: float = 0.5
    within: int = 0
    version: int = 2  # of the keys: those that an index or an unfinished run has of another one are of no use

    block_bits: ClassVar[int] = 24  # long lists of many records share shorter ones by chance
    sample_bits: ClassVar[int] = 24
    recall: ClassVar[float] = 0.9
    keys_most: ClassVar[int] = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise RecipeError(f"share must be above 0 and at most 1, got {self.share}")
        if self.within < self.distance:
            raise RecipeError(f"within must be distance or more, which is {self.distance}, got {self.within}")

    @property
    def threshold(self) -> float:
        return self.share

    def least(self, width: int) -> float:
        return self.share

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        kind = columns.get(self.column)
        if kind is not None and not pa.types.is_null(kind) and not is_list(kind):
            raise RecipeError(f"column {self.column!r} is {kind}: share is for lists of hashes; leave it out")

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        present, sketches = super().encode(batch)
        words = _words(sketches, self.hashes)
        order = np.zeros((len(sketches), self.hashes), np.int64)
        if words.size:
            order = np.lexsort([words[..., at] for at in reversed(range(words.shape[2]))], axis=1)
        words = np.take_along_axis(words, order[..., None], axis=1)
        again = np.zeros(words.shape[:2], bool)
        again[:, 1:] = (words[:, 1:] == words[:, :-1]).all(axis=2)
        words = np.where(again[..., None], words[:, :1], words)
        order = np.argsort(again, axis=1, kind="stable")  # each once, then the first again
        words = np.take_along_axis(words, order[..., None], axis=1)
        return present, np.ascontiguousarray(words).view(np.uint8).reshape(sketches.shape)

    def keys(self, batch: Batch, sketches: np.ndarray) -> np.ndarray:
        """As of `Hamming`; those of the first hash, which fills a sketch, are made once."""
        if not sketches.size:
            return super().keys(batch, sketches)
        self.blocks(8 * sketches.shape[1] // self.hashes)  # raises where all of them would be too many
        counted = _once(_words(sketches, self.hashes))
        each = Hamming.keys(replace(self, hashes=1), batch, sketches.reshape(*counted.shape, -1)[counted])
        place = np.cumsum(counted).reshape(counted.shape) - 1
        return each[np.where(counted, place, place[:, :1])].reshape(len(sketches), -1)

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first, second = _words(a, self.hashes), _words(b, self.hashes)
        counted, counted_too = _once(first), _once(second)
        longest, longest_too = (int(one.sum(axis=1).max(initial=1)) for one in (counted, counted_too))
        first, counted = first[:, :longest], counted[:, :longest]
        second, counted_too = second[:, :longest_too], counted_too[:, :longest_too]
        found = np.zeros(counted.shape, bool)      # hashes of a that agree with one of b
        found_too = np.zeros(counted_too.shape, bool)
        nearest = np.full(len(a), np.iinfo(np.int32).max)
        for number in range(longest):
            bits = np.bitwise_count(first[:, number:number + 1] ^ second).sum(axis=2, dtype=np.int32)
            agree = bits <= self.within
            found[:, number] = agree.any(axis=1)
            found_too |= agree
            nearest = np.minimum(nearest, bits.min(axis=1))
        agreed = np.minimum((found & counted).sum(axis=1), (found_too & counted_too).sum(axis=1))
        fewer = np.minimum(counted.sum(axis=1), counted_too.sum(axis=1))
        enough = (nearest <= self.distance) & (agreed >= np.minimum(fewer, ENOUGH))
        return np.where(enough, agreed / fewer, 0).astype(np.float32)


def _words(sketches: np.ndarray, hashes: int) -> np.ndarray:
    """Sketches as [n, hashes, words of a hash]: uint64 where hashes are whole words, else uint8."""
    apart = np.ascontiguousarray(sketches).reshape(len(sketches), hashes, -1)
    return apart.view(np.uint64) if apart.shape[2] and apart.shape[2] % 8 == 0 else apart


def _once(words: np.ndarray) -> np.ndarray:
    """Which hashes of each sketch count, bool [n, hashes]: not the first one when it comes again."""
    counted = (words != words[:, :1]).any(axis=2)
    counted[:, 0] = True
    return counted
