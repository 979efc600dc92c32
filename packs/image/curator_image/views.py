"""What the measures look at: an image at a few sizes, each made once and only when asked for."""

from __future__ import annotations

from functools import cached_property

import cv2
import numpy as np

GREY_SIDE, GREY_LENGTH = 384, 1536  # pixels: the shorter and the longer side of `grey` at most
COLOUR_SIDE = 96  # rows and columns that are sampled for colours: 9,216 pixels tell shares to a percent
NATIVE_SIDE = 512  # pixels of either side that are looked at where the true pixels matter


class Views:
    """An image (height x width x 3, uint8, RGB, not empty) as the measures want it. Nothing of it is written
    to.

    `reduced`: the pixels are fewer than the file's. All views treat left and right, top and bottom alike.
    """

    def __init__(self, pixels: np.ndarray, *, reduced: bool = False) -> None:
        self.pixels = pixels
        self.reduced = reduced

    @cached_property
    def native(self) -> np.ndarray:
        """Luma of the middle of the image, up to 512 x 512 pixels, not scaled."""
        rows, columns = (_middle(side, NATIVE_SIDE) for side in self.pixels.shape[:2])
        return cv2.cvtColor(self.pixels[rows, columns], cv2.COLOR_RGB2GRAY)

    @cached_property
    def grey(self) -> np.ndarray:
        """Luma (ITU-R BT.601), scaled down until the shorter side is 384 pixels and the longer one at most
        1536.

        So measures that depend on scale can be compared between images; smaller ones are not enlarged.
        """
        height, width = self.pixels.shape[:2]
        whole = self.native if max(height,
                                   width) <= NATIVE_SIDE else cv2.cvtColor(self.pixels, cv2.COLOR_RGB2GRAY)
        factor = min(1.0, GREY_SIDE / min(height, width), GREY_LENGTH / max(height, width))
        if factor == 1.0:
            return whole
        return _scaled(whole, max(1, round(height * factor)), max(1, round(width * factor)))

    @cached_property
    def colours(self) -> np.ndarray:
        """Pixels in 96 rows and columns, or all if there are fewer; chosen, not mixed, so that colours stay
        as they are."""
        rows, columns = (_spread(side, COLOUR_SIDE) for side in self.pixels.shape[:2])
        return self.pixels.take(rows, axis=0).take(columns, axis=1)


def _scaled(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The image at a smaller size, each pixel the mean of those it stands for.

    Halved as often as it goes first: there linear interpolation is the mean of four pixels, and much faster.
    """
    while image.shape[0] >= 2 * height and image.shape[1] >= 2 * width:
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_LINEAR)
    return image if image.shape == (height, width) else cv2.resize(image, (width, height),
                                                                   interpolation=cv2.INTER_AREA)


def _middle(side: int, most: int) -> slice:
    """So many pixels from the middle; the same number is left out at both ends."""
    trimmed = max(0, (side - most + 1) // 2)
    return slice(trimmed, side - trimmed)


def _spread(side: int, most: int) -> np.ndarray:
    """So many positions, evenly spread, and the same from either end."""
    if side <= most:
        return np.arange(side)
    first = (np.arange(most // 2) * side + side // 2) // most
    return np.concatenate([first, side - 1 - first[::-1]])
