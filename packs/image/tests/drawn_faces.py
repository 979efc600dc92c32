"""Faces as drawings that the cascade takes for faces."""

from __future__ import annotations

import cv2
import numpy as np


def drawn(side=160):
    """A face as the cascade knows them: light skin, dark eyes below darker brows, a light nose, a dark mouth; uint8 RGB."""
    grey, unit = np.full((side, side), 90, np.uint8), side / 200

    def spot(x, y, wide, high, shade):
        cv2.ellipse(grey, (int(x * unit), int(y * unit)), (int(wide * unit), int(high * unit)), 0, 0, 360, shade, -1)

    spot(100, 95, 72, 95, 60)
    spot(100, 110, 58, 78, 200)
    for way in (-1, 1):
        spot(100 + way * 26, 95, 14, 7, 40)
        spot(100 + way * 26, 80, 17, 4, 60)
        spot(100 + way * 7, 130, 4, 3, 110)
    spot(100, 110, 6, 20, 225)
    spot(100, 153, 24, 7, 90)
    return np.stack([cv2.GaussianBlur(grey, (0, 0), 4 * unit)] * 3, axis=-1)


def scene(*faces, height=300, width=400):
    """An image with drawn faces, each (x, y, side)."""
    pixels = np.full((height, width, 3), 90, np.uint8)
    for x, y, side in faces:
        pixels[y:y + side, x:x + side] = drawn(side)
    return pixels
