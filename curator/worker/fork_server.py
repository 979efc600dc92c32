"""The parent of all local workers: a small process that imports once, forks, reaps, and cleans up after the
driver.

FD, its first argument, is one end of a socket pair. The driver sends (FORK, worker) with the worker's own
socket attached, or (KILL, worker); the fork server answers (pid, worker, exit status) when a worker has
ended. When the driver is gone, however it went, the socket closes: the fork server kills every worker and
removes the run's shared memory. A fork costs some ms where a new interpreter with Arrow costs a third of a
second, and it is safe because this process never starts a thread.

`curator run` forks this process from itself, right behind its imports (`fork_early`): it has them without
work of its own, and is there when the first worker is wanted, a quarter of a second less for every run. Only
the program does so, on Linux, while it has one thread. Whoever else runs a pipeline (a script, a notebook, an
agent of a cluster) starts a new interpreter.

The standard library's fork server neither kills with a process what that started, nor cleans up after its
owner; so this is ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from curator.machine.folders import remove_folder

REQUEST = struct.Struct("<II")  # FORK or KILL, worker
EXITED = struct.Struct("<iIi")  # pid, worker, status as of os.waitpid
FORK, KILL = 1, 2
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt
JOB_BYTES = 1 << 20  # more than fits into one message of a socket
# A process is forked safely only while it has one thread: BLAS libraries and Arrow's second allocator start
# theirs on import.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
              "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# What a process lets go is the system's again: GNU's allocator otherwise keeps up to twice the largest block
# that was ever freed (32 MB), and Arrow's own keeps more, in every worker. In bytes.
LITTLE_KEPT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "8000000",
               "MALLOC_TRIM_THRESHOLD_": "16000000"}
ENVIRONMENT = {**ONE_THREAD, **LITTLE_KEPT}


def main() -> None:
    serve_driver(int(sys.argv[1]), json.loads(sys.argv[2]))


def serve_driver(fd: int, job: dict[str, Any]) -> None:
    """Until the driver is gone. `job`: `path` of imports, `modules` of stages, `folders` to remove at the
    end, and descriptors to `keep`."""
    driver = socket.socket(fileno=fd)
    sys.path[:] = job["path"]
    for fd in (driver.fileno(), *job["keep"]):
        os.set_inheritable(fd, False)  # forks hold it, programs that a stage starts do not
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # who closed these lends their numbers to pipes of ours, over which others would write
    os.close(fd)
    _leave_a_watchdog(job["folders"], (driver.fileno(), *job["keep"]))
    import_once(job["modules"])
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    workers: dict[int, int] = {}  # pid -> worker
    try:
        while _serve(driver, wake, workers):
            pass
    finally:
        for pid in workers:
            _kill(pid)
        for pid in workers:
            os.waitpid(pid, 0)
        for folder in job["folders"]:
            remove_folder(folder)


def import_once(modules: Sequence[str]) -> None:
    """What every worker would import otherwise, each for itself."""
    from curator.worker.imports import hold_back

    gc.disable()  # nothing of this is garbage
    hold_back()
    for name in ("curator.worker.main", "numpy.ma", *modules):  # Arrow takes the second for any array
        # A module that cannot be imported is the worker's to report, with its traceback.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # a worker's garbage collector leaves these pages alone, and shared
    gc.enable()


def _leave_a_watchdog(folders: list[str], not_for_it: tuple[int, ...]) -> None:
    """Start a process that removes the shared memory when this one and all workers are gone, and could not do
    it themselves.

    It is no child of ours: who kills a process with its children (a cluster that clears up) does not find it.
    It waits on a pipe that this process and every fork of it hold open.
    """
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(read)
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in (write, *not_for_it):
        os.close(fd)
    while os.read(read, 1):
        pass
    for folder in folders:
        remove_folder(folder)
    os._exit(0)


def _serve(driver: socket.socket, wake: int, workers: dict[int, int]) -> bool:
    """Handle what is there; False when the driver is gone."""
    ready, _, _ = select.select([driver.fileno(), wake], [], [])
    if wake in ready:
        os.read(wake, 4096)
        _reap(driver, workers)
    if driver.fileno() in ready:
        try:
            message, fds, _, _ = socket.recv_fds(driver, REQUEST.size, 1)
        except ConnectionResetError:  # it went without reading our last word
            return False
        if len(message) < REQUEST.size:
            return False
        kind, worker = REQUEST.unpack(message)
        if kind == FORK:
            _fork(driver, wake, worker, fds[0], workers)
        else:
            for pid in [p for p, w in workers.items() if w == worker]:
                _kill(pid)
    return True


def _reap(driver: socket.socket, workers: dict[int, int]) -> None:
    while workers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _kill(pid)  # what it started and left behind
        # the driver is gone: the next read says so
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            driver.sendall(EXITED.pack(pid, workers.pop(pid), status))


def _kill(pid: int) -> None:
    """End a worker and the programs that it started; each worker leads a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _fork(driver: socket.socket, wake: int, worker: int, fd: int, workers: dict[int, int]) -> None:
    pid = os.fork()
    if pid:
        with contextlib.suppress(PermissionError):  # the child does the same; whoever is first
            os.setpgid(pid, pid)
        os.close(fd)
        workers[pid] = worker
        return
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM):
            # a program that a stage starts inherits what is ignored, not this
            signal.signal(number, lambda *_: None)
        os.set_inheritable(fd, False)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        driver.close()
        os.close(wake)
        workers.clear()
        from curator.worker.main import serve

        status = serve(fd, worker)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)


def _leave(status: int) -> None:
    """End a fork, whatever becomes of its last words: what it was forked from is not to be done twice."""
    for stream in (sys.stdout, sys.stderr):
        # it is closed, or nobody reads it any more
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


# -- forked from the command line itself ---------------------------------------------------------------------


def fork_early() -> None:
    """Fork it, if that can be done here. To be called before Arrow and NumPy are imported."""
    if sys.platform != "linux" or "numpy" in sys.modules:
        return
    # Libraries read them when they are imported, Arrow its own when it first takes memory.
    lent = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(lent)
    import_once(())
    for name in lent:
        del os.environ[name]
    with contextlib.suppress(OSError):  # there is no /proc, or no room for another process
        if len(os.listdir("/proc/self/task")) == 1:
            _made.append(Early())


def take_early() -> Early | None:
    """The one that was forked, for who asks first."""
    return _made.pop() if _made else None


class Forked:
    """A child of this process, as `subprocess.Popen` gives it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float = inf) -> None:
        until = time.monotonic() + timeout
        with contextlib.suppress(ChildProcessError):  # somebody has waited for it already
            while not os.waitpid(self.pid, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    raise subprocess.TimeoutExpired("fork server", timeout)
                time.sleep(0.002)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Early:
    """A fork of this process that becomes a fork server when it is told to, and ends when this one does."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            self.line.close()
            _wait_and_serve(theirs)
        theirs.close()
        self.process = Forked(pid)

    def serve(self, job: str, env: Mapping[str, str], fds: Sequence[int]) -> Forked | None:
        """Have it do what a new process with these would do; None if it cannot be told."""
        told = json.dumps([job, dict(env), os.getcwd()]).encode()
        with self.line:
            try:
                socket.send_fds(self.line, [told], fds)
            except OSError:  # it has been killed, or the environment is larger than a message
                return None
        return self.process


_made: list[Early] = []


def _wait_and_serve(line: socket.socket) -> None:
    """The life of the fork; does not come back."""
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        told, fds, _, _ = socket.recv_fds(line, JOB_BYTES, 8)
        line.close()
        if told:
            job, env, folder = json.loads(told)
            os.environ.clear()
            os.environ.update(env)
            os.chdir(folder)
            for name, option in (("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD),
                                 ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD)):
                # GNU's C library reads these when a process starts; others have no such option
                with contextlib.suppress(AttributeError, ValueError):
                    ctypes.CDLL(None).mallopt(option, int(env[name], 0))
            driver, *keep = fds
            serve_driver(driver, {**json.loads(job), "keep": keep})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)
