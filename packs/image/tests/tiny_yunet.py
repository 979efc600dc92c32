"""A face model in the form of YuNet that takes every bright square of 32 x 32 pixels for a face: to try what calls one.

Written as the bytes of an ONNX file (onnx.proto: numbers of fields and of types), so that tests need neither a download nor
the package onnx.
"""

from __future__ import annotations

import struct


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    value = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(value)) + value


def _ints(name: str, values: list[int]) -> bytes:
    return _field(5, _field(1, name) + b"".join(_field(8, v) for v in values) + _field(20, 7))


def _node(kind: str, inputs: list[str], output: str, attributes: bytes = b"") -> bytes:
    named = b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(3, f"{output}_node")
    return _field(1, named + _field(4, kind) + attributes)


def _floats(name: str, shape: list[int], values: list[float]) -> bytes:
    raw = struct.pack(f"<{len(values)}f", *values)
    return _field(5, b"".join(_field(1, d) for d in shape) + _field(2, 1) + _field(8, name) + _field(9, raw))


def _integers(name: str, values: list[int]) -> bytes:
    raw = struct.pack(f"<{len(values)}q", *values)
    return _field(5, _field(1, len(values)) + _field(2, 7) + _field(8, name) + _field(9, raw))


def _tensor(field: int, name: str, shape: list[int]) -> bytes:
    dims = b"".join(_field(1, _field(1, d) if d else _field(2, "n")) for d in shape)
    return _field(field, _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, dims))))


def model(weight: float = 1.0) -> bytes:
    """The score of a square is its mean brightness, 0 to 1, times `weight`; its box is itself."""
    nodes, constants, outputs = b"", b"", b""
    for stride in (8, 16, 32):
        bright = weight / 3 / 255 if stride == 32 else 0.0
        pooled = f"pooled_{stride}"
        nodes += _node("AveragePool", ["input"], pooled, _ints("kernel_shape", [stride] * 2) + _ints("strides", [stride] * 2))
        heads = {"cls": ([bright] * 3, [0.0]), "obj": ([bright] * 3, [0.0]),
                 "bbox": ([0.0] * 12, [0.5, 0.5, 0.0, 0.0]), "kps": ([0.0] * 30, [0.0] * 10)}
        for name, (weights, bias) in heads.items():
            at, count = f"{name}_{stride}", len(bias)
            constants += _floats(f"{at}_w", [count, 3, 1, 1], weights) + _floats(f"{at}_b", [count], bias)
            constants += _integers(f"{at}_shape", [1, -1, count])
            nodes += _node("Conv", [pooled, f"{at}_w", f"{at}_b"], f"{at}_map", _ints("kernel_shape", [1, 1]))
            nodes += _node("Transpose", [f"{at}_map"], f"{at}_last", _ints("perm", [0, 2, 3, 1]))
            nodes += _node("Reshape", [f"{at}_last", f"{at}_shape"], at)
            outputs += _tensor(12, at, [1, 0, count])
    graph = nodes + _field(2, "tiny") + constants + _tensor(11, "input", [1, 3, 640, 640]) + outputs
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))
