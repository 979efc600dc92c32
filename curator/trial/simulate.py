"""How long a phase of a run takes: the scheduler of the engine, with workers in virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf

from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.engine.events import Action, Event, StartWorker, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.parts import CHUNK_BYTES, CallState
from curator.engine.protocol import Done, Emitted, Flushed, Output, Ref, Resume
from curator.engine.scheduler import Scheduler
from curator.pipeline.plan import Operator

WORK_S = 2_000.0  # seconds of work that are simulated whole; what a longer phase takes follows from two such
CORE_S = 10.0  # or so many for each core there is: most of it must not be the start
UNITS = 64  # of so many and more a shorter phase has fewer; of less, smaller ones
END_S = 0.01  # a worker takes this long to end


@dataclass(frozen=True)
class Cost:
    """What an operator takes for a row, and for starting a worker, in seconds; and how many rows it sends to
    each consumer for one that comes in."""

    row_s: float = 0.0
    setup_s: float = 0.0
    sent: Mapping[int, float] = field(default_factory=dict)


def phase_s(operators: Sequence[Operator], costs: Mapping[int, Cost], units: Sequence[tuple[int, float]],
            nodes: Mapping[int, Node], row_bytes: float = 1000.0) -> float:
    """Seconds from the start of the first worker to the last record.

    `units`: for each the operator that reads it, and its rows. A phase of more work than can be simulated
    grows by a straight line: two shorter ones of the same shape tell what starting and ending take, and what
    more work does.

    Raises:
        CuratorError: it would not come to an end on these nodes.
    """
    cores = sum(n.cpus for n in nodes.values())
    work, core_s = _work(operators, costs, units)
    most = max(WORK_S, CORE_S * cores)
    if work <= most:
        return _Cluster(operators, costs, units, nodes, row_bytes).run()
    long, short = (_shortened(units, most * part / work) for part in (1.0, 0.5))
    long_s, short_s = (_Cluster(operators, costs, some, nodes, row_bytes).run() for some in (long, short))
    (more, more_core_s), (half, _) = (_work(operators, costs, some) for some in (long, short))
    grows = (long_s - short_s) * (work - more) / (more - half)
    return long_s + max(grows, (core_s - more_core_s) / cores)


def _work(operators: Sequence[Operator], costs: Mapping[int, Cost],
          units: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of work of all operators, and of cores; they come in the order in which rows go."""
    rows = defaultdict[int, float](float)
    for source, n in units:
        rows[source] += n
    total = core_s = 0.0
    for operator in operators:
        cost = costs.get(operator.index, Cost())
        total += rows[operator.index] * cost.row_s
        core_s += rows[operator.index] * cost.row_s * operator.resources.cpus
        for consumer, share in cost.sent.items():
            rows[consumer] += rows[operator.index] * share
    return total, core_s


def _shortened(units: Sequence[tuple[int, float]], part: float) -> list[tuple[int, float]]:
    """This part of the units; where they are few, this part of each."""
    wanted = max(min(UNITS, len(units)), round(len(units) * part))
    chosen = [units[at * len(units) // wanted] for at in range(wanted)]
    less = part * sum(n for _, n in units) / max(1e-9, sum(n for _, n in chosen))
    return [(source, n * less) for source, n in chosen]


class _Cluster:
    """Workers that take what the costs say, without chance. `heap`: what happens when, in which worker."""

    def __init__(self, operators: Sequence[Operator], costs: Mapping[int, Cost],
                 units: Sequence[tuple[int, float]], nodes: Mapping[int, Node], row_bytes: float) -> None:
        self.costs, self.row_bytes = costs, row_bytes
        self.units = [(source, max(1, round(rows))) for source, rows in units]
        self.operators = [_straight(operator, costs.get(operator.index, Cost())) for operator in operators]
        self.scheduler = Scheduler(self.operators, [(source, None) for source, _ in self.units], nodes)
        self.heap: list[tuple[float, int, int, Event]] = []
        self.order, self.now = count(), 0.0
        self.workers: dict[int, deque[CallState]] = {}  # the first call of each runs
        self.parts: dict[int, deque[tuple[float, Event]]] = {}  # by worker: the rest of its first call
        self.rests: Counter[tuple[int, int]] = Counter()  # of a row, by operator and consumer

    def run(self) -> float:
        self._obey(self.scheduler.start(0.0))
        while not self.scheduler.finished:
            due = self.scheduler.deadline()
            if not self.heap and due in (None, inf):
                break
            if not self.heap or (due is not None and due <= self.heap[0][0]):
                self.now = max(self.now, due)
                self._obey(self.scheduler.tick(self.now))
            else:
                self.now, _, worker, event = heappop(self.heap)
                self._obey(self.scheduler.handle([event], self.now))
                if isinstance(event, Done) and worker in self.workers:
                    self.workers[worker].popleft()
                    self._begin(worker)
        if self.scheduler.stopped or not self.scheduler.finished:
            why = self.scheduler.stopped.message if self.scheduler.stopped else "nothing more can start"
            raise CuratorError(f"on these nodes the run would not come to its end: {why}")
        return self.now

    def _obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case StartWorker():
                    setup_s = self.costs.get(action.operator, Cost()).setup_s
                    self.workers[action.worker] = deque()
                    self._later(setup_s, action.worker, WorkerReady(action.worker, setup_s))
                case StopWorker() if self.workers.pop(action.worker, None) is not None and not action.kill:
                    self._later(END_S, action.worker, WorkerLost(action.worker, "it has ended"))
                case Submit() if action.call.worker in self.workers:
                    calls = self.workers[action.call.worker]
                    calls.append(action.call)
                    if len(calls) == 1:
                        self._begin(action.call.worker)
                case Resume() if self.parts.get(action.worker):
                    self._later(*self._next(action.worker))

    def _later(self, seconds: float, worker: int, event: Event) -> None:
        heappush(self.heap, (self.now + seconds, next(self.order), worker, event))

    def _begin(self, worker: int) -> None:
        if self.workers[worker]:
            self.parts[worker] = deque(self._answer(self.workers[worker][0]))
            self._later(*self._next(worker))

    def _next(self, worker: int) -> tuple[float, int, Event]:
        seconds, event = self.parts[worker].popleft()
        return seconds, worker, event

    def _answer(self, call: CallState) -> Iterable[tuple[float, Event]]:
        """The parts of an answer, each with the seconds that it takes."""
        if call.kind == "flush":
            yield 0.0, Done(call.id, flushed=Flushed())
            return
        row_s = self.costs.get(call.operator, Cost()).row_s
        if call.kind == "process":
            rows = Counter[int]()
            for piece in call.slices:
                rows[piece.unit] += piece.rows
            yield call.rows * row_s, self._done(call, rows, call.rows * row_s)
            return
        unit = call.units[0][0]
        left = self.units[unit][1]
        most = max(1, int(min(call.part_s / max(row_s, 1e-9), CHUNK_BYTES / 4 / max(1.0, self.row_bytes))))
        while left > most:
            left -= most
            yield most * row_s, Emitted(call.id, self._outputs(call, unit, most), _counted({unit: most}))
        yield left * row_s, self._done(call, {unit: left}, self.units[unit][1] * row_s)

    def _done(self, call: CallState, rows: Mapping[int, int], seconds: float) -> Done:
        outputs = tuple(output for unit, n in rows.items() for output in self._outputs(call, unit, n))
        return Done(call.id, outputs, _counted(rows), seconds)

    def _outputs(self, call: CallState, unit: int, rows: int) -> tuple[Output, ...]:
        """What goes to each consumer; of parts of a row one is made as soon as they are one."""
        made = []
        for consumer, share in self.costs.get(call.operator, Cost()).sent.items():
            exact = rows * share + self.rests[call.operator, consumer]
            self.rests[call.operator, consumer] = exact - int(exact)
            if exact >= 1:
                ref = Ref(None, int(exact), int(exact * self.row_bytes), call.node)
                made.append(Output(0, _port(consumer), unit, ref))
        return tuple(made)


def _counted(rows: Mapping[int, int]) -> dict[int, dict[int, Counts]]:
    return {unit: {0: Counts(rows_in=n)} for unit, n in rows.items()}


def _port(consumer: int) -> str:
    return f"to {consumer}"


def _straight(operator: Operator, cost: Cost) -> Operator:
    """The same operator with a port for each consumer, and without a time limit: no call stands still."""
    routes = {}
    for targets in operator.routes.values():
        for target in targets:
            if target.operator in cost.sent:
                routes.setdefault((0, _port(target.operator)), (target,))
            else:  # nothing goes there, but it is there
                routes.setdefault((0, _port(target.operator) + " never"), (target,))
    steps = tuple(replace(step, stage=step.stage.with_(timeout_s=inf)) for step in operator.steps)
    return replace(operator, routes=routes, steps=steps if operator.timeout_s is not None else operator.steps)
