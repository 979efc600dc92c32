"""Small films made by numpy and PyAV, whose frames carry their number."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pyarrow as pa

from curator.api.tasks import Batch

BLOCKS = 16  # bits of the number that is drawn into a picture


def texture(seed: int, height: int = 240, width: int = 320) -> np.ndarray:
    """A picture with detail at every scale, uint8 RGB; the same for the same seed."""
    import cv2

    rng = np.random.default_rng(seed)
    total = np.zeros((height, width), np.float64)
    for octave in (8, 16, 32, 64, 128):
        grid = rng.uniform(-1, 1, (height // octave + 2, width // octave + 2))
        total += np.sqrt(octave) * cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC)
    total = (total - total.mean()) / total.std()
    grey = rng.uniform(70, 170) + 40 * total
    return np.clip(grey[..., None] * rng.uniform(0.75, 1.25, 3), 0, 255).astype(np.uint8)


def pan(seed: int, count: int, step: float, height: int = 240, width: int = 320) -> list[np.ndarray]:
    """Windows of a texture that go `step` pixels to the right a frame."""
    wide = texture(seed, height, width + round(abs(step) * count) + 8)
    return [np.ascontiguousarray(wide[:, (x := round(step * k)):x + width]) for k in range(count)]


def moving(seed: int, seconds: float, height: int = 288, width: int = 384) -> list[np.ndarray]:
    """A pan over a picture of its own, of hard-edged blocks: sharp everywhere. 25 pictures a second."""
    count = round(seconds * 25)
    blocks = np.random.default_rng(seed).integers(30, 220, (height // 8, (width + 2 * count) // 8 + 1, 3), np.uint8)
    wide = blocks.repeat(8, axis=0).repeat(8, axis=1)
    return [np.ascontiguousarray(wide[:, 2 * k:2 * k + width]) for k in range(count)]


def numbered(count: int, height: int = 120, width: int = 160, first: int = 0) -> Iterator[np.ndarray]:
    """Pictures that say which one they are: `number_of` reads it."""
    ground = texture(1, height, width) // 4 + 96
    for k in range(first, first + count):
        picture = ground.copy()
        bits = [255 if k >> bit & 1 else 0 for bit in range(BLOCKS)]
        picture[: height // 4] = np.repeat(np.array(bits, np.uint8), width // BLOCKS)[None, :, None]
        yield picture


def number_of(picture: np.ndarray) -> int:
    """The number drawn into a picture, RGB or grey, of any size."""
    row = np.atleast_3d(picture)[: max(1, picture.shape[0] // 5)].mean(axis=(0, 2))
    return sum(1 << bit for bit, part in enumerate(np.array_split(row, BLOCKS)) if part.mean() > 127)


def film(pictures: Iterable[np.ndarray], fps: int | Fraction = 25, *, codec: str = "libx264", container: str = "mp4",
         options: Mapping[str, str] | None = None, container_options: Mapping[str, str] | None = None,
         pix_fmt: str = "yuv420p", pts: Sequence[int] | None = None, time_base: Fraction | None = None,
         sound: np.ndarray | None = None, sound_rate: int = 16_000, sound_codec: str = "aac",
         sound_from: float = 0.0, rotate: int = 0,
         mirrored: bool = False, sar: Fraction | None = None, colours: tuple[int, int, int] | None = None) -> bytes:
    """The bytes of a film. `pts`: of each picture, in `time_base` (one frame by default). `rotate`: degrees that a
    player is to turn it clockwise. `sound`: float32 [channels, n]. `colours`: primaries, transfer, matrix."""
    place = tempfile.NamedTemporaryFile()  # noqa: SIM115  `faststart` reads what it has written, by its name
    pictures = iter(pictures)
    picture = next(pictures)
    with av.open(place.name, "w", format=container, container_options=dict(container_options or {})) as out:
        stream: Any = out.add_stream(codec, rate=fps, options=dict(options or _defaults(codec)))
        stream.width, stream.height, stream.pix_fmt = picture.shape[1], picture.shape[0], pix_fmt
        stream.codec_context.time_base = time_base or 1 / Fraction(fps)
        stream.codec_context.thread_count = 1
        if sar is not None:
            stream.codec_context.sample_aspect_ratio = sar
        if colours is not None:
            context = stream.codec_context
            context.color_primaries, context.color_trc, context.colorspace = colours
        if rotate or mirrored:
            stream.set_display_rotation(-rotate if not mirrored else rotate, hflip=mirrored)
        voice = None if sound is None else out.add_stream(sound_codec, rate=sound_rate, layout="mono" if len(sound) == 1 else "stereo")
        if voice is not None:
            _mux_sound(out, voice, sound, sound_rate, sound_from)
        number = 0
        while picture is not None:
            frame = _framed(picture, pix_fmt, colours)
            frame.pts = number if pts is None else pts[number]
            frame.time_base = stream.codec_context.time_base
            out.mux(stream.encode(frame))
            number, picture = number + 1, next(pictures, None)
        out.mux(stream.encode(None))
    with place:
        return place.read()


def _framed(picture: np.ndarray, pix_fmt: str, colours: tuple[int, int, int] | None) -> av.VideoFrame:
    """uint16 pictures are RGB of the colours that are named."""
    if picture.dtype != np.uint16:
        return av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24" if picture.ndim == 3 else "gray")
    deep = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb48le")
    return deep.reformat(format=pix_fmt, dst_colorspace=colours[2] if colours else None)


def sine(hertz: float, seconds: float, rate: int = 16_000, level: float = 0.5) -> np.ndarray:
    """float32 [1, n]."""
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)[None]


def sound_only(container: str = "wav", codec: str = "pcm_s16le", seconds: float = 1.0, picture: np.ndarray | None = None) -> bytes:
    """A file with sound, and perhaps a cover, which is no film."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        voice = out.add_stream(codec, rate=16_000, layout="mono")
        cover: Any = None
        if picture is not None:
            cover = out.add_stream("mjpeg", rate=1)
            cover.width, cover.height, cover.pix_fmt = picture.shape[1], picture.shape[0], "yuvj420p"
            cover.disposition = av.stream.Disposition.attached_pic
        _mux_sound(out, voice, sine(440, seconds), 16_000)
        if cover is not None:
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuvj420p")
            out.mux(cover.encode(frame))
            out.mux(cover.encode(None))
    return file.getvalue()


def _mux_sound(out: Any, voice: Any, sound: np.ndarray, rate: int, begin: float = 0.0) -> None:
    layout = "mono" if len(sound) == 1 else "stereo"
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound, np.float32), "fltp", layout)
    frame.sample_rate, frame.pts, frame.time_base = rate, round(begin * rate), Fraction(1, rate)
    resampler = av.AudioResampler(voice.codec_context.format, voice.codec_context.layout, rate,
                                  frame_size=voice.codec_context.frame_size or None)
    for piece in [*resampler.resample(frame), *resampler.resample(None)]:
        out.mux(voice.encode(piece))
    out.mux(voice.encode(None))


def _defaults(codec: str) -> dict[str, str]:
    return {"crf": "20", "preset": "veryfast"} if codec in ("libx264", "libx265") else {}


def films(*contents: bytes | None, **columns: Any) -> Batch:
    """Records 0, 1, … whose `bytes` these are."""
    ids = pa.array([str(number) for number in range(len(contents))], pa.string())
    return Batch(rows=pa.table({"id": ids, "source": ids, "bytes": pa.array(contents, pa.binary()), **columns}))
