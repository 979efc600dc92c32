"""A cluster in virtual time: the scheduler of the engine is real; nodes, workers and calls only take time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.engine.events import Action, Event, StartWorker, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.parts import CHUNK_BYTES
from curator.engine.protocol import Call, DataLost, Done, Emitted, Failed, Flushed, Output, Ref, Resume
from curator.engine.scheduler import Scheduler
from curator.pipeline.plan import Operator

END_S = 0.01  # a worker takes this long to end


@dataclass(eq=False)
class Worker:
    """`calls`: the first one runs. `parts`: what is still to come of its answer, with the seconds of each."""

    id: int
    operator: Operator
    nodes: tuple[int, ...] = (0,)  # of each rank
    calls: deque[Any] = field(default_factory=deque)
    parts: Iterator[tuple[float, Event]] = iter(())


class Cluster(ABC):
    """Workers that do what a scheduler says. A worker begins its next call when it has answered one, whether
    or not the scheduler has heard of it. Events of the same moment come in the order in which they were sent:
    the same answers make the same run.

    `heap`: events to come: when, their number, the worker that sends them, and they themselves.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.now, self.order = scheduler, 0.0, count()
        self.heap: list[tuple[float, int, int, Event]] = []
        self.workers: dict[int, Worker] = {}

    @abstractmethod
    def start(self, action: StartWorker) -> None:
        """Add the worker, and send what its setup leads to."""

    @abstractmethod
    def answer(self, worker: Worker, call: Call) -> Iterable[tuple[float, Event]]:
        """The parts of an answer, with the seconds of each. The next one is made when the worker goes on;
        where none is left and the call has not ended, the worker hangs."""

    def run(self) -> None:
        """Until the scheduler has finished, or nothing more can happen."""
        self.obey(self.scheduler.start(0.0))
        while not self.scheduler.finished and not self.stuck:
            self.obey(self.step())

    @property
    def stuck(self) -> bool:
        return not self.heap and self.scheduler.deadline() in (None, inf)

    def step(self) -> list[Action]:
        """What the scheduler says to what comes next."""
        due = self.scheduler.deadline()
        if due is not None and (not self.heap or due <= self.heap[0][0]):
            self.now = max(self.now, due)
            return self.scheduler.tick(self.now)
        return self.scheduler.handle(self.heard(self.heap[0][0], 1), self.now)

    def heard(self, until: float, most: float = inf) -> list[Event]:
        """What comes until then."""
        events: list[Event] = []
        while self.heap and self.heap[0][0] <= until and len(events) < most:
            self.now, _, sender, event = heappop(self.heap)
            events.extend(self.happen(sender, event))
        return events

    def happen(self, sender: int, event: Event) -> list[Event]:
        """What an event means for its worker; gives what the scheduler hears of it."""
        worker = self.workers.get(sender)
        if worker is not None and isinstance(event, (Done, Failed, DataLost)):
            worker.calls.popleft()
            self.begin(worker)
        elif worker is not None and isinstance(event, WorkerLost):
            self.end(worker)
        return [event]

    def obey(self, actions: Sequence[Action]) -> None:
        """A worker that an action is about may be gone: then the scheduler is about to hear of it."""
        for action in actions:
            match action:
                case Submit() if worker := self.workers.get(action.call.worker):
                    worker.calls.append(action.call)
                    if len(worker.calls) == 1:
                        self.begin(worker)
                case Resume() if worker := self.workers.get(action.worker):
                    self.go_on(worker)
                case StartWorker():
                    self.start(action)
                case StopWorker() if worker := self.workers.get(action.worker):
                    self.stop(worker, action.kill)

    def send(self, seconds: float, sender: int, event: Event) -> None:
        heappush(self.heap, (self.now + seconds, next(self.order), sender, event))

    def begin(self, worker: Worker) -> None:
        """Take up the first call, if there is one."""
        if worker.calls:
            worker.parts = iter(self.answer(worker, worker.calls[0]))
            self.go_on(worker)

    def go_on(self, worker: Worker) -> None:
        for seconds, event in islice(worker.parts, 1):
            self.send(seconds, worker.id, event)

    def stop(self, worker: Worker, kill: bool) -> None:
        self.end(worker)
        if not kill:
            self.send(END_S, worker.id, WorkerLost(worker.id, "it has ended"))

    def end(self, worker: Worker) -> None:
        """It is gone. What it sent before still comes: the scheduler knows what is too late."""
        del self.workers[worker.id]


@dataclass(frozen=True)
class Cost:
    """What an operator takes for a row, and for starting a worker, in seconds; and how many rows it sends to
    each consumer for one that comes in."""

    row_s: float = 0.0
    setup_s: float = 0.0
    sent: Mapping[int, float] = field(default_factory=dict)


class PacedCluster(Cluster):
    """Workers that take what the costs say; rows are numbers only. `units`: for each the operator that reads
    it, and its rows."""

    def __init__(self, operators: Sequence[Operator], costs: Mapping[int, Cost],
                 units: Sequence[tuple[int, float]], nodes: Mapping[int, Node],
                 row_bytes: float = 1000.0) -> None:
        self.costs = {o.index: costs.get(o.index, Cost()) for o in operators}
        self.operators = [_straight(o) for o in operators]
        self.units, self.row_bytes = [max(1, round(rows)) for _, rows in units], row_bytes
        self.rests: dict[tuple[int, int], float] = {}  # of a row, by operator and consumer
        super().__init__(Scheduler(self.operators, [(source, None) for source, _ in units], nodes))

    def start(self, action: StartWorker) -> None:
        operator, setup_s = self.operators[action.operator], self.costs[action.operator].setup_s
        self.workers[action.worker] = Worker(action.worker, operator, tuple(p.node for p in action.places))
        self.send(setup_s, action.worker, WorkerReady(action.worker, setup_s))

    def takes_s(self, worker: Worker, rows: int) -> float:
        return rows * self.costs[worker.operator.index].row_s

    def answer(self, worker: Worker, call: Call) -> Iterator[tuple[float, Event]]:
        if call.kind == "flush":
            yield 0.0, Done(call.id, flushed=Flushed())
            return
        rows, before_s = Counter[int](), 0.0
        for piece in call.slices:
            rows[piece.unit] += piece.rows
        if call.kind == "read":
            unit, row_s = call.units[0][0], max(1e-9, self.costs[call.operator].row_s)
            most = max(1, int(min(call.part_s / row_s, CHUNK_BYTES / 4 / max(1.0, self.row_bytes))))
            for _ in range((self.units[unit] - 1) // most):
                took = self.takes_s(worker, most)
                before_s += took
                yield took, Emitted(call.id, *self._sent(worker, {unit: most}))
            rows[unit] = (self.units[unit] - 1) % most + 1
        took = self.takes_s(worker, rows.total())
        yield took, Done(call.id, *self._sent(worker, rows), before_s + took)

    def _sent(self, worker: Worker, rows: Mapping[int, int]) -> tuple[tuple[Output, ...], dict]:
        """What goes to each consumer; of parts of a row one is made as soon as they are one."""
        outputs, counts, operator = [], {}, worker.operator.index
        for unit, came in rows.items():
            counts[unit] = {0: Counts(rows_in=came)}
            for consumer, share in self.costs[operator].sent.items():
                exact = came * share + self.rests.get((operator, consumer), 0.0)
                whole, port = int(exact), f"to {consumer}"
                self.rests[operator, consumer] = exact - whole
                if whole:
                    counts[unit][0].out[port] = whole
                    ref = Ref(None, whole, int(exact * self.row_bytes), worker.nodes[0])
                    outputs.append(Output(0, port, unit, ref))
        return tuple(outputs), counts


def _straight(operator: Operator) -> Operator:
    """The same operator with a port for each consumer, and without a time limit: no call stands still."""
    targets = {(0, f"to {t.operator}"): (t,) for taken in operator.routes.values() for t in taken}
    steps = tuple(replace(step, stage=step.stage.with_(timeout_s=inf)) for step in operator.steps)
    return replace(operator, routes=targets, steps=operator.steps if operator.timeout_s is None else steps)
