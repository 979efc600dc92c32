"""Pages of the XML dumps of wikis, from any byte of a bz2 file on.

A multistream dump is many bz2 streams one behind the other, of a hundred pages each. Where one begins can be
seen from its first ten bytes, so that a file is read from any place on without the index, which for the
largest wikis is a gigabyte. Source: https://meta.wikimedia.org/wiki/Data_dumps/Dump_format;
https://en.wikipedia.org/wiki/Bzip2#File_format.
"""

from __future__ import annotations

import bz2
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

CHUNK_BYTES = 1 << 18
PIECE_BYTES = 1 << 20  # decompressed at once
PAGE_BYTES_MAX = 1 << 26  # a longer page is none
_MAGIC = re.compile(rb"BZh[1-9]1AY&SY")
_MAGIC_BYTES = 10
_OPEN, _CLOSE = b"<page>", b"</page>"
_NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>]*>([^<]*)</namespace>')


@dataclass(frozen=True)
class Stream:
    """What follows is a stream that begins at this byte of the file."""

    offset: int


@dataclass(frozen=True)
class Broken:
    """What cannot be read. `place`: byte of the file, and `+n` for n decompressed bytes of that stream."""

    place: str
    why: str


@dataclass(frozen=True)
class RawPage:
    """The XML of a page. `place`: as in `Broken`."""

    place: str
    xml: bytes


@dataclass(frozen=True, kw_only=True)
class WikiPage:
    """A page in its newest revision. `redirect`: the title that it leads to, None if it has a text of its
    own."""

    page_id: int
    title: str
    namespace: int
    revision: int
    date: str | None
    redirect: str | None
    model: str
    text: str


def pages(file: BinaryIO, start: int = 0, stop: int | None = None) -> Iterator[RawPage | Broken]:
    """The pages that begin in streams that begin at bytes from `start` up to `stop`, and every damage there.

    Ranges that follow one another give each page once, also where pages go over from stream to stream, as in
    dumps that are no multistream.
    """
    text = _Text()
    ending = False  # only what has begun is still wanted
    for event in streams(file, start):
        if isinstance(event, Stream):
            ending |= stop is not None and event.offset >= stop
            if ending and not text.is_open():
                return
            text.begin(event.offset)
        elif isinstance(event, Broken):
            if ending and not text.is_open():
                return
            yield from text.cut(event)
            if ending:
                return
        else:
            text.buffer += event
            for page in text.complete():
                yield page
                if ending:
                    return
    yield from text.cut(None)


def parse_page(xml: bytes) -> WikiPage:
    """What a page's XML says.

    Raises:
        ValueError: it is no page.
    """
    try:
        page = ElementTree.fromstring(xml)
        revision = page.find("revision")
        if revision is None:
            raise ValueError("it has no revision")
        redirect = page.find("redirect")
        return WikiPage(page_id=int(page.findtext("id", "")), title=page.findtext("title", ""),
                        namespace=int(page.findtext("ns", "0")), revision=int(revision.findtext("id", "")),
                        date=revision.findtext("timestamp"), model=revision.findtext("model", "wikitext"),
                        redirect=None if redirect is None else redirect.get("title", ""),
                        text=revision.findtext("text") or "")
    except (ElementTree.ParseError, AttributeError, ValueError) as error:
        raise ValueError(f"the XML of a page cannot be read: {error}") from error


def namespaces(file: BinaryIO) -> dict[int, str]:
    """The names that a wiki has for its namespaces, from the head of its dump; {} where there is none."""
    head = b""
    for event in streams(file, 0):
        if isinstance(event, bytes):
            head += event
        if b"</siteinfo>" in head or isinstance(event, Broken) or len(head) > PIECE_BYTES:
            break
    found = _NAMESPACE.findall(head.decode("utf-8", "replace"))
    return {int(key): name for key, name in found if name}


def streams(file: BinaryIO, start: int) -> Iterator[Stream | Broken | bytes]:
    """The streams that begin from a byte on, each with its decompressed content; behind a damage the next
    one."""
    at = _seek_stream(file, start)
    if start == 0 and at != 0:
        yield Broken("0", "this is no bz2 file")
    data = b""  # read and not decompressed
    if at is not None:
        file.seek(at)
    while at is not None:
        yield Stream(at)
        decoder, size, why = bz2.BZ2Decompressor(), 0, ""
        begin = at
        while not decoder.eof:
            if decoder.needs_input and not data:
                data = file.read(CHUNK_BYTES)
                if not data:
                    why = "the file ends in the middle of a bz2 stream: it was cut off"
                    break
            try:
                given, data = (data, b"") if decoder.needs_input else (b"", data)
                at += len(given)
                piece = decoder.decompress(given, PIECE_BYTES)
            except OSError as error:
                why = f"a bz2 stream is damaged: {error}"
                break
            size += len(piece)
            if piece:
                yield piece
        if why:
            at = _seek_stream(file, begin + 1)
        else:
            data = decoder.unused_data + data
            at -= len(decoder.unused_data)
            data = data or file.read(CHUNK_BYTES)
            if not data:
                return
            if len(data) < _MAGIC_BYTES:
                data += file.read(CHUNK_BYTES)
            if data.startswith(b"BZh"):
                continue
            why, begin, size = "what stands here is no bz2 stream", at, 0
            at = _seek_stream(file, at)
        yield Broken(f"{begin}+{size}" if size else str(begin),
                     why + (f"; reading goes on at byte {at}" if at is not None else "; no stream follows"))
        data = b""
        if at is not None:
            file.seek(at)


def _seek_stream(file: BinaryIO, start: int) -> int | None:
    """Where the next stream begins from byte `start` on; None if none does."""
    file.seek(start)
    window, at = b"", start
    while chunk := file.read(CHUNK_BYTES):
        window += chunk
        found = _MAGIC.search(window)
        if found:
            return at + found.start()
        kept = window[-_MAGIC_BYTES + 1:]
        at += len(window) - len(kept)
        window = kept
    return None


class _Text:
    """The text of streams one behind the other, from which whole pages are taken."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._streams: list[tuple[int, int]] = []  # (place in the text, offset in the file), the newest last
        self._position = 0  # of the buffer's first byte in the text

    def begin(self, offset: int) -> None:
        here = self._position + len(self.buffer)
        self._streams = [entry for entry in self._streams[-2:] if self.buffer] + [(here, offset)]

    def is_open(self) -> bool:
        """Whether a page has begun and not ended."""
        tail = bytes(self.buffer[-len(_OPEN) + 1:])
        begun = any(tail.endswith(_OPEN[:count]) for count in range(1, len(_OPEN)))
        return begun or _OPEN in self.buffer

    def complete(self) -> Iterator[RawPage | Broken]:
        """The pages that are whole by now."""
        while (begin := self.buffer.find(_OPEN)) >= 0:
            end = self.buffer.find(_CLOSE, begin)
            following = self.buffer.find(_OPEN, begin + len(_OPEN))
            if following >= 0 and not 0 <= end < following:
                yield Broken(self._place(begin), "a page does not end before the next one begins")
                self._drop(following)
            elif end >= 0:
                yield RawPage(self._place(begin), bytes(self.buffer[begin:end + len(_CLOSE)]))
                self._drop(end + len(_CLOSE))
            elif len(self.buffer) - begin > PAGE_BYTES_MAX:
                yield Broken(self._place(begin), f"a page of more than {PAGE_BYTES_MAX} bytes")
                self._drop(begin + len(_OPEN))
            else:
                return
        self._drop(max(0, len(self.buffer) - len(_OPEN) + 1))

    def cut(self, damage: Broken | None) -> Iterator[Broken]:
        """A damage, or the end: what has begun will not end."""
        begin = self.buffer.find(_OPEN)
        if begin >= 0:
            yield Broken(self._place(begin), "a page is cut off" + (f": {damage.why}" if damage else ""))
        elif damage:
            yield damage
        self._drop(len(self.buffer))

    def _drop(self, count: int) -> None:
        del self.buffer[:count]
        self._position += count

    def _place(self, at: int) -> str:
        position = self._position + at
        begin, offset = next((entry for entry in reversed(self._streams) if entry[0] <= position), (0, 0))
        return f"{offset}+{position - begin}" if position > begin else str(offset)
