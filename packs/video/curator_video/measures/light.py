"""Measures of how light a clip is, over its time."""

from __future__ import annotations

import cv2
import numpy as np

from curator_video.measures.views import BLACK, WHITE, Thumbs, rows, sums

BLACK_MEAN, WHITE_MEAN = 20, 228  # levels of luma from 16 to 235
EVEN_DEVIATION = 6                # levels: grain and a small mark are let through
BLANK_DEVIATION = 2
SHADOW, HIGHLIGHT = 20, 231       # levels: 5 and 250 of 255
LIMIT_SHARE = 0.12                # of the pixels of a frame (UltraVideo)


def light(clip: Thumbs) -> dict[str, float | bool | None]:
    """Mean, extremes, contrast; black, white and blank frames."""
    mean, deviation = clip.moments
    luma, weights = clip.luma, clip.shown
    even = deviation < EVEN_DEVIATION
    return {
        "brightness": float(np.average(luma, weights=weights)),
        "brightness_min": float(luma.min()),
        "brightness_max": float(luma.max()),
        "contrast": float(np.average(deviation, weights=weights)) / (WHITE - BLACK),
        "black_ratio": clip.share(even & (mean < BLACK_MEAN)),
        "white_ratio": clip.share(even & (mean > WHITE_MEAN)),
        "blank_ratio": clip.share(deviation < BLANK_DEVIATION),
    }


def exposure(clip: Thumbs) -> dict[str, float | bool | None]:
    """Frames with many pixels at the camera's limits."""
    between = cv2.inRange(rows(clip.content), SHADOW + 1, HIGHLIGHT - 1)
    limits = 1 - sums(between)[0] / (255 * between.shape[1])
    return {"exposure_ratio": clip.share(limits > LIMIT_SHARE)}
