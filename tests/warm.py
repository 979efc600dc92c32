"""Fork servers for tests, forked from one process that has imported the core already.

A fork server imports NumPy, Arrow and the core first, a third of a second that each run of each test would pay for. What it does
then, and all that the workers do, is the same; `test_runtime.py` and every run in a process of its own start theirs as users do.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from curator.worker import fork_server, processes
from tests.engine.small_stages import TOKEN

ROOM = 1000  # bytes for the value of TOKEN


class Forked:
    """A fork server, as `subprocess.Popen` gives it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.handle: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self.handle = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> None:
        if self.handle is None:
            return
        if not select.select([self.handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("fork server", timeout or 0)
        os.close(self.handle)
        self.handle = None

    def kill(self) -> None:
        if self.handle is not None:
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)


class Warm:
    """The process that forks them; it starts when the first one is wanted."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.lock = threading.Lock()

    def start(self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], **options: Any) -> Forked:
        """In the place of `subprocess.Popen`, for the command of a fork server."""
        driver, *keep = pass_fds
        wanted = {"job": json.loads(command[-1]), "env": dict(env), "cwd": os.getcwd()}
        with self.lock:
            if self.process is None:
                self._begin()
            socket.send_fds(self.line, [json.dumps(wanted).encode()], [driver, 1, 2, *keep])
            return Forked(int(self.line.recv(64)))

    def _begin(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = os.pathsep.join(p for p in sys.path if p)
        env = {**processes.ONE_THREAD, **os.environ, "PYTHONPATH": paths, TOKEN: "-" * ROOM}
        self.process = subprocess.Popen([sys.executable, "-c", "from tests.warm import serve; serve()", str(theirs.fileno())],
                                        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env)
        theirs.close()

    def close(self) -> None:
        if self.process is not None:
            self.line.close()
            self.process.wait()

    def module(self) -> SimpleNamespace:
        """In the place of the module `subprocess`, for `curator.worker.processes`."""
        return SimpleNamespace(Popen=self.start, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)


# -- in that process --------------------------------------------------------------------------------------------------


def _import_for_all() -> None:
    """What workers import and ask at their start, each for itself: a third of the work of a small run. It starts no thread."""
    import duckdb  # noqa: F401
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401

    import curator.worker.main  # noqa: F401
    from curator.registry import packs
    from curator.sql import let_go, parse
    from curator.worker.imports import hold_back

    hold_back()
    dict(packs.installed()[0].stages())
    parse._functions()
    let_go()
    assert len(os.listdir("/proc/self/task")) == 1


def serve() -> None:
    _import_for_all()
    line = socket.socket(fileno=int(sys.argv[1]))
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(TOKEN.encode())  # where the others look for it, in /proc
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno())
    while True:
        ready, _, _ = select.select([line, wake], [], [])
        if wake in ready:
            wake.recv(4096)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if line in ready:
            wanted, fds, _, _ = socket.recv_fds(line, 1 << 20, 100)
            if not wanted:
                break
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (line, wake, waker):
                    end.close()
                _become(json.loads(wanted), fds, place)
            line.send(str(pid).encode())
            for fd in fds:
                os.close(fd)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _become(wanted: Mapping[str, Any], fds: Sequence[int], place: int) -> None:
    """Be a fork server as if it had been started by its command; does not come back."""
    try:
        driver, out, err, *keep = fds
        os.setsid()
        for fd, number in ((out, 1), (err, 2)):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(wanted["env"])
        token = wanted["env"].get(TOKEN, "").encode()
        ctypes.memset(place, 0, ROOM)
        ctypes.memmove(place, token, min(len(token), ROOM))
        time.tzset()
        os.chdir(wanted["cwd"])
        sys.argv[1:] = [str(driver), json.dumps({**wanted["job"], "keep": keep})]
        fork_server.main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
