"""Sets of integers as sorted arrays, and arrays that grow.

Since 2.3 numpy's `unique` hashes integers: 100 times slower for millions of them.
"""

from __future__ import annotations

import numpy as np


def distinct(values: np.ndarray) -> np.ndarray:
    """Each value once, in order."""
    values = np.sort(values)
    return values[_begins(values)]


def first_of_each(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each value once, in order, and where each stands first."""
    order = np.argsort(values, kind="stable")
    begins = _begins(values[order])
    return values[order[begins]], order[begins]


def _begins(ordered: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before it."""
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def grown(array: np.ndarray | None, count: int, more: np.ndarray) -> np.ndarray:
    """An array with rows added after its first `count`; doubled when it is full."""
    wanted = count + len(more)
    if array is None or len(array) < wanted:
        grown = np.zeros((max(1024, 2 * wanted), *more.shape[1:]), dtype=more.dtype)
        if array is not None:
            grown[:count] = array[:count]
        array = grown
    array[count:wanted] = more
    return array


def turns(*keys: np.ndarray) -> np.ndarray:
    """How many of those before it have the same keys, for each row."""
    order = np.lexsort(keys)
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    begins = np.flatnonzero(fresh)
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return turn
