"""Sets of integers as sorted arrays, arrays that grow, columns as arrays.

Since 2.3 numpy's `unique` hashes integers: 100 times slower for millions of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


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


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers starts[i], starts[i] + 1, …, counts[i] of them, for all i in turn."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def mix(values: Any) -> Any:
    """A bijection of uint64 that spreads any values over all bits: the finalizer of SplitMix64 (Steele et al.
    2014)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def by_key(keys: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys in ascending order, and the number of who has each. Who has one several times, as of a list of hashes the first of which
    fills a sketch, is there once: else it would be all that is looked at under this key.

    `numbers`: those of one key must be in ascending order.
    """
    order = np.argsort(keys, kind="stable")
    keys, numbers = keys[order], numbers[order]
    once = np.ones(len(keys), dtype=bool)
    once[1:] = (keys[1:] != keys[:-1]) | (numbers[1:] != numbers[:-1])
    return (keys, numbers) if once.all() else (keys[once], numbers[once])


def pairs_of_key(there: np.ndarray, numbers: np.ndarray, keys: np.ndarray, rows: np.ndarray,
                 most: int) -> np.ndarray:
    """Pairs that share a key, the row in the high half and the number in the low one; int64. Of a key the
    first `most` numbers.

    `there`: keys in ascending order, uint64; `numbers`: uint32, of who has each. `keys`: uint64 [k]; `rows`:
    int64 [k], of who looks for each.
    """
    first = np.searchsorted(there, keys, "left")
    counts = np.minimum(np.searchsorted(there, keys, "right") - first, most)
    hit = np.flatnonzero(counts)
    return np.repeat(rows[hit], counts[hit]) << 32 | numbers[ranges(first[hit], counts[hit])]


def flat(values: pa.ChunkedArray) -> pa.Array:
    """As one array, not as a dictionary."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
