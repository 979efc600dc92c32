"""The stages of a run's stats as a graph: who takes whose rows, where they went, and the order in which
people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

from curator.api.format import plural

MAIN = "out"  # the port on which a pipeline goes on; every other one opens a branch

Stage = Mapping[str, Any]  # one entry of stats["stages"]
# the (stage, port) pairs at which the branches to a stage left the main line
Path = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Line:
    """A stage, or, when `port` is set, the head of the branch that takes this port of the stage."""

    depth: int
    stage: Stage
    port: str | None = None


def ports(stage: Stage) -> dict[str, int]:
    """Rows by port, the side outputs among them when rows went there."""
    side_outputs = {"dropped": sum(stage["dropped"].values()), "duplicate": stage["duplicate"],
                    "failed": stage["failed"]}
    return {**stage["out"], **{port: rows for port, rows in side_outputs.items() if rows}}


def kept(stage: Stage) -> int:
    """Rows that went on: all ports but the side outputs."""
    return sum(stage["out"].values())


def behind(stages: Sequence[Stage], name: str) -> Iterator[Stage]:
    """The stages that rows may come to after this one, in pipeline order."""
    reached = {name}
    for stage in stages:
        if any(before in reached for before, _ in stage["after"]):
            reached.add(stage["name"])
            yield stage


def losses(stage: Stage, reasons_max: int) -> Iterator[tuple[str, str, int]]:
    """What did not go on: the ending, the reason of a drop, rows. The most frequent reasons, then how many
    more there are."""
    fired = sorted(((reason, n) for reason, n in stage["dropped"].items() if n),
                   key=lambda item: (-item[1], item[0]))
    shown = fired if len(fired) <= reasons_max + 1 else fired[:reasons_max]
    yield from (("dropped", reason, n) for reason, n in shown)
    if rest := fired[len(shown):]:
        yield "dropped", plural(len(rest), "more reason"), sum(n for _, n in rest)
    yield from ((ending, "", stage[ending]) for ending in ("duplicate", "failed", "absorbed")
                if stage[ending])


def origin(stage: Stage, above: tuple[str, str] | None) -> str:
    """Where a stage's rows come from, when that is not the stage and port above it."""
    ends = [tuple(end) for end in stage["after"]]
    return "" if ends == [above] else ", ".join(name if port == MAIN else f"{name} {port}"
                                                for name, port in ends)


def takers(stages: Sequence[Stage]) -> dict[tuple[str, str], list[str]]:
    """The stages that take each port, by (stage, port)."""
    taken: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        for name, port in stage["after"]:
            taken.setdefault((name, port), []).append(stage["name"])
    return taken


def lines(stages: Sequence[Stage]) -> Iterator[Line]:
    """The stages in reading order: the main line, and each branch below the stage that it leaves, one step
    deeper.

    A stage that merges branches stands where they all began. `stages` are in pipeline order (inputs first).
    """
    paths: dict[str, Path] = {}
    along: dict[Path, list[Stage]] = {}
    for stage in stages:
        ways = [(*paths.get(name, ()), *(((name, port),) if port != MAIN else ()))
                for name, port in stage["after"]]
        path = paths[stage["name"]] = tuple(commonprefix(ways))  # noqa: RUF071 - of tuples, item by item
        along.setdefault(path, []).append(stage)
    taken = takers(stages)

    def walk(path: Path) -> Iterator[Line]:
        for stage in along.get(path, ()):
            yield Line(len(path), stage)
            for name, port in taken:
                if name == stage["name"] and port != MAIN:
                    yield Line(len(path), stage, port)
                    yield from walk((*path, (name, port)))

    return walk(())
