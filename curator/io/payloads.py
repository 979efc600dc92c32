"""The values of payloads as bytes, and back, exactly. Nothing is ever pickled.

Kept beside msgpack, which has no arrays, no integers beyond 64 bits, and takes a tuple for a list.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

LENGTH = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """A payload's value as bytes: a letter for its kind, then its content.

    bytes and bytearrays, numpy arrays and scalars (any type but objects), None, bool, int, float, str, and
    lists, tuples and dicts (with string keys) of all these come back exactly.

    Raises:
        TypeError, ValueError: anything else.
    """
    kind = type(value)
    if kind is bytes:
        return b"b" + value
    if kind is bytearray:
        return b"B" + bytes(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        if np.asarray(value).dtype.hasobject:
            raise TypeError("an array of Python objects has no plain form")
        sink = io.BytesIO()
        sink.write(b"a" if kind is np.ndarray else b"s")
        np.lib.format.write_array(sink, np.asarray(value), allow_pickle=False)
        return sink.getvalue()
    if value is None or kind in (bool, int, float, str):
        return b"j" + json.dumps(value).encode()
    if kind in (list, tuple):
        return (b"l" if kind is list else b"t") + _pack_all(value)
    if kind is dict and all(type(key) is str for key in value):
        return b"d" + _pack_all([*value, *value.values()])
    raise TypeError(f"a {kind.__name__} has no plain form; use bytes, numpy arrays, numbers, strings, or "
                    "lists of these")


def unpack(data: bytes) -> Any:
    """What `pack` was given."""
    kind, content = data[:1], data[1:]
    if kind == b"b":
        return content
    if kind == b"B":
        return bytearray(content)
    if kind in (b"a", b"s"):
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        return array if kind == b"a" else array[()]
    if kind == b"j":
        return json.loads(content)
    values = _unpack_all(content)
    if kind == b"d":
        return dict(zip(values[:len(values) // 2], values[len(values) // 2:], strict=True))
    return values if kind == b"l" else tuple(values)


def _pack_all(values: Sequence[Any]) -> bytes:
    packed = [pack(v) for v in values]
    return b"".join(LENGTH.pack(len(p)) + p for p in packed)


def _unpack_all(data: bytes) -> list[Any]:
    values, at = [], 0
    while at < len(data):
        length, = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        values.append(unpack(data[at:at + length]))
        at += length
    return values
