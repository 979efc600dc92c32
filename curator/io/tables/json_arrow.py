"""pyarrow's JSON parser, made to keep text as text and to give whole tables only."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.io.tables.json_kinds import DEPTH_MAX

_OPEN, _CLOSE = ord("{"), ord("}")
_EXACT_FLOAT = 2.0**53
_LONG_INTEGER = re.compile(rb"[:\[,]\s*-?\d{16,}\s*[,\]}]")


def read_table(data: bytes, schema: pa.Schema | None, ignore: bool) -> pa.Table:
    """The objects of `data` as a table. A string stays one, also where it looks like a date.

    `schema`: types of columns that are known; with `ignore` the others are left out.

    Raises:
        ArrowInvalid: it cannot be parsed as these types. UnicodeDecodeError: a key is not UTF-8.
    """
    rows = _parse(data, schema, ignore)
    dated = _changed(rows.schema, pa.types.is_timestamp, pa.string())
    if dated:
        schema = _overridden(schema, dated)
        rows = _parse(data, schema, ignore).select(rows.column_names)
    try:
        rows.validate(full=True)  # pyarrow takes invalid UTF-8 as it comes
        return rows
    except pa.ArrowInvalid:
        filled = _changed(rows.schema, pa.types.is_null, pa.bool_())
        if not filled:
            raise
    # It makes lists of nothing but nulls too short (seen with 26.0): they are read as lists of booleans instead.
    names, kinds = rows.column_names, rows.schema
    rows = _parse(data, _overridden(schema, filled), ignore).select(names)
    rows.validate(full=True)
    for name in filled:
        values = [_emptied(chunk, kinds.field(name).type) for chunk in rows.column(name).chunks]
        rows = rows.set_column(names.index(name), name, pa.chunked_array(values))
    return rows


def _parse(data: bytes, schema: pa.Schema | None, ignore: bool) -> pa.Table:
    import pyarrow.json as pj

    return pj.read_json(pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                        pj.ParseOptions(explicit_schema=schema,
                                        unexpected_field_behavior="ignore" if ignore else "infer"))


def _changed(schema: pa.Schema, is_meant: Callable, instead: pa.DataType) -> dict[str, pa.DataType]:
    """The columns that have such a type somewhere, with another one in its place."""
    mapped = {field.name: _mapped(field.type, is_meant, instead) for field in schema}
    return {name: kind for name, kind in mapped.items() if not kind.equals(schema.field(name).type)}


def _overridden(schema: pa.Schema | None, kinds: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([f for f in schema or () if f.name not in kinds] + list(kinds.items()))


def _mapped(kind: pa.DataType, is_meant: Callable, instead: pa.DataType) -> pa.DataType:
    """The type with another one in place of those that are meant, at any depth."""
    if is_meant(kind):
        return instead
    if pa.types.is_list(kind):
        return pa.list_(_mapped(kind.value_type, is_meant, instead))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_mapped(f.type, is_meant, instead)) for f in kind])
    return kind


def _emptied(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as a type that differs only in having nulls where there are none but nulls anyway."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if pa.types.is_list(kind):
        inner = _emptied(values.values, kind.value_type)
        if not inner.type.equals(kind.value_type):
            raise pa.ArrowInvalid(f"read as {values.type}, not as {kind}")
        return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], children=[inner])
    if pa.types.is_struct(kind):
        parts = [_emptied(values.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    return values


def is_inexact(rows: pa.Table, data: bytes) -> bool:
    """Whether a float may stand for an integer that it cannot hold."""
    big = any(_biggest(column) >= _EXACT_FLOAT for column in rows.columns)
    return big and _LONG_INTEGER.search(data) is not None


def _biggest(values: pa.ChunkedArray) -> float:
    """The largest finite float inside, without its sign; 0 if there are no floats."""
    kind = values.type
    if pa.types.is_floating(kind):
        finite = values.filter(pc.is_finite(values))
        found = pc.min_max(finite).as_py()
        return max(abs(found["min"] or 0.0), abs(found["max"] or 0.0))
    if pa.types.is_list(kind):
        return _biggest(pc.list_flatten(values))
    if pa.types.is_struct(kind):
        return max((_biggest(pc.struct_field(values, [i])) for i in range(kind.num_fields)), default=0.0)
    return 0.0


def deepest(raw: np.ndarray, starts: np.ndarray) -> int:
    """How deep the deepest line can be: its opening brackets, fewer the closing ones before them.

    Brackets inside strings count as well, so that this may say too much; a line is then looked at on its own.
    """
    folded = raw | 0x20  # [ and { become {, and ] and } become }
    opening = np.flatnonzero(folded == _OPEN)
    first, last = (np.searchsorted(opening, edge) for edge in (starts, np.append(starts[1:], len(raw))))
    suspects = np.flatnonzero(last - first >= DEPTH_MAX)
    closing = np.flatnonzero(folded == _CLOSE) if len(suspects) else opening
    levels = 0
    for line in suspects:
        ups = opening[first[line]:last[line]]
        downs = np.searchsorted(closing, ups) - np.searchsorted(closing, starts[line])
        levels = max(levels, int((np.arange(1, len(ups) + 1) - downs).max()))
    return levels
