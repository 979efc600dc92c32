"""Every measure of a clip, by the columns that it fills."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from curator_video.measures import light, picture, steps
from curator_video.measures.views import Pictures, Thumbs

Values = dict[str, float | bool | None]

OF_THUMBS: dict[tuple[str, ...], Callable[[Thumbs], Values]] = {
    ("brightness", "brightness_min", "brightness_max", "contrast", "black_ratio", "white_ratio", "blank_ratio"): light.light,
    ("exposure_ratio",): light.exposure,
    ("freeze_ratio", "longest_freeze", "duplicate_ratio", "true_fps"): steps.repeats,
    ("flicker",): steps.flicker,
    ("jump_ratio",): steps.jumps,
}
OF_FRAMES: dict[tuple[str, ...], Callable[[Pictures], Values]] = {
    ("saturation", "colourfulness", "greyscale"): picture.colour,
    ("sharpness", "sharpness_min", "sharpness_max"): picture.sharpness,
    ("border_top", "border_bottom", "border_left", "border_right", "border_ratio", "content_aspect"): picture.borders,
}


def measure(thumbs: np.ndarray | None, times: np.ndarray | None, frames: np.ndarray | None, wanted: Collection[str]) -> Values:
    """The wanted scores of a clip, None for those that it has not; others may be among them.

    `thumbs`: luma, uint8 [n, 36, 64], black is 16, white 235; `times`: their seconds, ascending. `frames`: RGB, uint8
    [m, height, width, 3].
    """
    values: Values = dict.fromkeys(wanted)
    asked = set(wanted)
    if thumbs is not None and times is not None and len(thumbs):
        small = Thumbs(thumbs, times)
        for columns, of_thumbs in OF_THUMBS.items():
            if not asked.isdisjoint(columns):
                values |= of_thumbs(small)
    if frames is not None and frames.size:
        pictures = Pictures(frames)
        for columns, of_frames in OF_FRAMES.items():
            if not asked.isdisjoint(columns):
                values |= of_frames(pictures)
    return values
