"""One film, open: its pictures in order with exact times, upright, of any part, and what is wrong with it.

Ours, and not a reader of frames by number: times are those of the file (never frame / rate), a jump is verified, and
what is damaged is passed over and counted.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from fractions import Fraction
from types import TracebackType
from typing import Any, BinaryIO, Self

import av
import numpy as np
from av.error import FFmpegError
from av.stream import Discard, Disposition
from av.video.frame import PictureType
from av.video.reformatter import VideoReformatter

from curator.api.errors import InputError
from curator.io.files.folder import open_input
from curator_video.read.interlace import deinterlaced, unmarked
from curator_video.read.pixels import Pixels, matrix_of
from curator_video.read.sampling import EPSILON_S
from curator_video.read.tone import HDR

# Containers that know themselves by their first bytes and lead to no other file. Without such a list a playlist would
# make FFmpeg open what it names. Those of sound are there so that a file with sound only is called what it is.
CONTAINERS = ("apng,asf,av1,avi,dv,flv,gif,h264,hevc,ivf,m4v,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegts,mpegvideo,mxf,nut,obu,"
              "ogg,rm,swf,webp_anim,wtv,yuv4mpegpipe,"
              "aac,ac3,aiff,amr,ape,au,caf,dts,eac3,flac,mp3,tta,voc,w64,wav,wv")
MAX_PIXELS = 8192 * 8192
MAX_STREAMS = 64  # more is a bomb
_BUFFER = 1 << 16  # bytes of one read
_INDEXED = ("mov", "matroska")  # where a jump ahead is certain
_UNSURE = ("mpeg", "mpegts")  # where no jump is: some pictures of mpeg have no time, and one of mpegts may be there twice
_NEAR_S = 3.0  # so far ahead decoding on is cheaper than a jump to the keyframe before, if no keyframes farther apart were seen
_BACK_S = (0, 1, 2, 4, 8, 16, 32)  # how much earlier a jump is tried again that came out too late: open GOP, mpegts
_EARLY_S = 60.0  # before the beginning of a stream, by its header: what lies there is not shown
_END_S = 2.0  # of a stream of sound, in which it has a packet
_JUMP_S = 10.0  # a gap as long as this is looked at twice: the time of one picture may be damaged
_PATIENCE = 50  # demuxing errors in a row, after which there is nothing more to come
_LARGER = 1.5  # than what is wanted of it, so that no deblocking is seen: of 640 pixels made 384, at crf 35, 44 dB and more
_STILL = 2_000  # packets without one picture, after which there is none to come: some 30 seconds


class BadFilm(ValueError):
    """What is wrong with a file; the text begins with what it is: `empty`, `not_media`, `no_video`, `no_frames`,
    `too_large`, `no_decoder`, `unreadable`."""


class Film:
    """A film by its path, or by its bytes. Opening it decodes the first picture; `with` closes it.

    `width`, `height`: upright, in square pixels. `rotation`: 0, 90, 180 or 270, how far a player turns the
    pictures clockwise, after it has mirrored them left to right if `mirrored`. `coded`: width and height as
    stored; `sar`: width of a stored pixel / its height. `first_s`: the time of the first picture in the file
    (its pts is `origin`); all others are seconds from it. `rate`: pictures a second by the header. `first`: the
    first picture, a frame of PyAV; `container` and `stream`: what PyAV has open, for their headers. `by_count`:
    the file has no times (raw streams) or not those of its pictures (AVI with B frames): then they are
    number / rate.

    While pictures are read these count: `corrupt`, packets that cannot be decoded and pictures that the decoder
    marks as damaged; `backward`, pictures left out since their time is not after the one before; `truncated`,
    the file ends inside what it says.

    `longest`: the longer side of the pictures that are wanted. Where those of the file are larger by half or more, H.264 and H.265
    that no other picture refers to are not deblocked, which saves a tenth of decoding; None, and else: each is as coded.

    `vectors`: frames have the motion vectors of their coding as side data, where FFmpeg gives them.

    Raises:
        BadFilm: it is none.
    """

    def __init__(self, source: str | bytes, storage_options: dict[str, Any] | None = None, *, max_pixels: int = MAX_PIXELS,
                 skip_frame: str = "DEFAULT", vectors: bool = False, longest: int | None = None) -> None:
        self._max_pixels, self._skip_frame, self._vectors, self._longest = max_pixels, skip_frame, vectors, longest
        self.corrupt = self.backward = 0
        self._near_s = _NEAR_S
        self.truncated = False
        self.container: Any = None
        self._file = _opened(source, storage_options)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of file and decoder."""
        if self.container is not None:
            self.container.close()
            self.container = None
        self._file.close()

    # -- what is to be had -------------------------------------------------------------------------------------------

    def frames(self, start_s: float = 0.0, end_s: float | None = None, deinterlace: bool = False) -> Iterator[tuple[float, Any]]:
        """Pictures with start_s <= time < end_s, in order, with their times.

        Spans that follow each other give each picture once. Going through spans in order is cheapest. `deinterlace`: one whole
        picture of each that is two fields woven together. None is marked as interlaced; `first` is as the file marks it.
        """
        pictures = self._span(start_s, end_s)
        return deinterlaced(pictures) if deinterlace else unmarked(pictures)

    def _span(self, start_s: float, end_s: float | None) -> Iterator[tuple[float, Any]]:
        start, end = start_s - EPSILON_S, math.inf if end_s is None else end_s - EPSILON_S
        if not self._in_reach(start):
            self._go_to(start)
            if self._pending is not None:  # so far apart are keyframes: a jump ahead by less may lead back to where this one began
                self._near_s = max(self._near_s, start - self._pending[0])
        while self._pending is not None:
            time, frame = self._pending
            if time >= end:
                return
            self._advance()
            if time >= start:
                yield time, frame

    def nothing(self, start_s: float, end_s: float | None) -> BadFilm:
        """What to raise where no picture lies in a span, with what shows a wrong unit: how long the header says that the film is."""
        has = "" if self.declared_s is None else f"; by its header it has {self.declared_s:g} s"
        return BadFilm(f"no_frames: no picture from {start_s:g} to {'the end' if end_s is None else f'{end_s:g} s'}{has}")

    def upright(self, frame: Any, size: tuple[int, int] | None = None) -> np.ndarray:
        """A frame as RGB, uint8 [height, width, 3], turned and with square pixels. `size`: another (width, height)."""
        return self._pixels.rgb(frame, size or (self.width, self.height))

    def thumb(self, frame: Any) -> np.ndarray:
        """The luma of an upright frame, uint8 36 x 64, each the mean of its area; black is 16 and white 235, whatever the
        file's range. The whole picture, with its bars, whatever its aspect."""
        return self._pixels.thumb(frame)

    def small(self, frame: Any) -> tuple[np.ndarray, np.ndarray]:
        """The thumbnail, and U and V of an upright frame, uint8 2 x 18 x 32, by area; grey is 128."""
        return self._pixels.small(frame)

    @property
    def hdr(self) -> str | None:
        """`pq` or `hlg`, by the first picture; None for the usual range."""
        return HDR.get(int(self.first.color_trc))

    def fitted(self, size: int, side: str = "long") -> tuple[int, int]:
        """(width, height) whose longer (`long`) or shorter (`short`) side has `size`, both even; never larger than it is."""
        reference = max(self.width, self.height) if side == "long" else min(self.width, self.height)
        scale = min(1.0, size / reference)
        return tuple(max(2, 2 * round(scale * one / 2)) for one in (self.width, self.height))

    def packets(self, audio: int | None = None) -> Iterator[Any]:
        """All packets of the pictures from the beginning, not decoded, and those of the audio stream of this index; of that only the
        first and those of the end, where the file has a list of them."""
        apart = audio is None or self.format == "mov"
        self.rewind(self.stream.index if apart else None)
        streams = [self.stream] if apart else [self.stream, self.container.streams[audio]]
        yield from self._full(streams)
        if apart and audio is not None:
            yield from self._ends(audio)

    def _ends(self, number: int) -> Iterator[Any]:
        """Of a stream of a file that lists its packets: those until one is heard, and those of the end; all, where none of these can
        be read."""
        stream = self.rewind(number).streams[number]
        for packet in self._full([stream]):
            yield packet
            if packet.pts is not None and not packet.is_discard:
                break
        with contextlib.suppress(FFmpegError, OSError):  # then it is read on
            self.container.seek((stream.start_time or 0) + (stream.duration or 0) - math.ceil(_END_S / stream.time_base), stream=stream)
        packet = None
        for packet in self._full([stream]):
            yield packet
        if packet is None:
            yield from self._full([self.rewind(number).streams[number]])

    def _full(self, streams: list[Any]) -> Iterator[Any]:
        return (packet for packet in self.demuxed(streams) if packet.size or packet.dts is not None)

    def only(self, streams: list[Any]) -> None:
        """Let the container pass over the packets of other streams, which otherwise are read for nothing, where a file has a list of
        its packets; in others a jump would end elsewhere."""
        wanted = {stream.index for stream in streams}
        for stream in self.container.streams if self.format == "mov" else ():
            stream.discard = Discard.default if stream.index in wanted else Discard.all

    def rewind(self, number: int | None = None, *, reopen: bool = True) -> Any:
        """The container, at its beginning, to read packets from. Who asks for pictures next begins anew.

        `number`: of the one stream whose packets are wanted, not to be decoded. Without `reopen` it is where it is, for a jump.
        """
        if reopen and (number is None or not self._at_start(number)):
            self._open()
        self._last = math.inf
        self._pending: tuple[float, Any] | None = None
        return self.container

    @property
    def stream_s(self) -> float | None:
        """How long the header says that the pictures are, in seconds; None if it does not tell."""
        known = self.stream.duration is not None and self.stream.time_base is not None
        return float(self.stream.duration * self.stream.time_base) if known else None

    @property
    def declared_s(self) -> float | None:
        """How long the header says that it is, in seconds; None if it does not tell."""
        if self.stream_s is not None:
            return self.stream_s
        if self.container.duration is None:
            return None
        before = self.first_s if self.format == "matroska" else 0.0  # that counts from 0
        return max(0.0, self.container.duration / av.time_base - before)

    @property
    def is_webm(self) -> bool:
        """Whether a Matroska file says that it is WebM."""
        place = self._file.tell()
        self._file.seek(0)
        head = self._file.read(64)
        self._file.seek(place)
        return b"webm" in head

    # -- opening -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._open()
        self.rate: Fraction = self.stream.average_rate or self.stream.guessed_rate or Fraction(25)
        self.by_count, self.origin, self._count = False, 0, 0
        raw = self._decoded()
        _, first = next(raw, (None, None))
        if first is None:
            raise BadFilm(f"no_frames: not one picture of the {self.format} can be decoded")
        if first.width * first.height > self._max_pixels:
            raise BadFilm(f"too_large: pictures of {first.width} x {first.height}, more than {self._max_pixels:,} pixels")
        self.by_count = first.pts is None or (self.format == "avi" and self.stream.has_b_frames)
        base = self.stream.time_base or Fraction(1, 1_000_000)
        self._num, self._den = base.numerator, base.denominator
        self.origin = first.pts
        self.first_s = 0.0 if self.by_count else first.pts * self._num / self._den
        self.mirrored, self.rotation = matrix_of(first)
        sar = self.stream.codec_context.sample_aspect_ratio or self.stream.sample_aspect_ratio or Fraction(1)
        sar = sar if Fraction(1, 10) < sar < 10 else Fraction(1)
        self.first, self.coded = first, (first.width, first.height)
        self.sar = sar
        shown = (round(first.width * sar), first.height)
        self.width, self.height = shown if self.rotation % 180 == 0 else shown[::-1]
        self._pixels = Pixels(self.rotation, self.mirrored, VideoReformatter())
        self._restart(_chained(first, raw))

    def _open(self) -> None:
        """The container from its beginning."""
        if self.container is not None:
            self.container.close()
        try:
            self._file.seek(0)
            self.container = av.open(self._file, metadata_errors="replace", buffer_size=_BUFFER, options={
                "format_whitelist": CONTAINERS, "protocol_whitelist": "pipe", "max_streams": str(MAX_STREAMS)})
        except (FFmpegError, ValueError, OSError, IndexError) as error:
            raise BadFilm(f"not_media: no known format, or broken from the start ({_words(error)})") from error
        self.format: str = self.container.format.name.partition(",")[0]
        self.stream = self._chosen()
        self.stream.codec_context.thread_type = "NONE"  # the engine runs a worker on each core, and threads cost more in all
        self.stream.codec_context.thread_count = 1
        codec, size = self.stream.codec_context, _pixels(self.stream)
        smaller = self._longest is not None and max(codec.width, codec.height) >= _LARGER * self._longest
        codec.options = {"max_pixels": str(self._max_pixels), **({"flags2": "+export_mvs"} if self._vectors else {}),
                         **({"skip_loop_filter": "noref"} if smaller else {})}
        codec.skip_frame = self._skip_frame
        try:
            codec.open(strict=False)
        except (FFmpegError, ValueError) as error:
            if size > self._max_pixels:
                raise BadFilm(f"too_large: {size:,} pixels, more than {self._max_pixels:,}") from error
            raise BadFilm(f"no_decoder: for {self.stream.codec_context.name} ({_words(error)})") from error

    def _at_start(self, number: int) -> bool:
        """Jump to the beginning of a stream, where a file has a list of its packets, so that this is certain: opening it reads that list
        anew. Others then begin where this one does, not where they do."""
        if self.format != "mov":
            return False
        stream = self.container.streams[number]
        try:
            self.container.seek((stream.start_time or 0) - math.ceil(_EARLY_S / stream.time_base), stream=stream)
        except (FFmpegError, OSError):
            return False
        return True

    def _chosen(self) -> Any:
        """The largest video stream that is no attached picture: not the one that is marked as default."""
        streams = [one for one in self.container.streams.video if not one.disposition & Disposition.attached_pic]
        if not streams:
            has = "a picture is attached to the sound" if self.container.streams.video else \
                "sound only" if self.container.streams.audio else "the header is damaged, or names no stream"
            raise BadFilm(f"no_video: {has} ({self.format})")
        usable = [one for one in streams if one.codec_context is not None]
        if not usable:
            raise BadFilm(f"no_decoder: for the pictures of this {self.format}")
        return max(usable, key=_pixels)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _in_reach(self, start: float) -> bool:
        """Whether decoding on gives all pictures from `start` on, sooner than a jump."""
        if self._last >= start:
            return False
        indexed = self.format in _INDEXED and not self.by_count
        return self._pending is None or not indexed or self._pending[0] >= start - self._near_s

    def _go_to(self, start: float) -> None:
        """Pending is then a picture at `start` or before, unless that is before the first."""
        if self.by_count or self.format in _UNSURE:
            self._from_beginning()
            return
        for back in _BACK_S:
            wanted = start - back + self.first_s
            if wanted <= self.first_s:
                break
            try:
                self.container.seek(math.floor(wanted * self._den / self._num), stream=self.stream)
            except (FFmpegError, OSError):
                break
            self._restart(self._decoded(jumped=True))
            if self._pending is not None and self._pending[0] <= start + 2 * EPSILON_S and _stands_alone(self._pending[1]):
                self._last = self._pending[0] - 2 * EPSILON_S
                return
        self._from_beginning()

    def _from_beginning(self) -> None:
        self._open()
        self._count = 0
        self._restart(self._decoded())

    def _restart(self, pictures: Iterator[tuple[int | None, Any]]) -> None:
        self._last = -math.inf  # the latest picture that was passed; all after it are still to come
        self._flow = self._ordered(pictures)
        self._pending = next(self._flow, None)

    def _advance(self) -> None:
        assert self._pending is not None
        self._last = self._pending[0]
        self._pending = next(self._flow, None)

    def _ordered(self, pictures: Iterator[tuple[int | None, Any]]) -> Iterator[tuple[float, Any]]:
        """Pictures with times from the first, each after the one before."""
        last, held = -math.inf, None
        for pts, frame in pictures:
            if self.by_count:
                time = self._count * self.rate.denominator / self.rate.numerator
                self._count += 1
            elif pts is None:
                self.backward += 1
                continue
            else:
                time = (pts - self.origin) * self._num / self._den
            if held is not None:
                if last < time < held[0]:
                    self.backward += 1
                else:
                    last = held[0]
                    yield held
                held = None
            if time <= last:
                self.backward += 1
            elif time > last + _JUMP_S and last >= 0:
                held = (time, frame)
            else:
                last = time
                yield time, frame
        if held is not None:
            yield held

    def _decoded(self, jumped: bool = False) -> Iterator[tuple[int | None, Any]]:
        """Pictures with their pts as the decoder gives them out. After a jump nothing before a keyframe is decoded."""
        silent = 0
        for packet in self.demuxed([self.stream]):
            if jumped and (packet.size or packet.dts is not None):  # else it flushes the decoder
                if not packet.is_keyframe:
                    continue
                jumped = False
            found = self._tried(packet)
            for frame in found:
                yield frame.pts, frame
            silent = 0 if found else silent + 1
            if silent > _STILL:
                return

    def demuxed(self, streams: list[Any]) -> Iterator[Any]:
        """Packets, and at the end one without content for each stream, which flushes its decoder."""
        failures = 0
        self.only(streams)
        packets = self.container.demux(*streams)
        while True:
            try:
                packet = next(packets, None)
            except (FFmpegError, OSError, ValueError, IndexError):  # PyAV does not know streams that come later
                failures += 1
                self.corrupt += 1
                if failures > _PATIENCE:
                    break
                packets = self.container.demux(*streams)
                continue
            if packet is None:
                break
            if packet.size:
                failures = 0
            yield packet
        self.truncated |= failures > 0

    def _tried(self, packet: Any) -> list[Any]:
        try:
            frames = packet.decode()
        except EOFError:
            return []
        except (FFmpegError, ValueError):
            self.corrupt += 1
            return []
        for frame in frames:
            self.corrupt += frame.is_corrupt
        return frames


def _opened(source: str | bytes, storage_options: dict[str, Any] | None) -> BinaryIO:
    try:
        file = open_input(source, storage_options, compression=None) if isinstance(source, str) else io.BytesIO(source)
        if file.read(1):
            return file
        file.close()
    except (InputError, OSError) as error:
        raise BadFilm(f"unreadable: {error}") from error
    raise BadFilm("empty: it has no bytes")


def _pixels(stream: Any) -> int:
    return (stream.codec_context.width or 0) * (stream.codec_context.height or 0)


def _chained(first: Any, rest: Iterator[tuple[int | None, Any]]) -> Iterator[tuple[int | None, Any]]:
    yield first.pts, first
    yield from rest


def _stands_alone(frame: Any) -> bool:
    """Whether a picture, the first after a jump, needs none before it. In H.264 that is refreshed little by little each round of that
    is marked as a keyframe, and begins with a picture of which most is missing."""
    return frame.key_frame or frame.pict_type not in (PictureType.P, PictureType.B)


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
