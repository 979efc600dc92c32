"""Which frames of a clip a model looks at: some of all, or those of windows in time."""

from __future__ import annotations

import itertools

import numpy as np

from curator_video.read.sampling import EPSILON_S


def spread(there: int, wanted: int) -> np.ndarray:
    """The places of `wanted` frames among those that are there: in the middle of equal parts.

    Some come several times where there are fewer.
    """
    return ((np.arange(wanted) + 0.5) * there / wanted).astype(np.int64)


def windows(start: float, end: float, length: float, remainder: float) -> list[tuple[float, float]]:
    """A span in windows of `length`. What remains is one of its own from `remainder` on, else part of the last one."""
    whole = max(1, int((end - start + EPSILON_S) // length))
    bounds = [start + k * length for k in range(whole)] + [end]
    rest = end - (start + whole * length)
    if rest > 0 and rest + EPSILON_S >= remainder:
        bounds.insert(-1, start + whole * length)
    return list(itertools.pairwise(bounds))


def inside(timestamps: np.ndarray, start: float, end: float, most: int) -> np.ndarray:
    """The places of the frames from `start` to before `end`, at most so many, evenly spread."""
    places = np.flatnonzero((timestamps >= start - EPSILON_S) & (timestamps < end - EPSILON_S))
    return places if len(places) <= most else places[spread(len(places), most)]
