"""Models in ONNX that take the mean of what they are given: written byte by byte, since the library that writes them is not needed else."""

from __future__ import annotations

from pathlib import Path


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def block(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made, value = made + bytes([value & 127 | 128]), value >> 7
    return made + bytes([value])


def _value(name: str, shape: tuple[int, ...]) -> bytes:
    sizes = block(1, block(2, "N")) + b"".join(block(1, number(1, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, 1) + block(2, sizes)))


def _node(kind: str, inputs: list[str], output: str, **attributes: list[int] | int) -> bytes:
    made = b"".join(block(1, name) for name in inputs) + block(2, output) + block(4, kind)
    for name, value in attributes.items():
        many = isinstance(value, list)
        ints = b"".join(number(8, one) for one in value) if many else number(3, value)
        made += block(5, block(1, name) + ints + number(20, 7 if many else 2))
    return made


def mean_model(path: Path, shape: tuple[int, ...], outputs: int) -> str:
    """A model that takes N x `shape` and answers with the mean, `outputs` times; saved under `path`."""
    axes = list(range(1, len(shape) + 1))
    nodes = [_node("ReduceMean", ["x"], "flat", axes=axes, keepdims=1), _node("Flatten", ["flat"], "mean", axis=1),
             _node("Concat", ["mean"] * outputs, "y", axis=1)]
    graph = b"".join(block(1, node) for node in nodes) + block(2, "mean")
    graph += block(11, _value("x", shape)) + block(12, _value("y", (outputs,)))
    path.write_bytes(number(1, 8) + block(8, block(1, "") + number(2, 13)) + block(7, graph))
    return str(path)
