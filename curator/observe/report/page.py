"""The report of a run: one HTML file that needs nothing else, for the browser, the phone and the printer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow.compute as pc

from curator.api import format as fmt
from curator.api.format import plural, short_path, shorten
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.folder import Folder
from curator.observe.report.columns import summed, table_of
from curator.observe.report.examples import find_examples
from curator.observe.report.funnel import balance, inside, took
from curator.observe.report.graph import MAIN, kept, lines, losses, origin, ports, takers
from curator.observe.report.sample import ENDINGS, Sample, samples
from curator.observe.report.scores import Chart, charts, columns_wanted

FILES_MAX = 200  # files named one by one; beyond, the folders say enough
REASONS_MAX = 4  # named beside a stage; the table below has them all
GROUPED = ("language", "source")  # columns by whose values it is told where records ended,
COLUMNS_MAX = 12  # shown, the others folded away
VALUES_MAX = 20  # the most frequent ones

Stats = Mapping[str, Any]
Row = tuple[Sequence[str | tuple[str, str]], float | None, Sequence[str]]  # a word may have its explanation


@dataclass(frozen=True)
class Grid:
    """A table of the page. `rows`: words, the part of 1 that a bar of colour `kind` shows (None: no bar), and
    numbers. `folded`: rows that are shown when they are asked for, and what they are."""

    title: str
    words: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Row]
    kind: str = ""
    note: str = ""
    folded: Sequence[Row] = ()
    fold: str = ""


def render_report(stats: Stats, recipe: str = "", out: Folder | None = None) -> str:
    """The HTML of `report.html`: flow, reasons, thresholds, examples, times, files, alarms and the recipe's
    text. Everything is escaped. `out`: the run's folder, for what its files say."""
    records, held, examples = stats["records"], [], []
    drawn: list[Chart] = []
    if out is not None:
        held = samples(stats, out, columns_wanted(stats) | {*GROUPED, "reason"})
        drawn, examples = charts(stats, held), find_examples(stats, out)
    ended = {name: records[name] for name in ("written", *SIDE_OUTPUTS, "absorbed") if records[name]}
    total = sum(group["files"] for group in stats["outputs"])
    return _template().render(
        stats=stats, recipe=recipe, records=records, share=fmt.share, plural=plural, inside=inside,
        balance=balance(stats), took=took(stats),
        ended=[(name, 100 * rows / sum(ended.values())) for name, rows in ended.items()],
        speed=records["in"] / stats["seconds"] if stats["seconds"] else 0, flow=_flow(stats),
        times=_times(stats), reasons=_reasons(stats), charts=drawn, ends=list(_ends(held)),
        tables=_tables(stats), columns=_columns(stats), outputs=_outputs(stats), examples=examples,
        files=stats["files"][:FILES_MAX], files_total=total)


@cache
def _template() -> Any:
    """Compiled once: it takes as long as a small run."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"count": fmt.count, "size": fmt.size, "rate": fmt.rate}
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
    """Every reason of every stage with its condition, in pipeline order, the most frequent first; rules that
    never fired are folded away."""
    kinds = stats.get("amounts", {})
    most = max((n for stage in stats["stages"] for n in stage["dropped"].values()), default=0)
    rows: list[Row] = []
    for stage in stats["stages"]:
        for reason, n in sorted(stage["dropped"].items(), key=lambda item: (-item[1], item[0])):
            rows.append(([stage["name"], (reason, stage.get("conditions", {}).get(reason, ""))],
                         n / most if n else None, [fmt.count(n), fmt.share(n, stage["in"] + stage["made"]),
                                                   *summed(stage, kinds, "dropped", reason)]))
    never = [row for row in rows if row[1] is None]
    return Grid("Why records were dropped", ["stage", "reason"], ["records", "of the stage", *kinds],
                [row for row in rows if row[1] is not None], "dropped", folded=never,
                fold=f"{plural(len(never), 'rule')} that never fired")


def _ends(held: Sequence[Sample]) -> Iterator[Grid]:
    """Where records ended, for each value of the columns of `GROUPED`, the most frequent values first."""
    for column in GROUPED:
        ended: dict[str, Counter[str]] = {}
        for sample in held:
            if column in sample.rows.column_names:
                values = pc.value_counts(sample.rows.column(column).combine_chunks()).to_pylist()
                for pair in values:
                    value = "none" if pair["values"] is None else str(pair["values"])
                    ended.setdefault(value, Counter())[sample.port] += pair["counts"] * sample.weight
        if column == "source" and len(ended) > VALUES_MAX:
            ended = _by_folder(ended)
        if len(ended) < 2:
            continue
        most = sorted(ended, key=lambda value: (-ended[value].total(), value))
        shown = [port for port in ENDINGS if any(counts[port] for counts in ended.values())]
        rows = [([short_path(value, 60) if column == "source" else shorten(value, 60)],
                 ended[value]["written"] / ended[value].total(),
                 [fmt.count(ended[value].total()), fmt.share(ended[value]["written"], ended[value].total()),
                  *(fmt.count(ended[value][port]) if ended[value][port] else "" for port in shown[1:])])
                for value in most]
        sampled = any(len(sample.rows) < sample.total for sample in held)
        note = "Estimated from a sample of the rows that were kept." if sampled else ""
        yield Grid(f"Where records ended, by {column}", [column], ["records", "written", *shown[1:]],
                   rows[:VALUES_MAX], "written", note, rows[VALUES_MAX:],
                   f"{fmt.count(len(rows) - VALUES_MAX)} more")


def _by_folder(ended: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """The counts of files by the folders that they lie in."""
    folders: dict[str, Counter[str]] = {}
    for path, counts in ended.items():
        folders.setdefault(path.rpartition("/")[0] or path, Counter()).update(counts)
    return folders


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
            nothing = "nothing" if summary["nulls"] == summary["rows"] else "many values"
            holds = (f"{fmt.number(summary['min'])} to {fmt.number(summary['max'])}" if "min" in summary
                     else fmt.listing(values, 8) or nothing)
            nulls = fmt.share(summary["nulls"], summary["rows"]) if summary["nulls"] else ""
            rows.append(([stage["name"], name, holds], None, [nulls]))
    return Grid("Columns", ["stage", "column", "holds"], ["nulls"], rows[:COLUMNS_MAX],
                folded=rows[COLUMNS_MAX:], fold=f"{plural(len(rows) - COLUMNS_MAX, 'more column')}")


def _outputs(stats: Stats) -> Grid:
    rows = [([group["port"], inside(group["folder"], stats["out"])], None,
             [fmt.count(group["files"]), fmt.count(group["rows"]), fmt.size(group["size_bytes"])])
            for group in (*stats["outputs"], *stats.get("checkpoints", ()))]
    return Grid("Files", ["what", "where"], ["files", "records", "size"], rows)
