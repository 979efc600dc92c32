"""A compact index from 128-bit hashes to numbers 0, 1, 2, …, looked up and filled by the batch.

Open addressing with linear probing over numpy arrays: 16 bytes a hash and 4 bytes a slot, at least half of
the slots free; a Python dict of the same takes more than 150 bytes a hash.
"""

from __future__ import annotations

import numpy as np

FIRST_SLOTS = 1 << 12


class HashIndex:
    """Hashes are rows of an array [n, 2] of uint64. The number of a hash is its rank in order of addition."""

    def __init__(self) -> None:
        self._count = 0
        self._hashes = np.empty((FIRST_SLOTS // 2, 2), dtype=np.uint64)  # by number
        self._slots = np.zeros(FIRST_SLOTS, dtype=np.uint32)  # number + 1; 0 is free

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._slots.nbytes

    def hashes(self, numbers: np.ndarray) -> np.ndarray:
        """The hashes with these numbers."""
        return self._hashes[numbers]

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The number of each hash, int64; -1 where it is not there."""
        found = np.full(len(hashes), -1, dtype=np.int64)
        todo = np.arange(len(hashes))
        at = self._first_slots(hashes)
        while todo.size:
            numbers = self._slots[at].astype(np.int64) - 1
            same = (numbers >= 0) & (self._hashes[numbers] == hashes[todo]).all(axis=1)
            found[todo[same]] = numbers[same]
            on = (numbers >= 0) & ~same
            todo, at = todo[on], self._next(at[on])
        return found

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Add hashes, each of them once and none there already; their numbers, int64."""
        first, count = self._count, self._count + len(hashes)
        if count * 2 > len(self._slots):
            self._grow(count)
        self._hashes[first:count] = hashes
        self._count = count
        numbers = np.arange(first, count)
        self._place(hashes, numbers)
        return numbers

    def find_or_add(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each hash, added where it is not there; and for each number that is new a row that
        has it, in order."""
        numbers = self.find(hashes)
        absent = np.flatnonzero(numbers < 0)
        if not absent.size:
            return numbers, absent
        rows = absent[np.lexsort(hashes[absent].T)]
        first = np.concatenate([[True], (hashes[rows[1:]] != hashes[rows[:-1]]).any(axis=1)])
        numbers[rows] = self.add(hashes[rows[first]])[np.cumsum(first) - 1]
        return numbers, rows[first]

    def _place(self, hashes: np.ndarray, numbers: np.ndarray) -> None:
        at, mark = self._first_slots(hashes), (numbers + 1).astype(np.uint32)
        while mark.size:
            free = self._slots[at] == 0
            self._slots[at[free]] = mark[free]  # of several that want one slot the last gets it
            lost = self._slots[at] != mark
            at, mark = self._next(at[lost]), mark[lost]

    def _first_slots(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes[:, 0] & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, slots: np.ndarray) -> np.ndarray:
        return (slots + 1) & (len(self._slots) - 1)

    def _grow(self, count: int) -> None:
        size = 1 << (2 * count - 1).bit_length()
        assert size <= 1 << 32, f"{count} hashes are more than one worker can hold"
        hashes = np.empty((size // 2, 2), dtype=np.uint64)
        hashes[:self._count] = self._hashes[:self._count]
        self._hashes, self._slots = hashes, np.zeros(size, dtype=np.uint32)
        self._place(hashes[:self._count], np.arange(self._count))
