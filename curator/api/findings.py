"""What a stage says about a run, made from its counts on the driver: sentences, alarms and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]
# How an example column is shown: a picture, a player, the excerpt, a value beside the id.
Shown = Literal["image", "audio", "video", "text", "number"]
Summed = Literal["number", "seconds"]  # how the sum of a column is shown: as it is, or as hours


@dataclass(frozen=True)
class Line:
    """A few words below the stage in funnel and report, such as `40 records in clusters of up to 3`."""

    text: str


@dataclass(frozen=True)
class Alarm:
    """What deserves a look: what, where, and what to look at. A "note" is fine on clean input."""

    level: Level
    text: str


@dataclass(frozen=True)
class Table:
    """A table of the report. `head`: what a label is, and what is counted. `rows`: label, number, and of how
    many it is."""

    title: str
    head: tuple[str, str]
    rows: Sequence[tuple[str, int, int]]


Finding = Line | Alarm | Table
