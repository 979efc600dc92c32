"""Composite stages replaced by the stages that they are made of, before a pipeline is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from curator.api.errors import RecipeError
from curator.api.stage import Composite, Sink
from curator.io.files.listing import CLUSTERS
from curator.pipeline.graph import End, Graph, Node
from curator.pipeline.layout import below


@dataclass(frozen=True)
class Expanded:
    """A pipeline without composites. `parts`: the nodes that are part of one, aside its main one, with that main node."""

    pipeline: Graph
    parts: dict[Node, Node] = field(default_factory=dict)


def expand(pipeline: Graph, names: dict[Node, str]) -> Expanded:
    """Put what each `Composite` expands to in its place. `names`: of all nodes; the settings say the run's folder.

    The main node of a composite gets its name and place; the others are called `<name>.<part>`.
    """
    copies: dict[Node, Node] = {}  # of the nodes as they were
    parts: dict[Node, Node] = {}
    sinks: list[Node] = []
    for node in pipeline.nodes():
        inputs = tuple(End(copies[end.node], end.port) for end in node.inputs)
        if not isinstance(node.stage, Composite):
            copies[node] = replace(node, inputs=inputs) if inputs != node.inputs else node
            continue
        main, more = _expand(node, names[node], Graph(inputs, settings=pipeline.settings))
        copies[node] = main
        parts |= dict.fromkeys(more, main)
        sinks += [part for part in more if isinstance(part.stage, Sink)]
    ends = tuple(End(copies[end.node], end.port) for end in pipeline.ends)
    own = tuple(copies[sink] for sink in pipeline.sinks)
    return Expanded(replace(pipeline, ends=ends, sinks=(*own, *sinks), last=None), parts)


def _expand(node: Node, name: str, rows: Graph) -> tuple[Node, list[Node]]:
    """The main node and the other ones that a composite is made of."""
    options = dict(rows.settings.storage_options) or None
    made = node.stage.expand(rows, below(str(rows.settings.out), f"{CLUSTERS}/{name}"), options)
    main = made.last
    if main is None or set(node.stage.ports) - set(main.stage.ports):
        raise RecipeError(f"stage {name!r} expands to a pipeline whose last stage has not all of its ports "
                          f"({', '.join(node.stage.ports)})")
    before = {end.node for end in rows.ends}
    renamed: dict[Node, Node] = {}

    def visit(part: Node, call: Callable[[str], str]) -> Node:
        if part in before:
            return part
        if part not in renamed:
            inputs = tuple(End(visit(end.node, inner), end.port) for end in part.inputs)
            renamed[part] = Node(part.stage.with_(name=call(part.stage.name)), inputs, node.place)
        return renamed[part]

    def inner(part: str) -> str:
        return f"{name}.{part}"

    first = visit(main, lambda _: name)
    for sink in made.sinks:
        visit(sink, inner)
    return first, [part for part in renamed.values() if part is not first]
