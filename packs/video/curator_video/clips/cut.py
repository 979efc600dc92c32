"""Clips as files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from curator.api.counts import Counts
from curator.api.findings import Finding, Line, Shown, Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import Batch
from curator_video.clips.speeds import CRF, CRF_MOST, PRESETS
from curator_video.read.record import Films, check_file, parts_of

if TYPE_CHECKING:
    from curator_video.clips.cutting import Clip

ANSWER_BYTES = 32 << 20  # of clips in one answer
CUT_METHODS = ("keyframe", "edit_list", "exact", "deinterlaced")
WHEN = ("auto", "yes", "no")
METHODS = ("auto", "exact", "keyframe")
COLUMNS = {"bytes": pa.binary(), "extension": pa.string(), "cut_method": pa.string(), "clip_start": pa.float64(),
           "clip_frames": pa.int32(), "hidden_s": pa.float32(), "start_s": pa.float64(), "end_s": pa.float64(),
           "duration": pa.float64()}


@dataclass(kw_only=True)
class Cut(Stage):
    """Cut the span of each record out of its film: an mp4 that shows exactly these pictures, with their sound in step.

    Reads `path`, or `bytes` where they are there, and `start_s` and `end_s` (seconds from the first picture). The records of a batch
    that lie in one film by path, in whatever order, open it once and read it once.

    Adds `bytes` (the mp4), `extension` (mp4), `cut_method` (keyframe, edit_list, exact, deinterlaced), `clip_start` (seconds of the film at
    which the first picture of the clip is shown: `start_s`, or the first one after it), `clip_frames` (pictures that
    are shown), `hidden_s` (seconds of pictures in the file that no player shows); `start_s`, `end_s` and `duration` are those
    of the clip: with `keyframe` it begins earlier. The same film, span and libraries give the same bytes.

    `method: auto` copies what is coded, where the span begins at a keyframe; else from the keyframe before, behind an edit list,
    by which players begin at the right picture; else (the keyframe is more than `max_hidden` seconds before, pictures before it are
    coded by later ones, a codec or container that an mp4 cannot have, damage) it encodes. `exact` always encodes: nothing
    hidden is in the file. `keyframe` always copies, from the keyframe before on, all of it shown.
    `deinterlace`: encode whole pictures, made by FFmpeg's bwdif, of those that are two fields woven together: `auto` where `comb_ratio`
    (of video.shots or video.decode) is above 0.007 and `method` is not keyframe. `max_hidden`: seconds.
    `audio`: keep the first sound track: copied (AAC, MP3, Opus, AC-3, FLAC, ALAC), else as AAC.

    `size`: pixels of the shorter side (`side: long` of the longer) at most: larger films are scaled, and encoded; none is
    enlarged. `fps`: pictures a second, each the one that is shown then: where the film has fewer they come again; always encoded.

    `codec`: of what is encoded: h264, h265, vp9, av1. `crf`: a lower one is better and larger; null takes 18, 18, 21, 20.
    `preset`: by x264's names, for the others what is as fast of theirs. `encoder`: FFmpeg's name of one; null takes libx264, libx265,
    libvpx-vp9, libsvtav1, on a worker with a GPU (`with: {resources: {gpus: 0.2}}`) NVIDIA's if FFmpeg has it and it opens.

    A turned film stays turned by its display matrix, high bit depths stay (10 bits, but of VP9), and HDR does; of an
    odd size the last row or column goes.

    What cannot be cut leaves on `failed`; `error` begins with what it is: `no_frames`, `cut_failed`, or as in video.probe.

    Known: readers that do not mind edit lists (few: FFmpeg, OpenCV and players do) show what is hidden. Not for secrets, then:
    `exact`.
    """

    method: Literal["auto", "exact", "keyframe"] = "auto"
    max_hidden: float = 2.0
    deinterlace: Literal["auto", "yes", "no"] = "auto"
    audio: bool = True
    size: int | None = None
    side: Literal["short", "long"] = "short"
    fps: float | None = None
    codec: Literal["h264", "h265", "vp9", "av1"] = "h264"
    crf: int | None = None
    preset: str = "veryfast"
    encoder: str | None = None
    storage_options: dict[str, Any] | None = setting(default=None)

    batch_size = 32
    sparse = ("start_s", "clip_start", "hidden_s")
    version = 4

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method is one of {', '.join(METHODS)}, got {self.method!r}")
        if self.deinterlace not in WHEN:
            raise ValueError(f"deinterlace is one of {', '.join(WHEN)}, got {self.deinterlace!r}")
        if self.deinterlace == "yes" and self.method == "keyframe":
            raise ValueError("method: keyframe copies, and deinterlace: yes encodes; leave one of them out")
        if self.max_hidden < 0:
            raise ValueError(f"max_hidden must be 0 seconds or more, got {self.max_hidden}")
        if self.codec not in CRF:
            raise ValueError(f"codec is one of {', '.join(CRF)}, got {self.codec!r}")
        if self.crf is not None and not 0 <= self.crf <= CRF_MOST[self.codec]:
            raise ValueError(f"crf of {self.codec} is from 0 to {CRF_MOST[self.codec]}, got {self.crf}")
        if self.size is not None and self.size < 16:
            raise ValueError(f"size must be 16 pixels or more, got {self.size}")
        if self.side not in ("short", "long"):
            raise ValueError(f"side is short or long, got {self.side!r}")
        if self.fps is not None and not 0 < self.fps <= 240:
            raise ValueError(f"fps is above 0 and at most 240 pictures a second, got {self.fps}")
        if self.method == "keyframe" and (self.fps or self.size):
            raise ValueError("method: keyframe copies, and size and fps encode; leave one of them out")
        if self.preset not in PRESETS:
            raise ValueError(f"preset is one of {', '.join(PRESETS)}, got {self.preset!r}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)
        if self.encoder is not None:
            from curator_video.clips import encoders

            encoders.known(self.encoder, self.codec)
            encoders.check_gpu(self.encoder, self.resources)

    def example_columns(self) -> Mapping[str, Shown]:
        return {"bytes": "video"}

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        told = [f"{counts.extra[name]:,} {words}" for name, words in (
            ("keyframe", "copied"), ("edit_list", "copied with an edit list"), ("exact", "encoded"),
            ("deinterlaced", "deinterlaced")) if counts.extra.get(name)]
        if told:
            yield Line(", ".join(told))

    def setup(self, ctx: Context) -> None:
        from curator_video.clips import encoders
        from curator_video.clips.cutting import Way, clip_of, span
        from curator_video.read.film import BadFilm

        self._clip_of, self._span, self._bad = clip_of, span, BadFilm
        encoder = encoders.chosen(self.codec, self.encoder, gpu=bool(ctx.gpus))
        self._way = Way(self.method, self.audio, self.crf, self.preset, self.max_hidden, encoder, self.size, self.side, self.fps)
        self._whole = replace(self._way, deinterlace=True)

    def process(self, batch: Batch) -> Iterator[Outputs]:
        good: dict[int, dict[str, Any]] = {}
        bad: dict[int, str] = {}
        with Films(self.storage_options) as films, Films(self.storage_options) as again:
            for part in parts_of(batch, by_film=True):  # behind a dedup they come in any order
                try:
                    film = films.open(part)
                    start, end = self._span(part.begin, part.end)
                    woven = self.deinterlace == "yes" or (self.deinterlace == "auto" and part.combed and self.method != "keyframe")
                    clip = self._clip_of(film, partial(again.open, part), start, end, self._whole if woven else self._way)
                    good[part.row] = self._row(clip, part.begin + part.shift, None if part.end is None else part.end + part.shift,
                                               part.shift)
                except self._bad as error:
                    bad[part.row] = str(error)
                if sum(len(one["bytes"]) for one in good.values()) >= ANSWER_BYTES:
                    yield self._answer(batch, good, bad)
                    good, bad = {}, {}
        if good or bad or not len(batch):
            yield self._answer(batch, good, bad)

    def _row(self, clip: Clip, start: float, end: float | None, shift: float) -> dict[str, Any]:
        if self.method == "keyframe":
            start = clip.start_s + shift
        return {"bytes": clip.data, "extension": "mp4", "cut_method": clip.method, "clip_start": clip.start_s + shift,
                "clip_frames": clip.frames, "hidden_s": clip.hidden_s, "start_s": start, "end_s": end,
                "duration": None if end is None else end - start}

    def _answer(self, batch: Batch, good: dict[int, dict[str, Any]], bad: dict[int, str]) -> Outputs:
        outputs = Outputs()
        if good or not bad:
            good = dict(sorted(good.items()))
            rows = list(good.values())
            made = batch.without([name for name in ("bytes",) if name in batch.columns]).take(list(good))
            outputs["out"] = made.with_columns({name: pa.array([row[name] for row in rows], kind) for name, kind in COLUMNS.items()})
            outputs.counts = {name: sum(row["cut_method"] == name for row in rows) for name in CUT_METHODS}
        if bad:
            bad = dict(sorted(bad.items()))
            outputs["failed"] = batch.take(list(bad)).with_error(list(bad.values()))
        return outputs
