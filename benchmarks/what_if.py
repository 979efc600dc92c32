"""How long `curator what-if` takes over a million records, and over ten.

    python benchmarks/what_if.py [--rows 1000000 10000000]

Makes the output of a run as `curator run` writes it: texts of 400 characters or so, twelve scores, two rule
steps and dedup, a ledger that names the files. Prints the seconds of the question alone, three times (the first
one reads the files' footers), and of the whole command in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curator import load
from curator.results import RunOutput
from curator.results.what_if import what_if
from curator.run.folder.ledger_files import LedgerFiles, to_line, to_record

PER_FILE = 250_000
SCORES = [f"score_{at}" for at in range(12)]
WORDS = np.array([f"word{at}" for at in range(3000)])
RECIPE = """
name: measured
read: {{parquet: {{path: {folder}/in.parquet}}}}
steps:
- drop: {{low: score_0 < 0.1, high: score_1 > 0.95, odd: score_2 < 0.02 AND score_3 > 0.5}}
  with: {{name: first}}
- drop: {{few: score_4 < 0.05}}
  with: {{name: second}}
- dedup.exact
write: parquet
out: {folder}/out
"""


def rows(start: int, count: int, rng: np.random.Generator) -> pa.Table:
    numbers = np.arange(start, start + count)
    words = WORDS[rng.integers(0, len(WORDS), (count // 50, 60))]
    texts = np.array([" ".join(line) for line in words])
    return pa.table({
        "id": [f"urn:uuid:{n:032x}" for n in (numbers * 2_654_435_761 % 2**40).tolist()],
        "source": [f"crawl/part-{n % 40:05}.warc.gz" for n in numbers.tolist()],
        "text": pa.array([f"{n} {texts[n % len(texts)]}" for n in numbers.tolist()]),
        "language": pa.array(np.array(["en", "de", "fr", "ja"])[numbers % 4]),
        **{name: rng.random(count) for name in SCORES}})


def made(folder: Path, count: int) -> RunOutput:
    """A run over a few records, then files in the place of its own, and a ledger that names them."""
    rng = np.random.default_rng(0)
    pq.write_table(rows(0, 2000, rng), folder / "in.parquet")
    load(RECIPE.format(folder=folder)).run(workers=0)
    out = RunOutput.open(str(folder / "out"))
    ledger = LedgerFiles(out.folder.sub("_run/ledger"))
    ((_, _, line),) = list(ledger.units())
    record = to_record(line)
    names = {"data": "to_parquet", "first": "dropped/first", "second": "dropped/second"}
    files = {name: [] for name in names.values()}
    totals = dict.fromkeys(names, 0)
    for start in range(0, count, PER_FILE):
        table = rows(start, min(PER_FILE, count - start), rng)
        s = [table.column(name).to_numpy() for name in SCORES]
        reasons = np.select([s[0] < .1, s[1] > .95, (s[2] < .02) & (s[3] > .5)], ["low", "high", "odd"], "")
        second = (reasons == "") & (s[4] < .05)
        parts = {"data": table.filter(pa.array((reasons == "") & ~second)),
                 "first": table.append_column("reason", pa.array(reasons)).filter(pa.array(reasons != "")),
                 "second": table.filter(pa.array(second)).append_column("reason", pa.array(["few"] * int(second.sum())))}
        for name, part in parts.items():
            place = name if name == "data" else f"dropped/{name}"
            path = f"{place}/part-made-{start:010}.parquet"
            pq.write_table(part, folder / "out" / path, compression="zstd", row_group_size=60_000)
            files[names[name]].append([path, len(part), 0])
            totals[name] += len(part)
    plain = to_record(line)
    for name, listed in files.items():
        plain.stages[name].files = [type(record.stages[name].files[0])(*file) for file in listed]
    plain.stages.pop("duplicate/dedup.exact", None)
    ledger.add([to_line(plain)], lambda: ledger.states[0])
    return RunOutput.open(str(folder / "out"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    settings = {"steps.first.low": "score_0 < 0.12", "steps.first.high": "score_1 > 0.97", "steps.second.few": "score_4 < 0.01"}
    for count in parser.parse_args().rows:
        with tempfile.TemporaryDirectory() as folder:
            out = made(Path(folder), count)
            times, work = [], []
            for _ in range(3):
                began, worked = time.perf_counter(), time.process_time()
                answer = what_if(out, settings)
                times.append(time.perf_counter() - began)
                work.append(time.process_time() - worked)
            began = time.perf_counter()
            command = [sys.executable, "-m", "curator", "what-if", out.folder.uri]
            subprocess.run([*command, *(f"--set={k}={v}" for k, v in settings.items())], check=True, stdout=subprocess.DEVNULL)
            whole = time.perf_counter() - began
            moved = sum(move.records for move in answer.moves)
            print(f"{count:,} records, {moved:,} end elsewhere: the question {' / '.join(f'{t:.2f}' for t in times)} s "
                  f"({min(work):.2f} s of work), the command {whole:.2f} s")


if __name__ == "__main__":
    main()
