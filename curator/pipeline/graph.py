"""The graph of a pipeline: stages joined port to stage. `curator.front.Pipeline` is one that can be run.

    read("docs/*.jsonl") >> Drop(conditions={"short": "length(text) < 200"}) >> write("out/")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from curator.api.errors import RecipeError
from curator.api.stage import SIDE_OUTPUTS, Sink, Source, Stage


@dataclass(frozen=True, eq=False)
class Node:
    """A stage in a graph. `inputs`: where it takes rows from; `place`: where a recipe names it."""

    stage: Stage
    inputs: tuple[End, ...] = ()
    place: str = ""

    @property
    def sink(self) -> Sink:
        """The stage of a node that writes."""
        assert isinstance(self.stage, Sink), self.stage.name
        return self.stage


@dataclass(frozen=True)
class End:
    """A port of a node: somewhere that rows come out."""

    node: Node
    port: str = "out"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run tolerates and keeps.

    `max_failed`: how many records may fail before the run stops: a number, or a share of the records read,
    which allows one unless that is all there is. 1 is one record; 1.0 is a share, all of them. `discard`:
    side outputs (`dropped`, `duplicate`) or `port/stage` whose rows are counted but not kept. `out`: the
    run's folder; by default the path of the only sink. `storage_options`: what its filesystem wants.
    `description` and `license` stand on the card of what the run makes.
    """

    max_failed: float = 0.05
    discard: tuple[str, ...] = ()
    out: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    license: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.max_failed, float) and self.max_failed == 1:
            object.__setattr__(self, "max_failed", float("inf"))


@dataclass(frozen=True)
class Graph:
    """Stages joined port to stage. `>>` adds a stage or sink, `+` unites, `route` and `port` branch.

    `ends` are the open ends that the next stage takes; `sinks` are the finished ones; `last` is the stage
    that was added last, whose ports can be followed. A pipeline is immutable: each operation gives a new one.
    """

    ends: tuple[End, ...] = ()
    sinks: tuple[Node, ...] = ()
    last: Node | None = None
    name: str = "pipeline"
    settings: Settings = field(default_factory=Settings)

    def __rshift__(self, stage: Stage) -> Self:
        return self.then(stage)

    def then(self, stage: Stage) -> Self:
        """Every open end goes into this stage (several ends are merged there)."""
        if not isinstance(stage, Stage):
            raise RecipeError(f"{stage!r} is not a stage; a plain function becomes one with @curator.stage")
        if isinstance(stage, Source):
            raise RecipeError(f"source {stage.name!r} cannot follow a stage; unite sources with +")
        if not self.ends:
            raise RecipeError(f"stage {stage.name!r} has nothing to read from: the pipeline before it is "
                              "closed")
        node = Node(stage, self.ends)
        if isinstance(stage, Sink):
            return replace(self, ends=(), sinks=(*self.sinks, node), last=None)
        ends = (End(node),) if "out" in stage.ports else ()
        return replace(self, ends=ends, last=node)

    def __add__(self, other: Graph) -> Self:
        """Both pipelines' open ends and sinks: the next stage merges them."""
        ends = tuple(dict.fromkeys((*self.ends, *other.ends)))
        sinks = tuple(dict.fromkeys((*self.sinks, *other.sinks)))
        return replace(self, ends=ends, sinks=sinks, last=self.last if self.last is other.last else None)

    def port(self, name: str) -> Self:
        """The rows that the last stage sends to another of its ports."""
        node = self._last()
        known = (*node.stage.ports, *SIDE_OUTPUTS)
        if name not in known:
            raise RecipeError(f"stage {node.stage.name!r} has no port {name!r}; it has {', '.join(known)}")
        return replace(self, ends=(End(node, name),))

    def branches(self) -> dict[str, Self]:
        """A pipeline for each port of the last stage, by name."""
        return {name: self.port(name) for name in self._last().stage.ports}

    def to(self, sink: Sink) -> Self:
        """Write the open ends to this sink too, and keep them open."""
        return replace(self, sinks=self.then(sink).sinks)

    def named(self, name: str, **settings: Any) -> Self:
        """With a name and changed settings (fields of `Settings`)."""
        return replace(self, name=name, settings=replace(self.settings, **settings))

    def nodes(self) -> list[Node]:
        """Every node, sources first, in an order in which each comes after its inputs."""
        ordered: dict[Node, None] = {}

        def visit(node: Node) -> None:
            if node not in ordered:
                for end in node.inputs:
                    visit(end.node)
                ordered[node] = None

        for node in (*self.sinks, *(end.node for end in self.ends)):
            visit(node)
        return list(ordered)

    def names(self) -> dict[Node, str]:
        """What each node is called: as its stage, with a number from the second of a name on."""
        names: dict[Node, str] = {}
        for node in self.nodes():
            names[node] = unique(node.stage.name, names.values())
        return names

    def with_stages(self, change: Callable[[Node], Stage]) -> Self:
        """The same graph, closed, with other stages in the places of its own."""
        made: dict[Node, Node] = {}
        for node in self.nodes():
            inputs = tuple(End(made[end.node], end.port) for end in node.inputs)
            made[node] = replace(node, stage=change(node), inputs=inputs)
        return replace(self, sinks=tuple(made[sink] for sink in self.sinks), last=None)

    def _last(self) -> Node:
        if self.last is None:
            raise RecipeError("ports are of one stage, and this pipeline has "
                              + (f"{len(self.ends)} open ends" if self.ends else "no open end"))
        return self.last


def from_source(source: Source) -> Graph:
    """A pipeline that begins with this source."""
    if not isinstance(source, Source):
        raise RecipeError(f"{source!r} is not a source")
    node = Node(source)
    return Graph(ends=(End(node),), last=node)


def unique(name: str, taken: Collection[str]) -> str:
    """The name, with a number after it if it is taken: `drop-2`."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
