"""Peers of a benchmark: each tool in a virtual environment of its own, and the processor time of what has run."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engine import sweep
from process_tree import megabytes

HERE = Path(__file__).resolve().parent


def python_of(tool: str, benchmark: str, packages: Sequence[str], base: str = sys.executable) -> str:
    """The interpreter that runs a tool; its environment is made, from the interpreter `base`, when it is not there.

    Raises:
        CalledProcessError: pip could not install the peer; `stderr` says why.
    """
    if tool == "ours":
        return sys.executable
    place = HERE / f".venv-{tool}"
    python, made = place / "bin" / "python", place / f"made-for-{benchmark}"
    if not made.exists():
        print(f"making {place.name}", flush=True)
        if not python.exists():
            subprocess.run([base, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True, capture_output=True, text=True)
        made.touch()
    return str(python)


def environment_of(tool: str) -> dict[str, str]:
    """The environment of a tool's processes; ours find the code of this checkout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if tool == "ours":
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (HERE.parent, *(HERE.parent / "packs").iterdir())))
    return environment


def cpu_seconds() -> float:
    """Processor time of all processes that were below this one and ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def call(benchmark: str, tool: str, packages: Sequence[str], task: str, job: dict[str, Any], limit_s: float, *,
         memory: bool = False) -> dict[str, Any]:
    """Have a tool do a task by `<benchmark>_peers/run_<tool>.py`: its answer, and what it took. A run that fails or takes too long
    is a result: `error` says it. `memory`: also the most that all of its processes had, in MB."""
    try:
        python = python_of(tool, benchmark, packages)
    except subprocess.CalledProcessError as error:
        return {"error": "does not install: " + str(error.stderr).strip()[-300:]}
    with tempfile.TemporaryDirectory(prefix=benchmark) as folder:
        place = Path(folder)
        command = [python, str(HERE / f"{benchmark}_peers" / f"run_{tool.replace('-', '_')}.py"), task, json.dumps(job | {"place": folder})]
        before, began, peak = cpu_seconds(), time.monotonic(), 0.0
        with (place / "output").open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=environment_of(tool), start_new_session=True, cwd=folder)
            while process.poll() is None:
                if time.monotonic() - began > limit_s:
                    sweep()
                    return {"error": f"did not finish in {limit_s} s"}
                peak = max(peak, megabytes(process.pid)) if memory else 0.0
                time.sleep(0.25 if memory else 0.02)
        seconds = time.monotonic() - began
        sweep()
        try:
            told = json.loads((place / f"{task}.json").read_text(encoding="utf-8"))
        except OSError:
            return {"error": " ".join((place / "output").read_text(errors="replace").strip().splitlines()[-3:])[-300:]}
        return told | {"seconds": seconds, "cpu_s": cpu_seconds() - before} | ({"peak_mb": peak} if memory else {})


def keep(name: str, found: Iterable[tuple[tuple[str, ...], dict[str, Any]]]) -> None:
    """Write figures to results/NAME.json as they come, each under its keys; what the file has of others stays."""
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    for (*above, last), figures in found:
        entry = kept
        for key in above:
            entry = entry.setdefault(key, {})
        entry[last] = figures
        kept["cpus"] = os.cpu_count()
        path.write_text(json.dumps(kept, indent=1))
