"""The funnel of a run on the terminal: what came in, what each stage kept, where the rest went and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from curator.api.format import count, duration, plural, rate, share, short_path, size
from curator.observe.report.graph import MAIN, SIDE_OUTPUTS, Line, Stage, kept, lines, ports, takers

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH_MAX = 100  # wider, and the eye loses the line between a name and its number
PLAIN_WIDTH = 80
STYLES = {"dropped": "yellow", "duplicate": "magenta", "failed": "red", "absorbed": "dim",
          "error": "bold red", "warning": "yellow", "note": "dim"}
Stats = Mapping[str, Any]


def show_funnel(stats: Stats, file: IO[str] | None = None, reasons_max: int = 8) -> None:
    """Print the funnel: in colour on a terminal, as plain text of 80 columns elsewhere. `file` None is stdout.

    Of each stage's reasons the `reasons_max` most frequent are shown, and how many more there are.
    """
    from rich.console import Console

    console = Console(file=file, highlight=False)
    width = min(console.width, WIDTH_MAX) if console.is_terminal else PLAIN_WIDTH
    with console.capture() as captured:
        for part in render(stats, width, reasons_max):
            console.print(part, width=width, markup=False)
    text = captured.get()
    if not console.is_terminal:  # tables are padded with spaces, which are noise in a log
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)
    console.file.flush()


def render(stats: Stats, width: int = PLAIN_WIDTH, reasons_max: int = 8) -> list[RenderableType]:
    """The parts of the funnel as rich renderables, top to bottom."""
    parts: list[RenderableType] = ["", _funnel(stats, reasons_max), "", *_files(stats, width)]
    return [*parts, *_summary(stats), *_alarms(stats), ""]


def reasons_of(stage: Stage, most: int) -> tuple[list[tuple[str, int]], int, int]:
    """The `most` frequent reasons with their rows, how many more there are, and those others' rows."""
    fired = sorted(((reason, n) for reason, n in stage["dropped"].items() if n), key=lambda item: (-item[1], item[0]))
    shown = fired if len(fired) <= most + 1 else fired[:most]
    rest = fired[len(shown):]
    return shown, len(rest), sum(n for _, n in rest)


def _funnel(stats: Stats, reasons_max: int) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="dim", show_edge=False, expand=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in ("records", "share", "time", "rows/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    records, busy = stats["records"], sum(s["busy_s"] for s in stats["stages"])
    table.add_row("records in", count(records["in"]), "", "", "", style="bold")
    taken = takers(stats["stages"])
    before = None
    for line in lines(stats["stages"]):
        for cells, style in _rows(line, before, taken, busy, reasons_max):
            table.add_row(*cells, style=style)
        before = line
    total = "" if records["made"] else share(records["written"], records["in"])
    table.add_row("records written", count(records["written"]), total, "", "", style="bold")
    return table


Rows = Iterator[tuple[tuple[str, ...], str]]  # the cells of a line of the table, and its style


def _rows(line: Line, before: Line | None, taken: Mapping[tuple[str, str], Sequence[str]], busy: float,
          reasons_max: int) -> Rows:
    stage, rows = line.stage, line.stage["in"]
    indent = "  " * line.depth
    if line.port is not None:
        n = ports(stage).get(line.port, 0)
        to = ", ".join(taken[stage["name"], line.port])
        yield (f"{indent}  > {line.port} to {to}", count(n), share(n, rows), "", ""), "cyan"
        return
    origin = _origin(stage, before)
    yield ((f"{indent}{stage['name']}{origin}", count(kept(stage)), share(kept(stage), rows + stage["made"]),
            share(stage["busy_s"], busy), rate(stage["rows_per_s"])), "")
    if stage["made"]:
        yield (f"{indent}    made", f"+{count(stage['made'])}", "", "", ""), "dim"
    for ending, reason, n in _losses(stage, reasons_max):
        text = f"{indent}    {ending}{': ' if reason else ''}{reason}"
        yield (text, f"-{count(n)}", share(n, rows), "", ""), STYLES[ending]
    for text in stage.get("lines", ()):
        yield (f"{indent}    {text}", "", "", "", ""), "dim"


def _losses(stage: Stage, reasons_max: int) -> Iterator[tuple[str, str, int]]:
    shown, more, rest = reasons_of(stage, reasons_max)
    for reason, n in shown:
        yield "dropped", reason, n
    if more:
        yield "dropped", plural(more, "more reason"), rest
    for ending in ("duplicate", "failed", "absorbed"):
        if stage[ending]:
            yield ending, "", stage[ending]


def _origin(stage: Stage, before: Line | None) -> str:
    """Where a stage's rows come from, when that is not the line above it."""
    above = None if before is None else (before.stage["name"], before.port or MAIN)
    ends = [tuple(end) for end in stage["after"]]
    if not ends or ends == [above]:
        return ""
    return " from " + ", ".join(name if port == MAIN else f"{name} {port}" for name, port in ends)


def _files(stats: Stats, width: int) -> list[RenderableType]:
    """Where the rows lie: folders below the run's own are named from there."""
    from rich.table import Table
    from rich.text import Text

    groups = stats["outputs"]
    parts: list[RenderableType] = [Text(f"run in {stats['out']}", overflow="fold")] if stats["out"] else []
    if not groups:
        return parts
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    for group in groups:
        style = STYLES.get(group["port"], "bold")
        place = short_path(inside(group["folder"], stats["out"]), width - 46)
        table.add_row(group["port"], place, plural(group["files"], "file"), count(group["rows"]),
                      size(group["size_bytes"]), style=style)
    return [*parts, table, ""]


def inside(path: str, out: str) -> str:
    """The path as seen from the run's folder; unchanged when it is the folder itself or lies elsewhere."""
    below = path.removeprefix(out.rstrip("/") + "/")
    return below or path


def _summary(stats: Stats) -> Iterator[RenderableType]:
    from rich.text import Text

    records, units, seconds = stats["records"], stats["units"], stats["seconds"]
    speed = f", {rate(records['in'] / seconds)} records/s" if seconds and records["in"] else ""
    skipped = f" ({count(units['skipped'])} done before)" if units["skipped"] else ""
    style = {"finished": "bold green", "stopped": "bold yellow"}.get(stats["status"], "bold red")
    yield Text.assemble((f"{stats['name']} {stats['status']}", style), f" in {duration(seconds)}{speed}; "
                        f"{count(units['done'])} of {plural(units['total'], 'unit')}{skipped}")
    if stats["message"]:
        yield Text(stats["message"])
    yield Text(balance(stats))
    if stats["limit"]:
        yield Text(f"limit: {stats['limit']}")


def balance(stats: Stats) -> str:
    """The accounting in a line: `635 in = 400 written + 220 dropped + 15 failed`. What is 0 is left out.

    Rows that are nowhere are those under way in a run that has not finished; in one that has, they are an alarm too.
    """
    records = stats["records"]
    ends = ("written", *SIDE_OUTPUTS, "absorbed")
    nowhere = records["in"] + records["made"] - sum(records[name] for name in ends)
    had = " + ".join(f"{count(records[k])} {k}" for k in ("in", "made") if records[k] or k == "in")
    ended = [f"{count(records[k])} {k}" for k in ends if records[k] or k == "written"]
    ended += [f"{count(nowhere)} {'unfinished' if 'unfinished' in records else 'unaccounted'}"] if nowhere else []
    return f"{had} = {' + '.join(ended)}"


def _alarms(stats: Stats) -> list[RenderableType]:
    from rich.table import Table

    if not stats["alarms"]:
        return []
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for alarm in stats["alarms"]:
        table.add_row(alarm["level"], alarm["text"], style=STYLES[alarm["level"]])
    return ["", table]
