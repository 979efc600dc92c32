"""Stages that a pack only names, so that each is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attributes(module: str,
               stages: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module with these STAGES: `from pack import Class` imports no
    other."""
    homes = {place.partition(":")[2]: place.partition(":")[0] for place in stages.values()}

    def get(name: str) -> Any:
        if name == "__all__":  # `from pack import *`
            return [*homes]
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get, lambda: ["STAGES", *homes]
