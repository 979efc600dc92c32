"""The drawing of a run: for each stage a strip of ribbons whose widths are the numbers of rows.

The strips stand one below the other, each beside the words about its stage, and the ribbons run on from strip to
strip. A strip is 100 wide and 100 high and is stretched to the room there is, so that it works on a phone and on paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curator.observe.report.graph import SIDE_OUTPUTS, Stage, kept, lines, ports

GAP = 2.0  # between ribbons, in the strip's units, as all lengths here
THINNEST = 0.7  # one record among millions is still seen
NODE = 36.0  # where a stage's bar is drawn


@dataclass(frozen=True)
class Shape:
    """An SVG path and what it shows: "node" and "sink" are lines, to be stroked; all others are ribbons, to be filled.

    "flow" goes straight to the next stage; "waiting" passes by, after "leaving" one stage and before "arriving" at
    another; the others are named after their ending.
    """

    path: str
    kind: str


@dataclass(frozen=True)
class Strip:
    """The drawing beside one stage, which stands `depth` branches deep."""

    stage: Stage
    depth: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class _Edge:
    """Rows on their way from one strip to a later one."""

    start: int
    end: int
    rows: int


def strips(stages: Sequence[Stage]) -> list[Strip]:
    """The drawing of all stages, in reading order."""
    ordered = [line for line in lines(stages) if line.port is None]
    place = {line.stage["name"]: index for index, line in enumerate(ordered)}
    edges = []
    for index, line in enumerate(ordered):
        for name, port in line.stage["after"]:
            before = place[name]
            edges.append(_Edge(before, index, ports(ordered[before].stage).get(port, 0)))
    taken = {(name, port) for line in ordered for name, port in line.stage["after"]}
    lost = [{ending: rows for ending, rows in _losses(line.stage).items() if (line.stage["name"], ending) not in taken}
            for line in ordered]
    scale = _scale(edges, lost, [line.stage["in"] + line.stage["made"] for line in ordered])
    return [Strip(line.stage, line.depth, tuple(_shapes(index, line.stage, edges, lost[index], scale)))
            for index, line in enumerate(ordered)]


def _losses(stage: Stage) -> dict[str, int]:
    ended = {**ports(stage), "absorbed": stage["absorbed"]}
    return {ending: ended[ending] for ending in (*SIDE_OUTPUTS, "absorbed") if ended.get(ending)}


def _live(edges: Sequence[_Edge], boundary: int) -> list[_Edge]:
    """The edges that cross the line above a strip, those that end soonest on the left."""
    live = [e for e in edges if e.start < boundary <= e.end and e.rows]
    return sorted(live, key=lambda e: (e.end, e.start))


def _scale(edges: Sequence[_Edge], lost: Sequence[Mapping[str, int]], rows: Sequence[int]) -> float:
    """Width of one row, so that the fullest line still fits."""
    widest, ribbons = 1, 1
    for boundary in range(len(lost) + 1):
        live = _live(edges, boundary)
        losses = lost[boundary - 1] if boundary else {}
        widest = max(widest, sum(e.rows for e in live) + sum(losses.values()))
        ribbons = max(ribbons, len(live) + len(losses))
    return (100 - (GAP + THINNEST) * ribbons) / max(widest, *rows, 1)


def _width(rows: int, scale: float) -> float:
    return max(THINNEST, rows * scale) if rows else 0.0


def _positions(live: Sequence[_Edge], scale: float) -> tuple[dict[_Edge, float], float]:
    """The left end of each ribbon on a line, and where the next one would begin."""
    at, x = {}, 0.0
    for edge in live:
        at[edge] = x
        x += _width(edge.rows, scale) + GAP
    return at, x


def _shapes(index: int, stage: Stage, edges: Sequence[_Edge], lost: Mapping[str, int], scale: float) -> list[Shape]:
    above, _ = _positions(_live(edges, index), scale)
    below, free = _positions(_live(edges, index + 1), scale)
    shapes = [Shape(_ribbon(above[e], 0, below[e], 100, _width(e.rows, scale)), "waiting")
              for e in above if e.end > index]
    x = 0.0
    for edge in (e for e in above if e.end == index):
        width, kind = _width(edge.rows, scale), "flow" if edge.start == index - 1 else "arriving"
        shapes.append(Shape(_ribbon(above[edge], 0, x, NODE, width), kind))
        x += width
    right = max(x, _width(max(stage["in"] + stage["made"], kept(stage)), scale), THINNEST)
    x = 0.0
    for edge in (e for e in below if e.start == index):
        width, kind = _width(edge.rows, scale), "flow" if edge.end == index + 1 else "leaving"
        shapes.append(Shape(_ribbon(x, NODE, below[edge], 100, width), kind))
        x += width
    for ending, rows in lost.items():
        width = _width(rows, scale)
        shapes.append(Shape(_ribbon(x, NODE, free, 100, width), ending))
        x, free = x + width, free + width
    return [*shapes, Shape(f"M0 {NODE:g}H{max(right, x):.2f}", "sink" if stage["kind"] == "sink" else "node")]


def _ribbon(x0: float, y0: float, x1: float, y1: float, width: float) -> str:
    """A band of this width that leaves one place and reaches the other straight down."""
    middle = (y0 + y1) / 2
    return (f"M{x0:.2f} {y0:g}C{x0:.2f} {middle:g} {x1:.2f} {middle:g} {x1:.2f} {y1:g}H{x1 + width:.2f}"
            f"C{x1 + width:.2f} {middle:g} {x0 + width:.2f} {middle:g} {x0 + width:.2f} {y0:g}Z")


def shares(parts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Each part that is not 0 with its percentage of the sum, for a bar."""
    whole = sum(parts.values())
    return [{"name": name, "rows": rows, "percent": 100 * rows / whole} for name, rows in parts.items() if rows]
