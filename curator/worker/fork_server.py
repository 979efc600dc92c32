"""The parent of all local workers: a small process that imports once, forks, reaps, and cleans up after the
driver.

FD, its first argument, is one end of a socket pair. The driver sends (FORK, worker) with the worker's own
socket attached, or (KILL, worker); the fork server answers (pid, worker, exit status) when a worker has
ended. When the driver is gone, however it went, the socket closes: the fork server kills every worker and
removes the run's shared memory. A fork costs some ms where a new interpreter with Arrow costs a third of a
second, and it is safe because this process never starts a thread.

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
import sys
import traceback

from curator.machine.folders import remove_folder

REQUEST = struct.Struct("<II")  # FORK or KILL, worker
EXITED = struct.Struct("<iIi")  # pid, worker, status as of os.waitpid
FORK, KILL = 1, 2
PR_SET_PDEATHSIG = 1


def main() -> None:
    driver = socket.socket(fileno=int(sys.argv[1]))
    job = json.loads(sys.argv[2])
    sys.path[:] = job["path"]
    for fd in (driver.fileno(), *job["keep"]):
        os.set_inheritable(fd, False)  # forks hold it, programs that a stage starts do not
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leave_a_watchdog(job["folders"], (driver.fileno(), *job["keep"]))
    _import_once(job["modules"])
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


def _import_once(modules: list[str]) -> None:
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
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

