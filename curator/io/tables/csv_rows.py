"""Where the rows of CSV text lie, and their fields as columns of bytes.

pyarrow reads the fields. The standard library's reader is four to seven times slower (32 for 180 MB/s of
short fields, 122 for 800 MB/s of text). Where rows begin and end is found here, so that each has its place
and its bytes, also a bad one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from curator.io.files.compression import DamagedStream
from curator.io.tables.lines import (
    BOM,
    NEWLINE,
    RETURN,
    Block,
    Unreadable,
    line_spans,
    read_blocks,
    read_some,
)

BLOCK_BYTES = 2 << 20  # half of what JSON is read by: it is gone over several times, so that the cache counts


@dataclass(frozen=True)
class Dialect:
    """How a file is written. `names`: of the columns. `header`: the file begins with them. `quote`: None
    where rows are lines."""

    names: Sequence[str]
    header: bool
    delimiter: str
    quote: str | None
    max_record_bytes: int


@dataclass(frozen=True)
class Rows:
    """Whole rows: row i is `data[starts[i]:ends[i]]`; `positions[i]` is its byte in the file, or its number
    where fields are quoted."""

    data: bytes
    starts: np.ndarray
    ends: np.ndarray
    positions: np.ndarray


def line_rows(file: BinaryIO, dialect: Dialect, start: int, stop: int | None) -> Iterator[Rows | Unreadable]:
    """The rows that begin in a byte range of a file without quoted fields: each is a line."""
    skipped = 1 if dialect.header and start == 0 else 0
    for block in read_blocks(file, start, stop, max_line_bytes=dialect.max_record_bytes):
        if isinstance(block, Block):
            starts, ends, _ = line_spans(block.data)
            yield Rows(block.data, starts[skipped:], ends[skipped:], block.offset + starts[skipped:])
            skipped = 0 if len(starts) else skipped
        else:
            yield block


def quoted_rows(file: BinaryIO, dialect: Dialect, quote: str) -> Iterator[Rows | Unreadable]:
    """The rows of a file whose fields may hold newlines. The first one after the header has number 1."""
    number, rest, mark, limit, at_end = 0 if dialect.header else 1, b"", BOM, dialect.max_record_bytes, False
    while not at_end:
        try:
            chunk = read_some(file, max(BLOCK_BYTES, len(rest)))
        except DamagedStream as error:
            yield Unreadable(number, error, rest)
            return
        at_end, data, mark = not chunk, rest + chunk.removeprefix(mark), b""
        ends, is_open = row_ends(data, dialect.delimiter, quote)
        if at_end and not is_open:
            ends = np.append(ends, len(data))
        starts = np.append(0, ends + 1)
        rest = data[starts[-1]:]
        kept = np.flatnonzero(ends > starts[:-1])
        starts, ends = starts[kept], ends[kept]
        fitting = int(np.argmax(np.append(ends - starts, limit + 1) > limit))
        numbers = np.arange(number, number + fitting)
        first = 1 if number == 0 and fitting else 0  # the header
        yield Rows(data, starts[first:fitting], ends[first:fitting], numbers[first:])
        number += fitting
        if fitting < len(starts) or len(rest) > limit:
            yield Unreadable(number, ValueError(
                f"the row has more than max_record_bytes ({limit:,}), for example because of a quote that is "
                "never closed. "
                "The rest of the file cannot be read"), data[starts[fitting]:] if fitting < len(starts)
                             else rest)
            return
    if rest:
        yield Unreadable(number, ValueError("a quote is opened and never closed"), rest)


def row_ends(data: bytes, delimiter: str, quote: str) -> tuple[np.ndarray, bool]:
    """The newlines and returns outside of quoted fields, and whether the text ends inside of one.

    A quote opens a field where it begins one; elsewhere it is a character. So quotes can be counted as long
    as each stands at the edge of a field or beside another.
    """
    raw = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(raw == ord(quote)) if quote.encode() in data else np.empty(0, np.int64)
    edge = np.zeros(256, bool)
    edge[[NEWLINE, RETURN, ord(delimiter), ord(quote)]] = True
    opening, closing = quotes[::2], quotes[1::2]
    if not (edge[raw.take(opening - 1, mode="clip")].all()
            and edge[raw.take(closing + 1, mode="clip")].all()):
        edge[ord(quote)] = False
        begins = quotes[(quotes == 0) | edge[raw.take(quotes - 1, mode="clip")]]
        opening, closing = _fields_by_one(data, quote, begins.tolist())
    # of what is outside
    firsts, lasts = np.append(0, closing + 1), np.append(opening, len(raw))[:len(closing) + 1]
    sizes = lasts - firsts
    if (total := int(sizes.sum())) < len(raw) // 8:  # long quoted texts: their own newlines are passed over
        places = np.arange(total) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes)
        ends = places[np.isin(raw[places], (NEWLINE, RETURN))]
    else:
        ends = np.flatnonzero((raw == NEWLINE) | (raw == RETURN))
        ends = ends[np.searchsorted(lasts, ends, side="right")
                    == np.searchsorted(firsts, ends, side="right") - 1]
    return ends, len(opening) > len(closing)


def _fields_by_one(data: bytes, quote: str, begins: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Where quoted fields begin and end, given the quotes that stand where a field begins or inside of
    one."""
    field = re.compile(rb"%b(?:[^%b]++|%b%b)*+(%b?)" % ((re.escape(quote.encode()),) * 5))
    stop, opening, closing = 0, [], []
    for at in begins:
        if at >= stop and (found := field.match(data, at)):  # as it does: there is a quote
            stop = found.end()
            opening.append(at)
            closing += [stop - 1] if found[1] else []
    return np.array(opening, np.int64), np.array(closing, np.int64)


def fields(rows: Rows, dialect: Dialect) -> tuple[pa.Table, np.ndarray, dict[int, str]]:
    """The good rows as columns of bytes, which rows these are, and what is wrong with the others."""
    import pyarrow.csv as pc

    reasons: dict[int, str] = {}
    taken = np.arange(len(rows.starts))
    if dialect.quote is None:
        returns = np.flatnonzero(np.frombuffer(rows.data, np.uint8) == RETURN)
        # pyarrow would begin a row there
        inside = np.searchsorted(returns, rows.ends) > np.searchsorted(returns, rows.starts)
        long = rows.ends - rows.starts > dialect.max_record_bytes
        reasons |= dict.fromkeys(np.flatnonzero(long).tolist(),
                                 f"the line has more than max_record_bytes ({dialect.max_record_bytes:,})")
        reasons |= dict.fromkeys(np.flatnonzero(inside).tolist(), "a carriage return inside the line")
        taken = np.flatnonzero(~(inside | long))
    if not len(taken):
        return pa.table({}), taken, reasons
    if reasons:
        data = pa.py_buffer(b"\n".join(rows.data[rows.starts[i]:rows.ends[i]] for i in taken))
    else:
        data = pa.py_buffer(rows.data).slice(int(rows.starts[0]), int(rows.ends[-1] - rows.starts[0]))
    invalid: list[Any] = []

    def skip(row: Any) -> str:
        invalid.append(row)
        return "skip"

    table = pc.read_csv(
        pa.BufferReader(data),
        pc.ReadOptions(use_threads=False, block_size=data.size + 1, column_names=dialect.names),
        pc.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote or False,
                        newlines_in_values=bool(dialect.quote), invalid_row_handler=skip),
        pc.ConvertOptions(column_types={name: pa.binary() for name in dialect.names}, check_utf8=False))
    for row in invalid:
        reasons[int(taken[row.number
                          - 1])] = f"{row.actual_columns} fields where {row.expected_columns} are expected"
    good = np.setdiff1d(taken, list(reasons)) if invalid else taken
    assert len(good) == len(table), (
        f"{len(taken)} rows of CSV text were read as {len(table)} and {len(invalid)} bad ones")
    return table, good, reasons
