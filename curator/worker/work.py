"""What a worker is told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.stage import Unit, WrittenFile
from curator.engine.events import Note, Refitted


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [start, stop) of a batch for step `target`; `note`: why they failed. Without `data`, a note alone."""

    data: Any
    unit: int
    attempt: int
    start: int
    stop: int
    target: int
    note: Note | None


@dataclass(frozen=True, slots=True)
class UnitInfo:
    """What a worker is told of a unit: what to read, and how its files are called."""

    unit: Unit
    name: str


@dataclass(frozen=True, slots=True)
class Work:
    """A call as the worker sees it."""

    id: int
    kind: str
    pieces: tuple[Piece, ...] = ()
    units: tuple[tuple[int, int], ...] = ()
    infos: Mapping[int, UnitInfo] = field(default_factory=dict)
    best_effort: bool = False


@dataclass(slots=True)
class Part:
    """A part of a call's answer. `outputs`: step, port, unit, rows, bytes, data. `counts`: since the part before. `errors`: the
    first of each step that this worker met."""

    outputs: list[tuple[int, str, int, int, int, Any]]
    counts: dict[int, dict[int, Counts]] = field(default_factory=dict)
    errors: tuple[FirstError, ...] = ()


@dataclass(slots=True)
class Answer(Part):
    """The end of a call's answer. What a flush gave: `files` by step, `memory` (a sidecar), `depends`: the units it rests on."""

    seconds: float = 0.0
    exhausted: bool = False
    files: dict[int, list[WrittenFile]] | None = None
    memory: str | None = None
    depends: frozenset[int] = frozenset()
    rests_on: int = 0
    refitted: tuple[Refitted, ...] = ()


class CallFailed(Exception):
    """A call failed where no row can be blamed. `fatal`: trying again is of no use."""

    def __init__(self, error: str, trace: str, fatal: bool, first: FirstError) -> None:
        super().__init__(error)
        self.error, self.trace, self.fatal, self.first = error, trace, fatal, first
