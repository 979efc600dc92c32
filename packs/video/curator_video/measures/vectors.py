"""Motion as the encoder of a film saw it: NVIDIA's measure of still clips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator_video.read.record import Films, Part, check_file, parts_of
from curator_video.read.sampling import Choice, Seen, chosen

COLUMNS: dict[str, pa.DataType] = {"codec_motion": pa.float32(), "codec_motion_patch": pa.float32()}
CODECS = ("h264", "mpeg1video", "mpeg2video", "mpeg4", "h263", "flv1", "msmpeg4v3", "wmv1", "wmv2")  # whose vectors FFmpeg gives
LEAST = 10       # pictures
PICTURE_ALONE = 1  # AV_PICTURE_TYPE_I
PATCH = 256      # pixels a side
CELL = 8         # pixels a side of the smallest block that FFmpeg gives


@dataclass(kw_only=True)
class Vectors(Stage):
    """Measure motion by the vectors in a film's own coding, as NVIDIA's cosmos-curate does, with its numbers.

    Reads `path`, or `bytes` where they are there, and of a record with `start_s` and `end_s` that span.

    Adds `codec_motion` (mean length of the vectors over the picture and the pictures looked at, as a share of width + height) and
    `codec_motion_patch` (the least that the middle of a square of 256 pixels has; null where a side of the picture is
    shorter). Both null where the codec is not H.264, MPEG-1, -2 or -4, H.263 or WMV 7 and 8: FFmpeg gives vectors of no other.

    `fps`: pictures a second that are looked at, those not that are coded by themselves; `part`: of the record, from its begin, in which
    they are taken, and on until there are 10.

    Known: a vector is as long as the way between a picture and the one it is coded from: with B frames that is twice the
    way and more, and at 60 pictures a second half of that at 30. For anything but to
    compare with NVIDIA's thresholds, 0.00098 and 0.000001, use `video.motion`, which has neither fault.

    Source: github.com/nvidia-cosmos/cosmos-curate; its test's values, 0.002402 and 0.001553, come out, and on
    three of four other films those of its code.
    """

    fps: float = 2.0
    part: float = 0.5
    storage_options: dict[str, Any] | None = setting(default=None)

    sparse = ("codec_motion", "codec_motion_patch")
    version = 2

    def __post_init__(self) -> None:
        if not 0 < self.fps <= 1000:
            raise ValueError(f"fps must be above 0 and at most 1000 pictures a second, got {self.fps}")
        if not 0 < self.part <= 1:
            raise ValueError(f"part must be above 0 and at most 1, got {self.part}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def setup(self, ctx: Context) -> None:
        from curator_video.read.film import BadFilm
        from curator_video.read.headers import length_of

        self._bad, self._length = BadFilm, length_of

    def process(self, batch: Batch) -> Outputs:
        good: dict[int, tuple[float | None, float | None]] = {}
        bad: dict[int, str] = {}
        with Films(self.storage_options, vectors=True) as films:
            for part in parts_of(batch):
                try:
                    good[part.row] = self._measured(films.open(part), part)
                except self._bad as error:
                    bad[part.row] = str(error)
        columns = {name: pa.array([pair[at] for pair in good.values()], kind) for at, (name, kind) in enumerate(COLUMNS.items())}
        outputs = Outputs(out=batch.take(list(good)).with_columns(columns))
        if bad:
            outputs["failed"] = batch.take(list(bad)).with_error(list(bad.values()))
        return outputs

    def _measured(self, film: Any, part: Part) -> tuple[float | None, float | None]:
        if film.stream.codec_context.codec.canonical_name not in CODECS:
            return None, None
        end = self._length(film) if part.end is None else part.end
        assert end is not None, "it has a picture, or it would not be open"
        stop = part.begin + self.part * (end - part.begin)
        return lengths(chosen(film.frames(part.begin, end), Choice("fps", self.fps, 1), part.begin, end, Seen(), once=True), stop)


def lengths(pictures: Iterator[tuple[float, Any]], stop: float) -> tuple[float | None, float | None]:
    """The mean length of the vectors of pictures, and the least in the middle of a patch, as shares of width + height. `pictures`:
    times and frames of PyAV; they are taken until `stop`, and until there are enough."""
    total, count, size = None, 0, (0, 0)
    for time, frame in pictures:
        if time >= stop and count >= LEAST:
            break
        if frame.pict_type == PICTURE_ALONE:
            continue
        if total is None:
            size = frame.width, frame.height
            total = np.zeros((-(-size[1] // CELL), -(-size[0] // CELL)))
        if (frame.width, frame.height) == size:
            total += field_of(frame, total.shape)
            count += 1
    if total is None:
        return None, None
    field = total / count / sum(size)
    rows, columns = (np.minimum(CELL, side - CELL * np.arange(cells)) for side, cells in zip(size[::-1], field.shape, strict=True))
    mean = float(rows @ field @ columns / (size[0] * size[1]))
    if min(size) < PATCH:
        return mean, None
    down, across = (np.arange(PATCH // 2, side, PATCH) // CELL for side in size[::-1])  # a patch's middle lies between four cells
    middles = np.sum([field[down[:, None] - y, across[None] - x] for y in (0, 1) for x in (0, 1)], axis=0) / 4
    return mean, float(middles.min())


def field_of(frame: Any, shape: tuple[int, int]) -> np.ndarray:
    """The lengths of the vectors of a frame in pixels, 0 where there is none, one for each cell of 8 x 8 pixels."""
    found = np.zeros(shape)
    for data in frame.side_data:
        if data.type.name != "MOTION_VECTORS":
            continue
        vectors = data.to_ndarray()
        length = np.hypot(vectors["motion_x"], vectors["motion_y"]) / np.maximum(vectors["motion_scale"], 1)
        left = (vectors["dst_x"] - (vectors["w"] // 2)) // CELL
        top = (vectors["dst_y"] - (vectors["h"] // 2)) // CELL
        for y in range(2):
            for x in range(2):
                row, column = top + y, left + x
                inside = (y * CELL < vectors["h"]) & (x * CELL < vectors["w"])
                inside &= (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
                found[row[inside], column[inside]] = length[inside]
    return found
