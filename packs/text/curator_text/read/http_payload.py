"""The body of an HTTP response as an archive holds it, with transfer and content codings undone.

What a server or crawler labelled wrongly in a way that leaves no doubt is read all the same, and noted; what
is cut off or broken raises ValueError.
"""

from __future__ import annotations

import codecs
import io
import re

from isal import isal_zlib

from curator_text.read.warc_records import Headers, parse_headers

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})(?=[ \r\n]|$)")
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_CHUNK_SIZE = re.compile(rb" *([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*"
                   rb"<(?:!doctype html|html|head|body|title|meta|h1|div|table|p|br|a)[\s>]",
                   re.IGNORECASE | re.DOTALL)
_LINE_END = re.compile(rb"\r?\n")
# codings seen in the wild that mean no coding
_UNTYPED = frozenset(("", "identity", "none", "binary", "utf-8"))


class TooLarge(Exception):
    """The body is longer than is allowed, once it is decompressed."""


def parse_response(block: bytes) -> tuple[int, Headers, bytes]:
    """The status, the header fields and the body, still coded, of a response.

    Raises:
        ValueError: it is none.
    """
    status = _STATUS.match(block)
    if not status:
        raise ValueError(f"this is no HTTP response: it begins with {block[:20]!r}")
    end = _HEADER_END.search(block)
    head, body = (block[:end.start()], block[end.end():]) if end else (block, b"")
    return int(status[1]), parse_headers(head.partition(b"\n")[2]), body


def decode_body(headers: Headers, body: bytes, max_bytes: int, cut: bool = False) -> tuple[bytes, str]:
    """The body as the server meant it, and how it was read although its labels are wrong ("" if they are
    right).

    `cut`: the crawler says that it kept only a part, so that an early end is no error.

    Raises:
        ValueError: it is cut off, or not coded as the header says, or in an unknown coding.
        TooLarge: it has more than `max_bytes`.
    """
    flaws = []
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body, flaw = _join_chunks(body, cut)
        flaws.append(flaw)
    elif not cut:
        flaws.append(_short(headers.get("content-length", ""), len(body)))
    for coding in reversed(headers.get("content-encoding", "").lower().split(",")):
        body, flaw = _undo(coding.strip(), body, max_bytes, cut)
        flaws.append(flaw)
    if len(body) > max_bytes:
        raise TooLarge
    return body, "; ".join(flaw for flaw in flaws if flaw)


def looks_like_html(body: bytes) -> bool:
    """Whether the first tag is one that HTML begins with.

    Source: WHATWG MIME Sniffing, section 7.1, https://mimesniff.spec.whatwg.org/.
    """
    return bool(_HTML.match(body[:4096]))


def _short(stated: str, length: int) -> str:
    if stated.isdigit() and length < int(stated):
        return f"{length} bytes long, not {stated} as its Content-Length says"
    return ""


def _join_chunks(body: bytes, cut: bool) -> tuple[bytes, str]:
    """The content of the chunks (RFC 9112, section 7.1), and what was wrong with them."""
    parts, at = list[bytes](), 0
    while at < len(body):
        size = _CHUNK_SIZE.match(body, at)
        if not size and at == 0:
            return body, "labelled chunked, but is not"
        if not size:
            raise ValueError(f"wrong chunk size: at byte {at} of the body is {body[at:at + 10]!r} and no "
                             "chunk size")
        start, length = size.end(), int(size[1], 16)
        if length == 0:
            return b"".join(parts), ""
        end = start + length
        if end > len(body) and not cut:
            raise ValueError(f"the chunk at byte {at} of the body has {len(body) - start} of {length} bytes")
        parts.append(body[start:end])
        line_end = _LINE_END.match(body, end)
        if not line_end and end < len(body):
            raise ValueError(f"wrong chunk size: the chunk at byte {at} of the body does not end after "
                             f"{length} bytes")
        at = line_end.end() if line_end else end
    return b"".join(parts), "" if cut or not parts else "the last chunk is missing"


def _undo(coding: str, body: bytes, max_bytes: int, cut: bool) -> tuple[bytes, str]:
    """The body without one content coding, and what was wrong with it."""
    if coding in _UNTYPED or not body:
        return body, ""
    try:
        if coding in ("gzip", "x-gzip"):
            return _inflate(body, 31, max_bytes, cut), ""
        if coding == "deflate":  # RFC 9110 means zlib; some servers send the bare stream
            return _inflate(body, 15 if _has_zlib_header(body) else -15, max_bytes, cut), ""
        if coding in ("br", "zstd"):
            return _read_all(coding, body, max_bytes), ""
        raise ValueError(f"its content coding {coding!r} is unknown")
    except ValueError:
        if _is_text(body):
            return body, f"labelled {coding}, but is not"
        raise


def _inflate(body: bytes, wbits: int, max_bytes: int, cut: bool) -> bytes:
    parts, size = [], 0
    while body:
        decoder = isal_zlib.decompressobj(wbits=wbits)
        try:
            parts.append(decoder.decompress(body, max_bytes + 1 - size))
        except isal_zlib.error as error:
            if parts:  # servers pad what they compressed
                break
            raise ValueError(f"its compressed body is broken: {error}") from error
        size += len(parts[-1])
        if size > max_bytes:
            raise TooLarge
        if not decoder.eof and not cut:
            raise ValueError(f"its compressed body is cut off: it ends after {size} bytes of content")
        body = decoder.unused_data if wbits == 31 else b""  # gzip may have several members
    return b"".join(parts)


def _has_zlib_header(body: bytes) -> bool:
    """RFC 1950, section 2.2: method 8, and a check on the first two bytes."""
    return body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0


def _read_all(coding: str, body: bytes, max_bytes: int) -> bytes:
    from fastwarc.stream_io import BrotliReader, ZstdReader

    reader = {"br": BrotliReader, "zstd": ZstdReader}[coding](io.BytesIO(body))
    found = bytearray()
    try:
        while piece := reader.read(1 << 20):
            found += piece
            if len(found) > max_bytes:
                raise TooLarge
    except OSError as error:
        raise ValueError(f"its {coding} body is broken or cut off: {error}") from error
    return bytes(found)


def _is_text(body: bytes) -> bool:
    """Whether these are letters and not compressed bytes: UTF-8 without control characters."""
    try:
        decoded = codecs.getincrementaldecoder("utf-8")().decode(body[:4096])  # the last character may be cut
    except UnicodeDecodeError:
        return looks_like_html(body)
    return not any(c < " " and c not in "\t\n\r\f" for c in decoded)
