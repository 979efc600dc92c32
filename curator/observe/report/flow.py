"""The drawing of a run: for each stage a strip of ribbons whose widths are the numbers of rows.

The strips stand one below the other, each beside the words about its stage, and the ribbons run on from strip to
strip. A strip is 100 wide and 100 high and is stretched to the room there is, so that it works on a phone and on paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from curator.observe.report.graph import Stage, kept, lines, losses, ports, takers

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
    edges = [_Edge(place[name], index, ports(ordered[place[name]].stage).get(port, 0))
             for index, line in enumerate(ordered) for name, port in line.stage["after"]]
    taken = takers(stages)
    lost = [{ending: rows for ending, _, rows in losses(line.stage, 0) if (line.stage["name"], ending) not in taken} for line in ordered]
    scale = _scale(edges, lost, [line.stage["in"] + line.stage["made"] for line in ordered])
    return [Strip(line.stage, line.depth, tuple(_shapes(index, line.stage, edges, lost[index], scale)))
            for index, line in enumerate(ordered)]


def _live(edges: Sequence[_Edge], boundary: int) -> list[_Edge]:
    """The edges that cross the line above a strip, those that end soonest on the left."""
    return sorted((e for e in edges if e.start < boundary <= e.end and e.rows), key=lambda e: (e.end, e.start))


def _scale(edges: Sequence[_Edge], lost: Sequence[Mapping[str, int]], rows: Sequence[int]) -> float:
    """Width of one row, so that the fullest line still fits."""
    crossing = [[*(e.rows for e in _live(edges, boundary)), *(lost[boundary - 1].values() if boundary else ())]
                for boundary in range(len(lost) + 1)]
    return (100 - (GAP + THINNEST) * max(1, *map(len, crossing))) / max(1, *map(sum, crossing), *rows)


def _width(rows: int, scale: float) -> float:
    return max(THINNEST, rows * scale) if rows else 0.0


def _positions(live: Sequence[_Edge], scale: float) -> tuple[dict[_Edge, float], float]:
    """The left end of each ribbon on a line, and where the next one would begin."""
    at, x = {}, 0.0
    for edge in live:
        at[edge] = x
        x += _width(edge.rows, scale) + GAP
    return at, x


def _shapes(index: int, stage: Stage, edges: Sequence[_Edge], lost: Mapping[str, int], scale: float) -> Iterator[Shape]:
    above, _ = _positions(_live(edges, index), scale)
    below, free = _positions(_live(edges, index + 1), scale)
    arrived = left = 0.0
    for edge, x in above.items():
        width = _width(edge.rows, scale)
        if edge.end > index:
            yield Shape(_ribbon(x, 0, below[edge], 100, width), "waiting")
        else:
            yield Shape(_ribbon(x, 0, arrived, NODE, width), "flow" if edge.start == index - 1 else "arriving")
            arrived += width
    for edge in (e for e in below if e.start == index):
        width = _width(edge.rows, scale)
        yield Shape(_ribbon(left, NODE, below[edge], 100, width), "flow" if edge.end == index + 1 else "leaving")
        left += width
    for ending, rows in lost.items():
        width = _width(rows, scale)
        yield Shape(_ribbon(left, NODE, free, 100, width), ending)
        left, free = left + width, free + width
    right = max(arrived, left, _width(max(stage["in"] + stage["made"], kept(stage)), scale), THINNEST)
    yield Shape(f"M0 {NODE:g}H{right:.2f}", "sink" if stage["kind"] == "sink" else "node")


def _ribbon(x0: float, y0: float, x1: float, y1: float, width: float) -> str:
    """A band of this width that leaves one place and reaches the other straight down."""
    middle = (y0 + y1) / 2
    return (f"M{x0:.2f} {y0:g}C{x0:.2f} {middle:g} {x1:.2f} {middle:g} {x1:.2f} {y1:g}H{x1 + width:.2f}"
            f"C{x1 + width:.2f} {middle:g} {x0 + width:.2f} {middle:g} {x0 + width:.2f} {y0:g}Z")
