"""Connections that look whom they connect to, and that another thread can break off: urllib3's, but for the
connecting.

Addresses are checked between the lookup of the name and the connecting: so neither a redirect nor a name that
changes its address gets round it.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from contextlib import suppress

import urllib3
from urllib3 import exceptions as faults
from urllib3.connection import HTTPConnection, HTTPSConnection

from curator.io.http.addresses import is_public
from curator.io.http.room import Share


class Refusal(Exception):
    """The URL will not be fetched, now or later. The message is the reason."""


class Trouble(Exception):
    """It did not work this time. `again`: another try may do; `retry_after`: when, as the server says."""

    def __init__(self, message: str, again: bool = True, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.again, self.retry_after = again, retry_after


_thread = threading.local()  # .transfer: the one that this thread works for


class Transfer:
    """One URL on its way. Connections that a thread makes or uses in its `with` block belong to it; others
    may `abort` it.

    `share`: of the room for what is fetched. `part`: the bytes to ask for, from and up to; None for all.
    """

    def __init__(self, deadline_s: float, private: bool, share: Share,
                 part: tuple[int, int] | None = None) -> None:
        self.deadline, self.private, self.share = time.monotonic() + deadline_s, private, share
        self.part = part
        self.waited = False  # for room, since this was last set
        self.sock: socket.socket | None = None
        self.aborted = False

    def __enter__(self) -> Transfer:
        _thread.transfer = self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.transfer = None

    def remaining_s(self) -> float:
        return self.deadline - time.monotonic()

    def check(self) -> None:
        if self.aborted or self.remaining_s() <= 0:
            raise Trouble("the deadline passed before the answer was complete", again=False)

    def hold(self, nbytes: int) -> None:
        """Wait until so many bytes may be held. That time is not the server's: the deadline moves."""
        left, self.deadline = self.remaining_s(), math.inf
        try:
            self.waited |= self.share.grow(nbytes)
        finally:
            self.deadline = time.monotonic() + left

    def abort(self) -> None:
        """Wake the thread that waits for the server."""
        self.aborted = True
        if self.sock is not None:
            with suppress(OSError):  # closed meanwhile
                # not TLS's own, which would change the state of a reader
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class _Tracked(HTTPConnection):
    """A connection that can be broken off with the transfer that it works for."""

    def request(self, *args, **kwargs) -> None:
        super().request(*args, **kwargs)
        _thread.transfer.sock = self.sock  # also where the connection was open already


class _Guarded(_Tracked):
    """A connection that looks whom it connects to."""

    def _new_conn(self) -> socket.socket:
        transfer: Transfer = _thread.transfer
        try:
            found = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise faults.NameResolutionError(self.host, self, error) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not transfer.private and not all(map(is_public, addresses)):
            raise Refusal("private_address")
        fault: OSError = OSError("the name has no address")
        for address in addresses:
            transfer.check()
            try:
                left_s = min(self.timeout or math.inf, transfer.remaining_s())
                transfer.sock = socket.create_connection((address, self.port), left_s)
            except OSError as error:
                fault = error
            else:
                transfer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return transfer.sock
        if isinstance(fault, TimeoutError):
            raise faults.ConnectTimeoutError(self, str(fault)) from fault
        raise faults.NewConnectionError(self, str(fault)) from fault


def pool_classes(guarded: bool) -> dict[str, type]:
    """urllib3's pools, with connections that belong to transfers. `guarded`: and look whom they connect
    to."""
    mixin = _Guarded if guarded else _Tracked
    return {scheme: type("Pool", (pool,), {"ConnectionCls": type("Connection", (mixin, connection), {})})
            for scheme, pool, connection in (("http", urllib3.HTTPConnectionPool, HTTPConnection),
                                             ("https", urllib3.HTTPSConnectionPool, HTTPSConnection))}
