"""The life of a call: given to a worker, begun, ended, and its rows let go."""

from __future__ import annotations

from heapq import heappush

from curator.engine.events import Report, Submit
from curator.engine.parts import CallState, OperatorState, WorkerState
from curator.engine.protocol import Refitted
from curator.engine.state import State


def submit(state: State, operator: OperatorState, worker: WorkerState, call: CallState) -> None:
    call.worker, call.node = worker.id, worker.node
    worker.calls.append(call)
    state.count(worker)
    state.calls[call.id] = call
    operator.nbytes += call.nbytes
    if len(worker.calls) == 1:
        begin(state, operator, call)
    state.act(Submit(call))


def submit_flush(state: State, operator: OperatorState, worker: WorkerState, unit: tuple[int, int],
                 best_effort: bool = False) -> None:
    """Ask a worker to finish what it keeps of a unit, after the calls it has; with `best_effort` only what failed."""
    submit(state, operator, worker, CallState(state.next_call(), operator.plan.index, "flush", units=(unit,), best_effort=best_effort))


def begin(state: State, operator: OperatorState, call: CallState) -> None:
    """A call runs from now on. Not before does room count as taken: behind a held call it would be for nothing."""
    call.began = state.now
    if operator.plan.timeout_s is not None:
        start_clock(state, operator, call)
    if operator.consumers and call.kind != "flush":
        call.expected = tuple([(i, int(operator.expected(i, call.nbytes))) for i in operator.consumers])
        _reserve(state, call, 1)


def unreserve(state: State, call: CallState) -> None:
    """What the call was expected to send has come, or will not."""
    _reserve(state, call, -1)
    call.expected = ()


def _reserve(state: State, call: CallState, sign: int) -> None:
    total = 0
    for index, nbytes in call.expected:
        state.operators[index].reserved += sign * nbytes
        total += sign * nbytes
    if call.node in state.nodes:
        state.nodes[call.node].reserved += total


def start_clock(state: State, operator: OperatorState, call: CallState) -> None:
    """The time limit of a call counts from now."""
    limit = operator.plan.timeout_s
    if limit is not None and call.kind != "flush":
        call.deadline = state.now + limit
        heappush(state.clocks, (call.deadline, call.id))


def close_call(state: State, call: CallState, rows_done: bool = True, lost: bool = False) -> None:
    """A call has ended: take it off its worker; with `rows_done` its rows too."""
    worker = state.workers[call.worker]
    first = worker.calls[0] is call
    assert first or lost, "a worker answered out of turn"
    worker.calls.remove(call)
    state.count(worker)
    end_call(state, call)
    if worker.calls and first:
        begin(state, state.operators[call.operator], worker.calls[0])
    elif not worker.calls and worker.leaving and not worker.stopping:
        state.stop(worker)
    if rows_done:
        drop_call(state, call)


def end_call(state: State, call: CallState) -> None:
    """Nothing more is expected of a call."""
    del state.calls[call.id]
    state.operators[call.operator].nbytes -= call.nbytes
    if call.expected:
        unreserve(state, call)
    for output in call.kept:
        state.let_go(output.ref)
    call.kept = ()


def drop_call(state: State, call: CallState) -> None:
    """The rows of a call are done with."""
    state.drop(call.slices)
    if call.kind == "read":
        unit = state.units[call.units[0][0]]
        if unit.attempt == call.units[0][1]:
            unit.live -= 1
            unit.stage = "draining"


def refitted(operator: OperatorState, change: Refitted) -> Report:
    """What the log says of a stage whose calls have another size, because memory ran out or is there again."""
    stage, most = operator.plan.steps[change.step].name, change.rows_max
    size = "as many rows as before" if most is None else f"at most {most} row{'s' if most > 1 else ''}"
    if change.ran_out:
        text = f"out of memory in stage {stage}: batches of {change.ran_out} rows, {size} from now on"
    else:
        text = f"stage {stage}, which ran out of memory, takes batches of {size} again"
    return Report("out_of_memory" if change.ran_out else "batch_grown", text, operator.plan.index,
                     details={"stage": stage, "rows": change.ran_out or None, "rows_max": most})
