"""Worker processes as the driver sees them: they come and go in numbers, and none of them can stop it."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from curator import Stage
from curator.engine.events import StartWorker, Stop, StopWorker, WorkerLost, WorkerReady
from curator.engine.protocol import Rank, Setup
from curator.io.files.folder import Folder
from curator.machine.folders import MARKER
from curator.pipeline.plan import Operator, Step
from curator.runtime.local import LocalRuntime
from curator.runtime.workers import Job
from curator.worker import processes
from curator.worker.imports import modules_of
from curator.worker.processes import Line, Processes
from tests.engine.small_stages import TOKEN, folders, orphans, wait_until


@dataclass(kw_only=True)
class Starts(Stage):
    """Starts a program that outlives it, and writes down its number and what it does on SIGTERM."""

    told: str

    def setup(self, ctx) -> None:
        program = subprocess.Popen(["sleep", "600"])
        status = Path(f"/proc/{program.pid}/status").read_text()
        Path(self.told).write_text(f"{program.pid} {status.split('SigIgn:')[1].split()[0]}")


@pytest.fixture
def runtime(tmp_path, monkeypatch, cold_start):
    """One for workers of an empty stage; after the test nothing of it is left."""
    monkeypatch.setenv(TOKEN, str(tmp_path))
    made = []

    def make(stage=None):
        job = Job([Operator(0, "map", (Step("s", stage or Stage(), "key"),))], lambda unit, attempt: None, Folder(str(tmp_path)),
                  lambda step, committed: [])
        made.append(LocalRuntime(job, Processes(modules_of(job.operators))))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one.processes.close()
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not folders(os.getpid())


def until(runtime, kind, count=1):
    """Wait for so many events of a kind."""
    found = []
    wait_until(lambda: found.extend(e for e in runtime.wait(0.05) if isinstance(e, kind)) or len(found) >= count)
    return found


def pids(runtime):
    fork_server = runtime.processes.fork_server_process.pid
    return [int(p) for p in Path(f"/proc/{fork_server}/task/{fork_server}/children").read_text().split()]


# -- the line to a worker -----------------------------------------------------------------------------------------


def test_sending_to_one_who_does_not_listen_does_not_wait():
    ours, theirs = socket.socketpair()
    line, message = Line(ours), os.urandom(3 << 20)
    line.send(message)
    line.send(b"after it")
    assert line.outbox
    got = []
    listener = threading.Thread(target=lambda: got.extend(Connection(theirs.detach()).recv_bytes() for _ in [0]))
    listener.start()
    while listener.is_alive():
        line.send()
    assert got == [message]
    ours.close()


def test_half_a_message_is_waited_for_and_that_of_a_dead_worker_is_nothing():
    ours, theirs = socket.socketpair()
    line = Line(ours)
    assert line.receive() == ([], True)
    theirs.sendall(b"\0\0\0\3abc\0\0\0\3de")
    assert line.receive() == ([b"abc"], True)
    theirs.sendall(b"f\0\0")
    assert line.receive() == ([b"def"], True)
    theirs.close()
    assert line.receive() == ([], False)
    line.send(b"to nobody")
    ours.close()


# -- workers ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hundreds_of_deaths_leave_no_descriptor_no_process_and_no_file(runtime):
    one = runtime()
    one.execute(StartWorker(0, 0))
    until(one, WorkerReady)
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{one.processes.fork_server_process.pid}/fd"))
    for first in range(1, 201, 20):
        _come_and_go(one, range(first, first + 20))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before[0]  # fewer, if a test before this one left some to be collected
    assert len(os.listdir(f"/proc/{one.processes.fork_server_process.pid}/fd")) == before[1]
    assert len(pids(one)) == 1
    left = sorted(path.name for folder in one.processes.folders for path in Path(folder).iterdir())
    assert left == ["at-1", MARKER, MARKER]  # of the one that lives


def _come_and_go(runtime, workers):
    """A quarter is killed before it was forked, a quarter asked to end, the others killed by a stranger."""
    for number in workers:
        runtime.execute(StartWorker(number, 0))
        if number % 4 < 2:
            runtime.execute(StopWorker(number, kill=number % 4 == 0))
    ready = set()
    wait_until(lambda: ready.update(e.worker for e in runtime.wait(0.05) if isinstance(e, WorkerReady))
               or ready.issuperset(n for n in workers if n % 4 > 1))
    for pid in pids(runtime)[1:]:
        with contextlib.suppress(ProcessLookupError):  # one that was asked to end
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: runtime.wait(0.05) is not None and len(runtime.processes.alive) == 1)


def test_a_worker_that_is_killed_before_it_was_forked_says_nothing(runtime):
    one = runtime()
    one.execute(StartWorker(1, 0))
    one.execute(StopWorker(1, kill=True))
    one.execute(StartWorker(2, 0))
    events = until(one, WorkerReady)
    assert [e.worker for e in events] == [2]
    wait_until(lambda: one.wait(0.05) == [] and 1 not in one.processes.alive)


def test_the_fork_server_has_one_thread_and_forks_in_its_own_session(runtime):
    """A fork of a process with threads may hang; a signal to the driver's group is the driver's to answer."""
    one = runtime()
    one.execute(StartWorker(1, 0))
    until(one, WorkerReady)
    assert len(os.listdir(f"/proc/{one.processes.fork_server_process.pid}/task")) == 1
    assert os.getsid(one.processes.fork_server_process.pid) == one.processes.fork_server_process.pid
    worker, = pids(one)
    assert os.getpgid(worker) == worker


def test_programs_that_a_stage_started_end_with_their_worker(runtime, tmp_path):
    one = runtime(Starts(told=str(tmp_path / "told")))
    one.execute(StartWorker(1, 0))
    until(one, WorkerReady)
    pid, ignored = (tmp_path / "told").read_text().split()
    assert int(ignored, 16) & (1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1)) == 0
    os.kill(pids(one)[0], signal.SIGKILL)
    assert "SIGKILL" in until(one, WorkerLost)[0].reason
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")


def test_a_worker_that_says_nothing_more_does_not_stop_the_driver(runtime):
    one = runtime()
    for number in (1, 2):
        one.execute(StartWorker(number, 0))
    until(one, WorkerReady, 2)
    first, _ = pids(one)
    os.kill(first, signal.SIGSTOP)
    for number in (1, 2):
        one.processes.send(number, Setup(b"x" * (4 << 20), Rank(1), []))
    wait_until(lambda: one.wait(0.01) == [] and sum(bool(p.line.outbox) for p in one.processes.alive.values()) == 1)
    one.execute(StopWorker(1, kill=True))
    one.execute(StopWorker(2, kill=True))
    wait_until(lambda: one.wait(0.01) == [] and not one.processes.alive)


def test_the_death_of_the_fork_server_is_told_once_and_all_is_cleaned_up(runtime):
    one = runtime()
    one.execute(StartWorker(1, 0))
    until(one, WorkerReady)
    one.processes.fork_server_process.kill()
    assert "run the same command again" in until(one, Stop)[0].message
    one.execute(StartWorker(2, 0))
    one.execute(StopWorker(1, kill=True))
    one.execute(StopWorker(2, kill=True))
    assert one.wait(0.01) == []


def test_the_end_of_a_run_does_not_wait_for_a_worker_that_nobody_asked_to_end(runtime, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 3600.0)  # if it did, this test would take so long
    one = runtime()
    one.execute(StartWorker(1, 0))
    until(one, WorkerReady)
    os.kill(pids(one)[0], signal.SIGSTOP)
