"""What the scheduler knows, and the small moves that keep it consistent.

Each field's comment is an invariant. `State.check` asserts them; tests run it after every event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from curator.counts import Counts
from curator.engine import events as ev
from curator.plan import Operator, Target
from curator.resources import Node
from curator.stage import ENDINGS

QUEUE_BYTES = 192 << 20  # bytes that may wait before one operator, where memory allows; more gains nothing
CHUNK_BYTES = 32 << 20  # a worker sends a part of its answer when it has this much
LANE_S = 1.0  # another worker of a sink starts when those there are are so many seconds behind
FIRST_READ_BYTES = 8 << 20  # what a source is expected to send before it has sent anything


@dataclass(slots=True, eq=False)
class WorkerState:
    id: int
    operator: int
    lane: int  # the lane it serves; 0 unless the operator is affine
    gpus: tuple[int, ...] = ()
    gpu_share: float = 0.0
    ready: bool = False  # False from its start until its `setup` is done
    stopping: bool = False  # asked to end; gets no call
    calls: deque[ev.Call] = field(default_factory=deque)  # first in, first out; only the first one runs
    counted: tuple[bool, bool] = (False, False)  # whether `State` counts it as working, as held

    @property
    def head(self) -> ev.Call | None:
        return self.calls[0] if self.calls else None

    @property
    def working(self) -> bool:
        """It uses its cores now: it starts, or its first call runs (a held one does not)."""
        return not self.ready or (bool(self.calls) and not self.calls[0].held)


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of an operator. An affine operator has one for each worker, any other has one for all."""

    index: int = 0
    queue: deque[ev.Slice] = field(default_factory=deque)
    rows: int = 0  # sum over queue
    nbytes: int = 0  # sum over queue
    worker: int | None = None  # affine operators: the worker that serves it
    units: set[int] = field(default_factory=set)  # affine operators: uncommitted units whose rows came here


@dataclass(slots=True, eq=False)
class Group:
    """Rows that are tried alone, because a worker died over them `charge` times."""

    slices: tuple[ev.Slice, ...]
    charge: int

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.slices)


@dataclass(slots=True, eq=False)
class OperatorState:
    plan: Operator
    workers_max: int
    consumers: tuple[int, ...]
    likely: frozenset[int]  # consumers of ports that are no endings: before anything is known, rows go there
    producers: tuple[int, ...]
    upstream: frozenset[int]  # every operator before it
    limit: float  # bytes that may wait here
    affine: bool  # each unit stays with one worker, which keeps something of it
    cpus: float  # cores that a working worker uses
    lanes: list[Lane] = field(default_factory=lambda: [Lane()])
    groups: deque[Group] = field(default_factory=deque)
    workers: dict[int, WorkerState] = field(default_factory=dict)
    parked_bytes: int = 0  # sum over groups
    blocked: bool = False  # when last tried, there was no room behind it for its rows
    held: int = 0  # workers whose first call waits to be resumed
    inflight_bytes: int = 0  # bytes of rows in calls given to workers
    reserved: int = 0  # bytes that running calls upstream are expected to send here
    s_per_row: float | None = None  # seconds of work a row, smoothed
    yields: dict[int, float] = field(default_factory=dict)  # for each consumer, bytes out a byte in (a source: bytes a part)
    seen: bool = False  # `yields` has been measured
    setup_s: float = 0.0  # what the last worker took to get ready
    setup_failures: int = 0  # since a worker last got ready
    exhausted: bool = False
    busy_s: float = 0.0
    calls: int = 0

    @property
    def rows(self) -> int:
        return sum(lane.rows for lane in self.lanes)

    @property
    def load(self) -> float:
        """Bytes that are here or on their way."""
        return sum(lane.nbytes for lane in self.lanes) + self.parked_bytes + self.inflight_bytes + self.reserved

    @property
    def has_work(self) -> bool:
        return bool(self.groups) or any(lane.queue for lane in self.lanes)

    def expected(self, consumer: int, nbytes: int) -> float:
        """Bytes that the next part of an answer to `nbytes` should bring to this consumer."""
        likely = not self.seen and consumer in self.likely
        if self.plan.kind == "source":
            return self.yields.get(consumer, FIRST_READ_BYTES if likely else 0.0)
        return min(self.yields.get(consumer, 1.0 if likely else 0.0) * nbytes, CHUNK_BYTES)

    def learn(self, delivered: dict[int, int], nbytes: int) -> None:
        """Take in what an answer brought to each consumer."""
        for consumer in self.consumers:
            got = delivered.get(consumer, 0)
            value = float(got) if self.plan.kind == "source" else got / max(1, nbytes)
            before = self.yields.get(consumer, value)
            # Rising at once and falling slowly: to expect too little costs memory, too much only a moment's overlap.
            self.yields[consumer] = value if value > before else 0.8 * before + 0.2 * value
        self.seen = True


@dataclass(slots=True)
class UnitState:
    index: int
    needed: frozenset[Target] | None  # the steps to run for it; None for all
    source: int = 0  # the operator that reads it
    stage: str = "waiting"  # waiting, reading, draining, flushing, committed, unread
    attempt: int = 0
    blames: dict[int, int] = field(default_factory=dict)  # restarts that the unit itself was to blame for, by operator
    live: int = 0  # slices of this attempt in queues, groups and calls, plus its read
    counts: dict[tuple[int, int], Counts] = field(default_factory=dict)  # by operator and step
    touched: dict[int, int] = field(default_factory=dict)  # affine operators that saw it, and the lane there
    flushing: int = 0  # flush calls not yet answered
    flushed: list[tuple[int, ev.Flushed]] = field(default_factory=list)  # by operator

    def wants(self, target: Target) -> bool:
        return self.needed is None or target in self.needed

    def count(self, operator: int, step: int) -> Counts:
        return self.counts.setdefault((operator, step), Counts())


class State:
    """Operators, workers and units of a run, and the actions that the current event has led to."""

    def __init__(self, operators: Sequence[Operator], units: Sequence[tuple[int, frozenset[Target] | None]],
                 machine: Node) -> None:
        self.machine = machine
        self.operators = [_operator_state(o, operators, machine) for o in operators]
        self.order = sorted(self.operators, key=lambda o: (not o.plan.resources.gpus, -o.plan.index))  # who may work first
        self.workers: dict[int, WorkerState] = {}
        self.units = [UnitState(i, needed, source) for i, (source, needed) in enumerate(units)]
        self.waiting: dict[int, deque[int]] = {}  # units to read, in order, by the operator that reads them
        for unit in self.units:
            self.waiting.setdefault(unit.source, deque()).append(unit.index)
        self.open = len(units)  # units that are neither committed nor unread
        self.actions: list[ev.Action] = []
        self.gpu_free = [1.0] * machine.gpus
        self.working = 0  # workers that work
        self.cpus_used = 0.0  # by them
        self.live_bytes = 0  # bytes of all batches that workers wrote and nobody released
        self.live_bytes_max = 0
        self.calls: dict[int, ev.Call] = {}  # every call given to a worker and not ended
        self._next_call = self._next_worker = 0

    # -- small moves ------------------------------------------------------------------------------------

    def act(self, action: ev.Action) -> None:
        self.actions.append(action)

    def next_call(self) -> int:
        self._next_call += 1
        return self._next_call

    def next_worker(self) -> int:
        self._next_worker += 1
        return self._next_worker

    def hold(self, ref: ev.Ref) -> None:
        if ref.users == 0:
            self.live_bytes += ref.nbytes
            self.live_bytes_max = max(self.live_bytes_max, self.live_bytes)
        ref.users += 1

    def let_go(self, ref: ev.Ref | None) -> None:
        if ref is None:
            return
        ref.users -= 1
        assert ref.users >= 0, "a batch was released twice"
        if ref.users == 0:
            self.live_bytes -= ref.nbytes
            self.act(ev.Release(ref))

    def count(self, worker: WorkerState, gone: bool = False) -> None:
        """Take in what a worker does now; called after everything that changes it."""
        held = bool(worker.calls) and worker.calls[0].held and not gone
        now = (worker.working and not gone, held)
        if now != worker.counted:
            operator = self.operators[worker.operator]
            change = now[0] - worker.counted[0]
            self.working += change
            self.cpus_used = round(self.cpus_used + change * operator.cpus, 6)
            operator.held += held - worker.counted[1]
            worker.counted = now

    def enqueue(self, operator: OperatorState, piece: ev.Slice, front: bool = False) -> None:
        """Put a slice into a lane; the caller has already counted it (`adopt`)."""
        lane = self.lane_of(operator, piece.unit)
        (lane.queue.appendleft if front else lane.queue.append)(piece)
        lane.rows += piece.rows
        lane.nbytes += piece.nbytes

    def adopt(self, piece: ev.Slice) -> None:
        """Count a new slice: its batch is held and its unit is alive."""
        if piece.ref is not None:
            self.hold(piece.ref)
        self.units[piece.unit].live += 1

    def drop(self, piece: ev.Slice) -> None:
        """A slice is done with: let go of its batch and, if it is of the unit's present attempt, count it off."""
        unit = self.units[piece.unit]
        if unit.attempt == piece.attempt:
            unit.live -= 1
        self.let_go(piece.ref)

    def lane_of(self, operator: OperatorState, unit: int) -> Lane:
        """The lane for a unit's rows. Affine operators: where the unit already is, else the emptiest that is busy least."""
        if not operator.affine:
            return operator.lanes[0]
        at = self.units[unit].touched.get(operator.plan.index)
        if at is not None:
            return operator.lanes[at]
        best = min(operator.lanes, key=lambda lane: (lane.nbytes, len(lane.units)))
        late = best.rows * (operator.s_per_row or 0.0) > LANE_S
        if (late or best.nbytes > operator.limit / 8) and len(operator.lanes) < operator.workers_max:
            best = Lane(len(operator.lanes))
            operator.lanes.append(best)
        best.units.add(unit)
        self.units[unit].touched[operator.plan.index] = best.index
        return best

    def deliver(self, operator: OperatorState, output: ev.Output, attempt: int, delivered: dict[int, int]) -> None:
        """Send an output to everything that takes its port."""
        unit = self.units[output.unit]
        self.hold(output.ref)
        for target in operator.plan.routes.get((output.step, output.port), ()) if unit.attempt == attempt else ():
            if unit.wants(target):
                piece = ev.Slice(output.ref, output.unit, attempt, 0, output.rows, target.step)
                self.adopt(piece)
                self.enqueue(self.operators[target.operator], piece)
                delivered[target.operator] = delivered.get(target.operator, 0) + output.nbytes
        self.let_go(output.ref)

    def send_failed(self, operator: OperatorState, step: int, piece: ev.Slice, note: ev.Note) -> None:
        """Rows that a worker cannot survive go to the `failed` port of a step, with the reason."""
        unit = self.units[piece.unit]
        for target in operator.plan.routes.get((step, "failed"), ()):
            if unit.wants(target):
                noted = ev.Slice(piece.ref, piece.unit, piece.attempt, piece.start, piece.stop, target.step, note)
                self.adopt(noted)
                self.enqueue(self.operators[target.operator], noted)

    def park(self, operator: OperatorState, groups: Iterable[Group]) -> None:
        """Rows are to be tried alone; the caller has already counted them (`adopt`)."""
        for group in groups:
            operator.groups.append(group)
            operator.parked_bytes += group.nbytes

    def unpark(self, operator: OperatorState) -> Group:
        group = operator.groups.popleft()
        operator.parked_bytes -= group.nbytes
        return group

    def purge(self, units: Collection[int]) -> None:
        """Take every waiting slice of these units out of all queues and groups."""
        for operator in self.operators:
            for lane in operator.lanes:
                gone = [s for s in lane.queue if s.unit in units]
                if gone:
                    lane.queue = deque(s for s in lane.queue if s.unit not in units)
                    lane.rows -= sum(s.rows for s in gone)
                    lane.nbytes -= sum(s.nbytes for s in gone)
                    self._drop_all(gone)
            for _ in range(len(operator.groups)):
                group = self.unpark(operator)
                self._drop_all(s for s in group.slices if s.unit in units)
                group.slices = tuple(s for s in group.slices if s.unit not in units)
                self.park(operator, [group] if group.slices else [])

    def _drop_all(self, pieces: Iterable[ev.Slice]) -> None:
        for piece in pieces:
            self.drop(piece)

    def forget(self, unit: UnitState, again: bool) -> None:
        """Tell sinks and stateful operators what becomes of this attempt of a unit: `again`, its records come once more."""
        lanes = dict(unit.touched)
        if not again:  # an earlier attempt may have been where this one was not
            lanes |= {o.plan.index: 0 for o in self.operators if o.plan.kind == "stateful"}
        for index, at in lanes.items():
            lane = self.operators[index].lanes[at]
            lane.units.discard(unit.index)
            if lane.worker is not None:
                self.act(ev.Forget(lane.worker, unit.index, unit.attempt, again))
        unit.touched.clear()

    def remove_worker(self, worker: WorkerState) -> None:
        """A worker is gone; the caller deals with its calls."""
        operator = self.operators[worker.operator]
        self.count(worker, gone=True)
        del self.workers[worker.id], operator.workers[worker.id]
        for gpu in worker.gpus:
            self.gpu_free[gpu] = round(self.gpu_free[gpu] + worker.gpu_share, 6)
        if operator.affine and operator.lanes[worker.lane].worker == worker.id:
            operator.lanes[worker.lane].worker = None

    def kill(self, worker: WorkerState) -> None:
        self.act(ev.StopWorker(worker.id, kill=True))
        self.remove_worker(worker)

    # -- the rules ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold after every event."""
        live = [0] * len(self.units)
        for operator in self.operators:
            for lane in operator.lanes:
                assert lane.rows == sum(s.rows for s in lane.queue), operator.plan.name
                assert lane.nbytes == sum(s.nbytes for s in lane.queue), operator.plan.name
            assert operator.parked_bytes == sum(g.nbytes for g in operator.groups), operator.plan.name
            running = [c for w in operator.workers.values() for c in w.calls]
            assert operator.inflight_bytes == sum(c.nbytes for c in running), operator.plan.name
            waiting = [s for lane in operator.lanes for s in lane.queue] + [s for g in operator.groups for s in g.slices]
            pieces = waiting + [s for c in running for s in c.slices]
            for piece in pieces:
                assert piece.ref is None or piece.ref.users > 0
                if piece.attempt == self.units[piece.unit].attempt:
                    live[piece.unit] += 1
            for piece in waiting:
                assert piece.attempt == self.units[piece.unit].attempt, "rows of a given up attempt wait for a worker"
            for call in running:
                if call.kind == "read" and self.units[call.units[0][0]].attempt == call.units[0][1]:
                    live[call.units[0][0]] += 1
        for unit in self.units:
            assert unit.live == live[unit.index], f"unit {unit.index}: {unit.live} alive, {live[unit.index]} found"
            for counts in unit.counts.values():
                counts.check()
        for operator in self.operators:
            reserved = sum(c.expected.get(operator.plan.index, 0) for c in self.calls.values())
            assert operator.reserved == reserved, operator.plan.name
            assert operator.held == sum(w.head is not None and w.head.held for w in operator.workers.values()), operator.plan.name
        assert self.working == sum(w.working for w in self.workers.values())
        assert abs(self.cpus_used - sum(self.operators[w.operator].cpus for w in self.workers.values() if w.working)) < 1e-3
        assert all(-1e-6 <= free <= 1 + 1e-6 for free in self.gpu_free)

    def story(self) -> str:
        """The state in a few lines, for a person."""
        units: dict[str, int] = {}
        for unit in self.units:
            units[unit.stage] = units.get(unit.stage, 0) + 1
        lines = [", ".join(f"{n} units {stage}" for stage, n in units.items())]
        for o in self.operators:
            working = sum(w.working for w in o.workers.values())
            lines.append(f"{o.plan.name}: {o.rows} rows wait, {working} of {len(o.workers)} workers work, load {o.load:.0f}")
        return "\n".join(lines)


def _operator_state(operator: Operator, operators: Sequence[Operator], machine: Node) -> OperatorState:
    need = operator.resources
    upstream: set[int] = set()
    for other in reversed(operators[:operator.index]):
        reaches = {t.operator for targets in other.routes.values() for t in targets}
        if operator.index in reaches or reaches & upstream:
            upstream.add(other.index)
    waiting = max(1, sum(o.kind != "source" for o in operators))
    return OperatorState(
        plan=operator,
        workers_max=1 if operator.kind == "stateful" else _workers_max(need, machine),
        consumers=tuple(sorted({t.operator for targets in operator.routes.values() for t in targets})),
        likely=frozenset(t.operator for (_, port), targets in operator.routes.items() if port not in ENDINGS for t in targets),
        producers=tuple(o.index for o in operators if any(t.operator == operator.index for ts in o.routes.values() for t in ts)),
        upstream=frozenset(upstream),
        limit=min(QUEUE_BYTES, machine.budget_bytes / waiting),
        affine=operator.kind in ("sink", "stateful"),
        cpus=need.cpus,
    )


def _workers_max(need, machine: Node) -> int:
    """As many as the machine holds at once; a stage that no machine like this can hold still gets one."""
    most = [machine.cpus / need.cpus if need.cpus else machine.cpus * 4]
    if need.gpus and machine.gpus:
        most.append(machine.gpus / need.gpus if need.gpus >= 1 else machine.gpus * int(1 / need.gpus + 1e-6))
    if need.memory_gb:
        most.append(machine.memory_bytes / (need.memory_gb * 1e9))
    return max(1, int(min(most)))
