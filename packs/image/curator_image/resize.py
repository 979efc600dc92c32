"""Pixels of another size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import ImageBatch

Size = tuple[int, int]
# ours: Pillow's
FILTERS = {"area": "BOX", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos": "LANCZOS"}
# pixels before the crop, as many as image.decode allows: a line of 1 x 60,000 would become gigabytes
LARGEST = 178_956_970


@dataclass(kw_only=True)
class Resize(Stage):
    """Bring the pixels to the size that a model wants, up or down, with the filters that models were trained
    with.

    Replaces `pixels`; `width` and `height` stay those of the image. Rows without pixels are left as they are.
    Images that are so narrow that they would have more than 178,956,970 pixels (before the crop) leave on
    `failed`.

    `size`: pixels of the shorter side, or `[height, width]`. `crop`: `center` cuts the middle out, so that
    the image is `size` x `size`, or `[height, width]` with its proportions kept; null keeps all, and
    stretches where two numbers are given. `resample`: the filter, always over all pixels that fall on one
    (antialiased).

    `{size: 224, crop: center, resample: bicubic}` is bit for bit what transformers' CLIPImageProcessor (that
    of Pillow) does before it rescales and normalises; `{size: [224, 224], resample: bicubic}` what SigLIP's
    does. The longer side is rounded down, as there.

    Source: `get_resize_output_image_size` and `center_crop` of transformers' `image_transforms.py`; the
    filters are Pillow's (https://pillow.readthedocs.io/en/stable/handbook/concepts.html#filters).
    """

    size: int | list[int]
    crop: Literal["center"] | None = None
    resample: Literal["area", "bilinear", "bicubic", "lanczos"] = "bicubic"

    def __post_init__(self) -> None:
        sides = [self.size] if isinstance(self.size, int) else list(self.size)
        if len(sides) != 2 and not isinstance(self.size, int):
            raise ValueError(f"size is one number, or [height, width], got {self.size}")
        if min(sides) < 1:
            raise ValueError(f"size must be 1 or more, got {self.size}")
        if self.crop not in (None, "center"):
            raise ValueError(f"crop is center or null, got {self.crop!r}")
        if self.resample not in FILTERS:
            raise ValueError(f"resample is one of {', '.join(FILTERS)}, got {self.resample!r}")

    def contract(self) -> Contract:
        return Contract(needs={"pixels"}, adds={"pixels": None})

    def process(self, batch: ImageBatch) -> Outputs:
        size = self.size if isinstance(self.size, int) else (self.size[0], self.size[1])
        found = batch.pixels or [None] * len(batch)
        targets = [None if p is None else target(p.shape[:2], size, self.crop) for p in found]
        good = np.array([t is None or t[0] * t[1] <= LARGEST for t in targets], bool)
        resized = [None if p is None else resize(p, size, self.crop, self.resample)
                   for p, fits in zip(found, good, strict=True) if fits]
        outputs = Outputs(out=batch.filter(good).with_payloads(pixels=resized))
        if not good.all():
            outputs["failed"] = batch.filter(~good).with_error([
                f"too narrow: {p.shape[1]} x {p.shape[0]} would become {t[1]:,} x {t[0]:,} pixels"
                for p, t in zip(found, targets, strict=True)
                if p is not None and t is not None and t[0] * t[1] > LARGEST])
        return outputs


def resize(pixels: np.ndarray, size: int | Size, crop: str | None, resample: str) -> np.ndarray:
    """Pixels (H x W x 3, uint8) of the size that the stage's parameters say."""
    from PIL import Image

    height, width = target(pixels.shape[:2], size, crop)
    if (height, width) != pixels.shape[:2]:
        pixels = np.asarray(Image.fromarray(pixels).resize((width, height),
                                                           Image.Resampling[FILTERS[resample]]))
    if crop is None:
        return pixels
    wanted = (size, size) if isinstance(size, int) else size
    top, left = (height - wanted[0]) // 2, (width - wanted[1]) // 2
    return np.ascontiguousarray(pixels[top:top + wanted[0], left:left + wanted[1]])


def target(shape: Size, size: int | Size, crop: str | None) -> Size:
    """Height and width before the crop."""
    height, width = shape
    if isinstance(size, int):
        long = int(size * max(shape) / min(shape))
        return (size, long) if height <= width else (long, size)
    if crop is None:
        return size
    scale = max(size[0] / height, size[1] / width)
    return max(size[0], int(height * scale)), max(size[1], int(width * scale))
