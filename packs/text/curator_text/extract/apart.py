"""Libraries that may hang or crash, in a process beside the worker."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from typing import Any

from curator.api.errors import CuratorError
from curator_text.extract import child

_WALL = 4.0  # the clock may show so many times the limit: a busy machine is not the page's fault
_START_S = 120.0  # for the imports


class CallFailed(Exception):
    """What one call came to; the next one is answered all the same."""

    def __init__(self, error: str, traceback: str = "") -> None:
        super().__init__(error)
        self.error, self.traceback = error, traceback


class Apart:
    """A function, `module:name`, called in a process of its own, which is killed and made anew when a call takes
    over `limit_s` of its CPU time (or four times that by the clock), and made anew when it dies.

    `imports`: what it imports before the first call. `remedy`: what to do when one of them is missing.

    It is a new interpreter and no fork of the worker: a fork copies locks that other threads hold.
    """

    def __init__(self, function: str, limit_s: float, what: str, remedy: str,
                 imports: tuple[str, ...] = ()) -> None:
        self._function, self._limit_s, self._what, self._remedy = function, limit_s, what, remedy
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    @cache
    def shared(function: str, limit_s: float, what: str, remedy: str, imports: tuple[str, ...] = ()) -> Apart:
        """One for all stages of a worker that ask the same; it ends with the worker."""
        return Apart(function, limit_s, what, remedy, imports)

    def start(self) -> None:
        """Have the process ready.

        Raises:
            CuratorError: a library is missing.
        """
        if self._process is not None:
            return
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", child.__file__, str(os.getpid()), self._function, *self._imports],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths})
        kind, said, _ = self._answer(_START_S, _START_S)
        if kind != "ready":
            self.close()
            raise CuratorError(f"{self._remedy} ({said})")

    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """Raises:
            CallFailed: it raised, took too long, or killed the process.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            child.send(self._process.stdin, (arguments, keywords))
        except BrokenPipeError:
            self.close()
            raise CallFailed(f"the process for {self._what} is gone") from None
        kind, said, traceback = self._answer(self._limit_s, _WALL * self._limit_s)
        if kind == "error":
            raise CallFailed(said, traceback)
        return said

    def _answer(self, cpu_s: float, wall_s: float) -> tuple[str, Any, str]:
        """What the process answers; kills it where a limit is over."""
        process, began = self._process, time.monotonic()
        assert process is not None
        assert process.stdout is not None
        at_begin = _cpu_s(process.pid)
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        wait_s = cpu_s
        while not poll.poll(wait_s * 1000):
            used, gone = _cpu_s(process.pid) - at_begin, time.monotonic() - began
            if used >= cpu_s or gone >= wall_s:
                self.close()
                raise CallFailed(f"TimeoutError: {self._what} took over {cpu_s:g} s")
            wait_s = min(max(cpu_s - used, 0.01), wall_s - gone)
        try:
            return child.receive(process.stdout)
        except EOFError:
            self.close()
            raise CallFailed(f"{self._what} killed the process that worked on it "
                             f"({_cause(process.returncode)})") from None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):  # a question that it did not read
                    if pipe is not None:
                        pipe.close()


def _cpu_s(pid: int) -> float:
    """CPU time of a process: the clock of another one has this number on Linux (clock_getcpuclockid)."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0  # it is dead, and its pipe says so


def _cause(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
