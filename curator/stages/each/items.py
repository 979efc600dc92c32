"""The items of records as records of their own, in batches; the first step of what works inside `each`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch, kinds
from curator.api.errors import RecipeError
from curator.api.stage import Outputs, Stage

ANSWER_BYTES = 32 << 20  # of items in one answer
RECORD, ITEM = "_record", "_item"  # which record of the call an item is of, and its place there


@dataclass(kw_only=True)
class Items(Stage):
    """Each item of `payload` as a record called `as_`. What has none is absorbed: there is nothing to say of
    it.

    Arrays are cut into views: no item is copied.
    """

    payload: str
    as_: str
    per_item: Sequence[str] = ()

    def process(self, batch: Batch) -> Iterator[Outputs]:
        held = {name: _values(batch, name) for name in (self.payload, *self.per_item)}
        faults = [self._fault({name: of[row] for name, of in held.items()}) for row in range(len(batch))]
        good = [row for row, fault in enumerate(faults) if fault is None]
        if len(good) < len(batch):
            bad = {row: fault for row, fault in enumerate(faults) if fault is not None}
            yield Outputs(failed=batch.take(list(bad)).with_error(list(bad.values())))
        values = held[self.payload]
        full = [row for row in good if values[row] is not None and len(values[row])]
        if len(full) < len(good):
            yield Outputs(absorbed=batch.take(sorted({*good} - {*full})))
        light = batch.without([name for name in held if name in batch.columns]).as_type(Batch)
        for rows in _parts(full, values):
            some = light if len(rows) == len(light) else light.take(rows)
            theirs = {name: [of[row] for row in rows] for name, of in held.items()}
            yield Outputs(out=self._items(some, theirs))

    def _fault(self, held: Mapping[str, Any]) -> str | None:
        """What is wrong with the items of a record."""
        items = held[self.payload]
        known = items is None or isinstance(items, (list, tuple, pa.Array)) or getattr(items, "ndim", 0) > 0
        if not known:
            return f"{self.payload!r} is {type(items).__name__}, and not a list or an array of items"
        for name in self.per_item:
            if items is not None and held[name] is not None and len(held[name]) != len(items):
                return f"{self.payload!r} has {len(items)} items, and {name!r} a value for {len(held[name])}"
        return None

    def _items(self, records: Batch, held: Mapping[str, list]) -> Batch:
        counts = [len(items) for items in held[self.payload]]
        place = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        columns: dict[str, Any] = {"item": place, ITEM: place}
        for name in self.per_item:
            pairs = zip(held[name], counts, strict=True)
            columns[name] = _column([pa.nulls(count) if of is None else of for of, count in pairs])
        given = held[self.payload]
        if isinstance(given[0], pa.Array):
            return records.explode(counts).with_columns({self.as_: _column(given), **columns})
        items = [item for of in given for item in of]
        if self.as_ == "pixels":
            for axis, name in enumerate(("height", "width")):
                sizes = [None if item is None else item.shape[axis] for item in items]
                columns[name] = pa.array(sizes, pa.int32())
        made = records.explode(counts).with_columns(columns)
        return kind_with(self.as_)(made.rows, **{self.as_: items})


def kind_with(payload: str) -> type[Batch]:
    """The kind of batch that has this payload."""
    for kind in kinds():
        if payload in kind.payload_names():
            return kind
    there = ", ".join(dict.fromkeys(name for kind in kinds() for name in kind.payload_names()))
    raise RecipeError(f"as: no kind of batch has a payload {payload!r}; there are {there}")


def _values(batch: Batch, name: str) -> list:
    """For each record its items: an array or list of a payload, or the values of a list column; None where it
    has none."""
    if name in batch.payloads():
        return batch.payloads()[name]
    column = batch.rows.column(name)
    if not pa.types.is_null(column.type) and not hasattr(column.type, "value_type"):
        raise RecipeError(f"{name!r} is {column.type}, neither a list nor a payload: it has no items")
    return [one.values if one.is_valid else None for one in column]


def _parts(rows: list[int], values: list) -> Iterator[list[int]]:
    """The records in groups of so many bytes."""
    part: list[int] = []
    nbytes = 0
    for row in rows:
        part.append(row)
        sizes = values[row] if isinstance(values[row], (list, tuple)) else [values[row]]
        nbytes += sum(getattr(one, "nbytes", 64) for one in sizes)
        if nbytes >= ANSWER_BYTES:
            yield part
            part, nbytes = [], 0
    if part:
        yield part


def _column(values: list) -> pa.ChunkedArray:
    """One below the other; what is missing has the type of the rest."""
    arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in values]
    kind = next((one.type for one in arrays if not pa.types.is_null(one.type)), pa.null())
    return pa.chunked_array([one if one.type == kind else one.cast(kind) for one in arrays], kind)
