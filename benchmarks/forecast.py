"""What `curator plan --probe` tells of a run, and what the run takes: time, work, records, bytes.

    python benchmarks/forecast.py text/web --set read.path=crawl/*.warc.gz [--probe 500] [--runs 3] [--copies 8]

`--copies`: the files of the input so many times, under other names. The forecast comes first, then the runs, all in this process, into
folders that are removed. A row of the table: what was told, its interval, and the median of the runs with the least and the most.
The seconds of stages, told and true, are those of the clock, which other load makes longer; processor seconds are of all processes.
"""

from __future__ import annotations

import argparse
import glob
import os
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median

from curator import load
from curator.trial.forecast import forecast


def processor_s() -> float:
    """Of this process and of those that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--probe", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--copies", type=int, default=1, help="of what read.path names")
    given = parser.parse_args()
    values = dict(one.split("=", 1) for one in given.set)
    with tempfile.TemporaryDirectory() as folder:
        if given.copies > 1:
            Path(folder, "in").mkdir()
            for path in glob.glob(values["read.path"]):
                for n in range(given.copies):
                    os.symlink(os.path.abspath(path), f"{folder}/in/{n:03}-{os.path.basename(path)}")
            values["read.path"] = f"{folder}/in/*"
        told = forecast(load(given.recipe, {**values, "out": f"{folder}/none"}), given.probe)
        took, worked, stats = [], [], {}
        for n in range(given.runs):
            began, before = time.monotonic(), processor_s()
            stats = load(given.recipe, {**values, "out": f"{folder}/{n}"}).run().stats
            took.append(time.monotonic() - began)
            worked.append(processor_s() - before)
    low, high = told.between
    work = sum(stage["busy_s"] for stage in stats["stages"])
    out = sum(group["size_bytes"] for group in (*stats["outputs"], *stats.get("checkpoints", ())))
    print("| run | records | told | took | seconds of stages | processor seconds | bytes out |\n| --- " + "| ---: " * 6 + "|")
    cells = [f"`{given.recipe}`, {told.sampled_records} of {stats['records']['in']}", f"{told.records:.0f}",
             f"{told.seconds:.1f} s ({low:.1f} to {high:.1f})", f"{median(took):.1f} s ({min(took):.1f} to {max(took):.1f})",
             f"{told.core_s:.1f}, {work:.1f}", f"{median(worked):.1f}",
             f"{sum(told.outputs.values()) / 1e6:.1f}, {out / 1e6:.1f} MB"]
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
