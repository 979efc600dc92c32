"""Of equal records keep the best: the parts of exact deduplication that see all records before they
decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator import sql
from curator.api.batch import Batch, concat_tables
from curator.api.stage import Context, Contract, Outputs, Reduce, Stage, setting
from curator_dedup.shared.clusters import size_names
from curator_dedup.shared.hash_index import HashIndex
from curator_dedup.shared.keep import Keep, as_lists, best_first, from_lists
from curator_dedup.shared.rows import VERDICT, VerdictBatch, digests
from curator_dedup.shared.values import WIDTH, columns_of_copies, scoped_hashes

VALUE = pa.schema([
    ("id", pa.string()), ("source", pa.string()),
    ("value", pa.binary(WIDTH)),  # a hash of what is compared
    ("rank", pa.list_(pa.float64())), ("reference", pa.bool_())])  # as in `rows.SKETCH`
SORT_OUT_RECORDS = 1 << 18  # records are sorted out when so many have come since the last time


@dataclass
class ValueBatch(Batch):
    """What is compared of each record that has it. Columns: `VALUE`."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """What is compared: the hash of one column or several, each `scope` apart. See `DedupExact`."""

    column: tuple[str, ...]
    normalize: bool | str = False
    scope: str | None = None

    def needs(self) -> set[str]:
        return {*self.column, *([self.scope] if self.scope else [])}

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Whether each row has a value, and its hash, uint8 [rows, 16]."""
        hashes, present = scoped_hashes(batch, self.column, self.normalize, self.scope)
        return present, np.where(present[:, None], hashes, np.uint64(0)).view(np.uint8)


@dataclass(kw_only=True)
class Values(Stage):
    """A `ValueBatch` row for each record that has a value."""

    value: Value
    keep: Keep = Keep()
    reference: str | None = None

    def contract(self) -> Contract:
        condition = sql.needs({"reference": self.reference}) if self.reference else set()
        return Contract(needs=self.value.needs() | self.keep.needs() | condition)

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {field.name: field.type for field in VALUE}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self.keep.check(columns)
        if self.reference:
            sql.check_all({"reference": self.reference}, columns)

    def process(self, batch: Batch) -> Outputs:
        present, hashes = self.value.encode(batch)
        reference = np.zeros(len(batch), dtype=bool)
        if self.reference:
            reference = sql.evaluate({"reference": self.reference},
                                     batch.rows).is_valid().to_numpy(zero_copy_only=False)
        made = batch.with_columns({"value": _column(hashes), "rank": as_lists(self.keep.ranks(batch)),
                                   "reference": reference})
        hidden = [name for name in made.rows.column_names if name.startswith("_")]
        made = ValueBatch(made.rows.select([*VALUE.names, *hidden]))
        return Outputs(out=made.filter(present), absorbed=batch.filter(~present))


@dataclass(kw_only=True)
class Equals(Reduce):
    """Takes `ValueBatch` rows and answers with a verdict for each record whose value another one has too.

    The best is kept, the first in keep order, references before all others; references are always kept.
    `drops_all`: where there are two or more, all go that are no references. Rows that share id and source
    with the best one have its verdict: which of them stays is for the next stage to say.

    Memory: about 60 bytes a value, the id of its best record, and 8 bytes for each keep order; up to twice
    that as it grows.
    """

    key = "value"
    reports = ("cluster_size", "cluster_sizes")
    columns = ("value", "rank", "reference")

    drops_all: bool = False
    shards: int = setting(default=16)

    def contract(self) -> Contract:
        return Contract(needs=set(self.columns), removes={"value", "rank"},
                        adds={field.name: field.type for field in VERDICT
                              if field.name not in ("id", "source")})

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._found = _Found()

    def absorb(self, batch: Batch) -> None:
        self._found.add(batch.rows)

    def process(self, batch: Batch) -> Outputs:
        hashes = _hashes(batch.rows.column("value"))
        numbers = self._found.index.find(hashes)
        several = self._found.counts[numbers] > 1
        numbers, hashes, judged = numbers[several], hashes[several], batch.filter(several)
        best, sizes = self._found.best(numbers), self._found.counts[numbers].astype(np.int32)
        kept = judged.rows.column("reference").to_numpy()
        if not self.drops_all:
            kept = kept | _same(judged.rows, best)
        added = columns_of_copies(best.column("id").cast(pa.string()), hashes)
        for name in ("duplicate_of", "similarity"):
            added[name] = pc.if_else(pa.array(kept), pa.scalar(None, added[name].type), added[name])
        added |= {"digest": digests(hashes.view(np.uint8)), "cluster_size": sizes,
                  "cluster_sizes": size_names(sizes)}
        verdicts = VerdictBatch(judged.with_columns(added).without(("value", "rank")).rows)
        return Outputs(out=verdicts, absorbed=batch.filter(~several))


class _Found:
    """The values of a shard by number: how many records have each, and who is the best of them."""

    def __init__(self) -> None:
        self.index = HashIndex()
        self.counts = np.zeros(1024, dtype=np.int64)
        self._candidates: list[pa.Table] = ([VALUE.empty_table().append_column("number",
                                                                               pa.array([], pa.int64()))])
        self._sorted = self._fresh = 0  # candidates that the last sorting out left, and that came after it

    def add(self, rows: pa.Table) -> None:
        numbers, _ = self.index.find_or_add(_hashes(rows.column("value")))
        if len(self.index) > len(self.counts):
            more = 2 * len(self.index) - len(self.counts)
            self.counts = np.concatenate([self.counts, np.zeros(more, dtype=np.int64)])
        np.add.at(self.counts, numbers, 1)
        candidates = pa.table({"number": numbers, "id": rows.column("id").cast(pa.large_string()),
                               "rank": rows.column("rank"),
                               "source": rows.column("source").cast(pa.large_string()).dictionary_encode(),
                               "reference": rows.column("reference")})
        self._candidates = [*self._candidates, candidates] if self._sorted or self._fresh else [candidates]
        self._fresh += len(rows)
        if self._fresh > max(SORT_OUT_RECORDS, self._sorted):
            self._sort_out()

    def _sort_out(self) -> None:
        """Keep the best candidate of each value, in order of their numbers."""
        table = concat_tables(self._candidates).unify_dictionaries()
        numbers = table.column("number").to_numpy()
        winners = np.empty(len(self.index), dtype=np.int64)
        winners[numbers] = np.arange(len(numbers))
        rows = np.flatnonzero(np.bincount(numbers)[numbers] > 1)
        if rows.size:
            some, group = table.take(pa.array(rows)), numbers[rows]
            order = best_first(some.column("id"), some.column("source"), from_lists(some.column("rank")),
                               some.column("reference").to_numpy(), group=group)
            first = np.flatnonzero(np.diff(group[order], prepend=-1))
            winners[group[order[first]]] = rows[order[first]]
        self._candidates = [table.take(pa.array(winners)).combine_chunks()]
        self._sorted, self._fresh = len(winners), 0

    def best(self, numbers: np.ndarray) -> pa.Table:
        """`id` and `source` (a dictionary) of the best records of these values."""
        if self._fresh:
            self._sort_out()
        return self._candidates[0].take(pa.array(numbers))


def _same(rows: pa.Table, best: pa.Table) -> np.ndarray:
    """Whether each row is the record beside it."""
    ids = pc.equal(rows.column("id").cast(pa.large_string()), best.column("id"))
    sources = pc.equal(rows.column("source").cast(pa.large_string()),
                       best.column("source").cast(pa.large_string()))
    return pc.and_(ids, sources).to_numpy()


def _column(hashes: np.ndarray) -> pa.Array:
    """Hashes, uint8 [n, 16], as a column."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), len(hashes),
                                                [None, pa.py_buffer(np.ascontiguousarray(hashes))])


def _hashes(column: pa.ChunkedArray) -> np.ndarray:
    """The same back, as uint64 [n, 2]."""
    column = column.combine_chunks()
    if not len(column):
        return np.empty((0, 2), dtype=np.uint64)
    return np.frombuffer(column.buffers()[1],
                         dtype=np.uint64).reshape(-1, 2)[column.offset:column.offset + len(column)]
