"""The uncompressed bytes of an archive, read forwards over damage, each with its place in the file.

fastwarc's own iterator ends without a word at a truncated record and for good at the first damaged one; here
every damage is told, and reading goes on at the next gzip member that can be decompressed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from isal import isal_zlib

CHUNK_BYTES = 1 << 16  # compressed bytes a read
PIECE_BYTES = 1 << 20  # uncompressed bytes a piece: bounds what a decompression bomb can make at once
PROBE_BYTES = 1 << 12  # compressed bytes that are enough to see whether a member begins a record
GZIP_MAGIC = b"\x1f\x8b\x08"
# a frame; a dictionary before the frames, as .warc.zst has it
ZSTD_MAGIC = (b"\x28\xb5\x2f\xfd", b"\x5d\x2a\x4d\x18")


@dataclass(frozen=True)
class Member:
    """What follows was compressed by itself and begins at this byte of the file."""

    offset: int


@dataclass(frozen=True)
class Damage:
    """Here bytes are missing. `offset`: byte of the file where what cannot be read begins.

    `inside`: a gzip member is damaged, so that no checksum vouches for what was read of it.
    """

    offset: int
    why: str
    inside: bool


Pieces = Iterator[bytes | Member | Damage]


class Tape:
    """The bytes of an archive in `buffer`, taken from its front. A stretch ends at a damage or with the
    file."""

    def __init__(self, file: BinaryIO) -> None:
        self.buffer = bytearray()
        self.damage: Damage | None = None  # why this stretch ends; None: because the file does
        self._position = 0  # uncompressed bytes before buffer[0]
        # (position, offset) of members, the buffer's first on
        self._members: deque[tuple[int, int]] = deque()
        self._ended = self._finished = False
        self._pieces = pieces(file)

    def fill(self, count: int) -> int:
        """Have at least `count` bytes in the buffer, or all up to the end of the stretch; how many there
        are."""
        while len(self.buffer) < count and not self._ended:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = self._finished = True
            elif isinstance(piece, Damage):
                self._ended, self.damage = True, piece
            elif isinstance(piece, Member):
                self._members.append((self._position + len(self.buffer), piece.offset))
            else:
                self.buffer += piece
        return len(self.buffer)

    def skip(self, count: int) -> int:
        """Drop that many bytes, however many; how many were there to drop."""
        dropped = 0
        while dropped < count and self.fill(1):
            step = min(count - dropped, len(self.buffer))
            del self.buffer[:step]
            self._position += step
            dropped += step
        return dropped

    def is_doubtful(self, count: int) -> bool:
        """Whether some of the first `count` bytes of the buffer are of the gzip member that is damaged."""
        return bool(self.damage and self.damage.inside and self._position + count > self._members[-1][0])

    def next_stretch(self) -> bool:
        """Go on behind the damage (what is left of this stretch is dropped), False at the end of the file."""
        self.skip(self.fill(0))
        self.damage, self._ended = None, self._finished
        return not self._finished

    def place(self) -> str:
        """Where the buffer begins: byte of the file, and `+n` for n uncompressed bytes into a gzip member."""
        while len(self._members) > 1 and self._members[1][0] <= self._position:
            self._members.popleft()
        if not self._members:
            return str(self._position)
        position, offset = self._members[0]
        inside = self._position - position
        return f"{offset}+{inside}" if inside else str(offset)


def pieces(file: BinaryIO) -> Pieces:
    """The uncompressed content of a file, its kind told by its first bytes and not by its name."""
    head = file.read(CHUNK_BYTES)
    damaged = GZIP_MAGIC in head and b"WARC/" not in head
    if head.startswith(GZIP_MAGIC) or damaged:
        return iter(_Gzip(file, head))
    if head.startswith(ZSTD_MAGIC):
        return _zstd(file)
    return _plain(file, head)


def _plain(file: BinaryIO, head: bytes) -> Pieces:
    while head:
        yield head
        head = file.read(CHUNK_BYTES)


def _zstd(file: BinaryIO) -> Pieces:
    # reads the dictionary that .warc.zst begins with; Arrow's reader does not
    from fastwarc import ZstdReader

    position, why = 0, ""
    # a step that fails gives nothing: small ones for what stands before a damage
    for step in (PIECE_BYTES, 1):
        file.seek(0)
        reader = ZstdReader(file)
        missing = position
        try:
            while missing:
                missing -= len(reader.read(min(missing, PIECE_BYTES)))
            while piece := reader.read(step):
                position += len(piece)
                yield piece
            return
        except OSError as error:
            why = str(error)
    yield Damage(file.tell(), f"the zstd stream is damaged, and nothing behind it can be read: {why}", False)


class _Gzip:
    """The members of a gzip file. `data`: what was read and not yet decompressed, from byte `offset` of the
    file."""

    def __init__(self, file: BinaryIO, head: bytes) -> None:
        self._file, self._data, self._offset = file, head, 0

    def __iter__(self) -> Pieces:
        while self._data:
            start, inside, why = self._offset, True, ""
            yield Member(start)
            try:
                yield from self._member()
            except (isal_zlib.error, EOFError) as error:
                why = f"a gzip member is damaged: {error}"
            else:
                self._skip_padding()
                start, inside = self._offset, False
                if self._data and not self._data.startswith(GZIP_MAGIC):
                    why = "what stands here is not a gzip member"
            if why:
                found = self._seek_member(start + 1)
                yield Damage(start, why + (f"; reading goes on at byte {self._offset}" if found
                                           else "; no gzip member with a record follows"), inside)

    def _member(self) -> Iterator[bytes]:
        decoder = isal_zlib.decompressobj(wbits=31)
        while not decoder.eof:
            piece = decoder.decompress(self._data, PIECE_BYTES)
            left = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            self._offset += len(self._data) - len(left)
            self._data = left
            if piece:
                yield piece
            if not self._data and len(piece) < PIECE_BYTES:  # a full piece may have more behind it
                self._data = self._file.read(CHUNK_BYTES)
                if not self._data and not decoder.eof:
                    raise EOFError("the file ends in the middle of it")

    def _skip_padding(self) -> None:
        """Have the next member's first bytes in `data`. Zeros and line ends between members are padding."""
        while True:
            kept = self._data.lstrip(b"\0\r\n")
            self._offset += len(self._data) - len(kept)
            more = self._file.read(CHUNK_BYTES) if len(kept) < len(GZIP_MAGIC) else b""
            self._data = kept + more
            if not more:
                return

    def _seek_member(self, start: int) -> bool:
        """Go to the next member from byte `start` on that can be read, False if there is none: then at the
        end."""
        self._data = b""
        try:
            self._file.seek(start)
        except (OSError, ValueError):  # a stream without ranges
            return False
        window, ended = b"", False
        while not ended:
            chunk = self._file.read(CHUNK_BYTES)
            ended = not chunk
            window += chunk
            at = window.find(GZIP_MAGIC)
            while at >= 0 and (ended or len(window) - at >= PROBE_BYTES):
                if _begins_record(window[at:at + PROBE_BYTES]):
                    self._data, self._offset = window[at:], start + at
                    return True
                at = window.find(GZIP_MAGIC, at + 1)
            keep = min(len(window), len(GZIP_MAGIC) - 1) if at < 0 else len(window) - at
            start += len(window) - keep
            window = window[len(window) - keep:]
        return False


def _begins_record(data: bytes) -> bool:
    """Whether a gzip member with a WARC record, or a block of a bgzip file (whose records begin anywhere),
    begins.

    The body of a record is often a gzip stream itself, so that decompressing is not enough.
    """
    try:
        content = isal_zlib.decompressobj(wbits=31).decompress(data, 5)
    except isal_zlib.error:
        return False
    return content == b"WARC/" or (data[3] & 4 != 0 and data[12:14] == b"BC")
