"""The worker processes of one node: started, told, heard, ended, and cleaned up after.

It knows processes by the numbers that its caller chose, and messages; of the run it knows nothing. Its owner waits in one place
for everything: answers of processes, and their deaths, which the fork server reports. Batches stay in shared memory; only their
names pass through here.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from curator.engine.protocol import (
    Done,
    Emitted,
    End,
    Ended,
    EndProcess,
    FromProcess,
    GaveUp,
    Rank,
    Ready,
    ReleaseBatch,
    Request,
    Restored,
    Send,
    Setup,
    StartProcess,
    ToProcess,
)
from curator.machine.detect import visible_devices
from curator.machine.folders import clear_folder, make_folders, remove_folder
from curator.worker.fork_server import EXITED, FORK, KILL, REQUEST
from curator.worker.pickling import dumps
from curator.worker.store import Data, Store

GRACE_S = 10.0  # for processes to close when the run has ended
FORK_SERVER, WAKE = -1, -2  # where a process number stands otherwise
# A process is forked safely only while it has one thread: BLAS libraries and Arrow's second allocator start theirs on import.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
              "JE_ARROW_MALLOC_CONF": "background_thread:false"}
SIZE = struct.Struct("!i")  # goes before each message, as `multiprocessing.connection` has it


class Line:
    """Our end of a process's socket. It never waits: a process that hangs, or is stopped, stops nobody else."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end, self.inbox, self.outbox = end, bytearray(), bytearray()

    def send(self, message: bytes = b"") -> None:
        """Send what waits and a message, as far as the socket takes it now; the rest waits in `outbox`."""
        if message:
            self.outbox += SIZE.pack(len(message)) + message
        # An error: the process has died, and the fork server is about to say so.
        with contextlib.suppress(OSError):
            while self.outbox:
                del self.outbox[:self.end.send(self.outbox)]

    def receive(self) -> tuple[list[bytes], bool]:
        """The whole messages that have come, and whether there may be more. Half a message of a dead process is nothing."""
        open_ = True
        try:
            while open_:
                chunk = self.end.recv(1 << 18)
                self.inbox += chunk
                open_ = bool(chunk)
        except BlockingIOError:
            pass
        except OSError:
            open_ = False
        messages, at = [], 0
        while at + SIZE.size <= len(self.inbox):
            end = at + SIZE.size + SIZE.unpack_from(self.inbox, at)[0]
            if end > len(self.inbox):
                break
            messages.append(bytes(self.inbox[at + SIZE.size:end]))
            at = end
        del self.inbox[:at]
        return messages, open_


class Processes:
    """Worker processes of this machine. All methods but `wake` belong to one thread.

    `modules`: imported once, before processes are forked. `keep`: descriptors that all of them hold open (the run's lock).
    """

    def __init__(self, modules: Sequence[str] = (), keep: Sequence[int] = ()) -> None:
        self.folders = dict(make_folders())
        self.devices = visible_devices()
        self.lines: dict[int, Line] = {}
        self.alive: set[int] = set()  # forked and not reported as ended
        self.ready: set[int] = set()
        self.asked: set[int] = set()  # of these, the ones that end by themselves
        self.unwanted: set[int] = set()  # killed at our owner's wish: no message follows
        self.files: set[str] = set()  # batches in shared memory that our owner was told of
        self.failures: dict[int, GaveUp] = {}  # the last words of processes that have not ended yet
        self.half = b""
        self.selector = selectors.DefaultSelector()
        self.woken, self.waker = socket.socketpair()
        for end in (self.woken, self.waker):
            end.setblocking(False)
        self.selector.register(self.woken, selectors.EVENT_READ, WAKE)
        self._start_fork_server(modules, keep)

    def _start_fork_server(self, modules: Sequence[str], keep: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        told = json.dumps({"path": sys.path, "modules": list(modules), "folders": list(self.folders), "keep": list(keep)})
        paths = os.pathsep.join(p for p in sys.path if p)
        self.fork_server_process = subprocess.Popen(
            [sys.executable, "-c", "from curator.worker.fork_server import main; main()", str(theirs.fileno()), told],
            pass_fds=[theirs.fileno(), *keep], start_new_session=True, stdin=subprocess.DEVNULL,
            env={**ONE_THREAD, **os.environ, "PYTHONPATH": paths})
        theirs.close()
        self.fork_server = ours
        self.selector.register(ours, selectors.EVENT_READ, FORK_SERVER)

    # -- to processes ---------------------------------------------------------------------------------------

    def do(self, request: Request) -> None:
        match request:
            case Send():
                self.send(request.process, request.message)
            case ReleaseBatch():
                self.release(request.data)
            case StartProcess():
                self.start(request.process, request.spec, request.rank, request.restored)
            case EndProcess():
                self.stop(request.process, request.kill)

    def start(self, process: int, spec: bytes, rank: Rank, restored: list[Restored]) -> None:
        """Fork a process and set it up. `spec`: the pickled operator, and the folder of sidecars."""
        ours, theirs = socket.socketpair()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the fork server is gone, and is missed or about to be
            socket.send_fds(self.fork_server, [REQUEST.pack(FORK, process)], [theirs.fileno()])
            self.alive.add(process)
        theirs.close()
        self.lines[process] = Line(ours)
        self.selector.register(ours, selectors.EVENT_READ, process)
        devices = ",".join(self.devices[n] if n < len(self.devices) else str(n) for n in rank.visible)
        self.send(process, Setup(spec, list(self.folders), rank, devices, restored))

    def send(self, process: int, message: ToProcess) -> None:
        """Give a process a message; one that is gone gets nothing."""
        if process in self.lines:
            self._flush(process, dumps(message))

    def stop(self, process: int, kill: bool = False) -> None:
        """Ask a process to end. `kill`: end it at once, and say nothing more of it."""
        if not kill:
            self.asked |= {process} & self.ready  # nobody waits for one that is still loading its model
            self.send(process, End())
            return
        self._hang_up(process)
        if process in self.alive:
            self.unwanted.add(process)
            self._kill(process)

    def _kill(self, process: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.fork_server.sendall(REQUEST.pack(KILL, process))

    def release(self, data: Data) -> None:
        """Remove a batch."""
        self.files.discard(data)
        Store.release(data)

    def _flush(self, process: int, message: bytes = b"") -> None:
        line = self.lines[process]
        waited = bool(line.outbox)
        line.send(message)
        if bool(line.outbox) != waited:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self.selector.modify(line.end, both if line.outbox else selectors.EVENT_READ, process)

    def _hang_up(self, process: int) -> None:
        line = self.lines.pop(process, None)
        if line is not None:
            self.selector.unregister(line.end)
            line.end.close()

    # -- from processes ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make `wait` return, from any thread."""
        with contextlib.suppress(BlockingIOError):  # enough calls wait already
            self.waker.send(b"\0")

    def wait(self, timeout: float | None) -> list[tuple[int, FromProcess]]:
        """What processes have said; waits for the first word, at most `timeout` seconds.

        The last of a process is `Ended`; from FORK_SERVER: all are lost.
        """
        said: list[tuple[int, FromProcess]] = []
        ready = self.selector.select(timeout)
        for key, mask in ready:
            if key.data in self.lines and mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            if key.data in self.lines and mask & selectors.EVENT_READ:
                self._hear(key.data, said)
        for key, _ in ready:
            if key.data == FORK_SERVER:
                self._hear_fork_server(said)
            elif key.data == WAKE:
                with contextlib.suppress(BlockingIOError):
                    self.woken.recv(1 << 12)
        return said

    def _hear(self, process: int, said: list[tuple[int, FromProcess]]) -> None:
        messages, more = self.lines[process].receive()
        for raw in messages:
            try:
                message = pickle.loads(raw)
            except Exception as error:
                message = GaveUp(f"what it sent cannot be read: {type(error).__name__}: {error}", fatal=True)
                self._kill(process)
            if isinstance(message, GaveUp):
                self.failures[process] = message
                continue
            if isinstance(message, Ready):
                self.ready.add(process)
            self.files.update(named(message))
            said.append((process, message))
        if not more:
            self._hang_up(process)

    def _hear_fork_server(self, said: list[tuple[int, FromProcess]]) -> None:
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it died with words of ours unread
            data = self.fork_server.recv(1 << 16)
        if not data:
            self.selector.unregister(self.fork_server)
            self.alive.clear()
            said.append((FORK_SERVER, Ended("it died")))
        self.half += data
        whole = len(self.half) - len(self.half) % EXITED.size
        for _, process, status in EXITED.iter_unpack(self.half[:whole]):
            self._ended(process, status, said)
        self.half = self.half[whole:]

    def _ended(self, process: int, status: int, said: list[tuple[int, FromProcess]]) -> None:
        if process in self.lines:  # what it said before it died still counts
            self._hear(process, said)
            self._hang_up(process)
        step = self._clean(process)
        told = self.failures.pop(process, None) or GaveUp(_how(status), fatal=False)
        if process not in self.unwanted:
            said.append((process, Ended(told.reason, told.fatal, step, told.first)))
        for known in (self.alive, self.ready, self.asked, self.unwanted):
            known.discard(process)

    def _clean(self, process: int) -> int:
        """Remove batches that a dead process wrote and could not tell of; gives the step that it was in."""
        step = 0
        for folder in self.folders:
            for path in Path(folder).glob(f"w{process}-*"):
                if str(path) not in self.files:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError, IndexError):
                crumb = Path(folder, f"at-{process}")
                step = crumb.read_bytes()[0]
                crumb.unlink()
        return step

    # -- the end ------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """End every process and remove all batches; returns when they are gone. New ones may be started then."""
        self._let_end()
        for process in list(self.alive):
            self.stop(process, kill=True)
        while self.alive:
            self.wait(None)
        for folder in self.folders:
            clear_folder(folder)  # it is gone when the fork server has died
        self.files.clear()

    def _let_end(self) -> None:
        """Wait for processes that were asked to end, for a while."""
        until = time.monotonic() + GRACE_S
        while self.asked & self.alive and time.monotonic() < until:
            self.wait(0.1)

    def close(self) -> None:
        """End every process and the fork server, and remove the shared memory; returns when all are gone."""
        self._let_end()
        self.fork_server.close()  # the fork server kills who is left and removes the folders
        try:
            self.fork_server_process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.fork_server_process.kill()
            self.fork_server_process.wait()
        for process in list(self.lines):
            self._hang_up(process)
        self.selector.close()
        for end in (self.woken, self.waker):
            end.close()
        for folder, held in self.folders.items():
            remove_folder(folder)  # if the fork server was killed
            os.close(held)


def named(message: FromProcess) -> list[str]:
    """The batches in shared memory that a message tells of."""
    told = isinstance(message, (Emitted, Done))
    return [output.ref.data for output in message.outputs if isinstance(output.ref.data, str)] if told else []


def _how(status: int) -> str:
    """A death in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = " (perhaps the system ran out of memory)" if number == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
