"""Media types and their endings. Not by `mimetypes`: that lacks a third of them, and which ones depends on
the machine."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Collection
from urllib.parse import urlsplit

# Types that servers give when they do not know.
VAGUE = frozenset({None, "application/octet-stream", "binary/octet-stream", "application/binary",
                   "application/x-download"})

# Source: https://www.iana.org/assignments/media-types, and the x- forms that servers still send.
ENDINGS = {
    "image/jpeg": "jpg", "image/jpg": "jpg", "image/pjpeg": "jpg", "image/png": "png", "image/webp": "webp",
    "image/gif": "gif", "image/bmp": "bmp", "image/x-ms-bmp": "bmp", "image/tiff": "tiff",
    "image/avif": "avif", "image/heic": "heic", "image/svg+xml": "svg", "image/jxl": "jxl",
    "image/x-icon": "ico", "image/vnd.microsoft.icon": "ico",
    "video/mp4": "mp4", "video/webm": "webm", "video/quicktime": "mov", "video/x-matroska": "mkv",
    "video/x-msvideo": "avi",
    "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav",
    "audio/flac": "flac", "audio/x-flac": "flac", "audio/ogg": "ogg", "audio/mp4": "m4a", "audio/aac": "aac",
    "audio/opus": "opus",
    "text/html": "html", "application/xhtml+xml": "html", "text/plain": "txt", "application/pdf": "pdf",
    "application/json": "json",
}
TYPES = {ending: kind for kind, ending in reversed(ENDINGS.items())} | {
    "jpeg": "image/jpeg", "tif": "image/tiff", "htm": "text/html"}

HEAD_BYTES = 64  # of a file, by which it is told what it is
PLAIN = "application/octet-stream"
_STARTS = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"GIF87a": "image/gif",
           b"GIF89a": "image/gif", b"fLaC": "audio/flac", b"OggS": "audio/ogg", b"ID3": "audio/mpeg",
           b"\xff\xfb": "audio/mpeg", b"\xff\xf3": "audio/mpeg", b"\xff\xf2": "audio/mpeg",
           b"\xff\xf1": "audio/aac", b"\xff\xf9": "audio/aac", b"\x1aE\xdf\xa3": "video/webm"}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_BRANDS = {b"avif": "image/avif", b"avis": "image/avif", b"M4A ": "audio/mp4", b"qt  ": "video/mp4"}


def extension_of(uri: str) -> str:
    """`jpg` for `s3://bucket/a.b.JPG` and `https://host/a.jpg?size=2`, "" where the name has no ending."""
    path = urlsplit(uri).path if uri.lower().startswith(("http://", "https://")) else uri
    return posixpath.splitext(posixpath.basename(path))[1][1:].lower()


def ending_of(url: str) -> str | None:
    """The ending of the last name in a path or URL, lower case, if it looks like that of a file."""
    ending = extension_of(url)
    return ending if re.fullmatch("[a-z0-9]{1,8}", ending) else None


def settled(content_type: str | None, url: str) -> tuple[str | None, str | None]:
    """Type and ending: what the header Content-Type says, and where it says nothing of use, what the URL's
    ending says.

    The type is in lower case and without parameters.
    """
    ending = ending_of(url)
    content_type = (content_type or "").partition(";")[0].strip().lower() or None
    if content_type in VAGUE:
        return TYPES.get(ending or "") or content_type, ending
    return content_type, ENDINGS.get(content_type or "", ending)


def is_wanted(content_type: str | None, patterns: Collection[str]) -> bool:
    """Whether a type is one of those (`image/png`, `image/*`)."""
    return content_type is not None and any(fnmatch.fnmatchcase(content_type, pattern)
                                            for pattern in patterns)


def media_type(head: bytes) -> str:
    """What a browser may show these bytes as: a picture, a sound or a film, by how they begin. All else is
    plain bytes to it, SVG and HTML too, since they may hold scripts."""
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], PLAIN)
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    return next((kind for start, kind in _STARTS.items() if head.startswith(start)), PLAIN)
