"""Batches of videos and clips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.batch import Batch, payload


@dataclass
class VideoBatch(Batch):
    """Videos or clips. `encoded`: the container's bytes. `frames`: T x H x W x 3, uint8, RGB.

    `timestamps`: T seconds from the start of the source, float64, one a frame.
    """

    encoded: list[bytes | None] | None = payload()
    frames: list[np.ndarray | None] | None = payload()
    timestamps: list[np.ndarray | None] | None = payload()
