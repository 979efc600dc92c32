"""The sound of a film, from any time on, in step with its pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.error import FFmpegError

from curator_video.read.film import BadFilm, Film

_PRE_ROLL_S = 0.5  # what codecs need before the place: overlap of AAC, the bit reservoir of MP3, what Opus has learned
_STEP_S = 0.02  # so far the times of packets may be beside what was decoded: rounding of containers. More is a gap
_GAP_S = 600.0  # a longer gap is no gap, but a broken time
_BLOCK = 1 << 17  # samples of all channels in one block, about
_MOST_PLANES = 8  # of a frame with a plane a channel PyAV reads no more
_SCALES = {"u8": (128, 128.0), "s16": (0, 32768.0), "s32": (0, 2.0**31), "s64": (0, 2.0**63), "flt": (0, 1.0), "dbl": (0, 1.0)}


class Sound:
    """One audio stream of an open film.

    `rate`, `channels`, `codec`: of the stream. `offset_s`: seconds from the first picture to the first sound, by the header.
    `notes`: what was found wrong while reading: `damaged`, `gaps` (filled with silence), `format_changes` (what follows is
    left out).

    Raises:
        BadFilm: there is no decoder for it.
    """

    def __init__(self, film: Film, number: int) -> None:
        self._film, self._number = film, number
        self.notes: list[str] = []
        stream = film.container.streams.audio[number]
        context = stream.codec_context
        if context is None or not context.sample_rate or not context.channels:
            raise BadFilm("no_decoder: for the sound")
        self.rate, self.channels, self.codec = context.sample_rate, context.channels, context.codec.canonical_name
        self.declared_s = None if stream.duration is None else float(stream.duration * stream.time_base)
        known = stream.start_time is not None and not film.by_count
        self.offset_s = float(stream.start_time * stream.time_base) - film.first_s if known else None

    def blocks(self, begin: float, end: float | None) -> Iterator[np.ndarray]:
        """Samples from `begin` to `end`, seconds from the first picture: float32 [channels, n], without a gap, the first at
        `begin`. They end where the sound does, if that is before `end`."""
        held: list[np.ndarray] = []
        size = 0
        for piece in self._pieces(begin, end):
            held.append(piece)
            size += piece.size
            if size >= _BLOCK:
                yield np.concatenate(held, axis=1)
                held, size = [], 0
        if held:
            yield np.concatenate(held, axis=1)

    def _pieces(self, begin: float, end: float | None) -> Iterator[np.ndarray]:
        """The same as they are decoded."""
        given = round(begin * self.rate)  # the next sample to give
        stop = math.inf if end is None else given + round((end - begin) * self.rate)
        at: int | None = None  # of the next sample that is decoded
        for position, block in self._from(begin):
            if at is None:
                broken = end is None and position is not None and position - given > _GAP_S * self.rate
                at = given if broken else position or 0
            elif position is not None and _STEP_S * self.rate < abs(position - at) < _GAP_S * self.rate:
                self._note("gaps")
                at = position
            piece = block[:, max(0, given - at):int(max(0, min(block.shape[1], stop - at)))]
            if piece.shape[1]:
                while at > given:
                    silence = np.zeros((len(block), min(at - given, _BLOCK)), np.float32)
                    yield silence
                    given += silence.shape[1]
                yield piece
                given += piece.shape[1]
            at += block.shape[1]
            if at >= stop:
                return

    def _from(self, begin: float) -> Iterator[tuple[int | None, np.ndarray]]:
        """Decoded sound with its place, in samples from the first picture, from `begin` on or before."""
        wanted = begin - _PRE_ROLL_S
        if wanted > 0 and not self._film.by_count:
            used = self._film.container.streams.audio[self._number].codec_context.is_open  # a decoder has not forgotten all
            container = self._film.rewind(reopen=used)
            stream = container.streams.audio[self._number]
            try:
                container.seek(math.floor((wanted + self._film.first_s) / stream.time_base), stream=stream)
            except (FFmpegError, OSError):
                pass
            else:
                found = self._decoded()
                first = next(found, None)
                if first is not None and first[0] is not None and first[0] <= begin * self.rate:
                    yield first
                    yield from found
                    return
        self._film.rewind()
        yield from self._decoded()

    def _decoded(self) -> Iterator[tuple[int | None, np.ndarray]]:
        stream = self._film.container.streams.audio[self._number]
        stream.codec_context.thread_count = 1
        for packet in self._film.demuxed([stream]):
            try:
                frames = packet.decode()
            except EOFError:
                continue
            except (FFmpegError, ValueError):
                self._note("damaged")
                continue
            for frame in frames:
                if (frame.sample_rate, len(frame.layout.channels)) != (self.rate, self.channels):
                    self._note("format_changes")
                    return
                yield self._place(frame), _as_float(frame)

    def _place(self, frame: Any) -> int | None:
        if frame.pts is None or frame.time_base is None:
            return None
        return round((float(frame.pts * frame.time_base) - self._film.first_s) * self.rate)

    def _note(self, what: str) -> None:
        if what not in self.notes:
            self.notes.append(what)


class Resampled:
    """Blocks at another rate. One libswresample a channel, so that any number of channels will do."""

    def __init__(self, blocks: Iterator[np.ndarray], rate: int, wanted: int) -> None:
        self._blocks, self._rate, self._wanted = blocks, rate, wanted

    def __iter__(self) -> Iterator[np.ndarray]:
        made: list[av.AudioResampler] = []
        at = 0
        for block in self._blocks:
            made = made or [av.AudioResampler("fltp", "mono", self._wanted) for _ in block]
            found = [self._changed(one, channel, at) for one, channel in zip(made, block, strict=True)]
            at += block.shape[1]
            if found[0].size:
                yield np.stack(found)
        if made:
            rest = np.stack([_joined(one.resample(None)) for one in made])
            if rest.size:
                yield rest

    def _changed(self, resampler: av.AudioResampler, channel: np.ndarray, at: int) -> np.ndarray:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(channel)[None], "fltp", "mono")
        frame.sample_rate, frame.pts, frame.time_base = self._rate, at, Fraction(1, self._rate)
        return _joined(resampler.resample(frame))


def _joined(frames: list[Any]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.float32), *(frame.to_ndarray()[0] for frame in frames)])


def _as_float(frame: Any) -> np.ndarray:
    """The samples of a frame, float32 [channels, n], full scale at 1."""
    name, channels = frame.format.name, len(frame.layout.channels)
    if frame.format.is_planar and channels > _MOST_PLANES:
        raise BadFilm(f"too_many_channels: {channels}, and of this kind at most {_MOST_PLANES} are read")
    offset, scale = _SCALES[name.rstrip("p")]
    values = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    if values.dtype == np.float32:
        return values
    wide = values.astype(np.float64) if values.dtype.itemsize > 2 else values.astype(np.float32)
    return ((wide - offset) / scale).astype(np.float32)
