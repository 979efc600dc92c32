"""Histograms of scores, fine enough that a threshold can be dragged over them in the browser."""

from __future__ import annotations

import math
from typing import Any

from curator import sql
from curator.api.errors import CuratorError
from curator.explore.records import Records
from curator.explore.rules import FAR, Rules, RunRule
from curator.results.tables import sql_text
from curator.sql.thresholds import moved

BINS = 480
SAMPLE = 4096  # values by which the scale is chosen
FEW = 200  # whole numbers that get a bin each
MARGIN = 0.06  # of the scale, beyond a threshold at its end
LEAST = 1e-6  # of the way from the least value to the greatest, where nearly all are one and the same
SKEW = 12  # so many times as far as most values reach the last ones: then the scale is bent
# What a record is to a rule. Only the second and the fourth can change hands when the rule's threshold moves.
GROUPS = ("kept", "kept_movable", "this", "this_movable", "this_caught", "elsewhere")


def histogram(records: Records, rules: Rules, given: dict[str, Any]) -> dict[str, Any]:
    """`{column, filter, rule: {stage, reason, at}}`: scale, counts by bin and group, records without a value.

    With a rule, groups tell what would become of a record if the threshold `at` moved past it; `this_caught`
    is what a later rule would drop. Without one there are kept (`data/`) and elsewhere.

    Raises:
        CuratorError: the column is none of numbers, or there is no such rule.
    """
    where, values = records.where(given.get("filter"))
    rule, at = rules.chosen(given["rule"]) if given.get("rule") else (None, 0)
    if rule is not None:
        measure, kind, marks = measure_of(records, rule, at)
    else:
        measure, marks = records.expression(given.get("column")), []
        kind = records.types.get(given["column"], "")
        if records.kind(given["column"]) not in ("number", "bool"):
            raise CuratorError(f"{given['column']} is no column of numbers")
    value = f"TRY(CAST({measure} AS DOUBLE))"
    high, low = _ends(records, rule, at)
    lowest, highest, quantiles, above, below = records.ask(
        f"SELECT min(v), max(v), reservoir_quantile(v, [0.01, 0.5, 0.99], {SAMPLE}), count(*) FILTER (low), "
        f"count(*) FILTER (high) FROM (SELECT {value} AS v, {high} AS high, {low} AS low FROM records "
        f"WHERE {where}) WHERE isfinite(v)", values)[0]
    if lowest is None:
        return {"empty": "no values"}
    scale = _scale(kind, lowest, highest, quantiles, marks)
    found = records.ask(
        f"SELECT b, g, count(*) FROM (SELECT {_bin('v', scale)} AS b, g FROM (SELECT {value} AS v, "
        f"{group_of(records, rules, rule, at)} AS g FROM records WHERE {where})) GROUP BY ALL", values)
    counts: dict[str, list[int]] = {}
    nulls: dict[str, int] = {}
    for number, group, n in found:
        name = GROUPS[group]
        if number is None:
            nulls[name] = n
        else:
            counts.setdefault(name, [0] * scale["bins"])[number] += n
    return {"scale": scale, "counts": counts, "nulls": nulls, "least": lowest, "most": highest,
            "drops": "below" if below >= above else "above"}


def measure_of(records: Records, rule: RunRule, at: int) -> tuple[str, str, list[float]]:
    """What a threshold is compared with as SQL, its type as far as it is known, and the numbers that it is
    compared with in this rule.

    Raises:
        CuratorError: no record has it any more.
    """
    if not rule.thresholds:
        raise CuratorError(f"{rule.reason} compares nothing with a number")
    threshold = rule.thresholds[at]
    gone = [name for name in sql.columns_of(threshold.measure) if name not in records.types]
    if gone:
        raise CuratorError(f"no record of the output has {', '.join(gone)}")
    marks = [t.value for t in rule.thresholds if t.measure == threshold.measure and math.isfinite(t.value)]
    return f"({threshold.measure}\n)", records.types.get(threshold.column or "", ""), marks


def _scale(kind: str, least: float, most: float, quantiles: list[float],
           marks: list[float]) -> dict[str, Any]:
    """How values become places from 0 to 1: `u(x) = (t(x) - low) / (high - low)`, where t is x itself, or
    asinh(x / unit) where a few values are far from the rest."""
    low, high = min([least, *marks]), max([most, *marks])
    whole = "INT" in kind
    if whole and high - low <= FEW:
        bins = int(high - low) + 1
        return {"kind": "linear", "low": low - 0.5, "high": high + 0.5, "bins": bins, "whole": True}
    if high in marks or low in marks:  # so that the line can be grasped, and moved on
        more = MARGIN * (high - low)
        low, high = low - more * (low in marks), high + more * (high in marks)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    first, middle, last = quantiles
    spread = max(last - first, abs(middle) * 1e-6) or (most - least) * LEAST
    if most > least and high - low > SKEW * spread:
        unit = max(abs(middle), spread) / 4
        return {"kind": "asinh", "unit": unit, "low": math.asinh(low / unit), "high": math.asinh(high / unit),
                "bins": BINS, "whole": whole}
    return {"kind": "linear", "low": low, "high": high, "bins": BINS, "whole": whole}


def _bin(value: str, scale: dict[str, Any]) -> str:
    """The number of a value's bin as SQL; NULL for what is no number. What is infinite is in the last one."""
    bent = f"asinh({value} / {scale['unit']!r})" if scale["kind"] == "asinh" else value
    place = f"({bent} - {scale['low']!r}) / {scale['high'] - scale['low']!r} * {scale['bins']}"
    number = f"CAST(floor(greatest(0, least({scale['bins'] - 1}, {place}))) AS INTEGER)"
    return f"CASE WHEN {value} IS NULL OR isnan({value}) THEN NULL ELSE {number} END"


def group_of(records: Records, rules: Rules, rule: RunRule | None, at: int) -> str:
    """The number of a record's group as SQL."""
    if rule is None:
        return "CASE WHEN _place = 'data' THEN 0 ELSE 5 END"
    kept, fixed, caught = "true", "false", "false"
    if rule.thresholds:
        high, low = _ends(records, rule, at)
        kept, fixed = f"({high} OR {low})", f"({high} AND {low})"
        later = [_true(records, other.when) for other in rules.after(rule)]
        caught = " OR ".join(later) or "false"
    return (f"CASE WHEN _place = 'data' THEN CASE WHEN {kept} THEN 1 ELSE 0 END "
            f"WHEN _place = 'dropped' AND _stage = {sql_text(rule.stage)} AND "
            f"reason = {sql_text(rule.reason)} THEN "
            f"CASE WHEN {fixed} THEN 2 WHEN {caught} THEN 4 ELSE 3 END ELSE 5 END")


def _ends(records: Records, rule: RunRule | None, at: int) -> tuple[str, str]:
    """Whether a rule is true with its threshold above all values, and below all, as SQL."""
    if rule is None or not rule.thresholds:
        return "false", "false"
    threshold = rule.thresholds[at]
    high, low = (moved(rule.when, threshold, end) for end in (FAR, -FAR))
    return _true(records, high), _true(records, low)


def _true(records: Records, when: str) -> str:
    """Whether a condition is true, as SQL; false where it uses a column that no record has any more."""
    if not all(name in records.types for name in sql.columns_of(when)):
        return "false"
    return f"coalesce(TRY(({when}\n)), false)"
