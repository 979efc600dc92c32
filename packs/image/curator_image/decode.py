"""Pixels from the bytes of image files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import Batch, ImageBatch
from curator_image.structure import BadImage

if TYPE_CHECKING:
    from curator_image.pixels import Frame

ANSWER_BYTES = 32 << 20  # of pixels in one answer: what follows works on it while the next is decoded
COLUMNS = {"format": pa.string(), "width": pa.int32(), "height": pa.int32(), "mode": pa.string(),
           "frames": pa.int32(),
           "transparent_ratio": pa.float32(), "jpeg_quality": pa.float32()}


@dataclass(kw_only=True)
class Decode(Stage):
    """Decode JPEG, PNG, WebP, GIF, BMP, TIFF, PPM and AVIF to upright 8-bit sRGB pixels; what is broken fails
    and says why.

    Adds the payload `pixels` (H x W x 3, uint8, RGB; what is transparent stands over white) and the columns
    `format` (told by the content, whatever the name says), `width` and `height` (pixels, upright, before any
    reduction), `mode` (Pillow's: L, RGB, CMYK, P, RGBA, I;16, ...), `frames` (pictures in the file),
    `transparent_ratio` (share of pixels that are not opaque, 0 to 1; 0 without alpha) and `jpeg_quality` (1
    to 100, whose libjpeg tables are nearest to the file's; null if it is no JPEG). EXIF orientation is
    applied, embedded ICC profiles are converted to sRGB. More than 8 bits a sample are scaled: of 16 the
    upper 8; floats from 0 to 1, or else from their lowest to their highest value.

    Empty, truncated and broken files, what is no image, and what exceeds a limit leave on `failed`; `error`
    begins with what it is (`truncated JPEG`, `too many pixels`). A JPEG whose lower part is the decoder's
    grey filler fails as truncated; other damage inside a JPEG that its decoder can read across is not seen.

    `column`: the encoded bytes. `size`: scale down so that the shorter side has this many pixels, never up; a
    JPEG is then decoded at 1/2, 1/4 or 1/8, which is faster. `frames`: `all` makes each picture of a GIF,
    WebP, APNG, AVIF or TIFF a record (`id` is that of the file and `#k`), adds `frame` (0, 1, ...), and
    removes the bytes, which are not those of one picture. `max_frames`: files with more fail, where `frames`
    is `all`. `max_pixels`: files with more fail undecoded; with `all` it is the sum over the frames.

    Source: `max_pixels` is where Pillow refuses a decompression bomb, twice `Image.MAX_IMAGE_PIXELS`
    (https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.open).
    """

    column: str = "bytes"
    size: int | None = None
    frames: Literal["first", "all"] = "first"
    max_frames: int = 1000
    max_pixels: int = 178_956_970

    sparse = ("transparent_ratio", "jpeg_quality")

    def __post_init__(self) -> None:
        if self.frames not in ("first", "all"):
            raise ValueError(f"frames is first or all, got {self.frames!r}")
        for name in ("size", "max_frames", "max_pixels"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")

    def contract(self) -> Contract:
        added = {"pixels": None, **COLUMNS}
        if self.frames == "first":
            return Contract(needs={self.column: pa.binary()}, adds=added)
        return Contract(needs={self.column: pa.binary()},
                        adds=added | {"frame": pa.int32(), "parent": pa.string()},
                        removes={self.column})

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_image.pixels import Limits, decode

        cv2.setNumThreads(1)  # the engine runs a worker on each core
        limits = Limits(self.max_pixels, None if self.frames == "first" else self.max_frames)
        self._decode = lambda data: decode(data, self.size, limits)

    def process(self, batch: Batch) -> Iterator[Outputs]:
        found: list[list[Frame] | str] = []
        start = decoded_bytes = 0
        for value in batch.rows.column(self.column):
            found.append(self._frames_of(value.as_py()))
            decoded_bytes += sum(frame.pixels.nbytes
                                 for frame in found[-1]) if isinstance(found[-1], list) else 0
            if decoded_bytes >= ANSWER_BYTES:
                yield self._answer(batch.slice(start, start + len(found)), found)
                start, decoded_bytes, found = start + len(found), 0, []
        if found or not start:
            yield self._answer(batch.slice(start, len(batch)), found)

    def _frames_of(self, data: bytes | None) -> list[Frame] | str:
        """The pictures of a file, or what is wrong with it."""
        if data is None:
            return "no bytes"
        try:
            return self._decode(data)
        except BadImage as error:
            return str(error)

    def _answer(self, batch: Batch, found: list[list[Frame] | str]) -> Outputs:
        good = np.array([isinstance(one, list) for one in found], bool)
        frames = [frame for one in found if isinstance(one, list) for frame in one]
        images = batch.filter(good).as_type(ImageBatch)
        columns = {"format": [f.format for f in frames], "width": [f.width for f in frames],
                   "height": [f.height for f in frames], "mode": [f.mode for f in frames],
                   "frames": [f.frames for f in frames],
                   "transparent_ratio": [f.transparent_ratio for f in frames],
                   "jpeg_quality": [f.quality for f in frames]}
        kinds = dict(COLUMNS)
        if self.frames == "all":
            counts = [len(one) for one in found if isinstance(one, list)]
            images = images.without([self.column]).explode(counts)
            columns["frame"], kinds["frame"] = [k for count in counts for k in range(count)], pa.int32()
        images = images.with_columns({name: pa.array(values, kinds[name])
                                      for name, values in columns.items()})
        outputs = Outputs(out=images.with_payloads(pixels=[frame.pixels for frame in frames]))
        if not good.all():
            outputs["failed"] = batch.filter(~good).with_error([one for one in found if isinstance(one, str)])
        return outputs
