"""Whether pictures go over into each other, and from when to when."""

from __future__ import annotations

import numpy as np

from curator_video.shots.pictures import Picture, distance, shift, wave

MIXED, _APART, _FIT, _SHARE = 0.85, 0.5, 0.7, 0.15
_SMOOTH = 0.5  # of the last that comes from one picture to the next leaves: a whip pan brings more of it at once


def dissolve(pictures: list[Picture], times: np.ndarray, at: int, *, ratio: float, floor: float) -> tuple[float, float, float] | None:
    """Whether the picture `at` mixes the first and the last of `pictures`.

    Returns the time of the first mixed picture, of the first that is not any more, and how far the weakest of the rules is
    kept (1: just), or None where one is kept to less than `floor`. `ratio`: variance of the picture in the middle through the
    mean of both ends': two shots that have nothing in common, half and half, give one half.
    """
    apart = distance(pictures[0], pictures[-1])
    if ratio <= 0 or min(MIXED / ratio, apart / _APART) < floor:
        return None
    parts = _parts(np.stack([one.pixels for one in pictures]).astype(np.float32))
    one, two, fit = parts[at]
    at_once = float(np.nan_to_num(np.diff(_shares(parts))).max())
    kept = min(MIXED / ratio, apart / _APART, fit / _FIT, one / _SHARE, two / _SHARE, (1 - at_once) / _SMOOTH)
    if kept < floor:
        return None
    return (*_extent(parts, times), kept)


def _parts(pictures: np.ndarray) -> np.ndarray:
    """How much of the first and of the last is in each picture, and which share of its variance they explain: [N, 3].

    Both ends are laid over the picture as the camera moved since; where that explains less, as they are.
    """
    waves = [wave(picture) for picture in pictures]
    made = np.empty((len(pictures), 3))
    for at, picture in enumerate(pictures):
        still = _fitted(pictures[0], pictures[-1], picture, (0, 0), (0, 0))
        moved = _fitted(pictures[0], pictures[-1], picture, shift(waves[0], waves[at]), shift(waves[-1], waves[at]))
        made[at] = max(still, moved, key=lambda found: found[2])
    return made


def _fitted(first: np.ndarray, last: np.ndarray, picture: np.ndarray, one: tuple[int, int], two: tuple[int, int]
            ) -> tuple[float, float, float]:
    """Least squares of a picture as so much of the first and of the last, which are moved down and right by `one` and `two`."""
    height, width = picture.shape
    top, bottom = max(0, one[0], two[0]), height + min(0, one[0], two[0])
    left, right = max(0, one[1], two[1]), width + min(0, one[1], two[1])
    if bottom - top < height // 2 or right - left < width // 2:
        return 0.0, 0.0, 0.0
    columns = [end[top - way[0]:bottom - way[0], left - way[1]:right - way[1]].ravel() for end, way in ((first, one), (last, two))]
    a, b = (column - column.mean() for column in columns)
    y = picture[top:bottom, left:right].ravel()
    y = y - y.mean()
    aa, bb, ab, ya, yb, yy = (float(p @ q) for p, q in ((a, a), (b, b), (a, b), (y, a), (y, b), (y, y)))
    det = aa * bb - ab * ab
    if det <= 1e-6 * aa * bb or yy <= 0:
        return 0.0, 0.0, 0.0
    alpha, beta = (ya * bb - yb * ab) / det, (yb * aa - ya * ab) / det
    return alpha, beta, (alpha * ya + beta * yb) / yy


def _shares(parts: np.ndarray) -> np.ndarray:
    """Of each picture how much of it is the last; NaN where nothing is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return parts[:, 1] / (parts[:, 0] + parts[:, 1])


def _extent(parts: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """First mixed picture, and the first that is not any more: where a line through the shares leaves 0 and reaches 1."""
    share = _shares(parts)
    inside = np.flatnonzero((share > 0.1) & (share < 0.9) & (parts[:, 2] > 0.2))
    first, last = (int(inside[0]), int(inside[-1])) if len(inside) else (1, len(times) - 2)
    if len(inside) > 2:
        slope, zero = np.polyfit(times[inside], share[inside], 1)
        if slope > 0:
            begins, ends = -zero / slope, (1 - zero) / slope
            first = max(1, int(np.searchsorted(times, begins, side="right")))
            last = min(len(times) - 2, int(np.searchsorted(times, ends, side="left")) - 1)
    return float(times[first]), float(times[min(last + 1, len(times) - 1)])
