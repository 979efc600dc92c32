"""What is known of many records as numbers, a row each: sparse or dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Sparse:
    """Row r has `values[ends[r]:ends[r + 1]]` in the columns that `columns` names there, each below `width`;
    elsewhere 0. `ends`: int64, one more than rows."""

    columns: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    width: int

    def __len__(self) -> int:
        return len(self.ends) - 1

    @cached_property
    def _of(self) -> np.ndarray:
        return np.repeat(np.arange(len(self)), np.diff(self.ends))

    def take(self, rows: np.ndarray) -> Sparse:
        lengths = np.diff(self.ends)[rows]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(ends[-1]) + np.repeat(self.ends[rows] - ends[:-1], lengths)
        return Sparse(self.columns[at], self.values[at], ends, self.width)

    def dot(self, weights: np.ndarray) -> np.ndarray:
        """[width, k] -> float64 [rows, k]."""
        return np.stack([np.bincount(self._of, weights[self.columns, k] * self.values, minlength=len(self))
                         for k in range(weights.shape[1])], axis=1)

    def transposed_dot(self, values: np.ndarray) -> np.ndarray:
        """[rows, k] -> float64 [width, k]."""
        return np.stack([np.bincount(self.columns, values[self._of, k] * self.values, minlength=self.width)
                         for k in range(values.shape[1])], axis=1)

    def narrowed(self) -> tuple[Sparse, np.ndarray]:
        """The same with the columns alone in which a row has something, and which these are."""
        there, columns = np.unique(self.columns, return_inverse=True)
        return Sparse(columns, self.values, self.ends, len(there)), there

    @staticmethod
    def joined(parts: Sequence[Sparse]) -> Sparse:
        sizes = np.concatenate([[0], *(np.diff(part.ends) for part in parts)])
        return Sparse(np.concatenate([part.columns for part in parts]),
                      np.concatenate([part.values for part in parts]), np.cumsum(sizes), parts[0].width)


@dataclass(frozen=True)
class Dense:
    """`values`: float32 [rows, width]."""

    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def take(self, rows: np.ndarray) -> Dense:
        return Dense(self.values[rows])

    def dot(self, weights: np.ndarray) -> np.ndarray:
        return self.values.astype(np.float64) @ weights

    def transposed_dot(self, values: np.ndarray) -> np.ndarray:
        return self.values.T.astype(np.float64) @ values

    def narrowed(self) -> tuple[Dense, np.ndarray]:
        return self, np.arange(self.width)

    @staticmethod
    def joined(parts: Sequence[Dense]) -> Dense:
        return Dense(np.concatenate([part.values for part in parts]))


Rows = Sparse | Dense
