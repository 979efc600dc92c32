"""What is known of a file with sound, what is wanted of it, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from curator_audio.sound.resampler import RATES

BLOCK = 1 << 18  # samples of all channels in one block, about


class BadSound(ValueError):
    """What is wrong with a file; the text begins with what it is. `malformed`: it is of a kind that is known, and broken."""

    def __init__(self, text: str, malformed: bool = False) -> None:
        super().__init__(text)
        self.malformed = malformed


@dataclass(frozen=True, kw_only=True)
class About:
    """What a file says of itself.

    `bits`: of a sample, where the codec keeps samples. `declared_s`: seconds by its header. `expected_s`:
    seconds that it will probably have; None if only decoding tells.
    """

    format: str
    codec: str
    bits: int | None
    rate: int
    channels: int
    declared_s: float | None
    expected_s: float | None

    def __post_init__(self) -> None:
        if not RATES[0] <= self.rate <= RATES[1]:
            raise BadSound(f"impossible sample rate: {self.rate:,} Hz in the header of the {self.format}")
        if self.channels < 1:
            raise BadSound(f"no channels: the header of the {self.format} gives {self.channels}")


class Sound(Protocol):
    """An open file."""

    about: About
    notes: list[str]  # what was found wrong while reading: `damaged`, `truncated`, `format_changes`

    def blocks(self, start: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        """Samples from `start` on, `count` of them or all: float32 [channels, n], in order. May be asked for again."""
        ...

    def close(self) -> None:
        """Let go of what the decoder holds; the file stays open."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be made of files: the parameters of `audio.decode`, which says what they mean."""

    channel: str = "mix"
    rate: int | None = None
    part_s: float | None = None
    max_seconds: float | None = None
    audio_stream: int = 0
    storage_options: dict[str, Any] | None = None


@dataclass
class Piece:
    """What becomes of a record, or of a part of it, whose number is `number`. `port`: out, failed or dropped."""

    row: int
    port: str
    number: int | None = None
    samples: np.ndarray | None = None
    columns: Mapping[str, Any] | None = None
    why: str = ""
