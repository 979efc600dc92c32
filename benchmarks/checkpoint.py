"""What a checkpoint costs the first run, and what it saves an edit: `text/web` and `text/documents` over real input.

    python benchmarks/checkpoint.py --web crawl/ --documents docs/ [--copies 8] [--repeat 3]

The files of a folder are given as often as `--copies` says, under other names, so that starting the workers is not all that is
measured. Each recipe runs as packaged and with `checkpoint: {keep: false}`, in turns; then one threshold is edited and the same
command runs again over both outputs. `cpu_s`: processor seconds of the run and all its processes; those of `curator plan` (the
interpreter, the recipe) are shown beside it. Ratios are of medians. Results are printed, and written to
benchmarks/results/checkpoint.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
EDIT = "steps.gopher_quality.too_few_words=word_count < 40"
OFF = "steps.checkpoint.keep=false"
# modules are compiled once, as those of an installed package are, whatever this environment says
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def curator(*words: str) -> dict[str, float]:
    """Processor seconds and seconds of a command."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "curator", *words], stdout=subprocess.DEVNULL, env=COMPILED)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"curator {' '.join(words)} ended with {status}")
    return {"cpu_s": used.ru_utime + used.ru_stime, "seconds": time.monotonic() - began}


def copies(folder: Path, count: int, place: Path) -> Path:
    """The same files `count` times, under other names."""
    place.mkdir()
    for path in (p for p in sorted([folder] if folder.is_file() else folder.rglob("*")) if p.is_file()):
        for n in range(count):
            os.symlink(path.resolve(), place / f"{n:02}-{path.name}")
    return place


def measured(recipe: str, read: Path, place: Path, repeat: int) -> dict[str, Any]:
    """Medians by case."""
    jsonl = any(path.suffixes[:1] == [".jsonl"] for path in read.iterdir())
    given = [recipe, "--set", f"read={{jsonl: {{path: {read}/*}}}}" if jsonl else f"read.path={read}"]
    found: dict[str, list[dict[str, float]]] = {}
    for n in range(repeat):
        for case, more in (("with", []), ("without", ["--set", OFF])):
            out = place / f"{case}-{n}"
            run = ["run", *given, *more, "--out", str(out), "--quiet"]
            found.setdefault(case, []).append(curator(*run))
            found.setdefault(f"edit {case}", []).append(curator(*run, "--set", EDIT, "--yes"))
            stats = json.loads((out / "_run/stats.json").read_text())
            kept = sum(c["size_bytes"] for c in stats.get("checkpoints", ()))
            shutil.rmtree(out)
            if kept:
                found.setdefault("kept", []).append({"bytes": kept, "records": stats["records"]["in"]})
    found["plan"] = [curator("plan", *given, "--out", str(place / "none"))]
    table = {case: {key: median(one[key] for one in many) for key in many[0]} for case, many in found.items()}
    cpu = {case: numbers["cpu_s"] for case, numbers in table.items() if "cpu_s" in numbers}
    return {"recipe": recipe, "cases": table, "first run, with / without": cpu["with"] / cpu["without"],
            "edit / first run": cpu["edit with"] / cpu["with"], "edit without / first run": cpu["edit without"] / cpu["without"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--web", type=Path)
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("web", "documents"):
            if (folder := getattr(args, name)) is not None:
                read = copies(folder, args.copies, Path(temporary, name))
                results.append(measured(f"text/{name}", read, Path(temporary), args.repeat))
                print(json.dumps(results[-1], indent=1), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "checkpoint.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
