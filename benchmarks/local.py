"""The local runtime in four figures: start-up, calls a second, peak memory before a slow stage, and import time.

    python benchmarks/local.py [--only startup,calls,memory,import]

Each workload is a process of its own; memory is the proportional set (PSS) of its whole process tree plus all that lies in shared
memory, mapped or not (so what is mapped counts twice), sampled every 20 ms (Linux). Where pandas, torch or
transformers are installed, each workload runs a second time as if they were not: a run that uses none of them should not notice.
Results are printed and written to benchmarks/results/local.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
import pyarrow as pa
from packages import BESIDE, installed, without
from process_tree import descendants

from curator import Contract, ImageBatch, Resources, Sink, Source, TextBatch, stage
from curator.api.stage import SourceRange, Unit, Writer, WrittenFile
from curator.front import from_source

RESULTS = Path(__file__).parent / "results"


# -- workloads --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Numbers(Source):
    """`records` documents, one a batch."""

    records: int
    units_count: int = 4

    def units(self) -> list[Unit]:
        return [Unit((SourceRange(uri=f"numbers://{i}", size_bytes=self.records),)) for i in range(self.units_count)]

    def contract(self) -> Contract:
        return Contract(adds={"text": pa.string()})

    def read(self, unit: Unit):
        uri = unit.parts[0].uri
        for i in range(self.records // self.units_count):
            yield TextBatch(pa.table({"id": [f"{uri}/{i}"], "source": [uri], "text": [f"document {i}"]}))


@dataclass(kw_only=True)
class Pictures(Source):
    """`count` batches of one record with a payload of 8 MB."""

    count: int
    seconds: float

    def units(self) -> list[Unit]:
        return [Unit((SourceRange(uri=f"pictures://{i}", size_bytes=1),)) for i in range(4)]

    def contract(self) -> Contract:
        return Contract(adds={"pixels": None})

    def read(self, unit: Unit):
        uri = unit.parts[0].uri
        for i in range(self.count // 4):
            time.sleep(self.seconds)
            pixels = np.full((8 << 20) // 3, i % 256, dtype=np.uint8)
            yield ImageBatch(pa.table({"id": [f"{uri}/{i}"], "source": [uri]}), pixels=[pixels])


@dataclass(kw_only=True)
class Nowhere(Sink):
    """Counts rows and forgets them."""

    path: str

    def open(self, name: str) -> Writer:
        return Counter(f"{self.path}/{name}")


class Counter(Writer):
    def __init__(self, path: str) -> None:
        self.path, self.rows = path, 0

    def write(self, batch) -> None:
        self.rows += len(batch)

    def close(self) -> list[WrittenFile]:
        return [WrittenFile(self.path, self.rows, 0)]


# Three shapes of resources, so that the plan cannot fuse them; together they fit two cores.
@stage(batch_size=1, resources=Resources(cpus=0.6))
def first(batch):
    return batch


@stage(batch_size=1, resources=Resources(cpus=0.61))
def second(batch):
    return batch


@stage(batch_size=1, resources=Resources(cpus=0.62))
def third(batch):
    return batch


@stage(batch_size=1)
def slow(batch, seconds: float = 0.0):
    time.sleep(seconds)
    return batch.with_payloads(pixels=None)


def work_calls() -> dict:
    with tempfile.TemporaryDirectory() as out:
        pipeline = from_source(Numbers(records=10_000)) >> first >> second >> third >> Nowhere(path=out)
        began = time.perf_counter()
        result = pipeline.run()
        seconds = time.perf_counter() - began
    assert result.records["written"] == 10_000, result.stats
    return {"calls": 30_000, "seconds": seconds, "calls_per_s": 30_000 / seconds}


def work_memory() -> dict:
    with tempfile.TemporaryDirectory() as out:
        pipeline = from_source(Pictures(count=600, seconds=0.004)) >> slow(seconds=0.02) >> Nowhere(path=out)
        began = time.perf_counter()
        result = pipeline.run()
        seconds = time.perf_counter() - began
    assert result.records["written"] == 600, result.stats
    return {"seconds": seconds}


def work_startup() -> dict:
    """The command as a person types it: ten records, three stages."""
    with tempfile.TemporaryDirectory() as folder:
        data, recipe = Path(folder, "in.jsonl"), Path(folder, "recipe.yaml")
        data.write_text("".join(json.dumps({"id": str(i), "text": f"document {i} " * 9}) + "\n" for i in range(10)))
        recipe.write_text(f"read: {{jsonl: {{path: {data}}}}}\nsteps:\n  - map: {{columns: {{n: length(text)}}}}\n"
                          f"  - drop: {{short: n < 5}}\n  - dedup.exact: {{column: text}}\n"
                          f"write: jsonl\nout: {folder}/out\n")
        began = time.perf_counter()
        command = [sys.executable, "-m", "curator", "run", str(recipe)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        assert done.returncode == 0, done.stderr
    return {"seconds": seconds}


def work_import() -> dict:
    code = ("import time; t = time.perf_counter(); import curator; from curator import Pipeline, Stage; "
            "print(time.perf_counter() - t)")
    command = [sys.executable, "-c", code]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5)]
    return {"seconds": min(times)}


WORKLOADS = {"import": work_import, "startup": work_startup, "calls": work_calls, "memory": work_memory}


# -- measuring --------------------------------------------------------------------------------------------------


def pss_bytes(root: int) -> int:
    total = 0
    for pid in [root, *descendants(root)]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def shared_bytes() -> int:
    """Bytes in the shared-memory folders of runs."""
    total = 0
    for path in map(Path, glob("/dev/shm/curator-*/*/*")):  # which bears folders that vanish
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def measure(name: str, hidden: list[str]) -> dict:
    """Run a workload in a process of its own, which does not find the packages in `hidden`, and watch its memory."""
    with tempfile.TemporaryDirectory() as folder:
        return watched(name, without(hidden, folder, os.environ))


def watched(name: str, environment: dict[str, str]) -> dict:
    process = subprocess.Popen([sys.executable, __file__, "--work", name], stdout=subprocess.PIPE, text=True, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, pss_bytes(process.pid) + shared_bytes())
        time.sleep(0.02)
    output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(f"workload {name} failed")
    return {**json.loads(output.splitlines()[-1]), "peak_mb": peak / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.work:
        print(json.dumps(WORKLOADS[told.work]()))
        return
    beside = installed()
    print("installed:", ", ".join(beside) or "none", "of", ", ".join(BESIDE), flush=True)
    results = {"cpus": os.cpu_count(), "installed": beside}
    for name in told.only.split(","):
        for how, hidden in (("", []), (" without", beside))[:1 + bool(beside)]:
            results[name + how] = measure(name, hidden)
            print(f"{name + how:15}", "  ".join(f"{k} {v:,.2f}" for k, v in results[name + how].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "local.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
