"""Bytes of image files from pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import ImageBatch

EXTENSIONS = {"jpeg": "jpg", "png": "png", "webp": "webp"}
QUALITY = {"jpeg": 90, "webp": 80}
# Pixels of a side: JPEG_MAX_DIMENSION of libjpeg, WEBP_MAX_DIMENSION of libwebp, PNG_USER_WIDTH_MAX of
# libpng.
LONGEST = {"jpeg": 65_500, "webp": 16_383, "png": 1_000_000}


@dataclass(kw_only=True)
class Encode(Stage):
    """Encode the pixels as JPEG, PNG or WebP, in place of the bytes that were read.

    Replaces `bytes` (binary, the file), `extension` (jpg, png, webp), `format` (jpeg, png, webp), and `width`
    and `height` (int32, pixels of what is written). All of them are null where there are no pixels. The file
    has no EXIF and no profile: pixels are upright sRGB already. A picture that the format cannot hold leaves
    on `failed`.

    `format`: PNG keeps the pixels exactly. `quality`: 1 to 100 for JPEG (default 90) and WebP (default 80).
    `size`: scale down first, so that the shorter side has this many pixels, never up.
    """

    format: Literal["jpeg", "png", "webp"] = "jpeg"
    quality: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        check_format(self.format, self.quality, tuple(EXTENSIONS))
        self.at_least(1, "size")

    def contract(self) -> Contract:
        return Contract(needs={"pixels"},
                        adds={"bytes": pa.binary(), "extension": pa.string(), "format": pa.string(),
                              "width": pa.int32(), "height": pa.int32()})

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_image.pixels import reduced, resized

        cv2.setNumThreads(1)
        self._smaller = lambda p: p if self.size is None else resized(p, reduced(p.shape[1::-1], self.size))

    def process(self, batch: ImageBatch) -> Outputs:
        pixels = [None if p is None else self._smaller(p) for p in batch.pixels or [None] * len(batch)]
        faults = [None if p is None else fault(p, self.format) for p in pixels]
        good = np.array([text is None for text in faults], bool)
        pixels = [p for p, text in zip(pixels, faults, strict=True) if text is None]
        there = [p is not None for p in pixels]
        written = batch.filter(good).with_columns({
            "bytes": pa.array([encode(p, self.format, self.quality) for p in pixels], pa.binary()),
            "extension": pa.array([EXTENSIONS[self.format] if t else None for t in there], pa.string()),
            "format": pa.array([self.format if t else None for t in there], pa.string()),
            "width": pa.array([None if p is None else p.shape[1] for p in pixels], pa.int32()),
            "height": pa.array([None if p is None else p.shape[0] for p in pixels], pa.int32())})
        if good.all():
            return Outputs(out=written)
        return Outputs(out=written,
                       failed=batch.filter(~good).with_error([text for text in faults if text is not None]))


def check_format(name: str, quality: int | None, allowed: tuple[str, ...]) -> None:
    """Raise ValueError for a format that cannot be written, or a quality that it does not have."""
    if name not in allowed:
        raise ValueError(f"format is one of {', '.join(allowed)}, got {name!r}")
    if quality is not None and name not in QUALITY:
        raise ValueError(f"quality does not apply to {name}, which keeps pixels exactly; leave it out")
    if quality is not None and not 1 <= quality <= 100:
        raise ValueError(f"quality is 1 to 100, got {quality}")


def fault(pixels: np.ndarray, format: str) -> str | None:
    """Why pixels cannot be written in a format, None if they can."""
    height, width = pixels.shape[:2]
    if min(height, width) < 1:
        return f"no pixels: {width} x {height}"
    if max(height, width) > LONGEST[format]:
        return (f"too large for {format}: {width} x {height} (its sides are at most {LONGEST[format]:,} "
                "pixels)")
    return None


def encode(pixels: np.ndarray | None, format: str, quality: int | None) -> bytes | None:
    """The file of these pixels (RGB, uint8); None of None."""
    import cv2

    if pixels is None:
        return None
    flags = {"jpeg": cv2.IMWRITE_JPEG_QUALITY, "webp": cv2.IMWRITE_WEBP_QUALITY}
    options = [flags[format], quality or QUALITY[format]] if format in flags else []
    done, file = cv2.imencode(f".{EXTENSIONS[format]}", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise RuntimeError(f"OpenCV cannot write {pixels.shape[1]} x {pixels.shape[0]} pixels as {format}")
    return file.tobytes()
