"""Sound by FFmpeg: mp3, m4a, what else there is, and the sound of video files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import av
import numpy as np
from av.error import FFmpegError

from curator_audio.read.sound import BLOCK, About, BadSound

# Containers that know themselves by their first bytes and lead to no other file. Without such a list a playlist would make FFmpeg
# open what it names, and a web page pass for AMR.
_CONTAINERS = ("aac,ac3,aiff,amr,ape,asf,au,avi,caf,dts,eac3,flac,flv,m4a,matroska,mov,mp3,mp4,mpc,mpc8,mpeg,mpegts,mxf,nut,ogg,rm,"
               "shn,tak,tta,voc,w64,wav,webm,wv,3gp,3g2,mj2")
_NAMES = {"matroska,webm": "mkv", "mpegts": "ts", "asf": "wma", "rm": "rm"}
_TELLS_LENGTH = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flac", "wav", "aiff", "caf", "au", "w64", "ape", "tta", "wv")
_SEEKS_EXACTLY = ("mp3", "mov,mp4,m4a,3gp,3g2,mj2", "flac")
_MOST_PLANES = 8  # of a frame with a plane a channel PyAV counts more than there are, beyond 8, and reads where nothing is
_PRE_ROLL_S = 0.5  # MP3 borrows bits of frames before (up to 511 bytes), AAC overlaps with the one before
_SHORT_S = 0.1  # a file may lack so much of what it says: frames are 10 to 60 ms long
_SCALES = {"u8": (128, 128.0), "s16": (0, 32768.0), "s32": (0, 2.0**31), "s64": (0, 2.0**63), "flt": (0, 1.0), "dbl": (0, 1.0)}
_LOSSLESS = ("flac", "alac", "ape", "tta", "wavpack", "tak", "shorten")


class AvSound:
    """A file that FFmpeg opens. `known`: what is known to be wrong with it."""

    _container: Any = None

    def __init__(self, file: BinaryIO, audio_stream: int, known: Sequence[str] = ()) -> None:
        self._file, self._number, self._known = file, audio_stream, known
        self.notes: list[str] = []
        self._open()
        stream, container = self._stream, self._container
        context = stream.codec_context
        declared = self._declared()
        self.about = About(format=self._format(), codec=context.codec.canonical_name, bits=_bits(context),
                           rate=context.sample_rate or 0, channels=context.channels or 0, declared_s=declared,
                           expected_s=declared)
        name = container.format.name
        self._end = round(float(stream.duration * stream.time_base) * self.about.rate) \
            if name.startswith("mov") and stream.duration else None  # what AAC adds behind it is padding
        self._seeks = name in _SEEKS_EXACTLY and (1 / stream.time_base) % self.about.rate == 0
        self._decoded = 0
        self._fresh = True

    def blocks(self, start: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        self.notes = list(self._known)
        first = start - round(_PRE_ROLL_S * self.about.rate)
        if first > 0 and self._seeks:
            position = self._seek(first)
            if position is not None and position <= start:
                yield from self._cut(self._gathered(self._pending), start - position, self._left(start, count))
                return
        yield from self.from_beginning(start, count)

    def from_beginning(self, start: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        """The same, exact in any container: all before `start` is decoded and let go."""
        if not self._fresh:
            self._open()
        self._fresh, self._decoded = False, 0
        yield from self._cut(self._gathered(self._frames()), start, self._left(start, count))
        if count is None and not self.notes and self.short_of(self.about.declared_s):
            self.notes.append("truncated")

    def short_of(self, seconds: float | None) -> bool:
        """Whether less was decoded than this, by more than what codecs round."""
        return seconds is not None and self._decoded / self.about.rate < seconds - max(_SHORT_S, 0.001 * seconds)

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None

    # -- opening ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.close()
        self._file.seek(0)
        try:
            self._container = av.open(self._file, metadata_errors="replace",
                                      options={"format_whitelist": _CONTAINERS, "protocol_whitelist": "pipe"})
            streams = self._container.streams.audio
        except (FFmpegError, ValueError, OSError) as error:
            raise BadSound(f"not audio: no known format, or broken from the start ({_words(error)})") from error
        if not streams:
            raise BadSound("no sound: the file has no audio stream")
        if self._number >= len(streams):
            raise BadSound(f"no such audio stream: {self._number}, the file has {len(streams)}, which count from 0")
        self._stream = streams[self._number]
        if self._stream.codec_context is None:
            raise BadSound(f"no decoder for the sound of this {self._container.format.name.partition(',')[0]}")
        self._stream.codec_context.thread_count = 1  # the engine runs a worker on each core
        self._fresh = True

    def _format(self) -> str:
        name = self._container.format.name
        if name.startswith("mov"):
            return "mp4" if self._container.streams.video else "m4a"
        if name == "matroska,webm" and b"webm" in self._beginning(64):
            return "webm"
        return _NAMES.get(name, name)

    def _declared(self) -> float | None:
        name, stream = self._container.format.name, self._stream
        if name not in _TELLS_LENGTH and not (name == "mp3" and self._has_index()):
            return None  # what FFmpeg says is a guess by bit rate and size
        if stream.duration is not None:
            return float(stream.duration * stream.time_base)
        return None if self._container.duration is None else self._container.duration / av.time_base

    def _has_index(self) -> bool:
        """Whether an MP3 has a frame that says how many there are: Xing, Info or VBRI."""
        head = self._beginning(10)
        begin = 0
        if head.startswith(b"ID3") and len(head) == 10:
            begin = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
        found = self._beginning(4096, begin)
        return any(mark in found for mark in (b"Xing", b"Info", b"VBRI"))

    def _beginning(self, size: int, start: int = 0) -> bytes:
        place = self._file.tell()
        self._file.seek(start)
        found = self._file.read(size)
        self._file.seek(place)
        return found

    # -- reading ----------------------------------------------------------------------------------------------------

    def _frames(self) -> Iterator[Any]:
        """Decoded frames; a packet that cannot be decoded is passed over, and noted."""
        failed = False
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except (FFmpegError, IndexError):  # PyAV does not know of streams that come later
                failed = True
                break
            if packet is None:
                break
            try:
                frames = packet.decode()
            except (FFmpegError, ValueError) as error:
                failed = failed or not isinstance(error, EOFError)
                continue
            for frame in frames:
                if frame.sample_rate != self.about.rate or frame.layout.nb_channels != self.about.channels:
                    self.notes.append("format_changes")
                    return
                if failed and "damaged" not in self.notes:
                    self.notes.append("damaged")
                failed = False
                self._decoded += frame.samples
                yield frame
        if failed:
            self.notes.append("truncated")

    def _seek(self, first: int) -> int | None:
        """The sample that the next frame begins with, after a jump to the one that holds sample `first`; None if nobody knows."""
        self._fresh = False
        stream = self._stream
        origin = stream.start_time or 0
        try:
            self._container.seek(origin + int(first / self.about.rate / stream.time_base), stream=stream)
        except FFmpegError:
            return None
        frames = self._frames()
        frame = next(frames, None)
        if frame is None or frame.pts is None:
            return None
        self._pending = _chained(frame, frames)
        return round((frame.pts - origin) * stream.time_base * self.about.rate)

    def _left(self, start: int, count: int | None) -> int | None:
        """How many samples to give: `count`, and no padding."""
        end = None if self._end is None else max(0, self._end - start)
        return end if count is None else count if end is None else min(count, end)

    def _gathered(self, frames: Iterator[Any]) -> Iterator[np.ndarray]:
        """Blocks of many frames."""
        waiting: list[np.ndarray] = []
        size = 0
        for frame in frames:
            waiting.append(_as_float(frame))
            size += waiting[-1].size
            if size >= BLOCK:
                yield np.concatenate(waiting, axis=1)
                waiting, size = [], 0
        if waiting:
            yield np.concatenate(waiting, axis=1)

    @staticmethod
    def _cut(blocks: Iterator[np.ndarray], skip: int, count: int | None) -> Iterator[np.ndarray]:
        """Without the first `skip` samples, and no more than `count`."""
        for block in blocks:
            if skip:
                dropped = min(skip, block.shape[1])
                skip, block = skip - dropped, block[:, dropped:]
            if count is not None:
                block = block[:, :count]
                count -= block.shape[1]
            if block.shape[1]:
                yield block
            if count == 0:
                return


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _as_float(frame: Any) -> np.ndarray:
    """The samples of a frame, float32 [channels, n], full scale at 1; maybe the decoder's own memory."""
    kind, channels = frame.format.name, frame.layout.nb_channels
    if channels > _MOST_PLANES and kind.endswith("p"):
        raise BadSound(f"too many channels: {channels} (of this kind at most {_MOST_PLANES} are read)")
    if channels == 1 and kind in ("fltp", "flt"):
        return np.frombuffer(frame.planes[0], np.float32, frame.samples)[None]
    values = frame.to_ndarray()
    if not kind.endswith("p"):
        values = values.reshape(-1, channels).T
    if values.dtype == np.float32:
        return values
    offset, scale = _SCALES[kind.rstrip("p")]
    wide = values.astype(np.float64) if values.dtype.itemsize > 2 else values.astype(np.float32)
    return ((wide - offset) / scale).astype(np.float32)


def _bits(context: Any) -> int | None:
    name = context.codec.canonical_name
    if name.startswith("pcm_"):
        digits = "".join(c for c in name if c.isdigit())
        return int(digits) if digits else 8
    known = name in _LOSSLESS and context.format is not None and context.format.name.startswith("s16")
    return 16 if known else None


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
