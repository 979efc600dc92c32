"""One phase of a run on Ray Data: the units go in, and what has come through is committed."""

from __future__ import annotations

import time
from typing import Any

from curator.api.errors import CuratorError
from curator.api.stage import Stateful
from curator.engine.events import GO_ON, Report, Stop
from curator.engine.scheduler import SHARE_OF, failures_allowed, too_many_failed
from curator.pipeline.plan import Plan
from curator.run.loop import TURN_S, Loop, RunContext
from curator.run.raydata.dataset import Execution, connect
from curator.run.raydata.work import Work, commit_of

ENDING_S = 10.0  # how long a run that stops waits for calls that are under way
STORE_BYTES = 256 << 20  # of the object store of a cluster of our own, at least


class RayDataLoop(Loop):
    """A `Loop` whose units Ray Data takes through the operators. What is committed, and when, is ours."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.open = len(self.todo)
        self.came = bytearray(len(self.todo))  # which units have come through
        self.read = self.failed = 0
        self.actors: dict[int, set[str]] = {}

    @staticmethod
    def check(plan: Plan) -> None:
        """Refuse what Ray Data cannot do.

        Raises:
            CuratorError: naming the stage, and what to do instead.
        """
        for operator in (o for phase in plan.phases for o in phase.operators if o.resources.gang):
            raise CuratorError(f"{operator.name} is a gang, several processes that work together, and Ray "
                               "Data knows one actor a call: run it with --ray instead of --engine ray-data")

    def _work(self, context: RunContext, before: tuple[int, int], max_failed: float) -> bool:
        if context.leave_ray is None:
            context.leave_ray = connect(str(context.ray), context.cores,
                                        max(STORE_BYTES, context.machine.budget_bytes))
        self.read, self.failed = before
        restored = {o.index: self._restore(o.steps[0].name, ()) for o in self.phase.operators
                    if isinstance(o.steps[0].stage, Stateful)}
        works = [Work(unit, source, need, self._unit_info(unit, 0))
                 for unit, (source, need) in enumerate(self.todo)]
        execution = Execution(self.phase.operators, works, self._short_circuits(), self.out.sub("_run/state"),
                              restored, context.cores)
        try:
            self._take_all(execution, context, max_failed)
        finally:
            execution.close(ENDING_S)
        if self.stopped is not None:
            context.observer.see((), [Report("stopped", self.stopped.message)])
        # Ray may have done a unit twice, and nobody is told of the files of the first time.
        return False

    def _take_all(self, execution: Execution, context: RunContext, max_failed: float) -> None:
        saved, ended = time.monotonic(), float("inf")
        while not execution.ended and time.monotonic() < ended:
            context.lock.check()
            for found in execution.wait(TURN_S):
                if isinstance(found, Report):
                    context.report(found)
                    continue
                stop = found if isinstance(found, Stop) else self._take(found, context)
                self.stopped = self.stopped or stop
            if self.failed > failures_allowed(max_failed, max(self.read, SHARE_OF)):
                why = too_many_failed(self.failed, self.read, max_failed)
                self.stopped = self.stopped or Stop("max_failed", why)
            if context.asked:
                self.stopped = self.stopped or context.asked[0]
            if self.stopped is not None and ended == float("inf"):
                execution.stop()
                ended = time.monotonic() + ENDING_S
            saved = self._save(saved)
            context.tell(time.monotonic())
        if self.open and self.stopped is None:
            self.stopped = Stop("lost", f"Ray Data has ended, and {self.open} units have not come through; "
                                        f"{GO_ON}")

    def _take(self, work: Work, context: RunContext) -> Stop | None:
        """Commit a unit that has come through; gives why the run cannot go on."""
        operators = self.phase.operators
        if self.came[work.unit]:
            return None
        for error in work.errors:
            self.errors.setdefault(error.stage, error)
        for (index, who), seconds in work.seconds.items():
            seen = self.actors.setdefault(index, set())
            seen.add(who)
            self.workers[index] = len(seen)
            name = operators[index].name
            self.busy[name] = self.busy.get(name, 0.0) + seconds
        commit = commit_of(work, operators)
        if work.stop is not None:
            self.ledger.add_evidence(commit.files)
            return work.stop
        self.came[work.unit] = True
        self.open -= 1
        if work.unread:
            self.reading.done += self.reading.sizes[work.unit]
            return None
        for (index, _), counts in work.counts.items():
            self.failed += counts.failed
            self.read += counts.rows_in if operators[index].kind == "source" else 0
        self._commit(commit)
        context.observer.see((), [commit])
        return None

    @property
    def alive(self) -> int:
        return sum(map(len, self.actors.values()))

    def progress(self) -> dict[str, int]:
        return super().progress() | {"units_done": len(self.units) - self.open}

