"""Hashes of the frames of a clip, and which of them are kept."""

from __future__ import annotations

import cv2
import numpy as np

from curator_video.measures.bars import find_bars
from curator_video.measures.views import spaced

SIDE, COUNT = 32, 8       # pixels a side that are transformed, frequencies a side that are compared
BLACK = 24                # levels of 255 that a bar has at most
LEAST_FREQUENCY = 3.0    # levels by which two thirds of the frequencies must differ from their median: less is noise

_PLACES = 2 * np.arange(SIDE) + 1
_COSINES = (np.sqrt(2 / SIDE) * np.cos(np.pi / (2 * SIDE) * np.arange(COUNT)[:, None] * _PLACES)).astype(np.float32)


def clip_hashes(frames: np.ndarray, times: np.ndarray, every_s: float, collapse: int, most: int) -> list[tuple[float, bytes]]:
    """Time and hash of the frames that tell a clip: at most `most`, in order.

    `frames`: RGB, uint8 [n, height, width, 3]; `times`: their seconds.
    """
    if not frames.size:
        return []
    chosen = spaced(times, every_s)
    grey = np.stack([cv2.cvtColor(frames[k], cv2.COLOR_RGB2GRAY) for k in chosen])
    found = find_bars(grey, BLACK)
    if found is None:
        return []
    top, bottom, left, right = found
    kept: list[tuple[float, bytes]] = []
    for time, picture in zip(times[chosen], grey[:, top:bottom, left:right], strict=True):
        one = phash(picture)
        if one is not None and (not kept or bits_apart(kept[-1][1], one) > collapse):
            kept.append((float(time), one))
    if len(kept) <= most:
        return kept
    return [kept[k] for k in np.round((np.arange(most) + 0.5) * len(kept) / most - 0.5).astype(int)]


def phash(grey: np.ndarray) -> bytes | None:
    """8 bytes: which of the lowest frequencies of the picture at 32 x 32 pixels are above their median; None where that is noise."""
    small = cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    values = (_COSINES @ small @ _COSINES.T).ravel()
    median = np.partition(values, len(values) // 2 - 1)[len(values) // 2 - 1]  # what is above the lower of two is above their mean
    if np.partition(np.abs(values - median), len(values) // 3)[len(values) // 3] < LEAST_FREQUENCY:
        return None
    return np.packbits(values > median).tobytes()


def bits_apart(a: bytes, b: bytes) -> int:
    """In how many bits two hashes differ."""
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()
