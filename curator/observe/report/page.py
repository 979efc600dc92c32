"""The report of a run: one HTML file that needs nothing else, for the browser, the phone and the printer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from curator.api import format as fmt
from curator.api.stage import SIDE_OUTPUTS
from curator.observe.report.columns import summed, table_of
from curator.observe.report.examples import Group
from curator.observe.report.funnel import balance, inside
from curator.observe.report.graph import MAIN, kept, lines, losses, origin, ports, takers

FILES_MAX = 200  # files named one by one; beyond, the folders say enough
REASONS_MAX = 4  # named beside a stage; the table below has them all

Stats = Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """A table of the page. `rows`: words, the part of 1 that a bar of colour `kind` shows (None: no bar), and
    numbers."""

    title: str
    words: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[tuple[Sequence[str], float | None, Sequence[str]]]
    kind: str = ""
    note: str = ""


def render_report(stats: Stats, recipe: str = "", examples: Sequence[Group] = ()) -> str:
    """The HTML of `report.html`: flow, reasons, examples, times, files, alarms and the recipe's text.
    Everything is escaped."""
    records = stats["records"]
    ended = {name: records[name] for name in ("written", *SIDE_OUTPUTS, "absorbed") if records[name]}
    total = sum(group["files"] for group in stats["outputs"])
    return _template().render(
        stats=stats, recipe=recipe, records=records, share=fmt.share, plural=fmt.plural, inside=inside,
        balance=balance(stats),
        ended=[(name, 100 * rows / sum(ended.values())) for name, rows in ended.items()],
        speed=records["in"] / stats["seconds"] if stats["seconds"] else 0, flow=_flow(stats),
        times=_times(stats),
        reasons=_reasons(stats), tables=_tables(stats), columns=_columns(stats), outputs=_outputs(stats),
        examples=examples,
        files=stats["files"][:FILES_MAX], files_total=total)


@cache
def _template() -> Any:
    """Compiled once: it takes as long as a small run."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"count": fmt.count, "size": fmt.size, "rate": fmt.rate, "duration": fmt.duration}
    return (environment.from_string(
        files("curator.observe.report").joinpath("report.html.j2").read_text("utf-8")))


def _flow(stats: Stats) -> list[dict[str, Any]]:
    """For each stage, in reading order, what is said of it, and its bar: `parts`, in percent of the most rows
    that a stage had."""
    taken, above, rows, kinds = takers(stats["stages"]), None, [], stats.get("amounts", {})
    most = max(1, *(stage["in"] + stage["made"] for stage in stats["stages"]))
    for line in (line for line in lines(stats["stages"]) if line.port is None):
        stage = line.stage
        branches = [(port, ports(stage).get(port, 0), ", ".join(names))
                    for (name, port), names in taken.items() if name == stage["name"] and port != MAIN]
        parts = [("written" if stage["kind"] == "sink" else "kept", kept(stage)),
                 *(("kept" if (stage["name"], end) in taken else end, n) for end, _, n in losses(stage, 0))]
        rows.append({"stage": stage, "depth": line.depth, "kept": kept(stage), "branches": branches,
                     "origin": origin(stage, above),
                     "losses": [(ending, reason, n,
                                 ", ".join(filter(None, summed(stage, kinds, ending, reason))))
                                for ending, reason, n in losses(stage, REASONS_MAX)],
                     "amounts": ", ".join(filter(None, summed(stage, kinds, "out"))),
                     "parts": [(kind, 100 * n / most) for kind, n in parts if n]})
        above = stage["name"], MAIN
    return rows


def _parts(rows: Iterable[tuple[str, str, int, int]]) -> list[tuple[list[str], float | None, list[str]]]:
    """Rows of a `Grid`: stage, label, a number, and of how many that is. The bars are parts of the greatest
    number."""
    rows = list(rows)
    most = max((n for _, _, n, _ in rows), default=0)
    return [([stage, label], n / most if n else None, [fmt.count(n), fmt.share(n, of)])
            for stage, label, n, of in rows]


def _times(stats: Stats) -> Grid:
    """The columns of `COLUMNS` for each stage, the one with the most work first."""
    busy, cells = {stage["name"]: stage["busy_s"] for stage in stats["stages"]}, table_of(stats, "report")
    rows = [([name], busy[name] / max(busy.values()), list(cells[name].values()))
            for name in sorted(busy, key=busy.__getitem__, reverse=True) if busy[name]]
    return Grid("Time by stage", ["stage"], list(next(iter(cells.values()))), rows, "time",
                "Work is summed over workers; rows/s is the speed of one worker.")


def _reasons(stats: Stats) -> Grid:
    """Every reason of every stage, in pipeline order, the most frequent first; rules that never fired
    last."""
    kinds = stats.get("amounts", {})
    fired = [(stage, reason, n) for stage in stats["stages"]
             for reason, n in sorted(stage["dropped"].items(), key=lambda item: (-item[1], item[0]))]
    rows = [(names, bar, [*numbers, *summed(stage, kinds, "dropped", reason)])
            for (stage, reason, _), (names, bar, numbers) in
            zip(fired, _parts((stage["name"], reason, n, stage["in"] + stage["made"])
                              for stage, reason, n in fired), strict=True)]
    return Grid("Why records were dropped", ["stage", "reason"], ["records", "of the stage", *kinds], rows,
                "dropped")


def _tables(stats: Stats) -> list[Grid]:
    """The tables that stages made, those with one title and head together."""
    found: dict[tuple[str, str, str], list] = {}
    for stage in stats["stages"]:
        for table in stage.get("tables", ()):
            found.setdefault((table["title"], *table["head"]),
                             []).extend((stage["name"], *row) for row in table["rows"])
    return [Grid(title, ["stage", what], [counted, "share"], _parts(rows), "duplicate")
            for (title, what, counted), rows in found.items()]


def _columns(stats: Stats) -> Grid:
    """What the measured columns hold, one line each."""
    rows = []
    for stage in stats["stages"]:
        for name, summary in stage.get("columns", {}).items():
            values = [f"{value} {fmt.count(n)}" for value, n in summary.get("values", {}).items()]
            holds = fmt.listing(values, 8) or ("nothing" if summary["nulls"] == summary["rows"]
                                               else "many values")
            if "min" in summary:
                holds = f"{fmt.number(summary['min'])} to {fmt.number(summary['max'])}"
            nulls = fmt.share(summary["nulls"], summary["rows"]) if summary["nulls"] else ""
            rows.append(([stage["name"], name, holds], None, [nulls]))
    return Grid("Columns", ["stage", "column", "holds"], ["nulls"], rows)


def _outputs(stats: Stats) -> Grid:
    rows = [([group["port"], inside(group["folder"], stats["out"])], None,
             [fmt.count(group["files"]), fmt.count(group["rows"]), fmt.size(group["size_bytes"])])
            for group in (*stats["outputs"], *stats.get("checkpoints", ()))]
    return Grid("Files", ["what", "where"], ["files", "records", "size"], rows)
