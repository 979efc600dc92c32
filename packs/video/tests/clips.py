"""Clips as stages are given them: frames, thumbnails and times, made without a film."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import pyarrow as pa

from curator.api.tasks import VideoBatch

FPS = 25.0


def thumb(picture: np.ndarray) -> np.ndarray:
    """The luma of RGB as a film has it, 16 to 235, uint8 36 x 64."""
    grey = picture.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    small = cv2.resize(grey, (64, 36), interpolation=cv2.INTER_AREA)
    return np.round(16 + small * 219 / 255).astype(np.uint8)


def thumbs(pictures: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([thumb(one) for one in pictures])


def clip(pictures: Sequence[np.ndarray], fps: float = FPS, every_s: float = 0.5) -> dict[str, np.ndarray]:
    """The payloads that `video.decode` makes of these pictures."""
    times = np.arange(len(pictures)) / fps
    chosen = np.searchsorted(times, np.arange(0, times[-1] + 1e-9, every_s) + 1e-9, side="right") - 1
    return {"frames": np.stack([pictures[k] for k in chosen]), "timestamps": times[chosen], "thumbs": thumbs(pictures),
            "thumb_times": times}


def clips(*given: dict[str, np.ndarray] | None, **columns: pa.Array) -> VideoBatch:
    """Records named 0, 1, 2, … with these payloads."""
    ids = pa.array([str(k) for k in range(len(given))], pa.string())
    payloads = {name: [None if one is None else one.get(name) for one in given]
                for name in ("frames", "timestamps", "thumbs", "thumb_times")}
    return VideoBatch(rows=pa.table({"id": ids, "source": ids, **columns}), **payloads)


def barred(picture: np.ndarray, rows: int = 0, columns: int = 0) -> np.ndarray:
    """With black bars of so many rows above and below, of so many columns left and right, painted over it."""
    made = np.zeros_like(picture)
    inner = slice(rows, picture.shape[0] - rows), slice(columns, picture.shape[1] - columns)
    made[inner] = picture[inner]
    return made
