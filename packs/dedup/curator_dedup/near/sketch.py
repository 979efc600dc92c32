"""Make of each record what is compared of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator import sql
from curator.api.batch import HIDDEN, Batch
from curator.api.errors import RecipeError
from curator.api.keys import shard_values
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator_dedup.near.measures import Measure
from curator_dedup.shared.arrays import distinct, flat, mix
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.rows import SHINGLES, SKETCH, SketchBatch, digests
from curator_dedup.shared.values import hash_values


@dataclass(kw_only=True)
class Sketch(Stage):
    """Make of each record a `SketchBatch` row for each shard that it has a key in; what has nothing to
    compare is absorbed.

    `measure`: what is compared. `keep`: which record is better. `scope`: a column; only records with the same
    value there meet, those without a value being one group. `reference`: a SQL condition; records for which
    it is true are never removed. `shingles`: a column of hashes of shingles (lists of integers), where
    similarity is to be exact.
    """

    measure: Measure
    keep: Keep
    scope: str | None = None
    reference: str | None = None
    shingles: str | None = None
    shards: int = setting(default=16)

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise RecipeError(f"shards must be 1 or more, got {self.shards}")
        self._needs = self.measure.needs() | self.keep.needs() | {name for name in (self.scope, self.shingles)
                                                                  if name}
        if self.reference is not None:
            self._needs |= sql.needs({"reference": self.reference})

    def contract(self) -> Contract:
        return Contract(needs=self._needs, adds=self._adds())

    def _adds(self) -> dict[str, pa.DataType]:
        fields = [*SKETCH, *([] if self.shingles is None else [SHINGLES])]
        return {field.name: field.type for field in fields if field.name not in ("id", "source")}

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: columns.get(name) for name in ("id", "source")} | dict(self._adds())

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self.measure.check(columns)
        self.keep.check(columns)
        if self.reference is not None:
            sql.check_all({"reference": self.reference}, columns)
        kind = None if self.shingles is None else columns.get(self.shingles)
        lists = (kind is None or pa.types.is_null(kind) or pa.types.is_list(kind)
                 or pa.types.is_large_list(kind))
        values = getattr(kind, "value_type", None)
        if not lists or (values is not None and not pa.types.is_integer(values)):
            raise RecipeError(f"column {self.shingles!r} is {kind}; shingles are lists of integers")

    def setup(self, ctx: Context) -> None:
        self._shard_values = shard_values(self.shards)

    def process(self, batch: Batch) -> Outputs:
        present, sketches = self.measure.encode(batch)
        rows, sketches = batch.filter(present), sketches[present]
        keys = bucket_keys(self.measure, rows, sketches, self.scope)
        if not keys.size:
            return Outputs(absorbed=batch)
        row, place, counts, keys = by_shard(keys, self.shards, repeats=getattr(self.measure, "hashes", 1) > 1)
        lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()),
                                         pa.array(keys))
        columns = {"shard": pa.array(self._shard_values[place]), "keys": lists,
                   "sketch": _binary(sketches[row])}
        columns |= {name: values.take(pa.array(row))
                    for name, values in self._of_records(rows, sketches).items()}
        hidden = [name for name in rows.rows.column_names if name in HIDDEN]
        sketched = SketchBatch(rows=rows.rows.select(["id", "source", *hidden]).take(pa.array(row)))
        return Outputs(out=sketched.with_columns({name: columns[name] for name in self._adds()}),
                       absorbed=batch.filter(~present))

    def _of_records(self, batch: Batch, sketches: np.ndarray) -> dict[str, pa.Array]:
        """What does not depend on the shard."""
        ranks = np.asarray(self.keep.ranks(batch),
                           dtype=np.float64).reshape(len(batch), -1) if len(batch) else np.zeros((0, 0))
        offsets = pa.array(np.arange(len(batch) + 1) * ranks.shape[1], pa.int32())
        reference = np.zeros(len(batch), dtype=bool)
        if self.reference is not None:
            reference = sql.evaluate({"reference": self.reference},
                                     batch.rows).is_valid().to_numpy(zero_copy_only=False)
        columns: dict[str, Any] = {"digest": pa.array(digests(sketches)), "reference": pa.array(reference),
                                   "rank": pa.ListArray.from_arrays(offsets, pa.array(ranks.ravel()))}
        if self.shingles is not None:
            columns["shingles"] = sets(flat(batch.rows.column(self.shingles)))
        return columns


def bucket_keys(measure: Measure, batch: Batch, sketches: np.ndarray, scope: str | None) -> np.ndarray:
    """The measure's keys of these rows, uint64 [n, bands]: only rows with the same value in the column
    `scope` share one."""
    keys = measure.keys(batch, sketches) if len(batch) else np.zeros((0, 0), dtype=np.uint64)
    if not keys.size:
        return keys
    return mix(keys if scope is None else keys ^ mix(hash_values(batch, [scope])[0][:, :1]))


def by_shard(keys: np.ndarray, shards: int,
             repeats: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Keys, uint64 [n, bands], grouped by row and shard (key modulo `shards`). With `repeats` a row's equal
    keys become one.

    Returns: row and shard of each group, int64 [groups]; how many keys it has, int64 [groups]; the keys,
    group after group.
    """
    places = (keys % np.uint64(shards)).astype(np.int64)
    order = np.lexsort((keys, places), axis=1) if repeats else np.argsort(places, axis=1, kind="stable")
    places, keys = np.take_along_axis(places, order, axis=1), np.take_along_axis(keys, order, axis=1)
    starts, stays = np.ones(places.shape, dtype=bool), np.ones(places.shape, dtype=bool)
    starts[:, 1:] = places[:, 1:] != places[:, :-1]
    if repeats:
        stays[:, 1:] = keys[:, 1:] != keys[:, :-1]
    at = np.flatnonzero(stays)
    first = np.flatnonzero(starts.ravel()[at])
    return (at[first] // keys.shape[1], places.ravel()[at[first]], np.diff(np.append(first, len(at))),
            keys.ravel()[at])


def sets(lists: pa.Array) -> pa.Array:
    """Lists of integers as sorted lists of uint32 (their low 32 bits), each value once; a null becomes an
    empty list."""
    if pa.types.is_null(lists.type):
        lists = lists.cast(pa.list_(pa.uint32()))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    values = pc.list_flatten(lists).drop_null().to_numpy(zero_copy_only=False)
    assert len(values) == sizes.sum(), "a list of shingles has nulls in it"
    low = values.astype(np.uint64) & np.uint64(0xFFFFFFFF)
    tagged = distinct(np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes) << np.uint64(32) | low)
    counts = np.bincount((tagged >> np.uint64(32)).astype(np.int64), minlength=len(sizes))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tagged.astype(np.uint32)))


def _binary(values: np.ndarray) -> pa.Array:
    """uint8 [n, width] as n binary values."""
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
    data = np.ascontiguousarray(values)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values),
                                            [None, pa.py_buffer(offsets), pa.py_buffer(data)])
