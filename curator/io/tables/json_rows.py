"""Blocks of JSON lines to tables: by pyarrow's parser where each line looks like one object, else line by
line in Python.

Not by msgspec or json and `pa.array` alone, which are three to four times slower (26 for 113 MB/s of short
fields, 149 for 479 MB/s of text). What is here beside the parser keeps it from guessing dates, rounding
integers, and crashing, and says which line is bad.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.io.tables.columns import Seen, common_type, conform, leaves
from curator.io.tables.json_types import DEPTH_MAX, decode, typed
from curator.io.tables.lines import line_spans
from curator.io.tables.records import Failure, excerpt

_OPEN, _CLOSE = ord("{"), ord("}")
_EXACT_FLOAT = 2.0**53
_LONG_INTEGER = re.compile(rb"[:\[,]\s*-?\d{16,}\s*[,\]}]")


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

    `columns`: types known before. `lines`: the number of lines before the first block, None if nobody
    counted.
    """

    uri: str
    columns: dict[str, Seen]
    max_record_bytes: int
    select: Sequence[str] | None = None
    lines: int | None = 0

    def __post_init__(self) -> None:
        self.columns = {name: seen for name, seen in self.columns.items() if self.select is None
                        or name in self.select}
        kinds = [seen.type for seen in self.columns.values()]
        # Other columns are left out by the parser only where all types are plain: it would leave out what is
        # new in an object too.
        self._ignore = self.select is not None and bool(kinds) and not any(
            pa.types.is_nested(kind) or pa.types.is_null(kind) for kind in kinds)

    def parse(self, data: bytes, offset: int) -> Parsed:
        """The records of whole lines that begin at `offset` in the file. Lines with nothing in them are no
        records."""
        starts, ends, newlines = line_spans(data)
        clean = self._looks_clean(data, starts, ends)
        rows = self._read(data, len(starts)) if clean else None
        if rows is None:
            parsed = self._line_by_line(data, offset, starts, ends, tried=clean)
        else:
            parsed = Parsed(self._conformed(rows, offset), offset + starts, [])
        if self.lines is not None:
            self.lines += newlines
        return parsed

    def _looks_clean(self, data: bytes, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Whether each line looks like one object. pyarrow would take several to a line, or one over several
        lines, and crashes the process at a lone `null` and at very deep nesting."""
        raw = np.frombuffer(data, np.uint8)
        return len(starts) > 0 and bool((raw[starts]
                                         == _OPEN).all()) and bool((raw[ends - 1] == _CLOSE).all()) \
            and int((ends - starts).max()) <= self.max_record_bytes and deepest(raw, starts) < DEPTH_MAX

    def _read(self, data: bytes, count: int) -> pa.Table | None:
        """The table of `count` objects, None if there is anything about it to be looked at line by line."""
        known = pa.schema([(n, s.type) for n, s in self.columns.items() if not pa.types.is_null(s.type)])
        for schema in (known, None) if len(known) else (None,):
            try:
                rows = read_table(data, schema, self._ignore and schema is not None)
            except (pa.ArrowInvalid, UnicodeDecodeError):
                continue
            if self.select is not None:
                rows = rows.select([name for name in rows.column_names if name in self.select])
            conflict = any(f.name in self.columns and common_type(f.type, self.columns[f.name].type) is None
                           for f in rows.schema)
            return None if conflict or rows.num_rows != count or is_inexact(rows, data) else rows
        return None

    def _conformed(self, rows: pa.Table, offset: int) -> pa.Table:
        """The rows with the known columns and types; what is new about them is kept for the next block."""
        for column in rows.schema:
            seen = self.columns.get(column.name)
            widened = column.type if seen is None else common_type(seen.type, column.type)
            if widened is not None and (seen is None or not widened.equals(seen.type)):
                self.columns[column.name] = Seen(widened, f"{self.uri}:byte={offset}")
        return conform(rows, self.columns)[0]

    def _line_by_line(self, data: bytes, offset: int, starts: np.ndarray, ends: np.ndarray,
                      tried: bool) -> Parsed:
        records, lines, failures, mixed = [], [], [], 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            line = data[start:end].strip(b" \t\r")
            try:
                if len(line) > self.max_record_bytes:
                    raise ValueError(f"the line has {len(line):,} bytes, more than max_record_bytes "
                                     f"({self.max_record_bytes:,})")
                if line:
                    records.append(decode(line))
                    lines.append((start, line))
            except ValueError as error:
                failures.append(self._failure(self.located(data, start, offset), error, line))
        rows = None
        if lines and (failures or not tried):
            rows = self._read(b"\n".join(line for _, line in lines), len(lines))
        if rows is None and lines:
            if self.select is not None:  # what is wrong with the other columns does not matter
                records = [{name: value for name, value in record.items() if name in self.select}
                           for record in records]
            rows, reasons = typed(records, self.columns, lambda i: self.located(data, lines[i][0], offset)[1])
            failures += [self._failure(self.located(data, lines[i][0], offset), TypeError(reason),
                                       lines[i][1]) for i, reason in reasons.items()]
            lines = [line for i, line in enumerate(lines) if i not in reasons]
            mixed = len(reasons)
        positions = offset + np.array([start for start, _ in lines], np.int64)
        rows = self._conformed(rows, offset) if lines else pa.table({})
        return Parsed(rows, positions, sorted(failures, key=lambda f: f.offset or 0), mixed)

    def located(self, data: bytes, start: int, offset: int) -> tuple[int, str]:
        """Where in the file a line of `data` is, and how to name that place."""
        if self.lines is None:
            return offset + start, f"{self.uri}:byte={offset + start}"
        number = self.lines + data.count(b"\n", 0, start) + 1
        return offset + start, f"{self.uri}:{number}"

    def _failure(self, located: tuple[int, str], error: Exception, line: bytes) -> Failure:
        position, place = located
        named = type(error)(f"{place}: {error}").with_traceback(error.__traceback__)
        return Failure(f"{self.uri}:byte={position}", position, named, excerpt(line))


def read_table(data: bytes, schema: pa.Schema | None, ignore: bool) -> pa.Table:
    """The objects of `data` as a table. A string stays one, also where it looks like a date.

    `schema`: types of columns that are known; with `ignore` the others are left out.

    Raises:
        ArrowInvalid: it cannot be parsed as these types, or not right (pyarrow 26 makes lists of nothing but
        nulls too short). UnicodeDecodeError: a key is not UTF-8.
    """
    rows = _parse(data, schema, ignore)
    texts = pa.schema([field.with_type(_undated(field.type)) for field in rows.schema])
    if not texts.equals(rows.schema):
        dated = [field for field in texts if not field.equals(rows.schema.field(field.name))]
        others = [field for field in schema or () if field.name not in {f.name for f in dated}]
        rows = _parse(data, pa.schema([*others, *dated]), ignore).select(rows.column_names)
    rows.validate(full=True)  # pyarrow takes invalid UTF-8 as it comes
    return rows


def _parse(data: bytes, schema: pa.Schema | None, ignore: bool) -> pa.Table:
    import pyarrow.json as pj

    return pj.read_json(pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                        pj.ParseOptions(explicit_schema=schema,
                                        unexpected_field_behavior="ignore" if ignore else "infer"))


def _undated(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of times, at any depth."""
    if pa.types.is_list(kind):
        return pa.list_(_undated(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_undated(f.type)) for f in kind])
    return pa.string() if pa.types.is_timestamp(kind) else kind


def is_inexact(rows: pa.Table, data: bytes) -> bool:
    """Whether a float may stand for an integer that it cannot hold."""
    floats = (leaf for column in rows.columns for leaf in leaves(column) if pa.types.is_floating(leaf.type))
    return any((pc.max(pc.abs(leaf)).as_py() or 0) >= _EXACT_FLOAT
               for leaf in floats) and _LONG_INTEGER.search(data) is not None


def deepest(raw: np.ndarray, starts: np.ndarray) -> int:
    """How deep the deepest line can be: its opening brackets, fewer the closing ones before them.

    Brackets inside strings count as well, so that this may say too much; a line is then looked at on its own.
    """
    folded = raw | 0x20  # [ and { become {, and ] and } become }
    edges = np.append(starts, len(raw))
    brackets = np.diff(np.searchsorted(np.flatnonzero(folded == _OPEN), edges))
    suspects = (folded[edges[line]:edges[line + 1]] for line in np.flatnonzero(brackets >= DEPTH_MAX))
    return max((int(np.cumsum(np.where(line[(line == _OPEN) | (line == _CLOSE)] == _OPEN, 1, -1)).max())
                for line in suspects), default=0)
