"""Arrays in a safetensors file: of float32, and read of float16, float64 and whole numbers as well.

Ours because a base install has no safetensors, and the format is a head in JSON and the numbers. Source:
github.com/huggingface/safetensors, README.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from curator.api.errors import CuratorError

_HEAD_MAX = 1 << 20
_KINDS = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I32": "<i4", "I64": "<i8"}


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file."""
    head, body = {}, b""
    for name, values in arrays.items():
        data = np.ascontiguousarray(values, "<f4").tobytes()
        head[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    told = json.dumps(head).encode()
    told += b" " * (-len(told) % 8)
    return struct.pack("<Q", len(told)) + told + body


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name.

    Raises:
        CuratorError: it is no such file, or holds numbers of another kind, or it is damaged.
    """
    try:
        data = path.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        if size > min(_HEAD_MAX, len(data) - 8):
            raise ValueError(f"its head is said to have {size:,} bytes, and it has {len(data):,}")
        found, body = {}, data[8 + size:]
        for name, told in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                found[name] = _array(body, told)
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CuratorError(f"{str(path)!r} cannot be read as safetensors: {error}") from error


def _array(body: bytes, told: Mapping[str, Any]) -> np.ndarray:
    begin, end = told["data_offsets"]
    shape = [int(length) for length in told["shape"]]
    values = 1
    for length in shape:
        values *= length
    kind = np.dtype(_KINDS[told["dtype"]])
    if (min(shape, default=1) < 0 or not 0 <= begin <= end <= len(body)
            or end - begin != kind.itemsize * values):
        raise ValueError(f"{told} is not what a file of {len(body):,} bytes can hold")
    found = np.frombuffer(body[begin:end], kind).reshape(shape)
    return found.astype(np.float32) if kind.kind == "f" else found
