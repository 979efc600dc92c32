"""What the blocks of an image file say, without decoding: whether the file is whole, how many frames it has.

Decoders differ in how they take a file that ends too early: some fill the rest with grey and say nothing. The
checks here do not depend on the decoder, and cost microseconds. None of them sees damage within compressed
data that leaves the blocks in order; a PNG's decoder sees it by the checksums, a JPEG's often does not.
"""

from __future__ import annotations

import re
import struct

# segments of a JPEG, chunks of a PNG: a file made of empty ones would take its reader minutes
BLOCKS_MAX = 100_000
PAGES_MAX = 65_535  # pages of a TIFF that are counted: a chain of directories can fill a file with millions

SCAN_END = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # a marker that is neither a stuffed FF nor a restart


class BadImage(ValueError):
    """Bytes that are no image that can be decoded; the text is for the user, and alike for alike faults."""


def check_jpeg(data: bytes) -> None:
    """Raise BadImage unless the first scan is followed by an end marker.

    In compressed data a byte FF is followed by 00 or a restart marker, so that FF D9 is no part of it. What
    stands after the end (a second picture, a film) does not matter. Source: ITU-T T.81, B.1.1.5, B.2.1.
    """
    if data.rfind(b"\xff\xd9", _first_scan(data)) < 0:
        raise BadImage("truncated JPEG: no end marker")


def prolonged_jpeg(data: bytes) -> bytes:
    """A JPEG with some bytes more in its first scan. Where the scan was complete, it is decoded to the same
    pixels."""
    end = SCAN_END.search(data, _first_scan(data) + 2)
    at = len(data) if end is None else end.start()
    return data[:at] + b"\x55" * 64 + data[at:]


def _first_scan(data: bytes) -> int:
    """Where the first SOS marker of a JPEG stands. Raises BadImage if there is none."""
    at = 2
    for _ in range(BLOCKS_MAX):
        at = data.find(b"\xff", at)
        if at < 0 or len(data) < at + 4:
            raise BadImage("truncated JPEG: no picture data")
        marker = data[at + 1]
        if marker == 0xDA:
            return at
        if marker == 0xFF:  # fill
            at += 1
        elif marker <= 1 or 0xD0 <= marker <= 0xD8:  # these have no length
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2:at + 4], "big"))
    raise BadImage("broken JPEG: no end of segments")


def check_png(data: bytes) -> None:
    """Raise BadImage unless the chunks end with IEND. Source: PNG specification, 5.3 and 11.2.5."""
    at = 8
    for _ in range(BLOCKS_MAX):
        if at + 12 > len(data):
            raise BadImage("truncated PNG: no end chunk")
        if data[at + 4:at + 8] == b"IEND":
            return
        at += 12 + int.from_bytes(data[at:at + 4], "big")
    raise BadImage("broken PNG: no end of chunks")


def check_webp(data: bytes) -> None:
    """Raise BadImage if the file is shorter than its first chunk says. Source: RFC 9649, 2.3."""
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise BadImage("truncated WebP: shorter than its header says")


def count_gif_frames(data: bytes) -> int:
    """The number of pictures in a GIF.

    Raises:
        BadImage: it ends before its trailer. Source: GIF89a specification, 18 to 27.
    """
    try:
        at = 13 + _table_bytes(data[10])
        frames = 0
        while True:
            kind = data[at]
            if kind == 0x3B:
                return frames
            if kind == 0x2C:
                frames += 1
                at += 11 + _table_bytes(data[at + 9])
            elif kind == 0x21:
                at += 2
            else:
                raise BadImage("broken GIF: a block of no known kind")
            while data[at]:
                at += data[at] + 1
            at += 1
    except IndexError:
        raise BadImage("truncated GIF: no trailer") from None


def _table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def count_tiff_pages(data: bytes) -> int:
    """The number of pages (image file directories) of a TIFF or BigTIFF, at most 65,535.

    Raises:
        BadImage: a directory lies beyond the end. Source: TIFF 6.0, section 2.
    """
    order = "<" if data[:2] == b"II" else ">"
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    offset, count, entry = ("Q", "Q", 20) if big else ("I", "H", 12)
    seen: set[int] = set()
    try:
        at = struct.unpack_from(order + offset, data, 8 if big else 4)[0]
        while at and at not in seen and len(seen) < PAGES_MAX:
            seen.add(at)
            entries = struct.unpack_from(order + count, data, at)[0]
            at = struct.unpack_from(order + offset, data,
                                    at + struct.calcsize(order + count) + entries * entry)[0]
    except (struct.error, OverflowError):
        raise BadImage("truncated TIFF: a directory lies beyond the end") from None
    return len(seen)
