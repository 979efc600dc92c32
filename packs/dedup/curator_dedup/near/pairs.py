"""Find the pairs of records that are similar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import RecipeError
from curator.api.findings import Alarm, Finding
from curator.api.format import count
from curator.api.stage import Context, Contract, Outputs, Reduce, setting
from curator_dedup.near.candidates import HALF, LOW, PAIRS, Found, Pairs, Verify, verified
from curator_dedup.near.cosine import Cosine
from curator_dedup.near.index import IndexPlace, made_by, matches
from curator_dedup.near.measures import Measure, MinHash
from curator_dedup.near.products import torch_device
from curator_dedup.shared.arrays import distinct, first_of_each, ranges
from curator_dedup.shared.rows import EDGE, SHINGLES, SKETCH, EdgeBatch, SketchBatch
from curator_dedup.shared.store import Names, RowStore, keep_order

LOOK_UP = 1 << 22  # keys that are looked up in an index at a time
EDGES = 100_000  # rows of a batch, at most
BLOCK_BYTES = 1 << 20  # of sketches that are compared at a time: they should stay in a core's cache
BLOCK_SHINGLES = 1 << 20  # of pairs whose shingles are compared at a time, about
LEADERS_BYTES = 1 << 18  # of sketches that are read for each record of one bucket, at most
CROWDED = "crowded"  # among the extra counts
_CROWDED = ("times a record shared a key with so many records unlike it that not all of its pairs were "
            "looked at: what many have "
           "in common (a template, boilerplate) hides their duplicates. Cut it out before, or use more rows "
           "a band.")


@dataclass(kw_only=True)
class FindPairs(Reduce):
    """Find the pairs of records that are similar, among those that share a key. Takes `SketchBatch` rows,
    gives `EdgeBatch` rows.

    `measure`: how sketches are compared; a pair is an edge where the similarity is at least the measure's
    threshold. `exact`: similarity is the Jaccard similarity of the column `shingles`, computed for each pair
    whose sketches do not rule it out (`MinHash.doubtful`: one true pair in millions is lost so). Two
    references are no pair.

    Where more than 64 records share a key, not all pairs are found, but for each record up to three better
    ones that it is similar to. Where thousands share a key and are not similar, some pairs may not be found
    at all, and the run says so in a warning; see `candidates`. Such a crowd costs at most 256 KB of sketches
    read a record, 0.3 ms.

    `index`: an index of records that stayed in earlier runs, made with this measure and `scope`; pairs with
    these come too.

    The same edges are found in whatever order rows come and into however many `shards` keys are divided; an
    edge comes once from each shard that finds it.

    `memory_bytes`: what a shard holds in memory, about; more is spilled to temporary files (in TMPDIR). While
    edges are looked for, it takes up to 250 MB more, 16 bytes for each row and 24 for each edge.
    """

    measure: Measure
    exact: bool = False
    index: IndexPlace | None = None
    scope: str | None = None
    shards: int = setting(default=16)
    memory_bytes: int = setting(default=1 << 30)

    key = "shard"
    absorbs = SketchBatch

    def __post_init__(self) -> None:
        if self.exact and not isinstance(self.measure, MinHash):
            raise RecipeError("exact verification compares shingles, which only MinHash signatures are made "
                              "of")
        if self.shards < 1:
            raise RecipeError(f"shards must be 1 or more, got {self.shards}")
        names = tuple(name for name in SKETCH.names if name not in ("id", "source", "shard"))
        self.columns = (*names, SHINGLES.name) if self.exact else names
        self._device: str | None = None  # where matrices are multiplied; numpy without a GPU

    def contract(self) -> Contract:
        adds = {field.name: field.type for field in EDGE if field.name not in ("id", "source")}
        return Contract(needs=set(self.columns or ()), adds=adds)

    def setup(self, ctx: Context) -> None:
        self._device = torch_device(ctx.gpus)
        self.clear()

    def clear(self) -> None:
        self._empty()
        self._found = Found()

    def _empty(self) -> None:
        self.close()
        self._store = RowStore(self.memory_bytes, shingles=self.exact)

    def close(self) -> None:
        if hasattr(self, "_store"):
            self._store.close()

    def absorb(self, batch: Batch) -> None:
        self._store.add(batch)

    def finish(self) -> Iterator[EdgeBatch | Outputs]:
        try:
            yield from _edges(self._store, self.measure, self.exact, self._device, self._found)
            if self.index is not None:
                yield from _edges_to(self.index, self._store, self.measure, made_by(self.measure, self.scope))
            if self._found.crowded:
                yield Outputs(counts={CROWDED: self._found.crowded})
        finally:
            self._empty()

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        if CROWDED in counts.extra:
            yield Alarm("warning", f"Stage {step}: {count(counts.extra[CROWDED])} {_CROWDED}")


def _edges(store: RowStore, measure: Measure, exact: bool, device: str | None,
           found: Found) -> Iterator[EdgeBatch]:
    shared = np.zeros(store.count, dtype=bool)
    for _, rows in store.keys.buckets():
        shared[rows] = True
    names = Names(store)
    ordered = keep_order(store, names, np.flatnonzero(shared))
    place = np.zeros(store.count, dtype=np.uint64)
    place[ordered] = np.arange(len(ordered), dtype=np.uint64)
    judge = _Judge(store, ordered, measure, exact, device)
    verify = Verify(judge.similar, judge.looks, np.asarray(store.reference.whole()[ordered]),
                    judge.near if isinstance(measure, Cosine) else None)
    rounds = max(64, LEADERS_BYTES // max(1, store.width))
    pairs, similarity = _distinct(part for number, rows in store.keys.buckets()
                                  for part in verified(distinct(number << HALF | place[rows]), verify, rounds,
                                                       found))
    for at in range(0, len(pairs), EDGES):
        yield _edge_batch(store, names, ordered, pairs[at:at + EDGES], similarity[at:at + EDGES])


def _edges_to(index: IndexPlace, store: RowStore, measure: Measure, made_by: str) -> Iterator[EdgeBatch]:
    """Pairs of a record of the index, which is the better one, and a row of the store."""
    names, sketches, keys, rows = (Names(store), store.sketch.whole(), store.keys.keys.whole(),
                                   store.keys.rows.whole())
    ranks = pa.array([[0.0] * store.ranks], EDGE.field("rank").type)
    for start in range(0, len(keys), LOOK_UP):
        part = slice(start, start + LOOK_UP)
        for row, record in matches(index, made_by, np.asarray(keys[part]), np.asarray(rows[part])):
            known = np.frombuffer(b"".join(record.column("sketch").to_pylist()),
                                  dtype=np.uint8).reshape(len(row), store.width)
            similarity = measure.similarity(np.asarray(sketches[row]), known)
            good = np.flatnonzero((similarity >= measure.least(store.width))
                                  & ~np.asarray(store.reference.whole()[row]))
            record, row = record.take(pa.array(good)), row[good]
            # A record that is delivered again is not the one in the index, though it looks the same: a bit of
            # its name differs.
            digest = record.column("digest").to_numpy() ^ np.uint64(1)
            first = {"id": record.column("id"), "source": record.column("source"), "digest": digest,
                     "rank": ranks.take(pa.array(np.zeros(len(row), np.int64))),
                     "reference": np.ones(len(row), bool)}
            second = {f"other_{name}": values for name, values in _named(store, names, row).items()}
            columns = {**first, **second, "similarity": pa.array(similarity[good])}
            yield EdgeBatch(pa.table(columns).select(EDGE.names).cast(EDGE))


class _Judge:
    """Says how similar places in keep order are; NaN where they are not similar enough."""

    def __init__(self, store: RowStore, ordered: np.ndarray, measure: Measure, exact: bool,
                 device: str | None) -> None:
        self.ordered, self.exact, self.device = ordered, exact, device
        self.measure: Any = measure  # of some kinds it has `pairs` too
        self.sketches, self.digests = store.sketch.whole(), store.digest.whole()
        self.least = np.float32(measure.least(store.width)) if store.width else np.float32(1)
        self.doubtful = self.least
        if exact and store.width and isinstance(measure, MinHash):
            self.doubtful = np.float32(measure.doubtful(store.width))
        if exact and store.shingles is not None:
            self.shingles, self.offsets = store.shingles.values.whole(), store.shingles.offsets()

    def similar(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        similarity = np.empty(len(a), dtype=np.float32)
        a, b = self.ordered[a], self.ordered[b]
        size = max(1, BLOCK_BYTES // self.sketches.shape[1])
        for at in range(0, len(a), size):
            span = slice(at, at + size)
            similarity[span] = self.measure.similarity(np.asarray(self.sketches[a[span]]),
                                                       np.asarray(self.sketches[b[span]]))
        similarity[~(similarity >= self.doubtful)] = np.nan
        if self.exact:
            maybe = np.flatnonzero(~np.isnan(similarity))
            similarity[maybe] = self._jaccard(a[maybe], b[maybe])
            similarity[~(similarity >= self.least)] = np.nan
        return similarity

    def near(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of places in a and b that are similar, and how similar: for measures that compare by the
        block."""
        some, others = (np.asarray(self.sketches[self.ordered[places]]) for places in (a, b))
        return self.measure.pairs(some, others, self.device)

    def _jaccard(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Of the shingles of rows a[i] and b[i]; 0 where there are none."""
        sizes = (self.offsets[a + 1] - self.offsets[a]) + (self.offsets[b + 1] - self.offsets[b])
        blocks = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK_SHINGLES)) + 1
        parts = [np.zeros(0, np.float32)]
        for some, other in zip(np.split(a, blocks), np.split(b, blocks), strict=True):
            parts.append(jaccard(self.shingles, self.offsets, some, other))
        return np.concatenate(parts)

    def looks(self, places: np.ndarray) -> np.ndarray:
        return self.digests[self.ordered[places]]


def jaccard(values: np.ndarray, offsets: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The Jaccard similarity of the sets a[i] and b[i], float32 [m]; of two empty sets 0.

    Set k is `values[offsets[k]:offsets[k + 1]]`, uint32, each value once.
    """
    sizes = [offsets[rows + 1] - offsets[rows] for rows in (a, b)]
    both = np.concatenate([_tagged(values, offsets[rows], size)
                           for rows, size in zip((a, b), sizes, strict=True)])
    both.sort()
    in_common = both[1:][both[1:] == both[:-1]] >> np.uint64(32)
    common = np.bincount(in_common.astype(np.int64), minlength=len(a))
    return (common / np.maximum(sizes[0] + sizes[1] - common, 1)).astype(np.float32)


def _tagged(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The values of these sets, each with the number of its set (0, 1, …) in the high half; uint64."""
    number = np.repeat(np.arange(len(sizes)), sizes)
    return number.astype(np.uint64) << np.uint64(32) | values[ranges(starts, sizes)].astype(np.uint64)


def _distinct(parts: Iterator[Pairs]) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of these once, the better place in the high half, in order; and their similarity. 12 to 24
    bytes a pair."""
    pairs, similarity = np.zeros(0, np.uint64), np.zeros(0, np.float32)
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    fresh = 0  # pairs that wait
    for a, b, alike in parts:
        waiting.append((a.astype(np.uint64) << HALF | b.astype(np.uint64), alike))
        fresh += len(a)
        if fresh > max(PAIRS, len(pairs)):
            pairs, similarity = _merged(pairs, similarity, waiting)
            waiting, fresh = [], 0
    return _merged(pairs, similarity, waiting)


def _merged(pairs: np.ndarray, similarity: np.ndarray,
            more: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    pairs, first = first_of_each(np.concatenate([pairs, *(m[0] for m in more)]))
    return pairs, np.concatenate([similarity, *(m[1] for m in more)])[first]


def _edge_batch(store: RowStore, names: Names, ordered: np.ndarray, pairs: np.ndarray,
                similarity: np.ndarray) -> EdgeBatch:
    columns: dict[str, pa.Array] = {"similarity": pa.array(similarity, pa.float32())}
    for prefix, places in (("", pairs >> HALF), ("other_", pairs & LOW)):
        named = _named(store, names, ordered[places.astype(np.int64)])
        columns |= {prefix + name: values for name, values in named.items()}
    return EdgeBatch(rows=pa.table([columns[name] for name in EDGE.names], schema=EDGE))


def _named(store: RowStore, names: Names, rows: np.ndarray) -> dict[str, pa.Array]:
    """Who these rows are, and how they stand in keep order."""
    ranks = np.asarray(store.rank.whole()[rows])
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(store.ranks)
    return {"id": names.ids(rows).cast(pa.string()), "source": names.sources(rows),
            "digest": pa.array(store.digest.whole()[rows]),
            "rank": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ranks.ravel(), pa.float64())),
            "reference": pa.array(store.reference.whole()[rows], pa.bool_())}
