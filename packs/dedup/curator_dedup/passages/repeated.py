"""Which pieces of a corpus occur again, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.keys import record_keys
from curator.api.stage import Context, Contract, Reduce, setting
from curator_dedup.passages.pieces import CUTS, PIECES, CutBatch, PieceBatch
from curator_dedup.shared.store import Growing, Keys

SEND_ROWS = 1 << 14  # records in a batch that goes on
RANK, PLACE = 32, (1 << 32) - 1  # a key: the rank of a record shifted by so many bits, and a place below
_NAME = ["id", "source", "digest"]


@dataclass(kw_only=True)
class Repeated(Reduce):
    """Of pieces that are equal the first `copies` stay; the others are to be cut out. Rows go on as
    `CutBatch`.

    The order is that of (id, source, a hash of the text, place). `span`: how many places a piece takes;
    copies that overlap one that stays are neither cut nor counted. Pieces are equal when 96 bits of hash are:
    among n different ones some two are mistaken for each other with a probability of about n * n / 2^97 (a
    millionth at 4 * 10^11).

    Memory: 20 bytes a piece of the shard (24 with sizes), what comes above `memory_bytes` in temporary files
    (in TMPDIR); and about 60 and its id a record with a piece there.
    """

    copies: int = 1
    span: int = 1
    shards: int = setting(default=16)
    memory_bytes: int = setting(default=1 << 30)

    key = "shard"
    absorbs = PieceBatch

    def contract(self) -> Contract:
        return Contract(needs=set(PIECES.names[2:]), adds={f.name: f.type for f in list(CUTS)[2:]})

    def setup(self, ctx: Context) -> None:
        self._pieces = _Pieces(self.memory_bytes)

    def clear(self) -> None:
        self._pieces.close()
        self._pieces = _Pieces(self.memory_bytes)

    def close(self) -> None:
        self._pieces.close()

    def absorb(self, batch: Batch) -> None:
        self._pieces.add(batch.rows)

    def finish(self) -> Iterator[CutBatch]:
        if not self._pieces.names:
            return
        table = pa.concat_tables(self._pieces.names).unify_dictionaries().combine_chunks()
        order, twin = ordered(table)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        nothing = (np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.int64),
                   np.empty(0, np.int64))
        found = [nothing,
                 *(chosen(*equals, self.copies, self.span) for equals in self._pieces.repeated(rank))]
        self.clear()
        yield from _cut_rows(table, order, twin,
                             *(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


class _Pieces:
    """The pieces of a shard in compact arrays, in memory or, above a budget, in files."""

    def __init__(self, memory_bytes: int) -> None:
        self.names: list[pa.Table] = []
        self._memory_bytes, self._count = memory_bytes, 0
        self._hashes = Keys()  # of pieces, by their number
        self._check, self._place, self._size, self._per_row = (Growing(np.uint32) for _ in range(4))

    @property
    def _columns(self) -> list[Growing]:
        return [self._hashes.keys, self._hashes.rows, self._check, self._place, self._size, self._per_row]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns) + self._hashes.nbytes

    def add(self, table: pa.Table) -> None:
        source = table.column("source").cast(pa.string()).dictionary_encode()
        self.names.append(pa.table({"id": table.column("id").cast(pa.large_string()), "source": source,
                                    "digest": table.column("digest")}).combine_chunks())
        hashes, *columns = (_flat(table.column(name)) for name in ("hashes", "checks", "places", "sizes"))
        self._hashes.add(hashes, np.arange(self._count, self._count + len(hashes)))
        self._count += len(hashes)
        assert self._count < 1 << 32, (
            f"{self._count} pieces are more than one shard can hold: ask for more shards")
        for column, values in zip((self._check, self._place, self._size), columns, strict=True):
            column.add(values)
        self._per_row.add(pc.list_value_length(table.column("hashes")).to_numpy())
        if self.nbytes > self._memory_bytes:
            self._hashes.sort()
            for column in self._columns:
                column.spill()

    def repeated(self, rank: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Pieces whose hash is there twice or more, all of one hash together: a number for it, check, key,
        size."""
        check, place, size = (column.whole() for column in (self._check, self._place, self._size))
        ends = np.cumsum(self._per_row.whole(), dtype=np.int64)
        for number, pieces in self._hashes.buckets():
            keys = rank[np.searchsorted(ends, pieces.astype(np.int64), side="right")] << RANK | place[pieces]
            yield number, check[pieces], keys, size[pieces] if len(size) else np.zeros(len(pieces), np.uint32)

    def close(self) -> None:
        for column in self._columns:
            column.close()


def _flat(lists: pa.ChunkedArray) -> np.ndarray:
    flat = pc.list_flatten(lists)
    return np.concatenate([np.empty(0, flat.type.to_pandas_dtype()),
                           *(chunk.to_numpy() for chunk in flat.chunks)])


def ordered(names: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of (id, source, digest); and, in that order, the number of each among its
    equals."""
    plain = names.set_column(1, "source", names.column("source").cast(pa.string()))
    order = pc.sort_indices(plain,
                            sort_keys=[(name, "ascending") for name in _NAME]).to_numpy().astype(np.int64)
    fresh = np.ones(len(order), dtype=bool)
    if len(order) > 1:
        taken = plain.take(pa.array(order))
        equal = [pc.equal(taken.column(n).slice(1), taken.column(n).slice(0, len(order) - 1)).to_numpy()
                 for n in _NAME]
        fresh[1:] = ~(equal[0] & equal[1] & equal[2])
    first = np.flatnonzero(fresh)
    return order, np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))


def chosen(hashes: np.ndarray, checks: np.ndarray, keys: np.ndarray, sizes: np.ndarray, copies: int,
           span: int) -> tuple[np.ndarray, ...]:
    """Of equal pieces those to cut, as (key, size, key of the first one), and the keys of those that stay in
    their stead.

    There is at least one piece. A key is the rank of the record (see `RANK`) and the place.
    """
    order = np.lexsort((keys, checks, hashes))
    hashes, checks, keys, sizes = hashes[order], checks[order], keys[order], sizes[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1])
    first = np.flatnonzero(fresh)
    group = np.cumsum(fresh) - 1
    stays, index = np.zeros(len(order), dtype=bool), np.arange(len(order))
    free = np.ones(len(order), dtype=bool)  # behind all that stay, and not overlapping them
    for _ in range(copies):
        chosen_one = np.minimum.reduceat(np.where(free, index, len(order)), first)
        there = chosen_one < len(order)
        stays[chosen_one[there]] = True
        limit = np.append(keys, np.iinfo(np.int64).max - span)[chosen_one] + span
        free = keys >= limit[group]
        if not free.any():
            break
    lost = np.zeros(len(first), dtype=bool)
    lost[group[free]] = True
    # what is one place long cannot be cut into
    kept = stays & lost[group] if span > 1 else np.zeros(len(order), dtype=bool)
    return keys[free], sizes[free], keys[first[group[free]]], keys[kept]


def _cut_rows(table: pa.Table, order: np.ndarray, twin: np.ndarray, cut: np.ndarray, size: np.ndarray,
              of: np.ndarray,
              kept: np.ndarray) -> Iterator[CutBatch]:
    """Rows of `CutBatch` for what `chosen` found, in the order of records. `order`, `twin`: of the rows of
    `table`, by rank."""
    by_key = np.argsort(cut)
    cut, size, of, kept = cut[by_key], size[by_key], of[by_key], np.sort(kept)
    ranks = np.union1d(cut >> RANK, kept >> RANK)
    cut_at, kept_at = (np.searchsorted(keys >> RANK, np.append(ranks, np.iinfo(np.int64).max))
                       for keys in (cut, kept))
    # of each record the longest first, then the first
    longest = np.lexsort((cut, -size.astype(np.int64), cut >> RANK))
    for low in range(0, len(ranks), SEND_ROWS):
        some = ranks[low:low + SEND_ROWS]
        bounds = slice(low, low + len(some) + 1)
        rows = table.take(pa.array(order[some]))
        loses = np.diff(cut_at[bounds]) > 0
        best = longest[cut_at[low:low + len(some)][loses]]
        holders = table.take(pa.array(order[of[best] >> RANK]))
        at = pa.array(np.cumsum(loses) - 1, mask=~loses)  # null for a record that loses nothing
        yield CutBatch(rows=pa.table({
            "id": rows.column("id").cast(pa.string()), "source": rows.column("source").cast(pa.string()),
            "digest": rows.column("digest"), "twin": pa.array(twin[some].astype(np.int32)),
            "cut": _places(cut, cut_at[bounds]), "kept": _places(kept, kept_at[bounds]),
            "of": holders.column("id").cast(pa.string()).take(at),
            "cluster": pa.array(record_keys(Batch(holders))).take(at),
            "of_size": pa.array(size[best]).take(at),
            "of_place": pa.array((cut[best] & PLACE).astype(np.uint32)).take(at),
        }, schema=CUTS))


def _places(keys: np.ndarray, bounds: np.ndarray) -> pa.ListArray:
    """The places in sorted keys as lists, one between every two bounds."""
    places = (keys[bounds[0]:bounds[-1]] & PLACE).astype(np.uint32)
    return pa.ListArray.from_arrays(pa.array((bounds - bounds[0]).astype(np.int32)), pa.array(places))
