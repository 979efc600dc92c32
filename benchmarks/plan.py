"""How long a plan of workers takes, and how near it comes to what the nodes could do without borders between them.

    python benchmarks/plan.py [--nodes 10,100,1000] [--repeats 3]

Twelve operators (a source, a sink, six on cores, a share of a GPU twice, a whole GPU, two GPUs) on nodes of 64 cores and 8 GPUs:
a cold plan, then, ten times, rates that moved by up to 20 % and a plan that starts from the one before. Times are the best of
`--repeats`, of the re-plans the worst of ten. Also with half the cores, so that these limit, and on nodes of three kinds. Printed
and written to benchmarks/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from curator.api.resources import Node, Resources
from curator.engine.balance.allocation import Allocation, Demand, allocate

RESULTS = Path(__file__).parent / "results"
MOVES = 10  # re-plans

SHAPES = [  # what a worker holds, rows/s of one worker, rows that reach it a source row
    (Resources(), 400.0, 1.0), (Resources(), 2.0, 1.0), (Resources(cpus=2), 3.0, 1.2), (Resources(), 8.0, 6.0),
    (Resources(), 40.0, 6.0), (Resources(gpus=0.25, gpu_memory_gb=10), 60.0, 6.0), (Resources(gpus=1), 20.0, 4.0),
    (Resources(cpus=0.5), 9.0, 3.0), (Resources(gpus=0.5, gpu_memory_gb=30, cpus=2), 40.0, 3.0), (Resources(gpus=2), 15.0, 1.0),
    (Resources(memory_gb=6), 10.0, 2.0), (Resources(), 500.0, 1.0),
]


def demands(rng: np.random.Generator, spread: float = 0.0) -> list[Demand]:
    return [Demand(need, rate * float(rng.uniform(1 - spread, 1 + spread)), rows) for need, rate, rows in SHAPES]


def equal_nodes(count: int) -> dict[int, Node]:
    return {i: Node(cpus=64, gpus=8, gpu_memory_gb=80, memory_bytes=512 << 30) for i in range(count)}


def mixed_nodes(count: int) -> dict[int, Node]:
    kinds = [Node(cpus=96, gpus=8, gpu_memory_gb=80, memory_bytes=1 << 40), Node(cpus=128, memory_bytes=256 << 30),
             Node(cpus=32, gpus=4, gpu_memory_gb=40, memory_bytes=128 << 30)]
    return {i: kinds[i % 3] for i in range(count)}


def kept(old: Allocation, new: Allocation) -> float:
    """Share of the old plan's workers, as far as the new one needs as many, that stay where they are."""
    pairs = [(Counter(a), Counter(b)) for a, b in zip(old.workers, new.workers, strict=True)]
    return sum((a & b).total() for a, b in pairs) / max(1, sum(min(a.total(), b.total()) for a, b in pairs))


def timed(repeats: int, *told) -> tuple[Allocation, float]:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        plan = allocate(*told)
        best = min(best, time.perf_counter() - began)
    return plan, best


def measure(nodes: dict[int, Node], repeats: int) -> dict:
    rng = np.random.default_rng(0)
    plan, cold_s = timed(repeats, demands(rng), nodes)
    rows = {"nodes": len(nodes), "workers": sum(map(len, plan.workers)), "binding": plan.binding, "cold_s": cold_s,
            "of_bound": plan.rate / plan.bound, "replan_s": 0.0, "replan_of_bound": 1.0, "kept": 1.0}
    for _ in range(MOVES):
        old = plan
        plan, seconds = timed(repeats, demands(rng, 0.2), nodes, old.workers)
        rows["replan_s"] = max(rows["replan_s"], seconds)
        rows["replan_of_bound"] = min(rows["replan_of_bound"], plan.rate / plan.bound)
        rows["kept"] = min(rows["kept"], kept(old, plan))
    return rows


def fewer_cores(nodes: dict[int, Node]) -> dict[int, Node]:
    return {i: replace(node, cpus=node.cpus // 2) for i, node in nodes.items()}


CASES = {"equal": equal_nodes, "half the cores": lambda n: fewer_cores(equal_nodes(n)), "three kinds": mixed_nodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,100,1000")
    parser.add_argument("--repeats", type=int, default=3)
    told = parser.parse_args()
    results: dict = {"cpus": os.cpu_count(), "cases": []}
    print(f"{'case':18} {'nodes':>6} {'workers':>8} {'limit':>6} {'cold s':>8} {'of bound':>9} {'re-plan s':>10} "
          f"{'of bound':>9} {'kept':>7}")
    for name, make in CASES.items():
        for count in map(int, told.nodes.split(",")):
            r = measure(make(count), told.repeats)
            results["cases"].append({"case": name, **r})
            print(f"{name:18} {r['nodes']:6,} {r['workers']:8,} {r['binding']:>6} {r['cold_s']:8.3f} {r['of_bound']:9.2%} "
                  f"{r['replan_s']:10.3f} {r['replan_of_bound']:9.2%} {r['kept']:7.1%}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "plan.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
