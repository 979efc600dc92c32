"""Packages that users have beside Curator, and running something as if they were not installed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path

BESIDE = ("pandas", "torch", "transformers")  # nothing that is measured asks for one, but others might bring them in
HIDE = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = {hidden!r}
PathFinder.find_spec = classmethod(lambda cls, name, *more: None if name.partition(".")[0] in hidden else find(name, *more))
"""


def installed() -> list[str]:
    return [name for name in BESIDE if find_spec(name)]


def without(packages: Collection[str], folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment whose Python processes find none of these packages. `folder`: an empty one, which is theirs."""
    Path(folder, "sitecustomize.py").write_text(HIDE.format(hidden=set(packages)))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (folder, environment.get("PYTHONPATH"))))}
