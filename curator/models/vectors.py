"""Embeddings between columns and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError

VECTOR = pa.list_(pa.float32())


def present(values: Sequence[Any] | None) -> np.ndarray:
    """The rows that have a value; none where a batch carries no such payload."""
    return np.array([row for row, value in enumerate(values or ()) if value is not None], np.int64)


def vector_column(matrix: np.ndarray, at: np.ndarray, rows: int) -> pa.Array:
    """A column of `rows` vectors: those of the matrix at the rows `at` (ascending), null elsewhere."""
    lengths = np.zeros(rows + 1, np.int32)
    lengths[at + 1] = matrix.shape[1] if len(at) else 0
    values = pa.array(np.ascontiguousarray(matrix, np.float32).ravel(), pa.float32())
    absent = np.ones(rows, bool)
    absent[at] = False
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths, dtype=np.int32)), values,
                                    mask=pa.array(absent))


def vectors_of(batch: Batch, column: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that have a vector of finite numbers, and these vectors, float32 [m, width].

    Raises:
        InputError: it is no column of vectors, or they have another width.
    """
    values = batch.rows.column(column).combine_chunks()
    if pa.types.is_null(values.type):
        return np.zeros(0, np.int64), np.zeros((0, width), np.float32)
    if not hasattr(values.type, "value_type"):
        raise InputError(f"{column!r} should hold embeddings, lists of numbers, and is {values.type}")
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    there = np.flatnonzero(lengths)
    wrong = there[lengths[there] != width]
    if len(wrong):
        raise InputError(f"{column!r} holds embeddings of {lengths[wrong[0]]} numbers where {width} are "
                         "wanted: they must be made by the model that this stage was trained with")
    numbers = values.take(pa.array(there)).flatten().to_numpy(zero_copy_only=False)
    matrix = numbers.astype(np.float32).reshape(len(there), width)
    finite = np.isfinite(matrix).all(axis=1)
    return there[finite], matrix[finite]


def finite(values: Any, model: str) -> np.ndarray:
    """What a model gives, a tensor, as float32 in main memory.

    Raises:
        ValueError: not finite; the engine then finds the row that it comes from.
    """
    numbers = values.float().cpu().numpy()
    if not np.isfinite(numbers).all():
        raise ValueError(f"{model!r} gives numbers that are not finite")
    return numbers


def unit(matrix: np.ndarray) -> np.ndarray:
    """Each row at length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths > 0, lengths, 1)


def scattered(values: np.ndarray | float, at: np.ndarray, rows: int) -> pa.Array:
    """A column of `rows` float32: the values at the rows `at`, null elsewhere."""
    column, absent = np.zeros(rows, np.float32), np.ones(rows, bool)
    column[at], absent[at] = values, False
    return pa.array(column, pa.float32(), mask=absent)
