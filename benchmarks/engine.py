"""Our engine beside Cosmos-Xenna and Ray Data: the same work on the same machine, each run in a process of its own.

    python benchmarks/engine.py [--only calls,startup,...] [--engines local,ray,xenna,ray_data] [--all] [--limit 120]

Makes a virtual environment for each peer beside this file (once; delete it to get newer ones) with what the package index has.
Cosmos-Xenna's newest releases want Python 3.12, which is taken if this machine has it. Linux; about 15 minutes. Results are
printed, and written to benchmarks/results/engine.json: `rows` by row and engine, `ratios` of ours to the peers that
finished. A run keeps what the file has of other rows and engines.

What an engine does to a task is in engines/common.py, how each one is asked to do it in engines/<engine>.py: three stages that
cannot be fused, workers of one CPU, settings as they come unless the name after the colon says otherwise (`ray:data` is our
plan on Ray Data, `--engine ray-data`). Where pandas, torch or
transformers are installed, ours runs a second time, as `:bare`, as if they were not. Times are between the
moment at which the first stage takes its first task and the last output, so without Python's and Ray's start, unless said.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

from packages import installed, without
from process_tree import descendants

HERE = Path(__file__).resolve().parent
OURS = ("local", "ray")
ENGINES = (*OURS, "xenna", "ray_data")
PACKAGES = {"xenna": ("cosmos-xenna", "numpy", "tqdm", "psutil"), "ray_data": ("ray[data]",)}
REAP = 36  # PR_SET_CHILD_SUBREAPER of Linux' prctl: what a run leaves behind becomes a child of this process


@dataclass(frozen=True)
class Row:
    """A comparison. `job`: fields of `common.Job`. `more`: other ways to ask a peer, `peer:variant`, run with --all.

    `goals`: the figures that are compared, with 1 where more is better and -1 where less is. `watch`: measure memory.
    """

    title: str
    job: dict[str, Any]
    goals: dict[str, int]
    engines: tuple[str, ...] = ENGINES
    more: tuple[str, ...] = ()
    limit_s: float = 300.0
    watch: bool = False


SLEEPS = (0.025, 0.1, 0.05)
ROWS = {
    "calls": Row("no-op stages, 2,000 tasks of 1 KB: stage calls a second", {"tasks": 2000},
                 {"calls_per_s": 1, "driver_cpu_s": -1}, (*ENGINES, "ray:data", "ray_data:blocks")),
    "startup": Row("no-op stages, ten tasks: whole process, and start to first output", {"tasks": 10},
                   {"process_s": -1, "first_output_s": -1, "peak_mb": -1}, (*ENGINES, "ray:data"), watch=True),
    "latency": Row("a task each 50 ms through three no-op stages: seconds from read to the last stage",
                   {"tasks": 200, "paced_s": 0.05, "cpus": 5}, {"p50_s": -1, "p95_s": -1}),
    "balance": Row("stages of 25, 100 and 50 ms on 7 CPUs, 2,000 tasks; the optimum is 40 tasks/s",
                   {"tasks": 2000, "seconds": SLEEPS, "cpus": 7}, {"share": 1, "to_90_s": -1},
                   (*ENGINES, "ray:data", "xenna:5s"), ("ray_data:tasks",)),
    "memory": Row("600 tasks of 8 MB, made in 20 ms, before a stage of 100 ms", {"tasks": 600, "made_bytes": 8 << 20,
                  "seconds": (0.02, 0.1, 0.0)}, {"peak_mb": -1, "shared_mb": -1, "spilled_mb": -1, "seconds": -1}, watch=True),
    "deaths": Row("300 tasks of 20 ms; each 50th kills its worker once", {"tasks": 300, "seconds": (0.0, 0.02, 0.0), "kills": 50},
                  {"outputs": 1, "process_s": -1}, limit_s=90),
    "poison": Row("300 tasks of 20 ms; one kills its worker each time",
                  {"tasks": 300, "seconds": (0.0, 0.02, 0.0), "poison": 150}, {"outputs": 1, "process_s": -1},
                  (*ENGINES, "ray_data:skip"), ("xenna:skip",), limit_s=90),
    "node": Row("400 tasks of 25, 100 and 50 ms on two nodes of 4 CPUs; the second goes after 100 outputs",
                {"tasks": 400, "seconds": SLEEPS, "cpus": 8, "lose_after": 100}, {"outputs": 1, "process_s": -1},
                ("ray", "xenna", "ray_data"), limit_s=90),
}


# -- environments -----------------------------------------------------------------------------------------------


def python_of(engine: str) -> str:
    """The interpreter that runs an engine; its environment is made when it is not there.

    Raises:
        CalledProcessError: pip could not install the peer.
    """
    if engine not in PACKAGES:
        return sys.executable
    place = HERE / f".venv-{engine}"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        print(f"making {place.name} with {PACKAGES[engine][0]}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([newest_python() if engine == "xenna" else sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES[engine]], check=True, stderr=subprocess.DEVNULL)
        (place / "made").touch()
    return str(python)


def newest_python() -> str:
    """A Python 3.12 of this machine, else the one that runs this."""
    found = [shutil.which("python3.12"), *map(str, Path.home().glob(".pyenv/versions/3.12*/bin/python"))]
    for python in filter(None, found):
        if subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0:
            return python
    return sys.executable


# -- one run ----------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """The largest memory of all processes below this one, in bytes, sampled.

    `shared` is what lies in shared memory for the run (an object store's touched pages, or our batches, mapped or not), `peak`
    that and the proportional set of everything else.
    """

    peak: int = 0
    shared: int = 0
    rollups: dict[int, bytes] = field(default_factory=dict)

    def look(self) -> None:
        own = mapped = files = 0
        for pid in descendants(os.getpid()):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss")}
            own += sizes.get("Pss_Anon", 0) + sizes.get("Pss_File", 0)
            mapped += sizes.get("Pss_Shmem", 0)
            for path in map(Path, glob(f"/dev/shm/curator-*/{pid}-*/*")):  # which bears folders that vanish
                try:
                    files += path.stat().st_size
                except FileNotFoundError:
                    continue
        self.shared = max(self.shared, mapped, files)
        self.peak = max(self.peak, own + max(mapped, files))


def sweep() -> None:
    """End what a run left: all that descends from this process, which nothing but a run does."""
    until = time.monotonic() + 10
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.05)


def run_one(row: Row, engine: str, limit_s: float) -> dict[str, Any]:
    """One engine's figures for a row. A run that fails or takes too long is a result too: `error` says it."""
    name, _, variant = engine.partition(":")
    script = HERE / "engines" / f"{'ours' if name in ('local', 'ray') else name}.py"
    python = python_of(name)
    # Ray's sockets lie in this folder, and their names must be short.
    place = tempfile.mkdtemp(prefix="ce", dir="/tmp" if os.path.isdir("/tmp") else None)
    variant = "ray" + variant if name == "ray" else variant
    job = {"seconds": (0, 0, 0), "cpus": 4, **row.job, "place": place, "variant": variant}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTHONPATH"))}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": place}
    if name in OURS:
        environment["PYTHONPATH"] = str(HERE.parent)
    if variant.endswith("bare"):
        job["variant"] = variant.removesuffix("bare")
        environment = without(installed(), place, environment)
    watch, began = Watch(), time.time()
    try:
        with open(f"{place}/output", "wb") as output:
            process = subprocess.Popen([python, str(script), json.dumps(job)], stdout=output, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, env=environment, start_new_session=True, cwd=place)
        cpu_s = 0.0
        while process.poll() is None and time.time() - began < limit_s:
            if row.watch:
                watch.look()
            cpu_s = max(cpu_s, cpu_seconds(process.pid))
            time.sleep(0.1)
        ended = process.poll() is not None
        process_s = time.time() - began
        sweep()
        memory = {"peak_mb": watch.peak / 1e6, "shared_mb": watch.shared / 1e6, "spilled_mb": spilled_bytes(place) / 1e6}
        return {**figures(job, began), **read_result(place, ended, limit_s), "process_s": process_s, "driver_cpu_s": cpu_s,
                **(memory if row.watch else {})}
    finally:
        sweep()
        shutil.rmtree(place, ignore_errors=True)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, of all its threads, without its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spilled_bytes(place: str) -> int:
    """What the Ray of a run wrote to disk because its object store was full, as far as its log has said. Ours never does."""
    logs = "".join(p.read_text(errors="replace") for p in Path(place).glob("ray/session_2*/logs/raylet*.out"))
    return sum(int(found) << 20 for found in re.findall(r"Spilled (\d+) MiB", logs)[-1:])


def read_result(place: str, ended: bool, limit_s: float) -> dict[str, Any]:
    if not ended:
        return {"finished": False, "error": f"did not finish in {limit_s:.0f} s"}
    try:
        result = json.loads(Path(place, "result").read_text())
    except (OSError, ValueError):
        lines = Path(place, "output").read_text(errors="replace").split("\n")
        result = {"error": "died: " + " ".join(" ".join(lines[-5:]).split())[:300]}
    return {"finished": "error" not in result, **result}


def figures(job: dict[str, Any], began: float) -> dict[str, Any]:
    """What the log of the last stage says. `done`: tasks that it has seen, also in a run that then failed and gave nothing."""
    try:
        lines = [line.split() for line in Path(job["place"], "log").read_text().splitlines()]
    except OSError:
        return {"done": 0}
    first: dict[int, tuple[float, float]] = {}
    for number, born, end in lines:
        first.setdefault(int(number), (float(born), float(end)))
    births, ends = sorted(b for b, _ in first.values()), sorted(e for _, e in first.values())
    waits = sorted(e - b for b, e in first.values())
    seconds = ends[-1] - births[0]
    told = {"done": len(first), "seconds": seconds, "first_output_s": ends[0] - began, "tasks_per_s": len(first) / seconds,
            "calls_per_s": 3 * len(first) / seconds, "p50_s": waits[len(waits) // 2], "p95_s": waits[int(len(waits) * 0.95)]}
    if any(job["seconds"]):
        best = job["cpus"] / sum(job["seconds"])
        told |= {"share": len(first) / seconds / best, "to_90_s": to_rate([e - births[0] for e in ends], 0.9 * best)}
    return told


def to_rate(ends: list[float], rate: float, window_s: float = 5.0) -> float | None:
    """Seconds until the first window that has this rate of outputs; None if there is none."""
    for i, start in enumerate([0.0, *ends]):
        if sum(start < e <= start + window_s for e in ends[max(0, i - 1):]) >= rate * window_s:
            return start
    return None


# -- all of them ------------------------------------------------------------------------------------------------


def compare(results: dict[str, dict], goals: dict[str, int]) -> dict[str, dict[str, float]]:
    """For each of our engines and figures: how many times better than each peer that finished."""
    ratios: dict[str, dict[str, float]] = {}
    for ours in (e for e, r in results.items() if e.split(":")[0] in OURS and r["finished"]):
        for figure, sign in goals.items():
            mine = results[ours].get(figure)
            peers = {e: r[figure] for e, r in results.items() if e.split(":")[0] in PACKAGES and r["finished"] and r.get(figure)}
            if mine and peers:
                ratios[f"{ours}.{figure}"] = {e: mine / theirs if sign > 0 else theirs / mine for e, theirs in peers.items()}
    return ratios


def show(row: Row, engine: str, result: dict[str, Any]) -> None:
    names = list(dict.fromkeys([*row.goals, "process_s", "done"]))
    told = "  ".join(f"{n} {'never' if result[n] is None else f'{result[n]:,.2f}'}" for n in names if n in result)
    print(f"  {engine:16} {told}  {result.get('error', '')[:90]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows")
    parser.add_argument("--engines", help=f"of {', '.join(ENGINES)}, maybe with :variant; by default all of a row")
    parser.add_argument("--all", action="store_true", help="other ways to ask the peers too")
    parser.add_argument("--limit", type=float, help="seconds a run may take")
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    path = HERE / "results" / "engine.json"
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {"rows": {}, "ratios": {}}
    kept["cpus"] = os.cpu_count()
    for name in told.only.split(","):
        row = ROWS[name]
        print(f"{name}: {row.title}", flush=True)
        results = kept["rows"].setdefault(name, {})
        engines = told.engines.split(",") if told.engines else row.engines + row.more * told.all
        engines = [e for engine in engines for e in (engine, f"{engine}:bare")[:1 + bool(engine in OURS and installed())]]
        for engine in engines:
            results[engine] = run_one(row, engine, told.limit or row.limit_s)
            show(row, engine, results[engine])
            kept["ratios"][name] = compare(results, row.goals)
            path.write_text(json.dumps(kept, indent=1))
        for figure, ratios in kept["ratios"][name].items():
            print(f"  {figure} is better by", ", ".join(f"{r:.2g} than {peer}" for peer, r in ratios.items()), flush=True)


if __name__ == "__main__":
    main()
