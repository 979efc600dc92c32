"""Pictures of films and clips, decoded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.findings import Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import Batch, VideoBatch
from curator_video.read.record import SIZE, Films, Part, check_file, parts_of
from curator_video.read.sampling import Choice, Seen, chosen

if TYPE_CHECKING:
    from curator_video.read.film import Film
    from curator_video.read.interlace import Combing

ANSWER_BYTES = 32 << 20  # of pictures in one answer: what follows works on it while the next is decoded
COMB_S = 0.5  # of so many seconds one picture is asked whether it is combed
WHEN = ("auto", "yes", "no")
SHORT_S = 0.5  # a span may lack so much of its end
COLUMNS = {"decoded_frames": pa.int32(), "corrupt_frames": pa.int32(), "decode_note": pa.string(), "comb_ratio": pa.float32(),
           "hdr": pa.string(), "start_s": pa.float64(), "end_s": pa.float64(), "duration": pa.float64()}


class TooMuch(Exception):
    """More than may be held of one record; the text is the reason."""


@dataclass
class Taken:
    """The pictures of a span: times and thumbnails of all, `frames` those that are wanted; how many packets of it were damaged, and
    how many pictures went back in time."""

    times: list[float]
    thumbs: list[np.ndarray]
    frame_times: list[float]
    frames: list[np.ndarray]
    damaged: int
    backward: int


@dataclass
class Decoded:
    """What becomes of a record: arrays by payload, columns; or why there are none."""

    row: int
    port: str = "out"
    why: str = ""
    payloads: dict[str, np.ndarray] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.payloads.values())


@dataclass(kw_only=True)
class Decode(Stage):
    """Decode a film, a span of it or a clip once: a few pictures for models, and of every picture a thumbnail
    for measures.

    Reads `path`, or `bytes` where they are there, and decodes `start_s` to `end_s` of it (all, where they are
    null or not there; of a clip that video.cut made all its bytes). Only the span is decoded, from the
    keyframe before. Records of one film that follow each other open it once.

    Adds the payloads `frames` (T x height x width x 3, uint8, RGB: upright, in square pixels), `timestamps`
    (T seconds from the first picture of the source, float64: the file's own times), and with `thumbs` of
    every picture `thumbs` (T x 36 x 64, uint8: luma by area, black 16, white 235, bars and all) and
    `thumb_times` (T seconds).

    Adds `decoded_frames` (pictures in the span), `corrupt_frames` (packets that cannot be decoded, and
    pictures that the decoder marks as damaged, from the keyframe before the span on), `decode_note` (null
    where all is well, else of these, joined by a comma: `damaged`; `truncated`, it ends before `end_s`, or
    before what it says; `times_go_back`, such pictures are left out; `no_times`, the file has none, they are
    number / rate), `comb_ratio` (share of the pixels whose line differs from both neighbours, while every second line agrees: of a
    picture each half second the quarter with the most; 0.003 and less in five real films, 0.013 to 0.22 in the same where two fields are
    woven together and something moves; null where luma does not lie in a plane of its own), `hdr` (pq, hlg, else null:
    such pictures are given as an ordinary screen shows them, white at 203 cd/m2, so that measures and copies do not depend on it),
    `start_s`, `end_s` and `duration` (seconds). Of these, and of `comb_ratio`, those that are there stay.

    What is no film, or has no picture in the span, leaves on `failed`; `error` begins with what it is, as in
    video.probe.

    `pick`: which pictures become `frames`. `fps` takes for each k the one that is shown at start + k / `fps`,
    `uniform` the ones shown at the middle of `count` equal parts, `keyframes` those that are coded by
    themselves (without `thumbs` nothing else is decoded: some 15 times faster), `all`, `none`. Where pictures
    are rare one comes several times. `size`: pixels of the longer side (`side: short` for the shorter), even
    numbers, never enlarged; None as they are. Of H.264 and H.265 films whose longer side is larger than a `size` of it by half or more,
    pictures to which no other refers are not deblocked. `thumbs`: off, if no stage measures. `max_seconds`: a longer
    record leaves on `dropped`, reason `too_long`; cut films into spans before. `max_mb`: the same for what
    takes more memory, reason `too_large`. `max_pixels`: larger pictures fail. `deinterlace`: make whole pictures of woven ones
    by FFmpeg's bwdif: `auto` where a `comb_ratio` that is there, as of video.shots, is above 0.007. `storage_options`: what the
    filesystem of a `path` wants.

    Known difference: NVIDIA's frames are those of round numbers at a mean rate, which are others where the
    rate varies.
    """

    pick: Literal["fps", "uniform", "keyframes", "all", "none"] = "fps"
    fps: float = 2.0
    count: int = 8
    size: int | None = SIZE
    side: Literal["long", "short"] = "long"
    thumbs: bool = True
    max_seconds: float | None = 600.0
    max_mb: int = 1024
    max_pixels: int = 8192 * 8192
    deinterlace: Literal["auto", "yes", "no"] = "auto"
    storage_options: dict[str, Any] | None = setting(default=None)

    sparse = ("start_s", "corrupt_frames", "decode_note", "comb_ratio", "hdr")
    version = 5

    def __post_init__(self) -> None:
        Choice(self.pick, self.fps, self.count)
        if self.size is not None and self.size < 2:
            raise ValueError(f"size must be 2 pixels or more, or None, got {self.size}")
        if self.side not in ("long", "short"):
            raise ValueError(f"side is long or short, got {self.side!r}")
        for name in ("max_seconds", "max_mb", "max_pixels"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        if self.deinterlace not in WHEN:
            raise ValueError(f"deinterlace is one of {', '.join(WHEN)}, got {self.deinterlace!r}")
        if self.pick == "none" and not self.thumbs:
            raise ValueError("pick: none without thumbs decodes nothing; turn one of them on")

    def contract(self) -> Contract:
        payloads = {} if self.pick == "none" else {"frames": None, "timestamps": None}
        return Contract(adds={**payloads, **({"thumbs": None, "thumb_times": None} if self.thumbs else {}), **COLUMNS})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def reasons(self) -> tuple[str, ...]:
        return ("too_large",) if self.max_seconds is None else ("too_large", "too_long")

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def setup(self, ctx: Context) -> None:
        from curator_video.read.film import BadFilm
        from curator_video.read.headers import length_of
        from curator_video.read.interlace import Combing

        self._bad, self._length, self._combing = BadFilm, length_of, Combing
        self.choice = Choice(self.pick, self.fps, self.count)
        self.options: dict[str, Any] = {"max_pixels": self.max_pixels, "longest": self.size if self.side == "long" else None}
        self._keys_only = self.pick == "keyframes" and not self.thumbs
        if self._keys_only:
            self.options["skip_frame"] = "NONKEY"

    def process(self, batch: Batch) -> Iterator[Outputs]:
        waiting: list[Decoded] = []
        with Films(self.storage_options, **self.options) as films:
            for part in parts_of(batch):
                waiting.append(self.decoded(films, part))
                if sum(one.nbytes for one in waiting) >= ANSWER_BYTES:
                    yield self.answer(batch, waiting)
                    waiting = []
        if waiting or not len(batch):
            yield self.answer(batch, waiting)

    def decoded(self, films: Films, part: Part) -> Decoded:
        try:
            film = films.open(part)
            begin, end = part.begin, part.end
            if end is None and (self.pick == "uniform" or self._says_too_long(film, begin)):
                end = self._length(film)
            if self.max_seconds is not None and end is not None and end - begin > self.max_seconds + 1e-3:
                raise TooMuch("too_long")
            return self._span(film, part, begin, end)
        except self._bad as error:
            return Decoded(part.row, "failed", str(error))
        except TooMuch as error:
            return Decoded(part.row, "dropped", str(error))

    def pixels(self, film: Film) -> tuple[int, int]:
        """Width and height of `frames`."""
        return (film.width, film.height) if self.size is None else film.fitted(self.size, self.side)

    def most(self, size: tuple[int, int]) -> int:
        """How many pictures of so many pixels one record may have."""
        return (self.max_mb << 20) // (3 * size[0] * size[1])

    def _says_too_long(self, film: Film, begin: float) -> bool:
        """By the header, which may lie: then packets tell."""
        return self.max_seconds is not None and (film.declared_s or 0.0) - begin > self.max_seconds

    def _span(self, film: Film, part: Part, begin: float, end: float | None) -> Decoded:
        size = self.pixels(film)
        corrupt, backward = film.corrupt, film.backward
        thumbs: list[np.ndarray] = []
        frames: list[np.ndarray] = []
        times: list[float] = []
        most = self.most(size)
        seen, shown_at = Seen(), -1.0
        shown: np.ndarray | None = None
        combing = self._combing(COMB_S)
        woven = self.deinterlace == "yes" or (self.deinterlace == "auto" and part.combed)
        pictures = self._watched(film.frames(begin, end, woven), film, begin, thumbs, combing)
        for time, frame in chosen(pictures, self.choice, begin, end, seen):
            if shown is None or time != shown_at:
                shown_at, shown = time, film.upright(frame, size)
            frames.append(shown)
            times.append(time)
            if len(frames) > most:
                raise TooMuch("too_large")
        if not seen.times:
            raise film.nothing(begin, end)
        taken = Taken(seen.times, thumbs, times, frames, film.corrupt - corrupt, film.backward - backward)
        return self.made(part, film, taken, None if woven else combing.ratio, size)

    def made(self, part: Part, film: Film, taken: Taken, combs: float | None, size: tuple[int, int]) -> Decoded:
        """What becomes of a record of which these pictures are taken, of so many pixels. `combs`: share of its pixels."""
        payloads = {}
        if self.pick != "none":
            payloads = {"frames": np.stack(taken.frames) if taken.frames else np.empty((0, size[1], size[0], 3), np.uint8),
                        "timestamps": np.array(taken.frame_times, np.float64) + part.shift}
        if self.thumbs:
            payloads |= {"thumbs": np.stack(taken.thumbs), "thumb_times": np.array(taken.times, np.float64) + part.shift}
        last = Seen(taken.times).end
        begin, stop = part.begin, max(last, 0.0) if part.end is None else part.end
        short = last < ((film.stream_s or 0.0) if part.end is None else part.end) - SHORT_S and not self._keys_only
        notes = {"damaged": taken.damaged > 0, "truncated": short or (part.end is None and film.truncated),
                 "times_go_back": taken.backward > 0, "no_times": film.by_count}
        columns = {"decoded_frames": len(taken.times), "corrupt_frames": taken.damaged,
                   "decode_note": ", ".join(name for name, found in notes.items() if found) or None,
                   "comb_ratio": combs, "hdr": film.hdr,
                   "start_s": begin + part.shift, "end_s": stop + part.shift, "duration": stop - begin}
        return Decoded(part.row, payloads=payloads, columns=columns)

    def _watched(self, pictures: Iterator[tuple[float, Any]], film: Film, begin: float, thumbs: list[np.ndarray],
                 combing: Combing) -> Iterator[tuple[float, Any]]:
        """The pictures of a span; of each a thumbnail is kept."""
        for time, frame in pictures:
            if self.max_seconds is not None and time - begin > self.max_seconds:
                raise TooMuch("too_long")
            if self.thumbs:
                thumbs.append(film.thumb(frame))
            combing.add(time, frame)
            yield time, frame

    def answer(self, batch: Batch, found: list[Decoded]) -> Outputs:
        ports: dict[str, list[Decoded]] = {"out": []}
        for one in found:
            ports.setdefault(one.port, []).append(one)
        good = ports["out"]
        made = batch.take([one.row for one in good]).as_type(VideoBatch)
        columns = {name: pa.array([self._kept(batch, one, name) for one in good], kind) for name, kind in COLUMNS.items()}
        names = [name for name, kind in self.contract().adds.items() if kind is None]
        payloads = {name: [one.payloads[name] for one in good] for name in names}
        outputs = Outputs(out=made.with_columns(columns).with_payloads(**payloads))
        for port, rows in ports.items():
            why = [one.why for one in rows]
            if port != "out":
                there = batch.take([one.row for one in rows])
                outputs[port] = there.with_error(why) if port == "failed" else there.with_reason(why)
        return outputs

    @staticmethod
    def _kept(batch: Batch, one: Decoded, name: str) -> Any:
        """Spans and lengths that are there stay as they are."""
        if name in ("comb_ratio", "start_s", "end_s", "duration") and name in batch.columns:
            given = batch.rows.column(name)[one.row].as_py()
            if given is not None:
                return given
        return one.columns[name]
