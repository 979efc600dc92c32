"""Hashes of the pictures of a clip, and which of them are kept."""

from __future__ import annotations

import numpy as np

from curator_video.measures.bars import find_bars
from curator_video.measures.views import BLACK_THUMB
from curator_video.read.sampling import spaced

COUNT = 8                # frequencies a side that are compared
MIDDLE = 0.7             # of each side of the picture that is hashed: logos, marks and subtitles lie outside
LEAST_FREQUENCY = 3.0    # levels by which two thirds of the frequencies must differ from their median: less is noise
AT_ONCE = 512            # pictures that are transformed at a time
THINNED_S = 0.125        # seconds between pictures where there are too many hashes: twice that where there are still, and so on


def clip_hashes(thumbs: np.ndarray, times: np.ndarray, collapse: int, most: int) -> list[tuple[float, bytes]]:
    """Time and hash of the pictures that tell a clip: at most `most`, in order.

    `thumbs`: luma of every picture, uint8 [n, height, width]; `times`: their seconds.
    """
    box = find_bars(thumbs, BLACK_THUMB) if thumbs.size else None
    if box is None:
        return []
    hashes, clear = picture_hashes(thumbs, box)
    times, hashes = times[clear], hashes[clear]
    kept, every_s = _changed(times, hashes, collapse), THINNED_S
    while len(kept) > most:
        some = spaced(times, every_s)  # by the clock, so that those of a copy are the same pictures
        kept, every_s = _changed(times[some], hashes[some], collapse), 2 * every_s
    return [(time, one.to_bytes(8)) for time, one in kept]


def _changed(times: np.ndarray, hashes: np.ndarray, collapse: int) -> list[tuple[float, int]]:
    """Time and hash of the first picture, and of those that differ from the last kept one by more than `collapse` bits."""
    kept: list[tuple[float, int]] = []
    for time, one in zip(times.tolist(), hashes.tolist(), strict=True):
        if not kept or (kept[-1][1] ^ one).bit_count() > collapse:
            kept.append((time, one))
    return kept


def picture_hashes(pictures: np.ndarray, box: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [n]: which of the lowest frequencies of the middle of each picture are above their median; bool [n]: is it more than noise.

    `box`: first and end row, first and end column of what is not bars.
    """
    down, across = _waves(pictures.shape[1], *box[:2]), _waves(pictures.shape[2], *box[2:])
    hashes, clear = np.zeros(len(pictures), np.uint64), np.zeros(len(pictures), bool)
    for start in range(0, len(pictures), AT_ONCE):
        some = pictures[start:start + AT_ONCE].astype(np.float32)
        rows = (some.reshape(-1, some.shape[2]) @ across.T).reshape(*some.shape[:2], COUNT)
        values = np.matmul(down, rows).reshape(len(some), COUNT * COUNT)
        half, third = values.shape[1] // 2 - 1, values.shape[1] // 3
        median = np.partition(values, half, axis=1)[:, half, None]  # what is above the lower of two is above their mean
        part = slice(start, start + len(some))
        hashes[part] = np.packbits(values > median, axis=1).view(">u8")[:, 0]
        clear[part] = np.partition(np.abs(values - median), third, axis=1)[:, third] >= LEAST_FREQUENCY
    return hashes, clear


def _waves(size: int, first: int, end: int) -> np.ndarray:
    """Cosines over the middle of first to end, summed over each of `size` pixels, float32 [COUNT, size]: in levels of a DCT of 32 x 32."""
    margin = (end - first) * (1 - MIDDLE) / 2
    edges = (np.clip(np.arange(size + 1), first + margin, end - margin) - first - margin) / ((end - first) * MIDDLE)
    slopes = np.pi * np.arange(1, COUNT)[:, None]
    sums = np.vstack([edges, np.sqrt(2) * np.sin(slopes * edges) / slopes])
    return (np.sqrt(32) * np.diff(sums)).astype(np.float32)
