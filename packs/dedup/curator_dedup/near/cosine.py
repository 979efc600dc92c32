"""The measure of embeddings: the cosine of the angle between two vectors."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator_dedup.near.measures import RECALL, Measure
from curator_dedup.near.products import on_grid, pairs_over
from curator_dedup.shared.arrays import flat, mix

BANDS_MAX = 32  # keys of a record
BITS_MAX = 32  # of a key
# by how much a product in float32 (or TF32) of vectors that are 1 long but for rounding may miss the cosine
SLACK = 2e-3
TINY = np.finfo(np.float64).tiny  # no vector has this length: a row that is not present has a cosine of 0
BLOCK_VALUES = 1 << 21  # numbers that are worked on at a time


@dataclass(frozen=True)
class Cosine(Measure):
    """Compares the vectors in `column` (lists of numbers, all of one width) by cosine; a pair has at least
    `threshold`.

    A sketch is the vector at length 1 in float16 (2 bytes a component). A vector that is null or empty, has a
    null, a NaN or an infinity in it, or is 0 has no direction and is not compared.

    `planes`: keys are the sides of random hyperplanes that the vector is on (Charikar 2002), so many bits and
    bands that 99 % of pairs at the threshold share one; without, all records share one key, and `Centroids`
    makes better ones of it. `seed`: of the planes.
    """

    column: str
    threshold: float = 0.95
    planes: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise RecipeError(f"a threshold of cosines must be above 0 and at most 1, got {self.threshold}")

    def needs(self) -> set[str]:
        return {self.column}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.column)
        if kind is None:
            return
        listed = _listed(kind)
        if listed is None or not (pa.types.is_floating(listed) or pa.types.is_integer(listed)):
            raise RecipeError(f"cosine similarity wants vectors: {self.column!r} is {kind}, not a list of "
                              "numbers")

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Which rows have a direction, bool [n], and the sketches, uint8 [n, 2 d].

        Raises:
            InputError: vectors of different widths.
        """
        rows, vectors = self._vectors(batch)
        present = np.zeros(len(batch), dtype=bool)
        sketches = np.zeros((len(batch), vectors.shape[1]), dtype=np.float16)
        for start in range(0, len(vectors), size := max(1, BLOCK_VALUES // vectors.shape[1])):
            some = slice(start, start + size)
            present[rows[some]], sketches[rows[some]] = _directions(vectors[some])
        return present, sketches.view(np.uint8)

    def _vectors(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The rows that have a vector, and the vectors, [m, d]; a null in one is NaN."""
        column = batch.rows.column(self.column)
        if pa.types.is_null(column.type):  # the reader saw no value
            return np.zeros(0, dtype=np.int64), np.zeros((0, 1), dtype=np.float32)
        if _listed(column.type) is None:
            raise InputError(f"cosine similarity wants vectors: {self.column!r} is {column.type}, not a list "
                             "of numbers")
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        column = flat(column)
        widths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(widths > 0)
        different = np.unique(widths[rows])
        if len(different) > 1:
            shown = ", ".join(map(str, different[:5].tolist()))
            raise InputError(f"vectors to compare must all have one width; in {self.column!r} there are some "
                             f"with {shown} values")
        values = (column if len(rows) == len(column) else column.take(pa.array(rows))).flatten()
        width = int(different[0]) if len(different) else 1
        if values.null_count:
            values = pc.fill_null(values.cast(pa.float64()), math.nan)
        return rows, values.to_numpy(zero_copy_only=False).reshape(-1, width)

    def keys(self, batch: Batch, sketches: np.ndarray) -> np.ndarray:
        """The buckets of each row, uint64 [n, bands]. They are exact: a record has the same ones in any
        batch."""
        if not self.planes:
            return np.zeros((len(sketches), 1), dtype=np.uint64)
        vectors = unit_vectors(sketches)
        bits, bands = bits_and_bands(self.threshold)
        planes = _planes(vectors.shape[1], bits * bands, self.seed)
        keys = np.empty((len(vectors), bands), dtype=np.uint64)
        for start in range(0, len(vectors), size := max(1, BLOCK_VALUES // max(planes.shape))):
            some = slice(start, start + size)
            sides = (on_grid(vectors[some]) @ planes > 0).reshape(-1, bands, bits)
            sides = np.pad(sides, ((0, 0), (0, 0), (0, BITS_MAX - bits)))
            keys[some] = np.packbits(sides, axis=2).view(np.uint32)[:, :, 0]
        return mix(keys ^ mix(np.arange(1, bands + 1, dtype=np.uint64)))

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The cosines of sketches a[i] and b[i], each uint8 [m, 2 d]: float32 [m].

        They are exact but for the rounding of sketches (about 1e-5) and of the answer: components are
        multiples of 2^-24 and sums are below 2, so float64 holds every sum, in whatever order. Equal sketches
        have 1.
        """
        found = np.empty(len(a), dtype=np.float32)
        for start in range(0, len(a), size := max(1, 2 * BLOCK_VALUES // max(1, a.shape[1]))):
            some = slice(start, start + size)
            x, y = _wide(a[some]), _wide(b[some])
            found[some] = _cosine(*(np.einsum("ij,ij->i", *two) for two in ((x, y), (x, x), (y, y))))
        return found

    def pairs(self, a: np.ndarray, b: np.ndarray,
              device: str | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every pair of sketches a[i] and b[j] with at least the threshold: i, j, and `similarity`; in order
        of i, then j.

        The matrix product in float32 (by torch if `device` names one, "cuda") only says which pairs to
        compute, so the answer is the same for all devices and for all ways to cut `a` and `b` into blocks.
        """
        i, j = pairs_over(unit_vectors(a), unit_vectors(b), self.threshold - SLACK, device)
        cosines = self.similarity(a[i], b[j]) if len(i) * 8 < len(a) * len(b) else _all_cosines(a, b)[i, j]
        kept = cosines >= np.float32(self.threshold)
        return i[kept], j[kept], cosines[kept]

    def matrix(self, a: np.ndarray, b: np.ndarray, device: str | None = None) -> np.ndarray:
        """`pairs` as a matrix, float32 [n, m]: the cosine where it is at least the threshold, 0 elsewhere."""
        found = np.zeros((len(a), len(b)), dtype=np.float32)
        i, j, cosines = self.pairs(a, b, device)
        found[i, j] = cosines
        return found


def unit_vectors(sketches: np.ndarray) -> np.ndarray:
    """The vectors of sketches, float32 [n, d]; 1 long but for the rounding of float16."""
    return sketches.view(np.float16).astype(np.float32)


def bits_and_bands(threshold: float) -> tuple[int, int]:
    """Bits of a key and keys of a vector: the most bits for which at most 32 keys find 99 % of the pairs at
    the threshold.

    A plane has two vectors on one side with a chance of 1 - angle / pi (Charikar 2002).
    """
    one_side = 1 - math.acos(min(1.0, threshold)) / math.pi
    for bits in range(BITS_MAX, 0, -1):
        missed = 1 - one_side ** bits
        bands = 1 if missed <= 1 - RECALL else math.ceil(math.log(1 - RECALL) / math.log(missed))
        if bands <= BANDS_MAX:
            return bits, bands
    raise AssertionError(f"one bit finds half of the pairs at {threshold}")


@functools.lru_cache(maxsize=4)
def _planes(width: int, count: int, seed: int) -> np.ndarray:
    """Random planes on the grid, float32 [d, count]."""
    normals = np.random.default_rng((seed, width)).standard_normal((count, width))
    return np.ascontiguousarray(on_grid(normals / np.sqrt((normals * normals).sum(axis=1, keepdims=True))).T)


def _directions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the vectors have a direction, and these, 1 long; the others are 0."""
    vectors = vectors.astype(np.float64)
    peak = np.abs(vectors).max(axis=1)
    present = (peak > 0) & (peak < np.inf)  # false for NaN, too
    vectors /= np.where(present, peak, 1)[:, None]  # so that no square is too large or too small
    vectors[~present] = 0
    length = np.sqrt((vectors * vectors).sum(axis=1))
    return present, (vectors / np.where(present, length, 1)[:, None]).astype(np.float16)


def _wide(sketches: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(sketches).view(np.float16).astype(np.float64)


def _all_cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As `similarity`, and with the same bits, of every pair; cheaper where many are asked for."""
    x, y = _wide(a), _wide(b)
    return _cosine(x @ y.T, np.einsum("ij,ij->i", x, x)[:, None], np.einsum("ij,ij->i", y, y)[None, :])


def _cosine(product: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.minimum(product / np.sqrt(np.maximum(own * other, TINY)), 1).astype(np.float32)


def _listed(kind: pa.DataType) -> pa.DataType | None:
    """What a column holds lists of; None if it holds none."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind.value_type if any(is_one(kind) for is_one in lists) else None
