"""Batches of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.batch import Batch, payload


@dataclass
class ImageBatch(Batch):
    """Images. `encoded`: the file's bytes. `pixels`: height x width x 3, uint8, RGB; None where not decoded."""

    encoded: list[bytes | None] | None = payload()
    pixels: list[np.ndarray | None] | None = payload()
