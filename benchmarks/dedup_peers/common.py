"""What each tool is asked to do, and how it answers: a job on the command line, its result in a file of the job's folder."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """`corpus`: a folder of JSON Lines files. `place`: an empty folder, where survivors go and all that lies between.

    `threshold`: of verification, None without any. `bands`, `rows`: None for what the tool takes at this threshold. `clusters`:
    have the clusters written too, by the tools that only do so when asked.
    """

    corpus: str
    place: str
    threshold: float | None = 0.8
    bands: int | None = 14
    rows: int | None = 8
    words: int = 5
    chars: int | None = None
    workers: int = 2
    clusters: bool = False
    variant: str = ""

    @property
    def hashes(self) -> int:
        return (self.bands or 14) * (self.rows or 8)


def texts(job: Job, limit: int = 2000) -> list[str]:
    """The first documents."""
    found: list[str] = []
    for path in sorted(Path(job.corpus).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            found += [json.loads(line)["text"] for line in lines]
        if len(found) >= limit:
            break
    return found[:limit]


def per_second(work: Callable[[list[str]], object], documents: list[str]) -> dict[str, float]:
    """Documents per CPU-second of one process: after a warm-up, the best of three."""
    work(documents[:50])
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        work(documents)
        best = min(best, time.process_time() - began)
    return {"documents": len(documents), "docs_per_cpu_s": len(documents) / best,
            "mb_per_cpu_s": sum(len(d.encode()) for d in documents) / best / 1e6}


def main(tasks: dict[str, Callable[[Job], dict | None]]) -> None:
    """`python run_x.py TASK JOB`: do it, and write what it returns to `TASK.json` in the job's place."""
    task, told = sys.argv[1], json.loads(sys.argv[2])
    job = Job(**told)
    result = tasks[task](job)
    Path(job.place, f"{task}.json").write_text(json.dumps(result or {}), encoding="utf-8")


def records(paths: list[Path]) -> list[dict]:
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line]
