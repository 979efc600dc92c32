"""Pictures of recordings."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Contract, Stage
from curator.api.tasks import AudioBatch

PAPER, SPEECH, MIDDLE, PEAKS, POWER, CLIPPED, LEVEL, TICKS = range(8)
COLOURS = ((255, 255, 255), (218, 240, 220), (208, 212, 218), (150, 185, 225), (45, 100, 175), (215, 45, 40), (235, 130, 20),
           (120, 125, 132))
DRAWN = 2                      # channels that are drawn
LOWEST_DB = 60                 # of the level's line: the lower edge
LEVEL_S = 0.05                 # on which it rests at least
AT_ONCE = 16                   # columns, so that a long recording needs no second copy
TICKS_S = (0.1, 0.5, 1, 5, 10, 60, 300, 1800)


@dataclass(kw_only=True)
class Waveform(Stage):
    """Draw each recording as a small PNG, to look at beside its row.

    Adds `waveform` (binary, a PNG file; null where there are no samples). The first two channels lie one above the other, full
    scale from edge to edge: light blue from the lowest to the highest sample, dark blue the root mean square, red where samples
    reach full scale. The orange line is the level of 50 ms, or of what a column holds if that is more, from -60 dBFS at the
    lower edge of its channel to 0 at the upper one. Ticks below stand every 0.1, 0.5, 1, 5, 10, 60, … seconds, 15 at most.

    `width`, `height`: pixels. `speech`: a column of spans in seconds, as `audio.vad` makes it, to show in green; by default none.
    `column`: where it goes.
    """

    width: int = 480
    height: int = 96
    speech: str | None = None
    column: str = "waveform"

    def __post_init__(self) -> None:
        for name, least in (("width", 16), ("height", 16)):
            if not least <= getattr(self, name) <= 4096:
                raise ValueError(f"{name} is {least} to 4096 pixels, got {getattr(self, name)}")

    def contract(self) -> Contract:
        needs: dict[str, pa.DataType | None] = {"samples": None, "sample_rate": pa.int32()}
        return Contract(needs=needs | ({self.speech: None} if self.speech else {}), adds={self.column: pa.binary()})

    def example_columns(self) -> dict[str, Shown]:
        return {self.column: "image"}

    def process(self, batch: AudioBatch) -> AudioBatch:
        spans = batch.column(self.speech) if self.speech else [None] * len(batch)
        rows = zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), spans, strict=True)
        drawn = [None if samples is None or not samples.size or not rate or rate < 1
                 else png(draw(samples, samples.shape[1] / rate, (self.width, self.height), speech)) for samples, rate, speech in rows]
        return batch.with_columns({self.column: pa.array(drawn, pa.binary())})


def draw(samples: np.ndarray, seconds: float, size: tuple[int, int], speech: list[dict[str, float]] | None = None) -> np.ndarray:
    """Numbers of colours, height x width."""
    width, height = size
    picture = np.full((height, width), PAPER, np.uint8)
    for span in speech or ():
        first, last = (min(width, max(0, round(span[end] / seconds * width))) for end in ("start", "end"))
        picture[:, min(first, width - 1) : max(last, first + 1)] = SPEECH
    strips = np.array_split(picture[: height - 4], min(DRAWN, len(samples)))
    for channel, strip in zip(samples, strips, strict=False):
        _draw_channel(channel, strip, around=round(LEVEL_S / seconds * width))
    step = next((step for step in TICKS_S if seconds / step <= 15), seconds)
    ticks = (np.arange(0, seconds, step) / seconds * width).astype(int)
    picture[height - 3 :, ticks] = TICKS
    return picture


def _draw_channel(channel: np.ndarray, strip: np.ndarray, around: int) -> None:
    """Into the strip: the middle, peaks and power of the samples that fall on each column, and their level over `around` columns."""
    height, width = strip.shape
    low, high, square = _columns(channel, width)
    rows = np.arange(height)[:, None]
    strip[(height - 1) // 2] = MIDDLE
    power = np.sqrt(square)
    for top, bottom, colour in ((high, low, PEAKS), (power, -power, POWER)):
        upper, lower = (np.round((1 - np.clip(edge, -1, 1)) / 2 * (height - 1)) for edge in (top, bottom))
        strip[(rows >= upper) & (rows <= lower) & (top > bottom + 2 / height)] = colour
    strip[(rows < height // 8) & (np.maximum(high, -low) >= 1 - 2**-15)] = CLIPPED
    around = min(max(1, around), width)
    near = np.convolve(np.pad(square, (around // 2, around - 1 - around // 2), mode="edge"), np.full(around, 1 / around), "valid")
    decibels = 10 * np.log10(np.clip(near, 10 ** (-LOWEST_DB / 10), 1))
    line = np.round(-decibels / LOWEST_DB * (height - 1))
    before = np.concatenate([line[:1], line[:-1]])  # from where it comes, so that no step leaves a hole
    strip[(rows >= np.minimum(line, before)) & (rows <= np.maximum(line, before))] = LEVEL


def _columns(channel: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest, highest and mean square of the samples of each column; a column without one has that where it begins."""
    edges = np.arange(width + 1) * len(channel) // width
    found = np.empty((3, width))
    for first in range(0, width, AT_ONCE):
        starts = edges[first : first + AT_ONCE + 1]
        piece = channel[starts[0] : max(starts[-1], starts[-2] + 1)]
        at, counts = starts[:-1] - starts[0], np.maximum(1, np.diff(starts))
        found[:, first : first + AT_ONCE] = (np.minimum.reduceat(piece, at), np.maximum.reduceat(piece, at),
                                             np.add.reduceat(np.square(piece), at) / counts)
    return found[0], found[1], found[2]


def png(picture: np.ndarray) -> bytes:
    """A PNG file of numbers of colours."""
    height, width = picture.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
    lines[:, 1:] = picture
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), (b"PLTE", bytes(sum(COLOURS, ()))),
             (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
