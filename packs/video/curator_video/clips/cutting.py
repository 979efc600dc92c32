"""Clips of films as mp4 files: packets copied behind an edit list, or pictures encoded anew."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from av.video.frame import PictureType
from av.video.reformatter import Interpolation, VideoReformatter

from curator_video.clips.boxes import shown_until
from curator_video.clips.encoders import format_of, options_of
from curator_video.clips.packets import Coded, pictures_of, sound_of
from curator_video.read.film import BadFilm, Film
from curator_video.read.sampling import Choice, Seen, chosen

FOREVER_S = 1e7
_PICTURES = ("h264", "hevc", "av1", "vp9", "mpeg4")  # codecs that are copied into an mp4
_SOUND = ("aac", "mp3", "opus", "ac3", "eac3", "flac", "alac")
_CONTAINERS = ("mov", "matroska")  # whose packets have exact times and no start codes
_SCALE = 90_000  # ticks a second of an mp4's header
_MP4 = {"movie_timescale": str(_SCALE), "fflags": "+bitexact", "use_editlist": "1"}
_COUNTED = Fraction(1, _SCALE)  # for files without times
_BT709, _BT601, _LIMITED, _HDR = 1, 6, 1, (16, 18)  # as FFmpeg numbers them


@dataclass
class Clip:
    """`start_s`: of the first picture that is shown, seconds of the film; `hidden_s`: of pictures before it that are in the file."""

    data: bytes
    method: str
    start_s: float
    frames: int
    hidden_s: float = 0.0


@dataclass(frozen=True)
class Way:
    """How clips are cut: see `video.cut`."""

    method: str
    audio: bool
    crf: int | None
    preset: str
    max_hidden: float
    encoder: str = "libx264"
    size: int | None = None
    side: str = "short"
    fps: float | None = None
    deinterlace: bool = False


def clip_of(packets: Film, opened: Callable[[], Film], start_s: float, end_s: float, way: Way) -> Clip:
    """The clip of start_s <= time < end_s. `packets`: the film; `opened`: opens it once more, for pictures, if it must be encoded.

    Raises:
        BadFilm: there is no picture in the span, or it can neither be copied nor encoded.
    """
    if way.method != "exact" and not way.deinterlace and not way.fps and _scale(packets, way) == 1:
        try:
            made = _copied(packets, start_s, end_s, way)
        except BadFilm:
            raise
        except (FFmpegError, ValueError) as error:
            made = None
            if way.method == "keyframe":
                raise BadFilm(f"cut_failed: the packets do not go into an mp4 ({error})") from error
        if made is not None:
            return made
        if way.method == "keyframe":
            raise BadFilm(f"cut_failed: {packets.stream.codec_context.name} in {packets.format} cannot be copied into an mp4, or has no "
                          "keyframe before the span; method: auto encodes it")
    try:
        return _encoded(opened(), packets, start_s, end_s, way)
    except BadFilm:
        raise
    except (FFmpegError, ValueError) as error:
        raise BadFilm(f"cut_failed: {error}") from error


# -- copied ---------------------------------------------------------------------------------------------------------


def _copied(film: Film, start_s: float, end_s: float, way: Way) -> Clip | None:
    if film.by_count or film.format not in _CONTAINERS or film.stream.codec_context.codec.canonical_name not in _PICTURES:
        return None
    coded = pictures_of(film, start_s, end_s, math.inf if way.method == "keyframe" else way.max_hidden)
    if coded is None:
        return None
    if not coded.shown:
        raise film.nothing(start_s, None if end_s >= FOREVER_S else end_s)
    base = film.stream.time_base
    if way.method == "keyframe":
        coded.packets = [packet for packet in coded.packets if packet.pts >= coded.packets[0].pts]
        coded.shown += sum(packet.pts < coded.first for packet in coded.packets)
        coded.first = coded.packets[0].pts
    elif coded.leading or not coded.whole or coded.hidden * base > way.max_hidden:
        return None
    hidden = float(coded.hidden * base)
    method = "keyframe" if way.method == "keyframe" or not hidden else "edit_list"
    return Clip(_written(film, coded, end_s, way), method, float(coded.first * base) - film.first_s, coded.shown, hidden)


def _written(film: Film, coded: Coded, end_s: float, way: Way) -> bytes:
    base = film.stream.time_base
    zero = coded.first * base
    file = io.BytesIO()
    with av.open(file, "w", format="mp4", options=_MP4) as out:
        pictures = out.add_stream_from_template(film.stream, opaque=True)
        for packet in coded.packets:
            packet.pts, packet.dts, packet.stream = packet.pts - coded.first, packet.dts - coded.first, pictures
        sound = _Sound(film, out, zero, end_s, way)
        _mux(out, coded.packets, sound.packets)
    stop = (coded.stop - coded.first) * base
    return shown_until(file.getvalue(), [float(stop) - 1 / _SCALE, *sound.length(end_s)])


def _mux(out: Any, *tracks: list[Any]) -> None:
    timed: list[tuple[float, Any]] = []
    for track in tracks:
        base = float(track[0].time_base) if track else 0.0
        timed += [((packet.dts or 0) * base, packet) for packet in track]
    for _, packet in sorted(timed, key=lambda one: one[0]):
        out.mux(packet)


class _Sound:
    """The sound of a clip as packets for `out`: copied where an mp4 can have them, else encoded as AAC."""

    def __init__(self, film: Film, out: Any, zero: Fraction, end_s: float, way: Way) -> None:
        """`zero`: seconds of the file that become 0."""
        streams = film.container.streams.audio if way.audio else ()
        self.packets: list[Any] = []
        self._zero = float(zero) - film.first_s
        self._end: float | None = None
        if not streams or streams[0].codec_context is None:
            return
        number = streams[0].index
        found = sound_of(film, number, self._zero, end_s)
        stream = film.container.streams[number]
        if not found:
            return
        self._end = float((found[-1].pts + (found[-1].duration or 0)) * stream.time_base - zero)
        context = stream.codec_context
        if context.codec.canonical_name in _SOUND and context.sample_rate:  # 0: it begins late in an mpegts, and only decoding tells it
            self.packets = self._copied(out, stream, found, zero)
        else:
            self.packets = self._encoded(out, stream, found, zero)
        if not self.packets:
            self._end = None

    def length(self, end_s: float) -> list[float]:
        """Seconds after which the sound ends, of the one track that there is, or is not."""
        return [] if self._end is None else [max(0.0, min(self._end, end_s - self._zero))]

    @staticmethod
    def _copied(out: Any, stream: Any, packets: list[Any], zero: Fraction) -> list[Any]:
        track = out.add_stream_from_template(stream, opaque=True)
        tick = Fraction(1, stream.codec_context.sample_rate)  # a tick of AVI may be a whole packet
        step, begin = stream.time_base / tick, zero / tick
        scale, shift, whole = step.numerator * begin.denominator, begin.numerator * step.denominator, step.denominator * begin.denominator
        for packet in packets:  # whole numbers, as fractions take half of the time of a cut
            packet.pts = packet.dts = round((packet.pts * scale - shift) / whole)
            packet.duration = round((packet.duration or 0) * step.numerator / step.denominator)
            packet.time_base, packet.stream = tick, track
        return packets

    @staticmethod
    def _encoded(out: Any, stream: Any, packets: list[Any], zero: Fraction) -> list[Any]:
        frames = iter(_decoded(packets))
        begins = next(frames, None)
        if begins is None:
            return []
        first, rate = begins.time, stream.codec_context.sample_rate  # which the decoder knows by now, if not the header
        layout = "mono" if stream.codec_context.channels == 1 else "stereo"
        resampler = av.AudioResampler("fltp", layout, rate)
        pieces = [one.to_ndarray() for frame in chain([begins], frames, [None]) for one in resampler.resample(frame)]
        if not pieces:
            return []
        samples = np.concatenate(pieces, axis=1)
        offset = round((first - float(zero)) * rate)
        samples, offset = samples[:, max(0, -offset):], max(0, offset)
        track = out.add_stream("aac", rate=rate, layout=layout)
        size = track.codec_context.frame_size or 1024
        made = []
        for at in range(0, samples.shape[1], size):
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[:, at:at + size]), "fltp", layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, offset + at, Fraction(1, rate)
            made += track.encode(frame)
        return made + track.encode(None)


def _decoded(packets: Iterable[Any]) -> Iterable[Any]:
    for packet in packets:
        try:
            yield from packet.decode()
        except (FFmpegError, ValueError):
            continue


# -- encoded --------------------------------------------------------------------------------------------------------


def _scale(film: Film, way: Way) -> float:
    if way.size is None:
        return 1.0
    return min(1.0, way.size / (min if way.side == "short" else max)(film.width, film.height))


def _at_rate(pictures: Iterable[tuple[float, Any]], end: float | None, rate: float) -> Iterator[tuple[float, Any]]:
    """So many pictures a second, each the one that is shown then; the first of them begins."""
    pictures = iter(pictures)
    first = next(pictures, None)
    if first is not None:
        shown = chosen(chain([first], pictures), Choice("fps", rate, 1), first[0], end, Seen())
        yield from ((first[0] + k / rate, frame) for k, (_, frame) in enumerate(shown))


def _encoded(film: Film, packets: Film, start_s: float, end_s: float, way: Way) -> Clip:
    file = io.BytesIO()
    coded: list[Any] = []
    encoder: _Encoder | None = None
    with av.open(file, "w", format="mp4", options=_MP4) as out:
        until = None if end_s >= FOREVER_S else end_s
        pictures = film.frames(start_s, until, way.deinterlace)
        for time, frame in _at_rate(pictures, until, way.fps) if way.fps else pictures:
            if encoder is None:
                encoder = _Encoder(film, out, frame, time, way)
            coded += encoder.encode(time, frame)
        if encoder is None:
            raise film.nothing(start_s, until)
        coded += encoder.stream.encode(None)
        zero = Fraction(encoder.first).limit_denominator(10**6) + Fraction(film.first_s).limit_denominator(10**6)
        sound = _Sound(packets, out, zero, end_s, way)
        _mux(out, coded, sound.packets)
    stop = min(encoder.end, end_s) - encoder.first
    data = shown_until(file.getvalue(), [stop, *sound.length(end_s)])
    return Clip(data, "deinterlaced" if way.deinterlace else "exact", encoder.first, encoder.count)


class _Encoder:
    """Frames as they are in the film: their size, their times, their colours, and how they are to be turned."""

    def __init__(self, film: Film, out: Any, frame: Any, time: float, way: Way) -> None:
        self._film, self.first, self.end, self.count = film, time, time, 0
        self._time, self._usual = time, float(1 / film.rate)
        self._base = _COUNTED if film.by_count or way.fps else film.stream.time_base
        self._step = 1 / way.fps if way.fps else None
        self._odd = bool(frame.width % 2 or frame.height % 2)  # the picture upright then, less a row or column
        scale = _scale(film, way)
        width, height = (film.width, film.height) if self._odd else (frame.width, frame.height)
        wide, high = (max(2, int(one * scale) // 2 * 2 if scale == 1 else 2 * round(one * scale / 2)) for one in (width, height))
        self._size = wide, high
        self._seen = (width, height) if scale == 1 else self._size
        depth = max((one.bits for one in frame.format.components), default=8)
        self._format = format_of(way.encoder, "" if self._odd else frame.format.name, depth)
        self._scaler = VideoReformatter()
        rate = Fraction(way.fps).limit_denominator(1001) if way.fps else film.stream.average_rate or 25
        self.stream: Any = out.add_stream(way.encoder, rate=rate, options=options_of(way.encoder, way.crf, way.preset))
        context = self.stream.codec_context
        self.stream.width, self.stream.height, self.stream.pix_fmt = *self._size, self._format
        context.thread_count = 1  # other numbers of threads make other bytes
        context.time_base = self._base
        if context.codec.canonical_name == "hevc":
            context.codec_tag = "hvc1"  # with FFmpeg's own, hev1, Apple's players show nothing
        context.color_primaries, context.color_trc = frame.color_primaries, frame.color_trc
        context.colorspace, context.color_range = frame.colorspace, frame.color_range
        if self._odd:  # its pictures come as RGB for an ordinary screen, and libswscale makes BT.601 of the usual range of it
            context.colorspace, context.color_range = _BT601, _LIMITED
            if frame.color_trc in _HDR:
                context.color_primaries = context.color_trc = _BT709
        if not self._odd:
            context.sample_aspect_ratio = film.sar
            if film.rotation or film.mirrored:
                self.stream.set_display_rotation(film.rotation if film.mirrored else -film.rotation, hflip=film.mirrored)

    def encode(self, time: float, frame: Any) -> list[Any]:
        lasts = self._step or (float(frame.duration * frame.time_base) if frame.duration and frame.time_base else 0.0)
        lasts = lasts or time - self._time or self._usual  # FLV has no lengths of pictures; one that ends when it begins is not shown
        self.end, self._time = max(time + lasts, self.end), time
        self.count += 1
        if self._odd:
            width, height = self._size
            upright = self._film.upright(frame, self._seen)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(upright[:height, :width]), "rgb24")
        if (frame.width, frame.height) != self._size or frame.format.name != self._format:
            frame = self._scaler.reformat(frame, *self._size, self._format, interpolation=Interpolation.BICUBIC, threads=1)
        frame.pts, frame.time_base, frame.pict_type = round((time - self.first) / self._base), self._base, PictureType.NONE
        return self.stream.encode(frame)


def span(start: float, end: float | None) -> tuple[float, float]:
    """With an end, whatever is given."""
    return start, FOREVER_S if end is None or math.isinf(end) else end
