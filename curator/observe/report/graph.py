"""The stages of a run's stats as a graph: who takes whose rows, and the order in which people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SIDE_OUTPUTS = ("dropped", "duplicate", "failed")  # as in curator.api.stage, which is heavy to import
MAIN = "out"  # the port on which a pipeline goes on; every other one opens a branch

Stage = Mapping[str, Any]  # one entry of stats["stages"]
Path = tuple[tuple[str, str], ...]  # the (stage, port) pairs at which the branches to a stage left the main line


@dataclass(frozen=True)
class Line:
    """A stage, or, when `port` is set, the head of the branch that takes this port of the stage."""

    depth: int
    stage: Stage
    port: str | None = None


def ports(stage: Stage) -> dict[str, int]:
    """Rows by port, the side outputs among them when rows went there."""
    side_outputs = {"dropped": sum(stage["dropped"].values()), "duplicate": stage["duplicate"], "failed": stage["failed"]}
    return {**stage["out"], **{port: rows for port, rows in side_outputs.items() if rows}}


def kept(stage: Stage) -> int:
    """Rows that went on: all ports but the side outputs."""
    return sum(stage["out"].values())


def takers(stages: Sequence[Stage]) -> dict[tuple[str, str], list[str]]:
    """The stages that take each port, by (stage, port)."""
    taken: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        for name, port in stage["after"]:
            taken.setdefault((name, port), []).append(stage["name"])
    return taken


def lines(stages: Sequence[Stage]) -> Iterator[Line]:
    """The stages in reading order: the main line, and each branch below the stage that it leaves, one step deeper.

    A stage that merges branches stands where they all began. `stages` are in pipeline order (inputs first).
    """
    paths: dict[str, Path] = {}
    along: dict[Path, list[Stage]] = {}
    for stage in stages:
        paths[stage["name"]] = _path(stage, paths)
        along.setdefault(paths[stage["name"]], []).append(stage)
    taken = takers(stages)

    def walk(path: Path) -> Iterator[Line]:
        for stage in along.get(path, ()):
            yield Line(len(path), stage)
            for name, port in taken:
                if name == stage["name"] and port != MAIN:
                    yield Line(len(path), stage, port)
                    yield from walk((*path, (name, port)))

    return walk(())


def _path(stage: Stage, paths: Mapping[str, Path]) -> Path:
    """The branches that lead to a stage: what the ways to all of its inputs have in common."""
    ways = [(*paths.get(name, ()), *(((name, port),) if port != MAIN else ())) for name, port in stage["after"]]
    if not ways:
        return ()
    common = ways[0]
    for way in ways[1:]:
        same = [a == b for a, b in zip(common, way, strict=False)]
        common = common[:same.index(False) if False in same else len(same)]
    return common
