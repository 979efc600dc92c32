"""The tasks: batches of records, one dataclass a modality. They need numpy and pyarrow only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.batch import Batch, payload

__all__ = ["AudioBatch", "Batch", "ImageBatch", "TextBatch", "VideoBatch", "payload"]


@dataclass
class TextBatch(Batch):
    """Documents. The text is a string column, `text` unless a stage's parameter says otherwise."""


@dataclass
class ImageBatch(Batch):
    """Images. `encoded`: the file's bytes. `pixels`: height x width x 3, uint8, RGB; None if not decoded."""

    encoded: list[bytes | None] | None = payload(lasts=True)
    pixels: list[np.ndarray | None] | None = payload()


@dataclass
class AudioBatch(Batch):
    """Recordings and utterances. `encoded`: the file's bytes. `samples`: float32 in [-1, 1], channels x n;
    their rate is a column."""

    encoded: list[bytes | None] | None = payload(lasts=True)
    samples: list[np.ndarray | None] | None = payload()


@dataclass
class VideoBatch(Batch):
    """Videos or clips. `encoded`: the container's bytes. `frames`: T x H x W x 3, uint8, RGB, upright, with
    `timestamps`, seconds from the source's first picture, float64. `thumbs`: of every picture its luma, T x
    36 x 64, uint8, with `thumb_times`."""

    encoded: list[bytes | None] | None = payload(lasts=True)
    frames: list[np.ndarray | None] | None = payload()
    timestamps: list[np.ndarray | None] | None = payload()
    thumbs: list[np.ndarray | None] | None = payload()
    thumb_times: list[np.ndarray | None] | None = payload()
