"""What the stages for source code cost: files and megabytes a CPU-second, on a tree of source files.

    python benchmarks/text_code.py [PATH] [--files 3000]

PATH is by default the standard library of this Python. Each stage is run alone, on the same batches of 200
files; text.code_parse behind text.code_signals, whose time is not counted to it.
"""

from __future__ import annotations

import argparse
import random
import sysconfig
import time
from collections.abc import Callable

import pyarrow as pa
from curator_text import CodeFiles, CodeLicense, CodeParse, CodeSecrets, CodeSignals, Minhash, Pii

from curator.api.tasks import TextBatch
from curator.testing import run_stage


def batches_of(path: str, files: int) -> list[TextBatch]:
    """Batches of files drawn by chance, the same each time; says how long reading all took."""
    source, start = CodeFiles(path=path), time.process_time()
    tables = [outputs["out"].rows for unit in source.units() for outputs in source.read(unit) if "out" in outputs]
    rows, spent = pa.concat_tables(tables), time.process_time() - start
    print(f"{rows.num_rows:,} files read: {rows.num_rows / spent:,.0f} files a CPU-second")
    some = rows.take(sorted(random.Random(0).sample(range(rows.num_rows), min(files, rows.num_rows))))
    return [TextBatch(some.slice(at, 200)) for at in range(0, some.num_rows, 200)]


def measure(name: str, stage: Callable[[], object], batches: list[TextBatch]) -> list[TextBatch]:
    made = stage()
    run_stage(made, batches[0])  # what is loaded once is loaded
    start = time.process_time()
    out = [run_stage(made, batch)["out"] for batch in batches]
    spent = time.process_time() - start
    count = sum(len(batch) for batch in batches)
    chars = sum(len(text) for batch in batches for text in batch.column("text"))
    print(f"| `{name}` | {count / spent:,.0f} | {chars / spent / 1e6:.1f} |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default=sysconfig.get_paths()["stdlib"])
    parser.add_argument("--files", type=int, default=3000)
    options = parser.parse_args()
    batches = batches_of(options.path, options.files)
    print("| stage | files a CPU-second | million characters a CPU-second |\n| --- | --- | --- |")
    measured = measure("text.code_signals", CodeSignals, batches)
    bare = [batch.without([name for name in batch.rows.column_names if name.startswith("_")]) for batch in measured]
    measure("text.code_license", CodeLicense, batches)
    measure("text.code_secrets", CodeSecrets, batches)
    measure("text.pii", Pii, batches)
    measure("text.minhash", Minhash, batches)
    measure("text.code_parse", CodeParse, bare)


if __name__ == "__main__":
    main()
