"""What failed in a run, by stage and error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from curator.api.errors import innermost
from curator.results.output import RunOutput
from curator.results.places import UNIT, ledgers
from curator.run.folder.ledger_files import to_record, unit_of

ERRORS_MAX = 200_000  # different messages that are looked at, the most frequent first
# What differs between two messages that say the same; the first that fits counts.
_FOLDED = (
    (re.compile(r"\b[a-zA-Z][\w+.-]*://[^\s'\"<>]*[^\s'\"<>.,:;)]"), "<url>"),
    (re.compile(r"(?<![\w<>/])(?:[A-Za-z]:)?(?:[/\\][\w.~@+-]+){2,}[/\\]?"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b0x[0-9a-fA-F]+\b|"
                r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "<id>"),
    (re.compile(r"(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)\"[^\"\n]*\"(?!\w)"), "<text>"),
    (re.compile(r"(?<![\w<])-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?"), "<n>"),
)
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?\n'
                    r"(?: {4}(?P<code>.*))?", re.M)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Records that failed alike. `pattern`: the error, with what differs folded; `text`: a piece of it that
    all have, to find them by. `first`, `last`: the labels of units. `example`: id, source, error and
    traceback of a record. `line`: the last line of its traceback in the user's own code, else in a
    library."""

    stage: str
    pattern: str
    count: int
    units: int
    first: str
    last: str
    example: dict[str, str | None] = field(default_factory=dict)
    line: str = ""
    text: str = ""


def failures(output: RunOutput) -> list[Failure]:
    """What lies in `failed/`, by stage in the order of the pipeline, then by frequency.

    Raises:
        CuratorError: its files cannot be read.
    """
    if not any(place.kind == "failed" for place in output.places):
        return []
    with output.connect() as db:
        found = db.execute(
            "SELECT _stage, coalesce(error, '') AS error, count(*) AS n, arg_min(id, id) AS id, "
            "arg_min(source, id) AS source, arg_min(traceback, id) AS traceback, "
            f"list(DISTINCT regexp_extract(_file, '{UNIT}', 1)) AS units FROM records "
            f"WHERE _place = 'failed' GROUP BY ALL ORDER BY n DESC, error LIMIT {ERRORS_MAX}").fetchall()
    groups: dict[tuple[str, str], list[tuple]] = {}
    for row in found:
        groups.setdefault((row[0], folded(row[1], row[3], row[4])), []).append(row)
    labels = _labels(output, {unit for row in found for unit in row[6]})
    order = {name: at for at, name in enumerate(output.order())}
    made = [_failure(stage, pattern, rows, labels) for (stage, pattern), rows in groups.items()]
    return sorted(made, key=lambda one: (order.get(one.stage, len(order)), -one.count, one.pattern))


def folded(error: str, *names: str | None) -> str:
    """A message without what differs from record to record: numbers, ids, paths, what stands in quotation
    marks, and `names` (id and source)."""
    for name in filter(None, names):
        error = error.replace(name, "<record>") if len(name) > 2 else error
    for pattern, word in _FOLDED:
        error = pattern.sub(word, error)
    return error


def own_line(traceback: str) -> str:
    """The last line of a traceback in nobody's library, else in a library: file, line, function and code."""
    frames = list(_FRAME.finditer(traceback))[::-1]
    at = innermost([frame["file"] for frame in frames])
    if at is None:
        return ""
    frame = frames[at]
    of = f" in {frame['function']}" if frame["function"] else ""
    return f"{frame['file']} line {frame['line']}{of}: {(frame['code'] or '').strip()}".rstrip(": ")


def _failure(stage: str, pattern: str, rows: list[tuple], labels: dict[str, str]) -> Failure:
    _, error, _, identity, source, traceback, _ = rows[0]
    units = sorted({labels.get(unit, unit) for row in rows for unit in row[6]})
    plain = "".join(c if c.isprintable() else "<n>" for c in pattern)
    pieces = re.split(r"<(?:record|url|path|id|text|n)>", plain)
    return Failure(stage=stage, pattern=pattern, count=sum(row[2] for row in rows), units=len(units),
                   first=units[0], last=units[-1], line=own_line(traceback or ""),
                   example={"id": identity, "source": source, "error": error, "traceback": traceback},
                   text=max((p.strip(" ()[]{}:;,.") for p in pieces), key=len) if pieces[1:] else plain)


def _labels(output: RunOutput, units: set[str]) -> dict[str, str]:
    """What people call units: the file that was read."""
    found: dict[str, str] = {}
    for ledger in ledgers(output.folder):
        for _, _, line in ledger.units():
            if unit_of(line) in units:
                record = to_record(line)
                found[record.unit] = record.label
        if units <= found.keys():
            break
    return found
