"""CSV and TSV files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange
from curator.io.files.compression import SUFFIXES, DamagedStream, without_codec
from curator.io.files.faults import explained
from curator.io.files.folder import FileInfo, Output, open_input
from curator.io.sink import Encoder, TextSink
from curator.io.source import LineSource, failures
from curator.io.tables.columns import Seen, check_named, conform
from curator.io.tables.csv_rows import Dialect, Rows, fields, line_rows, quoted_rows
from curator.io.tables.lines import Unreadable, read_some
from curator.io.tables.plain import flat
from curator.io.tables.records import Failure, as_records, excerpt, pieces, unique_names

_PLAIN = (".csv", ".tsv", ".tab")
_HEAD_BYTES = 1 << 20
_TYPES = {"int": pa.int64(), "float": pa.float64(), "date": pa.date32(), "timestamp": pa.timestamp("us")}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(kw_only=True)
class Csv(LineSource):
    """Read CSV or TSV files with a header line, plain or compressed.

    Every column is a string, exactly as written ("007", "1e5", ""), unless `types` names its type: int,
    float, bool, date, timestamp, string, decimal(10,2) or an Arrow type; there, an empty field is null.
    `names`: the columns' names where the file has no header. `delimiter`: a comma, or a tab for `.tsv` and
    `.tab`, unless given. `quote`: fields in this character may hold delimiters and newlines; with None there
    are no such fields, and a big file is split.

    A row with too many or too few fields, with invalid UTF-8, or with a value that is not of its type leaves
    on `failed`.
    """

    # column to int, float, bool, date, timestamp, decimal(10,2); else text
    types: dict[str, str] = field(default_factory=dict)
    names: list[str] | None = None
    delimiter: str | None = None
    quote: str | None = '"'

    name = "csv"
    suffixes: ClassVar[tuple[str, ...]] = _PLAIN + tuple(p + c for p in _PLAIN for c in SUFFIXES)

    def __post_init__(self) -> None:
        super().__post_init__()
        for mark in ("delimiter", "quote"):
            value = getattr(self, mark)
            if value is not None and len(value.encode()) != 1:
                raise ValueError(f"{mark} must be one ASCII character, got {value!r}")
        for column, named in self.types.items():
            if arrow_type(named) is None:
                raise ValueError(f"types: column {column!r} has the unknown type {named!r}. Take int, float, "
                                 "bool, date, timestamp, string or decimal(10,2)")

    def splittable(self, file: FileInfo) -> bool:
        return self.quote is None and super().splittable(file)

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        header = self._header(file.uri)
        if header is None:
            return []
        other = next((d for d in ";\t|," if d != self._delimiter(file.uri) and d in header[0]), None)
        if len(header) == 1 and other is not None and self.delimiter is None:
            raise InputError(f"{file.uri} has only one column, {header[0][:80]!r}. Set delimiter: {other!r} "
                             f"if these are several, or delimiter: {self._delimiter(file.uri)!r} if not")
        wanted = self.wanted()
        return [(name, Seen(self._type(name), f"{file.uri}:1")) for name in unique_names(header)
                if wanted is None or name in wanted]

    def check_seen(self, seen: dict[str, Seen]) -> None:
        if self.select is None:
            check_named("types", self.types, seen, str(self.path))

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        header = self._header(part.uri)
        if header is None:
            return
        dialect = Dialect(unique_names(header), self.names is None, self._delimiter(part.uri), self.quote,
                          self.max_record_bytes)
        with self.opened(part) as file:
            found = line_rows(file, dialect, part.start,
                              part.stop) if self.quote is None else quoted_rows(file, dialect, self.quote)
            for rows in found:
                if isinstance(rows, Unreadable):
                    yield failures(part, [self._failure(part, rows.offset, rows.error, rows.raw)])
                else:
                    yield from self._records(part, rows, dialect)

    def _records(self, part: SourceRange, rows: Rows, dialect: Dialect) -> Iterator[Batch | Outputs]:
        table, good, reasons = fields(rows, dialect)
        wanted = self.wanted()
        columns: dict[str, pa.Array] = {}
        kept = np.ones(len(good), bool)
        for name, values in zip(table.column_names, table.columns, strict=True):
            if wanted is None or name in wanted:
                columns[name], bad = converted(pa.concat_arrays(values.chunks), self._type(name))
                kept[list(bad)] = False
                for i, what in bad.items():
                    reasons.setdefault(int(good[i]),
                                       f"column {name!r} is {what}: {excerpt(values[i].as_py())[:80]!r}")
        if kept.any():
            table = pa.table(columns) if kept.all() else pa.table(columns).filter(pa.array(kept))
            table = conform(table, self.seen)[0]
            yield from pieces(as_records(table, part.uri, rows.positions[good[kept]], self.id_column))
        if reasons:
            yield failures(part, [self._failure(part, rows.positions[i], ValueError(reason),
                                                rows.data[rows.starts[i]:rows.ends[i]])
                                  for i, reason in sorted(reasons.items())])

    def _failure(self, part: SourceRange, position: int, error: Exception, raw: bytes) -> Failure:
        place = f"{part.uri}:{'byte' if self.quote is None else 'row'}={position}"
        return Failure(place, int(position), type(error)(f"{place}: {error}"), excerpt(raw))

    def _type(self, name: str) -> pa.DataType:
        return arrow_type(self.types.get(name, "string"))

    def _delimiter(self, uri: str) -> str:
        if self.delimiter is not None:
            return self.delimiter
        return "\t" if without_codec(uri).lower().endswith((".tsv", ".tab")) else ","

    def _header(self, uri: str) -> list[str] | None:
        """The names of the columns, None for an empty file."""
        if self.names is not None:
            return self.names
        with open_input(uri, self.storage_options) as file, explained("read", uri):
            try:
                text = read_some(file, _HEAD_BYTES).decode("utf-8-sig", "replace")
            except DamagedStream:
                text = ""
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter(uri), quotechar=self.quote,
                          quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL)
        header = next((row for row in rows if row), None)
        if header is not None and any("\ufffd" in name or "\0" in name for name in header):
            raise InputError(f"{uri}: its first line is not UTF-8 text. Convert the file, for example with "
                             "iconv")
        return header


def arrow_type(named: str) -> pa.DataType | None:
    """The Arrow type that a user means, None if there is none of this name."""
    named = named.strip().lower()
    if named in _TYPES:
        return _TYPES[named]
    decimal = _DECIMAL.fullmatch(named)
    try:
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else pa.type_for_alias(named)
    except ValueError:
        return None


def converted(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Bytes as values of a type, and which of them are not, by position, with what they are instead."""
    text, bad = _cast(values, pa.string(), "not UTF-8")
    if pa.types.is_string(kind):
        return text, bad
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    found, more = _cast(text, kind, f"not a value of type {kind}")
    return found, more | bad


def _cast(values: pa.Array, kind: pa.DataType, what: str) -> tuple[pa.Array, dict[int, str]]:
    bad = dict.fromkeys(_refused(values, kind, 0), what)
    if bad:
        good = np.ones(len(values), bool)
        good[list(bad)] = False
        values = pc.if_else(pa.array(good), values, pa.scalar(None, values.type))
    return values.cast(kind), bad


def _refused(values: pa.Array, kind: pa.DataType, at: int) -> list[int]:
    """The positions of the values that cannot be cast, found by halving."""
    try:
        values.cast(kind)
        return []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return [at]
    middle = len(values) // 2
    return _refused(values[:middle], kind, at) + _refused(values[middle:], kind, at + middle)


@dataclass(kw_only=True)
class ToCsv(TextSink):
    """Write CSV files with a header line, `.csv` unless `compression` says `gz` or `zst`.

    CSV has no types: null becomes an empty field, nested values JSON text, dates ISO 8601 text, binary values
    base64. A column that appears later begins a new file.
    """

    delimiter: str = ","  # one character; with a tab files are called `.tsv`

    name = "to_csv"
    ending: ClassVar[str] = ".csv"
    buffer_bytes: ClassVar[int] = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter.encode()) != 1:
            raise ValueError(f"delimiter must be one ASCII character, got {self.delimiter!r}")

    def suffix(self) -> str:
        return super().suffix() if self.delimiter != "\t" else super().suffix().replace(".csv", ".tsv")

    def prepare(self, rows: pa.Table) -> pa.Table:
        return flat(rows)

    def start(self, output: Output, schema: pa.Schema) -> CsvFile:
        return CsvFile(output, schema, self.delimiter)


class CsvFile(Encoder):
    def __init__(self, output: Output, schema: pa.Schema, delimiter: str) -> None:
        import pyarrow.csv as pa_csv

        options = pa_csv.WriteOptions(delimiter=delimiter)
        self._writer = pa_csv.CSVWriter(pa.PythonFile(output, mode="w"), schema, write_options=options)

    def write(self, rows: pa.Table) -> int:
        if rows.num_columns == 1 and rows.column(0).null_count:  # a line without anything would be no row
            rows = rows.set_column(0, rows.column_names[0],
                                   pc.fill_null(rows.column(0).cast(pa.string()), ""))
        self._writer.write_table(rows)
        return rows.nbytes

    def finish(self) -> None:
        self._writer.close()
