"""Fork servers for tests, and commands that none of them is about, forked from one process that has imported the core already.

A fork server imports NumPy, Arrow and the core first, a third of a second that each run of each test would pay for. What it does
then, and all that the workers do, is the same; `test_runtime.py` and every run in a process of its own start theirs as users do.
So it is with `curator` in another process, where a test asks for what it says and not for how it starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from curator.api import own_code
from curator.registry import packs
from curator.worker import fork_server
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
        return Forked(self._fork({"job": json.loads(command[-1]), "env": dict(env), "cwd": os.getcwd()}, [driver, 1, 2, *keep]))

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | os.PathLike | None = None,
            capture_output: bool = True, text: bool = True) -> subprocess.CompletedProcess[str]:
        """In the place of `subprocess.run`, for Python with `-c CODE` or `-m MODULE`, what is said captured. Hashes of texts have
        another seed there than here."""
        assert (command[0], command[1] in ("-c", "-m"), capture_output, text) == (sys.executable, True, True, True), command
        wanted = {"python": [*command[1:]], "env": {**(os.environ if env is None else env)}, "cwd": str(cwd or os.getcwd())}
        ended, ends = os.pipe()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(ended) as status:
            self._fork(wanted, [ends, out.fileno(), err.fileno()])
            os.close(ends)
            code = int(status.read())
            said = [(file.seek(0), file.read())[1] for file in (out, err)]
        return subprocess.CompletedProcess(command, code, *said)

    def _fork(self, wanted: Mapping[str, Any], fds: Sequence[int]) -> int:
        with self.lock:
            if self.process is None:
                self._begin()
            socket.send_fds(self.line, [json.dumps(wanted).encode()], fds)
            return int(self.line.recv(64))

    def _begin(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = os.pathsep.join(p for p in sys.path if p)
        env = {**fork_server.ONE_THREAD, **os.environ, "PYTHONPATH": paths, TOKEN: "-" * ROOM}
        env.pop("PYTHONHASHSEED", None)
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

    import curator.cli.main
    import curator.run.run
    import curator.testing
    import curator.worker.main  # noqa: F401
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
                wanted = json.loads(wanted)
                if "python" in wanted:
                    _be_python(wanted["python"], wanted, fds)
                    return
                _become(wanted, fds, place)
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
        _move_to(wanted, out, err)
        token = wanted["env"].get(TOKEN, "").encode()
        ctypes.memset(place, 0, ROOM)
        ctypes.memmove(place, token, min(len(token), ROOM))
        sys.argv[1:] = [str(driver), json.dumps({**wanted["job"], "keep": keep})]
        fork_server.main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _move_to(wanted: Mapping[str, Any], out: int, err: int) -> None:
    """Have the environment, the folder and the outputs that are wanted."""
    for fd, number in ((out, 1), (err, 2)):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    os.chdir(wanted["cwd"])


def _be_python(words: Sequence[str], wanted: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Do what Python does with these words; its parent tells how it ended. Afterwards the process is to end as any does."""
    ended, out, err = fds
    child = os.fork()
    if child:
        os.write(ended, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
        os._exit(0)
    os.close(ended)
    _move_to(wanted, out, err)
    sys.path[:0] = ["", *filter(None, wanted["env"].get("PYTHONPATH", "").split(os.pathsep))]
    packs.claims.cache_clear()
    own_code._cared_for.cache_clear()
    sys.argv[:] = words[:1] + words[2:]
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
