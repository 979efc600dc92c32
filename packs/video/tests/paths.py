"""Pictures of a texture moved by known paths."""

from __future__ import annotations

import math
from functools import cache

import cv2
import numpy as np

from packs.video.tests.films import texture

WIDTH, HEIGHT, FPS = 320, 240, 25
DIAGONAL = 400
BIG = (640, 1320)


@cache
def ground():
    return texture(3, *BIG)


def moved(count=30, x=0.0, y=0.0, grow=1.0, turn=0.0, path=None):
    """What a camera sees: so many pixels to the right and down a frame, growth and degrees (of the picture, clockwise) a frame."""
    made = []
    for k in range(count):
        at = np.array([x, y]) * (k - count / 2) if path is None else path[k]
        a, s = math.radians(turn * k), grow**-k
        linear = s * np.array([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]])
        shift = np.array(BIG[::-1]) / 2 + at - linear @ [WIDTH / 2, HEIGHT / 2]
        matrix = np.column_stack([linear, shift]).astype(np.float32)
        made.append(cv2.warpAffine(ground(), matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP))
    return made


def with_square(pictures, step=4):
    """A square of 80 pixels that crosses them."""
    square = texture(9, 80, 80)
    made = [one.copy() for one in pictures]
    for k, one in enumerate(made):
        one[80:160, 20 + step * k : 100 + step * k] = square
    return made
