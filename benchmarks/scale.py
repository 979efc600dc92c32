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
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curator import Resources
from curator.api.resources import Node
from curator.api.stage import Stage
from curator.engine.events import Action, Event, StartWorker, StopWorker, Submit
from curator.engine.protocol import Done, Emitted, Resume
from curator.pipeline.plan import Operator, Step, Target
from curator.run.loop import collecting_rarely
from curator.trial.cluster import Cost, PacedCluster, Worker

RESULTS = Path(__file__).parent / "results"
NODE = Node(cpus=64, gpus=8, budget_bytes=16 << 30)
ROW_BYTES = 4_000  # a web page's text and its scores
UNIT_ROWS = 20_000
STAGES = 12
GPUS = (4, 8)  # these stages run on half a device
ROW_S = 0.01  # of a stage on a core; on half a device a quarter of it
READ_S, WRITE_S = 0.0005, 0.0005
SETUP_S = 5.0
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


class Driven(PacedCluster):
    """Is told what to do by a driver that takes as long as it really takes. `written`: rows that sinks have answered."""

    def __init__(self, nodes: int, seconds: float, message_s: float, fast: float) -> None:
        units = int(optimum(nodes) * (seconds + 60) * 2 / UNIT_ROWS) + 20 * nodes
        costs = {o.index: Cost(row_seconds(o), SETUP_S, {} if o.kind == "sink" else {o.index + 1: 1.0}) for o in operators()}
        super().__init__(operators(), costs, [(0, UNIT_ROWS)] * units, dict.fromkeys(range(nodes), NODE), ROW_BYTES)
        self.message_s, self.fast, self.rng = message_s, fast, random.Random(0)
        self.turned = self.driver_s = self.begun_s = 0.0
        self.events = self.written = self.calls = 0  # a call: one, or a part of a read
        self.obey(self.scheduler.start(0.0))

    def run_until(self, when: float) -> None:
        while self.heap and self.now < when and not self.scheduler.finished:
            self.obey(self.step())

    def step(self) -> list[Action]:
        begin = max(self.now, self.heap[0][0], self.turned + self.scheduler.turn_s)
        due = self.scheduler.deadline()
        if due is not None and due < begin:
            begin, told = max(due, self.now), 0
            actions, cost = self.timed(self.scheduler.tick, begin)
        else:
            events = self.heard(begin, BURST)
            told = len(events)
            actions, cost = self.timed(self.scheduler.handle, events, begin)
        said = sum(isinstance(a, (Submit, Resume, StartWorker, StopWorker)) for a in actions)
        took = cost + (told + said) * self.message_s / self.fast
        self.events, self.driver_s = self.events + told, self.driver_s + took
        self.turned, self.now = begin, begin + took
        return actions

    def timed(self, what: Callable[..., list[Action]], *given: Any) -> tuple[list[Action], float]:
        began = time.thread_time()
        actions = what(*given)
        return actions, (time.thread_time() - began) / self.fast

    def happen(self, sender: int, event: Event) -> list[Event]:
        worker = self.workers.get(sender)
        if isinstance(event, Done) and worker is not None and worker.operator.kind == "sink":
            self.written += sum(piece.rows for piece in worker.calls[0].slices)
        return super().happen(sender, event)

    def takes_s(self, worker: Worker, rows: int) -> float:
        took = super().takes_s(worker, rows) * (1.0 if worker.operator.kind == "source" else self.rng.uniform(0.8, 1.2))
        self.calls, self.begun_s = self.calls + 1, self.begun_s + took
        return took

    @property
    def worked_s(self) -> float:
        """Seconds of work so far: of what was begun, without what is still to be done of it."""
        return self.begun_s - sum(max(0.0, when - self.now) for when, _, _, event in self.heap if isinstance(event, (Done, Emitted)))


def measure(nodes: int, seconds: float, message_us: float, fast: float) -> dict[str, Any]:
    """Half of the time passes before anything is measured."""
    began = time.perf_counter()
    cluster = Driven(nodes, seconds, message_us / 1e6, fast)
    cluster.run_until(seconds / 2)
    begin, events, written, driver = cluster.now, cluster.events, cluster.written, cluster.driver_s
    worked, begun, calls = cluster.worked_s, cluster.begun_s, cluster.calls
    cluster.run_until(seconds)
    passed = cluster.now - begin
    worked, begun, calls = cluster.worked_s - worked, cluster.begun_s - begun, cluster.calls - calls
    return {"nodes": nodes, "workers": len(cluster.workers), "cores_busy": round(worked / passed / (nodes * NODE.cpus), 3),
            "rows_s": round((cluster.written - written) / passed), "rows_of_optimum": round(
                (cluster.written - written) / passed / optimum(nodes), 3),
            "driver_busy": round((cluster.driver_s - driver) / passed, 3), "events_s": round((cluster.events - events) / passed),
            "us_an_event": round(1e6 * (cluster.driver_s - driver) / max(1, cluster.events - events), 1),
            "call_s": round(begun / max(1, calls), 2),
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
        with collecting_rarely():  # as a run does
            results.append(measure(int(nodes), given.seconds, given.message_us, given.fast))
        print("  ".join(f"{k} {v}" for k, v in results[-1].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scale.json").write_text(json.dumps({"given": vars(given), "results": results}, indent=1))


if __name__ == "__main__":
    main()
