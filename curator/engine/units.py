"""The life of a unit: drained, flushed and committed; or begun again, given up, or left unread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from curator.api.counts import Counts
from curator.engine.events import Commit, Report, Stop
from curator.engine.parts import COMMITTED, UNREAD, CallState, OperatorState, UnitState, WorkerState
from curator.engine.protocol import PART_S, Discard, Flushed
from curator.engine.state import State
from curator.pipeline.plan import Operator, Target

ATTEMPTS = 20  # of a unit while no node goes, whoever is to blame: a run that goes round in circles must end


def flush_if_drained(state: State, unit: UnitState, attempt: int) -> None:
    """When nothing of a unit is left in queues and calls, ask those that keep something of it to finish."""
    if state.stopped is not None or unit.attempt != attempt or unit.stage != "draining" or unit.live:
        return
    unit.stage = "flushing"
    for index, at in sorted(unit.touched.items()):
        operator = state.operators[index]
        served_by = operator.queues[at].worker
        assert served_by is not None, operator.plan.name
        state.submit_flush(operator, operator.workers[served_by], unit)
    if not unit.flushing:
        _commit(state, unit)


def flushed(state: State, call: CallState, kept: Flushed | None) -> None:
    """A flush is answered; with the last one the unit is committed."""
    (index, attempt), = call.units
    unit = state.units[index]
    if unit.attempt != attempt:
        return
    unit.flushing -= 1
    if kept is not None:
        unit.flushed.append((call.operator, kept))
    if not unit.flushing and unit.stage == "flushing":
        _commit(state, unit)


def _commit(state: State, unit: UnitState) -> None:
    reached = {o.plan.index for o in state.operators
               if o.plan.index == unit.source or unit.source in o.upstream}
    commit = commit_of([o.plan for o in state.operators], unit.index, unit.attempt, state.take_counts(unit),
                       unit.flushed, reached, unit.wants)
    for index, at in unit.touched.items():
        state.operators[index].queues[at].units.discard(unit.index)
    unit.touched.clear()
    unit.stage = "committed"
    state.open -= 1
    state.units.end(unit.index, COMMITTED)
    state.act(commit)


def commit_of(operators: Sequence[Operator], unit: int, attempt: int,
              counts: Mapping[tuple[int, int], Counts], flushed: Iterable[tuple[int, Flushed]],
              reached: Collection[int], wants: Callable[[Target], bool]) -> Commit:
    """What is told of a unit that has come through. `counts`: by operator and step; `flushed`: what operators
    kept of it; `reached`: those that its rows came to, or would have; `wants`: whether it needs a step."""
    files, snapshots, rests = {}, {}, {}
    depends: set[int] = set()
    for index, kept in flushed:
        steps = operators[index].steps
        files.update({steps[s].name: list(f) for s, f in kept.files.items()})
        depends |= kept.depends
        if kept.rests_on:
            rests[steps[0].name] = kept.rests_on
        if kept.snapshot is not None:
            snapshots[steps[0].name] = kept.snapshot
    ran = frozenset(step.name for o in operators if o.index in reached for s, step in enumerate(o.steps)
                    if o.kind == "source" or wants(Target(o.index, s)))
    return Commit(unit, attempt, {operators[o].steps[s].name: c for (o, s), c in counts.items()}, files,
                  snapshots, frozenset(depends), ran, rests)


def begin_read(state: State, operator: OperatorState, worker: WorkerState) -> None:
    """A worker reads the next unit."""
    unit = state.units[state.waiting[operator.plan.index].popleft()]
    unit.stage, unit.live = "reading", unit.live + 1
    call = state.new_call(operator, "read", units=((unit.index, unit.attempt),), rows=1,
                          part_s=max(PART_S, state.call_s),
                          best_effort=unit.blames.get(operator.plan.index, 0) >= 2)
    state.submit(operator, worker, call)


def restart(state: State, units: Sequence[UnitState], why: str, blamed: Collection[int] = (),
            by: int = 0) -> None:
    """Begin units again; those in `blamed` were the reason why an operator (`by`) failed."""
    units = [u for u in units if u.stage in ("reading", "draining", "flushing")]
    indices = {u.index for u in units}
    state.purge(lambda _, piece: piece.unit in indices)
    for unit in units:
        void(state, unit, "waiting")
        if unit.index in blamed:
            unit.blames[by] = unit.blames.get(by, 0) + 1
        state.waiting[unit.source].appendleft(unit.index)
        state.act(Report("restart", f"unit {unit.index} starts again (attempt {unit.attempt + 1}): {why}",
                         unit=unit.index))
        if unit.attempt - unit.excused >= ATTEMPTS:
            state.end_run(Stop("broken",
                               f"unit {unit.index} was begun {ATTEMPTS} times and not once finished: {why}"))


def void(state: State, unit: UnitState, stage: Literal["waiting", "draining"]) -> None:
    """Everything of this attempt of a unit counts no more; its slices are out of the queues. It waits to be
    read again, or (draining) only what is said of it now is still to come."""
    state.take_counts(unit, void=True)
    queues = dict(unit.touched)
    if stage == "draining":  # an earlier attempt may have been where this one was not
        queues |= {o.plan.index: 0 for o in state.operators if o.plan.kind == "stateful"}
    for index, at in queues.items():
        queue = state.operators[index].queues[at]
        queue.units.discard(unit.index)
        if queue.worker is not None:
            state.act(Discard(queue.worker, unit.index, unit.attempt, replay=stage == "waiting"))
    unit.touched.clear()
    unit.flushed, unit.flushing = [], 0
    if unit.stage == "reading":
        for worker in list(state.operators[unit.source].workers.values()):
            if worker.head and worker.head.kind == "read" and worker.head.units[0][0] == unit.index:
                for call in worker.calls:  # nobody wants its answers any more
                    state.end_call(call)
                state.kill(worker)
    unit.attempt, unit.live, unit.stage = unit.attempt + 1, 0, stage
    state.repeated = True


def excuse(state: State, lost: Collection[int]) -> None:
    """Attempts until now are not counted: nothing goes round in circles as long as it is nodes that go."""
    for unit in state.units.values():
        unit.excused = unit.attempt + (unit.index in lost)


def leave_unread(state: State, operator: OperatorState) -> None:
    """An operator through which every row goes wants no more. A unit that starts again may have given records
    that it let through: they must come once more."""
    unread, units = 0, state.units
    for queue in state.waiting.values():
        replay = [u for u in queue if u in units and units[u].attempt]
        for index in set(queue).difference(replay):
            units.end(index, UNREAD)
        unread += len(queue) - len(replay)
        queue.clear()
        queue.extend(replay)
    state.open -= unread
    if unread:
        state.act(Report("limit", f"{operator.plan.name} is reached: {unread} units stay unread",
                         operator.plan.index))


def read_on(state: State, operator: OperatorState) -> None:
    """What an exhausted operator let through is lost with its worker: it may need more than before."""
    operator.exhausted = False
    for index in state.units.read_on():
        state.waiting[state.units.given[index][0]].append(index)
        state.open += 1
