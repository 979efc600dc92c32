"""The grid of 8 x 8 blocks that strong JPEG compression leaves."""

from __future__ import annotations

import cv2
import numpy as np

from curator_image.views import Views

BLOCK = 8  # pixels: of JPEG, MPEG-2 and H.264
BLOCKS_MIN = 4  # blocks in either direction without which a grid is not told from a line in the picture


def blockiness(views: Views) -> dict[str, float | None]:
    """How much stronger steps are on the block grid than inside blocks: 0 not at all, towards 1 there are no
    others."""
    grey = views.native
    if views.reduced or min(grey.shape) < BLOCKS_MIN * BLOCK:
        return {"blockiness": None}
    across = grid_excess(cv2.reduce(cv2.absdiff(grey[:, 1:], grey[:, :-1]), 0, cv2.REDUCE_SUM,
                                    dtype=cv2.CV_32S)[0])
    down = grid_excess(cv2.reduce(cv2.absdiff(grey[1:], grey[:-1]), 1, cv2.REDUCE_SUM,
                                  dtype=cv2.CV_32S)[:, 0])
    return {"blockiness": (across + down) / 2}


def grid_excess(steps: np.ndarray) -> float:
    """(B - A) / (B + A) of the strengths of steps by position, at the place of the grid where it is greatest.

    B is the median of every eighth step, A the mean of the seven other medians: medians, because one line in
    the picture is strong in one place, and a grid in all.
    """
    medians = np.array([_median(steps[phase::BLOCK]) for phase in range(BLOCK)])
    on = medians.max()
    inside = (medians.sum() - on) / (BLOCK - 1)
    return float((on - inside) / (on + inside)) if on else 0.0


def _median(values: np.ndarray) -> int:
    """The middle one in order of size, the upper of two."""
    return np.partition(values, len(values) // 2)[len(values) // 2]
