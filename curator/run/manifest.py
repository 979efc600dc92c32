"""What a run says of itself: in `manifest.json`, and on the card of its folder."""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from curator.api.format import listing, plural, short_path, size
from curator.api.resources import Node
from curator.api.stage import Sink, Source, Unit
from curator.io.files.faults import path_text
from curator.observe.report.card import About
from curator.pipeline.layout import folder_of
from curator.pipeline.plan import Plan
from curator.recipe import without_secrets
from curator.registry import packs
from curator.run.folder.edits import parameters_of
from curator.run.folder.guard import paths_of


def manifest_of(plan: Plan, machine: Node) -> dict[str, Any]:
    """For `manifest.json`: names and versions of all that decides, the command, the machine."""
    used = {type(stage).__module__.partition(".")[0] for step in plan.steps
            for stage in (step.stage, *step.stage.inner().values())}
    versions = {pack.distribution: pack.version for pack in packs.installed()
                if pack.module.partition(".")[0] in used}
    versions |= {"python": platform.python_version(), "pyarrow": pa.__version__}
    cores = f"{plural(int(machine.cpus), 'core')}, {size(machine.memory_bytes)}"
    gpus = f", {plural(machine.gpus, 'GPU')}" if machine.gpus else ""
    stages = [{"name": s.name, "class": f"{type(s.stage).__module__}.{type(s.stage).__qualname__}",
               "version": s.stage.version, "fingerprint": s.fingerprint, "key": s.key,
               "parameters": None if s.implicit else parameters_of(s.stage)} for s in plan.steps]
    program = Path(sys.argv[0])
    program = program.parent if program.name == "__main__.py" else program  # python -m curator
    command = [program.name, *(without_secrets(path_text(word)) for word in sys.argv[1:])]
    return {"name": plan.pipeline.name, "curator": version("curator-core"),
            "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "command": shlex.join(command),
            "versions": {"curator-core": version("curator-core")} | versions,
            "machine": f"{cores}{gpus}, {platform.system()} {platform.machine()}", "stages": stages}


def about_of(plan: Plan, units: Sequence[tuple[int, Unit]]) -> About:
    """For the card: what was read, where it was written, what the recipe says of it."""
    sources = []
    for operator in plan.phases[0].operators:
        step = operator.steps[0]
        if isinstance(step.stage, Source) and not step.spool:
            own = [unit for index, unit in units if index == operator.index]
            paths = listing(short_path(without_secrets(path), 100) for path in paths_of(step.stage))
            parts, bytes_in = sum(len(u.parts) for u in own), sum(u.size_bytes for u in own)
            sources.append(f"{step.name}: {paths} ({plural(parts, 'part')}, {size(bytes_in)})")
    root = plan.out.path_of("")
    folders = {s.name: folder_of(s.stage) for s in plan.steps
               if isinstance(s.stage, Sink) and not (s.implicit or s.part_of)}
    sinks = {name: folder.removeprefix(root) for name, folder in folders.items() if folder.startswith(root)}
    settings = plan.pipeline.settings
    return About(version=version("curator-core"), description=settings.description,
                 license=settings.license, sources=sources, sinks=sinks)
