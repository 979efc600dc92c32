"""Columns as values that JSON and CSV have: text, numbers, lists and objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
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

    records = pa.table({name: _plain(rows.column(name)) for name in rows.column_names}).to_pylist()
    for column in rows.schema:
        shape = None if pa.types.is_timestamp(_stored(column.type)) else _shaper(column.type)
        if shape is not None:
            for record in records:
                if record[column.name] is not None:
                    record[column.name] = shape(record[column.name])
    if not any(_holds_non_finite(leaf) for column in rows.columns for leaf in leaves(column)):
        return msgspec.json.Encoder().encode_lines(records)
    lines = (json.dumps(msgspec.to_builtins(record, str_keys=True), ensure_ascii=False, separators=(",", ":")) for record in records)
    return ("\n".join(lines) + "\n").encode()


def flat(rows: pa.Table) -> pa.Table:
    """The rows with one text or number in a field: nested values as JSON, dates and binary values as in `json_lines`."""
    return pa.table({name: _flat(rows.column(name)) for name in rows.column_names})


def _flat(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    kind = _stored(values.type)
    if pa.types.is_nested(kind):
        return as_json_text(values)
    plain = _plain(values)
    if pa.types.is_decimal(kind):
        return plain.cast(pa.string())
    if pa.types.is_duration(kind):
        return _texts(plain, _shaper(kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _texts(plain, lambda value: base64.b64encode(value).decode())
    return plain


def as_json_text(values: pa.ChunkedArray) -> pa.Array:
    """Each value as JSON text, null as null."""
    import msgspec

    shape, builtins, dumps = _shaper(values.type), msgspec.to_builtins, json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return _texts(_plain(values), lambda value: dumps(builtins(shape(value) if shape else value, str_keys=True)))


def _texts(values: pa.ChunkedArray, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _plain_type(values.type)
    plain = values if kind.equals(values.type) else values.cast(kind)
    if pa.types.is_timestamp(_stored(values.type)):
        return pc.replace_substring(plain, " ", "T", max_replacements=1)
    return plain


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


def _shaper(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a value of the plain type, which is not null, one as JSON has it; None where that is the same.

    Decimals without places become integers, of any size; maps objects, unless a key comes twice; between date and time stands a `T`.
    """
    kind = _stored(kind)
    if pa.types.is_timestamp(kind):
        return lambda value: value.replace(" ", "T", 1)
    if pa.types.is_duration(kind):
        return partial(_iso_duration, per_second=_PER_SECOND[kind.unit])
    if pa.types.is_decimal(kind):
        return int if kind.scale <= 0 else None
    if pa.types.is_map(kind):
        key, item = (_shaper(inner) or (lambda value: value) for inner in (kind.key_type, kind.item_type))
        return lambda pairs: _object([(key(k), None if v is None else item(v)) for k, v in pairs])
    if pa.types.is_struct(kind):
        shapers = {field.name: shape for field in kind if (shape := _shaper(field.type)) is not None}
        return partial(_shaped_object, shapers=shapers) if shapers else None
    inner = _shaper(kind.value_type) if pa.types.is_nested(kind) and kind.num_fields == 1 else None
    return None if inner is None else lambda values: [None if value is None else inner(value) for value in values]


def _object(pairs: list[tuple[Any, Any]]) -> Any:
    made = dict(pairs)
    return made if len(made) == len(pairs) else pairs


def _shaped_object(value: dict[str, Any], shapers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return value | {name: shape(value[name]) for name, shape in shapers.items() if value[name] is not None}


def _iso_duration(value: int, per_second: int) -> str:
    whole, rest = divmod(abs(value), per_second)
    digits = f".{rest:0{len(str(per_second)) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if value < 0 else ''}PT{whole}{digits}S"


def _holds_non_finite(values: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(values.type):
        return pc.any(pc.invert(pc.is_finite(values))).as_py() is True
    return pa.types.is_nested(values.type) or isinstance(values.type, pa.BaseExtensionType)  # others go the slow way unseen
