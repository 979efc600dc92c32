"""The options of a run, for type checkers: those of `curator.run.run.run`, which explains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from curator.pipeline.plan import Mode
from curator.run.replay import Replay
from curator.run.run import Engine


class RunOptions(TypedDict, total=False):
    out: str | None
    workers: int | None
    ray: str | bool | None
    prune: bool | Callable[[str], Any]
    replace: bool | Callable[[str], bool]
    mode: Mode
    engine: Engine
    watch: Callable[[Mapping[str, Any]], None] | None
    metrics_port: int | str | None
    replay: Replay | None
    shard: str | None
