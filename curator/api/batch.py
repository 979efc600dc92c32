"""The batch: a table of records, and payloads aligned with its rows."""

from __future__ import annotations

import traceback as _traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW = "_row"  # position of the record in the call's input; the engine sets it and checks it
UNIT = "_unit"  # the unit (piece of the source) that the record came from
HIDDEN = (ROW, UNIT)
B = TypeVar("B", bound="Batch")


def payload(*, lasts: bool = False) -> Any:
    """Declare a payload field: a list with one entry a row, or None when the batch carries none.

    `lasts`: it is as small as what was read (a file's bytes), so a `checkpoint` keeps it where it is needed
    behind; what is made of it (pixels, samples) ends there.
    """
    return field(default=None, metadata={"payload": True, "lasts": lasts})


@dataclass
class Batch:
    """Records that travel together.

    `rows` holds one record a row. `id` and `source` (string) are always there; columns that begin with
    `_` belong to the engine and are never written out. Every method returns a new batch and keeps rows and
    payloads aligned; columns are shared, not copied, where Arrow allows it.
    """

    rows: pa.Table

    def __post_init__(self) -> None:
        for name, values in self.payloads().items():
            if len(values) != self.rows.num_rows:
                raise ValueError(
                    f"{type(self).__name__}.{name} has {len(values)} entries for {self.rows.num_rows} rows")

    @classmethod
    @cache
    def payload_names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls) if f.metadata.get("payload"))

    def payloads(self) -> dict[str, list]:
        """The payloads that this batch carries."""
        return {name: values for name in self.payload_names() if (values := getattr(self, name)) is not None}

    def __len__(self) -> int:
        return self.rows.num_rows

    @property
    def columns(self) -> list[str]:
        """The names of the visible columns."""
        return [name for name in self.rows.column_names if not name.startswith("_")]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and payloads that this batch refers to (a slice counts its own part only)."""
        return self.rows.nbytes + sum(_value_bytes(v) for vs in self.payloads().values() for v in vs)

    def column(self, name: str) -> list:
        """The values of a column as a list; None where there is no value. For numbers to compute with see
        `array`."""
        return self._column(name).to_pylist()

    def array(self, name: str, null: float | bool | None = None) -> np.ndarray:
        """The values of a column of numbers or booleans as a numpy array, which is not to be written to.

        `null`: what stands where there is no value. It has to be said where there is one: `array("words",
        null=0)`, or `null=np.nan`, which makes whole numbers float64.

        Raises:
            TypeError: the column has other values.
            ValueError: it has nulls, and `null` is not given.
        """
        values = self._column(name)
        kind = values.type
        if pa.types.is_null(kind) and null is not None:  # a reader that saw no value has no better type
            return np.full(len(values), null)
        if not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise TypeError(f"column {name!r} is {kind}, and an array has numbers or booleans; use "
                            f"column({name!r}), a list")
        if values.null_count:
            if null is None:
                raise ValueError(f"column {name!r} has {values.null_count} nulls: say what stands for them, "
                                 "such as "
                                 f"array({name!r}, null=0), or use column({name!r}), a list with None")
            if isinstance(null, float) and not pa.types.is_floating(kind):
                values = values.cast(pa.float64())
            values = values.fill_null(pa.scalar(bool(null) if pa.types.is_boolean(values.type) else null,
                                                values.type))
        return values.chunk(0).to_numpy(zero_copy_only=False) if values.num_chunks == 1 else values.to_numpy()

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self.rows.column_names:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return self.rows.column(name)

    def take(self, indices: Sequence[int] | np.ndarray) -> Self:
        """The rows at these positions, in this order; a position may come several times."""
        indices = np.asarray(indices, dtype=np.int64)
        kept = {name: [values[i] for i in indices] for name, values in self.payloads().items()}
        return replace(self, rows=self.rows.take(pa.array(indices)), **kept)

    def filter(self, mask: Sequence[bool] | np.ndarray | pa.Array | pa.ChunkedArray) -> Self:
        """The rows for which `mask` is true; null counts as false."""
        if isinstance(mask, (pa.Array, pa.ChunkedArray)):
            mask = pc.fill_null(mask.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
        mask = np.asarray(mask, dtype=bool)
        if len(mask) != len(self):
            raise ValueError(f"a mask of {len(mask)} for {len(self)} rows")
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Self:
        """The rows from `start` up to but not including `stop`, without copying."""
        kept = {name: values[start:stop] for name, values in self.payloads().items()}
        return replace(self, rows=self.rows.slice(start, max(0, stop - start)), **kept)

    def split(self, labels: Sequence[Any]) -> dict[Any, Self]:
        """One batch for each label that occurs, in order of first appearance."""
        if len(labels) != len(self):
            raise ValueError(f"{len(labels)} labels for {len(self)} rows")
        groups: dict[Any, list[int]] = {}
        for index, label in enumerate(labels):
            groups.setdefault(label, []).append(index)
        if len(groups) == 1:
            return {next(iter(groups)): self}
        return {label: self.take(indices) for label, indices in groups.items()}

    def explode(self, counts: Sequence[int]) -> Self:
        """Each row `counts[i]` times, as children of the record.

        The k-th child of record `p` has the id `p#k` and `parent` = `p`. A row with the count 0 has no
        child and vanishes: send it to a port first, or the engine reports it as lost.
        """
        if len(counts) != len(self):
            raise ValueError(f"{len(counts)} counts for {len(self)} rows")
        ids = self.rows.column("id").to_pylist()
        children = [f"{record}#{k}" for record, count in zip(ids, counts, strict=True) for k in range(count)]
        made = self.take(np.repeat(np.arange(len(self)), np.asarray(counts, dtype=np.int64)))
        return made.with_columns({"id": pa.array(children, pa.string()),
                                  "parent": made.rows.column("id").cast(pa.string())})

    def with_columns(self, columns: Mapping[str, Any]) -> Self:
        """With these columns added or replaced; values are anything `pyarrow.array` takes, one a row."""
        rows = self.rows
        for name, values in columns.items():
            if not isinstance(values, (pa.Array, pa.ChunkedArray)):
                values = pa.array(values)
            if len(values) != len(self):
                raise ValueError(f"column {name!r} has {len(values)} values for {len(self)} rows")
            at = rows.schema.get_field_index(name)
            rows = rows.append_column(name, values) if at < 0 else rows.set_column(at, name, values)
        return replace(self, rows=rows)

    def with_payloads(self, **payloads: list | None) -> Self:
        """With these payloads set; None removes one."""
        return replace(self, **payloads)

    def select(self, names: Iterable[str]) -> Self:
        """With only these columns, besides `id`, `source` and the engine's own."""
        wanted = set(names) | {"id", "source"}
        kept = [n for n in self.rows.column_names if n in wanted or n.startswith("_")]
        return replace(self, rows=self.rows.select(kept))

    def without(self, names: Iterable[str]) -> Self:
        """Without these columns."""
        gone = set(names)
        return replace(self, rows=self.rows.select([n for n in self.rows.column_names if n not in gone]))

    def rename(self, names: Mapping[str, str]) -> Self:
        """With columns renamed, old name to new."""
        return replace(self, rows=self.rows.rename_columns([names.get(n, n) for n in self.rows.column_names]))

    def visible(self) -> pa.Table:
        """The rows without the engine's columns: what a sink writes."""
        return self.rows.select(self.columns)

    def with_reason(self, reason: str | Sequence[str]) -> Self:
        """With the column `reason`: what a row on the port `dropped` carries."""
        values = [reason] * len(self) if isinstance(reason, str) else list(reason)
        return self.with_columns({"reason": pa.array(values, pa.string())})

    def with_error(self, error: BaseException | str | Sequence[str], traceback: str | None = None) -> Self:
        """With the columns `error` and `traceback`: what a row on the port `failed` carries."""
        if isinstance(error, BaseException):
            if traceback is None:
                traceback = "".join(_traceback.format_exception(error))
            error = f"{type(error).__name__}: {error}"
        errors = [error] * len(self) if isinstance(error, str) else list(error)
        return self.with_columns({"error": pa.array(errors, pa.string()),
                                  "traceback": pa.array([traceback or ""] * len(self), pa.string())})

    def as_type(self, kind: type[B]) -> B:
        """The same records as another kind of batch; payloads that both kinds name are kept."""
        if type(self) is kind and isinstance(self, kind):
            return self
        kept = {n: v for n, v in self.payloads().items() if n in kind.payload_names()}
        return kind(rows=self.rows, **kept)

    @staticmethod
    def concat(batches: Sequence[B]) -> B:
        """The rows of all batches, in order. Columns that differ are widened (int to float, missing to null).

        Raises:
            ValueError: two batches hold one column in types that no common type covers, or payloads of
            different kinds.
        """
        if not batches:
            raise ValueError("there is no batch to join")
        if len(batches) == 1:
            return batches[0]
        first = batches[0]
        rows = concat_tables([b.rows for b in batches])
        carried = {name for b in batches for name in b.payloads()}
        if not carried <= set(first.payload_names()):
            kinds = " and ".join(dict.fromkeys(type(b).__name__ for b in batches))
            raise ValueError(f"batches of different kinds cannot be joined: {kinds}")
        joined = {name: [v for b in batches for v in _payload_or_nones(b, name)] for name in carried}
        return replace(first, rows=rows, **joined)


def kinds() -> list[type[Batch]]:
    """Every kind of batch that is known in this process."""
    found: list[type[Batch]] = [Batch]
    for kind in found:  # it grows meanwhile
        found += kind.__subclasses__()
    return found


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other, columns widened where they differ.

    Raises:
        ValueError: naming the first column whose types have no common type.
    """
    if all(t.schema.equals(tables[0].schema) for t in tables[1:]):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(str(error)) from error


def _payload_or_nones(batch: Batch, name: str) -> list:
    values = getattr(batch, name, None)
    return [None] * len(batch) if values is None else values


def _value_bytes(value: Any) -> int:
    if value is None:
        return 0
    size = getattr(value, "nbytes", None)
    return size if size is not None else len(value) if isinstance(value, (bytes, bytearray, str)) else 64
