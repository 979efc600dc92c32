"""Measures of the distribution of light and colour."""

from __future__ import annotations

import math

import cv2
import numpy as np

from curator_image.views import Views

# levels of 255: at the camera's limits, with room for what compression and scaling blur
SHADOW, HIGHLIGHT = 5, 250
GREY_TOLERANCE = 8  # levels of 255 by which the channels of a grey pixel may differ: lossy coding does
COLOUR_TOLERANCE = 8  # levels of 255 by which a channel may differ from the colour that it counts as

_LEVELS = np.arange(256) / 255


def light(views: Views) -> dict[str, float]:
    """What the histogram of luma tells."""
    shares = cv2.calcHist([views.grey], [0], None, [256], [0, 256])[:, 0].astype(np.float64) / views.grey.size
    mean = float(shares @ _LEVELS)
    present = shares[shares > 0]
    return {
        "brightness": mean,
        "contrast": math.sqrt(float(shares @ (_LEVELS - mean) ** 2)),
        "dark_ratio": float(shares[:SHADOW + 1].sum()),
        "bright_ratio": float(shares[HIGHLIGHT:].sum()),
        "entropy": abs(float(present @ np.log2(present))),
    }


def colour(views: Views) -> dict[str, float | bool]:
    """What the colours tell, wherever they are."""
    colours = views.colours
    return {"colourfulness": colourfulness(colours), "greyscale": is_grey(colours),
            "blank_ratio": blank_ratio(colours)}


def colourfulness(pixels: np.ndarray) -> float:
    """Spread and strength of the opponent colours red-green and yellow-blue: 0 grey, 109 and more extremely
    colourful.

    Source: Hasler and Suesstrunk 2003, Measuring Colourfulness in Natural Images, section 7, M(3).
    """
    red, green, blue = (channel.astype(np.float32) for channel in cv2.split(pixels))
    means, deviations = zip(*(_moments(opponent) for opponent in (red - green, (red + green) / 2 - blue)),
                            strict=True)
    return math.hypot(*deviations) + 0.3 * math.hypot(*means)


def is_grey(pixels: np.ndarray) -> bool:
    """Whether in every pixel the channels agree within a tolerance."""
    red, green, blue = cv2.split(pixels)
    spread = cv2.subtract(cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue))
    return int(spread.max()) <= GREY_TOLERANCE


def blank_ratio(pixels: np.ndarray) -> float:
    """Largest share of one colour: of the pixels within a tolerance of the mean of the most frequent of 4096
    colours."""
    coarse = (pixels >> 4).astype(np.uint16)
    codes = (coarse[..., 0] << 8) | (coarse[..., 1] << 4) | coarse[..., 2]
    counts = np.bincount(codes.ravel(), minlength=4096)
    centre = pixels[codes == counts.argmax()].mean(axis=0)
    low, high = np.ceil(centre - COLOUR_TOLERANCE), np.floor(centre + COLOUR_TOLERANCE)
    alike = cv2.inRange(pixels, tuple(map(float, low)), tuple(map(float, high)))
    return cv2.countNonZero(alike) / alike.size


def _moments(values: np.ndarray) -> tuple[float, float]:
    mean, deviation = cv2.meanStdDev(values)
    return float(mean[0, 0]), float(deviation[0, 0])
