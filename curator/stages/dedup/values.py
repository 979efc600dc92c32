"""Hashes of values: equal when the values are."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from curator.tasks.batch import Batch

WIDTH = 16  # bytes of a 128-bit hash


def hash_values(batch: Batch, names: Iterable[str], *, normalize: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A 128-bit hash for each row of what stands in these columns and payloads, uint64 [n, 2]; and whether a row has any.

    Numbers are equal by value (1 and 1.0), texts and bytes by their bytes, arrays by shape, type and content. A null
    equals another null; a row in which all are null has nothing to compare.
    """
    digests, present = [], np.zeros(len(batch), dtype=bool)
    for name in names:
        values = _encoded(batch, name, normalize)
        present |= np.array([value is not None for value in values], dtype=bool)
        digests.append([bytes(WIDTH) if value is None else xxhash.xxh3_128_digest(value) for value in values])
    if len(digests) == 1:
        joined = digests[0]
    else:
        joined = [xxhash.xxh3_128_digest(b"".join(parts)) for parts in zip(*digests, strict=True)]
    return np.frombuffer(b"".join(joined), dtype=np.uint64).reshape(-1, 2), present


def normalized(text: str) -> str:
    """The text without regard to case, to runs of white space, and to forms that Unicode calls compatible (NFKC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.casefold().split())


def _encoded(batch: Batch, name: str, normalize: bool) -> list[Any]:
    """The values as bytes; None for null."""
    payload = batch.payloads().get(name)
    if payload is not None:
        return _each(payload, _payload_bytes)
    column = batch.rows.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind, column = kind.value_type, column.cast(kind.value_type)
    if _is_text(kind):
        if normalize:
            return _each(column.to_pylist(), lambda text: normalized(text).encode())
        return column.cast(pa.large_binary()).to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.to_pylist()
    return _each(column.to_pylist(), _plain_bytes)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _each(values: Iterable[Any], encode: Callable[[Any], bytes]) -> list[bytes | None]:
    return [None if value is None else encode(value) for value in values]


def _plain_bytes(value: Any) -> bytes:
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value).encode()


def _payload_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _plain_bytes(value)
