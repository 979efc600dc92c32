"""Worker processes on this machine, and, with `workers=0`, work in the driver's own process."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import cloudpickle

from curator.api.errors import CuratorError, first_error
from curator.api.stage import Context
from curator.engine import events as ev
from curator.engine.protocol import Call, Discard, Done, Emitted, Failed, Rank, Resume
from curator.machine.detect import free_port
from curator.runtime.workers import Job, Workers, located
from curator.worker.processes import FORK_SERVER, Processes
from curator.worker.runner import Runner

FORK_SERVER_DIED = f"the process that holds the workers has died (killed, or out of memory); {ev.GO_ON}"


class LocalRuntime:
    """Workers as processes. `execute` does what the scheduler asks; `wait` gives what happened.

    `processes`: of the run; none is alive when a phase begins.
    """

    def __init__(self, job: Job, processes: Processes) -> None:
        self.workers, self.processes = Workers(job), processes

    def execute(self, action: ev.RuntimeAction) -> None:
        self.workers.do(action)
        self._carry_out()

    def wait(self, timeout: float | None) -> list[ev.Event]:
        events: list[ev.Event] = []
        for process, message in self.processes.wait(timeout):
            events += ([ev.Stop("lost", FORK_SERVER_DIED)] if process == FORK_SERVER
                       else self.workers.hear(0, process, message))
        self._carry_out()
        return events

    def _carry_out(self) -> None:
        for _, request in self.workers.take_requests():
            self.processes.do(request)

    def close(self) -> None:
        self.processes.clear()


# -- in this process -----------------------------------------------------------------------------------------


class InlineRuntime:
    """`workers=0`: every call runs in the driver's process, one after the other, so that breakpoints work."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.runners: dict[int, Runner] = {}
        self.todo: deque[Callable[[], Iterator[ev.Event]]] = deque()
        # of each call that is not ended: its worker and its answers
        self.calls: dict[int, tuple[int, Iterator[Emitted | Done | Failed]]] = {}
        self.done_once: set[str] = set()  # steps whose `setup_node` has been called

    def execute(self, action: ev.RuntimeAction) -> None:
        match action:
            case ev.StartWorker():
                self.todo.append(partial(self._start, action))
            case ev.Submit():
                self.todo.append(partial(self._call, action.call))
            case Resume():
                self.todo.append(partial(self._continue, action.call))
            case Discard():
                self.todo.append(partial(self._discard, action))
            case ev.StopWorker():
                runner = self.runners.pop(action.worker, None)
                if runner is not None:
                    runner.close()
                self.calls = {call: work for call, work in self.calls.items() if work[0] != action.worker}
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
            os.environ.update(Rank(action.worker).environment(free_port()))
        try:
            runner.setup(Context(action.worker, operator.resources.cpus), self.job.restored(action),
                         self._once)
        except CuratorError as error:
            first = first_error(operator.steps[0].name, error)
            yield ev.WorkerLost(action.worker, str(error), setup=True, fatal=True, first=first)
            return
        self.runners[action.worker] = runner
        yield ev.WorkerReady(action.worker, exhausted=runner.exhausted)

    def _once(self, name: str, do: Callable[[], None]) -> None:
        if name not in self.done_once:
            do()
            self.done_once.add(name)

    def _discard(self, action: Discard) -> Iterator[ev.Event]:
        # Not in the middle of a call over the unit's rows: behind it, as a worker process does.
        if any(worker == action.worker for worker, _ in self.calls.values()):
            self.todo.append(partial(self._discard, action))
        elif action.worker in self.runners:
            self.runners[action.worker].discard(action.unit, action.attempt, action.replay)
        return iter(())

    def _call(self, call: Call) -> Iterator[ev.Event]:
        if call.worker in self.runners:  # else it was killed meanwhile
            self.calls[call.id] = call.worker, self.runners[call.worker].run(self.job.complete(call))
            yield from self._continue(call.id)

    def _continue(self, call: int) -> Iterator[ev.Event]:
        if call not in self.calls:
            return
        answer = next(self.calls[call][1])
        if not isinstance(answer, Emitted):
            del self.calls[call]
        if not isinstance(answer, Failed):
            located(answer.outputs, 0)
        yield answer

    def close(self) -> None:
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()


