"""One phase of a run: the loop that joins a scheduler, a runtime and a ledger."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node
from curator.api.stage import Stateful, Unit
from curator.engine.events import Commit, Evidence, Report, StartWorker, Stop, Stopped
from curator.engine.protocol import UnitInfo
from curator.engine.scheduler import Scheduler
from curator.io.files.folder import Folder
from curator.observe.live.observer import Observer
from curator.pipeline.plan import Phase
from curator.run.folder.ledger import Ledger
from curator.run.folder.lock import Lock
from curator.run.profiles import load_profiles, save_profiles
from curator.runtime.local import InlineRuntime, LocalRuntime
from curator.runtime.workers import Job
from curator.worker.processes import Processes

LEDGER_S = 1.0  # finished units are written down this often; a kill costs at most the units of this long,
LEDGER_SHARE = 0.01  # or of this share of the time so far, so that long runs do not leave a file for each second
WATCH_S = 0.2  # watchers are told this often


@dataclass
class RunContext:
    """What a run works with in every phase. `inline`: in the driver's own process. `lock`: of the run's folder; the fork server and
    every worker hold its descriptor open. `modules`: what workers of all phases import. To be closed.

    `ray`: the address of a Ray cluster to work on, with `cores` of it at most. `watch` is called now and then; `tell_numbers`
    when the observer asks for the numbers of the run; `save_numbers` from time to time, and says when again.
    """

    machine: Node
    observer: Observer
    tell_numbers: Callable[[], None]
    save_numbers: Callable[[], float]
    inline: bool = False
    lock: Lock = field(default_factory=Lock)
    modules: Sequence[str] = ()
    ray: str | None = None
    cores: int | None = None
    watch: Callable[[], None] | None = None
    asked: list[Stop] = field(default_factory=list)  # the user wants the run to stop
    processes: Processes | None = None  # of this machine, from the first phase on
    leave_ray: Callable[[], None] | None = None  # the same of a cluster: how to leave it

    def close(self) -> None:
        if self.processes is not None:
            self.processes.close()
        if self.leave_ray is not None:
            self.leave_ray()


def make_runtime(job: Job, means: RunContext) -> tuple[Any, dict[int, Node]]:
    """Where the work is done: a runtime (`execute`, `wait`, `close`), and the nodes that it begins with."""
    if means.ray is None:
        if means.inline:
            return InlineRuntime(job), {0: means.machine}
        if means.processes is None:
            means.processes = Processes(means.modules, () if means.lock.fd is None else (means.lock.fd,))
        return LocalRuntime(job, means.processes), {0: means.machine}
    from curator.runtime.ray import RayRuntime, connect

    if means.leave_ray is None:
        means.leave_ray = connect(means.ray, means.cores)
    runtime = RayRuntime(job, means.ray, means.cores, lambda kind, text: means.observer.see((), [Report(kind, text)]))
    means.observer.publish_to(runtime.gauge)
    return runtime, runtime.nodes


class Labels(Sequence[str]):
    """What people call units."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, index: Any) -> Any:
        return self.units[index].label


class Loop:
    """Does what is to do in a phase. `units`: the operator that reads each, and the unit.

    `skipped`: units that were finished before.
    """

    def __init__(self, phase: Phase, ledger: Ledger, units: Sequence[tuple[int, Unit]], out: Folder, prune: bool) -> None:
        self.phase, self.ledger, self.out = phase, ledger, out
        needs = ledger.prepare(phase, units, prune)
        self.skipped = sum(n is True for n in needs)
        todo = [(unit, need) for unit, need in zip(units, needs, strict=True) if need is not True]
        self.units = [unit for (_, unit), _ in todo] + [u for (_, u), n in zip(units, needs, strict=True) if n is True]
        alike: dict[tuple, tuple] = {}  # most units need the same
        self.todo = [alike.setdefault(task, task) for task in ((source, need) for (source, _), need in todo)]
        self.sizes = array("q", (u.size_bytes for u in self.units))
        self.bytes_total = sum(self.sizes)
        self.bytes_done = sum(self.sizes[len(self.todo):])  # of finished units
        self.bytes_unread = 0, 0  # so many units that stay unread, as they were last counted, and their bytes
        self.memory: dict[str, dict[int, str]] = {}  # sidecars by step and unit
        index_of: dict[str, int] = {}
        for step in phase.steps:
            if isinstance(step.stage, Stateful) and (known := ledger.memories(step)):
                index_of = index_of or {u.key: i for i, u in enumerate(self.units)}
                self.memory[step.name] = {index_of[key]: name for key, name in known.items()}
        self.workers: dict[int, int] = {}  # most at a time, by operator
        self.scheduler: Scheduler | None = None  # while there is something to do
        self.busy: dict[str, float] = {}  # seconds of work by operator, when it has ended
        self.errors: dict[str, FirstError] = {}  # the first of each stage

    # -- from beginning to end ------------------------------------------------------------------------------

    def go(self, means: RunContext, before: tuple[int, int], max_failed: float) -> Stopped | None:
        """Work; gives why it stopped early, or None. `before`: records read and failed so far, in finished units."""
        self.began = time.monotonic()
        self.means = means
        # A limit that was reached must let through again what an edit does again, so then everything is read; and so is
        # what an earlier phase has counted.
        short_circuits = frozenset(o.index for o in self.phase.operators
                          if o.kind == "stateful" and self.phase.short_circuit(o.index)
                          and not self.ledger.unfinished and not self.phase.number)
        job = Job(self.phase.operators, self._unit_info, self.out.sub("_run").sub("state"), self._restore)
        try:
            runtime, nodes = make_runtime(job, means)
            try:
                run_folder = self.out.sub("_run")
                self.scheduler = Scheduler(self.phase.operators, self.todo, nodes, before=before, short_circuits=short_circuits,
                                           max_failed=max_failed, profiles=load_profiles(run_folder, self.phase.operators))
                self.errors = self.scheduler.errors
                self._loop(runtime)
                save_profiles(run_folder, self.scheduler.state.operators)
            finally:
                runtime.close()
        finally:
            whole = self._ended_well()
            self.ledger.flush(time.monotonic() - self.began, whole)
        if not whole:
            # Units that began again, or are not finished, may have left files of an attempt before, and so may workers of a run
            # that was killed, on another machine, after this one had begun: whoever reads the folder must not see them.
            self.ledger.remove_unnamed(self.phase)
        means.tell_numbers()
        return self.scheduler.stopped

    def _ended_well(self) -> bool:
        """Whether all is done, and no file was begun that the ledger does not name."""
        scheduler = self.scheduler
        return (scheduler is not None and scheduler.finished and scheduler.stopped is None
                and not scheduler.state.repeated and not self.means.lock.after_kill)

    def _loop(self, runtime: Any) -> None:
        scheduler, means, observer = self.scheduler, self.means, self.means.observer
        saved = watched = save_at = time.monotonic()
        actions = scheduler.start(time.monotonic())
        observer.see((), actions)
        while True:
            means.lock.check()
            for action in actions:
                if isinstance(action, Commit):
                    self._commit(action)
                elif isinstance(action, Evidence):
                    self.ledger.add_evidence(action.files)
                elif not isinstance(action, Report):
                    runtime.execute(action)
                if isinstance(action, StartWorker):
                    alive = len(scheduler.state.operators[action.operator].workers)
                    self.workers[action.operator] = max(alive, self.workers.get(action.operator, 0))
            if scheduler.finished:
                return
            now = time.monotonic()
            if self.ledger.pending and now - saved > max(LEDGER_S, LEDGER_SHARE * (now - self.began)):
                self.ledger.flush(now - self.began)
                saved = now
            if means.watch is not None and now - watched > WATCH_S:
                means.watch()
                watched = now
            if observer.due():
                means.tell_numbers()
            if now >= save_at:
                save_at = means.save_numbers()
            due = scheduler.deadline()
            events = runtime.wait(min(WATCH_S, max(0.0, due - now) if due is not None else WATCH_S))
            if means.asked and scheduler.stopped is None:
                events = [*events, means.asked[0]]
            actions = scheduler.handle(events, time.monotonic()) if events else []
            if due is not None and time.monotonic() >= due and not scheduler.finished:
                actions += scheduler.tick(time.monotonic())
            observer.see(events, actions)

    def end(self) -> None:
        """Keep of the scheduler what the numbers need."""
        self.busy, self.scheduler = self.busy_s(), None

    # -- what the runtime asks --------------------------------------------------------------------------------

    def _unit_info(self, unit: int, attempt: int) -> UnitInfo:
        return UnitInfo(self.units[unit], self.ledger.part_name(self.units[unit], attempt))

    def _restore(self, step: str, committed: Sequence[int]) -> list[tuple[int, str, bool]]:
        """Sidecars of a step: of units finished before, now, and of those that an edit has done again."""
        done = {*committed, *range(len(self.todo), len(self.units))}
        return [(unit, name, unit not in done) for unit, name in self.memory.get(step, {}).items()]

    # -- what happens -------------------------------------------------------------------------------------------

    def _commit(self, commit: Commit) -> None:
        unit = self.units[commit.unit]
        self.ledger.add(self.ledger.record_of(self.phase, unit, commit, self.units))
        self.bytes_done += self.sizes[commit.unit]
        for step, name in commit.snapshots.items():
            self.memory.setdefault(step, {})[commit.unit] = name

    # -- in numbers -----------------------------------------------------------------------------------------------

    def totals(self, lasting: bool = False) -> dict[str, Counts]:
        """The counts of finished units and of those under way (of these rows and seconds), by stage. `lasting`: what open units
        wrote does not count."""
        totals = self.ledger.counts()
        for (index, step), counts in self.scheduler.state.under_way.items() if self.scheduler else ():
            operator = self.phase.operators[index]
            if not (lasting and operator.kind == "sink"):
                totals.setdefault(operator.steps[step].name, Counts()).add(counts)
        return totals

    def busy_s(self) -> Mapping[str, float]:
        """Seconds of work by operator."""
        if self.scheduler is None:
            return self.busy
        return {o.plan.name: o.busy_s for o in self.scheduler.state.operators}

    def progress(self) -> dict[str, int]:
        """How far it is: units and bytes, done and in all."""
        if self.scheduler is None:
            return {"units_done": len(self.units), "units_total": len(self.units),
                    "bytes_done": self.bytes_total, "bytes_total": self.bytes_total}
        unread = self.scheduler.state.units.unread
        if len(unread) != self.bytes_unread[0]:
            self.bytes_unread = len(unread), sum(self.sizes[unit] for unit in unread)
        return {"units_done": len(self.units) - self.scheduler.state.open, "units_total": len(self.units),
                "bytes_done": self.bytes_done + self.bytes_unread[1], "bytes_total": self.bytes_total}
