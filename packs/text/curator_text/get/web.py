"""Files of a server that is open to all, read politely: whole, in parts, or as a file that is read forwards.

A mirror may as well be a folder or a bucket: what is no web address goes to the filesystem.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO

from curator.api.errors import InputError
from curator.api.stage import Source, setting
from curator.io.files.compression import decompressed
from curator.io.files.folder import open_input
from curator.io.http.addresses import host_of
from curator.io.http.client import Client, Fetched, Limits
from curator.io.http.room import Room, Share
from curator_text.get.turns import Turns

PIECE_BYTES = 1 << 23  # of a large file in one request: a broken connection costs no more
WHOLE_BYTES = 1 << 28  # of a listing
_DEADLINE_S = 1800.0  # a request with all its tries and the pauses that the server asks for


class Web:
    """What lies at web addresses and paths. Errors are InputErrors; those that another try would not change
    have a cause that says so (FileNotFoundError, PermissionError)."""

    def __init__(self, agent: str, turns: Turns, limits: Limits, *, private: bool,
                 storage_options: dict[str, Any] | None) -> None:
        headers = {"User-Agent": agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        self._turns, self._options, self._limits = turns, storage_options, limits
        self._client = Client(limits, headers, lambda url, headers, redirect: None, private=private)

    def close(self) -> None:
        self._client.close()

    def content(self, url: str) -> bytes:
        """A whole file."""
        if not _is_web(url):
            with open_input(url, self._options, compression=None) as file:
                return file.read()
        return self._get(url, None).data or b""

    def lines(self, url: str) -> list[str]:
        """The lines of a whole file of text, decompressed by its name."""
        packed = "gz" if url.partition("?")[0].endswith(".gz") else None
        with decompressed(io.BytesIO(self.content(url)), packed, url) as file:
            return file.read().decode("utf-8", "replace").splitlines()

    def part(self, url: str, start: int, stop: int) -> bytes:
        """The bytes of a file from `start` up to `stop`, fewer where it ends before."""
        if not _is_web(url):
            with open_input(url, self._options, compression=None) as file:
                file.seek(start)
                return file.read(stop - start)
        return self._get(url, (start, stop)).data or b""

    def open(self, url: str, size_bytes: int | None = None, piece_bytes: int = PIECE_BYTES) -> BinaryIO:
        """A file to read, from any place on. `size_bytes`: how long it is said to be, which is checked.
        `piece_bytes`: asked for in one request."""
        if not _is_web(url):
            return open_input(url, self._options, compression=None)
        return io.BufferedReader(_WebFile(self, url, size_bytes, piece_bytes), 1 << 16)

    def _get(self, url: str, part: tuple[int, int] | None) -> Fetched:
        with self._turns.turn(host_of(url)):
            found = self._client.get(url, Share(Room(self._limits.max_bytes)), part)
        if found.error:
            raise InputError(f"cannot read {url}: {found.error}") from ConnectionError(found.error)
        if found.reason:
            message = f"cannot read {url}: {_why(found.reason)}"
            raise lasting(message, FileNotFoundError if found.reason == "http_404" else PermissionError)
        return found


class _WebFile(io.RawIOBase):
    """A file of a server, asked for piece by piece, so that a connection that breaks costs one piece."""

    def __init__(self, web: Web, url: str, size_bytes: int | None, piece_bytes: int) -> None:
        self._web, self._url, self._size, self._piece_bytes = web, url, size_bytes, piece_bytes
        self._version: str | None = None
        self._at = self._begin = 0  # where the reader is, and where the piece begins
        self._piece = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._size is None:
            self._read_piece()
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size or 0}[whence]
        return self._at

    def readinto(self, buffer) -> int:
        if self._size is not None and self._at >= self._size:
            return 0
        if not 0 <= self._at - self._begin < len(self._piece):
            self._read_piece()
        view = memoryview(self._piece)[self._at - self._begin:][:len(buffer)]
        buffer[:len(view)] = view
        self._at += len(view)
        return len(view)

    def _read_piece(self) -> None:
        found = self._web._get(self._url, (self._at, self._at + self._piece_bytes))
        if self._size is not None and found.total != self._size:
            raise lasting(f"{self._url} has {found.total} bytes, not {self._size} as was said before: it is "
                          "incomplete, or was changed meanwhile")
        if self._version not in (None, found.version):
            raise InputError(f"{self._url} was changed on its server while it was read")
        self._size, self._version = found.total, found.version
        self._piece, self._begin = found.data or b"", self._at


@dataclass(kw_only=True)
class WebSource(Source):
    """What sources of published files share: how their servers are asked.

    `contact`: whom a server's owner may write to, an address or a page; it stands in the user agent.
    `connections`: requests at a time to one server, by all runs of this user on this machine together.
    `delay_s`: seconds between two requests in each of them. `retries`: further tries after HTTP 408, 425, 429,
    500, 502, 503, 504 and broken connections, with `backoff_s` seconds before the first, twice as long before each next one (at
    most a minute), or as long as the server says in Retry-After. `private`: also servers outside the public
    internet. `storage_options`: what the filesystem wants where the base is a bucket.
    """

    contact: str | None = setting(default=None)
    connections: int = setting(default=4)
    delay_s: float = setting(default=0.0)
    retries: int = setting(default=8)
    backoff_s: float = setting(default=1.0)
    private: bool = setting(default=False)
    storage_options: dict[str, Any] | None = setting(default=None)

    def __post_init__(self) -> None:
        self.at_least(1, "connections")
        self.at_least(0, "delay_s", "retries", "backoff_s")
        if self.contact is not None and not (self.contact.isascii() and self.contact.isprintable()
                                             and self.contact.strip()):
            raise ValueError(f"contact is a line of ASCII: an address or a page, got {self.contact!r}")

    @contextmanager
    def web(self) -> Iterator[Web]:
        """The servers, as long as the block lasts."""
        limits = Limits(max_bytes=WHOLE_BYTES, connect_timeout_s=20.0, read_timeout_s=60.0,
                        deadline_s=_DEADLINE_S, retries=self.retries, backoff_s=self.backoff_s)
        web = Web(user_agent(self.contact), Turns(self.connections, self.delay_s), limits,
                  private=self.private, storage_options=self.storage_options)
        try:
            yield web
        finally:
            web.close()


def user_agent(contact: str | None) -> str:
    """What servers are told: program, version and whom to write to."""
    try:
        release = version("curator-text")
    except PackageNotFoundError:  # run from its sources
        release = "0"
    return f"curator-text/{release} (collects data for training; {contact or 'no contact given'})"


def lasting(message: str, cause: type[OSError] = PermissionError) -> InputError:
    """An error of a file that another try would not change: its unit fails and the others are read. `cause`:
    FileNotFoundError where the server has none."""
    error = InputError(message)
    error.__cause__ = cause(message)
    return error


def joined(base: str, path: str) -> str:
    """A path below a base address or folder."""
    return f"{base.rstrip('/')}/{path.lstrip('/')}"


def _is_web(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


def _why(reason: str) -> str:
    if reason.startswith("http_"):
        return f"the server answers HTTP {reason.removeprefix('http_')}"
    return {"no_ranges": "the server gives no parts of files (HTTP ranges): take a mirror that does, or "
                         "download it and name the folder as base",
            "private_address": "its address is outside the public internet; `private: true` allows that",
            "too_large": f"it is larger than {WHOLE_BYTES} bytes"}.get(reason, reason)
