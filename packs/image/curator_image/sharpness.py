"""Measures of detail and of noise, from second derivatives."""

from __future__ import annotations

import math
from itertools import pairwise

import cv2
import numpy as np

from curator_image.views import Views

SIDE_MIN = 3  # pixels of either side without which there is no second derivative
SHARP_TILE = 48  # pixels of 384: an eye in a portrait
NOISE_TILE = 32  # pixels: about a thousand values give a tile's deviation to some percent
NOISE_QUANTILE = 0.25  # of the tiles: the smoothest quarter of a picture is seldom texture

_SECOND = np.array([1, -2, 1], np.float32)


def sharpness(views: Views) -> dict[str, float | None]:
    """Variance of the Laplacian of the whole image, and the mean square of it in the tile where that is
    greatest."""
    grey = views.grey
    if min(grey.shape) < SIDE_MIN:
        return {"sharpness": None, "sharpness_max": None}
    edges = cv2.Laplacian(grey, cv2.CV_16S)[1:-1, 1:-1]
    deviation = float(cv2.meanStdDev(edges)[1][0, 0])
    squares = cv2.multiply(edges, edges, dtype=cv2.CV_32F)
    return {"sharpness": deviation ** 2, "sharpness_max": float(tile_means(squares, SHARP_TILE).max())}


def noise(views: Views) -> dict[str, float | None]:
    """Standard deviation of the noise in levels of 255: Immerkaer's estimate, of the smoothest quarter of the
    tiles."""
    grey = views.native
    if min(grey.shape) < SIDE_MIN:
        return {"noise": None}
    response = np.abs(cv2.sepFilter2D(grey, cv2.CV_16S, _SECOND, _SECOND)[1:-1, 1:-1])
    smooth = np.quantile(tile_means(response, NOISE_TILE), NOISE_QUANTILE)
    return {"noise": math.sqrt(math.pi / 2) / 6 * float(smooth)}


def tile_means(values: np.ndarray, size: int) -> np.ndarray:
    """Means over tiles that cover all and are about so many pixels high and wide, rows x columns of them."""
    rows, columns = (_bounds(side, size) for side in values.shape)
    bands = np.concatenate([cv2.reduce(values[a:b], 0, cv2.REDUCE_SUM, dtype=cv2.CV_32F)
                            for a, b in pairwise(rows)])
    return np.add.reduceat(bands, columns[:-1], axis=1) / np.outer(np.diff(rows), np.diff(columns))


def _bounds(side: int, size: int) -> list[int]:
    """Where tiles begin and end: an odd number of them, so that they lie the same from either end."""
    count = max(1, round(side / size)) // 2 * 2 + 1
    while count > side:
        count -= 2
    first = [side * i // count for i in range(count // 2 + 1)]
    return first + [side - place for place in reversed(first)]
