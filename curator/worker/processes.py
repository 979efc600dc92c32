"""The worker processes of one node: started, told, heard, ended, and cleaned up after.

It knows processes by the numbers that its owner chose, and messages; of the run it knows nothing. Its owner
waits in one place for everything: answers of processes, and their deaths, which the fork server reports.
Batches stay in shared memory; only their names pass through here.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from curator.engine import protocol
from curator.machine.detect import visible_devices
from curator.machine.folders import clear_folder, make_folders, remove_folder
from curator.worker.fork_server import ENVIRONMENT, EXITED, FORK, KILL, REQUEST, take_early
from curator.worker.pickling import dumps
from curator.worker.store import Store

GRACE_S = 10.0  # for processes to close when the run has ended
FORK_SERVER = -1  # where a process number stands otherwise
SIZE = struct.Struct("!i")  # goes before each message, as `multiprocessing.connection` has it


class Line:
    """Our end of a process's socket. It never waits, so a process that hangs stops nobody else."""

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
        """The whole messages that have come, and whether there may be more. Half a message is nothing."""
        more = False
        try:
            while chunk := self.end.recv(1 << 18):
                self.inbox += chunk
        except BlockingIOError:
            more = True
        except OSError:  # it died with words of ours unread
            pass
        messages, at = [], 0
        while at + SIZE.size <= len(self.inbox):
            end = at + SIZE.size + SIZE.unpack_from(self.inbox, at)[0]
            if end > len(self.inbox):
                break
            messages.append(bytes(self.inbox[at + SIZE.size:end]))
            at = end
        del self.inbox[:at]
        return messages, more


@dataclass(slots=True)
class Process:
    """A process that was forked. `line`: None when nobody talks to it any more."""

    line: Line | None
    ready: bool = False
    ending: bool = False  # it was ready and asked to end, so it does by itself
    unwanted: bool = False  # killed at our owner's wish: no message follows
    last: protocol.Ended | None = None  # why it ends


class Processes:
    """Worker processes of this machine. All methods but `wake` belong to one thread.

    `modules`: imported once, before processes are forked. `keep`: descriptors that all of them hold open (the
    run's lock).
    """

    def __init__(self, modules: Sequence[str] = (), keep: Sequence[int] = ()) -> None:
        self.folders = dict(make_folders())
        self.devices = visible_devices()
        self.alive: dict[int, Process] = {}  # by number, until the fork server reports the end
        self.files: set[str] = set()  # batches in shared memory that our owner was told of
        self.said: list[tuple[int, protocol.FromProcess]] = []  # for our owner
        self.half = b""  # a report of the fork server that has not come whole
        self.selector = selectors.DefaultSelector()
        self.woken, self.waker = socket.socketpair()
        for end in (self.woken, self.waker):
            end.setblocking(False)
        self.selector.register(self.woken, selectors.EVENT_READ, lambda mask: self.woken.recv(1 << 12))
        self._start_fork_server(modules, keep)

    def _start_fork_server(self, modules: Sequence[str], keep: Sequence[int]) -> None:
        self.fork_server, theirs = socket.socketpair()
        job = json.dumps({"path": sys.path, "modules": list(modules), "folders": list(self.folders),
                          "keep": list(keep)})
        paths = os.pathsep.join(p for p in sys.path if p)
        fds, env = [theirs.fileno(), *keep], {**ENVIRONMENT, **os.environ, "PYTHONPATH": paths}
        ready = take_early()
        self.fork_server_process = (ready and ready.serve(job, env, fds)) or subprocess.Popen(
            [sys.executable, "-c", "from curator.worker.fork_server import main; main()", str(fds[0]), job],
            pass_fds=fds, start_new_session=True, stdin=subprocess.DEVNULL, env=env)
        theirs.close()
        self.selector.register(self.fork_server, selectors.EVENT_READ, self._hear_fork_server)

    # -- to processes ---------------------------------------------------------------------------------------

    def do(self, request: protocol.Request) -> None:
        match request:
            case protocol.Send(message=protocol.Setup() as setup):
                self._start(request.process, setup)
            case protocol.Send():
                self.send(request.process, request.message)
            case protocol.ReleaseBatch():
                self.files.discard(request.data)
                Store.release(request.data)
            case protocol.EndProcess():
                self._end(request.process, request.kill)

    def send(self, number: int, message: protocol.ToProcess) -> None:
        """Give a process a message; one that is gone gets nothing."""
        process = self.alive.get(number)
        if process is not None and process.line is not None:
            self._flush(process.line, dumps(message))

    def _start(self, number: int, setup: protocol.Setup) -> None:
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self.fork_server, [REQUEST.pack(FORK, number)], [theirs.fileno()])
        except (BrokenPipeError, ConnectionResetError):  # the fork server is gone, as we hear soon
            ours.close()
            return
        finally:
            theirs.close()
        self.alive[number] = Process(Line(ours))
        self.selector.register(ours, selectors.EVENT_READ, partial(self._serve, number))
        devices = ",".join(self.devices[n] if n < len(self.devices) else str(n) for n in setup.rank.visible)
        self.send(number, replace(setup, folders=tuple(self.folders), devices=devices))

    def _end(self, number: int, kill: bool) -> None:
        """Ask a process to end. `kill`: end it at once, and say nothing more of it."""
        process = self.alive.get(number)
        if process is None:
            return
        if not kill:
            process.ending = process.ready  # nobody waits for one that is still loading its model
            self.send(number, protocol.End())
        else:
            self._hang_up(process)
            process.unwanted = True
            self._kill(number)

    def _kill(self, number: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.fork_server.sendall(REQUEST.pack(KILL, number))

    def _flush(self, line: Line, message: bytes = b"") -> None:
        waited = bool(line.outbox)
        line.send(message)
        if bool(line.outbox) != waited:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.outbox else 0)
            self.selector.modify(line.end, events, self.selector.get_key(line.end).data)

    def _hang_up(self, process: Process) -> None:
        if process.line is not None:
            self.selector.unregister(process.line.end)
            process.line.end.close()
            process.line = None

    # -- from processes --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make `wait` return, from any thread."""
        with contextlib.suppress(OSError):  # enough calls wait already; or it is closed
            self.waker.send(b"\0")

    def wait(self, timeout: float | None) -> list[tuple[int, protocol.FromProcess]]:
        """What processes have said; waits for the first word, at most `timeout` seconds.

        The last word of a process is `Ended`; from FORK_SERVER it says that all are lost.
        """
        for key, mask in self.selector.select(timeout):
            key.data(mask)
        said, self.said = self.said, []
        return said

    def _serve(self, number: int, mask: int) -> None:
        process = self.alive.get(number)
        if process is None or process.line is None:  # its end was reported a moment ago
            return
        if mask & selectors.EVENT_WRITE:
            self._flush(process.line)
        if mask & selectors.EVENT_READ:
            self._hear(number, process, process.line)

    def _hear(self, number: int, process: Process, line: Line) -> None:
        messages, more = line.receive()
        for raw in messages:
            try:
                message = pickle.loads(raw)
            except Exception as error:
                message = protocol.Ended(f"what it sent cannot be read: {type(error).__name__}: {error}",
                                         fatal=True)
                self._kill(number)
            if isinstance(message, protocol.Ended):
                process.last = message
                continue
            process.ready = process.ready or isinstance(message, protocol.Ready)
            if isinstance(message, (protocol.Emitted, protocol.Done)):
                self.files.update(output.ref.data for output in message.outputs
                                  if isinstance(output.ref.data, str))
            self.said.append((number, message))
        if not more:
            self._hang_up(process)

    def _hear_fork_server(self, mask: int) -> None:
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it died with words of ours unread
            data = self.fork_server.recv(1 << 16)
        if not data:
            self.selector.unregister(self.fork_server)
            for process in self.alive.values():
                self._hang_up(process)
            self.alive.clear()
            self.said.append((FORK_SERVER, protocol.Ended("it died")))
        self.half += data
        whole = len(self.half) - len(self.half) % EXITED.size
        for _, number, status in EXITED.iter_unpack(self.half[:whole]):
            self._ended(number, status)
        self.half = self.half[whole:]

    def _ended(self, number: int, status: int) -> None:
        process = self.alive[number]
        if process.line is not None:  # what it said before it died still counts
            self._hear(number, process, process.line)
            self._hang_up(process)
        del self.alive[number]
        step = self._clean(number)
        if not process.unwanted:
            self.said.append((number, replace(process.last or protocol.Ended(_how(status)), step=step)))

    def _clean(self, number: int) -> int:
        """Remove batches that a dead process wrote and could not tell of; gives the step that it was in."""
        step = 0
        for folder in self.folders:
            for path in Path(folder).glob(f"w{number}-*"):
                if str(path) not in self.files:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError, IndexError):
                crumb = Path(folder, f"at-{number}")
                step = crumb.read_bytes()[0]
                crumb.unlink()
        return step

    # -- the end ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """End every process and remove all batches; returns when they are gone. New ones may follow."""
        self._let_end()
        for number in list(self.alive):
            self._end(number, kill=True)
        while self.alive:
            self.wait(None)
        for folder in self.folders:
            clear_folder(folder)  # it is gone when the fork server has died
        self.files.clear()

    def _let_end(self) -> None:
        """Wait for processes that were asked to end, for a while."""
        until = time.monotonic() + GRACE_S
        while any(process.ending for process in self.alive.values()) and time.monotonic() < until:
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
        for process in self.alive.values():
            self._hang_up(process)
        self.selector.close()
        for end in (self.woken, self.waker):
            end.close()
        for folder, held in self.folders.items():
            remove_folder(folder)  # if the fork server was killed
            os.close(held)


def _how(status: int) -> str:
    """A death in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = " (perhaps the system ran out of memory)" if number == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
