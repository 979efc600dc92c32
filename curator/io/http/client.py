"""Getting what a URL names from servers that nobody vouches for: size and time bounded, tried again where
that helps.

urllib3 does the talking. Redirects and tries are ours: each URL on the way is checked, and one deadline holds
for all. Proxies of the environment are not used: behind one nobody here sees the address that is connected
to, so it has to be named.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import IncompleteRead
from io import BytesIO
from typing import Any
from urllib.parse import urljoin

import urllib3
from urllib3 import exceptions as faults

from curator.io.http.addresses import host_of, is_public, normalised
from curator.io.http.connections import Refusal, Transfer, Trouble, pool_classes
from curator.io.http.retry import TRANSIENT, innermost, pause_s
from curator.io.http.room import Share

GOOD = frozenset({200, 203})
# Of Content-Encoding; other words there (`utf-8`, `binary`) are mistakes that change nothing.
COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"})
REDIRECTS_MAX = 5
CHUNK_BYTES = 1 << 16  # read at once; also what is read of an unwanted answer to keep its connection
SWEEP_S = 0.25  # how often overdue transfers are looked for
FIRST_BYTES = 1 << 18  # of an answer whose size is not known yet
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)$")
POOLS = 64  # hosts whose connections are kept open

# A reason to refuse an answer, from its URL, its headers and whether it is a redirect; None to go on.
Check = Callable[[str, Mapping[str, str], bool], str | None]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one URL may cost. `deadline_s`: all in all, with redirects, tries and pauses."""

    max_bytes: int
    connect_timeout_s: float
    read_timeout_s: float
    deadline_s: float
    retries: int
    backoff_s: float


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What became of a URL: `data`, or a `reason` if the server answered for good, or an `error` if that may
    change.

    `url`: where the answer came from, if there was one. `content_type`: the header. `total`: bytes of the
    whole file, where a part was asked for, and `version`: what the server calls this state of it.
    """

    url: str | None = None
    content_type: str | None = None
    data: bytes | None = None
    reason: str | None = None
    error: str | None = None
    total: int = 0
    version: str = ""


class Client:
    """Gets URLs, from several threads. `check`: sees the headers of each answer that is good, or a redirect.

    `private`: addresses outside the public internet are allowed. `proxy`: the URL of a proxy that does the
    connecting, and has to refuse such addresses itself. `per_host`: connections to a host that are kept.
    """

    def __init__(self, limits: Limits, headers: Mapping[str, str], check: Check, *, private: bool = False,
                 proxy: str | None = None, per_host: int = 8) -> None:
        self._limits, self._check, self._private, self._proxy = limits, check, private, proxy
        kept: dict[str, Any] = {"num_pools": POOLS, "maxsize": per_host, "headers": dict(headers),
                                "retries": False}
        self._pools = urllib3.PoolManager(**kept) if proxy is None else urllib3.ProxyManager(proxy, **kept)
        self._pools.pool_classes_by_scheme = pool_classes(guarded=proxy is None)
        self._transfers: set[Transfer] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._sweep, name="overdue transfers", daemon=True).start()

    def get(self, url: str, share: Share, part: tuple[int, int] | None = None) -> Fetched:
        """What the URL names, or why it is not to be had; never raises for what a server or a network does.

        `part`: only the bytes from the first number up to the second, or up to the end of the file. A server
        that sends more has the reason `no_ranges`.

        Of `share` it holds what it holds of the answer: from the first request on `FIRST_BYTES`, in the end
        its bytes.
        """
        share.grow(min(FIRST_BYTES, self._limits.max_bytes))
        transfer = Transfer(self._limits.deadline_s, self._private, share, part)
        self._transfers.add(transfer)
        try:
            with transfer:
                return self._tried(url, transfer)
        except Refusal as refusal:
            return Fetched(reason=str(refusal))
        finally:
            self._transfers.discard(transfer)

    def _tried(self, url: str, transfer: Transfer) -> Fetched:
        """The answer of the first try that has one, or the error of the last."""
        attempt = excused = 0
        while True:
            try:
                return self._follow(url, transfer)
            except Trouble as trouble:
                failed = Fetched(error=f"{trouble} (tries: {attempt + 1})")
                if not trouble.again or transfer.remaining_s() <= 0:
                    return failed
                # for room, not for the server, which may have had enough of that
                if transfer.waited and not excused:
                    excused = 1
                    continue  # what it needs is held already
                pause = pause_s(attempt, self._limits.backoff_s, trouble.retry_after)
                if (attempt == self._limits.retries or pause >= transfer.remaining_s()
                    or self._closed.wait(pause)):
                    return failed
                attempt += 1

    def abort(self) -> None:
        """Break off all that is on its way."""
        for transfer in list(self._transfers):
            transfer.abort()

    def close(self) -> None:
        """Wake all that waits, and let go of the connections."""
        self._closed.set()
        self.abort()
        self._pools.clear()

    def _sweep(self) -> None:
        """Timeouts of a socket end a silence; only this ends a server that sends a byte now and then."""
        while not self._closed.wait(SWEEP_S):
            for transfer in list(self._transfers):
                if transfer.remaining_s() <= 0:
                    transfer.abort()

    def _follow(self, url: str, transfer: Transfer) -> Fetched:
        """One try: the answer at the end of the redirects."""
        location = ""
        for _ in range(REDIRECTS_MAX + 1):
            try:
                url = normalised(urljoin(url, location))
            except ValueError:
                raise Refusal("bad_url") from None
            response = self._send(url, transfer)
            try:
                target = response.get_redirect_location()
                if not target:
                    return self._answer(response, url, transfer)
                reason = self._check(url, response.headers, True)
                if reason:
                    return Fetched(url=url, reason=reason)
                location = _unicode(target)
            finally:
                _let_go(response)
        raise Refusal("redirects")

    def _send(self, url: str, transfer: Transfer) -> urllib3.BaseHTTPResponse:
        """A request for this very URL, up to the headers of its answer."""
        transfer.check()
        left = transfer.remaining_s()
        timeout = urllib3.Timeout(connect=min(self._limits.connect_timeout_s, left),
                                  read=min(self._limits.read_timeout_s, left))
        if self._proxy is not None and not self._private and _is_private_literal(url):
            raise Refusal("private_address")
        try:
            headers = self._pools.headers
            if part := transfer.part:
                headers = {**headers, "Range": f"bytes={part[0]}-{part[1] - 1}"}
            return self._pools.request("GET", url, headers=headers, preload_content=False, redirect=False,
                                       timeout=timeout)
        except UnicodeError as error:  # a name that no lookup takes
            raise Refusal("bad_url") from error
        except faults.HTTPError as error:
            transfer.check()
            raise _trouble(error, url) from error

    def _answer(self, response: urllib3.BaseHTTPResponse, url: str, transfer: Transfer) -> Fetched:
        """What an answer that is no redirect says."""
        status, headers = response.status, response.headers
        if status in TRANSIENT or status >= 500:
            raise Trouble(f"HTTP {status} from {host_of(url)}", status in TRANSIENT,
                          headers.get("Retry-After"))
        kind = headers.get("Content-Type")
        if status not in GOOD and not (transfer.part and status == 206):
            return Fetched(url=url, content_type=kind, reason=f"http_{status}")
        reason = self._check(url, headers, False)
        if reason:
            return Fetched(url=url, content_type=kind, reason=reason)
        unknown = _compressions(headers) - set(response.CONTENT_DECODERS)
        if unknown:
            raise Trouble(f"the content is compressed as {min(unknown)}, which nobody here can read",
                          again=False)
        try:
            data = self._body(response, transfer)
        except faults.DecodeError as error:
            raise Trouble(f"the content cannot be decompressed: {error}", again=False) from error
        except faults.HTTPError as error:
            transfer.check()
            raise _trouble(error, url) from error
        if transfer.part:
            return _part(transfer.part, data, url, response)
        return Fetched(url=url, content_type=kind, data=data, reason="too_large" if data is None else None)

    def _body(self, response: urllib3.BaseHTTPResponse, transfer: Transfer) -> bytes | None:
        """The content, decompressed; None if there is more of it than allowed, of which no more is read or
        decompressed."""
        length, most, part = response.length_remaining or 0, self._limits.max_bytes, transfer.part
        most = min(most, part[1] - part[0]) if part else most
        if length > most:
            return None
        # A known size at once, so that nobody waits in the middle; else twice as much as is there, as the
        # buffer grows, too.
        transfer.hold(length)
        data, size = BytesIO(), 0
        while chunk := response.read(CHUNK_BYTES):
            transfer.check()
            size += len(chunk)
            if size > most:
                return None
            if size > transfer.share.held:
                transfer.hold(min(2 * size, most))
            data.write(chunk)
        transfer.check()  # an abort looks like the end of an answer that has no length
        return data.getvalue()


def _part(part: tuple[int, int], data: bytes | None, url: str, response: urllib3.BaseHTTPResponse) -> Fetched:
    """A part of a file, if it is the one that was asked for (RFC 9110, section 14.4)."""
    told = _RANGE.match(response.headers.get("Content-Range", "")) if response.status == 206 else None
    start, total = (int(told[1]), int(told[2])) if told else (0, len(data or b""))
    ranged = told is not None or response.status != 206
    if data is None or not ranged or start != part[0] or len(data) > part[1] - start:
        return Fetched(url=url, reason="no_ranges")
    if len(data) != min(part[1], total) - start:
        raise Trouble(f"{host_of(url)} sent {len(data)} of {min(part[1], total) - start} bytes")
    return Fetched(url=url, content_type=response.headers.get("Content-Type"), data=data, total=total,
                   version=response.headers.get("ETag") or response.headers.get("Last-Modified") or "")


def _let_go(response: urllib3.BaseHTTPResponse) -> None:
    """Give the connection back if little is left to read from it, else close it."""
    with suppress(faults.HTTPError, OSError):
        if not response.tell() and (response.length_remaining or CHUNK_BYTES + 1) <= CHUNK_BYTES:
            response.read(decode_content=False)
    response.close()  # no more than that: a connection whose answer is read to its end is back in its pool


def _trouble(error: faults.HTTPError, url: str) -> Trouble:
    """What happened, in words."""
    host, cause, again = host_of(url), innermost(error), True
    if isinstance(error, faults.NameResolutionError):
        message, again = f"no address is known for the name {host}", getattr(cause, "errno",
                                                                             None) == socket.EAI_AGAIN
    elif isinstance(error, faults.NewConnectionError):
        message = f"no connection to {host}: {cause}"
    elif isinstance(error, faults.ConnectTimeoutError):
        message = f"no connection to {host}: it took too long"
    elif isinstance(error, faults.ReadTimeoutError):
        message = f"{host} is silent for too long"
    elif isinstance(error, faults.SSLError):
        message, again = f"no secure connection to {host}: {cause}", False
    elif isinstance(cause, IncompleteRead):
        message = f"{host} ended its answer too early"
    else:
        message = f"{host}: {type(cause).__name__}: {cause}"
    return Trouble(message, again)


def _compressions(headers: Mapping[str, str]) -> frozenset[str]:
    return COMPRESSIONS.intersection(word.strip()
                                     for word in headers.get("Content-Encoding", "").lower().split(","))


def _unicode(location: str) -> str:
    """A Location as its sender meant it: http.client reads headers as Latin-1, servers write UTF-8."""
    try:
        return location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return location


def _is_private_literal(url: str) -> bool:
    try:
        return not is_public((urllib3.util.parse_url(url).host or "").strip("[]"))
    except ValueError:  # a name
        return False
