"""How right the time is that a run says is left: of simulated runs of many shapes, and of real ones.

    python benchmarks/estimate.py                                          # shapes, in virtual time
    python benchmarks/estimate.py --sleep                                  # a real run whose stages sleep: load changes nothing
    python benchmarks/estimate.py text/web --set read.path=crawl/*.warc.gz [--workers 2]

A row of the table is what was said of the time left over the time that it took, less one, at some points of the way, and the share
of all moments from a tenth of the work on at which that was right within a third. Of a real run the last two seconds are left out.
Load of other processes is an error too: measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator import Resources, load, read, write
from curator.api.stage import Stage
from curator.stages.drop import Drop

POINTS = (0.1, 0.25, 0.5, 0.75)


def row(name: str, seconds: float, found: Sequence[Sequence[tuple[float, float]]]) -> str:
    """`found`: of each run how far it was in time, and the error of what was said."""
    cells = []
    for at in POINTS:
        near = [min(one, key=lambda e, at=at: abs(e[0] - at)) for one in found if one]
        cells.append(f"{100 * max((error for _, error in near), key=abs):+.0f} %" if near else "")
    every = [error for one in found for _, error in one]
    within = sum(abs(error) <= 1 / 3 for error in every) / max(1, len(every))
    return f"| {name} | {seconds:.0f} s | {' | '.join(cells)} | {within:.0%} |"


@dataclass(kw_only=True)
class Nap(Stage):
    """Takes so long for a row, and no processor."""

    row_s: float = 0.01

    def process(self, batch):
        time.sleep(self.row_s * len(batch))
        return batch


def real(name: str, pipeline: Any, workers: int | None) -> str:
    said: list[tuple[float, float, float | None]] = []
    began = time.monotonic()
    pipeline.run(workers=workers, watch=lambda s: said.append((time.monotonic() - began, s["share"], s["seconds_left"])))
    took = time.monotonic() - began
    known = [(when, left) for when, share, left in said if share >= 0.1 and took - when >= 2 and left is not None]
    return row(name, took, [[(when / took, left / (took - when) - 1) for when, left in known]])


def sleeping(folder: str) -> Any:
    """About half a minute on two cores, half of the records dropped between two stages."""
    lines = (json.dumps({"text": "x" * 2000, "n": n}) + "\n" for n in range(4000))
    (Path(folder) / "in.jsonl").write_text("".join(lines))
    second = Nap(row_s=0.006).with_(name="second", batch_size=8, resources=Resources(cpus=0.5))
    return (read(f"{folder}/in.jsonl") >> Nap(row_s=0.012).with_(batch_size=16) >> Drop(conditions={"odd": "n % 2 = 1"}) >> second
            >> write(f"{folder}/out/"))


def shapes(seeds: int) -> None:
    from tests.observe.test_estimate import SHAPES, errors

    for name, shape in SHAPES.items():
        runs = [shape.run(seed) for seed in range(seeds)]
        print(row(name, sum(told.now for told in runs) / seeds, [errors(told) for told in runs]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--sleep", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print(f"| run | took | {' | '.join(f'at {at:.0%}' for at in POINTS)} | within a third |\n| --- " + "| ---: " * 6 + "|")
    if not (given.recipe or given.sleep):
        shapes(given.seeds)
        return
    with tempfile.TemporaryDirectory() as folder:
        made = sleeping(folder) if given.sleep else load(given.recipe, {**dict(s.split("=", 1) for s in given.set), "out": f"{folder}/out"})
        print(real(given.recipe or "stages that sleep", made, given.workers))


if __name__ == "__main__":
    main()
