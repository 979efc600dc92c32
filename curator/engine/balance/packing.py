"""Where workers live: packs given numbers of workers onto nodes and devices, and keeps those that run where
it can.

Everything is arithmetic on arrays with one entry a node or a device, so that 60,000 workers on 1,000 nodes
cost milliseconds. A device has one number: the node's index times the most devices a node has, plus its
number there. A worker is a row of such numbers; one without devices is a row of node indices, one a rank.

What is hardest to place comes first: gangs, whole GPUs, shares of a GPU (large ones first), then memory, then
cores. Each kind keeps its own workers, then takes what is free, and at last what workers of later kinds have
now: these move to holes elsewhere when it is their turn. That is how a whole GPU comes free where only shared
ones have room.

Cores are leased by the call: a worker that is busy a share `load` of its time counts `load` times its cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from curator.api.resources import Node, Place, Resources

EPS = 1e-6
FAR = 1 << 30  # more workers than any plan has
LEAST_LOAD = 0.05  # of a core's time; no worker is started to use less


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What each rank of a worker takes of its node, cut to what a node can give at all (who asks for more
    gets all of it)."""

    ranks: int
    devices: int
    share: float  # of each device
    vram: float  # gigabytes of each device
    memory: float  # gigabytes
    cpus: float
    able: np.ndarray  # the nodes that can ever hold a rank


class Room:
    """What is free on each node and each device."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        gpus = np.array([n.gpus for n in nodes])
        self.width = max(1, int(gpus.max(initial=0)))
        exists = np.arange(self.width) < gpus[:, None]
        vram = np.array([n.gpu_memory_gb or np.inf for n in nodes])  # 0: not known, so anything fits
        self.cores = np.array([float(n.cpus) for n in nodes])
        self.cpus = self.cores.copy()  # free shares of them
        self.memory = np.array([n.memory_bytes / 1e9 for n in nodes])
        self.share = exists.astype(float)
        self.vram = np.where(exists, vram[:, None], 0.0)

    def shape(self, need: Resources) -> Shape:
        """What a rank of such a worker takes on empty nodes. Where no node has a GPU it runs without one."""
        ranks = max(1, int(need.gpus or need.cpus)) if need.gang else 1
        gpus = self.share.sum(axis=1)
        devices = (1 if need.gang or need.gpus < 1 else int(need.gpus)) if need.gpus and gpus.any() else 0
        able, cut = np.ones(len(gpus), dtype=bool), []
        wants = (devices, need.gpu_memory_gb if devices else 0.0, need.memory_gb / ranks, need.cpus / ranks)
        for have, want in zip((gpus, self.vram.max(axis=1), self.memory, self.cores), wants, strict=True):
            cut.append(min(float(want), float(have[able].max(initial=0.0))))
            able = able & (have >= cut[-1] - EPS)
        share = (1.0 if need.gang else min(1.0, need.gpus)) if devices else 0.0
        return Shape(ranks, int(cut[0]), share, cut[1], cut[2], cut[3], able)

    def most(self, shape: Shape, load: float) -> np.ndarray:
        """Ranks for which each node has cores and memory."""
        most = np.where(shape.able, float(FAR), 0.0)
        for free, each in ((self.cpus, shape.cpus * load), (self.memory, shape.memory)):
            if each > 0:
                most = np.minimum(most, np.floor((free + EPS) / each))
        return np.maximum(most, 0.0).astype(np.int64)

    def take(self, shape: Shape, load: float, rows: np.ndarray) -> None:
        if shape.devices:
            on_devices = self.on_devices(shape, rows)
            self.share -= shape.share * on_devices
            self.vram -= shape.vram * on_devices
        ranks = np.bincount(self.nodes(shape, rows).ravel(), minlength=len(self.cpus))
        self.cpus -= shape.cpus * load * ranks
        self.memory -= shape.memory * ranks

    def on_devices(self, shape: Shape, rows: np.ndarray) -> np.ndarray:
        """How many ranks are on each device."""
        count = np.bincount(rows.ravel(),
                            minlength=self.share.size) if shape.devices else np.zeros(self.share.size)
        return count.reshape(self.share.shape)

    def nodes(self, shape: Shape, rows: np.ndarray) -> np.ndarray:
        """The node of each rank."""
        return rows[:, ::shape.devices] // self.width if shape.devices else rows


def nth(values: np.ndarray) -> np.ndarray:
    """For each value how many equal ones stand before it, row by row."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    out = np.empty(len(flat), dtype=np.int64)
    out[order] = np.arange(len(flat)) - np.searchsorted(ordered, ordered)
    return out.reshape(values.shape)


def fill(most: np.ndarray, count: int) -> np.ndarray:
    """`count` things into places that take `most` each, the first place first."""
    return np.diff(np.minimum(np.cumsum(most), count), prepend=0)


def spread(most: np.ndarray, count: int, free: np.ndarray) -> np.ndarray:
    """`count` things over places in proportion to what they take; the odd ones where most is free."""
    total = int(most.sum())
    if count >= total:
        return most.copy()
    given = np.floor(most * (count / total)).astype(np.int64)
    odd = np.argsort(-free, kind="stable")
    given[odd[given[odd] < most[odd]][:count - int(given.sum())]] += 1
    return given


class Packer:
    """Packs workers of these needs onto these nodes; `current` are the workers there are, each with its
    places."""

    def __init__(self, needs: Sequence[Resources], nodes: Mapping[int, Node],
                 current: Sequence[Sequence[tuple[Place, ...]]]) -> None:
        self.numbers = sorted(nodes)
        self.room = Room([nodes[n] for n in self.numbers])
        self._gpus = [nodes[n].gpus for n in self.numbers]
        self.shapes = [self.room.shape(need) for need in needs]
        keys = [(s.ranks == 1, -s.ranks, -s.devices, -s.share, -s.vram, -s.memory, -s.cpus)
                for s in self.shapes]
        self.order = sorted(range(len(needs)), key=keys.__getitem__)  # what is hardest to place comes first
        self._index = {number: i for i, number in enumerate(self.numbers)}
        found = [self._rows(s, current[i] if i < len(current) else ()) for i, s in enumerate(self.shapes)]
        used = self._tenants(found)
        self.current = [self._first_kept(s, rows, used) for s, rows in zip(self.shapes, found, strict=True)]
        self.nth = [(nth(rows), nth(self.room.nodes(s, rows)))
                    for s, rows in zip(self.shapes, self.current, strict=True)]

    def pack(self, counts: Sequence[int], loads: Sequence[float], most: Sequence[int],
             room: Room | None = None, go_on: bool = False) -> tuple[list[np.ndarray], set[int]]:
        """Workers for each need and the needs that did not get all; without `go_on` it ends at the first of
        these.

        A need without devices may get more workers than `counts`, up to `most`, where only parts of cores are
        left.
        """
        room = deepcopy(room or self.room)
        found, failed = [rows[:count] for rows, count in zip(self.current, counts, strict=True)], set()
        tenants = self._tenants(found)  # shares of devices that those have who are not dealt with yet
        for i in self.order:
            shape, load, count = self.shapes[i], loads[i], counts[i]
            tenants -= shape.share * room.on_devices(shape, found[i])
            if not count:
                continue
            if not shape.devices and shape.ranks == 1:
                rows, enough = _on_cores(room, shape, load, self.current[i], count, most[i])
            else:
                rows = self._keep(room, i, load)[:count]
                room.take(shape, load, rows)
                rows = np.concatenate([rows, *_add(room, shape, load, count - len(rows), tenants)])
                enough = len(rows) == count
            found[i] = rows
            if not enough:
                failed.add(i)
                if not go_on:
                    break
        return found, failed

    def workers(self, index: int, rows: np.ndarray) -> tuple[tuple[Place, ...], ...]:
        """The places of workers, rank by rank, ordered by node."""
        shape = self.shapes[index]
        if rows.shape[1] > 1:
            return tuple(self._worker(shape, row) for row in rows.tolist())
        alike, which = np.unique(rows.ravel(), return_inverse=True)
        made = [self._worker(shape, [x]) for x in alike.tolist()]
        return tuple([made[i] for i in which.tolist()])

    def _worker(self, shape: Shape, row: list[int]) -> tuple[Place, ...]:
        if not shape.devices:
            return tuple(Place(self.numbers[node]) for node in row)
        ranks = [row[r:r + shape.devices] for r in range(0, len(row), shape.devices)]
        width = self.room.width
        return tuple(Place(self.numbers[rank[0] // width], tuple(d % width for d in rank)) for rank in ranks)

    def _rows(self, shape: Shape, workers: Sequence[tuple[Place, ...]]) -> np.ndarray:
        """The workers that still live on nodes and devices that there are, in the shape that is asked for."""
        # by identity, which is quicker than by value: a plan has each place once
        seen: dict[int, list[int] | None] = {}
        rows = []
        for worker in workers:
            if id(worker) not in seen:
                seen[id(worker)] = self._row(shape, worker)
            row = seen[id(worker)]
            if row is not None:
                rows.append(row)
        return np.array(rows, dtype=np.int64).reshape(-1, shape.ranks * max(1, shape.devices))

    def _row(self, shape: Shape, worker: tuple[Place, ...]) -> list[int] | None:
        row: list[int] = []
        for place in worker:
            node = self._index.get(place.node)
            if node is None or len(place.gpus) != shape.devices or any(not 0 <= g < self._gpus[node]
                                                                       for g in place.gpus):
                return None
            row.extend([node * self.room.width + g for g in place.gpus] or [node])
        return row if len(worker) == shape.ranks else None

    def _tenants(self, workers: Sequence[np.ndarray]) -> np.ndarray:
        """The share of each device that these workers have."""
        return sum((s.share * self.room.on_devices(s, rows)
                    for s, rows in zip(self.shapes, workers, strict=True)), np.zeros(self.room.share.shape))

    def _first_kept(self, shape: Shape, rows: np.ndarray, used: np.ndarray) -> np.ndarray:
        """On the fullest devices and nodes first, so that those that go leave whole devices and nodes."""
        if not shape.devices:
            return rows
        full = used + used.sum(axis=1, keepdims=True) * EPS
        return rows[np.argsort(-full.ravel()[rows].min(axis=1), kind="stable")]

    def _keep(self, room: Room, i: int, load: float) -> np.ndarray:
        """The workers of a need that may stay."""
        shape, rows, (on_device, on_node) = self.shapes[i], self.current[i], self.nth[i]
        stays = (on_node < room.most(shape, load)[room.nodes(shape, rows)]).all(axis=1)
        if shape.devices:
            for free, each in ((room.share, shape.share), (room.vram, shape.vram)):
                stays &= ((on_device + 1) * each <= free.ravel()[rows] + EPS).all(axis=1)
        return rows[stays]


def _add(room: Room, shape: Shape, load: float, count: int, tenants: np.ndarray) -> list[np.ndarray]:
    """Up to `count` more workers that hold devices or a gang's places."""
    added: list[np.ndarray] = []

    def take(rows: np.ndarray) -> None:
        nonlocal count
        room.take(shape, load, rows)
        added.append(rows)
        count -= len(rows)

    if shape.devices and shape.share < 1:
        for reserved in (tenants, np.zeros_like(tenants)):
            if count:
                take(_shares(room, shape, load, count, reserved))
    elif shape.devices and count:
        take(_whole(room, shape, load, count, tenants))
    while shape.ranks > 1 and count:
        rows = _gang(room, shape, load, tenants)
        if rows is None:
            break
        take(rows)
    return added


def _shares(room: Room, shape: Shape, load: float, count: int, reserved: np.ndarray) -> np.ndarray:
    """Shares of devices, on the fullest that fit; among equals where most cores are free."""
    fits = np.maximum(np.floor((room.share - reserved + EPS) / shape.share), 0.0)
    if shape.vram:
        fits = np.minimum(fits, np.floor((room.vram + EPS) / shape.vram))
    inner = np.argsort(room.share, axis=1, kind="stable")
    within = np.minimum(np.cumsum(np.take_along_axis(fits, inner, axis=1), axis=1),
                        room.most(shape, load)[:, None])
    np.put_along_axis(fits, inner, np.diff(within, axis=1, prepend=0), axis=1)
    order = np.lexsort((np.repeat(-room.cpus, room.width), room.share.ravel()))
    return np.repeat(order, fill(fits.ravel()[order], count).astype(np.int64))[:, None]


def _free(room: Room, shape: Shape) -> np.ndarray:
    return (room.share >= 1 - EPS) & (room.vram >= shape.vram - EPS) & shape.able[:, None]


def _whole(room: Room, shape: Shape, load: float, count: int, tenants: np.ndarray) -> np.ndarray:
    """Workers on whole devices of one node: where the fewest tenants have to move, then on the fullest
    node."""
    each = shape.devices * shape.ranks
    free, sets = _free(room, shape), room.width // each
    if not sets:
        return np.empty((0, each), dtype=np.int64)
    cost = np.where(free, tenants, np.inf)
    order = np.argsort(cost, axis=1, kind="stable")[:, :sets * each]
    price = np.take_along_axis(cost, order, axis=1).reshape(-1, sets, each).sum(axis=2)
    price[np.arange(sets) >= (room.most(shape, load) // shape.ranks)[:, None]] = np.inf
    chosen = np.lexsort((np.repeat(-room.cpus, sets), np.repeat(free.sum(axis=1), sets),
                         price.ravel()))[:count]
    chosen = chosen[np.isfinite(price.ravel()[chosen])]
    rows = order + np.arange(len(order))[:, None] * room.width
    return np.sort(rows.reshape(-1, each)[chosen], axis=1)


def _gang(room: Room, shape: Shape, load: float, tenants: np.ndarray) -> np.ndarray | None:
    """A gang over as few nodes as possible: the emptiest, and at the end the fullest that has room for the
    rest."""
    slots = room.most(shape, load)
    if shape.devices:
        slots = np.minimum(slots, _free(room, shape).sum(axis=1))
    elif shape.cpus:
        # all ranks run at the same time
        slots = np.minimum(slots, np.floor(room.cores / shape.cpus + EPS).astype(np.int64))
    if slots.sum() < shape.ranks:
        return None
    left, picked = shape.ranks, list[int]()
    while left:
        enough = np.where(slots >= left, slots, FAR)
        node = int(enough.argmin()) if slots.max() >= left else int(slots.argmax())
        ranks = min(left, int(slots[node]))
        if shape.devices:
            cost = np.where(_free(room, shape)[node], tenants[node], np.inf)
            picked.extend(int(d) + node * room.width for d in np.argsort(cost, kind="stable")[:ranks])
        else:
            picked.extend([node] * ranks)
        left, slots[node] = left - ranks, 0
    return np.sort(np.array([picked], dtype=np.int64), axis=1)


def _on_cores(room: Room, shape: Shape, load: float, current: np.ndarray, count: int,
              most: int) -> tuple[np.ndarray, bool]:
    """Workers without devices, where most cores are free. What is left of the load goes to parts of cores."""
    fits = room.most(shape, load)
    here = np.minimum(np.bincount(current.ravel(), minlength=len(fits)), fits)
    each = shape.cpus * load
    given = spread(here, count, room.cpus)
    given += spread(fits - given, count - int(given.sum()), room.cpus - given * each)
    room.cpus -= given * each
    room.memory -= given * shape.memory
    missing = count - int(given.sum())
    if missing and each:
        part = np.where(room.most(shape, 0.0) > 0, np.minimum(room.cpus / shape.cpus, load), 0.0)
        part[part < LEAST_LOAD] = 0.0
        order = np.argsort(-part, kind="stable")[:max(0, most - count + missing)]
        need = missing * load
        took = np.diff(np.minimum(np.cumsum(part[order]), need), prepend=0)
        room.cpus[order] -= took * shape.cpus
        room.memory[order] -= (took > 0) * shape.memory
        given[order] += took > 0
        missing = 0 if took.sum() >= need - EPS else missing
    return np.repeat(np.arange(len(given)), given)[:, None], not missing
