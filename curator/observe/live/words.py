"""A run at one moment in words, for terminals, logs and notebooks.

A snapshot holds, where known, `share` of the work that is done, `seconds_left`, `seconds` so far,
`units_done`, `units_total`, `bytes_read`, `bytes_total` (of the source; with several phases of the phase),
`records_in`, `written`, `dropped`, `duplicate`, `failed`, `rate` (records read a second), `bytes_rate`,
`workers`, `limit` (a sentence: what the run waits for), `phase`, `phases`, `stages` and `reading` (see
`curator.run.pace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator.api.format import aligned, count, duration, plural, rate, short_path, shorten, size

Snapshot = Mapping[str, Any]
NAME_MAX = 24
HEAD = ("stage", "in", "out", "rows/s", "queue", "workers", "busy")


def percent(shot: Snapshot) -> str:
    return f"{100 * shot.get('share', 0.0):.0f}%"


def left(shot: Snapshot) -> str:
    """`about 40 s left`, in two digits, since more cannot be known; empty where nothing can."""
    seconds = shot.get("seconds_left")
    if seconds is None or shot.get("share", 0.0) >= 1:
        return ""
    return f"about {duration(max(1.0, float(f'{seconds:.2g}')))} left"


def words(shot: Snapshot) -> list[list[str]]:
    """How far; what became of the records; how fast; what the run waits for. Each may be empty."""
    amount = [f"phase {shot['phase']} of {shot['phases']}"] if shot.get("phases", 1) > 1 else []
    amount += ([f"{count(shot['units_done'])} of {plural(shot['units_total'], 'unit')}"]
               if shot.get("units_total") else [])
    amount += ([f"{size(shot['bytes_read'])} of {size(shot['bytes_total'])} read"] if shot.get("bytes_total")
               else [])
    records = [f"{count(shot.get('records_in', 0))} read", f"{count(shot.get('written', 0))} written"]
    records += [f"{count(shot[name])} {name}" for name in ("dropped", "duplicate", "failed")
                if shot.get(name)]
    speed = [f"{rate(shot['rate'])} records/s"] if shot.get("rate") else []
    speed += [f"{size(shot['bytes_rate'])}/s"] if shot.get("bytes_rate") else []
    speed += [plural(shot["workers"], "worker")] if shot.get("workers") else []
    speed += [f"{duration(shot.get('seconds', 0.0))} so far"]
    speed += [left(shot)] if left(shot) else []
    return [amount, records, speed, [shot["limit"]] if shot.get("limit") else []]


def line(shot: Snapshot) -> str:
    """All of it in one line."""
    amount, *others = words(shot)
    parts = [percent(shot), ", ".join(amount), *(word for some in others for word in some)]
    return "; ".join(part for part in parts if part)


def stage_rows(shot: Snapshot) -> list[tuple[str, ...]]:
    """A row of cells for each stage, as `HEAD` names them. `busy`: cores that work on it. Neighbours that
    share workers have them, and their queue, in the row of the first."""
    rows, before = list[tuple[str, ...]](), None
    for stage in shot.get("stages", ()):
        shared = before is not None and stage.get("operator") == before
        before = stage.get("operator")
        queue = stage.get("queue_rows")
        rows.append((shorten(stage["name"], NAME_MAX, keep_end=True), count(stage["in"]), count(stage["out"]),
                     rate(stage["rate"]), "" if queue is None else count(queue),
                     '"' if shared else count(stage["workers"]) if "workers" in stage else "",
                     f"{stage['busy']:.1f}"))
    return rows


def table(shot: Snapshot) -> list[str]:
    """The rows of all stages as lines of text."""
    return aligned([HEAD, *stage_rows(shot)])


def where(shot: Snapshot, most: int = 5) -> list[str]:
    """How far a run is, or was when it was killed, and how far inside the units that it reads."""
    if not shot:
        return []
    amount = words(shot)[0]
    reading = shot.get("reading", ())
    lines = [f"{percent(shot)} of the work{', ' if amount else ''}{', '.join(amount)}"]
    lines += [f"in {short_path(unit['unit'], 60)}: {size(unit['bytes_read'])} of {size(unit['bytes'])}, "
              f"{count(unit['records'])} records" for unit in reading[:most]]
    return lines + ([f"and in {plural(len(reading) - most, 'unit')} more"] if len(reading) > most else [])
