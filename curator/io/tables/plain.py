"""Columns as values that JSON and CSV have: text, numbers, lists and objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from curator.io.tables.columns import leaves

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def json_lines(rows: pa.Table) -> bytes:
    """The rows as JSON, one object a line, UTF-8, nothing escaped that need not be.

    Dates, times and durations are ISO 8601 text, binary values base64 text; decimals are text, or whole
    numbers if they have no places. A float that is no number is `NaN`, `Infinity` or `-Infinity`, as Python,
    pandas and pyarrow write and read it.
    """
    rows = pa.table({name: _plain(rows.column(name)) for name in rows.column_names})
    records = rows.to_pylist()
    for column in rows.schema:
        shape = _shaper(column.type)
        if shape is not None:
            for record in records:
                if record[column.name] is not None:
                    record[column.name] = shape(record[column.name])
    if not any(_holds_non_finite(leaf) for column in rows.columns for leaf in leaves(column)):
        return msgspec.json.Encoder().encode_lines(records)
    lines = (json.dumps(msgspec.to_builtins(record, str_keys=True), ensure_ascii=False, separators=(",", ":"))
             for record in records)
    return ("\n".join(lines) + "\n").encode()


def flat(rows: pa.Table) -> pa.Table:
    """The rows with one text or number in a field: nested values as JSON, dates and binary values as in
    `json_lines`."""
    return pa.table({name: _flat(rows.column(name)) for name in rows.column_names})


def _flat(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    plain = _plain(values)
    kind = plain.type
    if pa.types.is_nested(kind):
        return as_json_text(plain)
    if pa.types.is_decimal(kind):
        return plain.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _texts(plain, lambda value: base64.b64encode(value).decode())
    return plain


def as_json_text(values: pa.ChunkedArray) -> pa.Array:
    """Each value as JSON text, null as null."""
    values = _plain(values)
    shape, builtins, dumps = (_shaper(values.type), msgspec.to_builtins,
                              json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)
    return _texts(values, lambda value: dumps(builtins(shape(value) if shape else value, str_keys=True)))


def _texts(values: pa.ChunkedArray | pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Values as Python has them too. At any depth times and durations become text, as they have nanoseconds
    and any year."""
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        chunks = [_plain(chunk) for chunk in values.chunks]
        return pa.chunked_array(chunks) if chunks else _plain(pa.array([], kind))
    if not _changes(kind):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if pa.types.is_duration(kind):
        return _texts(values.cast(pa.int64()), partial(_iso_duration, per_second=_PER_SECOND[kind.unit]))
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
    if pa.types.is_temporal(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(list(map(_plain, values.flatten())), [f.name for f in kind],
                                          mask=values.is_null())
    if pa.types.is_map(kind):
        pairs = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        offsets = pc.if_else(pa.concat_arrays([values.is_null(), pa.array([False])]), None,
                             _offsets(pairs).cast(pa.int32()))
        return pa.MapArray.from_arrays(offsets, *map(_plain, pairs.flatten().flatten()))
    return pa.LargeListArray.from_arrays(_offsets(values), _plain(values.flatten()), mask=values.is_null())


def _changes(kind: pa.DataType) -> bool:
    if pa.types.is_temporal(kind):
        return not pa.types.is_interval(kind)
    return isinstance(kind,
                      pa.BaseExtensionType) or pa.types.is_dictionary(kind) or pa.types.is_float16(kind) \
        or any(_changes(kind.field(i).type) for i in range(kind.num_fields))


def _offsets(lists: pa.Array) -> pa.Array:
    """Where each list begins in the flattened values, which leave out what stands behind a null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])


def _shaper(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a value of the plain type, which is not null, one as JSON has it; None where that is the
    same.

    Decimals without places become integers, of any size; maps objects, unless a key comes twice.
    """
    if pa.types.is_decimal(kind):
        return int if kind.scale <= 0 else None
    if pa.types.is_map(kind):
        key, item = (_shaper(inner) or (lambda value: value) for inner in (kind.key_type, kind.item_type))
        return lambda pairs: _object([(key(k), None if v is None else item(v)) for k, v in pairs])
    if pa.types.is_struct(kind):
        shapers = {field.name: shape for field in kind if (shape := _shaper(field.type)) is not None}
        return None if not shapers else lambda value: value | {
            name: shape(value[name]) for name, shape in shapers.items() if value[name] is not None}
    inner = _shaper(kind.value_type) if pa.types.is_nested(kind) and kind.num_fields == 1 else None
    return None if inner is None else lambda values: [None if value is None else inner(value)
                                                      for value in values]


def _object(pairs: list[tuple[Any, Any]]) -> Any:
    made = dict(pairs)
    return made if len(made) == len(pairs) else pairs


def _iso_duration(value: int, per_second: int) -> str:
    whole, rest = divmod(abs(value), per_second)
    digits = f".{rest:0{len(str(per_second)) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if value < 0 else ''}PT{whole}{digits}S"


def _holds_non_finite(values: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(values.type):
        return pc.any(pc.invert(pc.is_finite(values))).as_py() is True
    # others go the slow way unseen
    return pa.types.is_nested(values.type) or isinstance(values.type, pa.BaseExtensionType)
