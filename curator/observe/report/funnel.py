"""The funnel of a run on the terminal: what came in, what each stage kept, where the rest went and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from curator.api.format import count, duration, plural, printable, rate, share, short_path, shorten, size
from curator.api.stage import SIDE_OUTPUTS
from curator.observe.live.words import where
from curator.observe.report.columns import summed, table_of
from curator.observe.report.graph import MAIN, Line, lines, losses, origin, ports, takers
from curator.observe.report.terminal import indented, plain_table, show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

STYLES = {"dropped": "yellow", "duplicate": "magenta", "failed": "red", "absorbed": "dim",
          "checkpoint": "dim", "error": "bold red", "warning": "yellow", "note": "dim"}
Stats = Mapping[str, Any]


def show_funnel(stats: Stats, file: IO[str] | None = None, reasons_max: int = 8) -> None:
    """Print the funnel: in colour on a terminal, as plain text of 80 columns elsewhere. `file` None is
    stdout.

    Of each stage's reasons the `reasons_max` most frequent are shown, and how many more there are.
    """
    show(lambda console: ("", _funnel(stats, reasons_max), "", *_outputs(stats, console.width),
                          *_summary(stats), *_alarms(stats), ""), file)


def _funnel(stats: Stats, reasons_max: int) -> Table:
    """The first columns are records, their share and their sums (seconds, tokens), also of what is not a
    stage."""
    kinds = stats.get("amounts", {})
    records, cells, taken = stats["records"], table_of(stats, "funnel"), takers(stats["stages"])
    table = plain_table(expand=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for title in next(iter(cells.values()), ()):
        table.add_column(title, justify="right", no_wrap=True, min_width=6)
    table.add_row("records in", count(records["in"]), style="bold")
    above = None
    for line in lines(stats["stages"]):
        stage, indent = line.stage, "  " * line.depth
        if line.port is None:
            where = origin(stage, above)
            table.add_row(f"{indent}{stage['name']}{' from ' if where else ''}{where}",
                          *cells[stage["name"]].values())
            for row, style in _details(line, reasons_max, kinds):
                table.add_row(*row, style=style)
        else:
            rows, to = ports(stage).get(line.port, 0), ", ".join(taken[stage["name"], line.port])
            table.add_row(f"{indent}  > {line.port} to {to}", count(rows),
                          share(rows, stage["in"] + stage["made"]), *summed(stage, kinds, "out", line.port),
                          style="cyan")
        above = stage["name"], line.port or MAIN
    total = "" if records["made"] else share(records["written"], records["in"])
    table.add_row("records written", count(records["written"]), total, style="bold")
    return table


def _details(line: Line, reasons_max: int,
             kinds: Mapping[str, str]) -> Iterator[tuple[tuple[RenderableType, ...], str]]:
    """The lines below a stage: their cells and style."""
    stage, indent = line.stage, "  " * line.depth + "    "
    if stage["made"]:
        yield (f"{indent}made", f"+{count(stage['made'])}"), "dim"
    for ending, reason, n in losses(stage, reasons_max):
        yield (f"{indent}{ending}{': ' if reason else ''}{reason}", f"-{count(n)}",
               share(n, stage["in"] + stage["made"]),
               *summed(stage, kinds, ending, reason if ending == "dropped" else "")), STYLES[ending]
    yield from (((indented(len(indent), text),), "dim") for text in stage.get("lines", ()))


def _outputs(stats: Stats, width: int) -> Iterator[RenderableType]:
    """Where the rows lie: folders below the run's own are named from there."""
    from rich.text import Text

    if stats["out"]:
        yield Text(f"run in {stats['out']}", overflow="fold")
    groups = (*stats["outputs"], *stats.get("checkpoints", ()))
    if not groups:
        return
    table = plain_table(show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    for group in groups:
        table.add_row(group["port"], short_path(inside(group["folder"], stats["out"]), width - 46),
                      plural(group["files"], "file"), count(group["rows"]), size(group["size_bytes"]),
                      style=STYLES.get(group["port"], "bold"))
    yield from (table, "")


def inside(path: str, out: str) -> str:
    """The path as seen from the run's folder; unchanged when it is the folder itself or lies elsewhere."""
    return path.removeprefix(out.rstrip("/") + "/") or path


def _summary(stats: Stats) -> Iterator[RenderableType]:
    from rich.text import Text

    records, units, seconds = stats["records"], stats["units"], stats["seconds"]
    speed = f", {rate(records['in'] / seconds)} records/s" if seconds and records["in"] else ""
    skipped = f" ({count(units['skipped'])} done before)" if units["skipped"] else ""
    style = {"finished": "bold green", "stopped": "bold yellow"}.get(stats["status"], "bold red")
    yield Text.assemble((f"{stats['name']} {stats['status']}", style), f" in {took(stats)}{speed}; "
                        f"{count(units['done'])} of {plural(units['total'], 'unit')}{skipped}")
    if stats["message"]:
        yield Text(stats["message"])
    yield from map(Text, where(stats.get("live", {})))
    yield Text(balance(stats))
    if stats["status"] == "finished" and stats.get("first_errors"):
        first = stats["first_errors"][0]
        yield Text(f"first error in stage {first['stage']}: {shorten(printable(first['error']), 200)}; all: "
                   f"curator failures {stats['out']}", style=STYLES["failed"])
    if stats["limit"]:
        yield Text(f"limit: {stats['limit']}")


def took(stats: Stats) -> str:
    """How long a run took: its latest attempt, and where that is not all, all of them."""
    whole, latest = stats["seconds"], stats.get("latest_seconds")
    return duration(whole) if latest is None else (
        f"{duration(latest)} ({duration(whole)} with earlier attempts)")


def balance(stats: Stats) -> str:
    """The accounting in a line: `635 in = 400 written + 220 dropped + 15 failed`. What is 0 is left out.

    Rows that are nowhere are those under way in a run that has not finished; in one that has, they are an
    alarm too.
    """
    records = stats["records"]
    ends = ("written", *SIDE_OUTPUTS, "absorbed")
    nowhere = records["in"] + records["made"] - sum(records[name] for name in ends)
    had = " + ".join(f"{count(records[k])} {k}" for k in ("in", "made") if records[k] or k == "in")
    ended = [f"{count(records[k])} {k}" for k in ends if records[k] or k == "written"]
    ended += ([f"{count(nowhere)} {'unfinished' if 'unfinished' in records else 'unaccounted'}"] if nowhere
              else [])
    return f"{had} = {' + '.join(ended)}"


def _alarms(stats: Stats) -> Iterator[RenderableType]:
    if stats["alarms"]:
        table = plain_table(show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for alarm in stats["alarms"]:
            table.add_row(alarm["level"], alarm["text"], style=STYLES[alarm["level"]])
        yield from ("", table)
