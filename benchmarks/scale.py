"""What share of a cluster works, when one driver has to tell all of it what to do: a simulation with the driver's real cost.

    python benchmarks/scale.py [--nodes 10,100,1000] [--seconds 60] [--message-us 20] [--fast 1]

The scheduler is the real one; nodes, workers and time are not. A worker of a stage takes `ROW_S` a row, a fifth more or less, and
its answer waits until the driver has time for it: the driver is busy for as long as `Scheduler.handle` really takes on this
machine, and `--message-us` for each message in and out. `cores_busy`: the share of all cores that work, in the second half of the
time; the optimum is 1. `rows_s`: what sinks write meanwhile; it is less as long as queues before them still fill.
Printed and written to benchmarks/results/scale.json. `--fast`: how many times faster the driver's machine is.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import json
import random
import resource
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curator import Resources
from curator.api.counts import Counts
from curator.api.resources import Node
from curator.api.stage import Stage
from curator.engine.events import Action, Event, StartWorker, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.protocol import Call, Done, Emitted, Flushed, Output, Ref, Resume
from curator.engine.scheduler import Scheduler
from curator.pipeline.plan import Operator, Step, Target

RESULTS = Path(__file__).parent / "results"
NODE = Node(cpus=64, gpus=8, budget_bytes=16 << 30)
ROW_BYTES = 4_000  # a web page's text and its scores
UNIT_ROWS = 20_000
STAGES = 12
GPUS = (4, 8)  # these stages run on half a device
ROW_S = 0.01  # of a stage on a core; on half a device a quarter of it
READ_S, WRITE_S = 0.0005, 0.0005
SETUP_S = 5.0
PART_ROWS_MAX = (8 << 20) // ROW_BYTES
BURST = 2048  # answers that the driver takes at once, at most


def operators() -> list[Operator]:
    """A source, the stages in a line, and the sink."""
    made = []
    for index in range(STAGES + 2):
        kind = "source" if not index else "sink" if index > STAGES else "map"
        need = Resources(gpus=0.5) if index in GPUS else Resources()
        step = Step(f"stage{index}", Stage().with_(name=f"stage{index}", resources=need), "key")
        routes = {(0, "out"): (Target(index + 1),)} if kind != "sink" else {}
        made.append(Operator(index, kind, (step,), (), routes))
    return made


def row_seconds(operator: Operator) -> float:
    if operator.kind != "map":
        return READ_S if operator.kind == "source" else WRITE_S
    return ROW_S / 4 if operator.resources.gpus else ROW_S


def optimum(nodes: int) -> float:
    """Rows a second if no core and no GPU ever waited."""
    cores = sum(row_seconds(o) for o in operators())
    devices = sum(row_seconds(o) * o.resources.gpus for o in operators())
    return nodes * min(NODE.cpus / cores, NODE.gpus / devices)


@dataclass
class Worker:
    operator: Operator
    node: int
    calls: deque = field(default_factory=deque)  # the first one runs
    left: int = 0  # rows of a read that are still to come


class Cluster:
    """Nodes, workers and a driver, in virtual time. `written`: rows that sinks have answered."""

    def __init__(self, nodes: int, seconds: float, message_s: float, fast: float) -> None:
        self.operators, self.message_s, self.fast = operators(), message_s, fast
        self.rng, self.order = random.Random(0), itertools.count()
        units = int(optimum(nodes) * (seconds + 60) * 2 / UNIT_ROWS) + 20 * nodes
        self.scheduler = Scheduler(self.operators, [(0, None)] * units, dict.fromkeys(range(nodes), NODE))
        self.heap: list[tuple[float, int, int, Event]] = []  # when, order, worker, what it says
        self.workers: dict[int, Worker] = {}
        self.now = self.turned = self.driver_s = 0.0
        self.events = self.written = 0
        self.seconds: Counter[int] = Counter()  # of calls and parts of reads, and their number, by operator
        self.calls: Counter[int] = Counter()
        self.obey(self.scheduler.start(0.0))

    def run(self, until: float) -> None:
        while self.heap and self.now < until and not self.scheduler.finished:
            begin = max(self.now, self.heap[0][0], self.turned + self.scheduler.turn_s)
            due = self.scheduler.deadline()
            if due is not None and due < begin:
                begin, told = max(due, self.now), 0
                actions, cost = self.timed(self.scheduler.tick, begin)
            else:
                events = self.take(begin)
                told = len(events)
                actions, cost = self.timed(self.scheduler.handle, events, begin)
            said = sum(isinstance(a, (Submit, Resume, StartWorker, StopWorker)) for a in actions)
            self.turned = begin
            took = cost + (told + said) * self.message_s / self.fast
            self.events, self.driver_s = self.events + told, self.driver_s + took
            self.now = begin + took
            self.obey(actions)

    def timed(self, what: Callable[..., list[Action]], *given: Any) -> tuple[list[Action], float]:
        began = time.thread_time()
        actions = what(*given)
        return actions, (time.thread_time() - began) / self.fast

    def take(self, until: float) -> list[Event]:
        """What workers have said by now. A worker goes on with its next call when it has answered, whether or not it was heard."""
        events = []
        while self.heap and self.heap[0][0] <= until and len(events) < BURST:
            when, _, number, event = heapq.heappop(self.heap)
            worker = self.workers.get(number)
            if worker is not None and isinstance(event, Done):
                call = worker.calls.popleft()
                self.written += call.rows if worker.operator.kind == "sink" and call.kind == "process" else 0
                if worker.calls:
                    self.begin(number, when)
            events.append(event)
        return events

    def obey(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Submit):
                worker = self.workers[action.call.worker]
                worker.calls.append(action.call)
                if len(worker.calls) == 1:
                    self.begin(action.call.worker, self.now)
            elif isinstance(action, Resume):
                self.read_on(action.worker, self.now)
            elif isinstance(action, StartWorker):
                self.workers[action.worker] = Worker(self.operators[action.operator], action.places[0].node)
                self.send(self.now + SETUP_S, action.worker, WorkerReady(action.worker, SETUP_S))
            elif isinstance(action, StopWorker):
                del self.workers[action.worker]
                self.send(self.now + 0.1, action.worker, WorkerLost(action.worker, ""))

    # -- workers --------------------------------------------------------------------------------------------

    def send(self, when: float, worker: int, event: Event) -> None:
        heapq.heappush(self.heap, (when, next(self.order), worker, event))

    def begin(self, number: int, when: float) -> None:
        worker = self.workers[number]
        call = worker.calls[0]
        if call.kind == "read":
            worker.left = UNIT_ROWS
            self.read_on(number, when)
        elif call.kind == "flush":
            self.send(when + 0.05, number, Done(call.id, flushed=Flushed()))
        else:
            self.process(number, worker, call, when)

    def process(self, number: int, worker: Worker, call: Call, when: float) -> None:
        rows: Counter[int] = Counter()
        for piece in call.slices:
            rows[piece.unit] += piece.rows
        counts = {unit: {0: Counts(rows_in=n, out={"out": n})} for unit, n in rows.items()}
        sink = worker.operator.kind == "sink"
        outputs = () if sink else tuple(self.output(unit, n, worker.node) for unit, n in rows.items())
        took = call.rows * row_seconds(worker.operator) * self.rng.uniform(0.8, 1.2)
        self.worked(worker, took)
        self.send(when + took, number, Done(call.id, outputs, counts, took))

    def read_on(self, number: int, when: float) -> None:
        worker = self.workers[number]
        call = worker.calls[0]
        rows = min(worker.left, max(1, int(call.part_s / READ_S)), PART_ROWS_MAX)
        worker.left -= rows
        unit, took = call.units[0][0], rows * READ_S
        outputs = (self.output(unit, rows, worker.node),)
        counts = {unit: {0: Counts(rows_in=rows, out={"out": rows})}}
        self.worked(worker, took)
        self.send(when + took, number, Emitted(call.id, outputs, counts) if worker.left
                  else Done(call.id, outputs, counts, UNIT_ROWS * READ_S))

    def worked(self, worker: Worker, seconds: float) -> None:
        self.calls[worker.operator.index] += 1
        self.seconds[worker.operator.index] += seconds

    def output(self, unit: int, rows: int, node: int) -> Output:
        return Output(0, "out", unit, Ref(None, rows, rows * ROW_BYTES, node))


def measure(nodes: int, seconds: float, message_us: float, fast: float) -> dict[str, Any]:
    """Half of the time passes before anything is measured."""
    began = time.perf_counter()
    cluster = Cluster(nodes, seconds, message_us / 1e6, fast)
    cluster.run(seconds / 2)
    begin, events, written, driver = cluster.now, cluster.events, cluster.written, cluster.driver_s
    worked, calls = cluster.seconds.total(), cluster.calls.total()
    cluster.run(seconds)
    passed = cluster.now - begin
    worked, calls = cluster.seconds.total() - worked, cluster.calls.total() - calls
    return {"nodes": nodes, "workers": len(cluster.workers), "cores_busy": round(worked / passed / (nodes * NODE.cpus), 3),
            "rows_s": round((cluster.written - written) / passed), "rows_of_optimum": round(
                (cluster.written - written) / passed / optimum(nodes), 3),
            "driver_busy": round((cluster.driver_s - driver) / passed, 3), "events_s": round((cluster.events - events) / passed),
            "us_an_event": round(1e6 * (cluster.driver_s - driver) / max(1, cluster.events - events), 1),
            "call_s": round(worked / max(1, calls), 2),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "took_s": round(time.perf_counter() - began)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="10,100,1000")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--message-us", type=float, default=20)
    parser.add_argument("--fast", type=float, default=1)
    given = parser.parse_args()
    gc.freeze()
    results = []
    for nodes in given.nodes.split(","):
        results.append(measure(int(nodes), given.seconds, given.message_us, given.fast))
        print("  ".join(f"{k} {v}" for k, v in results[-1].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scale.json").write_text(json.dumps({"given": vars(given), "results": results}, indent=1))


if __name__ == "__main__":
    main()
