"""What the scheduler keeps account of: nodes, workers, queues, operators and units. `State` moves them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from curator.api.counts import Counts
from curator.api.resources import Node, Place
from curator.api.stage import SIDE_OUTPUTS
from curator.engine.balance.allocation import Rate
from curator.engine.protocol import Call, CountsByUnit, Flushed, Output, Slice
from curator.pipeline.plan import Operator, Target

CHUNK_BYTES = 32 << 20  # a worker sends a part of its answer when it has this much
FIRST_READ_BYTES = 8 << 20  # what a source is expected to send before it has sent anything

# What a worker does, as `State.count` has it. Those after PAUSED use their cores; one that is ALONE has one
# ordinary call, behind which a second one may wait.
OFF, IDLE, ENDING, PAUSED, STARTING, ALONE, BUSY = range(7)


@dataclass(slots=True, eq=False)
class NodeState:
    """A node, and what workers use of it."""

    number: int
    node: Node
    cpus_used: float = 0.0  # cores that working workers use,
    cpus_most: float = 0.0  # and the most of them since somebody asked
    gpu_free: list[float] = field(default_factory=list)  # shares of each device
    gpu_memory_free: list[float] = field(default_factory=list)  # gigabytes of each device
    memory_used: float = 0.0  # gigabytes that its workers asked for
    live_bytes: int = 0  # of batches that lie here
    reserved: int = 0  # bytes that running calls are expected to leave here
    claimed: bool = False  # its free cores wait for more, for a call that needs several

    def has_core(self, cpus: float) -> bool:
        """Cores are leased by the call; who asks for more than there are gets all of them, alone."""
        used = self.cpus_used
        return not cpus or (not self.claimed and (not used or used + cpus <= self.node.cpus + 1e-6))

    def spare(self, cpus: float) -> bool:
        return not cpus or not self.cpus_used or self.cpus_used + cpus <= self.node.cpus + 1e-6

    def full(self, more: float) -> bool:
        """No room for batches of so many bytes more."""
        return self.live_bytes + self.reserved + more > self.node.budget_bytes


@dataclass(slots=True, eq=False)
class CallState(Call):
    """A call, and what the scheduler remembers of it."""

    node: int = -1  # of its worker
    nbytes: int = 0  # of its slices
    expected: tuple[tuple[int, int], ...] = ()  # bytes that its answer should bring to each consumer
    paused: bool = False  # it has sent a part of its answer and waits to be resumed
    emitted_early: bool = False  # a part was sent on, so it cannot be repeated without its units
    kept: tuple[Output, ...] = ()  # parts that are not sent on before the call has ended,
    kept_counts: tuple[CountsByUnit, ...] = ()  # and what was counted for them
    read: int = 0  # rows that a read has told of
    sent: dict[int, int] = field(default_factory=dict)  # rows that went to each consumer
    began: float = 0.0


@dataclass(slots=True, eq=False)
class WorkerState:
    id: int
    operator: int
    queue: int  # the queue it serves; that of its node unless the operator is sticky
    places: tuple[Place, ...] = (Place(),)  # a gang: one a rank
    cpus: float = 1.0  # cores of each rank
    share: float = 0.0  # of each of its devices
    gpu_memory_gb: float = 0.0  # on each of its devices
    ready: bool = False  # False from its start until its `setup` is done
    leaving: bool = False  # its devices are meant for another: gets no call, and ends when it has none
    stopping: bool = False  # asked to end; gets no call
    ends_by: float = inf  # when it is killed if it has not ended
    calls: deque[CallState] = field(default_factory=deque)  # first in, first out; only the first one runs
    status: int = OFF  # what `State.count` has taken in
    node: int = field(init=False)

    def __post_init__(self) -> None:
        self.node = self.places[0].node

    @property
    def head(self) -> CallState | None:
        return self.calls[0] if self.calls else None

    @property
    def working(self) -> bool:
        """It uses its cores now: it starts, or its first call runs (a paused one does not)."""
        return self.doing > PAUSED

    @property
    def idle(self) -> bool:
        return self.doing == IDLE

    @property
    def doing(self) -> int:
        """What its status should be."""
        if not self.ready:
            return STARTING
        if not self.calls:
            return ENDING if self.stopping else OFF if self.leaving else IDLE
        head = self.calls[0]
        if head.paused:
            return PAUSED
        return (ALONE if len(self.calls) == 1 and head.kind == "process" and not head.crashes
                and not self.leaving else BUSY)


WorkersByNode = dict[int, dict[int, WorkerState]]  # by node and number; no node has an empty dict


@dataclass(slots=True, eq=False)
class Queue:
    """A queue of an operator: one a node, for rows that lie there, and one (`ANYWHERE`) for rows of nodes
    without a worker of it. A sticky operator has one for each worker instead."""

    index: int = 0
    node: int = 0  # sticky operators: where the worker is to be
    slices: deque[Slice] = field(default_factory=deque)
    rows: int = 0  # sum over slices
    nbytes: int = 0  # sum over slices
    since: float = 0.0  # when the first rows came that wait
    worker: int | None = None  # sticky operators: the worker that serves it
    units: set[int] = field(default_factory=set)  # sticky operators: uncommitted units whose rows came here


@dataclass(slots=True, eq=False)
class Group:
    """Rows that are tried alone, because a worker died over them `crashes` times."""

    slices: tuple[Slice, ...]
    crashes: int

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.slices)


@dataclass(slots=True, eq=False)
class OperatorState:
    plan: Operator
    exclusive: bool  # its workers hold devices or a gang's places: they are started where the allocation says
    consumers: tuple[int, ...]
    # consumers of ports that are no side outputs: before anything is known, rows go there
    likely: frozenset[int]
    producers: tuple[int, ...]
    upstream: frozenset[int]  # every operator before it
    sticky: bool  # each unit stays with one worker, which keeps something of it
    cpus: float  # cores that a working worker uses, each rank of a gang
    limit: float = 0.0  # bytes that may wait here
    workers_max: int = 1
    most_on: dict[int, int] = field(default_factory=dict)  # workers that a node may have
    queues: dict[int, Queue] = field(default_factory=dict)
    queues_on: dict[int, list[Queue]] = field(default_factory=dict)  # sticky operators: queues by node,
    # and those whose worker is not there or is ending
    unserved: dict[int, Queue] = field(default_factory=dict)
    groups: deque[Group] = field(default_factory=deque)
    workers: dict[int, WorkerState] = field(default_factory=dict)
    waiting: dict[int, Queue] = field(default_factory=dict)  # the queues that are not empty
    # those whose rows may go elsewhere, or would wait long where they are
    late: dict[int, Queue] = field(default_factory=dict)
    # those that got rows, or whose worker began a call, since `dispatch`
    moved: dict[int, Queue] = field(default_factory=dict)
    rows: int = 0  # sum over queues
    nbytes: int = 0  # of rows that are here: sum over queues, groups and the calls of its workers
    blocked: bool = False  # when last tried, there was no room behind it for its rows
    # when the time limit of each running call ends, the first one first
    clocks: dict[int, float] = field(default_factory=dict)
    working: int = 0  # workers that work
    starting: int = 0  # those of them that are not ready yet
    on_node: dict[int, int] = field(default_factory=dict)  # workers by node, without those that leave
    idle: WorkersByNode = field(default_factory=dict)  # those without a call,
    prefetch: WorkersByNode = field(default_factory=dict)  # and those that may be given a second call
    # those whose first call waits to be resumed, in this order
    paused: dict[int, WorkerState] = field(default_factory=dict)
    # idle and prefetch, by what the workers do
    workers_by: dict[int, WorkersByNode] = field(init=False)
    reserved: int = 0  # bytes that running calls upstream are expected to send here
    s_per_row: float | None = None  # seconds of work a row, smoothed: what the next call will take
    # rows a second of useful time, with its trust: what the allocation rests on
    rate: Rate = field(default_factory=Rate)
    # rows to each consumer for each row in, before any is known
    prior: dict[int, float] = field(default_factory=dict)
    rows_in: int = 0  # rows that it has done (a source: that it read)
    sent: dict[int, int] = field(default_factory=dict)  # rows that it sent to each consumer
    # for each consumer, bytes out a byte in (a source: bytes a part)
    yields: dict[int, float] = field(default_factory=dict)
    seen: bool = False  # `yields` has been measured
    setup_s: float = 0.0  # what the last worker took to get ready
    setup_failures: int = 0  # since a worker last got ready
    exhausted: bool = False  # its stage wants no more rows;
    short_circuit: bool = False  # if all rows go through it, reading ends then
    busy_s: float = 0.0
    calls: int = 0

    def __post_init__(self) -> None:
        self.workers_by = {IDLE: self.idle, ALONE: self.prefetch}

    @property
    def load(self) -> float:
        """Bytes that are here or on their way."""
        return self.nbytes + self.reserved

    @property
    def has_work(self) -> bool:
        return bool(self.groups or self.waiting)

    def expected(self, consumer: int, nbytes: int) -> float:
        """Bytes that the next part of an answer to `nbytes` should bring to this consumer."""
        source = self.plan.kind == "source"
        if self.seen:
            share = self.yields[consumer]
        else:
            share = (FIRST_READ_BYTES if source else 1.0) if consumer in self.likely else 0.0
        brought = share if source else share * nbytes
        return brought if source or brought < CHUNK_BYTES else CHUNK_BYTES

    def learn(self, delivered: dict[int, int], nbytes: int) -> None:
        """Take in what an answer brought to each consumer."""
        of = 1 if self.plan.kind == "source" else nbytes or 1
        for consumer in self.consumers:
            value = delivered.get(consumer, 0) / of
            before = self.yields.get(consumer, value)
            # Rising at once and falling slowly: to expect too little costs memory, too much only a moment's
            # overlap.
            self.yields[consumer] = value if value > before else 0.8 * before + 0.2 * value
        self.seen = True

    def learn_pace(self, call: CallState, busy_s: float) -> None:
        """Take in what a call did in so many seconds of work."""
        rows = call.read if call.kind == "read" else call.rows
        self.busy_s += busy_s
        self.calls += 1
        if call.kind == "flush" or not rows:
            return
        self.rows_in += rows
        for consumer, sent in call.sent.items():
            self.sent[consumer] = self.sent.get(consumer, 0) + sent
        self.rate.observe(rows, busy_s if busy_s > 1e-6 else 1e-6)
        if call.kind == "process":
            pace = busy_s / rows
            self.s_per_row = pace if self.s_per_row is None else 0.6 * self.s_per_row + 0.4 * pace


UnitStage = Literal["waiting", "reading", "draining", "flushing", "committed", "unread"]


@dataclass(slots=True)
class UnitState:
    index: int
    needed: frozenset[Target] | None  # the steps to run for it; None for all
    source: int = 0  # the operator that reads it
    stage: UnitStage = "waiting"
    attempt: int = 0
    excused: int = 0  # attempts up to the last time that a node went
    # restarts that the unit itself was to blame for, by operator
    blames: dict[int, int] = field(default_factory=dict)
    live: int = 0  # slices of this attempt in queues, groups and calls, plus its read
    read_bytes: int = 0  # so far its source has come in this attempt
    counts: dict[tuple[int, int], Counts] = field(default_factory=dict)  # by operator and step
    touched: dict[int, int] = field(default_factory=dict)  # sticky operators that saw it, and the queue there
    flushing: int = 0  # flush calls not yet answered
    flushed: list[tuple[int, Flushed]] = field(default_factory=list)  # by operator

    def wants(self, target: Target) -> bool:
        return self.needed is None or target in self.needed


WAITING, COMMITTED, UNREAD = range(3)  # of a unit that is not under way
# In place of those that have ended: no row of theirs that still comes is of their present attempt.
ENDED = {COMMITTED: UnitState(-1, None, stage="committed", attempt=-1),
         UNREAD: UnitState(-1, None, stage="unread", attempt=-1)}


class Units(dict[int, UnitState]):
    """The units of a phase by number. Those are held that somebody asked for and that have not ended; of all
    others there is a byte that says what they are.

    `given`: for each unit the operator that reads it and the steps to run.
    """

    def __init__(self, given: Sequence[tuple[int, frozenset[Target] | None]]) -> None:
        super().__init__()
        self.given, self._ends = given, bytearray(len(given))
        self.unread: list[int] = []

    def __missing__(self, index: int) -> UnitState:
        if self._ends[index]:
            return ENDED[self._ends[index]]
        source, needed = self.given[index]
        unit = self[index] = UnitState(index, needed, source)
        return unit

    def end(self, index: int, how: int) -> None:
        self._ends[index] = how
        self.pop(index, None)
        if how == UNREAD:
            self.unread.append(index)

    def read_on(self) -> list[int]:
        """The units that were left unread, in their order, wait again."""
        replay, self.unread = sorted(self.unread), []
        for index in replay:
            self._ends[index] = WAITING
        return replay

    def committed(self) -> tuple[int, ...]:
        return tuple(index for index, how in enumerate(self._ends) if how == COMMITTED)

    def stages(self) -> dict[str, int]:
        """How many units are how far."""
        found: dict[str, int] = {}
        for index in range(len(self.given)):
            unit = self.get(index) or ENDED.get(self._ends[index])
            stage = "waiting" if unit is None else unit.stage
            found[stage] = found.get(stage, 0) + 1
        return found


def operator_state(operator: Operator, operators: Sequence[Operator], gpus: bool) -> OperatorState:
    need = operator.resources
    upstream: set[int] = set()
    for other in reversed(operators[:operator.index]):
        if operator.index in other.consumers or other.consumers & upstream:
            upstream.add(other.index)
    sticky = operator.kind in ("sink", "stateful")
    state = OperatorState(
        plan=operator, sticky=sticky, upstream=frozenset(upstream), cpus=need.cpus / need.ranks,
        exclusive=bool((need.gpus and gpus) or need.ranks > 1),
        consumers=tuple(sorted(operator.consumers)),
        likely=frozenset(t.operator for (_, port), targets in operator.routes.items()
                         if port not in SIDE_OUTPUTS for t in targets),
        producers=tuple(o.index for o in operators
                        if any(t.operator == operator.index for ts in o.routes.values() for t in ts)))
    if sticky:
        state.queues[0] = Queue()
        state.queues_on[0] = [state.queues[0]]
        state.unserved[0] = state.queues[0]
    return state


def workers_of_node(operator: OperatorState, node: Node) -> int:
    """As many as a node holds at once."""
    need = operator.plan.resources
    ranks = need.ranks
    most = [node.cpus * ranks / need.cpus if need.cpus else node.cpus * 4]
    if need.gpus and node.gpus:
        most.append(node.gpus / need.gpus if need.gpus >= 1 and ranks == 1
                    else node.gpus * int(1 / min(1, need.gpus) + 1e-6))
    if need.memory_gb:
        most.append(node.memory_bytes * ranks / (need.memory_gb * 1e9))
    return int(min(most) + 1e-6)
