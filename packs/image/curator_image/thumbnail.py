"""Thumbnails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch
from curator_image.encode import check_format, encode


@dataclass(kw_only=True)
class Thumbnail(Stage):
    """Make a small JPEG or WebP of each image, to look at beside its row.

    Adds `thumbnail` (binary, an image file; null where there are no pixels). Areas are averaged; an image
    that is small already keeps its size. The shorter side of a very long image has at least one pixel.

    `size`: pixels of the longer side, at most. `quality`: 1 to 100, by default 90 for JPEG and 80 for WebP.
    `column`: where it goes.
    """

    size: int = 256
    format: Literal["jpeg", "webp"] = "jpeg"
    quality: int | None = None
    column: str = "thumbnail"

    def __post_init__(self) -> None:
        check_format(self.format, self.quality, ("jpeg", "webp"))
        if not 1 <= self.size <= 4096:
            raise ValueError(f"size is 1 to 4096 pixels, got {self.size}; for larger images there is "
                             "image.encode")

    def contract(self) -> Contract:
        return Contract(needs={"pixels"}, adds={self.column: pa.binary()})

    def example_columns(self) -> dict[str, Shown]:
        return {self.column: "image"}

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_image.pixels import resized, within

        cv2.setNumThreads(1)
        self._smaller = lambda p: resized(p, within(p.shape[1::-1], self.size))

    def process(self, batch: ImageBatch) -> ImageBatch:
        small = [None if p is None else self._smaller(p) for p in batch.pixels or [None] * len(batch)]
        return (batch.with_columns({self.column: pa.array([encode(p, self.format, self.quality)
                                                           for p in small], pa.binary())}))
