"""What happens when a worker, a node or a call is lost: who is to blame, and what is tried again.

1. Rows are given away with a call and come back only with its end, so a worker's death loses none: the call
   is tried again. The first call of a worker is blamed for the death, those behind it are not.
2. Rows over which two workers died are halved and tried alone until the row that kills is found; it goes to
   `failed`. An answer of which a part was sent on cannot be repeated alone: its units start again, and from
   then on the answers to their rows are kept until they are whole (`best_effort` calls of the scheduler).
3. What a sink had not finished, or a stateful stage had not told, goes with its worker: those units start
   again.
4. A unit that is to blame three times ends as one failed record if it cannot be read, else it ends the run.
5. When a node goes nobody is to blame; units with rows there start again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.engine.events import NodeDown, Report, Stop, StopWorker, WorkerLost
from curator.engine.parts import CallState, Group, OperatorState, UnitState, WorkerState
from curator.engine.placement import allot, allots
from curator.engine.protocol import DataLost, Failed, Reason, Slice
from curator.engine.state import State
from curator.engine.units import excuse, flush_if_drained, read_on, restart, void

TRIES = 3  # of a unit that is to blame for its failures, and of an operator's setup


def worker_lost(state: State, event: WorkerLost) -> None:
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    operator, calls = state.operators[worker.operator], list(worker.calls)
    for call in calls:
        state.end_call(call)
    state.remove_worker(worker)
    if worker.stopping and not calls:
        return
    state.act(Report("lost", f"a worker of {operator.plan.name} is gone: {event.reason}", operator.plan.index,
                     details={"worker": worker.id}))
    if not worker.ready:
        operator.setup_failures += 1
    if event.fatal or operator.setup_failures >= TRIES:
        what = (f"a worker of {operator.plan.name} cannot go on" if worker.ready
                else f"{operator.plan.name} cannot be set up")
        state.end_run(Stop("broken", f"{what}: {event.reason}", event.first))
    elif worker.ready:
        reason = Reason(event.reason if event.overdue else f"the worker died: {event.reason}")
        if operator.sticky:
            _queue_lost(state, operator, worker, calls, reason)
        else:
            _give_back(state, operator, calls[1:])
            if calls:
                _blame(state, operator, calls[0], event.step, reason)
                _drop(state, calls[0])


def call_failed(state: State, event: Failed) -> None:
    call = state.calls.get(event.call)
    if call is None:
        return
    state.close_call(call, rows_done=event.fatal)
    operator = state.operators[call.operator]
    if event.fatal:
        state.end_run(Stop("broken", event.error, event.first))
        return
    state.act(Report("retry", f"{operator.plan.name}: {event.error}", operator.plan.index))
    _blame(state, operator, call, 0, Reason(event.error, event.traceback), event.first)
    _drop(state, call)


def data_lost(state: State, event: DataLost) -> None:
    """A call could not begin. Its units start again: what they gave to the batch that is gone, nobody has."""
    call = state.calls.get(event.call)
    if call is not None:
        state.close_call(call, lost=True)
        restart(state, [state.units[u] for u in _fresh_units(state, call)], event.reason)


def node_down(state: State, event: NodeDown) -> None:
    if event.number not in state.nodes:
        return
    state.act(Report("node down", f"node {event.number} is gone: {event.reason}"))
    gone = [w for w in state.workers.values() if any(p.node == event.number for p in w.places)]
    lost = state.units_on(event.number, gone)
    state.remove_node(event.number)
    for worker in gone:
        operator, calls = state.operators[worker.operator], list(worker.calls)
        for call in calls:
            state.end_call(call)
        if any(p.node in state.nodes for p in worker.places):
            state.act(StopWorker(worker.id, kill=True))  # the other ranks of a gang
        state.remove_worker(worker)
        if operator.sticky and operator.exhausted:
            read_on(state, operator)
        _give_back(state, operator, calls, lost)
    excuse(state, lost)
    restart(state, [state.units[u] for u in sorted(lost)], f"node {event.number} is gone")
    if allots(state):
        allot(state, changed=True)


def _fresh_units(state: State, call: CallState) -> list[int]:
    """The units of a call that have not begun again since."""
    return [u for u, attempt in call.units if state.units[u].attempt == attempt]


def _give_back(state: State, operator: OperatorState, calls: list[CallState],
               lost: Collection[int] = ()) -> None:
    """Rows of calls that are not to blame wait again, before all others."""
    for piece in reversed([s for call in calls for s in call.slices]):
        if piece.unit not in lost and piece.attempt == state.units[piece.unit].attempt:
            state.enqueue(operator, piece, front=True)
        else:
            state.drop([piece])


def _drop(state: State, call: CallState) -> None:
    state.drop_call(call)
    for index, attempt in call.units:
        flush_if_drained(state, state.units[index], attempt)


def _queue_lost(state: State, operator: OperatorState, worker: WorkerState, calls: list[CallState],
                reason: Reason) -> None:
    for call in calls:
        state.drop_call(call)
    units = [state.units[u] for u in sorted(operator.queues[worker.queue].units)]
    blamed = _fresh_units(state, calls[0]) if calls else []
    if operator.exhausted:
        read_on(state, operator)
    if not _end_if_hopeless(state, operator, blamed, reason):
        restart(state, units, reason.error, blamed, operator.plan.index)


def _blame(state: State, operator: OperatorState, call: CallState, step: int, reason: Reason,
           first: FirstError | None = None) -> None:
    """A call failed as a whole. Its slices are still counted; the caller drops them."""
    index, blamed = operator.plan.index, _fresh_units(state, call)
    if call.kind == "process" and not operator.sticky and not call.emitted_early:
        fresh = tuple(s for s in call.slices if s.attempt == state.units[s.unit].attempt)
        for piece in fresh:
            state.adopt(piece)
        # Where rows have been given up meanwhile, it may have been one of them.
        _isolate(state, operator, fresh, call.crashes + 1 if len(fresh) == len(call.slices) else 1, step,
                 reason)
    elif call.kind == "read" and not operator.plan.internal and blamed:
        unit = state.units[blamed[0]]
        if unit.blames.get(index, 0) + 1 >= TRIES:
            _give_up(state, operator, unit, reason, first)
        else:
            restart(state, [unit], reason.error, blamed, index)
    # of internal units too: many records would go as one
    elif not _end_if_hopeless(state, operator, blamed, reason, first):
        restart(state, [state.units[u] for u in blamed], reason.error, blamed, index)


def _isolate(state: State, operator: OperatorState, slices: tuple[Slice, ...], crashes: int, step: int,
             reason: Reason) -> None:
    """Try the rows alone; after a second death in halves; a single row that killed twice has failed."""
    if not slices:
        return
    if crashes < 2:
        state.park(operator, [Group(slices, crashes)])
    elif sum(s.rows for s in slices) > 1:
        state.park(operator, _halves(state, slices, 1))
    else:
        _quarantine(state, operator, slices[0], step, reason)


def _halves(state: State, slices: tuple[Slice, ...], crashes: int) -> list[Group]:
    pieces, first, left = deque(slices), [], sum(s.rows for s in slices) // 2
    while pieces and left > 0:
        piece = pieces.popleft()
        if piece.rows > left:
            pieces.appendleft(piece)
            piece = piece.split(left)
            state.adopt(piece)
        first.append(piece)
        left -= piece.rows
    return [Group(tuple(g), crashes) for g in (first, pieces) if g]


def _quarantine(state: State, operator: OperatorState, piece: Slice, step: int, reason: Reason) -> None:
    """A record that killed its workers fails in the step that it died in."""
    unit, plan = state.units[piece.unit], operator.plan
    for before in range(step):
        state.count_rows(unit, operator, before, Counts(rows_in=1, out={plan.chain[before]: 1}))
    state.count_rows(unit, operator, step, Counts(rows_in=1, failed=1))
    name = plan.steps[step].name
    state.saw(FirstError(name, reason.error, reason.traceback))
    state.act(Report("failed", f"a record of unit {unit.index} failed in {name}: {reason.error}", plan.index,
                     unit.index))
    state.send_failed(operator, step, piece, reason)
    state.drop([piece])


def _give_up(state: State, operator: OperatorState, unit: UnitState, reason: Reason,
             first: FirstError | None) -> None:
    """A unit that cannot be read ends as one failed record."""
    state.purge(lambda _, piece: piece.unit == unit.index)
    void(state, unit, "draining")
    state.count_rows(unit, operator, 0, Counts(rows_in=1, failed=1))
    state.saw(first or FirstError(operator.plan.steps[0].name, reason.error))
    state.act(Report("failed", f"unit {unit.index} cannot be read: {reason.error}", operator.plan.index,
                     unit.index))
    nothing = Slice(None, unit.index, unit.attempt, 0, 0)
    state.adopt(nothing)
    state.send_failed(operator, 0, nothing, reason)
    state.drop([nothing])
    flush_if_drained(state, unit, unit.attempt)


def _end_if_hopeless(state: State, operator: OperatorState, blamed: Collection[int], reason: Reason,
                     first: FirstError | None = None) -> bool:
    for index in blamed:
        if state.units[index].blames.get(operator.plan.index, 0) + 1 >= TRIES:
            message = f"{operator.plan.name} failed {TRIES} times on unit {index}: {reason.error}"
            message = f"{message}\n{reason.traceback}".rstrip()
            state.end_run(Stop("broken", message, first))
            return True
    return False
