"""Blocks of JSON lines to tables: pyarrow's parser for clean blocks, line by line where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from curator.api.batch import concat_tables
from curator.io.tables.columns import Seen, common_type, conform
from curator.io.tables.json_arrow import deepest, is_inexact, read_table
from curator.io.tables.json_kinds import DEPTH_MAX, choose, decode
from curator.io.tables.lines import line_spans
from curator.io.tables.records import Failure, excerpt

_OPEN, _CLOSE = ord("{"), ord("}")


@dataclass(frozen=True)
class Parsed:
    """The good records of a block, the position of each in the file, and what is wrong with the others."""

    rows: pa.Table
    positions: np.ndarray
    failures: list[Failure]
    mixed: int = 0  # failures because of a type that does not fit, not of bad JSON


@dataclass
class JsonParser:
    """Parses the blocks of one file, or of a range of one, in order, and learns its columns on the way.

    `columns`: types known before. `lines`: the number of lines before the first block, None if nobody counted.
    """

    uri: str
    columns: dict[str, Seen]
    max_record_bytes: int
    select: Sequence[str] | None = None
    lines: int | None = 0
    _ignore: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.columns = dict(self.columns)
        if self.select is not None:
            self.columns = {name: seen for name, seen in self.columns.items() if name in self.select}
            kinds = [seen.type for seen in self.columns.values()]
            # Only with plain types: what is unknown inside an object would be ignored as well.
            self._ignore = bool(kinds) and not any(pa.types.is_nested(k) or pa.types.is_null(k) for k in kinds)

    def parse(self, data: bytes, offset: int) -> Parsed:
        """The records of whole lines that begin at `offset` in the file. Lines with nothing in them are no records."""
        starts, ends, newlines = line_spans(data)
        clean = self._looks_clean(data, starts, ends)
        rows = self._read(data, len(starts)) if clean else None
        if rows is None:
            parsed = self._line_by_line(data, offset, starts, ends, tried=clean)
        else:
            parsed = Parsed(self._finished(rows, offset), offset + starts, [])
        if self.lines is not None:
            self.lines += newlines
        return parsed

    # -- the fast way -------------------------------------------------------------------------------------------

    def _looks_clean(self, data: bytes, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Whether each line looks like one object. pyarrow would take several to a line, or one over several lines,
        and crashes the process at a lone `null` and at very deep nesting."""
        if not len(starts):
            return False
        raw = np.frombuffer(data, np.uint8)
        if not ((raw[starts] == _OPEN).all() and (raw[ends - 1] == _CLOSE).all()):
            return False
        if int((ends - starts).max()) > self.max_record_bytes:
            return False
        return deepest(raw, starts) < DEPTH_MAX

    def _read(self, data: bytes, count: int) -> pa.Table | None:
        """The table of `count` objects, None if there is anything about it to be looked at line by line."""
        known = pa.schema([(n, s.type) for n, s in self.columns.items() if not pa.types.is_null(s.type)])
        for schema in (known, None) if len(known) else (None,):
            try:
                rows = read_table(data, schema, self._ignore and schema is not None)
                if rows.num_rows != count:
                    return None
            except (pa.ArrowInvalid, UnicodeDecodeError):
                continue
            rows = self._selected(rows)
            if is_inexact(rows, data) or self._conflicts(rows):
                return None
            return rows
        return None

    def _selected(self, rows: pa.Table) -> pa.Table:
        if self.select is None:
            return rows
        return rows.select([name for name in rows.column_names if name in self.select])

    def _conflicts(self, rows: pa.Table) -> bool:
        return any(f.name in self.columns and common_type(f.type, self.columns[f.name].type) is None
                   for f in rows.schema)

    def _finished(self, rows: pa.Table, offset: int) -> pa.Table:
        """The rows with the known columns and types; what is new about them is remembered."""
        for column in rows.schema:
            seen = self.columns.get(column.name)
            widened = column.type if seen is None else common_type(seen.type, column.type)
            if widened is not None and (seen is None or not widened.equals(seen.type)):
                self.columns[column.name] = Seen(widened, self._place(0, offset))
        return conform(rows, self.columns)[0]

    # -- the slow way -------------------------------------------------------------------------------------------

    def _line_by_line(self, data: bytes, offset: int, starts: np.ndarray, ends: np.ndarray, tried: bool) -> Parsed:
        spans, records, failures = [], [], []
        for number, start, end in self._numbered(data, starts, ends):
            line = data[start:end].strip(b" \t\r")
            if not line:
                continue
            try:
                if len(line) > self.max_record_bytes:
                    raise ValueError(f"the line has {len(line):,} bytes, more than max_record_bytes "
                                     f"({self.max_record_bytes:,})")
                records.append(decode(line))
                spans.append((number, start, line))
            except ValueError as error:
                failures.append(self._failure(number, offset + start, error, line))
        lines = [line for _, _, line in spans]
        rows = self._read(b"\n".join(lines), len(lines)) if lines and (failures or not tried) else None
        mixed = 0
        if rows is None and lines:
            rows, good, more, mixed = self._chosen(spans, records, offset)
            spans, failures = good, failures + more
        positions = offset + np.array([start for _, start, _ in spans], np.int64)
        rows = pa.table({}) if rows is None else self._finished(rows, offset)
        failures.sort(key=lambda f: f.offset)
        return Parsed(rows, positions, failures, mixed)

    def _numbered(self, data: bytes, starts: np.ndarray, ends: np.ndarray):
        """Line number (None if unknown), start and end of each line."""
        number, at = self.lines, 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if number is not None:
                number, at = number + data.count(b"\n", at, start), start
            yield (None if number is None else number + 1), start, end

    def _chosen(self, spans: list, records: list, offset: int):
        """The table of the records whose types fit, their spans, the failures of the others, and how many those are."""
        if self.select is not None:  # what is wrong with the other columns does not matter
            records = [{n: v for n, v in record.items() if n in self.select} for record in records]
            spans = [(*span[:2], json.dumps(r).encode()) for span, r in zip(spans, records, strict=True)]
        places = [self._place(number, offset + start) for number, start, _ in spans]
        types, reasons = choose(records, self.columns, places)
        failures = [self._failure(*_of(spans[i], offset), TypeError(reason), spans[i][2])
                    for i, reason in reasons.items()]
        fitting = [span for i, span in enumerate(spans) if i not in reasons]
        schema = pa.schema([(n, t) for n, t in types.items() if not pa.types.is_null(t)])
        rows, good, more = self._halved(fitting, schema, offset)
        return rows, good, failures + more, len(reasons)

    def _halved(self, spans: list, schema: pa.Schema, offset: int):
        """The table of these lines; those that pyarrow refuses for reasons of its own are found by halving."""
        if not spans:
            return None, [], []
        try:
            rows = self._selected(read_table(b"\n".join(line for _, _, line in spans), schema, False))
            return rows, spans, []
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if len(spans) == 1:
                number, start = _of(spans[0], offset)
                return None, [], [self._failure(number, start, error, spans[0][2])]
        middle = len(spans) // 2
        (first, one, bad), (second, two, worse) = (self._halved(part, schema, offset)
                                                   for part in (spans[:middle], spans[middle:]))
        tables = [t for t in (first, second) if t is not None]
        return concat_tables(tables) if tables else None, one + two, bad + worse

    def _failure(self, number: int | None, start: int, error: Exception, line: bytes) -> Failure:
        named = type(error)(f"{self._place(number, start)}: {error}").with_traceback(error.__traceback__)
        return Failure(f"{self.uri}:byte={start}", start, named, excerpt(line))

    def _place(self, number: int | None, start: int) -> str:
        return f"{self.uri}:{number}" if number else f"{self.uri}:byte={start}"


def _of(span: tuple, offset: int) -> tuple[int | None, int]:
    return span[0], offset + span[1]
