"""The records of a WARC file: header, block, and what does not belong to a record.

Source: ISO 28500 (WARC 1.1), https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from curator_text.read.warc_tape import Tape

HEADER_BYTES = 1 << 18  # a header longer than this is none
SEPARATOR = b"\r\n\r\n"  # stands after each block
_LOOK_BYTES = 32  # holds a separator, and a version line with the first letter of the next
_VERSION = re.compile(rb"WARC/\d\.\d{1,2}\r?\n[A-Za-z]")
_HEADER_END = re.compile(rb"\r?\n\r?\n")

Headers = dict[str, str]


@dataclass(frozen=True)
class Record:
    """A record that stands in the archive as its header says. `block` is None if it is longer than was asked
    for."""

    place: str
    headers: Headers
    block: bytes | None


@dataclass(frozen=True)
class Broken:
    """A record that cannot be read, or bytes that belong to none. `headers` are empty where even these are
    lost."""

    place: str
    why: str
    headers: Headers


def records(tape: Tape, wanted: Callable[[Headers], bool], max_bytes: int) -> Iterator[Record | Broken]:
    """Every wanted record, and every damage: whatever the damage, reading goes on at the next record.

    `wanted` sees a record's header; other records are checked and skipped. `max_bytes`: longer blocks are not
    read.
    """
    while True:
        while tape.fill(1) and tape.buffer[0] in b"\r\n":
            tape.skip(len(tape.buffer) - len(tape.buffer.lstrip(b"\r\n")))
        if tape.fill(1):
            yield from _next_record(tape, wanted, max_bytes)
            continue
        if tape.damage:
            yield Broken(str(tape.damage.offset), tape.damage.why, {})
        if not tape.next_stretch():
            return


def parse_headers(lines: bytes) -> Headers:
    """The fields by name in lower case; of several with one name the first; a folded line belongs to the one
    before."""
    found: Headers = {}
    name = ""
    for line in lines.decode("utf-8", "replace").split("\n"):
        if line[:1] in (" ", "\t"):
            if name:
                found[name] += " " + line.strip()
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower() if colon else ""
        if name and name not in found:
            found[name] = value.strip()
        else:
            name = ""
    return found


def _next_record(tape: Tape, wanted: Callable[[Headers], bool], max_bytes: int) -> Iterator[Record | Broken]:
    """What stands at the front of the tape; afterwards the tape is at the next record or at its stretch's
    end."""
    place = tape.place()
    tape.fill(5)
    if not tape.buffer.startswith(b"WARC/"):
        yield Broken(place, f"{_seek_record(tape)} bytes that belong to no record", {})
        return
    size = _header_size(tape)
    headers = parse_headers(bytes(tape.buffer[:size])) if size else {}
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        why = _because(tape, "the header has no valid Content-Length" if size else "the header has no end")
        tape.skip(5)
    elif int(length) > max_bytes:
        why = _pass_long(tape, size, int(length))
        if not why and wanted(headers):
            yield Record(place, headers, None)
    else:
        end = size + int(length)
        why = _misfit(tape, size, end)
        if not why and wanted(headers):
            yield Record(place, headers, bytes(memoryview(tape.buffer)[size:end]))
        tape.skip(size if why else end)
    if why:
        yield Broken(place, why, headers)
        _seek_record(tape)


def _misfit(tape: Tape, size: int, end: int) -> str:
    """Why the block from `size` to `end` of the buffer is not what the record's header says; "" if it is."""
    there = tape.fill(end + _LOOK_BYTES)
    if there < end:
        return _because(tape, f"the record ends after {there - size} of {end - size} bytes")
    if not _separated(tape, end):
        return f"the record does not end where its Content-Length of {end - size} says"
    if tape.is_doubtful(end):
        return _because(tape, "the record cannot be trusted")
    return ""


def _pass_long(tape: Tape, size: int, length: int) -> str:
    """Go behind a block without keeping it; why it is not what its Content-Length says, "" if it is."""
    tape.skip(size)
    there = tape.skip(length)
    if there < length:
        return _because(tape, f"the record ends after {there} of {length} bytes")
    tape.fill(_LOOK_BYTES)
    return "" if _separated(tape, 0) else f"the record does not end where its Content-Length of {length} says"


def _separated(tape: Tape, end: int) -> bool:
    """Whether a record ends here. Writers that leave out the separator, or a part of it, are tolerated."""
    following = bytes(tape.buffer[end:end + _LOOK_BYTES])
    rest = following.lstrip(b"\r\n")
    return following.startswith(SEPARATOR) or not rest or rest.startswith(b"WARC/")


def _header_size(tape: Tape) -> int:
    """Bytes of the header with its blank line, 0 if it does not end."""
    for enough in (1 << 12, HEADER_BYTES):
        tape.fill(enough)
        if found := _HEADER_END.search(tape.buffer, 0, HEADER_BYTES):
            return found.end()
    return 0


def _because(tape: Tape, what: str) -> str:
    """What went wrong, with the damage behind it if there is one, which is then told and not told again."""
    if tape.damage is None:
        return what
    why, tape.damage = tape.damage.why, None
    return f"{what}: {why}"


def _seek_record(tape: Tape) -> int:
    """Drop everything before the next record of this stretch; how many bytes that were."""
    dropped = 0
    while True:
        found = _VERSION.search(tape.buffer)
        if found:
            return dropped + tape.skip(found.start())
        dropped += tape.skip(max(0, len(tape.buffer) - _LOOK_BYTES))
        before = len(tape.buffer)
        if tape.fill(before + 1) == before:
            return dropped + tape.skip(before)
