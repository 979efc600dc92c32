"""The driver and many small units: its memory, commits a second, and seconds until a resumed run begins.

    python benchmarks/units.py [--units 200000] [--only empty,rows,inline] [--inline-units 20000]

Each case is a run in a process of its own, then a second one over one percent more units, which finds the others done.

    empty    units without a row, on a runtime that answers at once: scheduler, loop and ledger alone
    rows     units of one row, likewise: a source, three stages that add thirteen columns, a sink
    inline   the same in the driver's process (`workers=0`): with the work

`bytes_a_unit`: what the process grew by from before the units were listed until the last one was committed, each. `listing`: of
these, what the source's own list of units takes. `commits_a_second`: of processor time, from the start of the first phase to its
end, ledger included. `resume_s`: seconds from the call of `run` to the first read. Linux. Results are printed, and written
to benchmarks/results/units.json; about five minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import curator.run.loop
from curator import Contract, Sink, Source, Stage, TextBatch
from curator.api.counts import WRITTEN, Counts
from curator.api.stage import SourceRange, Unit, Writer, WrittenFile, setting
from curator.api.summary import ColumnSummary
from curator.engine import events as ev
from curator.engine.protocol import Call, Done, Flushed, Output, Ref
from curator.front import Pipeline, from_source
from curator.runtime.workers import Job

RESULTS = Path(__file__).parent / "results"
CASES = ("empty", "rows", "inline")
BURST = 64  # answers that the loop gets at once, at most
COLUMNS = (6, 6, 1)  # that the stages add, each


@dataclass(kw_only=True)
class Numbers(Source):
    """So many units that nobody stored, with one row or none each."""

    rows: int
    count: int = setting(0)

    def contract(self) -> Contract:
        return Contract(adds={"text": pa.string()})

    def units(self) -> list[Unit]:
        return [Unit((SourceRange(uri=f"s3://bucket/folder/of/many/files/document-{n:08d}.jsonl", size_bytes=2000 + n % 7,
                           version=f"{n:032x}"),)) for n in range(self.count)]

    def read(self, unit: Unit) -> Any:
        if self.rows:
            uri = unit.parts[0].uri
            yield TextBatch(pa.table({"id": [uri], "source": [uri], "text": ["a few words of text"]}))


@dataclass(kw_only=True)
class Adds(Stage):
    """Adds columns of numbers."""

    number: int
    columns: int

    def contract(self) -> Contract:
        return Contract(adds={f"score_{self.number}_{c}": pa.float64() for c in range(self.columns)})

    def process(self, batch: TextBatch) -> TextBatch:
        return batch.with_columns({name: pa.array([0.5] * len(batch)) for name in self.contract().adds})


@dataclass(kw_only=True)
class Nowhere(Sink):
    """Names a file for each unit and writes none."""

    path: str
    storage_options: dict | None = None

    def open(self, name: str) -> Writer:
        return _Nothing(f"{self.path}/{name}.parquet")


class _Nothing(Writer):
    def __init__(self, path: str) -> None:
        self.path, self.rows = path, 0

    def write(self, batch: TextBatch) -> None:
        self.rows += len(batch)

    def close(self) -> list[WrittenFile]:
        return [WrittenFile(self.path, self.rows, 1000)]

    def abort(self) -> None:
        pass


def pipeline(count: int, rows: int, out: str) -> Pipeline:
    made = from_source(Numbers(rows=rows, count=count))
    for number, columns in enumerate(COLUMNS):
        made = made >> Adds(number=number, columns=columns).with_(name=f"adds_{number}")
    return made >> Nowhere(path=out)


class Instant:
    """A runtime whose workers have answered when they are asked."""

    def __init__(self, job: Job, rows: int) -> None:
        self.job, self.rows = job, rows
        self.answers: deque[ev.Event] = deque()

    def execute(self, action: ev.Action) -> None:
        match action:
            case ev.StartWorker():
                self.answers.append(ev.WorkerReady(action.worker))
            case ev.StopWorker() if not action.kill:
                self.answers.append(ev.WorkerLost(action.worker, "stopped"))
            case ev.Submit():
                self.answers.append(self.answer(action.call))

    def wait(self, timeout: float | None) -> list[ev.Event]:
        return [self.answers.popleft() for _ in range(min(BURST, len(self.answers)))]

    def close(self) -> None:
        pass

    def answer(self, call: Call) -> Done:
        operator = self.job.operators[call.operator]
        if call.kind == "flush":
            (unit, attempt), = call.units
            name = self.job.unit_of(unit, attempt).name
            files = {s: [WrittenFile(f"{step.stage.path}/{name}.parquet", 1, 1000)] for s, step in enumerate(operator.steps)
                     if isinstance(step.stage, Nowhere)}
            return Done(call.id, flushed=Flushed(files))
        if call.kind == "read":
            (unit, _), = call.units
            counts = {unit: {0: Counts(rows_in=self.rows, out={"out": self.rows}, busy_s=0.0001)}}
            return Done(call.id, self.outputs(unit, 0), counts, 0.001)
        counts = {piece.unit: {s: self.counts(step.stage) for s, step in enumerate(operator.steps)
                               if operator.kind != "sink" or s == piece.target} for piece in call.slices}
        last = len(operator.steps) - 1
        outputs = [o for piece in call.slices if operator.kind != "sink" for o in self.outputs(piece.unit, last)]
        return Done(call.id, tuple(outputs), counts, 0.001 * call.rows)

    def outputs(self, unit: int, step: int) -> tuple[Output, ...]:
        return (Output(step, "out", unit, Ref(b"", 1, 1000)),) if self.rows else ()

    def counts(self, stage: Stage) -> Counts:
        if not isinstance(stage, Adds):
            return Counts(rows_in=1, out={WRITTEN: 1}, busy_s=0.0001)
        columns = {name: ColumnSummary(1, 0, 0.5, 0.5, None) for name in stage.contract().adds}
        return Counts(rows_in=1, out={"out": 1}, busy_s=0.0001, columns=columns)


# -- one run ----------------------------------------------------------------------------------------------------


class Measured:
    """The runtime of a run, with what is measured around it."""

    def __init__(self, make: Any, rows: int, instant: bool) -> None:
        self.make, self.rows, self.instant = make, rows, instant
        self.found: dict[str, float] = {}

    def __call__(self, job: Job, means: Any) -> tuple[Any, Any]:
        runtime, nodes = self.make(job, means)
        inner = Instant(job, self.rows) if self.instant else runtime
        execute, close = inner.execute, inner.close

        def executed(action: ev.Action) -> None:
            if isinstance(action, ev.Submit):
                self.found.setdefault("first_read", time.monotonic())
                inner.execute = execute
            execute(action)

        def closed() -> None:
            gc.collect()
            self.found |= {"cpu_end": time.process_time(), "bytes_end": resident()}
            close()

        inner.execute, inner.close = executed, closed
        self.found["cpu_begin"] = time.process_time()
        return inner, nodes


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def run_one(case: str, count: int, done: int, out: str) -> dict[str, float]:
    """A run over `count` units, of which `done` are finished already."""
    rows = case != "empty"
    measured = Measured(curator.run.loop.make_runtime, int(rows), case != "inline")
    curator.run.loop.make_runtime = measured
    before = resident()
    listed = Numbers(rows=1, count=count).units()
    listing = resident() - before
    del listed
    gc.collect()
    made, before, began = pipeline(count, int(rows), out), resident(), time.monotonic()
    result = made.run(workers=0, watch=lambda snapshot: None)
    assert result.ok, result
    assert result.records["written"] == count * rows, result
    assert result.stats["units"] == {"done": count, "total": count, "skipped": done}, result
    found = measured.found
    cpu_s = found["cpu_end"] - found["cpu_begin"]
    return {"units": count, "done_before": done, "commits_a_second": (count - done) / cpu_s,
            "bytes_a_unit": (found["bytes_end"] - before) / count, "listing": listing / count,
            "begins_s": found["first_read"] - began, "whole_s": time.monotonic() - began}


def run_case(case: str, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        runs = []
        for total, done in ((count, 0), (count + count // 100, count)):
            job = json.dumps([case, total, done, f"{out}/run"])
            told = subprocess.run([sys.executable, __file__, "--one", job], check=True, stdout=subprocess.PIPE, text=True)
            runs.append(json.loads(told.stdout.splitlines()[-1]))
        ledger = list(Path(out, "run/_run/ledger").iterdir())
        first, again = runs
        return {"units": count, "commits_a_second": round(first["commits_a_second"]),
                "bytes_a_unit": round(first["bytes_a_unit"]), "listing": round(first["listing"]),
                "begins_s": round(first["begins_s"], 2),
                "whole_s": round(first["whole_s"], 1), "resume_s": round(again["begins_s"], 2),
                "bytes_a_unit_resumed": round(again["bytes_a_unit"]), "ledger_files": len(ledger),
                "ledger_bytes_a_unit": round(sum(p.stat().st_size for p in ledger) / count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=200_000)
    parser.add_argument("--inline-units", type=int, default=20_000)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(run_one(*json.loads(told.one))))
        return
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "units.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    for case in told.only.split(","):
        kept[case] = run_case(case, told.inline_units if case == "inline" else told.units)
        print(case, *(f"{name} {value:,}" for name, value in kept[case].items()), sep="\n  ", flush=True)
        path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
