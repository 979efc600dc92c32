"""Columns as values that JSON and CSV have: text, numbers, lists and objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def json_lines(rows: pa.Table) -> bytes:
    """The rows as JSON, one object a line, UTF-8, nothing escaped that need not be.

    Dates, times and durations are ISO 8601 text, binary values base64 text; decimals are text, or whole numbers if they have no
    places. A float that is no number is `NaN`, `Infinity` or `-Infinity`, as Python, pandas and pyarrow write and read it.
    """
    import msgspec

    records = _records(plain(rows))
    if not any(_holds_non_finite(column) for column in rows.columns):
        return msgspec.json.Encoder().encode_lines(records)
    lines = (json.dumps(msgspec.to_builtins(r, str_keys=True), ensure_ascii=False, separators=(",", ":")) for r in records)
    return ("\n".join(lines) + "\n").encode()


def flat(rows: pa.Table) -> pa.Table:
    """The rows with one text or number in a field: nested values as JSON, dates and binary values as in `json_lines`."""
    columns = {}
    for name, values in zip(rows.column_names, plain(rows).columns, strict=True):
        kind = values.type
        if pa.types.is_nested(kind):
            values = as_json_text(values)
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            values = _text(values, lambda v: base64.b64encode(v).decode())
        elif pa.types.is_decimal(kind):
            values = values.cast(pa.string())
        columns[name] = values
    return pa.table(columns)


def plain(rows: pa.Table) -> pa.Table:
    """The rows with dates and times as ISO 8601 text at any depth, dictionaries decoded, extensions as they are stored."""
    for at, column in enumerate(rows.schema):
        if _changes(column.type):
            chunks = [_plain(chunk) for chunk in rows.column(at).chunks] or [_plain(pa.array([], column.type))]
            rows = rows.set_column(at, column.name, pa.chunked_array(chunks))
    return rows


def _changes(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind) or pa.types.is_float16(kind):
        return True
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return True
    return any(_changes(kind.field(i).type) for i in range(kind.num_fields))


def _plain(values: pa.Array) -> pa.Array:
    kind = values.type
    if not _changes(kind):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if pa.types.is_duration(kind):
        return pa.array([None if v is None else _iso_duration(v, kind.unit) for v in values.cast(pa.int64()).to_pylist()],
                        pa.string())
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
    if pa.types.is_temporal(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        parts = [_plain(part) for part in values.flatten()]
        return pa.StructArray.from_arrays(parts, [f.name for f in kind], mask=values.is_null())
    if pa.types.is_map(kind):
        pairs = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        keys, items = (_plain(part) for part in pairs.flatten().flatten())
        nulls = pa.concat_arrays([values.is_null(), pa.array([False])])
        return pa.MapArray.from_arrays(pc.if_else(nulls, None, _offsets(pairs).cast(pa.int32())), keys, items)
    return pa.LargeListArray.from_arrays(_offsets(values), _plain(values.flatten()), mask=values.is_null())


def _offsets(lists: pa.Array) -> pa.Array:
    """Where each list begins in the flattened values, which leave out what stands behind a null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])


def _iso_duration(value: int, unit: str) -> str:
    whole, rest = divmod(abs(value), _PER_SECOND[unit])
    digits = f".{rest:0{len(str(_PER_SECOND[unit])) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if value < 0 else ''}PT{whole}{digits}S"


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    records = rows.to_pylist()
    for column in rows.schema:
        if _is_shaped(column.type):
            for record in records:
                record[column.name] = _shaped(record[column.name], column.type)
    return records


def _is_shaped(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0):
        return True
    return any(_is_shaped(kind.field(i).type) for i in range(kind.num_fields))


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """Decimals without places as integers, which JSON has in any size, and maps as objects unless a key comes twice."""
    if value is None or not _is_shaped(kind):
        return value
    if pa.types.is_decimal(kind):
        return int(value)
    if pa.types.is_struct(kind):
        return {field.name: _shaped(value[field.name], field.type) for field in kind}
    if not pa.types.is_map(kind):
        return [_shaped(v, kind.value_type) for v in value]
    pairs = [(key, _shaped(v, kind.item_type)) for key, v in value]
    return dict(pairs) if len({key for key, _ in pairs}) == len(pairs) else pairs


def _holds_non_finite(values: pa.ChunkedArray | pa.Array) -> bool:
    kind = values.type
    if pa.types.is_floating(kind):
        return pc.any(pc.invert(pc.is_finite(values))).as_py() is True
    if pa.types.is_struct(kind):
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        return any(_holds_non_finite(part) for chunk in chunks for part in chunk.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _holds_non_finite(pc.list_flatten(values))
    return pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)  # others go the slow way unseen


def as_json_text(values: pa.ChunkedArray) -> pa.Array:
    """Each value as JSON text, null as null."""
    import msgspec

    def write(value: Any) -> str:
        shaped = msgspec.to_builtins(_shaped(value, values.type), str_keys=True)
        return json.dumps(shaped, ensure_ascii=False, separators=(",", ":"))

    return _text(values, write)


def _text(values: pa.ChunkedArray, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if v is None else write(v) for v in values.to_pylist()], pa.string())

