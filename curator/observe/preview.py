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
from curator.observe.report.funnel import STYLES
from curator.observe.report.terminal import show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

IDENTITY = ("id", "source", "parent")
EXPLANATIONS = {"dropped": "reason", "duplicate": "duplicate_of", "failed": "error"}
NO_CONTENT = (*IDENTITY, *EXPLANATIONS.values(), "traceback")
TEXT_MIN = 24  # characters from which a string gets a line of its own
LABEL_MAX = 32  # characters; longer ones, and those with a space, are texts
CONTEXT = 16  # characters shown before the first change of a text
Row = Mapping[str, Any]


@dataclass(frozen=True)
class StagePreview:
    """What one stage did. `outputs`: the rows it answered with, by port. `before`: the rows it took, None at
    a source. `error`: the first that it raised, or reported of a row that failed.

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
        return failed > 0 and failed >= (failed if self.before is None
                                         else self.before.num_rows) and len(self.outputs) == 1


def show_preview(stages: Sequence[StagePreview], file: IO[str] | None = None, records_max: int = 5) -> None:
    """Print what each stage did to at most `records_max` records a port; changed text is marked.

    On a terminal what went is red and what came green; in plain text they stand in `[-...-]` and `{+...+}`.
    """
    show(lambda console: (line for stage in stages for line in _stage(stage, console, records_max)), file)


def _stage(stage: StagePreview, console: Console, records_max: int) -> Iterator[Text | str]:
    from rich.text import Text

    ports = ", ".join(f"{count(table.num_rows)} {port}"
                      for port, table in stage.outputs.items()) or "nothing out"
    taken = "" if stage.before is None else f"{count(stage.before.num_rows)} in, "
    yield Text.assemble((stage.name, "bold"), f"  {taken}{ports}")
    if stage.error is not None:
        yield Text(f"  {stage.error}", style=STYLES["failed"])
    before = {} if stage.before is None else {row["id"]: row for row in _rows(stage.before)}
    for port, table in stage.outputs.items():
        unchanged = 0
        for row in _rows(table.slice(0, records_max)):
            lines = list(_record(row, before.get(row.get("id")) or before.get(row.get("parent")) or {}, port,
                                 console))
            if len(lines) > 1 or port in EXPLANATIONS:
                yield from lines
            else:
                unchanged += 1
        for rows, what in ((unchanged, "unchanged"), (table.num_rows - records_max, "more not shown")):
            if rows > 0:
                yield Text(f"  {port}: {count(rows)} {what}", style="dim")
    yield ""


def _rows(table: pa.Table) -> list[Row]:
    """The rows as plain values, without the engine's columns."""
    return table.select([name for name in table.column_names if not name.startswith("_")]).to_pylist()


def _record(row: Row, before: Row, port: str, console: Console) -> Iterator[Text]:
    """The lines about one record: where it went and why, then what changed in it."""
    from rich.text import Text

    head = Text.assemble("  ", (shorten(str(row.get("id")), console.width // 2, keep_end=True), "cyan"))
    if port in EXPLANATIONS:
        head.append(f"  {port}: {shorten(str(row.get(EXPLANATIONS[port])), console.width)}",
                    style=STYLES[port])
    elif port != "out":
        head.append(f"  {port}", style="bold")
    head.truncate(console.width, overflow="ellipsis")
    yield head
    if port not in EXPLANATIONS:
        yield from _changes(row, before, console)
        return
    texts = [value for name, value in row.items() if isinstance(value, str) and name not in NO_CONTENT
             and not _is_label(value)]
    content = shorten(max(texts, key=len), console.width
                      - 4) if texts else shorten(row.get("source") or "", console.width - 4, True)
    if content:
        yield Text(f"    {content}", style="dim")


def _is_label(value: str) -> bool:
    """A format, a language, an id: it does not tell which record this is."""
    return len(value) <= LABEL_MAX and not any(c.isspace() for c in value)


def _changes(row: Row, before: Row, console: Console) -> Iterator[Text]:
    """Changed and new texts a line each, then all other new values together, then the columns that went."""
    from rich.text import Text

    values = []
    for name, value in row.items():
        if name in IDENTITY or (name in before and before[name] == value):
            continue
        old = before.get(name)
        if isinstance(value, str) and isinstance(old, str) and max(len(value), len(old)) >= TEXT_MIN:
            yield _difference(name, old, value, console)
        elif isinstance(value, str) and len(value) >= TEXT_MIN:
            text = (f"    + {name}: {shorten(value, console.width - len(name) - 28)} ({count(len(value))} "
                    "characters)")
            yield Text(text, style="green")
        else:
            values.append(f"{name}={_value(old)}->{_value(value)}" if name in before
                          else f"{name}={_value(value)}")
    yield from _wrapped("    + ", values, console.width, "green")
    yield from _wrapped("    - ", [name for name in before if name not in row], console.width, "red")


def _difference(name: str, old: str, new: str, console: Console) -> Text:
    """One line: how the length changed, and the text around the first change, word for word as far as there
    is room."""
    from rich.text import Text

    line = Text(f"    ~ {name}: {count(len(old))} -> {count(len(new))} characters  ")
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
                min(len(old), len(new)))
    start = max(0, same - CONTEXT)
    line.append("..." if start else "")
    first, second = (re.findall(r"\w+|\s+|.", text[start:start + 2 * console.width]) for text in (old, new))
    for change, i, j, k, n in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        went, came = _visible("".join(first[i:j])), _visible("".join(second[k:n]))
        if change == "equal":
            line.append(came)
            continue
        if went:
            line.append(went if console.is_terminal else f"[-{went}-]", style="red strike")
        if came:
            line.append(came if console.is_terminal else f"{{+{came}+}}", style="green")
    line.truncate(console.width, overflow="ellipsis")
    return line


def _visible(text: str) -> str:
    """The text in one line, as long as it was: line ends and tabs are spaces, other control characters
    dots."""
    return "".join(" " if c.isspace() else c if c.isprintable() else "." for c in text)


def _value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case float():
            return f"{value:.4g}"
        case str():
            return repr(_visible(shorten(value, TEXT_MIN)))
        case bytes():
            return f"<{size(len(value))}>"
        case list() | dict():
            return shorten(repr(value[:4] if isinstance(value, list) else value), 40)
    return str(value)


def _wrapped(lead: str, words: Sequence[str], width: int, style: str) -> Iterator[Text]:
    """Words separated by commas, broken between words only."""
    from rich.text import Text

    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) < width:  # a comma may follow
            lines[-1] += f", {word}"
        else:
            lines.append((" " * len(lead) if lines else lead) + word)
    yield from (Text(line + ("," if at < len(lines) - 1 else ""), style=style)
                for at, line in enumerate(lines))
