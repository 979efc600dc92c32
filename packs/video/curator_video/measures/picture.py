"""Measures of sampled frames: colour, sharpness, bars."""

from __future__ import annotations

import functools
import math

import cv2
import numpy as np

from curator_video.measures.bars import find_bars
from curator_video.measures.views import Pictures

BLACK = 24             # levels of 255 that a bar has at most
COLOUR_SIDE = 96       # rows and columns that are sampled for colours
GREY_TOLERANCE = 12    # levels by which the channels of a grey pixel may differ: coded colour is coarse
GREY_SHARE = 0.001     # of the pixels that may differ more
TILES = 8              # a side
LEAST_SIDE = 3         # pixels, without which there is no second derivative

NAMES = ("border_top", "border_bottom", "border_left", "border_right", "border_ratio", "content_aspect")


def colour(clip: Pictures) -> dict[str, float | bool | None]:
    """Saturation and colourfulness, the means of the frames, and whether there is any colour."""
    found = []
    rows, columns = (np.linspace(0, side - 1, min(side, COLOUR_SIDE)).round().astype(int) for side in clip.frames[0].shape[:2])
    for frame in clip.frames:
        red, green, blue = cv2.split(frame.take(rows, axis=0).take(columns, axis=1))
        high, low = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
        apart = cv2.subtract(high, low)
        saturation = cv2.divide(apart, np.maximum(high, 1), dtype=cv2.CV_32F)
        found.append((cv2.mean(saturation)[0], colourfulness(red, green, blue), np.count_nonzero(apart > GREY_TOLERANCE) / apart.size))
    saturation, colourful, coloured = np.array(found).T
    return {"saturation": float(saturation.mean()), "colourfulness": float(colourful.mean()),
            "greyscale": bool(coloured.max() <= GREY_SHARE)}


def colourfulness(red: np.ndarray, green: np.ndarray, blue: np.ndarray) -> float:
    """Spread and strength of the opponent colours red-green and yellow-blue, of uint8 [height, width] each.

    Source: Hasler and Suesstrunk 2003, section 7, M(3).
    """
    grey, twice_blue = (cv2.add(one, other, dtype=cv2.CV_16S) for one, other in ((red, green), (blue, blue)))
    mean, spread = (float(value[0, 0]) for value in cv2.meanStdDev(cv2.subtract(red, green, dtype=cv2.CV_16S)))
    other_mean, other_spread = (float(value[0, 0]) / 2 for value in cv2.meanStdDev(cv2.subtract(grey, twice_blue)))
    return math.hypot(spread, other_spread) + 0.3 * math.hypot(mean, other_mean)


def sharpness(clip: Pictures) -> dict[str, float | bool | None]:
    """Of the sharpest place of each frame, so that a soft background does not count."""
    if min(clip.grey.shape[1:]) < LEAST_SIDE:
        return dict.fromkeys(("sharpness", "sharpness_min", "sharpness_max"))
    found = [_sharpest(one) for one in clip.grey]
    return {"sharpness": float(np.median(found)), "sharpness_min": min(found), "sharpness_max": max(found)}


def _sharpest(grey: np.ndarray) -> float:
    edges = cv2.Laplacian(grey, cv2.CV_16S)[1:-1, 1:-1]
    squares = cv2.multiply(edges, edges, dtype=cv2.CV_32F)
    down, across = (_tiles(side) for side in squares.shape)
    return float((down @ squares @ across.T).max())


@functools.cache
def _tiles(side: int) -> np.ndarray:
    """How much of each of `side` pixels is in each of the tiles, float32 [tiles, side]; of each tile the sum is 1."""
    return cv2.resize(np.eye(side, dtype=np.float32), (side, min(TILES, side)), interpolation=cv2.INTER_AREA)


def borders(clip: Pictures) -> dict[str, float | bool | None]:
    """Black bars on the four sides."""
    _, height, width = clip.grey.shape
    found = find_bars(clip.grey, BLACK)
    if found is None:
        return dict.fromkeys(NAMES)
    top, bottom, left, right = found
    shares = (top / height, 1 - bottom / height, left / width, 1 - right / width)
    area = (bottom - top) * (right - left) / (height * width)
    return dict(zip(NAMES, (*shares, 1 - area, (right - left) / (bottom - top)), strict=True))
