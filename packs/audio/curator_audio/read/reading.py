"""From a file to the pieces that become records."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from curator.api.errors import InputError
from curator.io.files.folder import open_input
from curator_audio.read.opening import open_sound
from curator_audio.read.parts import Parts
from curator_audio.read.sound import BadSound, Piece, Sound, Wanted
from curator_audio.sound.channels import chosen, energies
from curator_audio.sound.resampler import Resampler

LOUDEST = 1e12  # of samples whose full scale is 1, or 2^31 in files that forgot to divide: squares of more overflow in a sum


class Decoder:
    """Decodes one file after the other. That of a path stays open until another is wanted: of an MP3 of hours
    FFmpeg looks for a place for half a second, and then knows where all before it are.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._path: str | None = None
        self._file: BinaryIO | None = None
        self._sound: Sound | None = None

    def pieces(self, row: int, data: bytes | None, path: str | None, offset: Any, duration: Any) -> Iterator[Piece]:
        """What becomes of a record: at least one piece."""
        try:
            begin, asked = _seconds("offset", offset), _seconds("duration", duration)
            yield from Reading(self._wanted, row, self._opened(data, path), begin, asked).pieces()
        except BadSound as error:
            yield Piece(row, "failed", why=str(error))
        except (InputError, OSError, MemoryError) as error:
            self.release()
            yield Piece(row, "failed", why=f"cannot be read: {error}")

    def release(self) -> None:
        """Close what is open."""
        for opened in (self._sound, self._file):
            if opened is not None:
                opened.close()
        self._path = self._file = self._sound = None

    def _opened(self, data: bytes | None, path: str | None) -> Sound:
        if data is None and path and path == self._path and self._sound is not None:
            return self._sound
        self.release()
        if data is not None:
            self._file = io.BytesIO(data)
        elif path:
            self._file = open_input(path, self._wanted.storage_options, compression=None)
        else:
            raise BadSound("no bytes: the record has neither `bytes` nor a `path`")
        self._sound = open_sound(self._file, self._wanted.audio_stream)
        self._path = path if data is None else None
        return self._sound


class Reading:
    """The pieces of one open file. `begin`: seconds, None for the whole file; `asked`: seconds that a manifest gives."""

    def __init__(self, wanted: Wanted, row: int, sound: Sound, begin: float | None, asked: float | None) -> None:
        self._wanted, self._row, self._sound, self._asked = wanted, row, sound, asked
        rate = sound.about.rate
        self._start = 0 if begin is None else round(begin * rate)
        self._count = None if begin is None or asked is None else round((begin + asked) * rate) - self._start
        self._rate = wanted.rate or rate
        self._faults: list[tuple[int, int]] = []  # first and last sample that is no number, of blocks with such, at the final rate
        self._number = 0

    def pieces(self) -> Iterator[Piece]:
        if self._is_too_long():
            yield Piece(self._row, "dropped", why="too_long")
            return
        kept = self._sound.about.channels if self._wanted.channel in ("all", "split") else 1
        parts = Parts(kept, self._rate, self._wanted.part_s, self._sound.about.expected_s or 0)
        limit = None if self._wanted.max_seconds is None else math.floor(self._wanted.max_seconds * self._rate)
        first, seen = 0, 0
        for block in self._blocks():
            seen += block.shape[1]
            if limit is not None and seen > limit:
                yield Piece(self._row, "dropped", self._number or None, why="too_long")  # the rest, if parts are given already
                return
            for part in parts.add(block):
                records = self._records(part, first, divided=True)
                del part  # of a long file one part is held here, or none while it is worked on
                while records:
                    yield records.pop(0)
                first = parts.given
        rest = parts.finish()
        if not seen:
            what = "no samples" if not self._start else f"no samples: the offset lies behind the end of the {self._sound.about.format}"
            raise BadSound(f"{what} ({'; '.join(self._sound.notes)})" if self._sound.notes else what)
        yield from self._records(rest, first, divided=self._number > 0, last=True)

    def _is_too_long(self) -> bool:
        """Whether there is more than `max_seconds`, by decoding so much, unless the header says that there is less."""
        expected, limit = self._sound.about.expected_s, self._wanted.max_seconds
        before, rate = self._start / self._sound.about.rate, self._sound.about.rate
        if limit is None or (expected is not None and expected - before <= limit):
            return False
        left = limit * rate
        for block in self._sound.blocks(self._start, self._count):
            left -= block.shape[1]
            if left < 0:
                return True
        return False

    def _blocks(self) -> Iterator[np.ndarray]:
        """Blocks with the channels and the rate that are wanted."""
        about, mode = self._sound.about, self._wanted.channel
        loudest = self._loudest() if mode == "loudest" and about.channels > 1 else 0
        change = None if self._rate == about.rate else Resampler(
            about.rate, self._rate, about.channels if mode in ("all", "split") else 1)
        taken = 0
        for block in self._sound.blocks(self._start, self._count):
            made = self._finite(chosen(block, mode, loudest), taken)
            taken += block.shape[1]
            made = made if change is None else change.add(made)
            if made.shape[1]:
                yield made
        if change is not None and taken:
            yield change.finish()

    def _loudest(self) -> int:
        total = np.zeros(self._sound.about.channels)
        for block in self._sound.blocks(self._start, self._count):
            total += energies(np.nan_to_num(block, posinf=0, neginf=0))
        return int(total.argmax())

    def _finite(self, block: np.ndarray, before: int) -> np.ndarray:
        """The block with zeros where samples are none, and a note of where these were."""
        with np.errstate(over="ignore", invalid="ignore"):
            if all(np.dot(row, row) < LOUDEST**2 for row in block):  # NaN and infinity stay in a sum
                return block
            good = np.abs(block) < LOUDEST
        bad = np.flatnonzero(~good.all(axis=0)) + before
        if len(bad):
            scale = self._rate / self._sound.about.rate
            self._faults.append((math.floor(bad[0] * scale), math.floor(bad[-1] * scale)))
        return np.where(good, block, np.float32(0))

    def _records(self, part: np.ndarray, first: int, *, divided: bool, last: bool = False) -> list[Piece]:
        """The records of one part, whose first sample is number `first` of all."""
        channels = len(part) if self._wanted.channel == "split" else 1
        end = first + part.shape[1]
        fault = next((begin for begin, stop in self._faults if begin < end and stop >= first), None)
        columns = self._columns(first, part.shape[1])
        if fault is not None:
            where = max(fault, first) / self._rate + self._start / self._sound.about.rate
            why = f"no sound: samples that are NaN, infinite or above {LOUDEST:g}, the first at {where:.3f} s"
        records = []
        for channel in range(channels):
            number = self._number if divided or self._wanted.channel == "split" else None
            self._number += 1
            if fault is not None:
                records.append(Piece(self._row, "failed", number, why=why))
                continue
            samples = part[channel:channel + 1] if self._wanted.channel == "split" else part
            records.append(Piece(self._row, "out", number, samples, {**columns, "channel": channel}))
        if not last:
            self._faults = [(begin, stop) for begin, stop in self._faults if stop >= end]
            self._sound.notes = []  # told of the part in which it was found
        return records

    def _columns(self, first: int, count: int) -> dict[str, Any]:
        about = self._sound.about
        begin = self._start / about.rate
        return {"sample_rate": self._rate, "source_rate": about.rate, "channels": about.channels, "duration": count / self._rate,
                "start_s": begin + first / self._rate, "end_s": begin + (first + count) / self._rate,
                "declared_duration": about.declared_s if self._asked is None else self._asked, "format": about.format,
                "codec": about.codec, "bits": about.bits, "decode_note": ", ".join(dict.fromkeys(self._sound.notes)) or None}


def _seconds(name: str, value: Any) -> float | None:
    """A number of a manifest; NeMo writes a negative or no duration where it means the rest of the file."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise BadSound(f"no number: {name} is {str(value)[:40]!r}") from None
    if math.isnan(seconds) or (name == "duration" and seconds <= 0):
        return None
    if not 0 <= seconds < 1e9:
        raise BadSound(f"no such place: {name} is {seconds:g} seconds")
    return seconds
