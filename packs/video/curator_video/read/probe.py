"""What a film is, without decoding it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.findings import Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator_video.read.record import Films, check_file, parts_of

COLUMNS: dict[str, pa.DataType] = {
    "container": pa.string(), "video_codec": pa.string(), "profile": pa.string(), "width": pa.int32(), "height": pa.int32(),
    "coded_width": pa.int32(), "coded_height": pa.int32(), "sar": pa.float32(), "aspect": pa.float32(), "rotation": pa.int32(),
    "mirrored": pa.bool_(), "fps": pa.float64(), "fps_nominal": pa.float64(), "vfr": pa.bool_(), "max_gap": pa.float64(),
    "duration": pa.float64(), "declared_duration": pa.float64(), "start_time": pa.float64(), "frame_count": pa.int64(),
    "declared_frames": pa.int64(), "missing_ratio": pa.float32(), "bit_rate": pa.int64(), "bpp": pa.float32(),
    "pix_fmt": pa.string(), "bit_depth": pa.int32(), "hdr": pa.string(), "color_primaries": pa.string(), "full_range": pa.bool_(),
    "interlaced": pa.bool_(), "keyframe_interval": pa.float64(), "open_gop": pa.bool_(), "b_frames": pa.bool_(),
    "has_audio": pa.bool_(), "audio_codec": pa.string(), "audio_rate": pa.int32(), "audio_channels": pa.int32(),
    "audio_duration": pa.float64(), "audio_offset": pa.float64(), "subtitle_tracks": pa.int32(),
    "languages": pa.list_(pa.string()), "n_video": pa.int32(), "attached_pic": pa.bool_(), "creation_time": pa.string(),
    "probe_note": pa.string(), "start_s": pa.float64(), "end_s": pa.float64(),
}


@dataclass(kw_only=True)
class Probe(Stage):
    """What a film is: its container and codecs, size, rate, length, sound; by header and packets, nothing is decoded but
    the first picture.

    Reads `path`, or `bytes` where they are there. The content decides what a file is, not its name; of several
    video streams the largest is taken, a cover is none.

    Adds of the file: `container` (mp4, mov, mkv, webm, ts, avi, …), `start_time` (seconds: the file's own time of the first
    picture; all other times count from it), `n_video` (streams of pictures), `attached_pic` (it has a cover),
    `subtitle_tracks`, `languages` (of sound and subtitles, as tagged), `creation_time`.
    Of the pictures: `video_codec`, `profile`, `width` and `height` (upright, in square pixels), `aspect` (width / height),
    `coded_width` and `coded_height` (as stored), `sar` (width of a stored pixel / its height), `rotation` (0, 90, 180, 270:
    degrees that players turn it clockwise), `mirrored`, `pix_fmt`, `bit_depth`, `hdr` (pq, hlg, else null),
    `color_primaries` (null if not tagged), `full_range`, `interlaced` (as flagged).
    Of time: `duration` (until the end of the last picture, seconds), `frame_count`, `fps` (pictures a second as they are),
    `fps_nominal` (as the header has it), `vfr` (intervals that vary: deviation above 5 % of the mean, or one above 1.5 times
    the median), `max_gap` (longest interval, seconds), `declared_duration`, `declared_frames` (by the header; null where it
    does not tell), `missing_ratio` (the share of these that is not there), `keyframe_interval` (longest distance,
    seconds), `open_gop`, `b_frames`; `bit_rate` (of the pictures, bits a second) and `bpp` (bits a stored pixel).
    Of the first sound track: `has_audio`, `audio_codec`, `audio_rate` (Hz), `audio_channels`, `audio_duration`
    (seconds), `audio_offset` (seconds from the first picture to the first sound).
    `probe_note` (null where all is well, else of these, joined by a comma: `truncated`, the file ends before what it says;
    `damaged`, packets that cannot be read; `no_times`, the file has no times of pictures, they are number / rate).
    `start_s` and `end_s`: the span of the film that the record is; a whole film is 0 to `duration`. Where they are there
    already (null: from the beginning, to the end), they stay, and `duration` is that of the span. Of clips that video.cut
    made they stay, too.

    What is no film leaves on `failed`; `error` begins with what it is: `empty`, `not_media` (also playlists and
    pictures), `no_video` (sound only, or a broken header), `no_frames`, `too_large`, `no_decoder`, `unreadable`.

    `scan`: read all packets (the whole file is read, and not decoded). Without it only the header is read: what packets tell
    is null, and `fps` and `duration` are what the header says, which may lie. `max_pixels`: larger pictures
    are refused before memory is taken. `storage_options`: what the filesystem of a `path` wants.
    """

    scan: bool = True
    max_pixels: int = 8192 * 8192
    storage_options: dict[str, Any] | None = setting(default=None)

    sparse = ("sar", "aspect", "rotation", "fps", "fps_nominal", "max_gap", "start_time", "missing_ratio", "hdr",
              "color_primaries", "keyframe_interval", "audio_offset", "subtitle_tracks", "languages", "creation_time",
              "probe_note", "start_s", "vfr", "frame_count", "bit_rate", "bpp", "open_gop", "b_frames")  # the last six without `scan`
    version = 2

    def __post_init__(self) -> None:
        self.at_least(1, "max_pixels")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def setup(self, ctx: Context) -> None:
        from curator_video.read.headers import from_header, scanned

        self._header, self._scanned = from_header, scanned

    def process(self, batch: Batch) -> Iterator[Outputs]:
        from curator_video.read.film import BadFilm

        good: list[int] = []
        rows: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        starts, ends = (batch.column(n) if n in batch.columns else [None] * len(batch) for n in ("start_s", "end_s"))
        seen: tuple[Any, dict[str, Any]] = (None, {})  # a film that several records lie in is read once
        with Films(self.storage_options, max_pixels=self.max_pixels) as films:
            for part in parts_of(batch):
                try:
                    film = films.open(part)
                    if film is not seen[0]:
                        seen = film, self._header(film) | (self._scanned(film) if self.scan else {})
                except BadFilm as error:
                    bad[part.row] = str(error)
                    continue
                found = dict(seen[1])
                start = 0.0 if starts[part.row] is None else starts[part.row]
                whole = found["duration"]
                end = ends[part.row]
                if end is None:
                    end = None if whole is None else whole + part.shift
                found |= {"start_s": start, "end_s": end}
                if part.begin or part.end is not None:
                    found["duration"] = None if end is None else max(0.0, end - start)
                good.append(part.row)
                rows.append(found)
        columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()}
        outputs = Outputs(out=batch.take(good).with_columns(columns))
        if bad:
            outputs["failed"] = batch.take(list(bad)).with_error(list(bad.values()))
        yield outputs
