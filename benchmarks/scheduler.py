"""The scheduler's events a second, on one node and on clusters of up to 1,000, with workers that answer at once.

    python benchmarks/scheduler.py [--only node,hundred,thousand] [--events 200000] [--burst 64]

Nothing is computed: a worker's answer is ready when its call is given out, and answers come back in the order of the calls,
some at a time as a runtime hands them over. Time is virtual; what is measured is the processor time in `Scheduler.handle`
alone, after as many events as there are workers have warmed it up. Results are printed and written to
benchmarks/results/scheduler.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from curator import Resources
from curator.api.counts import Counts
from curator.api.resources import Node
from curator.api.stage import Stage
from curator.engine.events import Action, Event, StartWorker, Submit, WorkerReady
from curator.engine.protocol import Call, Done, Flushed, Output, Ref
from curator.engine.scheduler import Scheduler
from curator.pipeline.plan import Operator, Step, Target

RESULTS = Path(__file__).parent / "results"
ROW_BYTES = 2_000
ROW_S = 0.01  # of a stage on a core; a GPU stage is eight times faster, as there are eight cores for each GPU
UNIT_ROWS = 400
PART_ROWS = 20  # rows of a batch that a source sends


@dataclass(frozen=True)
class Case:
    """A cluster and a line of stages. `gpus`: which of the stages run on GPUs, half a device each worker."""

    name: str
    nodes: int
    cpus: int
    node_gpus: int
    stages: int
    gpus: tuple[int, ...] = ()


CASES = [
    Case("node", 1, 16, 0, 3),
    Case("hundred", 100, 64, 8, 12, (4, 8)),
    Case("thousand", 1000, 64, 8, 12, (4, 8)),
]


def operators_of(case: Case) -> list[Operator]:
    """A source, the stages in a line, and the sinks."""
    made = []
    for index in range(case.stages + 2):
        kind = "source" if not index else "sink" if index > case.stages else "map"
        need = Resources(gpus=0.5) if index in case.gpus else Resources()
        step = Step(f"stage{index}", Stage().with_(name=f"stage{index}", resources=need), "key")
        routes = {(0, "out"): (Target(index + 1),)} if kind != "sink" else {}
        made.append(Operator(index, kind, (step,), (), routes))
    return made


class Cluster:
    """Workers that have answered when they are asked. `burst`: answers that the scheduler gets at once, at most."""

    def __init__(self, case: Case, units: int, burst: int) -> None:
        self.operators, self.burst = operators_of(case), burst
        nodes = {n: Node(cpus=case.cpus, gpus=case.node_gpus, budget_bytes=4 << 30) for n in range(case.nodes)}
        self.scheduler = Scheduler(self.operators, [(0, None)] * units, nodes)
        self.answers: deque[tuple[float, Event]] = deque()  # when, what
        self.workers: dict[int, tuple[int, int]] = {}  # its operator and node
        self.now = self.seconds = 0.0
        self.events = 0
        self.obey(self.scheduler.start(0.0))

    def run(self, events: int) -> None:
        """Until so many events more are dealt with, or the run ends."""
        end, seconds = self.events + events, 0.0
        wall, processor = time.perf_counter(), time.thread_time()
        while self.events < end and self.answers and not self.scheduler.finished:
            taken = [self.answers.popleft() for _ in range(min(self.burst, len(self.answers)))]
            self.now = max(self.now, taken[-1][0])
            self.events += len(taken)
            told = [event for _, event in taken]
            began = time.perf_counter()
            actions = self.scheduler.handle(told, self.now)
            seconds += time.perf_counter() - began
            self.obey(actions)
        # Others may use the machine: of the time that passed, count the share in which this process ran.
        self.seconds += seconds * (time.thread_time() - processor) / (time.perf_counter() - wall)

    def obey(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Submit):
                self.answers.append((self.now + 0.2, self.answer(action.call)))
            elif isinstance(action, StartWorker):
                self.workers[action.worker] = (action.operator, action.places[0].node)
                self.answers.append((self.now + 0.2, WorkerReady(action.worker, 1.0)))

    def answer(self, call: Call) -> Done:
        operator = self.operators[call.operator]
        if call.kind == "flush":
            return Done(call.id, flushed=Flushed())
        if call.kind == "read":
            unit = call.units[0][0]
            outputs = tuple(self.output(unit, PART_ROWS, call.node) for _ in range(UNIT_ROWS // PART_ROWS))
            return Done(call.id, outputs, {unit: {0: Counts(rows_in=UNIT_ROWS, out={"out": UNIT_ROWS})}}, 0.2)
        rows: dict[int, int] = {}
        for piece in call.slices:
            rows[piece.unit] = rows.get(piece.unit, 0) + piece.rows
        counts = {unit: {0: Counts(rows_in=n, out={"out": n})} for unit, n in rows.items()}
        sink = operator.kind == "sink"
        outputs = () if sink else tuple(self.output(unit, n, call.node) for unit, n in rows.items())
        pace = ROW_S / 20 if sink else ROW_S / 4 if operator.resources.gpus else ROW_S
        return Done(call.id, outputs, counts, call.rows * pace)

    def output(self, unit: int, rows: int, node: int) -> Output:
        return Output(0, "out", unit, Ref(None, rows, rows * ROW_BYTES, node))


def measure(case: Case, events: int, burst: int) -> dict:
    most = case.nodes * case.cpus
    each = (case.stages + 2) * UNIT_ROWS // PART_ROWS  # events of a unit, about
    cluster = Cluster(case, 4 * most + (2 * events + 20 * most) // each, burst)
    began = time.perf_counter()
    while len(cluster.workers) < 0.9 * most and cluster.events < 20 * most:
        cluster.run(most // 4)
    warm = {"warm_events": cluster.events, "warm_s": round(time.perf_counter() - began, 2)}
    before, seconds = cluster.events, cluster.seconds
    cluster.run(events)
    seconds, done = cluster.seconds - seconds, cluster.events - before
    return {"case": case.name, "nodes": case.nodes, "workers": len(cluster.workers), "operators": len(cluster.operators), **warm,
            "events": done, "seconds": round(seconds, 2), "events_s": round(done / seconds), "us": round(1e6 * seconds / done, 1),
            "working": cluster.scheduler.state.working, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(c.name for c in CASES))
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--burst", type=int, default=64)
    given = parser.parse_args()
    results = []
    gc.freeze()
    for case in CASES:
        if case.name in given.only.split(","):
            results.append(measure(case, given.events, given.burst))
            print("  ".join(f"{k} {v}" for k, v in results[-1].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scheduler.json").write_text(json.dumps({"burst": given.burst, "results": results}, indent=1))


if __name__ == "__main__":
    main()
