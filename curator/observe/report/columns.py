"""The columns in which funnel, report and card show the stages of a run. A line in a table here adds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from curator.api.format import amount, count, duration, rate, share
from curator.observe.report.graph import Stage, kept

Place = Literal["funnel", "report", "card"]


@dataclass(frozen=True)
class Column:
    """`cell`: of a stage, with the seconds of work of all stages. `funnel`, `report`, `card`: its title
    there, "" where it is not."""

    cell: Callable[[Stage, float], str]
    funnel: str = ""
    report: str = ""
    card: str = ""


def _reasons(stage: Stage, _: float) -> str:
    fired = sorted(((rows, reason) for reason, rows in stage["dropped"].items() if rows), reverse=True)
    return "\n".join(f"{reason} {count(rows)}" for rows, reason in fired)


def summed(stage: Stage, kinds: Mapping[str, str], way: str, part: str | None = None) -> list[str]:
    """What each column that is an amount sums up to over rows that went some way (`in`, `out`, `dropped`, …),
    on one port or for one reason, or all."""
    found = []
    for column, kind in kinds.items():
        sums = stage.get("amounts", {}).get(column, {}).get(way, {})
        value = sum(sums.values()) if sums and part is None else sums.get(part)
        found.append("" if value is None else amount(value, kind == "seconds"))
    return found


def _goes_on(column: str, kind: str, stage: Stage, _: float) -> str:
    return summed(stage, {column: kind}, "out")[0]


RECORDS = (
    Column(lambda stage, _: count(stage["in"]), card="in"),
    Column(lambda stage, _: count(kept(stage)), funnel="records", card="goes on"),
    Column(lambda stage, _: share(kept(stage), stage["in"] + stage["made"]), funnel="share"),
)
COLUMNS = (
    Column(_reasons, card="dropped"),
    Column(lambda stage, _: count(stage["duplicate"]) if stage["duplicate"] else "", card="duplicate"),
    Column(lambda stage, _: count(stage["failed"]) if stage["failed"] else "", card="failed"),
    Column(lambda stage, _: duration(stage["busy_s"]), report="work"),
    Column(lambda stage, busy_s: share(stage["busy_s"], busy_s), funnel="time", report="share"),
    Column(lambda stage, _: rate(stage["rows_per_s"]), funnel="rows/s", report="rows/s"),
    Column(lambda stage, _: str(stage["workers"] or ""), report="workers"),
)


def table_of(stats: Mapping[str, Any], place: Place) -> dict[str, dict[str, str]]:
    """For each stage the cells that this place shows, by title: records, what is summed of them (seconds,
    tokens), the rest."""
    busy_s = sum(stage["busy_s"] for stage in stats["stages"])
    sums = [Column(partial(_goes_on, column, kind), funnel=column, report=column, card=column)
            for column, kind in stats.get("amounts", {}).items()]
    shown = [(getattr(column, place), column.cell) for column in (*RECORDS, *sums, *COLUMNS)
             if getattr(column, place)]
    return {stage["name"]: {title: cell(stage, busy_s) for title, cell in shown} for stage in stats["stages"]}
