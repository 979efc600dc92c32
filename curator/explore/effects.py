"""What moved thresholds would change, for the page: the answer of `curator what-if` by reason and group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator.results.output import RunOutput
from curator.results.what_if import WhatIf, what_if

EXAMPLES = 6


def effects(output: RunOutput, overrides: Mapping[str, str], kept: int, lost: int) -> dict[str, Any]:
    """What these values of `--set` would change. `kept` and `lost`: records that the run kept, and that it
    did not. `open` of the answer: those that would come back to a stage, and what it does is not known.
    """
    found = what_if(output, overrides)
    back = sum(m.records for m in found.moves if m.after.kind == "written" and m.before.kind != "written")
    gone = sum(m.records for m in found.moves if m.before.kind == "written" and m.after.kind != "written")
    reach: dict[str, int] = {}
    for move in found.moves:
        if move.after.kind == "reaches":
            reach[move.after.stage] = reach.get(move.after.stage, 0) + move.records
    return {"before": kept, "after": kept + back - gone, "not_kept": lost, "back": back, "lost": gone,
            "open": reach, "reasons": _reasons(found), "notes": list(found.notes),
            "by": {column: [{"name": s.value or None, "back": s.back, "lost": s.lost} for s in shares]
                   for column, shares in found.by.items()},
            "examples": {"back": _examples(found.back), "lost": _examples(found.lost)}}


def _reasons(found: WhatIf) -> list[dict[str, Any]]:
    """Reasons whose number changes, those that change most first."""
    rows = [{"name": reason, "stage": row.stage, "before": before, "after": after}
            for row in found.funnel for reason, (before, after) in row.reasons.items() if before != after]
    return sorted(rows, key=lambda row: -abs(row["after"] - row["before"]))


def _examples(rows: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    shown = ("id", "source", "url", "title", "before", "after")
    found = []
    for row in rows[:EXAMPLES]:
        texts = [value for name, value in row.items() if name not in shown and isinstance(value, str)]
        found.append({name: row[name] for name in shown if row.get(name) is not None}
                     | {"_text": max(texts, key=len, default="")})
    return found
