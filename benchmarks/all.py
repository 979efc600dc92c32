"""Run the benchmarks that docs/benchmarks.md lists, one after the other.

    python benchmarks/all.py [--only dedup,image] [--quick] [--photos FOLDER] [--recordings FOLDER] [--list]

Each script has the arguments of its page, and input that is made here where it wants some. Hours on two cores; with `--quick` small
inputs, no peers, in minutes: whether all still runs, and no figure to quote. One line each is printed; what a script printed is
written to benchmarks/results/NAME.txt, and what it took, when, on which machine and beside which load to benchmarks/results/all.json;
most write their figures to benchmarks/results/NAME.json too. What is not run is said with its reason. Ends with 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NO_MODEL = "wants a published model: its first lines say how to call it"


@dataclass(frozen=True)
class Run:
    """A script and what it is told. `{corpus}`, `{files}`, `{archives}` are made; `{photos}`, `{recordings}` are given, or it is left out.

    `quick`: instead, with `--quick`; None where it cannot be quick, because a peer is installed first. `photos`, `recordings`: told more
    where such a folder is given. `wants`: modules beside those that the packs bring. `never`: why it is not run from here. `part`: of a
    script with several runs.
    """

    script: str
    full: str = ""
    quick: str | None = ""
    part: str = ""
    photos: str = ""
    recordings: str = ""
    wants: str = ""
    never: str = ""

    @property
    def name(self) -> str:
        return f"{self.script}-{self.part}" if self.part else self.script


RUNS = (
    Run("local", quick="--only startup,import"),
    Run("engine", quick="--only calls --engines local"),
    Run("plan", quick="--nodes 10 --repeats 1"),
    Run("scale", quick="--nodes 10 --seconds 20"),
    Run("units", quick="--units 5000 --only empty"),
    Run("cost", quick="--quick --only text/documents,image/quality,audio/speech", recordings="--recordings {recordings}"),
    Run("checkpoint", "--web {archives} --documents {files}", "--documents {files} --copies 1 --repeat 1"),
    Run("estimate", quick="--seeds 1"),
    Run("estimate", "--sleep", None, part="sleep"),
    Run("forecast", "text/web --set read.path={archives} --copies 8", "text/web --set read.path={archives} --probe 100 --runs 1"),
    Run("explore", "--rows 10000000", "--rows 100000"),
    Run("what_if", quick="--rows 100000"),
    Run("shards", quick="--megabytes 5"),
    Run("places", quick="--small 20 --large 1 --turns 1", wants="obstore moto s3fs"),
    Run("coming_from", "--documents 4000", None),
    Run("text_signals", quick=None),
    Run("text_rules", quick=None),
    Run("text_fineweb", quick=None),
    Run("text_pii", "--count 1000", "--count 20"),
    Run("text_tokens", "--texts {corpus}", "--texts {corpus} --rounds 1"),
    Run("text_code", "--files 1500", "--files 200"),
    Run("text_models", "encoder --texts {corpus} --count 2500 --chars 600", "encoder --texts {corpus} --count 128 --rounds 1", "encoder"),
    Run("text_models", "generate --requests 96", "generate --requests 16 --rounds 1", "generate"),
    Run("text_models", "llm", "llm --requests 512", "llm"),
    Run("text_models", part="fasttext", never=NO_MODEL),
    Run("text_models", part="ngrams", never=NO_MODEL),
    Run("dedup", quick="--only signatures --tools ours --docs 2000"),
    Run("dedup_lists", quick="--hashes 100000 --titled 500"),
    Run("image", quick="--only hash --tools ours --images 400 --sizes 500x375", photos="--photos {photos}"),
    Run("audio", quick="--only measure --hours 0.1", recordings="--recordings {recordings}"),
    Run("audio_truth", "{recordings}", "{recordings} --only loudness", wants="espeakng_loader jiwer pyloudnorm"),
    Run("video", quick="--only detect --tools ours --sizes 360"),
    Run("video_truth", quick="--only motion"),
    Run("gpu", quick=None, never="" if Path("/dev/nvidia0").exists() else "wants a GPU of NVIDIA"),
    Run("video_models", "--clips 16", "--only clip --clips 4"),
    Run("each", quick="--rounds 1"),
)
MAKERS = {"dedup_truth": "makes the documents of dedup.py"}  # scripts that measure nothing


def reason_against(run: Run, quick: bool, given: dict[str, Path]) -> str:
    """Why a run is left out; empty where it is not."""
    told = run.quick if quick else run.full
    if run.never:
        return run.never
    if told is None:
        return "not quick: without --quick it runs"
    for name in ("photos", "recordings"):
        if f"{{{name}}}" in told and name not in given:
            return f"wants --{name}"
    missing = [module for module in run.wants.split() if find_spec(module) is None]
    return f"wants modules that are not installed: {', '.join(missing)}" if missing else ""


def command(run: Run, quick: bool, given: dict[str, Path], place: Path) -> list[str]:
    """What to call; makes the input that it names."""
    words = [run.full if not quick else run.quick or ""]
    words += [more for name, more in (("photos", run.photos), ("recordings", run.recordings)) if more and name in given]
    told = " ".join(words)
    values = {name: str(path) for name, path in given.items()} | made(place, told)
    return [sys.executable, str(HERE / f"{run.script}.py"), *(word.format(**values) for word in told.split())]


def made(place: Path, told: str) -> dict[str, str]:
    """The input that arguments name, in a folder."""
    if not any(f"{{{name}}}" in told for name in ("corpus", "files", "archives")):
        return {}
    from text_data import archives, documents

    corpus = documents(place / "files" / "corpus.jsonl")
    pages = archives(place / "archives", corpus) if "{archives}" in told else place
    return {"corpus": str(corpus), "files": str(corpus.parent), "archives": str(pages)}


def call(words: list[str], output: Path, limit_s: float) -> tuple[str, float]:
    """How it ended, empty if well, and its seconds. Its output goes to a file."""
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, *(HERE.parent / "packs").iterdir())))}
    with output.open("wb") as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
                                   cwd=HERE.parent, start_new_session=True)
        try:
            status = process.wait(limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"not done in {limit_s:,.0f} s", time.monotonic() - began
    last = output.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    return "" if not status else f"ended with {status}: {last[0][:160]}", time.monotonic() - began


def machine() -> dict[str, Any]:
    """When and where a script begins, and how busy it is there."""
    return {"began": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count(), "load": os.getloadavg()[0],
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1), "system": platform.platform(),
            "python": platform.python_version()}


def keep(entries: dict[str, dict[str, Any]]) -> None:
    """Add to results/all.json; what it has of other scripts stays."""
    path = RESULTS / "all.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(kept | entries, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of scripts, or of their parts, with commas")
    parser.add_argument("--quick", action="store_true", help="small inputs and no peers: whether they run")
    parser.add_argument("--photos", type=Path, help="a folder of photographs")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded speech: the prompts that audio_truth.py names")
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds a script may take")
    parser.add_argument("--list", action="store_true", help="print what would run, and run nothing")
    asked = parser.parse_args()
    given = {name: path.resolve() for name in ("photos", "recordings") if (path := getattr(asked, name))}
    names = asked.only.split(",") if asked.only else []
    if unknown := set(names) - {name for run in RUNS for name in (run.name, run.script)}:
        parser.error(f"there is no {', '.join(sorted(unknown))} among {', '.join(dict.fromkeys(run.script for run in RUNS))}")
    failed = False
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks") as place:
        for run in (one for one in RUNS if not names or one.name in names or one.script in names):
            if against := reason_against(run, asked.quick, given):
                print(f"{run.name:24} skipped: {against}", flush=True)
                continue
            if asked.list:
                print(f"{run.name:24} benchmarks/{run.script}.py {run.quick if asked.quick else run.full}")
                continue
            words, about = command(run, asked.quick, given, Path(place)), machine()
            wrong, seconds = call(words, RESULTS / f"{run.name}.txt", asked.limit)
            keep({run.name: about | {"command": words[1:], "quick": asked.quick, "seconds": round(seconds, 1), "failed": wrong}})
            print(f"{run.name:24} {wrong or 'done'} ({seconds:,.0f} s): results/{run.name}.txt", flush=True)
            failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
