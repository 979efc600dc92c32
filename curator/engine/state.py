"""What the scheduler knows, and the moves that keep it consistent.

Who changes what: rows and bytes, cores and devices, workers, calls and queues are changed here and nowhere
else, since each move also changes all that is counted over them. What stage a unit is in is changed by
`units`, which GPU slots there are by `placement`, which cores are claimed by `dispatch`, what was measured by
the scheduler. `failures` and `ending` decide, and ask these. Each field's comment is an invariant, which
tests assert after every event (tests/engine/invariants.py).
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node, Place
from curator.engine.balance.allocation import Allocation
from curator.engine.events import Action, Release, Stop, StopWorker, Submit
from curator.engine.parts import (
    ALONE,
    OFF,
    PAUSED,
    STARTING,
    CallState,
    Group,
    NodeState,
    OperatorState,
    Queue,
    Units,
    UnitState,
    WorkerState,
    operator_state,
    workers_of_node,
)
from curator.engine.protocol import CallKind, CountsByUnit, Output, Reason, Ref, Resume, Slice
from curator.pipeline.plan import Operator, Target

QUEUE_BYTES = 192 << 20  # a node that may wait before one operator, where memory allows; more gains nothing
CALLS_S = 2150  # calls a second; with so many the driver has time for 1,000 nodes (benchmarks/scale.py)
ANYWHERE = -1  # the queue for rows of nodes that have no worker of an operator
# for a worker that was asked to end; who waits for its GPU need not wait for a `close` that hangs
CLOSE_S = 30.0
AWAY_S = 0.5  # rows that would wait longer than this where they lie go to a node that is free
SINK_BEHIND_S = 1.0  # another worker of a sink starts when those there are are so many seconds behind


class State:
    """Operators, workers, nodes and units of a run, and the actions that the current event has led to."""

    def __init__(self, operators: Sequence[Operator], units: Sequence[tuple[int, frozenset[Target] | None]],
                 nodes: Mapping[int, Node]) -> None:
        self.nodes: dict[int, NodeState] = {}
        # nodes with a core, or a part of one, that nobody uses; where the use has changed last, last
        self.core_free: dict[int, NodeState] = {}
        gpus = any(n.gpus for n in nodes.values())
        self.operators = [operator_state(o, operators, gpus) for o in operators]
        # who may work first
        self.order = sorted(self.operators, key=lambda o: (not o.plan.resources.gpus, -o.plan.index))
        self.workers: dict[int, WorkerState] = {}
        self.units = Units(units)
        self.waiting: dict[int, deque[int]] = {}  # units to read, in order, by the operator that reads them
        for index, (source, _) in enumerate(units):
            self.waiting.setdefault(source, deque()).append(index)
        # rows and seconds of units that have not ended, by operator and step
        self.under_way: dict[tuple[int, int], Counts] = {}
        self.read, self.failed = 0, 0  # records of finished units and of those under way
        self.read_bytes = 0  # of the source, of units under way
        self.errors: dict[str, FirstError] = {}  # the first of each stage
        self.stopped: Stop | None = None  # why the run ends early
        self.repeated = False  # a unit was begun more than once
        self.open = len(units)  # units that are neither committed nor unread
        self.actions: list[Action] = []
        self.act = self.actions.append
        self.now = 0.0  # of the events that are being taken in
        self.patient = False  # rows that make a very short call are left for later
        self.wake = inf  # when rows that wait for more of them go as they are
        self.claims = 0  # nodes whose free cores are claimed
        self.least_cpus = min((o.cpus for o in self.operators if o.cpus), default=0.0)
        self.working = 0  # workers that work,
        self.starting = 0  # and those of them that are not ready yet
        # workers that were asked to end and have not yet, in this order
        self.stopping: dict[int, WorkerState] = {}
        self.live_bytes = 0  # bytes of all batches that workers wrote and nobody released
        self.live_bytes_max = 0
        self.calls: dict[int, CallState] = {}  # every call given to a worker and not ended
        # what passes between two calls of a worker, smoothed: messages, and waiting for the driver
        self.gap_s = 0.0
        self.call_s = 0.0  # calls are as long at least, or the driver has no time for all who work now
        # GPU slots of exclusive operators that need not share by time
        self.slots: dict[int, tuple[tuple[Place, ...], ...]] = {}
        # of these, how many nobody has taken; below 0, crowded
        self.free_slots: dict[int, Counter[tuple[Place, ...]]] = {}
        self.planned: dict[int, int] = {}  # workers that the allocation gives each operator of known pace
        # one that has not paid yet: rates may become surer, and rows more
        self.refused: Allocation | None = None
        self.allotted_at = 0.0  # when the allocation was asked last,
        self.allotted_on: list[tuple[bool, bool, float]] = []  # and what it was told
        self.next_call, self.next_worker = itertools.count(1).__next__, itertools.count(1).__next__
        for number, node in nodes.items():
            self.add_node(number, node)

    # -- small moves ------------------------------------------------------------------------------------

    def add_node(self, number: int, node: Node) -> None:
        """A node has joined. What may wait before an operator grows with the memory that there is."""
        free, memory = [1.0] * node.gpus, [node.gpu_memory_gb or inf] * node.gpus
        self.nodes[number] = NodeState(number, node, gpu_free=free, gpu_memory_free=memory)
        self.resize_node(number, node)

    def resize_node(self, number: int, node: Node) -> None:
        """A node has other cores than before; calls that use more go on to their end."""
        self.nodes[number].node = node
        self._offer_cores(self.nodes[number])
        self.set_limits()

    def remove_node(self, number: int) -> None:
        """A node is gone; the caller deals with its workers and the units that had rows there."""
        del self.nodes[number]
        self.core_free.pop(number, None)
        self.set_limits()
        for operator in self.operators:
            for queue in list(operator.queues_on.get(number, ())):
                self.move_queue(operator, queue, self.roomiest())

    def set_limits(self) -> None:
        nodes = [n.node for n in self.nodes.values()]
        waiting = max(1, sum(o.plan.kind != "source" for o in self.operators))
        for operator in self.operators:
            operator.limit = min(QUEUE_BYTES * len(nodes), sum(n.budget_bytes for n in nodes) / waiting)
            operator.most_on = {n.number: workers_of_node(operator, n.node) for n in self.nodes.values()}
            most = 1 if operator.plan.kind == "stateful" else sum(operator.most_on.values())
            operator.workers_max = max(1, most)

    def hold(self, ref: Ref) -> None:
        if not ref.users:
            self.live_bytes += ref.nbytes
            if self.live_bytes > self.live_bytes_max:
                self.live_bytes_max = self.live_bytes
            if ref.node in self.nodes:
                self.nodes[ref.node].live_bytes += ref.nbytes
        ref.users += 1

    def let_go(self, ref: Ref) -> None:
        ref.users -= 1
        if ref.users <= 0:
            assert not ref.users, "a batch was released twice"
            self.live_bytes -= ref.nbytes
            if ref.node in self.nodes:
                self.nodes[ref.node].live_bytes -= ref.nbytes
            self.act(Release(ref))

    def count(self, worker: WorkerState, gone: bool = False) -> None:
        """Take in what a worker does now; called after everything that changes it."""
        before, now = worker.status, worker.doing if not gone else OFF
        if now == before:
            return
        worker.status = now
        operator = self.operators[worker.operator]
        if (now > PAUSED) != (before > PAUSED):
            self._count_work(operator, worker, 1 if now > PAUSED else -1)
        if (starts := (now == STARTING) - (before == STARTING)):
            operator.starting, self.starting = operator.starting + starts, self.starting + starts
        self.call_s = (self.working - self.starting) / CALLS_S
        if before == PAUSED:
            del operator.paused[worker.id]
        elif before in operator.workers_by:
            by_node = operator.workers_by[before]
            del by_node[worker.node][worker.id]
            if not by_node[worker.node]:
                del by_node[worker.node]
        if now == PAUSED:
            operator.paused[worker.id] = worker
        elif now in operator.workers_by:
            operator.workers_by[now].setdefault(worker.node, {})[worker.id] = worker
        if now == ALONE and worker.queue in operator.waiting:
            operator.moved[worker.queue] = operator.waiting[worker.queue]

    def _count_work(self, operator: OperatorState, worker: WorkerState, change: int) -> None:
        """A worker begins (1) or ends (-1) to use its cores."""
        self.working += change
        operator.working += change
        for place in worker.places:
            node = self.nodes.get(place.node)
            if node is not None:
                used = node.cpus_used + change * worker.cpus
                node.cpus_used = used = used if worker.cpus == 1 else round(used, 6)  # whole cores are exact
                node.cpus_most = used if used > node.cpus_most else node.cpus_most
                self._offer_cores(node)

    def _offer_cores(self, node: NodeState) -> None:
        self.core_free.pop(node.number, None)
        if node.cpus_used < node.node.cpus - 1e-6:
            self.core_free[node.number] = node

    def enqueue(self, operator: OperatorState, piece: Slice, front: bool = False) -> None:
        """Put a slice into a queue; the caller has already counted it (`adopt`)."""
        queue = self.queue_of(operator, piece)
        (queue.slices.appendleft if front else queue.slices.append)(piece)
        self.grow(operator, queue, piece.rows, piece.nbytes)

    def grow(self, operator: OperatorState, queue: Queue, rows: int, nbytes: int) -> None:
        """Rows have come to a queue, or (negative) have left it."""
        queue.rows += rows
        queue.nbytes += nbytes
        operator.rows += rows
        operator.nbytes += nbytes
        index, waiting, here = queue.index, operator.waiting, operator.on_node.get(queue.index)
        if not queue.slices:
            waiting.pop(index, None)
            operator.late.pop(index, None)
            operator.moved.pop(index, None)
            return
        if index not in waiting:
            queue.since = self.now
            waiting[index] = queue
        operator.moved[index] = queue
        if operator.sticky:
            return
        work_s = queue.rows * (operator.s_per_row or 0.0)
        if not here or (work_s > AWAY_S * here and work_s > self.call_s):
            operator.late[index] = queue
        elif operator.late:
            operator.late.pop(index, None)

    def count_rows(self, unit: UnitState, operator: OperatorState, step: int, counts: Counts) -> None:
        """Take in what a call counted for a unit; the counts are the unit's from now on."""
        plan, mine = operator.plan, unit.counts
        at = plan.index, step
        self.failed += counts.failed
        self.read += counts.rows_in if plan.kind == "source" else 0
        (self.under_way.get(at) or self.under_way.setdefault(at, Counts())).shift(counts, 1)
        if at in mine:
            mine[at].add(counts)
        else:
            mine[at] = counts

    def take_counts(self, unit: UnitState, void: bool = False) -> dict[tuple[int, int], Counts]:
        """What was counted for a unit, which is under way no longer; or begins again, so that they are
        `void`."""
        self.has_read(unit, 0)
        counts, unit.counts = unit.counts, {}
        for at, counted in counts.items():
            self.under_way[at].shift(counted, -1)
            if void:
                self.failed -= counted.failed
                self.read -= counted.rows_in if at[0] == unit.source else 0
        return counts

    def has_read(self, unit: UnitState, nbytes: int) -> None:
        """So far the source of a unit under way has come."""
        self.read_bytes += nbytes - unit.read_bytes
        unit.read_bytes = nbytes

    def saw(self, *errors: FirstError) -> None:
        for error in errors:
            self.errors.setdefault(error.stage, error)

    def end_run(self, why: Stop) -> None:
        """End early; the first reason counts."""
        self.stopped = self.stopped or why

    def adopt(self, piece: Slice) -> None:
        """Count a new slice: its batch is held and its unit is alive."""
        if piece.ref is not None:
            self.hold(piece.ref)
        self.units[piece.unit].live += 1

    def drop(self, pieces: Iterable[Slice]) -> None:
        """Slices are done with: let go of their batches and, if they are of the unit's present attempt, count
        them off."""
        units = self.units
        for piece in pieces:
            unit, ref = units[piece.unit], piece.ref
            if unit.attempt == piece.attempt:
                unit.live -= 1
            if ref is None:
                continue
            if ref.users > 1:
                ref.users -= 1
            else:
                self.let_go(ref)

    def queue_of(self, operator: OperatorState, piece: Slice) -> Queue:
        """The queue for a slice: that of its node where the operator has a worker there or may have one."""
        node = piece.ref.node if piece.ref is not None and piece.ref.node is not None else ANYWHERE
        if operator.sticky:
            return self._queue_of_unit(operator, piece.unit, node)
        if node in self.nodes:
            if operator.exclusive and len(self.nodes) > 1 and not operator.on_node.get(node):
                node = ANYWHERE
        else:
            node = next(iter(self.nodes)) if node == ANYWHERE and len(self.nodes) == 1 else ANYWHERE
        return operator.queues.get(node) or operator.queues.setdefault(node, Queue(node, node))

    def _queue_of_unit(self, operator: OperatorState, unit: int, node: int) -> Queue:
        """Where the unit already is; else on the node of its rows the queue that is busy least."""
        at = self.units[unit].touched.get(operator.plan.index)
        if at is not None:
            return operator.queues[at]
        here = operator.queues_on.get(node) if operator.workers_max > 1 else None
        best = min(here or operator.queues.values(), key=lambda q: (q.nbytes, len(q.units)), default=None)
        late = best is not None and (best.nbytes > operator.limit / 8 or best.rows
                                     * (operator.s_per_row or 0.0) > max(SINK_BEHIND_S, self.call_s))
        if best is None or ((late or (not here and node in self.nodes))
                            and len(operator.queues) < operator.workers_max):
            best = self.add_queue(operator, node if node in self.nodes else self.roomiest())
        best.units.add(unit)
        self.units[unit].touched[operator.plan.index] = best.index
        return best

    def add_queue(self, operator: OperatorState, node: int) -> Queue:
        """One more queue of a sticky operator, for a worker on this node."""
        queue = operator.queues[len(operator.queues)] = Queue(len(operator.queues), node)
        operator.unserved[queue.index] = queue
        operator.queues_on.setdefault(node, []).append(queue)
        return queue

    def move_queue(self, operator: OperatorState, queue: Queue, node: int) -> None:
        """Its next worker will be on this node."""
        if queue.node != node:
            operator.queues_on[queue.node].remove(queue)
            operator.queues_on.setdefault(node, []).append(queue)
            queue.node = node

    def roomiest(self) -> int:
        """The node whose cores are least in use."""
        return max(self.nodes.values(), key=lambda n: (n.node.cpus - n.cpus_used, -n.number),
                   default=NodeState(0, Node())).number

    def deliver(self, operator: OperatorState, call: CallState, outputs: Iterable[Output]) -> dict[int, int]:
        """Send outputs of a call to all that take their ports; gives the bytes that each consumer got."""
        delivered: dict[int, int] = {}
        attempts, routes, sent = dict(call.units), operator.plan.routes, call.sent
        for output in outputs:
            unit, ref, attempt = self.units[output.unit], output.ref, attempts[output.unit]
            self.hold(ref)
            for target in routes.get((output.step, output.port), ()) if unit.attempt == attempt else ():
                if unit.needed is None or target in unit.needed:
                    ref.users += 1
                    unit.live += 1
                    index, rows = target.operator, ref.rows
                    self.enqueue(self.operators[index],
                                 Slice(ref, output.unit, attempt, 0, rows, target.step))
                    delivered[index] = delivered.get(index, 0) + ref.nbytes
                    sent[index] = sent.get(index, 0) + rows
            if ref.users > 1:
                ref.users -= 1
            else:
                self.let_go(ref)
        return delivered

    def send_failed(self, operator: OperatorState, step: int, piece: Slice, reason: Reason) -> None:
        """Rows that a worker cannot survive go to the `failed` port of a step, with the reason."""
        unit = self.units[piece.unit]
        for target in operator.plan.routes.get((step, "failed"), ()):
            if unit.wants(target):
                failed = Slice(piece.ref, piece.unit, piece.attempt, piece.start, piece.stop, target.step,
                               reason)
                self.adopt(failed)
                self.enqueue(self.operators[target.operator], failed)

    def park(self, operator: OperatorState, groups: Iterable[Group]) -> None:
        """Rows are to be tried alone; the caller has already counted them (`adopt`)."""
        for group in groups:
            operator.groups.append(group)
            operator.nbytes += group.nbytes

    def unpark(self, operator: OperatorState) -> Group:
        group = operator.groups.popleft()
        operator.nbytes -= group.nbytes
        return group

    def purge(self, unwanted: Callable[[OperatorState, Slice], bool]) -> None:
        """Take waiting slices out of all queues and groups."""
        for operator in self.operators:
            for queue in list(operator.waiting.values()):
                gone = [s for s in queue.slices if unwanted(operator, s)]
                if gone:
                    queue.slices = deque(s for s in queue.slices if not unwanted(operator, s))
                    self.grow(operator, queue, -sum(s.rows for s in gone), -sum(s.nbytes for s in gone))
                    self.drop(gone)
            for _ in range(len(operator.groups)):
                group = self.unpark(operator)
                self.drop(s for s in group.slices if unwanted(operator, s))
                group.slices = tuple(s for s in group.slices if not unwanted(operator, s))
                self.park(operator, [group] if group.slices else [])

    def units_on(self, number: int, gone: Sequence[WorkerState]) -> set[int]:
        """Units of which something is lost with a node and its workers."""
        lost: set[int] = set()
        for operator in self.operators:
            waiting = [s for queue in operator.waiting.values() for s in queue.slices]
            waiting += [s for group in operator.groups for s in group.slices]
            lost |= {s.unit for s in waiting if s.ref is not None and s.ref.node == number}
        for call in self.calls.values():
            lost |= {o.unit for o in call.kept if o.ref.node == number}
            if call.emitted_early or call.kind != "process" or self.operators[call.operator].sticky:
                lost |= {u for u, _ in call.units if call.node == number}
            lost |= {s.unit for s in call.slices if s.ref is not None and s.ref.node == number}
        for worker in gone:
            operator = self.operators[worker.operator]
            if operator.sticky:
                lost |= operator.queues[worker.queue].units
            lost |= {u for c in worker.calls if c.emitted_early or c.kind == "read" for u, _ in c.units}
        return {u for u in lost if self.units[u].stage in ("reading", "draining", "flushing")}

    def add_worker(self, operator: OperatorState, queue: Queue | None, places: tuple[Place, ...],
                   share: float) -> WorkerState:
        """A worker starts at these places, with a share of each of its devices; `queue`: that it serves, of a
        sticky operator."""
        index = queue.index if queue is not None and operator.sticky else places[0].node
        worker = WorkerState(self.next_worker(), operator.plan.index, index, places, operator.cpus, share,
                             operator.plan.resources.gpu_memory_gb)
        self.workers[worker.id] = operator.workers[worker.id] = worker
        self.occupy(worker, 1)
        self.count(worker)
        if operator.sticky and queue is not None:
            queue.worker = worker.id
            self.move_queue(operator, queue, worker.node)
            del operator.unserved[queue.index]
        return worker

    def remove_worker(self, worker: WorkerState) -> None:
        """A worker is gone; the caller deals with its calls."""
        operator = self.operators[worker.operator]
        self.count(worker, gone=True)
        del self.workers[worker.id], operator.workers[worker.id]
        self.stopping.pop(worker.id, None)
        self.occupy(worker, -1)
        if operator.sticky and operator.queues[worker.queue].worker == worker.id:
            operator.queues[worker.queue].worker = None
            operator.unserved[worker.queue] = operator.queues[worker.queue]

    def occupy(self, worker: WorkerState, sign: int) -> None:
        """Count what a worker holds for its life, as taken (1) or as free again (-1)."""
        operator = self.operators[worker.operator]
        if not worker.leaving:
            self._count_on_node(worker, sign)
        need = operator.plan.resources
        for place in worker.places:
            node = self.nodes.get(place.node)
            if node is None:
                continue
            node.memory_used = round(node.memory_used + sign * need.memory_gb / len(worker.places), 6)
            for gpu in place.gpus:
                node.gpu_free[gpu] = round(node.gpu_free[gpu] - sign * worker.share, 6)
                node.gpu_memory_free[gpu] -= sign * worker.gpu_memory_gb

    def _count_on_node(self, worker: WorkerState, change: int) -> None:
        operator, node = self.operators[worker.operator], worker.node
        slots = self.free_slots.get(worker.operator)
        if slots is not None:
            slots[worker.places] -= change
            if not slots[worker.places]:
                del slots[worker.places]
        operator.on_node[node] = operator.on_node.get(node, 0) + change
        if not operator.sticky and node in operator.waiting:
            self.grow(operator, operator.waiting[node], 0, 0)

    def leave(self, worker: WorkerState) -> None:
        """No further call for a worker; it ends when it has none (`dispatch` sees to it)."""
        if not worker.leaving:
            self._count_on_node(worker, -1)
            worker.leaving = True
            self.count(worker)

    def ready(self, worker: WorkerState) -> None:
        """A worker is set up; one that was asked to leave meanwhile ends."""
        worker.ready = True
        self.count(worker)
        if worker.leaving and not worker.stopping:
            self.stop(worker)

    def stop(self, worker: WorkerState) -> None:
        """Ask a worker without a call to end; `WorkerLost` follows."""
        worker.stopping, worker.ends_by = True, self.now + CLOSE_S
        operator = self.operators[worker.operator]
        if operator.sticky:
            operator.unserved[worker.queue] = operator.queues[worker.queue]
        self.stopping[worker.id] = worker
        self.count(worker)
        self.act(StopWorker(worker.id))

    def kill(self, worker: WorkerState) -> None:
        self.act(StopWorker(worker.id, kill=True))
        self.remove_worker(worker)

    # -- calls ----------------------------------------------------------------------------------------------

    def new_call(self, operator: OperatorState, kind: CallKind, **fields: Any) -> CallState:
        return CallState(self.next_call(), operator.plan.index, kind, **fields)

    def submit(self, operator: OperatorState, worker: WorkerState, call: CallState) -> None:
        """Give a worker a call, behind those that it has."""
        call.worker, call.node = worker.id, worker.node
        worker.calls.append(call)
        self.count(worker)
        self.calls[call.id] = call
        operator.nbytes += call.nbytes
        if len(worker.calls) == 1:
            self.begin(operator, call)
        self.act(Submit(call))

    def submit_flush(self, operator: OperatorState, worker: WorkerState, unit: UnitState,
                     best_effort: bool = False) -> None:
        """Ask a worker to finish what it keeps of a unit; with `best_effort` only what failed."""
        unit.flushing += 1
        self.submit(operator, worker, self.new_call(operator, "flush", units=((unit.index, unit.attempt),),
                                                    best_effort=best_effort))

    def begin(self, operator: OperatorState, call: CallState) -> None:
        """A call runs from now on. Not before does room count as taken: behind a paused call it would be for
        nothing."""
        call.began = self.now
        if operator.plan.timeout_s is not None:
            self.start_clock(operator, call)
        if operator.consumers and call.kind != "flush":
            call.expected = tuple([(i, int(operator.expected(i, call.nbytes))) for i in operator.consumers])
            self._reserve(call, 1)

    def pause(self, call: CallState) -> None:
        """A part of a call's answer is sent on; its worker waits to be resumed."""
        call.paused = call.emitted_early = True
        self.operators[call.operator].clocks.pop(call.id, None)
        self.count(self.workers[call.worker])

    def resume(self, operator: OperatorState, worker: WorkerState, call: CallState) -> None:
        call.paused = False
        self.count(worker)
        self.begin(operator, call)
        self.act(Resume(worker.id, call.id))

    def keep(self, call: CallState, outputs: tuple[Output, ...], counts: CountsByUnit) -> None:
        """Keep a part of an answer until the call has ended."""
        for output in outputs:
            self.hold(output.ref)
        call.kept += outputs
        call.kept_counts += (counts,)
        self.start_clock(self.operators[call.operator], call)
        self.act(Resume(call.worker, call.id))

    def unreserve(self, call: CallState) -> None:
        """What the call was expected to send has come, or will not."""
        self._reserve(call, -1)
        call.expected = ()

    def _reserve(self, call: CallState, sign: int) -> None:
        total = 0
        for index, nbytes in call.expected:
            self.operators[index].reserved += sign * nbytes
            total += sign * nbytes
        if call.node in self.nodes:
            self.nodes[call.node].reserved += total

    def start_clock(self, operator: OperatorState, call: CallState) -> None:
        """The time limit of a call counts from now."""
        limit = operator.plan.timeout_s
        if limit is not None and call.kind != "flush":
            operator.clocks.pop(call.id, None)
            operator.clocks[call.id] = self.now + limit

    def close_call(self, call: CallState, rows_done: bool = True, lost: bool = False) -> None:
        """A call has ended: take it off its worker; with `rows_done` its rows too."""
        worker = self.workers[call.worker]
        first = worker.calls[0] is call
        assert first or lost, "a worker answered out of turn"
        worker.calls.remove(call)
        self.count(worker)
        self.end_call(call)
        if worker.calls and first:
            self.begin(self.operators[call.operator], worker.calls[0])
        elif not worker.calls and worker.leaving and not worker.stopping:
            self.stop(worker)
        if rows_done:
            self.drop_call(call)

    def end_call(self, call: CallState) -> None:
        """Nothing more is expected of a call."""
        operator = self.operators[call.operator]
        del self.calls[call.id]
        operator.clocks.pop(call.id, None)
        operator.nbytes -= call.nbytes
        if call.expected:
            self.unreserve(call)
        for output in call.kept:
            self.let_go(output.ref)
        call.kept = ()

    def drop_call(self, call: CallState) -> None:
        """The rows of a call are done with."""
        self.drop(call.slices)
        if call.kind == "read":
            unit = self.units[call.units[0][0]]
            if unit.attempt == call.units[0][1]:
                unit.live -= 1
                unit.stage = "draining"
