"""The lines of a member of a tar archive, whose whole would not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from curator.io.media.tar import TarReader

PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Line:
    """A line without its end. `number`: from 1. `why`: what is wrong with it, "" if nothing is."""

    number: int
    content: bytes
    why: str = ""


def lines(tar: TarReader, max_bytes: int) -> Iterator[Line]:
    """The lines of the present member that have something on them; the last one is cut off where the archive
    is."""
    parts: list[bytes] = []  # of a line that has not ended
    number = size = 0
    for piece in tar.pieces(PIECE_BYTES):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            number += 1
            yield from _line(number, parts, end, size, max_bytes)
            parts, size = [], 0
        size += len(rest)
        parts = [*parts, rest] if size <= max_bytes else []
    cut = "the line is cut off: the archive ends before its member does" if tar.is_cut else ""
    yield from _line(number + 1, parts, b"", size, max_bytes, cut)


def _line(number: int, parts: list[bytes], end: bytes, size: int, max_bytes: int,
          why: str = "") -> Iterator[Line]:
    if size + len(end) > max_bytes:
        yield Line(number, b"", f"a line of more than {max_bytes} bytes")
    elif (content := b"".join([*parts, end])).strip():
        yield Line(number, content, why)
