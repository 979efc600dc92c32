"""A pipeline over a sample of its input: the first records of units from all over it, written elsewhere."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.names import suggestion
from curator.api.stage import Outputs, Sink, Source, Stage, Unit
from curator.io.files.reading import UnitProgress
from curator.pipeline.graph import Graph, Node
from curator.pipeline.layout import without_path

PARTS_MAX = 64  # of a source that are sampled: files, or ranges of them
COUNT_BYTES = 64 << 20  # of a source that are read to know how many records there are
# Counts of a sampled source. `BYTES`: that the sampled parts stand for; `ROWS`: as many as there would be in
# these, `SQUARES`: likewise; `PART`: parts that were not read to their end; `COUNTED`: microseconds of work
# for that.
ROWS, BYTES, SQUARES, PART, COUNTED = (f"sampled_{n}" for n in ("rows", "bytes", "squares", "part", "us"))


@dataclass(frozen=True)
class Sampled:
    """A pipeline over a sample. By the name of the source: `bytes_in`, `parts`, and `units`, the bytes of
    each, of the whole input; `sampled`: the bytes of each part of the sample."""

    pipeline: Graph
    bytes_in: Mapping[str, int]
    parts: Mapping[str, int]
    units: Mapping[str, Sequence[int]]
    sampled: Mapping[str, Sequence[int]]


def sampled(pipeline: Graph, records: int, out: str) -> Sampled:
    """The same pipeline over about so many records, into another folder.

    Every source gives the same share of them, from parts at equal distances in bytes, the more of a part the
    larger it is. Raises what listing the input raises.
    """
    sources = {node: node.stage for node in pipeline.nodes() if isinstance(node.stage, Source)}
    names = pipeline.names()
    # a part is a unit too: of one that gathers small files not only the first is seen
    units = {node: list(source.units()) for node, source in sources.items()}
    parts = {node: [Unit((part,)) for unit in found for part in unit.parts] for node, found in units.items()}
    most = max(1, min(records // len(sources), PARTS_MAX))
    chosen = {node: _spread(found, most) for node, found in parts.items()}

    def change(node: Node) -> Stage:
        if isinstance(node.stage, Sink):
            return without_path(node.stage)
        if not isinstance(node.stage, Source):
            return node.stage
        own, stage = chosen[node], copy.copy(node.stage)
        density = records / len(sources) / max(1, sum(unit.size_bytes for unit in own))
        step = sum(u.size_bytes for u in parts[node]) / len(own) if len(own) < len(parts[node]) else 0.0
        object.__setattr__(stage, "units", partial(list, own))
        object.__setattr__(stage, "read", partial(_read, node.stage, density, COUNT_BYTES // len(own), step))
        return stage

    settings = replace(pipeline.settings, out=out, storage_options={}, max_failed=records)
    return Sampled(replace(pipeline.with_stages(change), settings=settings),
                   {names[n]: sum(u.size_bytes for u in found) for n, found in parts.items()},
                   {names[n]: len(found) for n, found in parts.items()},
                   {names[n]: [u.size_bytes for u in found] for n, found in units.items()},
                   {names[n]: [u.size_bytes for u in found] for n, found in chosen.items()})


def find(pipeline: Graph, stage: str) -> Node:
    """The node of the stage that is called so.

    Raises:
        CuratorError: there is none.
    """
    by_name = {name: node for node, name in pipeline.names().items()}
    if stage not in by_name:
        hint = suggestion(stage, by_name, f"there are {', '.join(by_name)}")
        raise CuratorError(f"there is no stage {stage!r} in this pipeline; {hint}")
    return by_name[stage]


def _spread(units: Sequence[Unit], most: int) -> list[Unit]:
    """Units at equal distances in bytes: each is as likely as it is large."""
    if len(units) <= most:
        return list(units)
    total, along, found = sum(u.size_bytes for u in units), 0, dict[int, Unit]()
    step = max(1, total) / most
    for at, unit in enumerate(units):
        if along <= (len(found) + 0.5) * step < along + max(1, unit.size_bytes):
            found[at] = unit
        along += unit.size_bytes
    return list(found.values()) or list(units[:most])


def _read(source: Source, density: float, count_bytes: int, step: float,
          unit: Unit) -> Iterator[Batch | Outputs]:
    """The first records of a unit, `density` for each of its bytes, and how many there are in how many bytes.
    Units were chosen every `step` bytes, and each stands for so many, or its own if that is more.

    Sources read ahead, so what a few records take is not told by how far the file is read: reading goes on
    for up to `count_bytes`, without the records, and the first place that was seen is left out.
    """
    left = max(1, math.ceil(density * unit.size_bytes))
    progress, rows, began, seen = UnitProgress(unit.parts), 0, 0.0, list[tuple[int, float]]()
    whole = True
    for answer in source.read(unit):
        parts = answer if isinstance(answer, Outputs) else Outputs(out=answer)
        rows += sum(len(batch) for batch in parts.values())
        seen.append((rows, progress.share() * unit.size_bytes))
        if left > 0:
            kept = Outputs(counts=parts.counts)
            for port, batch in parts.items():
                kept[port] = batch.slice(0, max(0, left))
                left -= len(kept[port])
            yield kept
            began = perf_counter()
        elif seen[-1][1] < unit.size_bytes and seen[-1][1] - seen[0][1] > count_bytes:
            whole = False
            break
    found = _density(seen, rows, unit, whole)
    read = max(unit.size_bytes, round(step))
    yield Outputs(counts={ROWS: round(found * read), BYTES: read, PART: int(not whole),
                          SQUARES: round(1e12 * found * found * read),
                          COUNTED: round(1e6 * (perf_counter() - began)) if left <= 0 else 0})


def _density(seen: Sequence[tuple[int, float]], rows: int, unit: Unit, whole: bool) -> float:
    """Records a byte of a unit."""
    if whole:
        return rows / max(1, unit.size_bytes)
    (first, begin), (last, end) = seen[0], seen[-1]
    return (last - first) / (end - begin) if end - begin > 0.2 * end else last / max(1.0, end)


def records_in(counts: Mapping[str, Mapping[str, float]], whole: Sampled) -> tuple[float, float]:
    """How many records the whole input has, and the relative error of that (one standard deviation).

    `counts`: the extra counts of each source of the sample.
    """
    total, variance = 0.0, 0.0
    for name, size in whole.bytes_in.items():
        extra = counts.get(name, {})
        rows, read, units = extra.get(ROWS, 0), extra.get(BYTES, 0), len(whole.sampled[name])
        if not read:
            continue
        mean = rows / read
        total += size * mean
        if whole.parts[name] > units or extra.get(PART):
            spread = max(0.0, extra[SQUARES] / 1e12 / read - mean * mean)
            variance += size * size * spread / max(1, units - 1) if units > 1 else (0.3 * size * mean) ** 2
    return total, variance ** 0.5 / total if total else 0.0

