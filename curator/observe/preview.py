"""What each stage does to a few records: before and after, and who dropped what and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from curator.api.errors import FirstError
from curator.api.format import count, shorten, size
from curator.observe.report.funnel import PLAIN_WIDTH, STYLES, WIDTH_MAX

if TYPE_CHECKING:
    from rich.text import Text

IDENTITY = ("id", "source", "parent")
EXPLANATIONS = {"dropped": "reason", "duplicate": "duplicate_of", "failed": "error"}
UNTOLD = (*IDENTITY, *EXPLANATIONS.values(), "traceback")  # no part of what a bad record says
TEXT_MIN = 24  # characters from which a string gets a line of its own
LABEL_MAX = 32  # characters; longer ones, and those with a space, are texts
CONTEXT = 16  # characters shown before the first change of a text
Row = Mapping[str, Any]


@dataclass(frozen=True)
class StagePreview:
    """What one stage did. `outputs`: the rows it answered with, by port. `before`: the rows it took, None at a source. `error`:
    the first that it raised, or told of a row that failed.

    A row of the output is matched to the row before by `id`, a child by its `parent`.
    """

    name: str
    outputs: Mapping[str, pa.Table]
    before: pa.Table | None = None
    error: FirstError | None = None

    @property
    def all_failed(self) -> bool:
        """Every row that it was given, or read, has failed."""
        failed = self.outputs["failed"].num_rows if "failed" in self.outputs else 0
        return failed > 0 and failed >= (failed if self.before is None else self.before.num_rows) and len(self.outputs) == 1


def show_preview(stages: Sequence[StagePreview], file: IO[str] | None = None, records_max: int = 5) -> None:
    """Print what each stage did to at most `records_max` records a port; changed text is marked.

    On a terminal what went is red and what came green; in plain text they stand in `[-...-]` and `{+...+}`.
    """
    from rich.console import Console

    console = Console(file=file, highlight=False)
    width = min(console.width, WIDTH_MAX) if console.is_terminal else PLAIN_WIDTH
    for stage in stages:
        for line in render(stage, width, records_max, marks=not console.is_terminal):
            console.print(line, width=width, soft_wrap=False)
        console.print()


def render(stage: StagePreview, width: int = PLAIN_WIDTH, records_max: int = 5, marks: bool = True) -> Iterator[Text]:
    """The lines about one stage."""
    from rich.text import Text

    ports = ", ".join(f"{count(table.num_rows)} {port}" for port, table in stage.outputs.items()) or "nothing out"
    taken = "" if stage.before is None else f"{count(stage.before.num_rows)} in, "
    yield Text.assemble((stage.name, "bold"), f"  {taken}{ports}")
    if stage.error is not None:
        yield Text(f"  {stage.error}", style=STYLES["failed"])
    before = {} if stage.before is None else _by_id(stage.before)
    for port, table in stage.outputs.items():
        unchanged = 0
        for row in _rows(table.slice(0, records_max)):
            lines = list(_record(row, before.get(row.get("id")) or before.get(row.get("parent")), port, width, marks))
            if len(lines) > 1 or port in EXPLANATIONS:
                yield from lines
            else:
                unchanged += 1
        if unchanged:
            yield Text(f"  {port}: {count(unchanged)} unchanged", style="dim")
        if table.num_rows > records_max:
            yield Text(f"  {port}: {count(table.num_rows - records_max)} more not shown", style="dim")


def _by_id(table: pa.Table) -> dict[str, Row]:
    return {row["id"]: row for row in _rows(table)}


def _rows(table: pa.Table) -> list[Row]:
    """The rows as plain values, without the engine's columns. Of binary values only the length, they are not shown."""
    columns = {}
    for name in table.column_names:
        if name.startswith("_"):
            continue
        values = table.column(name).to_pylist()
        columns[name] = [_Blob(v) if isinstance(v, bytes) else v for v in values]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class _Blob(bytes):
    """Bytes that show as their size."""

    def __str__(self) -> str:
        return f"<{size(len(self))}>"


def _record(row: Row, before: Row | None, port: str, width: int, marks: bool) -> Iterator[Text]:
    """The lines about one record: where it went and why, then what changed in it."""
    from rich.text import Text

    head = Text.assemble("  ", (shorten(str(row.get("id")), width // 2, keep_end=True), "cyan"))
    if port in EXPLANATIONS:
        why = shorten(str(row.get(EXPLANATIONS[port])), width)
        head.append(f"  {port}: {why}", style=STYLES[port])
    elif port != "out":
        head.append(f"  {port}", style="bold")
    head.truncate(width, overflow="ellipsis")
    yield head
    if port in EXPLANATIONS:
        texts = [value for name, value in row.items() if isinstance(value, str) and name not in UNTOLD and not _label(value)]
        if texts:
            yield Text(f"    {shorten(max(texts, key=len), width - 4)}", style="dim")
        elif row.get("source"):
            yield Text(f"    {shorten(str(row['source']), width - 4, keep_end=True)}", style="dim")
        return
    yield from _changes(row, before or {}, width, marks)


def _label(value: str) -> bool:
    """A format, a language, an id: it does not tell which record this is."""
    return len(value) <= LABEL_MAX and not any(c.isspace() for c in value)


def _changes(row: Row, before: Row, width: int, marks: bool) -> Iterator[Text]:
    """Changed and new texts a line each, then all other new values together, then the columns that went."""
    from rich.text import Text

    values = []
    for name, value in row.items():
        if name in IDENTITY or (name in before and before[name] == value):
            continue
        old = before.get(name)
        if isinstance(value, str) and isinstance(old, str) and max(len(value), len(old)) >= TEXT_MIN:
            yield _difference(name, old, value, width, marks)
        elif isinstance(value, str) and len(value) >= TEXT_MIN:
            text = f"    + {name}: {shorten(value, width - len(name) - 28)} ({count(len(value))} characters)"
            yield Text(text, style="" if marks else "green")
        else:
            values.append(f"{name}={_value(old)}->{_value(value)}" if name in before else f"{name}={_value(value)}")
    if values:
        yield from _wrapped("    + ", values, width, "" if marks else "green")
    gone = [name for name in before if name not in row]
    if gone and row:
        yield from _wrapped("    - ", gone, width, "" if marks else "red")


def _difference(name: str, old: str, new: str, width: int, marks: bool) -> Text:
    """One line: how the length changed, and the text around the first change, word for word as far as there is room."""
    from rich.text import Text

    line = Text(f"    ~ {name}: {count(len(old))} -> {count(len(new))} characters  ")
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - CONTEXT)
    line.append("..." if start else "")
    first, second = (re.findall(r"\w+|\s+|.", text[start:start + 2 * width]) for text in (old, new))
    for change, i, j, k, n in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        went, came = _visible("".join(first[i:j])), _visible("".join(second[k:n]))
        if change == "equal":
            line.append(came)
            continue
        if went:
            line.append(f"[-{went}-]" if marks else went, style="red strike")
        if came:
            line.append(f"{{+{came}+}}" if marks else came, style="green")
    line.truncate(width, overflow="ellipsis")
    return line


def _visible(text: str) -> str:
    """The text in one line, as long as it was: line ends and tabs are spaces, other control characters dots."""
    return "".join(" " if c.isspace() else c if c.isprintable() else "." for c in text)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return repr(_visible(shorten(value, TEXT_MIN)))
    if isinstance(value, (list, dict)):
        return f"{shorten(repr(value[:4] if isinstance(value, list) else value), 40)}"
    return "null" if value is None else str(value)


def _wrapped(lead: str, words: Sequence[str], width: int, style: str) -> Iterator[Text]:
    """Words separated by commas, broken between words only."""
    from rich.text import Text

    line = lead
    for index, word in enumerate(words):
        word += ", " if index < len(words) - 1 else ""
        if len(line) + len(word.rstrip()) > width and line.strip() != lead.strip():
            yield Text(line.rstrip(), style=style)
            line = " " * len(lead)
        line += word
    yield Text(line, style=style)
