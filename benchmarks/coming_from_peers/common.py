"""How a peer is asked for its job, and how it answers: documents and an empty folder in, its version and where its records lie out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path


def main(package: str, job: Callable[[str, str], None]) -> None:
    """`python run_x.py job {"documents": FOLDER, "out": FOLDER, "place": FOLDER}`."""
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # as if its environment were active
    os.environ["RAY_ADDRESS"] = "local"  # a cluster of its own, whatever else runs on this machine
    task, told = sys.argv[1], json.loads(sys.argv[2])
    job(told["documents"], told["out"])
    Path(told["place"], f"{task}.json").write_text(json.dumps({"version": version(package)}), encoding="utf-8")
