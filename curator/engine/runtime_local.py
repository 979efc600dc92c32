"""Worker processes on this machine, and, with `workers=0`, work in the driver's own process.

The driver waits in one place for everything: answers of workers, and their deaths, which the nursery reports. Batches stay in
shared memory; only their names pass through here.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from curator.engine import events as ev
from curator.errors import CuratorError
from curator.io.files import Folder
from curator.plan import Operator
from curator.stage import Context
from curator.worker.nursery import EXITED, FORK, KILL, REQUEST
from curator.worker.runner import Answer, CallFailed, Part, Piece, Runner, UnitInfo, Work
from curator.worker.store import Store, make_folders

GRACE_S = 10.0  # for workers to close when the run has ended
# A process is forked safely only while it has one thread: BLAS libraries and Arrow's second allocator start theirs on import.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
              "JE_ARROW_MALLOC_CONF": "background_thread:false"}
SIZE = struct.Struct("!i")  # goes before each message, as `multiprocessing.connection` has it


class Job:
    """What every runtime must know of a run: the operators, the units, and where sidecars lie.

    `recall(unit)`: the sidecars of a committed unit by step name. `name_of(unit, attempt)`: what its files are called.
    """

    def __init__(self, operators: Sequence[Operator], unit_of: Callable[[int, int], UnitInfo], sidecars: Folder,
                 recall: Callable[[str, Sequence[int]], list[tuple[int, str, bool]]]) -> None:
        self.operators, self.unit_of, self.sidecars, self.recall = operators, unit_of, sidecars, recall

    def work(self, call: ev.Call) -> Work:
        """A call as its worker is told of it."""
        pieces = tuple(Piece(s.ref.data if s.ref is not None else None, s.unit, s.attempt, s.start, s.stop, s.target, s.note)
                       for s in call.slices)
        needs_names = call.kind != "process" or self.operators[call.operator].kind == "sink"
        infos = {unit: self.unit_of(unit, attempt) for unit, attempt in call.units} if needs_names else {}
        return Work(call.id, call.kind, pieces, call.units, infos, call.salvage)

    def recalled(self, action: ev.StartWorker) -> list[tuple[int, str, bool]]:
        operator = self.operators[action.operator]
        return self.recall(operator.steps[0].name, action.recall) if operator.kind == "stateful" else []


def outputs_of(part: Part) -> tuple[ev.Output, ...]:
    return tuple(ev.Output(step, port, unit, rows, nbytes, ev.Ref(data, rows, nbytes))
                 for step, port, unit, rows, nbytes, data in part)


def done_of(call: int, answer: Answer) -> ev.Done:
    flushed = None if answer.files is None else ev.Flushed(answer.files, answer.memory, answer.depends)
    return ev.Done(call, outputs_of(answer.outputs), answer.counts, answer.seconds, answer.exhausted, flushed)


# -- processes --------------------------------------------------------------------------------------------------


class Line:
    """The driver's end of a worker's socket. It never waits: a worker that hangs, or is stopped, stops nobody else."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end, self.inbox, self.outbox = end, bytearray(), bytearray()

    def send(self, message: bytes = b"") -> None:
        """Send what waits and a message, as far as the socket takes it now; the rest waits in `outbox`."""
        if message:
            self.outbox += SIZE.pack(len(message)) + message
        # An error: the worker has died, and the nursery is about to say so.
        with contextlib.suppress(OSError):
            while self.outbox:
                del self.outbox[:self.end.send(self.outbox)]

    def receive(self) -> tuple[list[bytes], bool]:
        """The whole messages that have come, and whether there may be more. Half a message of a dead worker is nothing."""
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


class LocalRuntime:
    """Workers as processes. `execute` does what the scheduler asks; `wait` gives what happened.

    `keep`: a descriptor that the nursery and every worker hold open (the run's lock).
    """

    def __init__(self, job: Job, keep: int | None = None) -> None:
        self.job = job
        self.folders = dict(make_folders())
        self.specs: dict[int, bytes] = {}
        self.lines: dict[int, Line] = {}
        self.operator_of: dict[int, int] = {}  # of each worker that was forked and not reported as ended
        self.ready: set[int] = set()
        self.asked: set[int] = set()  # of these, the ones that end by themselves
        self.unwanted: set[int] = set()  # killed at the scheduler's wish: no event follows
        self.files: set[str] = set()  # batches in shared memory that the scheduler knows of
        self.failures: dict[int, tuple[str, bool]] = {}  # why a setup failed, and if that is final
        self.selector = selectors.DefaultSelector()
        self.half = b""
        self._start_nursery(() if keep is None else (keep,))

    def _start_nursery(self, keep: tuple[int, ...]) -> None:
        ours, theirs = socket.socketpair()
        modules = sorted({type(s.stage).__module__ for o in self.job.operators for s in o.steps} - {"__main__"})
        told = json.dumps({"path": sys.path, "modules": modules, "folders": list(self.folders), "keep": keep})
        paths = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from curator.worker.nursery import main; main()", str(theirs.fileno()), told],
            pass_fds=[theirs.fileno(), *keep], start_new_session=True, stdin=subprocess.DEVNULL,
            env={**ONE_THREAD, **os.environ, "PYTHONPATH": paths})
        theirs.close()
        self.nursery = ours
        self.selector.register(ours, selectors.EVENT_READ, None)

    # -- actions --------------------------------------------------------------------------------------------

    def execute(self, action: ev.Action) -> None:
        match action:
            case ev.Submit():
                self._send(action.call.worker, "call", self.job.work(action.call))
            case ev.Release():
                self.files.discard(action.ref.data)
                Store.release(action.ref.data)
            case ev.Resume():
                self._send(action.worker, "resume", action.call)
            case ev.StartWorker():
                self._start(action)
            case ev.StopWorker():
                self._stop(action)
            case ev.Forget():
                self._send(action.worker, "forget", action.unit, action.attempt, action.again)

    def _start(self, action: ev.StartWorker) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the nursery is gone, and is about to be missed
            socket.send_fds(self.nursery, [REQUEST.pack(FORK, action.worker)], [theirs.fileno()])
        theirs.close()
        self.lines[action.worker] = Line(ours)
        self.operator_of[action.worker] = action.operator
        self.selector.register(ours, selectors.EVENT_READ, action.worker)
        recalled = self.job.recalled(action)
        self._send(action.worker, "setup", self._spec(action.operator), list(self.folders), action.places[0].gpus, recalled)

    def _spec(self, index: int) -> bytes:
        if index not in self.specs:
            self.specs[index] = cloudpickle.dumps((self.job.operators[index], self.job.sidecars), protocol=5)
        return self.specs[index]

    def _stop(self, action: ev.StopWorker) -> None:
        if not action.kill:
            self.asked |= {action.worker} & self.ready  # nobody waits for one that is still loading its model
            self._send(action.worker, "stop")
            return
        self._hang_up(action.worker)
        if action.worker in self.operator_of:
            self.unwanted.add(action.worker)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.nursery.sendall(REQUEST.pack(KILL, action.worker))

    def _send(self, worker: int, *message: Any) -> None:
        if worker in self.lines:
            self._flush(worker, pickle.dumps(message, protocol=5))

    def _flush(self, worker: int, message: bytes = b"") -> None:
        line = self.lines[worker]
        waited = bool(line.outbox)
        line.send(message)
        if bool(line.outbox) != waited:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self.selector.modify(line.end, both if line.outbox else selectors.EVENT_READ, worker)

    # -- events -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> list[ev.Event]:
        """What has happened since; waits for the first event, at most `timeout` seconds."""
        events: list[ev.Event] = []
        ready = self.selector.select(timeout)
        for key, mask in ready:
            if key.data in self.lines and mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            if key.data in self.lines and mask & selectors.EVENT_READ:
                self._hear(key.data, events)
        if any(key.data is None for key, _ in ready):
            self._hear_nursery(events)
        return events

    def _hear(self, worker: int, events: list[ev.Event]) -> None:
        messages, more = self.lines[worker].receive()
        for message in messages:
            self._take(worker, pickle.loads(message), events)
        if not more:
            self._hang_up(worker)

    def _take(self, worker: int, message: tuple, events: list[ev.Event]) -> None:
        match message:
            case "done", call, answer:
                self._learn(answer.outputs)
                events.append(done_of(call, answer))
            case "part", call, part:
                self._learn(part)
                events.append(ev.Emitted(call, outputs_of(part)))
            case "progress", call:
                events.append(ev.Progress(call))
            case "failed", call, error, trace, fatal:
                events.append(ev.Failed(call, error, trace, fatal))
            case "ready", setup_s, exhausted:
                self.ready.add(worker)
                events.append(ev.WorkerReady(worker, setup_s, exhausted))
            case "setup_failed", reason, fatal:
                self.failures[worker] = (reason, fatal)

    def _learn(self, part: Part) -> None:
        self.files.update(data for *_, data in part if isinstance(data, str))

    def _hear_nursery(self, events: list[ev.Event]) -> None:
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it died with words of ours unread
            data = self.nursery.recv(1 << 16)
        if not data:
            self.selector.unregister(self.nursery)
            self.operator_of.clear()
            events.append(ev.Stop("the process that holds the workers has died (killed, or out of memory); "
                                  "what was committed is safe: run the same command again"))
        self.half += data
        whole = len(self.half) - len(self.half) % EXITED.size
        for _, worker, status in EXITED.iter_unpack(self.half[:whole]):
            self._ended(worker, status, events)
        self.half = self.half[whole:]

    def _ended(self, worker: int, status: int, events: list[ev.Event]) -> None:
        if worker in self.lines:  # what it said before it died still counts
            self._hear(worker, events)
            self._hang_up(worker)
        step = self._clean(worker)
        del self.operator_of[worker]
        self.asked.discard(worker)
        if worker in self.unwanted:
            self.unwanted.discard(worker)
            return
        reason, fatal = self.failures.pop(worker, (_how(status), False))
        events.append(ev.WorkerLost(worker, reason, setup=worker not in self.ready, fatal=fatal, step=step))

    def _clean(self, worker: int) -> int:
        """Remove batches that a dead worker wrote and could not tell of; gives the step that it was in."""
        step = 0
        for folder in self.folders:
            for path in Path(folder).glob(f"w{worker}-*"):
                if str(path) not in self.files:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError, IndexError):
                crumb = Path(folder, f"at-{worker}")
                step = crumb.read_bytes()[0]
                crumb.unlink()
        return min(step, len(self.job.operators[self.operator_of[worker]].steps) - 1)

    def _hang_up(self, worker: int) -> None:
        line = self.lines.pop(worker, None)
        if line is not None:
            self.selector.unregister(line.end)
            line.end.close()

    def close(self) -> None:
        """End every worker and the nursery, and remove the shared memory; returns when all are gone."""
        until = time.monotonic() + GRACE_S
        while self.asked & self.operator_of.keys() and time.monotonic() < until:
            self.wait(0.1)
        self.nursery.close()  # the nursery kills who is left and removes the folders
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for worker in list(self.lines):
            self._hang_up(worker)
        self.selector.close()
        for folder, held in self.folders.items():
            shutil.rmtree(folder, ignore_errors=True)  # if the nursery was killed
            os.close(held)


def _how(status: int) -> str:
    """A death in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = " (perhaps the system ran out of memory)" if number == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"


# -- in this process ----------------------------------------------------------------------------------------------


class InlineRuntime:
    """`workers=0`: every call runs in the driver's process, one after the other, so that breakpoints work."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.runners: dict[int, Runner] = {}
        self.todo: deque[Callable[[], Iterator[ev.Event]]] = deque()
        self.held: dict[int, Iterator[Part | Answer]] = {}
        self.busy: dict[int, int] = {}  # the worker of each call that is not ended

    def execute(self, action: ev.Action) -> None:
        match action:
            case ev.StartWorker():
                self.todo.append(partial(self._start, action))
            case ev.Submit():
                self.todo.append(partial(self._call, action.call))
            case ev.Resume():
                self.todo.append(partial(self._continue, action.call))
            case ev.Forget():
                self.todo.append(partial(self._forget, action))
            case ev.StopWorker():
                runner = self.runners.pop(action.worker, None)
                if runner is not None:
                    runner.close()
                for call in [c for c, worker in self.busy.items() if worker == action.worker]:
                    del self.held[call], self.busy[call]
                if not action.kill:
                    self.todo.append(lambda: iter([ev.WorkerLost(action.worker, "stopped")]))

    def wait(self, timeout: float | None) -> list[ev.Event]:
        if self.todo:
            return list(self.todo.popleft()())
        if timeout is not None:
            time.sleep(timeout)
        return []

    def _start(self, action: ev.StartWorker) -> Iterator[ev.Event]:
        operator = cloudpickle.loads(cloudpickle.dumps(self.job.operators[action.operator]))
        runner = Runner(operator, lambda batch: batch, lambda batch: batch, self.job.sidecars)
        try:
            runner.setup(Context(action.worker, operator.resources.cpus), self.job.recalled(action))
        except CuratorError as error:
            yield ev.WorkerLost(action.worker, str(error), setup=True, fatal=True)
            return
        self.runners[action.worker] = runner
        yield ev.WorkerReady(action.worker, exhausted=runner.exhausted)

    def _forget(self, action: ev.Forget) -> Iterator[ev.Event]:
        # Not in the middle of a call over the unit's rows: behind it, as a worker process does.
        if any(worker == action.worker for worker in self.busy.values()):
            self.todo.append(partial(self._forget, action))
        elif action.worker in self.runners:
            self.runners[action.worker].forget(action.unit, action.attempt, action.again)
        return iter(())

    def _call(self, call: ev.Call) -> Iterator[ev.Event]:
        if call.worker in self.runners:  # else it was killed meanwhile
            self.busy[call.id] = call.worker
            self.held[call.id] = self.runners[call.worker].run(self.job.work(call))
            yield from self._continue(call.id)

    def _continue(self, call: int) -> Iterator[ev.Event]:
        if call not in self.held:
            return
        try:
            part = next(self.held[call])
        except CallFailed as failed:
            del self.held[call], self.busy[call]
            yield ev.Failed(call, failed.error, failed.trace, failed.fatal)
            return
        if isinstance(part, Answer):
            del self.held[call], self.busy[call]
            yield done_of(call, part)
        else:
            yield ev.Emitted(call, outputs_of(part))

    def close(self) -> None:
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()


