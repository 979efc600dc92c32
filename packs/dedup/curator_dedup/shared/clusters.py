"""From similar pairs to what becomes of each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Context, Contract, Reduce
from curator_dedup.shared.greedy import assign, distinct_pairs
from curator_dedup.shared.hash_index import HashIndex
from curator_dedup.shared.keep import best_first, from_lists
from curator_dedup.shared.rows import EDGE, VERDICT, EdgeBatch, VerdictBatch

SORT_OUT_EDGES = 1 << 20  # pairs that came twice are sorted out when so many have come since the last time
VERDICT_ROWS = 100_000  # of one batch


@dataclass(kw_only=True)
class Clusters(Reduce):
    """Takes similar pairs and makes a verdict for each record of each cluster; `greedy.assign` says what a
    cluster is.

    `radius`: how many pairs a record may be away from the one that is kept in its place; null for no bound.
    `drops_all`: the best record of a cluster goes too, as a duplicate of itself; references stay.

    The verdicts are a pure function of the set of pairs. They come cluster by cluster (in order of its name),
    the records of a cluster in keep order. A record that has a pair with itself is there twice: it counts
    twice in the size of its cluster, and has a verdict though it be alone in it; which of its rows stays is
    for the next stage to say. If pairs disagree about the rank of a record its best ranks count, and a record
    that any pair calls a reference is one.

    Memory: 12 bytes a pair, and a record 50 to 70 bytes, its id, and 8 bytes for each keep order; three times
    that while `finish` works.
    """

    name = "clusters"
    key = None
    absorbs = EdgeBatch
    reports = ("cluster_size", "cluster_sizes")
    columns = tuple(name for name in EDGE.names if name not in ("id", "source"))

    radius: int | None = 1
    drops_all: bool = False

    def __post_init__(self) -> None:
        if self.radius is not None and self.radius < 1:
            raise RecipeError(f"radius must be 1 or more, or null for no bound, got {self.radius}")

    def contract(self) -> Contract:
        return Contract(needs={name: EDGE.field(name).type for name in self.columns},
                        adds={field.name: field.type for field in VERDICT
                              if field.name not in ("id", "source")})

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._records = _Records()
        self._edges: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._sorted = self._fresh = 0  # pairs that the last sorting out left, and that came after it

    def absorb(self, batch: Batch) -> None:
        if not len(batch):
            return
        first, second = self._records.number(batch.rows, ""), self._records.number(batch.rows, "other_")
        self._edges.append((first, second, batch.rows.column("similarity").cast(pa.float32()).to_numpy()))
        self._fresh += len(first)
        if self._fresh > max(SORT_OUT_EDGES, self._sorted):
            self._sort_out()

    def _sort_out(self) -> None:
        joined = [np.concatenate(parts) for parts in zip(*self._edges, strict=True)]
        self._edges.clear()
        self._edges = [distinct_pairs(*joined)]
        self._sorted, self._fresh = len(self._edges[0][0]), 0

    def finish(self) -> Iterator[Batch]:
        if not self._edges:
            return
        self._sort_out()
        first, second, similarity = self._edges.pop()
        records = self._records
        ids, sources = records.names()
        reference = records.reference[:len(records)]
        order = np.empty(len(records), dtype=np.uint32)
        digests, ranks = records.digests[:len(records)], records.ranks[:len(records)]
        order[best_first(ids, sources, ranks, reference, digests)] = np.arange(len(records), dtype=np.uint32)
        kept, found = assign(first, second, similarity, order, reference, self.radius)
        twice = first[first == second]
        del first, second, similarity
        sizes = np.bincount(kept, minlength=len(kept)) + np.bincount(kept[twice], minlength=len(kept))
        best = np.flatnonzero(sizes > 1)
        keys = np.zeros(len(kept), dtype=np.uint64)
        keys[best] = cluster_keys(ids.take(pa.array(best)), sources.take(pa.array(best)), digests[best])
        members = np.flatnonzero(sizes[kept] > 1)
        members = members[np.lexsort((order[members], kept[members], keys[kept[members]]))]
        gone = kept != np.arange(len(kept))
        if self.drops_all:
            gone = ~reference
            found[np.isnan(found)] = 1.0
        for start in range(0, len(members), VERDICT_ROWS):
            rows = members[start:start + VERDICT_ROWS]
            best, lost = kept[rows], ~gone[rows]
            yield verdicts({
                "id": ids.take(pa.array(rows)), "source": sources.take(pa.array(rows)),
                "digest": digests[rows],
                "cluster": cluster_names(keys[best]),
                "duplicate_of": ids.take(pa.array(best.astype(np.int64), mask=lost)),
                "similarity": pa.array(found[rows], pa.float32(), mask=lost), "reference": reference[rows]},
                           sizes[best])


def verdicts(columns: Mapping[str, Any], sizes: np.ndarray) -> VerdictBatch:
    """Verdicts with these columns and the sizes of the clusters, which are named here."""
    sizes = np.minimum(sizes, np.iinfo(np.int32).max).astype(np.int32)
    rows = pa.table({**columns, "cluster_size": sizes, "cluster_sizes": size_names(sizes)})
    return VerdictBatch(rows.select(VERDICT.names).cast(VERDICT))


# -- names ---------------------------------------------------------------------------------------------------


def cluster_keys(ids: pa.ChunkedArray, sources: pa.ChunkedArray, digests: np.ndarray) -> np.ndarray:
    """What the clusters of these best records are called, uint64: a hash of source, id and digest."""
    # By way of numpy, which makes Python's texts several times faster than `to_pylist`.
    named = zip(np.asarray(sources.cast(pa.large_string())), np.asarray(ids), digests.tolist(), strict=True)
    return np.array([xxhash.xxh3_64_intdigest(f"{source}\0{record}".encode(), digest)
                     for source, record, digest in named],
                    dtype=np.uint64)


def cluster_names(keys: np.ndarray) -> pa.Array:
    """The same as 16 hex digits."""
    return pa.array([f"{key:016x}" for key in keys.tolist()], pa.string())


def size_names(sizes: np.ndarray) -> pa.Array:
    """`1`, `2`, `3-4`, `5-8`, `9-16`, …: the sizes of clusters in classes that double."""
    classes = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    names = ["1", "2", *(f"{2**(k - 1) + 1}-{2**k}" for k in range(2, int(classes.max(initial=0)) + 1))]
    return pa.array(names, pa.string()).take(pa.array(classes))


# -- records -------------------------------------------------------------------------------------------------


class _Records:
    """The records that pairs name, by number. Ids and sources are kept as Arrow has them, sources as a
    dictionary."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._ids: list[pa.Array] = []
        self._sources: list[pa.Array] = []
        self.digests = np.empty(0, dtype=np.uint64)
        self.ranks = np.empty((0, 0), dtype=np.float64)
        self.reference = np.zeros(0, dtype=bool)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        names = sum(array.nbytes for array in (*self._ids, *self._sources))
        return names + self._index.nbytes + self.digests.nbytes + self.ranks.nbytes + self.reference.nbytes

    def names(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """The ids and the sources of all, in order of number."""
        self._ids = [pa.concat_arrays(self._ids)]  # rows of one piece are taken much faster
        self._sources = [pa.chunked_array(self._sources).unify_dictionaries().combine_chunks()]
        return pa.chunked_array(self._ids), pa.chunked_array(self._sources)

    def number(self, rows: pa.Table, side: str) -> np.ndarray:
        """The numbers of the records on one side of pairs (`other_` before the columns' names), uint32; new
        ones are added."""
        ids = rows.column(f"{side}id").cast(pa.large_string()).combine_chunks()
        sources = rows.column(f"{side}source").cast(pa.large_string()).combine_chunks().dictionary_encode()
        ranks, reference = (from_lists(rows.column(f"{side}rank")),
                            rows.column(f"{side}reference").to_numpy().astype(bool))
        digests = rows.column(f"{side}digest").to_numpy()
        numbers, new = self._index.find_or_add(_hashes(ids, sources, digests))
        if new.size:
            self._grow(ranks.shape[1])
            self.ranks[numbers[new]], self.digests[numbers[new]] = ranks[new], digests[new]
            self._ids.append(ids.take(pa.array(new)))
            self._sources.append(sources.take(pa.array(new)))
        better = np.flatnonzero((ranks < self.ranks[numbers]).any(axis=1))
        np.minimum.at(self.ranks, numbers[better], ranks[better])
        self.reference[numbers[reference]] = True
        return numbers.astype(np.uint32)

    def _grow(self, width: int) -> None:
        if len(self) > len(self.reference):
            size = max(1024, 2 * len(self))
            more = size - len(self.reference)
            self.ranks = np.concatenate([self.ranks.reshape(len(self.reference), width),
                                         np.empty((more, width))])
            self.digests = np.concatenate([self.digests, np.empty(more, dtype=np.uint64)])
            self.reference = np.concatenate([self.reference, np.zeros(more, dtype=bool)])


def _hashes(ids: pa.Array, sources: pa.DictionaryArray, digests: np.ndarray) -> np.ndarray:
    """A 128-bit hash of id, source and digest for each row, uint64 [n, 2]."""
    seeds = np.array([xxhash.xxh3_64_intdigest(source.encode()) for source in sources.dictionary.to_pylist()],
                     dtype=np.uint64)
    of_row = (seeds[sources.indices.to_numpy()] ^ digests).tolist()
    hashed = map(xxhash.xxh3_128_digest, ids.cast(pa.large_binary()).to_pylist(), of_row)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64).reshape(-1, 2)
