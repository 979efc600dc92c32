"""Measures of sampled frames: colour, sharpness, bars."""

from __future__ import annotations

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
    for frame in clip.frames:
        rows, columns = (np.linspace(0, side - 1, min(side, COLOUR_SIDE)).round().astype(int) for side in frame.shape[:2])
        pixels = frame.take(rows, axis=0).take(columns, axis=1).astype(np.float32).reshape(-1, 3)
        red, green, blue = np.ascontiguousarray(pixels.T)
        high, low = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
        saturation = np.divide(high - low, high, out=np.zeros_like(high), where=high > 0)
        found.append((saturation.mean(), colourfulness(red, green, blue), np.mean(high - low > GREY_TOLERANCE)))
    saturation, colourful, coloured = np.array(found).T
    return {"saturation": float(saturation.mean()), "colourfulness": float(colourful.mean()),
            "greyscale": bool(coloured.max() <= GREY_SHARE)}


def colourfulness(red: np.ndarray, green: np.ndarray, blue: np.ndarray) -> float:
    """Spread and strength of the opponent colours red-green and yellow-blue, of float32 [n] each.

    Source: Hasler and Suesstrunk 2003, section 7, M(3).
    """
    opponents = (red - green, (red + green) / 2 - blue)
    return math.hypot(*(float(one.std()) for one in opponents)) + 0.3 * math.hypot(*(float(one.mean()) for one in opponents))


def sharpness(clip: Pictures) -> dict[str, float | bool | None]:
    """Of the sharpest place of each frame, so that a soft background does not count."""
    if min(clip.grey.shape[1:]) < LEAST_SIDE:
        return dict.fromkeys(("sharpness", "sharpness_min", "sharpness_max"))
    found = [_sharpest(one) for one in clip.grey]
    return {"sharpness": float(np.median(found)), "sharpness_min": min(found), "sharpness_max": max(found)}


def _sharpest(grey: np.ndarray) -> float:
    edges = cv2.Laplacian(grey, cv2.CV_16S)[1:-1, 1:-1]
    squares = cv2.multiply(edges, edges, dtype=cv2.CV_32F)
    tiles = tuple(min(TILES, side) for side in squares.shape[::-1])
    return float(cv2.resize(squares, tiles, interpolation=cv2.INTER_AREA).max())


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
