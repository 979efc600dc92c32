"""Columns as values that JSON and CSV have: text, numbers, lists and objects."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curator.io.tables.columns import leaves

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def json_lines(rows: pa.Table) -> bytes:
    """The rows as JSON, one object a line, UTF-8, nothing escaped that need not be.

    Dates, times and durations are ISO 8601 text, binary values base64 text; decimals are text, or whole numbers if they have no
    places. A float that is no number is `NaN`, `Infinity` or `-Infinity`, as Python, pandas and pyarrow write and read it.
    """
    import msgspec

    records = _plain(rows).to_pylist()
    for column in rows.schema:
        if _is_shaped(column.type):
            for record in records:
                record[column.name] = _shaped(record[column.name], column.type)
    if not any(_holds_non_finite(leaf) for column in rows.columns for leaf in leaves(column)):
        return msgspec.json.Encoder().encode_lines(records)
    return ("\n".join(map(_json, records)) + "\n").encode()


def flat(rows: pa.Table) -> pa.Table:
    """The rows with one text or number in a field: nested values as JSON, dates and binary values as in `json_lines`."""
    columns = {}
    for column, values in zip(rows.schema, _plain(rows).columns, strict=True):
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.string())
        elif pa.types.is_nested(values.type):
            values = as_json_text(rows.column(column.name))
        elif _is_shaped(column.type):
            values = pa.array([_shaped(value, column.type) for value in values.to_pylist()], pa.string())
        elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
            values = pa.array([None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()], pa.string())
        columns[column.name] = values
    return pa.table(columns)


def as_json_text(values: pa.ChunkedArray) -> pa.Array:
    """Each value as JSON text, null as null."""
    plain = values.cast(_plain_type(values.type)).to_pylist()
    return pa.array([None if v is None else _json(_shaped(v, values.type)) for v in plain], pa.string())


def _json(value: Any) -> str:
    import msgspec

    return json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False, separators=(",", ":"))


def _plain(rows: pa.Table) -> pa.Table:
    for at, column in enumerate(rows.schema):
        kind = _plain_type(column.type)
        if not kind.equals(column.type):
            rows = rows.set_column(at, column.name, rows.column(at).cast(kind))
    return rows


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """What Arrow makes of values before Python has them: times as text, as they have nanoseconds and any year; durations as numbers."""
    kind = _stored(kind)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_nested(kind) and kind.num_fields == 1:
        inner = _plain_type(kind.value_type)
        return kind if inner.equals(kind.value_type) else pa.large_list(inner)
    return kind


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type of the values behind extensions and dictionaries."""
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    return _stored(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _is_shaped(kind: pa.DataType) -> bool:
    kind = _stored(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_map(kind):
        return True
    return (pa.types.is_decimal(kind) and kind.scale <= 0) or any(_is_shaped(kind.field(i).type) for i in range(kind.num_fields))


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """A value of the plain type as JSON has it: decimals without places as integers, of any size; maps as objects unless a key
    comes twice; a `T` between date and time; durations in seconds."""
    kind = _stored(kind)
    if value is None or not _is_shaped(kind):
        return value
    if pa.types.is_timestamp(kind):
        return value.replace(" ", "T", 1)
    if pa.types.is_duration(kind):
        whole, rest = divmod(abs(value), _PER_SECOND[kind.unit])
        digits = f".{rest:0{len(str(_PER_SECOND[kind.unit])) - 1}d}".rstrip("0") if rest else ""
        return f"{'-' if value < 0 else ''}PT{whole}{digits}S"
    if pa.types.is_decimal(kind):
        return int(value)
    if pa.types.is_struct(kind):
        return {field.name: _shaped(value[field.name], field.type) for field in kind}
    if not pa.types.is_map(kind):
        return [_shaped(v, kind.value_type) for v in value]
    pairs = [(_shaped(k, kind.key_type), _shaped(v, kind.item_type)) for k, v in value]
    return dict(pairs) if len({key for key, _ in pairs}) == len(pairs) else pairs


def _holds_non_finite(values: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(values.type):
        return pc.any(pc.invert(pc.is_finite(values))).as_py() is True
    return pa.types.is_nested(values.type) or isinstance(values.type, pa.BaseExtensionType)  # others go the slow way unseen
