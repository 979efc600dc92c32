"""Turns of speakers, and RTTM, the text in which they are exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.errors import InputError

TURNS = pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64(), "speaker": pa.string()}))


@dataclass(frozen=True, slots=True)
class Turn:
    """Somebody speaks; seconds."""

    start: float
    end: float
    speaker: str

    def as_dict(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "speaker": self.speaker}


def merged(turns: Iterable[Turn], gap_s: float) -> list[Turn]:
    """In order of time; turns of one speaker that follow one another within `gap_s` are one."""
    found: list[Turn] = []
    for turn in sorted(turns, key=lambda one: (one.start, one.end)):
        if found and found[-1].speaker == turn.speaker and turn.start - found[-1].end < gap_s:
            turn = Turn(found[-1].start, max(found[-1].end, turn.end), turn.speaker)
            found.pop()
        found.append(turn)
    return found


def overlap_s(turns: Sequence[Turn]) -> float:
    """Seconds in which two or more speak."""
    edges = sorted([(turn.start, 1) for turn in turns] + [(turn.end, -1) for turn in turns])
    total, speaking, before = 0.0, 0, 0.0
    for at, change in edges:
        total += at - before if speaking > 1 else 0.0
        speaking, before = speaking + change, at
    return total


def read_rttm(text: str, where: str) -> dict[str, list[Turn]]:
    """Turns by file of an RTTM. Lines of other types (SPKR-INFO, NON-SPEECH, …) and comments are passed over.

    Raises:
        InputError: a line of type SPEAKER has no times.
    """
    found: dict[str, list[Turn]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] != "SPEAKER":
            continue
        try:
            start, seconds = float(fields[3]), float(fields[4])
            turn = Turn(start, start + seconds, fields[7])
        except (IndexError, ValueError) as error:
            raise InputError(f"{where}, line {number}: a line of an RTTM is `SPEAKER file channel start duration <NA> <NA> speaker "
                             f"<NA> <NA>`, and this one is {line[:100]!r}") from error
        if seconds > 0:
            found.setdefault(fields[1], []).append(turn)
    return {name: sorted(turns, key=lambda one: (one.start, one.end)) for name, turns in found.items()}


def rttm_line(name: str, turn: Turn) -> str:
    """A line of an RTTM; spaces in names become `_`."""
    return (f"SPEAKER {'_'.join(name.split()) or '-'} 1 {turn.start:.3f} {turn.end - turn.start:.3f} <NA> <NA> "
            f"{'_'.join(turn.speaker.split()) or '-'} <NA> <NA>\n")
