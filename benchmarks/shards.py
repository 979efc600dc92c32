"""Tar shards of samples, read and written: ours, a loop over Python's tarfile, and the webdataset library where it is installed.

    python benchmarks/shards.py [--folder /dev/shm] [--megabytes 200]

Each sample has a part of random bytes, a json of five keys and a caption; the loops parse the json too, and keep nothing. Rates
are of CPU seconds of the process, the best of three runs in turn, so that other work on the machine disturbs little. Results are
printed and written to benchmarks/results/shards.json.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.io.media.to_webdataset import ToWebDataset
from curator.io.media.webdataset import WebDataset

RESULTS = Path(__file__).parent / "results"
ABOUT = ("id", "source", "width", "height", "score")


def samples(count: int, size: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"id": [f"r{i}" for i in range(count)], "source": ["s"] * count, "extension": ["jpg"] * count,
                     "bytes": [rng.bytes(size) for _ in range(count)],
                     "txt": [f"a caption of some words, number {i}" for i in range(count)],
                     "width": list(range(count)), "height": list(range(count)), "score": [i / 7 for i in range(count)]})


def write_ours(rows: pa.Table, folder: Path) -> None:
    writer = ToWebDataset(path=str(folder), records=None, target_bytes=1 << 40).open("ours")
    for start in range(0, rows.num_rows, 200):
        writer.write(Batch(rows=rows.slice(start, 200)))
    writer.close()


def write_tarfile(rows: pa.Table, folder: Path) -> None:
    with tarfile.open(folder / "loop.tmp", "w") as archive:
        for row in rows.to_pylist():
            about = json.dumps({name: row[name] for name in ABOUT}).encode()
            for ending, data in (("jpg", row["bytes"]), ("json", about), ("txt", row["txt"].encode())):
                info = tarfile.TarInfo(f"{row['id']}.{ending}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def read_ours(path: Path) -> int:
    source = WebDataset(path=str(path))
    return sum(len(batch) for unit in source.units() for batch in source.read(unit))


def read_tarfile(path: Path) -> int:
    count = 0
    with tarfile.open(path, "r|") as archive:
        for member in archive:
            data = archive.extractfile(member).read()
            if member.name.endswith(".json"):
                json.loads(data)
                count += 1
    return count


def read_webdataset(path: Path) -> int:
    from webdataset.tariterators import group_by_keys, tar_file_expander

    with open(path, "rb") as stream:
        members = tar_file_expander([{"url": "", "stream": stream}])
        return sum(bool(json.loads(sample["json"])) for sample in group_by_keys(members))


def best(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The CPU seconds of each call, the least of three."""
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(3):
        for name, call in calls.items():
            begun = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - begun)
    return seconds


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("--folder", default=None, help="where the archives are written; memory, so that no disk is measured")
    given.add_argument("--megabytes", type=int, default=200)
    options = given.parse_args()
    results = []
    for size in (1 << 10, 50 << 10, 500 << 10):
        count = min(20_000, (options.megabytes << 20) // size)
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            rows = samples(count, size)
            writing = best({"ours": partial(write_ours, rows, folder), "tarfile": partial(write_tarfile, rows, folder)})
            del rows
            shard = folder / "ours-000.tar"
            readers = {"ours": read_ours, "tarfile": read_tarfile}
            if find_spec("webdataset"):
                readers["webdataset"] = read_webdataset
            reading = best({name: partial(call, shard) for name, call in readers.items()})
            for what, seconds in (("write", writing), ("read", reading)):
                for who, spent in seconds.items():
                    results.append({"what": what, "who": who, "sample_bytes": size, "samples_per_cpu_s": round(count / spent),
                                    "mb_per_cpu_s": round(shard.stat().st_size / spent / 1e6)})
                    print(f"{what:6} {who:11} {size:>8,} bytes {results[-1]['samples_per_cpu_s']:>8,} samples/s "
                          f"{results[-1]['mb_per_cpu_s']:>6,} MB/s")
        finally:
            shutil.rmtree(folder)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "shards.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
