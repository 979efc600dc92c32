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
    error: Exception
    raw: bytes


def read_blocks(file: BinaryIO, start: int = 0, stop: int | None = None, *, max_line_bytes: int,
                block_bytes: int = BLOCK_BYTES) -> Iterator[Block | Unreadable]:
    """The lines that begin in [start, stop) of a file, so that ranges side by side give each line once.

    A line ends with a newline or with the file. A byte order mark at the beginning of the file is skipped.
    Not more than a block and a line is held. With `start` the file must be seekable. Lines inside a block are
    not measured.
    """
    offset = _seek_line(file, start, stop)  # of the first line that was not given out
    # how that line begins; bytes of it that were thrown away, and their beginning: it is too long
    rest, skipped, raw = b"", 0, b""
    at_end = False
    while not at_end and (stop is None or offset < stop):
        wanted = block_bytes if stop is None else min(block_bytes, max(stop - offset - len(rest), 1 << 16))
        try:
            chunk = read_some(file, max(wanted, len(rest), len(BOM)))
        # what stands before the damage was given out; the line it cut through is lost
        except DamagedStream as error:
            yield Unreadable(offset, error, (raw or rest)[:EXCERPT_BYTES])
            return
        at_end = not chunk
        if offset == 0 and not rest and not skipped and chunk.startswith(BOM):
            chunk, offset = chunk[len(BOM):], len(BOM)
        data = rest + chunk
        first = data.find(b"\n") + 1
        size = skipped + (first or len(data))
        if (rest or skipped or not first) and size > max_line_bytes:
            raw = raw or data[:EXCERPT_BYTES]
            if not first and not at_end:
                rest, skipped = b"", size
                continue
            yield Unreadable(offset, ValueError(f"the line has {size:,} bytes, more than max_record_bytes "
                                                f"({max_line_bytes:,})"), raw)
            data, offset, skipped, raw = data[first or len(data):], offset + size, 0, b""
            if stop is not None and offset >= stop:
                return
        last = 0 if stop is None else data.find(b"\n", max(0, stop - 1 - offset)) + 1
        cut = last or (len(data) if at_end else data.rfind(b"\n") + 1)
        if cut:
            yield Block(data[:cut], offset)
        rest, offset, at_end = data[cut:], offset + cut, at_end or last > 0


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
    position = start - 1
    file.seek(position)
    while (stop is None or position < stop) and (chunk := read_some(file, 1 << 16)):
        end = chunk.find(b"\n") + 1
        if end:
            file.seek(position + end)
            return position + end
        position += len(chunk)
    return position


def line_spans(data: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Where the lines of a block begin and end (without newline and carriage return), and how many newlines
    it has.

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
