"""What the scores of a run look like beside the thresholds that its rules have for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator import sql
from curator.api import format as fmt
from curator.api.errors import RecipeError
from curator.observe.report.graph import behind
from curator.observe.report.sample import Sample
from curator.sql.thresholds import Threshold, thresholds

BINS = 44
CHARTS_MAX = 24
TAILS = 0.005  # of the records on either side are drawn at the edge, so that one stray value hides nothing
WIDE = 50.0  # positive values whose middle 98 % span so many times: logarithmic
STEEP = 5.0  # times the second-highest bar: then their square roots are drawn
KINDS = ("written", "elsewhere", "dropped")  # from below

Stats = Mapping[str, Any]


@dataclass
class Chart:
    """One measure of one rule. `bars`: for each bin its parts from below, (kind, share of the highest bar).
    `root`: heights are square roots, so that one high bar does not hide all others. `marks`: thresholds,
    (place from 0 to 1, words). `low`, `high`: the ends of the axis."""

    stage: str
    reason: str
    condition: str
    measure: str
    dropped: int
    low: str = ""
    high: str = ""
    bars: list[list[tuple[str, float]]] = field(default_factory=list)
    root: bool = False
    marks: list[tuple[float, str]] = field(default_factory=list)
    note: str = ""


def charts(stats: Stats, samples: Sequence[Sample]) -> list[Chart]:
    """A histogram for each measure that a rule compares with a number, the rules that dropped most first.

    Of a rule the records are those that came to its stage. A measure that a later stage changed is left out,
    and so is one that the output does not have.
    """
    found: list[Chart] = []
    rules = [(stage, reason, condition, stage["dropped"].get(reason, 0)) for stage in stats["stages"]
             for reason, condition in stage.get("conditions", {}).items()]
    for stage, reason, condition, dropped in sorted(rules, key=lambda rule: -rule[3]):
        for measure, marks in _measures(condition).items():
            if len(found) < CHARTS_MAX:
                chart = Chart(stage["name"], reason, condition, measure, dropped)
                if _draw(chart, marks, list(_reached(stats, samples, chart, marks[0]))):
                    found.append(chart)
    return found


def columns_wanted(stats: Stats) -> set[str]:
    """The columns that the charts of a run need."""
    wanted: set[str] = set()
    for stage in stats["stages"]:
        for condition in stage.get("conditions", {}).values():
            for measure in _measures(condition):
                wanted |= sql.columns_of(measure)
    return wanted


def _measures(condition: str) -> dict[str, list[Threshold]]:
    """The thresholds of a condition, by what they are for."""
    found: dict[str, list[Threshold]] = {}
    for one in thresholds(condition):
        found.setdefault(one.measure, []).append(one)
    return found


def _reached(stats: Stats, samples: Sequence[Sample], chart: Chart,
             mark: Threshold) -> Iterator[tuple[str, np.ndarray, float]]:
    """The values of the records that came to a rule: what became of them, values, and records a value.

    Gives nothing where the values of those that went on are not known: a rule is not shown by what it dropped
    alone.
    """
    columns, later, changed = sql.columns_of(mark.measure), {}, set()
    for stage in behind(stats["stages"], chart.stage):
        after = any(name in changed for name, _ in stage["after"])
        if after or stage["made"] or columns & set(stage.get("columns", ())):
            changed.add(stage["name"])
        later[stage["name"]] = stage
    found = []
    for sample in samples:
        here = sample.stage == chart.stage and sample.port == "dropped"
        if not here and (sample.stage not in later or sample.stage in changed):
            continue
        values = _values(mark, sample.rows)
        if values is None:
            continue
        if here:
            mine = _floats(pc.equal(sample.rows.column("reason"), chart.reason)) == 1
            found += [("dropped", values[mine], sample.weight), ("elsewhere", values[~mine], sample.weight)]
        else:
            found.append(("written" if sample.port == "written" else "elsewhere", values, sample.weight))
    yield from found if any(kind == "written" and len(values) for kind, values, _ in found) else ()


def _values(mark: Threshold, rows: pa.Table) -> np.ndarray | None:
    """Float64, NaN where there is none; None where the rows do not have the columns."""
    try:
        if mark.column is not None:
            return _floats(rows.column(mark.column)) if mark.column in rows.column_names else None
        return _floats(sql.compute({"value": mark.measure}, rows)["value"])
    except (RecipeError, ValueError, pa.ArrowException):
        return None


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    """Nulls are NaN."""
    return pc.cast(column, pa.float64(), safe=False).combine_chunks().to_numpy(zero_copy_only=False)


def _draw(chart: Chart, marks: Sequence[Threshold], groups: list[tuple[str, np.ndarray, float]]) -> bool:
    """Fills the chart; False where there is nothing to draw."""
    held = [(kind, values[np.isfinite(values)], weight) for kind, values, weight in groups]
    values = np.concatenate([v for _, v, _ in held]) if held else np.empty(0)
    weights = np.concatenate([np.full(len(v), w) for _, v, w in held]) if held else np.empty(0)
    if not len(values) or values.min() == values.max():
        return False
    order = np.argsort(values)
    along = np.cumsum(weights[order])
    low, high = (float(values[order][np.searchsorted(along, q * along[-1])]) for q in (TAILS, 1 - TAILS))
    limits = [mark.value for mark in marks]
    low = min([low, *(x for x in limits if x >= values.min())])
    high = max([high, *(x for x in limits if x <= values.max())])
    if low == high:
        low, high = float(values.min()), float(values.max())
    logarithmic = low > 0 and high / low > WIDE and min(limits) > 0
    place = (lambda x: np.log(np.maximum(x, 1e-300))) if logarithmic else (lambda x: np.asarray(x, float))
    edges = np.linspace(place(low), place(high), BINS + 1)
    counts = {kind: np.zeros(BINS) for kind in KINDS}
    for kind, own, weight in held:
        counts[kind] += weight * np.histogram(np.clip(place(own), edges[0], edges[-1]), edges)[0]
    total = sum(counts.values())
    second, highest = np.sort(total)[-2:]
    chart.root = bool(highest > STEEP * second)
    # of a record's height, so that parts of a bar stay parts of it
    scale = 1 / highest if not chart.root else 1 / np.sqrt(np.maximum(total, 1e-9) * highest)
    chart.bars = [[(kind, float(height[at])) for kind in KINDS if (height := counts[kind] * scale)[at]]
                  for at in range(BINS)]
    chart.marks = [(float(np.clip((place(x) - edges[0]) / (edges[-1] - edges[0]), 0, 1)),
                    f"{mark.operator} {fmt.number(x)}") for mark, x in zip(marks, limits, strict=True)]
    chart.low, chart.high = fmt.number(low), fmt.number(high)
    missing = sum(weight * np.isnan(values).sum() for _, values, weight in groups)
    chart.note = ", ".join(filter(None, [
        "logarithmic" if logarithmic else "", "heights as square roots" if chart.root else "",
        f"{fmt.count(round(missing))} without a value" if missing >= 0.5 else ""]))
    return True
