"""Peers of a benchmark: each tool in a virtual environment of its own, and the processor time of what has run."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
