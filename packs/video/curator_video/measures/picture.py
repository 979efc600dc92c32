"""Measures of sampled frames: colour, sharpness, bars."""

from __future__ import annotations

import functools

import cv2
import numpy as np

from curator_video.measures.bars import find_bars
from curator_video.measures.views import Pictures, sums

BLACK = 24             # levels of 255 that a bar has at most
GREY_TOLERANCE = 12    # levels by which the channels of a grey pixel may differ: coded colour is coarse
GREY_SHARE = 0.001     # of the pixels that may differ more
TILES = 8              # a side
LEAST_SIDE = 3         # pixels, without which there is no second derivative

NAMES = ("border_top", "border_bottom", "border_left", "border_right", "border_ratio", "content_aspect")


def colour(clip: Pictures) -> dict[str, float | bool | None]:
    """Saturation and colourfulness, the means of the frames, and whether there is any colour."""
    red, green, blue = cv2.split(clip.sampled.reshape(len(clip.sampled), -1, 3))
    high, low = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
    apart = cv2.subtract(high, low)
    saturation = cv2.divide(apart, np.maximum(high, 1), dtype=cv2.CV_32F)
    coloured = sums(cv2.threshold(apart, GREY_TOLERANCE, 1, cv2.THRESH_BINARY)[1])[0] / apart.shape[1]
    return {"saturation": float(saturation.mean()), "colourfulness": float(colourfulness(red, green, blue).mean()),
            "greyscale": bool(coloured.max() <= GREY_SHARE)}


def colourfulness(red: np.ndarray, green: np.ndarray, blue: np.ndarray) -> np.ndarray:
    """Of each picture the spread and strength of the opponent colours red-green and yellow-blue; uint8 [n, pixels] each.

    Source: Hasler and Suesstrunk 2003, section 7, M(3).
    """
    grey, twice_blue = (cv2.add(one, other, dtype=cv2.CV_16S) for one, other in ((red, green), (blue, blue)))
    mean, spread = _mean_and_spread(cv2.subtract(red, green, dtype=cv2.CV_16S))
    other_mean, other_spread = _mean_and_spread(cv2.subtract(grey, twice_blue))
    return np.hypot(spread, other_spread / 2) + 0.3 * np.hypot(mean, other_mean / 2)


def _mean_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each row of int16."""
    mean = cv2.reduce(values, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)[:, 0].astype(float)
    square = cv2.reduce(values, 1, cv2.REDUCE_SUM2, dtype=cv2.CV_64F)[:, 0] / values.shape[1]
    return mean, np.sqrt(np.maximum(square - mean**2, 0))


def sharpness(clip: Pictures) -> dict[str, float | bool | None]:
    """Of the sharpest place of each frame, so that a soft background does not count."""
    if min(clip.grey.shape[1:]) < LEAST_SIDE:
        return dict.fromkeys(("sharpness", "sharpness_min", "sharpness_max"))
    found = [_sharpest(one) for one in clip.grey]
    return {"sharpness": float(np.median(found)), "sharpness_min": min(found), "sharpness_max": max(found)}


def _sharpest(grey: np.ndarray) -> float:
    squares = cv2.Laplacian(grey.astype(np.float32), cv2.CV_32F)
    np.multiply(squares, squares, out=squares)
    down, across = (_tiles(side) for side in squares.shape)
    return float((down @ squares @ across.T).max())


@functools.cache
def _tiles(side: int) -> np.ndarray:
    """How much of each of `side` pixels but the outermost, which have no Laplacian, is in each of the tiles, float32 [tiles, side]; of
    each tile the sum is 1."""
    inner = side - 2
    return np.pad(cv2.resize(np.eye(inner, dtype=np.float32), (inner, min(TILES, inner)), interpolation=cv2.INTER_AREA), ((0, 0), (1, 1)))


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
