"""How fast a server may be asked: all workers of this machine keep to one pace."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

AHEAD_S = 1.0  # so much of a minute's worth may be used at once
LATEST_S = 600.0  # no debt is longer: a clock that was set back holds nobody for hours
_DUE = struct.Struct("=2d")


class Pace:
    """Requests and tokens a minute. `limits`: of each, None for no limit.

    A file keeps until when what was asked fills each limit ("generic cell rate algorithm"); a question waits
    for those before it and never for its own size, so that one of any size gets through. Only what was really
    sent counts, so a killed worker leaves no debt.
    """

    def __init__(self, name: str, limits: tuple[float | None, float | None],
                 clock: Callable[[], float] = time.time) -> None:
        self._seconds = [60.0 / limit if limit else 0.0 for limit in limits]  # of one request, of one token
        self._clock, self._turn, self._lock = clock, threading.Lock(), threading.Lock()
        key = hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
        path = os.path.join(tempfile.gettempdir(), f"curator-{os.getuid()}-{key}.pace")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def take(self, tokens: float, stopped: threading.Event) -> bool:
        """Wait until a question of so many tokens may be sent; False where `stopped` was set before."""
        with self._turn:  # one thread of a process waits at the file, the others in line for it
            while pause := self.try_take(tokens):
                if stopped.wait(pause):
                    return False
        return not stopped.is_set()

    def try_take(self, tokens: float) -> float:
        """0 if a question may be sent now, and is counted; else the seconds until it may."""
        now = self._clock()
        with self._due() as due:
            pause = max(0.0, *(min(at, now + LATEST_S) - AHEAD_S - now for at in due))
            if not pause:
                self._add(due, now, (1, tokens))
        return pause

    def correct(self, tokens: float) -> None:
        """A question took so many tokens more than it was counted for."""
        with self._due() as due:
            self._add(due, self._clock(), (0, tokens))

    def close(self) -> None:
        with self._lock:
            os.close(self._file)
            self._file = -1  # its number may soon be another file's

    def _add(self, due: list[float], now: float, amounts: Sequence[float]) -> None:
        for k, (seconds, amount) in enumerate(zip(self._seconds, amounts, strict=True)):
            due[k] = max(min(due[k], now + LATEST_S), now) + seconds * amount

    @contextmanager
    def _due(self) -> Iterator[list[float]]:
        with self._lock:
            if self._file < 0:  # who still asks is not waited for
                yield [0.0, 0.0]
                return
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                held = os.pread(self._file, _DUE.size, 0)
                due = list(_DUE.unpack(held)) if len(held) == _DUE.size else [0.0, 0.0]
                yield due
                os.pwrite(self._file, _DUE.pack(*due), 0)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
