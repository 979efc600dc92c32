"""What each tool is asked to do, and how it answers: a job on the command line, its result in a file of the job's folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """`films`: a folder of films. `place`: an empty folder, where results go and all that lies between."""

    films: str
    place: str
    workers: int = 2

    @property
    def paths(self) -> list[str]:
        return sorted(str(p) for p in Path(self.films).iterdir() if p.is_file())


def main(tasks: dict[str, Callable[[Job], dict]]) -> None:
    """`python run_x.py TASK JOB`: do it, and write what it returns to `TASK.json` in the job's place."""
    task, told = sys.argv[1], json.loads(sys.argv[2])
    job = Job(**told)
    result = tasks[task](job)
    Path(job.place, f"{task}.json").write_text(json.dumps(result), encoding="utf-8")
