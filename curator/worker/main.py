"""The life of a worker process: one socket to its node's `Processes`, one runner, calls in order."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import mmap
import os
import pickle
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa

from curator.api.errors import CuratorError, first_error, in_words
from curator.api.stage import Context
from curator.engine import protocol
from curator.io.files.folder import Folder
from curator.machine.detect import free_port
from curator.pipeline.plan import Operator
from curator.worker.device import DeviceLost
from curator.worker.pickling import dumps
from curator.worker.runner import Runner
from curator.worker.store import Store

PROGRESS_S = 0.25  # a call under a time limit says this often, at most, that it moves
TRIM_BYTES = 16 << 20  # who worked on so much gives back what is free, when it has to wait
IDLE_S = 0.5  # who waits for so long gives it back whatever it worked on
M_ARENA_MAX = -8  # of mallopt
BEGUN, DONE, FAILED = b"?", b"+", b"-"  # how the file of `once_on_node` begins


class Hangup(Exception):
    """The driver asks this process to end."""


class OutOfStep(Exception):
    """A worker cannot go on: it says this and ends, and the other ranks of a gang with it. One in the place
    of a message is of a message that cannot be read."""

    def __init__(self, ended: protocol.Ended) -> None:
        super().__init__(ended.reason)
        self.ended = ended


def serve(fd: int, process: int) -> int:
    """Work until told to stop; gives the exit status."""
    return Worker(Connection(fd), process).live()


class Worker:
    def __init__(self, driver: Connection, process: int) -> None:
        self.driver, self.process = driver, process
        self.rank = protocol.Rank(-1)
        self.inbox: queue.SimpleQueue[protocol.ToProcess | OutOfStep] = queue.SimpleQueue()
        # came while a paused call waited to be resumed
        self.later: deque[protocol.ToProcess | OutOfStep] = deque()
        self.call = 0
        self.progressed = 0.0
        self.worked_bytes = 0  # since memory was given back

    def _heard(self) -> protocol.ToProcess | OutOfStep:
        try:
            message = self.driver.recv_bytes()
        except (EOFError, OSError):
            os._exit(3)  # the driver is gone; the fork server cleans up
        try:
            return pickle.loads(message)
        except Exception as error:
            return OutOfStep(protocol.Ended(f"a message to it cannot be read: {in_words(error)}", fatal=True))

    def _listen(self) -> None:
        while True:
            self.inbox.put(self._heard())

    def send(self, message: protocol.FromProcess) -> None:
        try:
            self.driver.send_bytes(dumps(message))
        except OSError:
            os._exit(3)

    def live(self) -> int:
        try:
            runner = self._set_up(self._heard())
            while True:
                self._take(runner, self.later.popleft() if self.later else self._next())
        except Hangup:
            runner.close()
            return 0
        except OutOfStep as error:
            self.send(error.ended)
            return 1  # without `close`, which may wait for the others

    def _set_up(self, setup: protocol.ToProcess | OutOfStep) -> Runner:
        if isinstance(setup, OutOfStep):
            raise setup
        assert isinstance(setup, protocol.Setup), setup
        began = time.perf_counter()
        self.rank = rank = setup.rank
        os.environ["CUDA_VISIBLE_DEVICES"] = setup.devices
        if rank.gang:
            port = rank.port or free_port()
            os.environ.update(rank.environment(port))
            if rank.number == 0 and rank.size > 1:
                self.send(protocol.MeetsAt(port))
        try:
            operator, sidecars = pickle.loads(setup.spec)
            runner = self._runner(operator, sidecars, list(setup.folders), setup.restored)
        except Exception as error:
            ours = isinstance(error, CuratorError)
            told = in_words(error) + ("" if ours else f"\n{traceback.format_exc()}")
            raise OutOfStep(protocol.Ended(told, ours, first=first_error("", error))) from error
        self.send(protocol.Ready(time.perf_counter() - began, runner.exhausted))
        return runner

    def _runner(self, operator: Operator, sidecars: Folder, folders: list[str],
                restore: list[protocol.Restored]) -> Runner:
        cpus, rank = operator.resources.cpus, self.rank
        if cpus >= 2:
            os.environ["OMP_NUM_THREADS"] = str(int(cpus))
        else:
            allocate_in_one_place()
        pa.set_cpu_count(1)
        pa.set_io_thread_count(2)
        # Its own thread, so that the driver can send while this worker works, and so that the driver's death
        # is noticed in the middle of a call.
        threading.Thread(target=self._listen, daemon=True).start()
        store = Store(folders, f"w{self.process}")
        with open(f"{folders[-1]}/at-{self.process}", "wb+") as crumb:
            crumb.write(b"\0")
            crumb.flush()
            at = mmap.mmap(crumb.fileno(), 1)
        limited = operator.timeout_s is not None and rank.number == 0
        runner = Runner(operator, store.put if rank.number == 0 else lambda batch: None, store.get, sidecars,
                        self._progress if limited else lambda: None,
                        lambda step: at.__setitem__(0, min(step, 255)), lockstep=rank.size > 1)
        runner.setup(Context(rank.worker, cpus, rank.gpus, rank.number, rank.size), restore,
                     partial(once_on_node, folders[0]))
        return runner

    def _next(self, soon: bool = False) -> protocol.ToProcess | OutOfStep:
        """The next message. Who has to wait for one gives back the memory that the allocators kept of what
        was worked on: at once where that was much and none is to come `soon`."""
        if self.worked_bytes and self.inbox.empty():
            if soon or self.worked_bytes < TRIM_BYTES:
                with contextlib.suppress(queue.Empty):
                    return self.inbox.get(timeout=IDLE_S)
            self.worked_bytes = 0
            pa.default_memory_pool().release_unused()
            trim_heap()
        return self.inbox.get()

    def _take(self, runner: Runner, message: protocol.ToProcess | OutOfStep) -> None:
        match message:
            case protocol.Call():
                try:
                    self._call(runner, message)
                except DeviceLost as lost:
                    told = protocol.Ended(str(lost), first=first_error("", lost.__cause__ or lost))
                    raise OutOfStep(told) from lost
            case protocol.Discard():
                runner.discard(message.unit, message.attempt, message.replay)
            case protocol.DataLost():
                self.send(message)
            case OutOfStep():
                raise message
            case protocol.End():
                raise Hangup

    def _call(self, runner: Runner, call: protocol.Call) -> None:
        self.call, self.progressed = call.id, 0.0
        self.worked_bytes += sum(piece.nbytes for piece in call.slices)
        first = self.rank.number == 0  # the other ranks' answers are nobody's
        for answer in runner.run(call):
            self.worked_bytes += sum(output.ref.nbytes for output in getattr(answer, "outputs", ()))
            if isinstance(answer, protocol.Failed) and self.rank.size > 1 and not answer.fatal:
                raise OutOfStep(protocol.Ended(answer.error, first=answer.first))
            if first or isinstance(answer, protocol.Failed):
                self.send(answer)
            elif isinstance(answer, protocol.Done):
                self.send(protocol.Done(call.id))
            if first and isinstance(answer, protocol.Emitted):
                self._wait_for_resume(call.id)

    def _wait_for_resume(self, call: int) -> None:
        while True:
            message = self._next(soon=True)
            if isinstance(message, protocol.Resume) and message.call == call:
                return
            if isinstance(message, protocol.End):
                raise Hangup
            # in its turn: a unit is not forgotten in the middle of a call over its rows
            self.later.append(message)

    def _progress(self) -> None:
        now = time.perf_counter()
        if now - self.progressed > PROGRESS_S:
            self.progressed = now
            self.send(protocol.Progress(self.call))


def trim_heap() -> None:
    """Have GNU's C library give back free pages; it keeps up to twice the largest block ever let go."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def allocate_in_one_place() -> None:
    """Have GNU's C library give all threads of this process memory from one heap: otherwise each thread of
    Arrow and of a stage keeps free pages of its own. To be called before there is a second thread."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def once_on_node(folder: str, name: str, do: Callable[[], None]) -> None:
    """Do something, unless another process of this run has done it on this node. `folder`: of the run.

    Others wait meanwhile. If the one that does it dies, the next one does; if it fails, all are told.

    Raises:
        CuratorError: it failed in another process, and why.
    """
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    file = os.open(f"{folder}/once-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # it goes with the process that holds it
        found = os.pread(file, 1 << 20, 0)
        if found.startswith(FAILED):
            raise CuratorError(found[1:].decode())
        if found.startswith(DONE):
            return
        os.pwrite(file, BEGUN, 0)  # so that a full disk is met before, and not after
        try:
            do()
        except Exception as error:
            os.pwrite(file, FAILED + str(error).encode(), 0)
            raise
        os.pwrite(file, DONE, 0)
    finally:
        os.close(file)
