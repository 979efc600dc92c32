"""The lengths that an mp4 says its tracks have, set after it was written.

Ours: a muxer writes what it was given, all of it, and has no way to be told that the last packets are there for others only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

_INNER = (b"moov", b"trak", b"edts")


def shown_until(data: bytes, seconds: Sequence[float]) -> bytes:
    """The file with tracks that end after so many seconds of presentation, one number a track, in their order.

    Sets `segment_duration` of each track's last edit, and the durations of track and film. The muxer writes an edit list for
    each track, whole: `use_editlist`, no fragments.
    """
    made = bytearray(data)
    scale = 0
    track = -1
    longest = 0
    header: tuple[str, int] | None = None
    for kind, at, _size in _boxes(made, 0, len(made)):
        if kind == b"mvhd":
            header = (">Q", at + 24) if made[at] else (">I", at + 16)
            scale = struct.unpack_from(">I", made, at + (20 if made[at] else 12))[0]
        elif kind == b"trak":
            track += 1
        elif kind == b"elst":
            wide, count = made[at], struct.unpack_from(">I", made, at + 4)[0]
            step, form = (20, ">Qq") if wide else (12, ">Ii")
            edits = [struct.unpack_from(form, made, at + 8 + k * step) for k in range(count)]
            waits = sum(length for length, _ in edits[:-1])
            length = max(0, int(seconds[track] * scale) - waits)
            struct.pack_into(form[:2], made, at + 8 + (count - 1) * step, length)
            longest = max(longest, waits + length)
        elif kind == b"tkhd":
            place, form = (at + 28, ">Q") if made[at] else (at + 20, ">I")
            struct.pack_into(form, made, place, int(seconds[track] * scale))
    assert header is not None, "a written mp4 has a header"
    struct.pack_into(header[0], made, header[1], longest)
    return bytes(made)


def _boxes(data: bytes | bytearray, start: int, stop: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, first byte of the content and its size, of all boxes; those of headers are gone into."""
    while start + 8 <= stop:
        size, kind = struct.unpack_from(">I4s", data, start)
        head = 8
        if size == 1:
            size, head = struct.unpack_from(">Q", data, start + 8)[0], 16
        if size < head:
            return
        yield kind, start + head, size - head
        if kind in _INNER:
            yield from _boxes(data, start + head, start + size)
        start += size
