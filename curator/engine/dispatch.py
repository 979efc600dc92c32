"""Who works next. Reads the state after each event and gives out calls until nothing more fits.

The rules, in their order:

1. Most downstream first: what is nearest to the output leaves the queues, so memory falls before it rises. Before all others
   those on a GPU, which must not wait for a core that a branch beside them keeps busy.
2. A call may start if its core is free and if what it is expected to send fits the queue behind it, or if nothing at all is
   there or on its way (so that no two full queues can wait for each other).
3. A call is as long as makes its overhead small (`CALL_S`), and as short as gives every worker a share of what is left.
4. Workers start when there is work that the present ones do not reach, and stop when another operator needs their GPU or
   memory and they have nothing to do: stages that do not fit side by side take turns.
5. If nothing works and nothing could start, workers wait for each other's GPU or memory, or a stage for a full batch. Then, one
   thing at a time, until something works again: batches go as they are and idle workers give way though they have work; a held
   call on a GPU goes on without room, so that it ends; a worker starts beside one that cannot give way.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from curator.engine.events import Call, Resume, Slice, Submit
from curator.engine.placement import FINISH, OBEY, OVERBOOK, PRESS, holds_scarce, start_worker
from curator.engine.state import Group, Lane, OperatorState, State, WorkerState

CALL_S = 0.2  # aim for calls this long: a call costs about 1 ms of the driver and the worker together
SHORT_CALL_S = 0.05  # behind a call shorter than this, a second one waits at the worker
START_S = 1.0  # a second worker starts beside a starting one for at least this much work
FIRST_ROWS = 16  # rows of the first calls, from which the pace is learned
CALL_BYTES = 48 << 20  # no call takes more than this, unless one row is more


def dispatch(state: State, now: float) -> None:
    """Give out all work that may start now, as actions of the state."""
    for operator in state.order:
        while _give(state, operator, now, force=OBEY):
            pass
    for force in (PRESS, FINISH, OVERBOOK):
        for operator in state.order:
            if state.working or any(w.stopping for w in state.workers.values()):
                return
            _give(state, operator, now, force)


def _give(state: State, operator: OperatorState, now: float, force: int) -> bool:
    """Start one thing of this operator, if there is one that may."""
    if operator.held and _resume(state, operator, now, force):
        return True
    if operator.plan.kind == "source":
        return _read(state, operator, now, force)
    if operator.groups and _retry(state, operator, now, force):
        return True
    return any(lane.queue and _process(state, operator, lane, now, force) for lane in operator.lanes)


# -- the four things to start -----------------------------------------------------------------------------------


def _resume(state: State, operator: OperatorState, now: float, force: int) -> bool:
    for worker in operator.workers.values():
        call = worker.head
        if call is not None and call.held and ((holds_scarce(operator) and (force >= FINISH or _in_the_way(state, operator))) or (
                _core_free(state, operator) and _room(state, operator, call.nbytes))):
            call.held = False
            state.count(worker)
            begin(state, operator, call, now)
            state.act(Resume(worker.id, call.id))
            return True
    return False


def _in_the_way(state: State, operator: OperatorState) -> bool:
    """What is behind it has work and no worker: it will make no room before this operator's worker gives way to one."""
    behind = [state.operators[i] for i in operator.consumers]
    return any(o.has_work and not o.workers for o in behind)


def _read(state: State, operator: OperatorState, now: float, force: int) -> bool:
    waiting = state.waiting.get(operator.plan.index)
    if not waiting or not _core_free(state, operator) or not _room(state, operator, 0):
        return False
    worker = _idle_worker(state, operator, operator.lanes[0], force)
    if worker is None:
        return False
    unit = state.units[waiting.popleft()]
    unit.stage, unit.live = "reading", unit.live + 1
    call = Call(state.next_call(), operator.plan.index, "read", units=((unit.index, unit.attempt),), rows=1,
                salvage=unit.blames.get(operator.plan.index, 0) >= 2)
    _submit(state, operator, worker, call, now)
    return True


def _retry(state: State, operator: OperatorState, now: float, force: int) -> bool:
    if not _core_free(state, operator) or not _room(state, operator, operator.groups[0].nbytes):
        return False
    worker = _idle_worker(state, operator, operator.lanes[0], force)
    if worker is None:
        return False
    group = state.unpark(operator)
    _submit(state, operator, worker, _call_of(state, operator, group.slices, group.charge), now)
    return True


def _process(state: State, operator: OperatorState, lane: Lane, now: float, force: int) -> bool:
    free = _core_free(state, operator)
    if not free and not _short(operator, operator.plan.batch_size or 1):
        return False
    wanted = _rows_wanted(state, operator, lane)
    if not force and _waits_for_more(state, operator, lane):
        return False
    operator.blocked = not _room(state, operator, _bytes_wanted(lane, wanted))
    if operator.blocked:
        return False
    worker = _idle_worker(state, operator, lane, force) if free else None
    worker = worker or _worker_to_queue_behind(operator, lane, wanted)
    if worker is None:
        return False
    slices = _cut(state, lane, wanted)
    _submit(state, operator, worker, _call_of(state, operator, slices, 0), now)
    return True


# -- how much ---------------------------------------------------------------------------------------------------


def _rows_wanted(state: State, operator: OperatorState, lane: Lane) -> int:
    batch = operator.plan.batch_size or 1
    if operator.s_per_row is None:
        return max(batch, FIRST_ROWS)
    per_row = max(operator.s_per_row, 1e-9)
    rows = CALL_S / per_row
    if not operator.affine and operator.workers_max > 1:
        share = lane.rows / operator.workers_max
        rows = min(rows, max(share, CALL_S / 10 / per_row))
    return max(batch, ceil(rows / batch) * batch)


def _waits_for_more(state: State, operator: OperatorState, lane: Lane) -> bool:
    """A stage that asked for batches of n rows waits for n, as long as more may come and there is room for it."""
    batch = operator.plan.batch_size
    if batch is None or lane.rows >= batch or operator.load > operator.limit / 2:
        return False
    return any(_may_send(state, state.operators[i]) for i in operator.producers)


def _may_send(state: State, operator: OperatorState) -> bool:
    """It works, or could as soon as a core is free, or gets rows from one that does; not while it waits for room or a GPU."""
    if not operator.workers:
        return False
    if any(w.calls and not w.calls[0].held for w in operator.workers.values()):
        return True
    if state.waiting.get(operator.plan.index) and _room(state, operator, 0):
        return True
    if operator.groups and _room(state, operator, operator.groups[0].nbytes):
        return True
    if any(w.calls and _room(state, operator, w.calls[0].nbytes) for w in operator.workers.values()):
        return True
    if any(lane.queue and _room(state, operator, _bytes_wanted(lane, _rows_wanted(state, operator, lane)))
           for lane in operator.lanes):
        return True
    return any(_may_send(state, state.operators[i]) for i in operator.producers)


def _bytes_wanted(lane: Lane, rows: int) -> int:
    """About how much of a lane a call of so many rows takes."""
    return min(lane.nbytes * min(rows, lane.rows) // max(1, lane.rows), CALL_BYTES)


def _cut(state: State, lane: Lane, rows: int) -> tuple[Slice, ...]:
    """Take slices off the front of a lane, up to so many rows and `CALL_BYTES`; the last one may be cut in two."""
    taken: list[Slice] = []
    room = CALL_BYTES
    while lane.queue and rows > 0 and room > 0:
        piece = lane.queue[0]
        fits = min(rows, max(0 if taken else 1, room * max(1, piece.rows) // piece.nbytes))
        if piece.rows and fits <= 0:
            break
        lane.rows -= piece.rows
        lane.nbytes -= piece.nbytes
        if piece.rows <= fits:
            lane.queue.popleft()
        else:
            piece, rest = split(state, piece, fits)
            lane.queue[0] = rest
            lane.rows += rest.rows
            lane.nbytes += rest.nbytes
        taken.append(piece)
        rows -= max(1, piece.rows)
        room -= piece.nbytes
    return tuple(taken)


def split(state: State, piece: Slice, rows: int) -> tuple[Slice, Slice]:
    """The first rows of a slice, and the rest."""
    middle = piece.start + rows
    first = Slice(piece.ref, piece.unit, piece.attempt, piece.start, middle, piece.target, piece.note)
    rest = Slice(piece.ref, piece.unit, piece.attempt, middle, piece.stop, piece.target, piece.note)
    state.adopt(first)
    state.adopt(rest)
    state.drop(piece)
    return first, rest


def halves(state: State, slices: tuple[Slice, ...], charge: int) -> deque[Group]:
    """The rows of a call in two groups."""
    pieces, total = list(slices), sum(s.rows for s in slices)
    first: list[Slice] = []
    left = total // 2
    while pieces and left > 0:
        piece = pieces.pop(0)
        if piece.rows > left:
            piece, rest = split(state, piece, left)
            pieces.insert(0, rest)
        first.append(piece)
        left -= piece.rows
    return deque(Group(tuple(g), charge) for g in (first, pieces) if g)


# -- whether ----------------------------------------------------------------------------------------------------


def _room(state: State, operator: OperatorState, nbytes: int) -> bool:
    """What a call is expected to send fits behind it, or nothing at all is there."""
    for index in operator.consumers:
        behind = state.operators[index]
        if behind.load > 0 and behind.load + operator.expected(index, nbytes) > behind.limit:
            return False
    return True


def _core_free(state: State, operator: OperatorState) -> bool:
    used = state.cpus_used
    if used + operator.cpus <= state.machine.cpus + 1e-6 or not used:
        return True
    # A source mostly waits for storage: one may read ahead while all cores work, as long as little is queued behind it.
    if operator.plan.kind == "source" and not any(w.working for w in operator.workers.values()):
        return all(state.operators[i].load < state.operators[i].limit / 4 for i in operator.consumers)
    return False


# -- by whom ----------------------------------------------------------------------------------------------------


def _idle_worker(state: State, operator: OperatorState, lane: Lane, force: int) -> WorkerState | None:
    """A ready worker without a call; else start some where that helps, and None."""
    candidates = operator.workers.values()
    if operator.affine:
        candidates = [w for w in candidates if w.lane == lane.index]
    for worker in candidates:
        if worker.ready and not worker.stopping and not worker.calls:
            return worker
    if operator.affine:
        if all(w.stopping for w in candidates):
            start_worker(state, operator, lane, force)
        return None
    starting = sum(not w.ready for w in candidates)
    # One at a time, unless there is more to do than those that start would get done in the time that one more takes.
    worthwhile = lane.rows * (operator.s_per_row or 0.0) / max(START_S, operator.setup_s)
    while (not starting or starting + 1 < worthwhile) and _core_free(state, operator) \
            and start_worker(state, operator, lane, force):
        starting += 1
    return None


def _short(operator: OperatorState, rows: int) -> bool:
    return operator.s_per_row is not None and operator.s_per_row * rows <= SHORT_CALL_S


def _worker_to_queue_behind(operator: OperatorState, lane: Lane, rows: int) -> WorkerState | None:
    """A worker with one short call, so that it need not wait for the driver before the next one."""
    if not _short(operator, rows) or lane.rows < 2 * rows * len(operator.workers):
        return None
    for worker in operator.workers.values():
        same = not operator.affine or worker.lane == lane.index
        if same and worker.ready and not worker.stopping and len(worker.calls) == 1 and not worker.calls[0].held \
                and worker.calls[0].kind == "process" and not worker.calls[0].charge:
            return worker
    return None


# -- giving -----------------------------------------------------------------------------------------------------


def _call_of(state: State, operator: OperatorState, slices: tuple[Slice, ...], charge: int) -> Call:
    units = tuple(dict.fromkeys((s.unit, s.attempt) for s in slices))
    return Call(state.next_call(), operator.plan.index, "process", slices, units, charge=charge,
                rows=sum(max(1, s.rows) for s in slices), nbytes=sum(s.nbytes for s in slices))


def _submit(state: State, operator: OperatorState, worker: WorkerState, call: Call, now: float) -> None:
    call.worker = worker.id
    worker.calls.append(call)
    state.count(worker)
    state.calls[call.id] = call
    operator.inflight_bytes += call.nbytes
    if len(worker.calls) == 1:
        begin(state, operator, call, now)
    state.act(Submit(call))


def submit_flush(state: State, operator: OperatorState, worker: WorkerState, unit: tuple[int, int], now: float) -> None:
    """Ask a worker to finish what it keeps of a unit, after the calls it has."""
    _submit(state, operator, worker, Call(state.next_call(), operator.plan.index, "flush", units=(unit,)), now)


def begin(state: State, operator: OperatorState, call: Call, now: float) -> None:
    """A call runs from now on. Not before does room count as taken: behind a held call it would be for nothing."""
    start_clock(operator, call, now)
    if call.kind != "flush":
        call.expected = {i: int(operator.expected(i, call.nbytes)) for i in operator.consumers}
        for index, nbytes in call.expected.items():
            state.operators[index].reserved += nbytes


def unreserve(state: State, call: Call) -> None:
    """What the call was expected to send has come, or will not."""
    for index, nbytes in call.expected.items():
        state.operators[index].reserved -= nbytes
    call.expected = {}


def start_clock(operator: OperatorState, call: Call, now: float) -> None:
    """The time limit of a call counts from now."""
    limit = operator.plan.timeout_s
    call.deadline = None if limit is None or call.kind == "flush" else now + limit
