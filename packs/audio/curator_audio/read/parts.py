"""A long stream of samples in parts, cut where it is quiet."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

SEARCH_S = 30.0  # the last seconds of a part, in which the quietest place is looked for
QUIET_S = 0.05
PART_BYTES = 128 << 20  # a part has no more, so that many channels at a high rate fit into memory too
UNTOUCHED_BYTES = 1 << 25  # of a larger buffer what was never written to takes no memory: it is not cut off by a copy
EXPECTED_S = 600.0  # no header is trusted with more
_STEP_S = 0.01


class Parts:
    """Collects blocks, float32 [channels, n]; gives parts of at most `part_s` seconds. None: one part, however long.

    `expected_s`: how much will probably come, so that no part has to be moved while it grows.
    """

    def __init__(self, channels: int, rate: int, part_s: float | None, expected_s: float = 0) -> None:
        most = None if part_s is None else max(1, min(round(part_s * rate), PART_BYTES // (4 * channels)))
        self._channels, self._rate, self._most = channels, rate, most
        begin = min(max(1, expected_s), EXPECTED_S) * rate
        self._buffer = np.empty((channels, math.ceil(begin if most is None else min(most, begin)) + 1), np.float32)
        self._filled = 0
        self.given = 0  # samples in the parts that were given

    def add(self, block: np.ndarray) -> Iterator[np.ndarray]:
        """Parts that are whole once this block is in; a stream that ends with its part is not cut."""
        while block.shape[1]:
            room = block.shape[1] if self._most is None else self._most + 1 - self._filled
            taken, block = block[:, :room], block[:, room:]
            self._append(taken)
            if self._most is not None and self._filled > self._most:
                yield self._take(self._quiet_place())

    def finish(self) -> np.ndarray:
        """The samples that are left, [channels, 0] if there are none."""
        return self._take(self._filled)

    def _append(self, block: np.ndarray) -> None:
        needed = self._filled + block.shape[1]
        if needed > self._buffer.shape[1]:
            size = max(needed, 2 * self._buffer.shape[1])
            if self._most is not None:  # what is not written to costs no memory, so that a long one is made but once
                size = self._most + 1 if 8 * size > self._most else size
            self._move(size, 0)
        self._buffer[:, self._filled:needed] = block
        self._filled = needed

    def _take(self, count: int) -> np.ndarray:
        whole, filled = self._buffer, self._filled
        self._move(max(self._rate, filled - count) + 1, count)
        self.given += count
        part = whole[:, :count]
        mostly = 2 * count > whole.shape[1] or whole.nbytes > UNTOUCHED_BYTES
        return part if len(part) == 1 and mostly else part.copy()

    def _move(self, size: int, start: int) -> None:
        """A buffer of another size, with what is there from `start` on."""
        made = np.empty((self._channels, size), np.float32)
        rest = self._filled - start
        made[:, :rest] = self._buffer[:, start:self._filled]
        self._buffer, self._filled = made, rest

    def _quiet_place(self) -> int:
        """The middle of the quietest 50 ms before the end of a part; the last one of several."""
        assert self._most is not None
        step, most = max(1, round(_STEP_S * self._rate)), self._most
        window = max(1, round(QUIET_S / _STEP_S))
        steps = min(round(SEARCH_S * self._rate), most // 2) // step
        if steps < window:
            return most
        start = most - steps * step
        power = np.zeros(steps)
        for channel in self._buffer:
            frames = channel[start:most].reshape(steps, step)
            power += np.einsum("ij,ij->i", frames, frames, dtype=np.float64)
        totals = np.convolve(power, np.ones(window), "valid")
        at = len(totals) - 1 - int(np.argmin(totals[::-1]))
        return start + at * step + window * step // 2
