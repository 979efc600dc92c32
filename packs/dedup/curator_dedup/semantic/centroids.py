"""Group vectors by k-means, so that only those of one group need be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.api.keys import record_keys, shard_values
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Reduce, setting
from curator_dedup.near.cosine import unit_vectors
from curator_dedup.near.products import GRID, nearest, on_grid, torch_device
from curator_dedup.near.sketch import by_shard
from curator_dedup.semantic.kmeans import fit
from curator_dedup.shared.arrays import flat, mix
from curator_dedup.shared.rows import SketchBatch

CLUSTER_ROWS = 1000  # of a cluster, on average, up to a million rows; beyond, the square root of their number
# for each cluster, to find its center. faiss (Clustering.h) warns below 39 and takes 256 at most
SAMPLE_ROWS = 50
SAMPLE_BYTES = 256 << 20  # of sketches in the sample, at most; twice that while it is gathered


@dataclass(kw_only=True)
class Centroids(Reduce):
    """Gives each sketch of a vector the keys of the `probes` clusters whose centers are nearest: a row for
    each shard of these.

    `clusters`: how many; None for so many that one has 1,000 rows on average, or from a million rows on the
    square root of their number (then labels and comparisons cost about the same). Centers are found by
    k-means on a sample of at most 50 vectors a cluster (less where they take more than 256 MB). It is chosen
    by a hash of the vector, so equal vectors count once; and as sums are exact (see `on_grid`), neither the
    order of rows nor what else is in their batch plays a role. `seed`: of the sample and of the first
    centers.

    `rank`: put one more number before the others of `rank`, so that of similar records the one that is
    farthest from its center is best (`hard`), or the nearest (`easy`), or any (`random`). Source: SemDeDup
    (Abbas et al. 2023), which keeps the farthest; the names are NeMo Curator's.

    `shards`: of the stage that comes next. One worker sees all rows. It multiplies matrices: with several
    `cpus` by as many threads, with a GPU by torch there.
    """

    clusters: int | None = None
    probes: int = 2
    rank: Literal["hard", "easy", "random"] | None = None
    seed: int = 1
    shards: int = setting(default=16)

    name = "centroids"
    key = None
    columns = ("digest", "sketch")
    absorbs = SketchBatch
    batch_size = 4096
    resources = Resources(cpus=1)

    def __post_init__(self) -> None:
        if self.clusters is not None and self.clusters < 1:
            raise RecipeError(f"clusters must be 1 or more, got {self.clusters}")
        if self.probes < 1:
            raise RecipeError(f"probes must be 1 or more, got {self.probes}")
        if self.rank not in (None, "hard", "easy", "random"):
            raise RecipeError(f"a rank by centers is hard, easy or random, got {self.rank!r}")

    def contract(self) -> Contract:
        needs, adds = {"digest", "sketch", "keys"}, {"shard": pa.int64(), "keys": pa.list_(pa.uint64())}
        if self.rank is None:
            return Contract(needs=needs, adds=adds)
        return Contract(needs=needs | {"rank"}, adds=adds | {"rank": pa.list_(pa.float64())})

    def setup(self, ctx: Context) -> None:
        self._device = torch_device(ctx.gpus)
        self._shard_values = shard_values(self.shards)
        self.clear()

    def clear(self) -> None:
        self._rows = 0
        self._salt = mix(np.uint64(self.seed))
        self._sample = _Sample()
        self._centers: np.ndarray | None = None

    def absorb(self, batch: Batch) -> None:
        self._rows += len(batch)
        self._sample.add(mix(batch.rows.column("digest").to_numpy() ^ self._salt), _sketches(batch))

    def finish(self) -> None:
        if not self._rows:
            return
        clusters = self.clusters or automatic(self._rows)
        vectors = on_grid(unit_vectors(self._sample.take(clusters * SAMPLE_ROWS)))
        self._centers = fit(vectors, clusters, seed=self.seed, device=self._device)
        self._sample = _Sample()

    def process(self, batch: Batch) -> Batch:
        if not len(batch):
            return batch
        assert self._centers is not None, "rows in pass two that were not there in pass one"
        numbers, products = nearest(on_grid(unit_vectors(_sketches(batch))), self._centers, self.probes,
                                    self._device)
        scope = _first_keys(batch)
        row, place, counts, keys = (by_shard(mix(scope[:, None] ^ mix(numbers.astype(np.uint64)
                                                                      + np.uint64(1))), self.shards))
        if self.rank is not None:
            batch = batch.with_columns({"rank": _ranked(batch, self._ranks(batch, products[:, 0]))})
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return batch.take(row).with_columns({"shard": pa.array(self._shard_values[place]),
                                             "keys": pa.ListArray.from_arrays(ends, pa.array(keys))})

    def _ranks(self, batch: Batch, products: np.ndarray) -> np.ndarray:
        if self.rank == "random":
            return mix(record_keys(batch) ^ mix(np.uint64(self.seed))).astype(np.float64)
        cosines = products.astype(np.float64) / GRID**2
        return cosines if self.rank == "hard" else -cosines


def automatic(rows: int) -> int:
    """How many clusters for so many rows."""
    return max(1, min(math.ceil(rows / CLUSTER_ROWS), math.isqrt(rows)))


class _Sample:
    """The sketches with the smallest hashes, each once."""

    def __init__(self) -> None:
        self._width = 0  # bytes of a sketch, before the first one 0
        self._held = 0
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._least = np.uint64(2**64 - 1)  # larger hashes are not in the sample

    def add(self, hashes: np.ndarray, sketches: np.ndarray) -> None:
        if not len(sketches):
            return
        if self._width not in (0, sketches.shape[1]):
            widths = f"{self._width // 2} values and others with {sketches.shape[1] // 2}"
            raise InputError(f"vectors to compare must all have one width; there are some with {widths}")
        self._width = sketches.shape[1]
        chosen = hashes <= self._least
        self._parts.append((hashes[chosen], sketches[chosen]))
        self._held += int(chosen.sum())
        if self._held > 2 * (most := max(1, SAMPLE_BYTES // self._width)):
            self._prune(most)

    def take(self, count: int) -> np.ndarray:
        """At most `count` sketches, in order of their hash."""
        self._prune(min(count, max(1, SAMPLE_BYTES // self._width)))
        return self._parts[0][1]

    def _prune(self, most: int) -> None:
        hashes, places = np.unique(np.concatenate([h for h, _ in self._parts]), return_index=True)
        sketches = np.concatenate([s for _, s in self._parts])[places[:most]]
        self._parts, self._held = [(hashes[:most], sketches)], len(sketches)
        if len(hashes) >= most:
            self._least = hashes[most - 1]


def _sketches(batch: Batch) -> np.ndarray:
    """The sketches, uint8 [n, width].

    Raises:
        InputError: they are of different widths.
    """
    column = flat(batch.rows.column("sketch").cast(pa.large_binary()))
    offsets = np.frombuffer(column.buffers()[1],
                            dtype=np.int64)[column.offset:column.offset + len(column) + 1]
    widths = np.unique(np.diff(offsets))
    if len(widths) != 1:
        shown = ", ".join(str(w // 2) for w in widths[:5].tolist())
        raise InputError(f"vectors to compare must all have one width; there are some with {shown} values")
    return np.frombuffer(column.buffers()[2],
                         dtype=np.uint8)[offsets[0]:offsets[-1]].reshape(len(column), int(widths[0]))


def _first_keys(batch: Batch) -> np.ndarray:
    """The one key that each row comes with: its scope's. uint64 [n]."""
    keys = flat(batch.rows.column("keys")).flatten().to_numpy()
    assert len(keys) == len(batch), (
        "centroids want sketches with one key a row, as `Cosine` gives them without planes")
    return keys


def _ranked(batch: Batch, first: np.ndarray) -> pa.Array:
    """The column `rank` with one more number before the others."""
    others = flat(batch.rows.column("rank")).flatten().to_numpy().reshape(len(batch), -1)
    ranks = np.column_stack([first, others])
    offsets = np.arange(len(batch) + 1, dtype=np.int32) * ranks.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ranks.ravel()))
