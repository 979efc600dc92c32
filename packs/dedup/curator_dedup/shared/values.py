"""Hashes of values: equal when the values are; and what is said of records that are equal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.batch import Batch
from curator_dedup.shared.urls import normalized_url

WIDTH = 16  # bytes of a 128-bit hash
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio


def hash_values(batch: Batch, names: Iterable[str], *,
                normalize: bool | Literal["text", "url"] = False) -> tuple[np.ndarray, np.ndarray]:
    """A 128-bit hash for each row of what stands in these columns and payloads, uint64 [n, 2]; and whether a
    row has any.

    Numbers are equal by value (1 and 1.0), texts and bytes by their bytes, arrays by shape, type and content.
    A null equals another null; a row in which all are null has nothing to compare. `normalize`: texts are
    equal as `normalized` ("text", or True) or as `normalized_url` ("url") gives them.
    """
    digests, present = [], np.zeros(len(batch), dtype=bool)
    for name in names:
        values, valid = _encoded(batch, name, normalize)
        present |= valid
        hashes = np.frombuffer(b"".join(map(xxhash.xxh3_128_digest, values)), dtype=np.uint64).reshape(-1, 2)
        digests.append(np.where(valid[:, None], hashes, np.uint64(0)))
    if len(digests) == 1:
        return digests[0], present
    joined, width = np.concatenate(digests, axis=1).tobytes(), WIDTH * len(digests)
    rows = (joined[start:start + width] for start in range(0, len(joined), width))
    return np.frombuffer(b"".join(map(xxhash.xxh3_128_digest, rows)), dtype=np.uint64).reshape(-1, 2), present


def scoped_hashes(batch: Batch, names: Collection[str], normalize: Any,
                  scope: str | None) -> tuple[np.ndarray, np.ndarray]:
    """As `hash_values`; rows that differ in the column `scope` have different hashes (null is a value
    there)."""
    hashes, present = hash_values(batch, names, normalize=normalize)
    if scope is not None:
        within, _ = hash_values(batch, [scope])
        hashes = hashes ^ (within * _ODD)  # multiplied: a value that equals its scope must not cancel it out
    return hashes, present


def columns_of_copies(of: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> dict[str, Any]:
    """The columns of the port `duplicate`: equal records are alike altogether, and their hash is the name of
    their cluster."""
    return {"duplicate_of": of, "similarity": pa.array(np.ones(len(hashes), dtype=np.float32)),
            "cluster": pa.array([f"{key:016x}" for key in hashes[:, 0].tolist()], pa.string())}


def normalized(text: str) -> str:
    """The text without regard to case, to runs of white space, and to forms that Unicode calls compatible
    (NFKC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.casefold().split())


def _encoded(batch: Batch, name: str, normalize: bool | str) -> tuple[list[bytes], np.ndarray]:
    """The values as bytes, nothing for null; and which are not null."""
    payload = batch.payloads().get(name)
    if payload is not None:
        return _each(payload, _payload_bytes)
    column = batch.rows.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind, column = kind.value_type, column.cast(kind.value_type)
    if _is_text(kind) and normalize:
        form = normalized_url if normalize == "url" else normalized
        return _each(column.to_pylist(), lambda text: form(text).encode())
    if pa.types.is_binary_view(kind):
        return _each(column.to_pylist(), bytes)
    if _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        valid = (column.is_valid().to_numpy(zero_copy_only=False) if column.null_count
                 else np.ones(len(column), dtype=bool))
        filled = column.cast(pa.large_binary())
        return (filled.fill_null(b"") if column.null_count else filled).to_pylist(), valid
    return _each(column.to_pylist(), _plain_bytes)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _each(values: Sequence[Any], encode: Callable[[Any], bytes]) -> tuple[list[bytes], np.ndarray]:
    valid = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
    return [b"" if value is None else encode(value) for value in values], valid


def _plain_bytes(value: Any) -> bytes:
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value).encode()


def _payload_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _plain_bytes(value)
