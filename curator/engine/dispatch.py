"""Who works next. Reads the state after each event and gives out calls until nothing more fits.

The rules, in their order:

1. Most downstream first: what is nearest to the output leaves the queues, so memory falls before it rises.
   Before all others those on a GPU, which must not wait for a core that a branch beside them keeps busy.
2. A call may start if a core of the worker's node is free and if what it is expected to send fits the queue
   behind it and the node, or if nothing at all is there or on its way (so that no two full queues can wait
   for each other).
3. Rows are worked on where they lie. They go to another node when theirs has nobody who can take them now and
   they would wait.
4. A call is as long as makes its overhead small (`CALL_S`), and as short as gives every worker a share of
   what is left. It ends where a slice ends if that is near.
5. Workers start when the present ones would not get to the work before another is ready, and a core is free,
   where the allocation gives numbers up to `SPARE` times as many. They stop when another operator needs their
   GPU or memory and they have nothing to do: stages that do not fit side by side share by time (`placement`).
6. If nothing works and nothing could start, workers wait for each other's GPU or memory, or a stage for a
   full batch. Then, one thing at a time, until something works again: batches go as they are and idle workers
   are preempted though they have work; a paused call on a GPU goes on without room, so that it ends; a worker
   starts beside one that cannot be preempted.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import ceil, inf

from curator.engine.parts import CallState, NodeState, OperatorState, Queue, WorkerState
from curator.engine.placement import FINISH, OBEY, OVERBOOK, PRESS, holds_exclusive, start_worker
from curator.engine.protocol import Slice
from curator.engine.state import State
from curator.engine.units import begin_read

CALL_S = (0.2, 1.0)  # aim for calls this long: as long as makes the gap between two of them small,
GAPS = 100  # so many times the gap
QUICK_CALL_S = 0.01  # a sink's call this short does not wait for a core
SHORT_CALL_S = 0.05  # behind a call shorter than this, a second one waits at the worker
SLIGHT_S, PATIENCE_S = 0.05, 0.5  # rows for a call shorter than this wait so long, if there is other work
START_S = 1.0  # a second worker starts beside a starting one for at least this much work
SPARE = 1.5  # so many workers for each that the allocation says: one has no rows now and then
# with so much work a call that needs several cores makes those before it wait until they are free
CLAIM_S = 2.0
TURNS = 70  # at which the driver looks at what has happened, in the time of the shortest call
FIRST_ROWS = 16  # rows of the first calls, from which the pace is learned


def dispatch(state: State) -> None:
    """Give out all work that may start now, as actions of the state."""
    for node in state.nodes.values() if state.claims else ():
        node.claimed = False
    state.claims, state.wake = 0, inf
    turns = (False,) if state.call_s > SLIGHT_S else (True, False)  # where calls are long all are patient
    for state.patient in turns:
        for operator in state.order:
            _give(state, operator, OBEY)
        if not state.core_free:
            break
    state.patient = False
    for force in (PRESS, FINISH, OVERBOOK):
        for operator in state.order:
            if state.working or state.stopping:
                return
            _give(state, operator, force)


def _give(state: State, operator: OperatorState, force: int) -> None:
    """Start what may start of this operator; where the rules are bent (`force`), one thing."""
    if operator.paused and _resume(state, operator, force):
        return
    if state.waiting.get(operator.plan.index):
        _read(state, operator, force)
    elif operator.groups and _retry(state, operator, force):
        return
    elif operator.waiting:
        give = _process_queues if operator.sticky else _process
        give(state, operator, force)
        operator.moved.clear()


# -- the four things to start: true if `force` has done its one thing ----------------------------------------


def _resume(state: State, operator: OperatorState, force: int) -> bool:
    for worker in list(operator.paused.values()):
        call, node = worker.calls[0], state.nodes[worker.node]
        free = node.has_core(worker.cpus) or _reads_ahead(state, operator)
        if not free and not node.claimed and _room(state, operator, call.nbytes, node):
            _claim(state, node)
        if (free and _room(state, operator, call.nbytes, node)) or (
                holds_exclusive(operator) and (force >= FINISH or _in_the_way(state, operator))):
            state.resume(operator, worker, call)
            if force:
                return True
    return False


def _in_the_way(state: State, operator: OperatorState) -> bool:
    """What is behind it has work and no worker: it will make no room before this operator's worker is
    preempted for one."""
    downstream = [state.operators[i] for i in operator.consumers]
    return any(o.has_work and not o.workers for o in downstream)


def _read(state: State, operator: OperatorState, force: int) -> None:
    """Units are read where the fewest bytes lie."""
    nodes = [(n.live_bytes + n.reserved, n.number) for n in _nodes_with_core(state, operator)]
    heapify(nodes)
    while state.waiting[operator.plan.index] and _room(state, operator, 0, None):
        if not nodes:
            _start(state, operator, None, force)
            return
        node = state.nodes[nodes[0][1]]
        if node.number not in operator.idle or not _room(state, operator, 0, node) \
                or not (node.has_core(operator.cpus) or _reads_ahead(state, operator)):
            heappop(nodes)
            continue
        begin_read(state, operator, _first(operator.idle[node.number]))
        if force:
            return
        heapreplace(nodes, (node.live_bytes + node.reserved, node.number))


def _retry(state: State, operator: OperatorState, force: int) -> bool:
    for node in _nodes_with_core(state, operator):
        while operator.groups and node.number in operator.idle and node.has_core(operator.cpus):
            nbytes = operator.groups[0].nbytes
            if not _room(state, operator, nbytes, None):
                return False
            if not _room(state, operator, nbytes, node):
                break
            group = state.unpark(operator)
            units = tuple(dict.fromkeys((s.unit, s.attempt) for s in group.slices))
            call = state.new_call(operator, "process", slices=group.slices, units=units,
                                  crashes=group.crashes,
                                  rows=sum(s.rows or 1 for s in group.slices), nbytes=nbytes)
            state.submit(operator, _first(operator.idle[node.number]), call)
            if force:
                return True
    if operator.groups and not operator.idle and _room(state, operator, operator.groups[0].nbytes, None):
        _start(state, operator, None, force)
    return False


def _process(state: State, operator: OperatorState, force: int) -> bool:
    operator.blocked = False
    waiting, nodes = operator.waiting, _nodes_with_core(state, operator)
    for node in nodes:
        queue = waiting.get(node.number)
        if queue is not None and _give_on(state, operator, queue, node, force):
            return True
    if state.core_free and operator.cpus > state.least_cpus and operator.idle:
        _claim_cores(state, operator)
    if len(state.nodes) > 1 or not waiting.keys() <= state.nodes.keys():
        queues = waiting if force else operator.late
        if queues and _process_away(state, operator, queues, nodes, force):
            return True
    if operator.prefetch and _prefetch(state, operator, force):
        return True
    if waiting:
        _start_where_rows_are(state, operator, force)
    return False


def _give_on(state: State, operator: OperatorState, queue: Queue, node: NodeState, force: int) -> bool:
    """Rows of a queue for the idle workers of a node."""
    idle = operator.idle
    while queue.slices and node.number in idle and node.has_core(operator.cpus):
        if not _give_rows(state, operator, queue, _first(idle[node.number]), force):
            break
        if force:
            return True
    return False


def _claim_cores(state: State, operator: OperatorState) -> None:
    """Keep the free cores of a node for this operator, which needs more than are free at once, or those
    before it would take them one by one for ever. It costs idle cores, so there must be work for a while, or
    a GPU that waits."""
    for node in [n for n in state.core_free.values() if n.number in operator.idle
                 and n.number in operator.waiting]:
        queue = operator.waiting[node.number]
        enough = operator.plan.resources.gpus or queue.rows * (operator.s_per_row or 0.0) >= CLAIM_S
        if not enough or node.claimed or node.spare(operator.cpus) or _waits_for_more(state, operator, queue):
            continue
        if _room(state, operator, _bytes_wanted(operator, queue, _rows_wanted(state, operator, queue)), node):
            _claim(state, node)


def _claim(state: State, node: NodeState) -> None:
    node.claimed = True
    state.claims += 1


def _process_away(state: State, operator: OperatorState, queues: dict[int, Queue], nodes: list[NodeState],
                  force: int) -> bool:
    """Rows that may go anywhere, or that would wait too long where they are; of the largest queue first."""
    largest = [(-queue.nbytes, index) for index, queue in queues.items()] if nodes else []
    heapify(largest)
    for node in nodes:
        if node.number not in operator.idle or not node.has_core(operator.cpus):
            continue
        while largest and largest[0][1] not in queues:
            heappop(largest)
        if not largest:
            break
        queue = queues[largest[0][1]]
        if not force and _stays(state, operator, queue, state.patient):
            break
        if _give_on(state, operator, queue, node, force):
            return True
        heapreplace(largest, (-queue.nbytes, queue.index))
    return False


def _prefetch(state: State, operator: OperatorState, force: int) -> bool:
    """A second short call waits at a worker, so that it need not wait for the driver before the next one."""
    able, given = operator.prefetch, False
    for queue in list(operator.moved.values()):
        while queue.slices and able and not (force and given):
            number = queue.index if queue.index in state.nodes else next(iter(able))
            if number not in able or not _worth_prefetching(state, operator, queue,
                                                            operator.on_node.get(number, 1)) \
                    or not _give_rows(state, operator, queue, _first(able[number]), force):
                break
            given = True
    return given


def _worth_prefetching(state: State, operator: OperatorState, queue: Queue, workers: int) -> bool:
    wanted = _rows_wanted(state, operator, queue)
    short = operator.s_per_row is not None and operator.s_per_row * wanted <= SHORT_CALL_S
    return short and queue.rows >= 2 * wanted * workers


def _start_where_rows_are(state: State, operator: OperatorState, force: int) -> None:
    if not (force or holds_exclusive(operator) or _may_start(state, operator)):
        return
    for queue in operator.waiting.values():
        if force or not _stays(state, operator, queue, patient=False):
            wanted = _bytes_wanted(operator, queue, _rows_wanted(state, operator, queue))
            if _room(state, operator, wanted, state.nodes.get(queue.index)):
                _start(state, operator, queue, force)
                break  # those are enough for all queues, or none would start for another either
            operator.blocked = True


def _process_queues(state: State, operator: OperatorState, force: int) -> bool:
    """Each queue is for one worker, which alone may take its rows."""
    operator.blocked = False
    queues = list(operator.waiting.values())
    if len(queues) > 16 and len(operator.idle) < len(queues):
        nodes = _nodes_with_core(state, operator)
        queues = [operator.queues[i] for n in nodes for w in operator.idle[n.number].values()
                  if (i := w.queue) in operator.waiting]
    for queue in queues:
        worker = operator.workers.get(queue.worker) if queue.worker is not None else None
        if queue.slices and worker is not None and worker.idle \
                and (state.nodes[worker.node].has_core(worker.cpus) or _quick(operator, queue)) \
                and _give_rows(state, operator, queue, worker, force) and force:
            return True
    for queue in list(operator.unserved.values()):
        if queue.slices and state.nodes and (force or not _waits_for_more(state, operator, queue)):
            start_worker(state, operator, queue, force)
    return False


def _quick(operator: OperatorState, queue: Queue) -> bool:
    return operator.s_per_row is not None and operator.s_per_row * queue.rows < QUICK_CALL_S


def _give_rows(state: State, operator: OperatorState, queue: Queue, worker: WorkerState, force: int) -> bool:
    """A call over the first rows of a queue, if they are enough and there is room for what comes of them."""
    if not force and _stays(state, operator, queue, state.patient):
        return False
    wanted = _rows_wanted(state, operator, queue)
    if not _room(state, operator, _bytes_wanted(operator, queue, wanted), state.nodes[worker.node]):
        operator.blocked = True
        return False
    state.submit(operator, worker, _cut(state, operator, queue, wanted))
    return True


def _stays(state: State, operator: OperatorState, queue: Queue, patient: bool) -> bool:
    """These rows wait for more of them, if those that there are make a call so short that it would cost as
    much as it does; others may have the core as long as they have just come. Where the driver has many
    workers to tell what to do, also if a core is free."""
    if _waits_for_more(state, operator, queue):
        return True
    call_s, pace = state.call_s, operator.s_per_row
    many = call_s > SLIGHT_S
    due = queue.since + (PATIENCE_S if call_s < PATIENCE_S else call_s)
    if not (many or (patient and not operator.exclusive)) or state.now >= due \
            or queue.rows * (1.0 if pace is None else pace) >= (call_s if many else SLIGHT_S):
        return False
    if many and due < state.wake:  # nobody is woken for each queue: many go together, mostly with an event
        state.wake = max(due, state.now + call_s / 10)
    return True


# -- how much ------------------------------------------------------------------------------------------------


def _rows_wanted(state: State, operator: OperatorState, queue: Queue) -> int:
    batch, pace = operator.plan.batch_size, operator.s_per_row
    if pace is None:
        return batch or min(FIRST_ROWS, *(s.stage.batch_size or FIRST_ROWS for s in operator.plan.steps))
    gaps_s = GAPS * state.gap_s
    took_s = CALL_S[0] if gaps_s < CALL_S[0] else gaps_s if gaps_s < CALL_S[1] else CALL_S[1]
    if took_s < state.call_s:
        took_s = state.call_s
    rows = took_s / (pace or 1e-9)
    if not operator.sticky and operator.workers_max > 1:
        share = queue.rows / (operator.most_on.get(queue.index, operator.workers_max) or 1)
        least = rows / 10 if took_s > 10 * state.call_s else state.call_s / (pace or 1e-9)
        if share < rows:
            rows = share if share > least else least
    return max(1, ceil(rows / batch)) * batch if batch else ceil(rows)


def _waits_for_more(state: State, operator: OperatorState, queue: Queue) -> bool:
    """A stage that asked for batches of n rows waits for n, or as much as a call takes, as long as more may
    come and there is room for it."""
    batch = operator.plan.batch_size
    if batch is None or queue.rows >= batch or queue.nbytes >= operator.plan.batch_bytes \
            or operator.load > operator.limit / 2:
        return False
    return _more_may_come(state, operator)


def _more_may_come(state: State, operator: OperatorState) -> bool:
    """Something before it may send rows; who has no worker sends none on, whatever is before it. Branches
    that part and meet again are looked at once."""
    todo = list(operator.producers)
    seen = set(todo)
    while todo:
        before = state.operators[todo.pop()]
        if not before.workers:
            continue
        if _may_send(state, before):
            return True
        fresh = [i for i in before.producers if i not in seen]
        seen.update(fresh)
        todo += fresh
    return False


def _may_send(state: State, operator: OperatorState) -> bool:
    """It works, or could as soon as a core is free; not while it waits for room or a GPU."""
    if operator.working > operator.starting:
        return True
    if state.waiting.get(operator.plan.index) and _room(state, operator, 0, None):
        return True
    if operator.groups and _room(state, operator, operator.groups[0].nbytes, None):
        return True
    if any(_room(state, operator, w.calls[0].nbytes, None) for w in operator.paused.values()):
        return True
    wanted = ((queue, _rows_wanted(state, operator, queue)) for queue in operator.waiting.values())
    return any(_room(state, operator, _bytes_wanted(operator, queue, rows), None) for queue, rows in wanted)


def _bytes_wanted(operator: OperatorState, queue: Queue, rows: int) -> int:
    """About how much of a queue a call of so many rows takes."""
    nbytes = queue.nbytes if rows >= queue.rows else queue.nbytes * rows // queue.rows
    most = operator.plan.batch_bytes
    return nbytes if nbytes < most else most


def _cut(state: State, operator: OperatorState, queue: Queue, wanted: int) -> CallState:
    """A call over the front of a queue, of about so many rows and up to `batch_bytes`. A slice is cut in two
    only where no end of one is near, or calls would be of more and more units from stage to stage."""
    slack = 0 if operator.plan.batch_size or operator.sticky else wanted // 2
    taken: list[Slice] = []
    units: dict[tuple[int, int], None] = {}
    slices, rows, room = queue.slices, wanted, operator.plan.batch_bytes  # what may still be taken
    gone_rows = gone_bytes = 0
    while slices and rows > 0 and room > 0:
        piece = slices[0]
        fits = piece.rows
        if taken and rows <= slack < fits - rows:
            break
        gone_bytes += piece.nbytes
        if fits > rows + slack or piece.nbytes > room:
            fits = min(rows, max(0 if taken else 1, room * max(1, piece.rows) // piece.nbytes))
        if fits >= piece.rows:
            slices.popleft()
        elif fits > 0:
            rest, piece = piece, piece.split(fits)
            state.adopt(piece)
            gone_bytes -= rest.nbytes
        else:
            gone_bytes -= piece.nbytes
            break
        taken.append(piece)
        units[piece.unit, piece.attempt] = None
        gone_rows += piece.rows
        rows -= piece.rows or 1
        room -= piece.nbytes
    state.grow(operator, queue, -gone_rows, -gone_bytes)
    return state.new_call(operator, "process", slices=tuple(taken), units=tuple(units), rows=wanted - rows,
                          nbytes=operator.plan.batch_bytes - room)


# -- whether -------------------------------------------------------------------------------------------------


def _room(state: State, operator: OperatorState, nbytes: int, node: NodeState | None) -> bool:
    """What a call is expected to send fits behind it and on the node, or nothing at all is there."""
    total, busy = 0.0, False
    for index in operator.consumers:
        consumer, expected = state.operators[index], operator.expected(index, nbytes)
        load = consumer.nbytes + consumer.reserved
        if load > 0:
            if load + expected > consumer.limit:
                return False
            busy = True
        total += expected
    # On the only node the limits of the queues add up to what it may hold.
    return not busy or node is None or len(state.nodes) == 1 or not node.full(total)


def _nodes_with_core(state: State, operator: OperatorState) -> list[NodeState]:
    """Of the nodes that have an idle worker, those that have a core for it now."""
    if not (idle := operator.idle):
        return []
    ahead = not state.core_free and _reads_ahead(state, operator)
    if not ahead and operator.cpus and len(state.core_free) < len(idle):
        return [n for n in state.core_free.values() if n.number in idle and n.has_core(operator.cpus)]
    nodes = map(state.nodes.__getitem__, idle)
    return list(nodes) if ahead else [node for node in nodes if node.has_core(operator.cpus)]


def _reads_ahead(state: State, operator: OperatorState) -> bool:
    """A source mostly waits for storage: one may read while all cores work, as long as little is queued
    behind it."""
    if operator.plan.kind != "source" or operator.working:
        return False
    return all(state.operators[i].load < state.operators[i].limit / 4 for i in operator.consumers)


# -- by whom -------------------------------------------------------------------------------------------------


def _start(state: State, operator: OperatorState, queue: Queue | None, force: int) -> None:
    """Start as many workers as help with what is waiting and as will have a core for it."""
    if not (force or (_may_start(state, operator) and _pays(state, operator))):
        return
    at_once = operator.rows * (operator.s_per_row or 0.0) / max(START_S, operator.setup_s)
    if planned := state.planned.get(operator.plan.index, 0):
        at_once = max(planned - len(operator.workers), min(at_once, planned / 2))
    elif operator.plan.kind == "source":  # until its pace is known, which takes as long as a unit
        at_once = len(state.nodes) - len(operator.workers)
    if operator.exclusive:  # a slot is nobody else's, and to load a model takes long: one for each batch
        at_once = max(at_once, operator.rows / (operator.plan.batch_size or FIRST_ROWS) + 1)
    # One at a time, unless there is more to do than those that start would get done in the time that one more
    # takes, or the allocation wants more.
    while not operator.starting or operator.starting + 1 < at_once:
        if not start_worker(state, operator, queue, force):
            break
        queue = None  # one starts where the rows are, the others where there is most room


def _may_start(state: State, operator: OperatorState) -> bool:
    """One more worker would find a core, now and later. (A source waits for storage or the driver.)"""
    most = SPARE * state.planned.get(operator.plan.index, inf)
    return (len(operator.workers) < most or operator.plan.kind == "source") and (
        bool(state.core_free) or not operator.cpus or _reads_ahead(state, operator)
        or not all(n.cpus_used for n in state.nodes.values()))


def _pays(state: State, operator: OperatorState) -> bool:
    """What waits takes the workers that are ready longer than one more takes to start; or a call has taken so
    much longer than it should, as a first one, whose pace nobody knows, may. Whoever holds a GPU or memory
    has its place kept for it."""
    ready = len(operator.workers) - operator.starting
    if not ready or operator.groups or len(state.nodes) > 1 or operator.plan.kind == "source" \
            or holds_exclusive(operator):
        return True
    pace = operator.s_per_row or 0.0
    if operator.rows * pace > ready * operator.setup_s or (pace and _more_may_come(state, operator)):
        return True
    due = operator.setup_s + min((head.began + head.rows * pace for w in operator.workers.values()
                                  if (head := w.head)), default=0.0)
    state.wake = min(state.wake, due) if due > state.now else state.wake
    return due <= state.now


def _first(workers: dict[int, WorkerState]) -> WorkerState:
    return next(iter(workers.values()))
