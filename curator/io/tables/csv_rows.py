"""The rows of CSV text as columns of bytes, each row with its position, and the rows that are none."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from curator.io.files.compression import DamagedStream
from curator.io.tables.lines import BLOCK_BYTES, RETURN, Block, line_spans, read_blocks, read_some
from curator.io.tables.records import EXCERPT, Failure, excerpt, unique_names


@dataclass(frozen=True)
class Dialect:
    """How a file is written. `names`: of the columns. `header`: the file begins with them."""

    names: Sequence[str]
    header: bool
    delimiter: str
    quote: str | None
    max_record_bytes: int


@dataclass(frozen=True)
class Rows:
    """Good rows, all columns of bytes; `positions`: row numbers in the file, or bytes; `failures`: the others."""

    table: pa.Table
    positions: np.ndarray
    failures: list[Failure]


def stream_rows(reopen: Callable[[], BinaryIO], uri: str, dialect: Dialect) -> Iterator[Rows]:
    """The rows of a whole file whose fields may hold newlines. The first row after the header has the position 1."""
    stream = _Stream(uri, dialect)
    for block_bytes in sorted({min(BLOCK_BYTES, dialect.max_record_bytes), dialect.max_record_bytes}):
        with reopen() as file:
            yield from stream.rows(file, block_bytes)
        if not stream.stuck:
            return
    place = f"{uri}:row={stream.done + 1}"
    error = ValueError(f"{place}: the row has more than max_record_bytes ({dialect.max_record_bytes:,}), for example "
                       "because of a quote that is never closed. The rest of the file cannot be read")
    yield Rows(pa.table({}), np.empty(0, np.int64), [Failure(place, stream.done + 1, error)])


class _Stream:
    """Reads a file from its beginning, maybe twice: a row that is bigger than a block needs bigger blocks."""

    def __init__(self, uri: str, dialect: Dialect) -> None:
        self._uri, self._dialect = uri, dialect
        self.done = self.told = 0  # numbers of the last good row that was given out, and of the last bad one
        self.stuck = False  # at a row that is bigger than a block

    def rows(self, file: BinaryIO, block_bytes: int) -> Iterator[Rows]:
        self.stuck = False
        source = _Watched(file, self._dialect.quote)
        invalid: list[tuple[int, Any]] = []  # pyarrow tells them before it gives the block they are in; not given out yet
        bad: list[int] = []  # those behind which good rows may still come, or between them
        held: tuple[pa.Table, np.ndarray] | None = None  # the newest rows: the last of them may turn out to be cut off
        number = 1
        try:
            for table in _batches(source, self._dialect, block_bytes, invalid):
                bad += [n for n, _ in invalid]
                if held is not None or invalid:
                    yield self._given(*(held or (table.slice(0, 0), np.empty(0, np.int64))), invalid)
                held = table, _numbers(number, len(table), bad)
                number, bad = _behind(int(held[1][-1]) + 1 if len(table) else number, bad)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            self.stuck = True
        table, numbers = held or (pa.table({}), np.empty(0, np.int64))
        if self.stuck:
            yield self._given(table, numbers, invalid)
        else:
            yield self._last(table, numbers, invalid, source)

    def _given(self, table: pa.Table, numbers: np.ndarray, invalid: list) -> Rows:
        """The rows, and the bad ones, that were not given out already."""
        failures = [self._invalid(n, row) for n, row in invalid if n > self.told]
        self.told = max(self.told, *(n for n, _ in invalid), 0)
        invalid.clear()
        fresh = int(np.searchsorted(numbers, self.done, side="right"))
        self.done = max(self.done, int(numbers[-1]) if len(numbers) else 0)
        return Rows(table.slice(fresh), numbers[fresh:], failures)

    def _last(self, table: pa.Table, numbers: np.ndarray, invalid: list, source: _Watched) -> Rows:
        """The end of the file: a damage or an open quote may have cut its last row off."""
        reason = source.damage
        cut = reason is not None and not source.at_row_end
        if reason is None and source.open_quote and any(b"\n" in (c[-1].as_py() or b"") for c in table.columns):
            reason, cut = ValueError("a quote is opened and never closed"), True
        rows = self._given(table, numbers, invalid)
        if reason is None:
            return rows
        kept = len(rows.table) - (1 if cut and len(rows.table) else 0)
        raw = b"" if kept == len(rows.table) else self._dialect.delimiter.encode().join(
            c[-1].as_py() for c in rows.table.columns)
        number = self.done if kept < len(rows.table) else self.done + 1
        place = f"{self._uri}:row={number}"
        error = type(reason)(f"{place}: {reason}")
        return Rows(rows.table.slice(0, kept), rows.positions[:kept],
                    [*rows.failures, Failure(place, number, error, excerpt(raw))])

    def _invalid(self, number: int, row: Any) -> Failure:
        place = f"{self._uri}:row={number}"
        error = ValueError(f"{place}: {row.actual_columns} fields where {row.expected_columns} are expected")
        return Failure(place, number, error, row.text)


class _Watched(io.RawIOBase):
    """A file for pyarrow that ends at a damage, and knows whether it ended inside a row."""

    def __init__(self, file: BinaryIO, quote: str | None) -> None:
        self._file, self._quote = file, (quote or "").encode()
        self._quotes, self._end = 0, b"\n"
        self.damage: DamagedStream | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = read_some(self._file, size)
        except DamagedStream as error:
            self.damage = error
            return b""
        if data:
            self._quotes += data.count(self._quote) if self._quote else 0
            self._end = data[-1:]
        return data

    @property
    def open_quote(self) -> bool:
        return self._quotes % 2 == 1

    @property
    def at_row_end(self) -> bool:
        return self._end == b"\n" and not self.open_quote


def _batches(source: _Watched, dialect: Dialect, block_bytes: int, invalid: list) -> Iterator[pa.Table]:
    """pyarrow's reader, every column as bytes; rows with the wrong number of fields go to `invalid`, with their number."""
    import pyarrow.csv as pc

    def skip(row: Any) -> str:
        invalid.append((row.number - (1 if dialect.header else 0), row._replace(text=row.text[:EXCERPT])))
        return "skip"

    reader = pc.open_csv(
        pa.PythonFile(source, mode="r"),
        pc.ReadOptions(use_threads=False, block_size=block_bytes, column_names=None if dialect.header else dialect.names),
        pc.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote or False, newlines_in_values=True,
                        invalid_row_handler=skip),
        pc.ConvertOptions(column_types={name: pa.binary() for name in dialect.names}, check_utf8=False))
    for batch in reader:
        table = pa.Table.from_batches([batch])
        yield table.rename_columns(unique_names(table.column_names))


def _numbers(first: int, count: int, invalid: list[int]) -> np.ndarray:
    """The numbers of `count` good rows from `first` on, between which the invalid ones lie."""
    bad = np.array(sorted(n for n in invalid if n >= first), np.int64)
    span = count
    while (more := count + int((bad < first + span).sum())) > span:
        span = more
    return np.setdiff1d(np.arange(first, first + span), bad)


def _behind(number: int, bad: list[int]) -> tuple[int, list[int]]:
    """The least number that the next good row can have, and the bad ones from there on."""
    bad = sorted(n for n in bad if n >= number)
    run = next((i for i, n in enumerate(bad) if n != number + i), len(bad))
    return number + run, bad[run:]


# -- rows that are lines -----------------------------------------------------------------------------------------


def line_rows(file: BinaryIO, uri: str, dialect: Dialect, start: int, stop: int | None) -> Iterator[Rows]:
    """The rows that begin in a byte range of a file without quoted fields: each is a line. Positions are bytes."""
    header = dialect.header and start == 0
    for block in read_blocks(file, start, stop, max_line_bytes=dialect.max_record_bytes):
        if not isinstance(block, Block):
            place = f"{uri}:byte={block.offset}"
            failure = Failure(place, block.offset, block.error, excerpt(block.raw))
            yield Rows(pa.table({}), np.empty(0, np.int64), [failure])
            continue
        starts, ends, _ = line_spans(block.data)
        if header and len(starts):
            starts, ends, header = starts[1:], ends[1:], False
        if len(starts):
            yield _of_lines(block, starts, ends, uri, dialect)


def _of_lines(block: Block, starts: np.ndarray, ends: np.ndarray, uri: str, dialect: Dialect) -> Rows:
    import pyarrow.csv as pc

    raw = np.frombuffer(block.data, np.uint8)
    returns = np.flatnonzero(raw == RETURN)
    inside = np.searchsorted(returns, ends) > np.searchsorted(returns, starts)  # pyarrow would begin a row there
    long = ends - starts > dialect.max_record_bytes
    reasons = {int(i): "a carriage return inside the line" for i in np.flatnonzero(inside)}
    reasons |= {int(i): f"the line has more than max_record_bytes ({dialect.max_record_bytes:,})"
                for i in np.flatnonzero(long)}
    taken = np.flatnonzero(~(inside | long))
    invalid: list[Any] = []

    def skip(row: Any) -> str:
        invalid.append(row)
        return "skip"

    table = pa.table({})
    if len(taken):
        data = b"\n".join(block.data[starts[i]:ends[i]] for i in taken)
        table = pc.read_csv(
            pa.BufferReader(data), pc.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=dialect.names),
            pc.ParseOptions(delimiter=dialect.delimiter, quote_char=False, invalid_row_handler=skip),
            pc.ConvertOptions(column_types={name: pa.binary() for name in dialect.names}, check_utf8=False))
        table = table.rename_columns(unique_names(table.column_names))
    for row in invalid:
        reasons[int(taken[row.number - 1])] = f"{row.actual_columns} fields where {row.expected_columns} are expected"
    failures = []
    for i, reason in sorted(reasons.items()):
        place = f"{uri}:byte={block.offset + int(starts[i])}"
        failures.append(Failure(place, block.offset + int(starts[i]), ValueError(f"{place}: {reason}"),
                                excerpt(block.data[starts[i]:ends[i]])))
    good = np.setdiff1d(np.arange(len(starts)), list(reasons))
    return Rows(table, block.offset + starts[good], failures)
