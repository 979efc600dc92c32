"""Pictures of films and clips as records of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import ImageBatch
from curator_video.read.record import Films, check_file, parts_of
from curator_video.read.sampling import Choice, Seen, chosen

ANSWER_BYTES = 16 << 20  # of pictures in one answer
COLUMNS = {"bytes": pa.binary(), "extension": pa.string(), "timestamp": pa.float64(), "frame_index": pa.int32(),
           "width": pa.int32(), "height": pa.int32(), "parent": pa.string()}


@dataclass(frozen=True)
class Still:
    """One picture: of which row, the how manieth of it, when, and its file."""

    row: int
    number: int
    time: float
    size: tuple[int, int]
    data: bytes


@dataclass(kw_only=True)
class Frames(Stage):
    """Make a record of each picture taken from a film, a span or a clip: for stages of images, and for stills.

    Reads what video.decode reads. A record becomes as many as pictures are taken: `id` of the record and `#k`,
    with `parent`, `bytes` (the picture's file), `extension` (jpg, png or webp), `timestamp` (seconds from the
    first picture of the source, float64), `frame_index` (k, from 0, of the record), `width` and `height` (pixels of
    the picture: upright, square). Other columns are those of the clip; `start_s`, `end_s` and `duration` are taken
    away, as a picture has none. Scores come back to the clip by a join on `parent`. Pictures are given out as they come: a film
    may be of any length.

    What is no film, or has no picture in the span, leaves on `failed`; `error` begins with what it is, as in
    video.probe. Where `keyframes` finds none in a span, the record leaves on `dropped`, reason `no_frames`.

    `pick`: `fps` takes for each k the picture that is shown at start + k / `fps`, `uniform` those shown at the middle of
    `count` equal parts, `keyframes` those that are coded by themselves (nothing else is decoded then: some 15 times faster),
    `all`. Each is taken once: where pictures are rare there are fewer. `size`: pixels of the longer side (`side: short` for the
    shorter), even numbers, never enlarged; None as they are. `format`: jpg, png or webp. `quality`: of jpg and
    webp, 1 to 100. `max_pixels`: larger pictures fail. `storage_options`: what the filesystem of a `path` wants.
    """

    pick: Literal["fps", "uniform", "keyframes", "all"] = "fps"
    fps: float = 1.0
    count: int = 8
    size: int | None = None
    side: Literal["long", "short"] = "long"
    format: Literal["jpg", "png", "webp"] = "jpg"
    quality: int = 90
    max_pixels: int = 8192 * 8192
    storage_options: dict[str, Any] | None = setting(default=None)

    version = 3

    def __post_init__(self) -> None:
        Choice(self.pick, self.fps, self.count)
        if self.pick == "none":
            raise ValueError("pick: none makes no record; leave the stage out")
        if self.size is not None and self.size < 2:
            raise ValueError(f"size must be 2 pixels or more, or None, got {self.size}")
        if self.side not in ("long", "short"):
            raise ValueError(f"side is long or short, got {self.side!r}")
        if self.format not in ("jpg", "png", "webp"):
            raise ValueError(f"format is jpg, png or webp, got {self.format!r}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality is from 1 to 100, got {self.quality}")
        self.at_least(1, "max_pixels")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS, removes=("start_s", "end_s", "duration"))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def reasons(self) -> tuple[str, ...]:
        return ("no_frames",) if self.pick == "keyframes" else ()

    def example_columns(self) -> Mapping[str, Shown]:
        return {"bytes": "image"}

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.read.film import BadFilm
        from curator_video.read.headers import length_of

        self._cv2, self._bad, self._length = cv2, BadFilm, length_of
        self._choice = Choice(self.pick, self.fps, self.count)
        self._options = {"max_pixels": self.max_pixels, "skip_frame": "NONKEY" if self.pick == "keyframes" else "DEFAULT"}
        flag = {"jpg": cv2.IMWRITE_JPEG_QUALITY, "webp": cv2.IMWRITE_WEBP_QUALITY, "png": None}[self.format]
        self._encoding = [] if flag is None else [flag, self.quality]

    def process(self, batch: Batch) -> Iterator[Outputs]:
        stills: list[Still] = []
        failed: dict[int, str] = {}
        empty: list[int] = []
        size = 0
        with Films(self.storage_options, **self._options) as films:
            for part in parts_of(batch):
                some = False
                try:
                    for still in self._stills(films, part):
                        some = True
                        stills.append(still)
                        size += len(still.data)
                        if size >= ANSWER_BYTES:
                            yield Outputs(out=_records(batch, stills, self.format))
                            stills, size = [], 0
                except self._bad as error:
                    failed[part.row] = str(error)
                    continue
                if not some:
                    empty.append(part.row)
        outputs = Outputs(out=_records(batch, stills, self.format))
        if failed:
            outputs["failed"] = batch.take(list(failed)).with_error(list(failed.values()))
        if empty:
            outputs["dropped"] = batch.take(empty).with_reason("no_frames")
        yield outputs

    def _stills(self, films: Films, part: Any) -> Iterator[Still]:
        film = films.open(part)
        end = self._length(film) if part.end is None and self.pick == "uniform" else part.end
        size = (film.width, film.height) if self.size is None else film.fitted(self.size, self.side)
        seen = Seen()
        taken = chosen(film.frames(part.begin, end), self._choice, part.begin, end, seen, once=True)
        for number, (time, frame) in enumerate(taken):
            yield Still(part.row, number, time + part.shift, size, self._encoded(film.upright(frame, size)))
        if not seen.times and self.pick != "keyframes":
            raise film.nothing(part.begin, end)

    def _encoded(self, picture: np.ndarray) -> bytes:
        made, data = self._cv2.imencode("." + self.format, self._cv2.cvtColor(picture, self._cv2.COLOR_RGB2BGR), self._encoding)
        assert made
        return data.tobytes()


def _records(batch: Batch, stills: list[Still], extension: str) -> ImageBatch:
    """A record of each picture; files of films are not copied."""
    bare = batch.without(["bytes", "start_s", "end_s", "duration"])
    made = bare.take([still.row for still in stills]).as_type(ImageBatch)
    parents = made.column("id")
    ids = [f"{parent}#{still.number}" for parent, still in zip(parents, stills, strict=True)]
    columns = {"bytes": [still.data for still in stills], "extension": [extension] * len(stills),
               "timestamp": [still.time for still in stills], "frame_index": [still.number for still in stills],
               "width": [still.size[0] for still in stills], "height": [still.size[1] for still in stills], "parent": parents}
    return made.with_columns({"id": pa.array(ids, pa.string()),
                              **{name: pa.array(columns[name], kind) for name, kind in COLUMNS.items()}})
