"""Vectors and scores of some rows as columns of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

VECTOR = pa.list_(pa.float32())


def vector_column(matrix: np.ndarray, at: list[int], rows: int) -> pa.Array:
    """A column of `rows` vectors: those of the matrix at the rows `at`, null elsewhere."""
    found: list[np.ndarray | None] = [None] * rows
    for row, vector in zip(at, matrix, strict=True):
        found[row] = vector
    return pa.array(found, VECTOR)


def score_column(values: np.ndarray, at: list[int], rows: int) -> pa.Array:
    """A column of `rows` numbers, null where there is none."""
    found: list[float | None] = [None] * rows
    for row, value in zip(at, values.tolist(), strict=True):
        found[row] = value
    return pa.array(found, pa.float32())


def unit(matrix: np.ndarray) -> np.ndarray:
    """Each row at length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths > 0, lengths, 1)


def pieces_of(wave: np.ndarray, length: int, crop: str) -> list[np.ndarray]:
    """What is heard of a wave: its `first` or `middle` part of this length, or `all` of it in parts, the last one as long as the
    others where there is enough."""
    if len(wave) <= length:
        return [wave]
    if crop == "all":
        starts = np.linspace(0, len(wave) - length, -(-len(wave) // length)).astype(int)
        return [wave[start:start + length] for start in starts]
    start = 0 if crop == "first" else (len(wave) - length) // 2
    return [wave[start:start + length]]
