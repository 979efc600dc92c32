"""Which pieces of a corpus occur again, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.stage import Context, Contract, Reduce, setting
from curator.stages.dedup.pieces import CUTS, PIECES, CutBatch, PieceBatch, ranges
from curator.stages.identity import record_keys
from curator.tasks.batch import Batch

SORT_ROWS = 1 << 22  # pieces that are sorted at a time
SEND_ROWS = 1 << 14  # records in a batch that goes on
_NAME = ["id", "source", "digest"]


@dataclass(kw_only=True)
class Repeated(Reduce):
    """Of pieces that are equal the first `copies` stay; the others are to be cut out. Rows go on as `CutBatch`.

    The order is that of (id, source, a hash of the text, place). `span`: how many places a piece takes; copies that overlap
    one that stays are neither cut nor counted. Pieces are equal when 96 bits of hash are: among n different ones some two
    are mistaken for each other with a probability of about n * n / 2^97 (a millionth at 4 * 10^11).

    Memory: 16 bytes a piece of the shard (20 with sizes), and about 60 and its id a record with a piece there.
    """

    copies: int = 1
    span: int = 1
    shards: int = setting(default=16)

    key = "shard"
    absorbs = PieceBatch

    def contract(self) -> Contract:
        return Contract(needs=set(PIECES.names[2:]), adds={f.name: f.type for f in list(CUTS)[2:]})

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._names: list[pa.Table] = []
        self._pieces: list[tuple[np.ndarray, ...]] = []  # count a row; hash, check, place, size of each piece

    def absorb(self, batch: Batch) -> None:
        rows = batch.rows.combine_chunks()
        source = rows.column("source").cast(pa.string()).dictionary_encode()
        self._names.append(pa.table({"id": rows.column("id").cast(pa.large_string()), "source": source,
                                     "digest": rows.column("digest")}))
        flat = [_flat(rows.column(name)) for name in ("hashes", "checks", "places", "sizes")]
        self._pieces.append((pc.list_value_length(rows.column("hashes")).to_numpy(), *flat))

    def finish(self) -> Iterator[CutBatch]:
        if not self._names:
            return
        counts, hashes, checks, places, sizes = (np.concatenate(arrays) for arrays in zip(*self._pieces, strict=True))
        self._pieces = []
        table = pa.concat_tables(self._names).unify_dictionaries().combine_chunks()
        order, twin = ordered(table)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        ends = np.cumsum(counts)
        found = []
        for some in candidates(hashes):
            keys = rank[np.searchsorted(ends, some, side="right")] << 32 | places[some]
            found.append(chosen(hashes[some], checks[some], keys, sizes[some] if len(sizes) else np.zeros(len(some), np.uint32),
                                self.copies, self.span))
        del hashes, checks, places, sizes
        yield from _cut_rows(table, order, twin, *(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _flat(lists: pa.ChunkedArray) -> np.ndarray:
    flat = pc.list_flatten(lists)
    return np.concatenate([np.empty(0, flat.type.to_pandas_dtype()), *(chunk.to_numpy() for chunk in flat.chunks)])


def ordered(names: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of (id, source, digest); and, in that order, the number of each among its equals."""
    plain = names.set_column(1, "source", names.column("source").cast(pa.string()))
    order = pc.sort_indices(plain, sort_keys=[(name, "ascending") for name in _NAME]).to_numpy().astype(np.int64)
    fresh = np.ones(len(order), dtype=bool)
    if len(order) > 1:
        taken = plain.take(pa.array(order))
        equal = [pc.equal(taken.column(n).slice(1), taken.column(n).slice(0, len(order) - 1)).to_numpy() for n in _NAME]
        fresh[1:] = ~(equal[0] & equal[1] & equal[2])
    first = np.flatnonzero(fresh)
    return order, np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))


def candidates(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Places of hashes that occur twice or more, a range of hashes at a time; at least one array, maybe empty."""
    parts = max(1, -(-len(hashes) // SORT_ROWS))
    bits = (parts - 1).bit_length()
    for part in range(1 << bits):
        among = np.arange(len(hashes)) if not bits else np.flatnonzero(hashes >> np.uint64(64 - bits) == part)
        order = among[np.argsort(hashes[among])]
        values = hashes[order]
        same = values[1:] == values[:-1]
        twice = np.zeros(len(order), dtype=bool)
        twice[1:] |= same
        twice[:-1] |= same
        yield order[twice]


def chosen(hashes: np.ndarray, checks: np.ndarray, keys: np.ndarray, sizes: np.ndarray, copies: int,
           span: int) -> tuple[np.ndarray, ...]:
    """Of equal pieces those to cut, as (key, size, key of the first one), and the keys of those that stay in their stead.

    A key is the rank of the record, shifted by 32 bits, and the place.
    """
    order = np.lexsort((keys, checks, hashes))
    hashes, checks, keys, sizes = hashes[order], checks[order], keys[order], sizes[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1])
    first = np.flatnonzero(fresh)
    group = np.cumsum(fresh) - 1
    stays, index = np.zeros(len(order), dtype=bool), np.arange(len(order))
    free = np.ones(len(order), dtype=bool)  # behind all that stay, and not overlapping them
    for _ in range(copies if len(order) else 0):
        chosen_one = np.minimum.reduceat(np.where(free, index, len(order)), first)
        there = chosen_one < len(order)
        stays[chosen_one[there]] = True
        limit = np.append(keys, np.iinfo(np.int64).max - span)[chosen_one] + span
        free = keys >= limit[group]
        if not free.any():
            break
    lost = np.zeros(len(first), dtype=bool)
    lost[group[free]] = True
    if not len(order):
        free = stays
    kept = stays & lost[group] if span > 1 else np.zeros(len(order), dtype=bool)  # what is one place long cannot be cut into
    return keys[free], sizes[free], keys[first[group[free]]], keys[kept]


def _cut_rows(table: pa.Table, order: np.ndarray, twin: np.ndarray, cut: np.ndarray, size: np.ndarray, of: np.ndarray,
              kept: np.ndarray) -> Iterator[CutBatch]:
    """Rows of `CutBatch` for what `chosen` found, in the order of records."""
    by_key = np.argsort(cut)
    cut, size, of = cut[by_key], size[by_key], of[by_key]
    kept = np.sort(kept)
    ranks = np.union1d(cut >> 32, kept >> 32)
    cut_at, kept_at = (np.searchsorted(keys >> 32, np.append(ranks, np.iinfo(np.int64).max)) for keys in (cut, kept))
    best = np.full(len(ranks), -1)
    by_size = np.lexsort((cut, -size.astype(np.int64), cut >> 32))
    has = np.diff(cut_at) > 0
    best[has] = by_size[cut_at[:-1][has]]
    for low in range(0, len(ranks), SEND_ROWS):
        some = slice(low, low + SEND_ROWS)
        rows = table.take(pa.array(order[ranks[some]]))
        one = best[some]
        null = one < 0
        one = np.where(null, 0, one)
        holder = (of[one] >> 32) if len(of) else np.zeros(len(one), np.int64)
        holders = table.take(pa.array(order[holder]))
        places = (cut[one] & 0xFFFFFFFF) if len(cut) else one

        def lists(keys: np.ndarray, at: np.ndarray, some: slice = some) -> pa.Array:
            bounds = at[some.start:some.start + SEND_ROWS + 1]
            values = (keys[bounds[0]:bounds[-1]] & 0xFFFFFFFF).astype(np.uint32)
            return pa.ListArray.from_arrays(pa.array((bounds - bounds[0]).astype(np.int32)), pa.array(values))

        columns = {
            "id": rows.column("id").cast(pa.string()), "source": rows.column("source").cast(pa.string()),
            "digest": rows.column("digest"), "twin": pa.array(twin[ranks[some]].astype(np.int32)),
            "cut": lists(cut, cut_at), "kept": lists(kept, kept_at),
            "of": pc.if_else(pa.array(null), None, holders.column("id").cast(pa.string())),
            "cluster": pa.array(record_keys(Batch(holders)), mask=null),
            "of_size": pa.array(size[one] if len(size) else one.astype(np.uint32), mask=null),
            "of_place": pa.array(places.astype(np.uint32), mask=null)}
        yield CutBatch(rows=pa.table(columns, schema=CUTS))
