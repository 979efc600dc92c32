"""How a pipeline looks: a short tree in text, and a small graph in a notebook."""

from __future__ import annotations

import dataclasses
import html
import re

from curator.api.format import plural, shorten
from curator.api.stage import FunctionStage, Sink, Source, Stage
from curator.pipeline.graph import Graph, Node
from curator.recipe.dump import plain
from curator.recipe.parameters import usual

SAID_MAX = 70  # characters of a stage's parameters in the tree,
DRAWN_MAX = 34  # and in the graph
# Of a box of the graph, in pixels; a character of the small text is about so wide.
LETTER, BOX_HEIGHT, GAP_X, GAP_Y, EDGE = 6.1, 40, 24, 34, 14
FILLS = {Source: "#e7f0fb", Sink: "#e6f4ea", Stage: "#f6f8fa"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tree(pipeline: Graph) -> str:
    """A line for each stage. What follows on one port alone stands below it, branches are indented, and a
    stage of several inputs names them."""
    nodes, names = pipeline.nodes(), pipeline.names()
    ended = "" if pipeline.sinks and not pipeline.ends else ", without a sink"
    lines = [f"Pipeline {pipeline.name!r}: {plural(len(nodes), 'stage')}{ended}"]
    takers: dict[Node, list[tuple[str, Node]]] = {}
    for node in nodes:
        if len(node.inputs) == 1:
            takers.setdefault(node.inputs[0].node, []).append((node.inputs[0].port, node))

    def show(node: Node, depth: int, port: str = "") -> None:
        lead = "  " * depth + (f"└ {port}: " if port else "")
        inputs = ", ".join(f"{names[end.node]}.{end.port}" for end in node.inputs)
        begin = f"  <- {inputs}" if len(node.inputs) > 1 else ""
        lines.append(f"{lead}{names[node]}  {said(node.stage, SAID_MAX)}".rstrip() + begin)
        own = takers.get(node, [])
        alone = len(own) == 1 and own[0][0] == "out"
        for at, taker in own:
            show(taker, depth + bool(port) if alone else depth + 1, "" if alone else at)

    for node in nodes:
        if len(node.inputs) != 1:
            show(node, 1)
    return "\n".join(lines)


def said(stage: Stage, most: int) -> str:
    """The parameters that are not the usual ones, short and without secrets."""
    if isinstance(stage, FunctionStage):
        given = dict(stage.arguments)
    elif dataclasses.is_dataclass(stage):
        given = {f.name: value for f in dataclasses.fields(stage) if f.init
                 and repr(value := getattr(stage, f.name)) != repr(usual(f))}
    else:
        given = {}
    return shorten(", ".join(f"{name}={plain(value, name)}" for name, value in given.items()), most)


def svg(pipeline: Graph) -> str:
    """The graph, from top to bottom, on a ground of its own: readable on a light page and on a dark one."""
    nodes, names = pipeline.nodes(), pipeline.names()
    texts = {node: (names[node], said(node.stage, DRAWN_MAX)) for node in nodes}
    width = max((len(text) for pair in texts.values() for text in pair), default=1) * LETTER + 20
    level: dict[Node, int] = {}
    cells: dict[tuple[int, int], Node] = {}  # by level and column: below the first input, if that is free
    column: dict[Node, int] = {}
    at: dict[Node, tuple[float, float]] = {}
    for node in nodes:
        level[node] = max((level[end.node] + 1 for end in node.inputs), default=0)
        column[node] = column[node.inputs[0].node] if node.inputs else 0
        while (level[node], column[node]) in cells:
            column[node] += 1
        cells[level[node], column[node]] = node
        at[node] = EDGE + column[node] * (width + GAP_X), EDGE + level[node] * (BOX_HEIGHT + GAP_Y)
    across = 2 * EDGE + (max(column.values(), default=0) + 1) * (width + GAP_X) - GAP_X
    down = 2 * EDGE + (max(level.values(), default=0) + 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:.0f}" height="{down:.0f}" '
             f'viewBox="0 0 {across:.0f} {down:.0f}" font-family="monospace" font-size="10">',
             f"<title>{_text(pipeline.name)}</title>",
             '<rect width="100%" height="100%" rx="8" fill="#ffffff" stroke="#d0d7de"/>']
    parts += [_edge(at[end.node], at[node], width, end.port) for node in nodes for end in node.inputs]
    parts += [_box(at[node], width, node.stage, *texts[node]) for node in nodes]
    return "".join((*parts, "</svg>"))


def _edge(above: tuple[float, float], below: tuple[float, float], width: float, port: str) -> str:
    x1, y1, x2, y2 = above[0] + width / 2, above[1] + BOX_HEIGHT, below[0] + width / 2, below[1]
    middle = (y1 + y2) / 2
    line = (f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{middle:.0f} {x2:.0f},{middle:.0f} {x2:.0f},{y2:.0f}" '
            'fill="none" stroke="#6e7781"/>'
            f'<path d="M{x2 - 4:.0f},{y2 - 6:.0f} L{x2:.0f},{y2:.0f} L{x2 + 4:.0f},{y2 - 6:.0f}" '
            'fill="none" stroke="#6e7781"/>')
    if port == "out":
        return line
    return (f'{line}<text x="{(x1 + x2) / 2 + 4:.0f}" y="{middle + 3:.0f}" fill="#57606a">{_text(port)}'
            "</text>")


def _box(place: tuple[float, float], width: float, stage: Stage, name: str, said: str) -> str:
    x, y = place
    fill = next(colour for kind, colour in FILLS.items() if isinstance(stage, kind))
    return (f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="5" fill="{fill}" '
            'stroke="#8c959f"/>'
            f'<text x="{x + 10:.0f}" y="{y + (17 if said else 24):.0f}" font-weight="bold" fill="#1f2328">'
            f"{_text(name)}</text>"
            f'<text x="{x + 10:.0f}" y="{y + 31:.0f}" fill="#57606a">{_text(said)}</text>')


def _text(text: str) -> str:
    return html.escape(_NO_XML.sub("\ufffd", text))
