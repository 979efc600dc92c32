"""One phase of a run: the loop that joins a scheduler, a runtime and a ledger."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node
from curator.api.stage import Stateful, Unit
from curator.engine.events import Action, Commit, Evidence, Report, StartWorker, Stop
from curator.engine.protocol import UnitInfo
from curator.engine.scheduler import Scheduler
from curator.engine.state import State
from curator.io.failed import FromFailed
from curator.io.files.folder import Folder
from curator.observe.live.observer import Observer
from curator.pipeline.plan import Phase
from curator.run.folder.ledger import Ledger
from curator.run.folder.lock import Lock
from curator.run.folder.needs import begins_behind, kept
from curator.run.profiles import load_profiles, save_profiles
from curator.run.reading import Reading
from curator.run.replay import Replay
from curator.runtime.local import InlineRuntime, LocalRuntime
from curator.runtime.workers import Job, Runtime
from curator.worker.imports import modules_of
from curator.worker.processes import Processes

LEDGER_S = 1.0  # finished units are written down this often; a kill costs at most the units of this long,
# or of this share of the time so far, so that long runs do not leave a file for each second
LEDGER_SHARE = 0.01
TURN_S = 0.2  # the loop turns at least this often
SHORT_TURN_S = 0.002  # a wait shorter than this gains nothing
COLLECT_EVERY = 1_000_000  # objects made: to look through those of 100,000 workers takes a second each time


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Garbage is collected less often than usual. The driver makes few cycles, and none holds a batch."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        if before[0] != COLLECT_EVERY:  # else another run of this process does that
            gc.set_threshold(*before)


@dataclass
class RunContext:
    """What a run works with in every phase; to be closed. `inline`: in the driver's own process. `lock`: of
    the run's folder; the fork server and every worker hold its descriptor open. `modules`: what workers of
    all phases import.

    `make_loop`: makes what works through a phase. `ray`: the address of a Ray cluster to work on, with
    `cores` of it at most. `tell`: called with the time whenever the loop has turned, and with None when a
    phase has ended.
    """

    machine: Node
    observer: Observer
    make_loop: Callable[..., Loop]
    inline: bool = False
    lock: Lock = field(default_factory=Lock)
    modules: Sequence[str] = ()
    ray: str | None = None
    cores: int | None = None
    tell: Callable[[float | None], None] = lambda now: None
    asked: list[Stop] = field(default_factory=list)  # the user wants the run to stop
    processes: Processes | None = None  # of this machine, from the first phase on
    leave_ray: Callable[[], None] | None = None  # the same of a cluster: how to leave it

    def report(self, report: Report) -> None:
        self.observer.see((), [report])
        if report.kind == "waiting":  # nothing else is shown while there is no worker
            print(f"curator: {report.text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.processes is not None:
            self.processes.close()
        if self.leave_ray is not None:
            self.leave_ray()


def make_runtime(job: Job, context: RunContext, spared: set[str]) -> tuple[Runtime, dict[int, Node]]:
    """Where the work is done, and the nodes that it begins with. `spared`: modules not needed now."""
    if context.ray is None:
        if context.inline:
            return InlineRuntime(job), {0: context.machine}
        if context.processes is None:
            context.processes = Processes([name for name in context.modules if name not in spared],
                                          () if context.lock.fd is None else (context.lock.fd,))
        return LocalRuntime(job, context.processes), {0: context.machine}
    from curator.runtime.ray import RayRuntime, connect

    if context.leave_ray is None:
        context.leave_ray = connect(context.ray, context.cores)
    runtime = RayRuntime(job, context.cores, lambda kind, text: context.report(Report(kind, text)))
    context.observer.publish_to(runtime.gauge)
    return runtime, runtime.nodes


class Loop:
    """Does what is to do in a phase. `units`: the operator that reads each, and the unit; those to do come
    first.

    `replay`: records that failed before and run again. `skipped`: units that were finished before. `workers`:
    the most at a time, by operator.
    """

    def __init__(self, phase: Phase, ledger: Ledger, units: Sequence[tuple[int, Unit]], out: Folder,
                 replay: Replay | None = None) -> None:
        self.phase, self.ledger, self.out = phase, ledger, out
        alone, whole = replay.choose(phase, ledger, {u.key: u for _, u in units}) if replay else ({}, ())
        needs = ledger.prepare(phase, units, whole, nothing=not alone)
        todo = [(phase.replay if begins_behind(phase, need) else source, unit, need)
                for (source, unit), need in zip(units, needs, strict=True) if need is not True]
        self.behind = any(source == phase.replay for source, _, _ in todo)  # some begin at checkpoints
        done = [unit for (_, unit), need in zip(units, needs, strict=True) if need is True]
        again = [unit for unit in done if unit.key in alone]
        # units of which rows that failed run again, and nothing else
        self.replayed = frozenset(range(len(todo), len(todo) + len(again)))
        if again:
            ledger.expect_replayed({unit.key for unit in again})
            reader = next(o.index for o in phase.operators if isinstance(o.steps[0].stage, FromFailed))
            todo += [(reader, alone[unit.key], None) for unit in again]
            done = [unit for unit in done if unit.key not in alone]
        self.failed_before = sum(alone[unit.key].rows for unit in again)
        self.skipped = len(done)
        self.units = [unit for _, unit, _ in todo] + done
        alike: dict[tuple, tuple] = {}  # most units need the same
        self.todo = [alike.setdefault(task, task) for task in ((source, need) for source, _, need in todo)]
        self.reading = Reading(array("q", (u.size_bytes for u in self.units)), len(self.todo))
        self.sidecars: dict[str, dict[int, str]] = {}  # by step and unit
        index_of: dict[str, int] = {}
        for step in phase.steps:
            if isinstance(step.stage, Stateful) and (known := ledger.sidecars(step)):
                index_of = index_of or {u.key: i for i, u in enumerate(self.units)}
                self.sidecars[step.name] = {index_of[key]: name for key, name in known.items()}
        self.workers: dict[int, int] = {}
        self.state: State | None = None  # of the scheduler, while there is something to do
        self.stopped: Stop | None = None  # why it ended early
        self.busy: dict[str, float] = {}  # seconds of work by operator, when it has ended
        self.errors: dict[str, FirstError] = {}  # the first of each stage
        self.began = time.monotonic()

    # -- from beginning to end ------------------------------------------------------------------------------

    def go(self, context: RunContext, before: tuple[int, int], max_failed: float) -> Stop | None:
        """Work; gives why it stopped early, or None. `before`: records read and failed in finished units."""
        self.began = time.monotonic()
        whole = False
        try:
            # All is done, and no file was begun that the ledger does not name.
            whole = self._work(context, before, max_failed) and not (context.lock.after_kill or self.replayed)
        finally:
            self.ledger.flush(time.monotonic() - self.began, whole)
        if not whole:
            # Units that began again, or are not finished, may have left files of an attempt before, and so
            # may workers of a run that was killed, on another machine, after this one had begun: whoever
            # reads the folder must not see them.
            self.ledger.remove_unnamed()
        context.tell(None)
        return self.stopped

    def _work(self, context: RunContext, before: tuple[int, int], max_failed: float) -> bool:
        """Do all units; gives whether each was begun and finished once."""
        folder, operators = self.out.sub("_run"), self.phase.operators
        runtime, nodes = make_runtime(Job(operators, self._unit_info, folder.sub("state"), self._restore),
                                      context, self._spared())
        try:
            scheduler = Scheduler(operators, self.todo, nodes, before=before,
                                  short_circuits=self._short_circuits(), max_failed=max_failed,
                                  profiles=load_profiles(folder, operators))
            self.state, self.errors = scheduler.state, scheduler.errors
            self._loop(scheduler, runtime, context)
            save_profiles(folder, scheduler.state.operators)
        finally:
            runtime.close()
        self.stopped = scheduler.stopped
        return not (self.stopped or scheduler.state.repeated)

    def _spared(self) -> set[str]:
        """The modules of operators that no unit needs."""
        tasks, operators = set(self.todo), self.phase.operators
        busy = {i for source, need in tasks for i in (source, *(t.operator for t in need or ()))}
        idle = [o for o in operators if o.index not in busy and not any(need is None for _, need in tasks)]
        return set(modules_of(idle)) - set(modules_of(o for o in operators if o not in idle))

    def _short_circuits(self) -> frozenset[int]:
        """Operators that need not be given more when they want none."""
        # A limit that was reached must let through again what an edit does again, so then everything is read;
        # and so is what an earlier phase has counted.
        if self.ledger.unfinished or self.replayed or self.phase.number:
            return frozenset()
        return frozenset(o.index for o in self.phase.operators
                         if o.kind == "stateful" and self.phase.short_circuit(o.index))

    def _save(self, saved: float) -> float:
        """Write finished units down if it is time to; gives when that was last."""
        now = time.monotonic()
        if self.ledger.pending and now - saved > max(LEDGER_S, LEDGER_SHARE * (now - self.began)):
            self.ledger.flush(now - self.began)
            return now
        return saved

    def _loop(self, scheduler: Scheduler, runtime: Runtime, context: RunContext) -> None:
        observer, saved = context.observer, time.monotonic()
        turned, actions = saved, scheduler.start(saved)
        observer.see((), actions)
        while True:
            context.lock.check()
            for action in actions:
                self._execute(action, scheduler, runtime)
            if scheduler.finished:
                return
            saved, now = self._save(saved), time.monotonic()
            context.tell(now)
            due = scheduler.deadline()
            if scheduler.turn_s > SHORT_TURN_S:  # so many workers: what they say is taken in together
                time.sleep(max(0.0, turned + scheduler.turn_s - now))
            events = runtime.wait(TURN_S if due is None else min(TURN_S, max(0.0, due - now)))
            if context.asked and scheduler.stopped is None:
                events = [*events, context.asked[0]]
            turned = time.monotonic()
            actions = scheduler.handle(events, turned) if events else []
            if due is not None and time.monotonic() >= due and not scheduler.finished:
                actions += scheduler.tick(time.monotonic())
            observer.see(events, actions)

    def _execute(self, action: Action, scheduler: Scheduler, runtime: Runtime) -> None:
        if isinstance(action, Commit):
            self._commit(action)
        elif isinstance(action, Evidence):
            if action.unit not in self.replayed:  # of these the rows are in `failed/` as they were
                self.ledger.add_evidence(action.files)
        elif not isinstance(action, Report):
            runtime.execute(action)
        if isinstance(action, StartWorker):
            alive = len(scheduler.state.operators[action.operator].workers)
            self.workers[action.operator] = max(alive, self.workers.get(action.operator, 0))

    def _commit(self, commit: Commit) -> None:
        unit = self.units[commit.unit]
        self.ledger.add(self.phase, unit, commit, self.units)
        self.reading.done += self.reading.sizes[commit.unit]
        for step, name in commit.snapshots.items():
            self.sidecars.setdefault(step, {})[commit.unit] = name

    def end(self) -> None:
        """Keep of the scheduler what the numbers need."""
        self.busy, self.state = self.busy_s(), None

    # -- what the runtime asks -------------------------------------------------------------------------------

    def _unit_info(self, unit: int, attempt: int) -> UnitInfo:
        given = self.units[unit]
        source, need = self.todo[unit]
        read = self.ledger.kept_of(self.phase, given, need) if source == self.phase.replay else given
        return UnitInfo(read, self.ledger.part_name(given, attempt), given.size_bytes)

    def _restore(self, step: str, committed: Sequence[int]) -> list[tuple[int, str, bool]]:
        """Sidecars of a step: of units finished before, now, and of those that an edit has done again."""
        done = {*committed, *range(len(self.todo), len(self.units))}
        # of what begins at a checkpoint, a step before it sees nothing again
        behind = {task for task in set(self.todo)
                  if task[0] == self.phase.replay and step in kept(self.phase, task[1])}
        done |= {unit for unit, task in enumerate(self.todo) if task in behind} if behind else set()
        done |= self.replayed  # what these taught stays, and more is added
        return [(unit, name, unit not in done) for unit, name in self.sidecars.get(step, {}).items()]

    # -- in numbers ------------------------------------------------------------------------------------------

    def totals(self, lasting: bool = False) -> dict[str, Counts]:
        """The counts of finished units and of those under way (of these rows and seconds), by stage.
        `lasting`: what open units wrote does not count."""
        totals = self.ledger.counts()
        if lasting and self.replayed:  # what is under way has failed before, and counts as that
            return totals
        for (index, step), counts in self.state.under_way.items() if self.state else ():
            operator = self.phase.operators[index]
            if not (lasting and operator.kind == "sink"):
                totals.setdefault(operator.steps[step].name, Counts()).add(counts)
        return totals

    def busy_s(self) -> dict[str, float]:
        """Seconds of work by operator."""
        return self.busy if self.state is None else {o.plan.name: o.busy_s for o in self.state.operators}

    @property
    def alive(self) -> int:
        """Workers at this moment."""
        return len(self.state.workers) if self.state else 0

    def progress(self) -> dict[str, int]:
        """How far it is: units and bytes, done and in all, and bytes that were read."""
        units, state = len(self.units), self.state
        return {"units_done": units - (state.open if state else 0), "units_total": units,
                **self.reading.bytes(state)}

    def being_read(self, most: int) -> list[dict[str, Any]]:
        """Units that are being read, the first `most`: how they are called, bytes and records so far."""
        return [{"unit": self.units[u.index].label, "bytes_read": u.read_bytes,
                 "bytes": self.reading.sizes[u.index],
                 "records": sum(c.rows_in for (operator, _), c in u.counts.items() if operator == u.source)}
                for u in self.reading.units(self.state)[:most]]
