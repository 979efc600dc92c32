"""What several measures of one recording look at, made once and only if asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

BLOCK = 1 << 17          # samples at a time, so that what is made on the way stays in the cache
PIECE = 1024             # samples whose extremes are known
QUIET = 1e-6             # mean square of -60 dBFS: what is below counts as silence for spectra and rhythm
STEPS_A_SECOND = 100     # steps of 10 ms


class Views:
    """A recording of channels x n samples. Channels that are the same as the first one are looked at once.

    Steps are of 10 ms, or what is next to it in whole samples; a last piece of a step is left out.
    """

    def __init__(self, samples: np.ndarray, rate: int) -> None:
        self.all_channels = samples
        self.rate = rate
        self.step = max(1, round(rate / STEPS_A_SECOND))
        self._made: dict[Callable[[Views], Any], Any] = {}

    def once(self, function: Callable[[Views], T]) -> T:
        """What a function makes of this recording, made when it is first asked for."""
        if function not in self._made:
            self._made[function] = function(self)
        return self._made[function]

    @cached_property
    def samples(self) -> np.ndarray:
        """The channels that differ, or the first one if none does."""
        given = self.all_channels
        return given[:1] if all(np.array_equal(given[0], other) for other in given[1:]) else given

    def blocks(self, overlap: int = 0) -> Iterator[np.ndarray]:
        """Pieces of one channel after the other, each with the last samples of the one before it."""
        for channel in self.samples:
            for start in range(0, len(channel), BLOCK):
                yield channel[max(0, start - overlap) : start + BLOCK]

    @cached_property
    def piece_extremes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each channel the lowest and the highest sample of each `PIECE`."""
        found = []
        for channel in self.samples:
            whole = channel[: len(channel) // PIECE * PIECE].reshape(-1, PIECE)
            rest = channel[whole.size :]
            found.append((np.append(whole.min(axis=1), rest.min(keepdims=True) if len(rest) else rest),
                          np.append(whole.max(axis=1), rest.max(keepdims=True) if len(rest) else rest)))
        return found

    @cached_property
    def extremes(self) -> list[tuple[float, float]]:
        """Lowest and highest sample of each channel."""
        return [(float(low.min()), float(high.max())) for low, high in self.piece_extremes]

    @property
    def peak(self) -> float:
        return max(max(-low, high) for low, high in self.extremes)

    @cached_property
    def means(self) -> list[float]:
        """Mean of each channel."""
        return [sum(float(channel[i : i + BLOCK].sum(dtype=np.float64)) for i in range(0, len(channel), BLOCK)) / len(channel)
                for channel in self.samples]

    @cached_property
    def zeros(self) -> int:
        """Samples that are exactly 0, of all channels together."""
        return self.samples.size - sum(int(np.count_nonzero(block)) for block in self.blocks())

    @cached_property
    def power(self) -> np.ndarray:
        """Mean square of each step, over all channels; float64."""
        count = self.samples.shape[1] // self.step
        total = np.zeros(count)
        for channel in self.samples:
            steps = channel[: count * self.step].reshape(count, self.step)
            total += np.vecdot(steps, steps)
        return total / (self.step * len(self.samples))

    @cached_property
    def crossings(self) -> tuple[np.ndarray, int]:
        """Changes of sign in each step, the mean of the channels, and how many there are in all channels.

        One between two steps belongs to the later one.
        """
        count = self.samples.shape[1] // self.step
        total, crossed = np.zeros(count), 0
        for channel in self.samples:
            for start in range(0, len(channel), BLOCK):
                begin = max(0, start - 1)
                below = channel[begin : start + BLOCK] < 0
                places = (np.flatnonzero(below[1:] != below[:-1]) + begin + 1) // self.step
                crossed += len(places)
                if len(places):
                    first = places[0]
                    found = np.bincount(places - first)[: max(0, count - first)]
                    total[first : first + len(found)] += found
        return total / len(self.samples), crossed

    @cached_property
    def frame_power(self) -> np.ndarray:
        """Mean square of frames of two steps, 20 ms, one a step."""
        return (self.power[1:] + self.power[:-1]) / 2

    def windows(self, values: np.ndarray) -> np.ndarray:
        """Values of steps as one row a second, without the seconds that are silent; fewer steps than a second are no row."""
        rows = len(values) // STEPS_A_SECOND
        sounding = self.power[: rows * STEPS_A_SECOND].reshape(rows, STEPS_A_SECOND).mean(axis=1) >= QUIET
        return values[: rows * STEPS_A_SECOND].reshape(rows, STEPS_A_SECOND)[sounding]


def decibel(power: float) -> float | None:
    """Ten times the logarithm of a power, None for 0."""
    return 10 * float(np.log10(power)) if power > 0 else None
