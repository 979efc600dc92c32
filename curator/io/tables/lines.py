"""Blocks of whole lines from a stream, or from a byte range of a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from curator.io.files.compression import DamagedStream

BLOCK_BYTES = 4 << 20
EXCERPT_BYTES = 4000  # of a bad line, enough for 1,000 characters
NEWLINE, RETURN = 10, 13
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole lines. `offset`: the position of the first byte in the (decompressed) file."""

    data: bytes
    offset: int


@dataclass(frozen=True)
class Unreadable:
    """A stretch of the file that gives no line: too long, or damaged. `raw`: how it begins."""

    offset: int
    error: BaseException
    raw: bytes


def read_blocks(file: BinaryIO, start: int = 0, stop: int | None = None, *, max_line_bytes: int,
                block_bytes: int = BLOCK_BYTES) -> Iterator[Block | Unreadable]:
    """The lines that begin in [start, stop) of a file, so that ranges side by side give each line once.

    A line ends with a newline or with the file. A byte order mark at the beginning of the file is skipped. Not more
    than a block and a line is held. With `start` the file must be seekable.
    """
    assembler = _Assembler(max_line_bytes)
    position = _seek_line(file, start, stop)
    assembler.offset = position
    while stop is None or position < stop or assembler.pending:
        wanted = block_bytes if stop is None else min(block_bytes, max(stop - position, 1 << 16))
        try:
            chunk = read_some(file, max(wanted, len(BOM)))
        except DamagedStream as error:
            yield from assembler.damaged(error)
            return
        if not chunk:
            break
        if position == 0 and chunk.startswith(BOM):
            chunk, position = chunk[len(BOM):], len(BOM)
            assembler.offset = position
        last = -1 if stop is None else chunk.find(b"\n", max(0, stop - 1 - position))
        if last >= 0:
            chunk = chunk[:last + 1]
        position += len(chunk)
        yield from assembler.add(chunk)
        if last >= 0:
            break
    yield from assembler.end()


class _Assembler:
    """Cuts chunks at their last newline and carries the rest over."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self.offset = 0  # of what is pending
        self.pending: list[bytes] = []  # the beginning of a line whose end is not read yet
        self._size = 0
        self._skipped = 0  # bytes of the pending line that were thrown away: it is too long

    def add(self, chunk: bytes) -> Iterator[Block | Unreadable]:
        if self._skipped:
            end = chunk.find(b"\n") + 1
            if not end:
                self._skipped += len(chunk)
                return
            yield self._too_long(end)
            chunk = chunk[end:]
        cut = chunk.rfind(b"\n") + 1
        first = chunk.find(b"\n") + 1 if self._size else 0
        if first and self._size + first > self._max:  # its end came just now, too late
            self._skipped = self._size
            self._size = 0
            yield self._too_long(first)
            chunk, cut = chunk[first:], cut - first
        if cut > 0:
            data = b"".join([*self.pending, chunk[:cut]])
            yield Block(data, self.offset)
            self.offset += len(data)
            self.pending, self._size, chunk = [], 0, chunk[cut:]
        if chunk:
            self.pending.append(chunk)
            self._size += len(chunk)
        if self._size > self._max:
            self._skipped, self.pending = self._size, [b"".join(self.pending)[:EXCERPT_BYTES]]
            self._size = 0

    def end(self) -> Iterator[Block | Unreadable]:
        if self._skipped:
            yield self._too_long(0)
        elif self.pending:
            yield Block(b"".join(self.pending), self.offset)
        self.pending, self._size = [], 0

    def damaged(self, error: DamagedStream) -> Iterator[Unreadable]:
        """What stands before the damage was given out; the line it cut through is lost."""
        yield Unreadable(self.offset, error, b"".join(self.pending)[:EXCERPT_BYTES])
        self.pending, self._size = [], 0

    def _too_long(self, rest: int) -> Unreadable:
        size, raw = self._skipped + rest, b"".join(self.pending)[:EXCERPT_BYTES]
        error = ValueError(f"the line has {size:,} bytes, more than max_record_bytes ({self._max:,})")
        found = Unreadable(self.offset, error, raw)
        self.offset += size
        self.pending, self._size, self._skipped = [], 0, 0
        return found


def read_some(file: BinaryIO, size: int) -> bytes:
    """At most `size` bytes, b"" at the end. What stands before a damage comes first, then DamagedStream."""
    if not isinstance(file, io.BufferedReader):
        return file.read(size)
    pieces, missing = [], size
    try:
        while missing > 0 and (piece := file.read1(missing)):
            pieces.append(piece)
            missing -= len(piece)
    except DamagedStream:
        if not pieces:
            raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _seek_line(file: BinaryIO, start: int, stop: int | None) -> int:
    """Move to the first line that begins at or after `start`, and say where that is."""
    if start == 0:
        return 0
    file.seek(start - 1)
    position = start - 1
    while stop is None or position < stop:
        chunk = read_some(file, 1 << 16)
        if not chunk:
            return position
        end = chunk.find(b"\n") + 1
        if end:
            file.seek(position + end)
            return position + end
        position += len(chunk)
    return position


def line_spans(data: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Where the lines of a block begin and end (without newline and carriage return), and how many newlines it has.

    Empty lines are left out.
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == NEWLINE)
    newlines = len(ends)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        ends = np.append(ends, len(raw))
    starts = np.concatenate([np.zeros(min(1, len(ends)), ends.dtype), ends[:-1] + 1])
    ends = ends - ((ends > starts) & (raw[ends - 1] == RETURN)) if len(ends) else ends
    kept = ends > starts
    return starts[kept], ends[kept], newlines
