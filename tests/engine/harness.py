"""A scheduler that is told one event at a time, and what it says to each."""

from __future__ import annotations

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.api.stage import WrittenFile
from curator.engine.dispatch import FIRST_ROWS
from curator.engine.events import Commit, NodeDown, Release, Report, StartWorker, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.protocol import Call, Done, Failed, Flushed, Output, Ref
from curator.engine.scheduler import Scheduler
from curator.engine.snapshot import story
from tests.engine.invariants import check
from tests.engine.scenario import chain, make_stage

SOURCE = 0


class Harness:
    """A scheduler in the hands of a test. `chain` gives the operators: the source is 0, the sinks are the last."""

    def __init__(self, *stages, units: int = 1, needed=None, steps=None, cpus: float = 8, gpus: int = 0, budget: int = 1 << 30,
                 start: bool = True, nodes=None, **given) -> None:
        self.operators = chain(*stages, steps=steps or {})
        self.sink = len(self.operators) - 1
        machine = Node(cpus=cpus, gpus=gpus, budget_bytes=budget)
        self.scheduler = Scheduler(self.operators, [(SOURCE, needed)] * units, nodes or {0: machine}, **given)
        self.state = self.scheduler.state
        self.now = 0.0
        self.calls: list[Call] = []  # given to workers and not answered
        self.workers: dict[int, list[int]] = {}  # alive, by operator
        self.said: list = []  # what the last event led to
        self.released: list[Ref] = []
        self.starts: list[StartWorker] = []
        self._take(self.scheduler.start(0.0))
        if start:
            self.all_ready()

    def _take(self, actions) -> None:
        self.said = actions
        for action in actions:
            if isinstance(action, Submit):
                self.calls.append(action.call)
            elif isinstance(action, StartWorker):
                self.workers.setdefault(action.operator, []).append(action.worker)
                self.starts.append(action)
            elif isinstance(action, StopWorker):
                self._gone(action.worker)
            elif isinstance(action, Release):
                self.released.append(action.ref)
        check(self.state)

    def _gone(self, worker: int) -> None:
        self.calls = [c for c in self.calls if c.worker != worker]
        for workers in self.workers.values():
            if worker in workers:
                workers.remove(worker)

    def tell(self, *events) -> list:
        for event in events:
            if isinstance(event, WorkerLost):
                self._gone(event.worker)
            elif isinstance(event, NodeDown):
                self.calls, self.workers = [], {}
            elif isinstance(event, (Done, Failed)):
                self.calls = [c for c in self.calls if c.id != event.call]
        self._take(self.scheduler.handle(events, self.now))
        return self.said

    def tick(self, now: float) -> list:
        self.now = now
        self._take(self.scheduler.tick(now))
        return self.said

    def all_ready(self) -> None:
        """Every worker that starts gets ready, until no more start."""
        while waiting := [w.id for w in self.state.workers.values() if not w.ready]:
            self.tell(*[WorkerReady(w) for w in waiting])

    def calls_of(self, operator: int) -> list[Call]:
        return [c for c in self.calls if c.operator == operator]

    def call_of(self, operator: int) -> Call:
        calls = self.calls_of(operator)
        assert calls, f"operator {operator} has no call\n{story(self.state)}"
        return calls[0]

    def said_of(self, kind: type) -> list:
        return [action for action in self.said if isinstance(action, kind)]

    def reports(self, kind: str) -> list[str]:
        return [r.text for r in self.said_of(Report) if r.kind == kind]

    # -- answers ------------------------------------------------------------------------------------------------

    def read(self, rows: int, row_bytes: int = 100, unit: int | None = None) -> None:
        """The source answers a read with so many rows."""
        call = next(c for c in self.calls_of(SOURCE) if unit is None or c.units[0][0] == unit)
        at = call.units[0][0]
        self.tell(Done(call.id, self.output(at, [f"{at}.{i}" for i in range(rows)], row_bytes),
                       {at: {0: Counts(rows_in=rows, out={"out": rows})}}))

    def output(self, unit: int, rows: list[str], row_bytes: int = 100, step: int = 0, port: str = "out") -> tuple[Output, ...]:
        nbytes = len(rows) * row_bytes
        return (Output(step, port, unit, Ref(rows, len(rows), nbytes)),) if rows else ()

    def passes(self, call: Call, seconds: float = 0.01) -> list:
        """A call answers every row on `out`; a sink's stores them; a flush gives a file."""
        if call.kind == "flush":
            return self.tell(Done(call.id, flushed=Flushed({0: [WrittenFile(f"file-{call.units[0]}", 1, 1)]})))
        outputs, counts = [], {}
        for piece in call.slices:
            rows = list(piece.ref.data[piece.start:piece.stop]) if piece.ref else ["note"]
            step = piece.target if call.operator == self.sink else 0
            got = counts.setdefault(piece.unit, {}).setdefault(step, Counts())
            got.add(Counts(rows_in=len(rows), out={"out": len(rows)}))
            if call.operator != self.sink:
                outputs.extend(self.output(piece.unit, rows))
        return self.tell(Done(call.id, tuple(outputs), counts, seconds))

    def finish(self) -> list[Commit]:
        """Everything goes well from here to the end; gives what was committed."""
        commits = self.said_of(Commit)
        while not self.scheduler.finished:
            self.all_ready()
            assert self.calls, story(self.state)
            call = self.calls[0]
            if call.kind == "read":
                self.read(3, unit=call.units[0][0])
            else:
                self.passes(call)
            commits += self.said_of(Commit)
        return commits


def rows_of(call: Call) -> list[str]:
    return [row for s in call.slices if s.ref is not None for row in s.ref.data[s.start:s.stop]]


def followed() -> Harness:
    """The worker of operator 1 has two short calls."""
    harness = Harness(make_stage(), cpus=1)
    harness.state.operators[1].workers_max, harness.state.operators[1].most_on = 4, {0: 4}
    harness.read(10_000)
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 1e-5)
    harness.passes(harness.call_of(harness.sink))
    return harness
