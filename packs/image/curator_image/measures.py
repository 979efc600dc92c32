"""Every measure of pixels, by the columns that it fills."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from curator_image.blocks import blockiness
from curator_image.borders import border_ratio
from curator_image.marks import text, tiling
from curator_image.sharpness import noise, sharpness
from curator_image.tone import colour, light
from curator_image.views import Views

Values = dict[str, float | bool | None]

MEASURES: dict[tuple[str, ...], Callable[[Views], Mapping[str, float | bool | None]]] = {
    ("brightness", "contrast", "dark_ratio", "bright_ratio", "entropy"): light,
    ("colourfulness", "greyscale", "blank_ratio"): colour,
    ("sharpness", "sharpness_max"): sharpness,
    ("noise",): noise,
    ("blockiness",): blockiness,
    ("border_ratio",): border_ratio,
    ("text_ratio", "edge_text_ratio"): text,
    ("tiling",): tiling,
}


def measure(pixels: np.ndarray | None, wanted: Collection[str], *, reduced: bool = False) -> Values:
    """The wanted scores of an image, None for those that it has not; others may be among them.

    `reduced`: the pixels are fewer than the file's.
    """
    values: Values = dict.fromkeys(wanted)
    if pixels is None or pixels.size == 0:
        return values
    views = Views(pixels, reduced=reduced)
    for columns, function in MEASURES.items():
        if not set(wanted).isdisjoint(columns):
            values |= function(views)
    return values
