"""What is written replaced by what runs, before a pipeline is planned: composite stages by the stages that
they are made of, checkpoints by the ends whose rows they keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from curator.api.errors import RecipeError
from curator.api.stage import Composite, Sink
from curator.io.files.listing import CLUSTERS
from curator.pipeline.checkpoint import Checkpoint
from curator.pipeline.graph import End, Graph, Node
from curator.pipeline.layout import below


def expand(pipeline: Graph) -> tuple[Graph, dict[Node, Node], frozenset[End]]:
    """The pipeline with what each `Composite` expands to in its place; the parts, each with the main one of
    its composite; and the ends whose rows a `Checkpoint` keeps.

    The main one gets the name and place of the composite; the others are called `<name>.<part>`. The settings
    say the run's folder.
    """
    names = pipeline.names()
    copies: dict[Node, Node] = {}  # of the nodes as they were
    through: dict[Node, tuple[End, ...]] = {}  # what stands for the end of a checkpoint
    kept: set[End] = set()
    parts: dict[Node, Node] = {}
    sinks: list[Node] = []

    def now(ends: Iterable[End]) -> tuple[End, ...]:
        found = (through.get(end.node) or (End(copies[end.node], end.port),) for end in ends)
        return tuple(end for some in found for end in some)

    for node in pipeline.nodes():
        inputs = now(node.inputs)
        if isinstance(node.stage, Checkpoint):
            through[node] = inputs
            kept |= set(inputs if node.stage.keep else ())
            continue
        if not isinstance(node.stage, Composite):
            copies[node] = replace(node, inputs=inputs) if inputs != node.inputs else node
            continue
        rows = Graph(inputs, settings=pipeline.settings)
        copies[node], more = _expand(node, node.stage, names[node], rows)
        parts |= dict.fromkeys(more, copies[node])
        sinks += [part for part in more if isinstance(part.stage, Sink)]
    own = tuple(copies[sink] for sink in pipeline.sinks)
    return replace(pipeline, ends=now(pipeline.ends), sinks=(*own, *sinks), last=None), parts, frozenset(kept)


def _expand(node: Node, whole: Composite, name: str, rows: Graph) -> tuple[Node, list[Node]]:
    """The main node and the other ones that a composite is made of."""
    options = dict(rows.settings.storage_options) or None
    made = whole.expand(rows, below(str(rows.settings.out), f"{CLUSTERS}/{name}"), options)
    main = made.last
    if main is None or set(whole.ports) - set(main.stage.ports):
        raise RecipeError(f"stage {name!r} expands to a pipeline whose last stage has not all of its ports "
                          f"({', '.join(whole.ports)})")
    before = {end.node for end in rows.ends}
    renamed: dict[Node, Node] = {}

    def visit(part: Node) -> Node:
        if part in before:
            return part
        if part not in renamed:
            own = name if part is main else f"{name}.{part.stage.name}"
            inputs = tuple(End(visit(end.node), end.port) for end in part.inputs)
            renamed[part] = Node(part.stage.with_(name=own), inputs, node.place)
        return renamed[part]

    for part in (main, *made.sinks):
        visit(part)
    return renamed[main], [part for part in renamed.values() if part is not renamed[main]]
