"""Worker processes on this machine, and, with `workers=0`, work in the driver's own process."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import cloudpickle

from curator.api.errors import CuratorError, StageError, first_error
from curator.api.stage import Context
from curator.engine import events as ev
from curator.runtime.workers import Job, Workers, done_of, emitted_of
from curator.worker.processes import FORK_SERVER, Processes
from curator.worker.rank import Rank
from curator.worker.runner import Runner
from curator.worker.work import Answer, CallFailed, Part

FORK_SERVER_DIED = ("the process that holds the workers has died (killed, or out of memory); "
                "what was committed is safe: run the same command again")


class LocalRuntime:
    """Workers as processes. `execute` does what the scheduler asks; `wait` gives what happened.

    `processes`: of the run; none is alive when a phase begins.
    """

    def __init__(self, job: Job, processes: Processes) -> None:
        self.workers, self.processes = Workers(job), processes

    def execute(self, action: ev.Action) -> None:
        self.workers.do(action)
        self._carry_out()

    def wait(self, timeout: float | None) -> list[ev.Event]:
        """What has happened since; waits for the first event, at most `timeout` seconds."""
        events: list[ev.Event] = []
        for process, message in self.processes.wait(timeout):
            events += [ev.Stop(FORK_SERVER_DIED, "lost")] if process == FORK_SERVER else self.workers.hear(0, process, message)
        self._carry_out()
        return events

    def _carry_out(self) -> None:
        for _, method, *args in self.workers.take_requests():
            getattr(self.processes, method)(*args)

    def close(self) -> None:
        """End every worker, and remove their batches; returns when all are gone."""
        self.processes.clear()


# -- in this process ----------------------------------------------------------------------------------------------


class InlineRuntime:
    """`workers=0`: every call runs in the driver's process, one after the other, so that breakpoints work."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.runners: dict[int, Runner] = {}
        self.todo: deque[Callable[[], Iterator[ev.Event]]] = deque()
        self.held: dict[int, Iterator[Part | Answer]] = {}
        self.done_once: set[str] = set()  # steps whose `setup_node` has been called
        self.busy: dict[int, int] = {}  # the worker of each call that is not ended

    def execute(self, action: ev.Action) -> None:
        match action:
            case ev.StartWorker():
                self.todo.append(partial(self._start, action))
            case ev.Submit():
                self.todo.append(partial(self._call, action.call))
            case ev.Resume():
                self.todo.append(partial(self._continue, action.call))
            case ev.Discard():
                self.todo.append(partial(self._discard, action))
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
        if operator.resources.gang:  # a gang of one
            os.environ.update(Rank(action.worker).environment())
        try:
            runner.setup(Context(action.worker, operator.resources.cpus), self.job.restored(action), self._once)
        except CuratorError as error:
            first = first_error(error.stage if isinstance(error, StageError) else operator.steps[0].name, error)
            yield ev.WorkerLost(action.worker, str(error), setup=True, fatal=True, first=first)
            return
        self.runners[action.worker] = runner
        yield ev.WorkerReady(action.worker, exhausted=runner.exhausted)

    def _once(self, name: str, do: Callable[[], None]) -> None:
        if name not in self.done_once:
            do()
            self.done_once.add(name)

    def _discard(self, action: ev.Discard) -> Iterator[ev.Event]:
        # Not in the middle of a call over the unit's rows: behind it, as a worker process does.
        if any(worker == action.worker for worker in self.busy.values()):
            self.todo.append(partial(self._discard, action))
        elif action.worker in self.runners:
            self.runners[action.worker].discard(action.unit, action.attempt, action.replay)
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
            yield ev.Failed(call, failed.error, failed.trace, failed.fatal, failed.first)
            return
        if isinstance(part, Answer):
            del self.held[call], self.busy[call]
            yield done_of(call, part, 0)
        else:
            yield emitted_of(call, part, 0)

    def close(self) -> None:
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()


