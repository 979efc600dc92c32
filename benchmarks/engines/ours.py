"""A job on Curator. Variants: `ray` on a Ray of its own, `raydata` by Ray Data there, `fused` with stages of one shape, which the
plan runs in one worker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import common
import numpy as np
import pyarrow as pa

from curator import Contract, ImageBatch, Resources, Sink, Source, Stage, TextBatch
from curator.api.stage import SourceRange, Unit, Writer, WrittenFile
from curator.front import from_source
from curator.run.run import run as run_pipeline


@dataclass(kw_only=True)
class Tasks(Source):
    """The tasks, in a few units; for Ray Data, where a unit is a row, in as many as keep all CPUs at work."""

    job: common.Job

    def units(self) -> list[Unit]:
        count = 1 if self.job.paced_s else min(16 * self.job.cpus if self.job.variant == "raydata" else 4, self.job.tasks)
        edges = [i * self.job.tasks // count for i in range(count + 1)]
        return [Unit((SourceRange(uri="tasks://", size_bytes=b - a, start=a, stop=b),)) for a, b in pairwise(edges)]

    def contract(self) -> Contract:
        return Contract(adds={"number": pa.int64(), "born": pa.float64(), "text": pa.string()})

    def read(self, unit: Unit):
        part = unit.parts[0]
        for number in range(part.start, part.stop):
            if self.job.paced_s:
                time.sleep(self.job.paced_s)
            table = {"id": [str(number)], "source": [part.uri], "number": [number], "born": [time.time()],
                     "text": [self.job.text]}
            yield (ImageBatch if self.job.made_bytes else TextBatch)(pa.table(table))


@dataclass(kw_only=True)
class Step(Stage):
    job: common.Job
    stage: int

    def process(self, batch):
        born = [common.act(self.job, self.stage, int(n), float(b))
                for n, b in zip(batch.column("number"), batch.column("born"), strict=True)]
        batch = batch.with_columns({"born": born})
        if self.job.made_bytes and self.stage == 0:
            return batch.with_payloads(pixels=[np.full(self.job.made_bytes, n % 256, np.uint8) for n in batch.column("number")])
        return batch.with_payloads(pixels=None) if self.job.made_bytes and self.stage == 2 else batch


@dataclass(kw_only=True)
class Numbers(Sink):
    """The numbers of the tasks, a line each."""

    path: str

    def open(self, name: str) -> Writer:
        return NumbersWriter(f"{self.path}/{name}")


class NumbersWriter(Writer):
    def __init__(self, path: str) -> None:
        self.path, self.numbers = path, []

    def write(self, batch) -> None:
        self.numbers += batch.column("number")

    def close(self) -> list[WrittenFile]:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        Path(self.path).write_text("".join(f"{n}\n" for n in self.numbers))
        return [WrittenFile(self.path, len(self.numbers), Path(self.path).stat().st_size)]


def run(job: common.Job) -> dict:
    options: dict = {"workers": job.cpus, "ray": job.variant.startswith("ray")}
    if job.variant == "raydata":
        options["engine"] = "ray-data"
    if job.lose_after:
        address, remove = common.two_nodes(job)
        options = {"ray": address}
        common.lose_node(job, remove)
    pipeline = from_source(Tasks(job=job))
    for stage in range(3):
        # Three shapes, so that the plan cannot fuse them.
        cpus = 1.0 if job.variant.endswith("fused") else 1.0 - stage / 1000
        pipeline = pipeline >> Step(job=job, stage=stage).with_(resources=Resources(cpus=cpus), batch_size=1, name=f"step{stage}")
    out = f"{job.place}/out"
    result = run_pipeline((pipeline >> Numbers(path=out)).named("job", max_failed=0.1), **options)
    numbers = [int(line) for path in Path(out, "data").glob("part-*") for line in path.read_text().split()]
    ended = {} if result.ok else {"error": result.stats["message"]}
    return {"outputs": len(set(numbers)), "rows": len(numbers), "failed": result.records["failed"],
            "version": version("curator-core"), **ended}


if __name__ == "__main__":
    common.main(run)
