"""Near misses: the written records that a rule would have dropped at a slightly other threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator.observe.report.graph import behind
from curator.sql.thresholds import Threshold, only_threshold

NEAR_MAX = 3  # records that a rule nearly dropped,
RULES_MAX = 6  # of so many rules, those that dropped most


class Near:
    """The written records whose values came nearest to what a rule drops, among those that are looked at.

    Of rules that are one comparison with a number, and dropped something; no stage behind the rule has
    changed the column.
    """

    def __init__(self, stats: Mapping[str, Any]) -> None:
        rules = [(stage["dropped"].get(reason, 0), stage, reason, condition) for stage in stats["stages"]
                 for reason, condition in stage.get("conditions", {}).items()]
        rules.sort(key=lambda rule: -rule[0])
        self.marks: dict[tuple[str, str], Threshold] = {}
        for dropped, stage, reason, condition in rules[:RULES_MAX]:
            mark = only_threshold(condition) if dropped else None
            if mark is not None and not any(mark.column in later.get("columns", ()) or later["made"]
                                            for later in behind(stats["stages"], stage["name"])):
                self.marks[stage["name"], reason] = mark
        self.columns = {mark.column for mark in self.marks.values()}
        self.near: dict[tuple[str, str], list[tuple[float, str, dict[str, Any]]]] = {}

    def look(self, row: dict[str, Any]) -> None:
        """Keeps a written row where it is among the nearest."""
        for rule, mark in self.marks.items():
            value = row.get(mark.column or mark.measure)
            if isinstance(value, (int, float)) and value == value:
                near = self.near.setdefault(rule, [])
                near.append((abs(value - mark.value), str(row.get("id")), row))
                near.sort(key=lambda one: one[:2])
                del near[NEAR_MAX:]
