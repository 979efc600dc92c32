"""How many workers each operator gets, so that the run reads as many rows a second as the nodes allow; and
what limits it.

Operator i has a service rate `mu` (rows a second of useful time by one worker) and gets `a` rows for each row
that the run reads. At `t` rows a second `x = t * a / mu` of its workers are busy, so it needs `ceil(x)`, each
busy `x / ceil(x)` of its time. Cores are leased by the call and count by busy time; devices, memory and gangs
are held for a worker's life and count in full. The best `t` is found by bisection: below the bound that whole
machines without borders would reach, the largest one whose workers `packing` can place. Source: DS2 (OSDI'18)
for rates of useful time; one resource more than a bound allows names what limits.

Pure functions: no input or output, clock or randomness; the same input gives the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil, inf, sqrt

import numpy as np

from curator.api.resources import Node, Place, Resources
from curator.engine.balance.packing import EPS, FAR, Packer

TRIES = 16  # of packing, for one plan
CLOSE = 1e-3  # of the bound: nearer the bisection does not look
UNKNOWN = 1.0  # a rate with this `trust` or more says nothing
HALF_S, HALF_CALLS = 60.0, 30.0  # of work after which a measured rate counts half; the longer one holds
SPARE = 1.2  # so many workers that hold devices for each that there must be, where devices are left
FREE_CPUS = 0.01  # what a worker that needs nothing counts, so that there is an end to their number


@dataclass(frozen=True, slots=True)
class Demand:
    """What one operator needs."""

    resources: Resources
    rate: float = 1.0  # rows a second of useful time by one worker
    rows: float = 1.0  # rows that reach it for each row that the run reads; 0: nothing does
    trust: float = 0.0  # coefficient of variation of `rate`; 0 is certain, from 1 on it is unknown
    most: int | None = None  # workers it may have; None: any number
    setup_s: float = 0.0  # until a new worker is ready
    needed: bool = True  # it has work now or later, and gets at least one worker

    @property
    def unknown(self) -> bool:
        return self.trust >= UNKNOWN or self.rate <= 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A plan. Rates are rows read a second; 0 where nothing is known that could limit them."""

    # for each demand its workers, each with its places, rank by rank
    workers: tuple[tuple[tuple[Place, ...], ...], ...]
    rate: float
    bound: float  # of `rate`, were nodes one machine and workers divisible
    # demands that do not fit side by side with all others: they share by time, and have no workers here
    sharing: frozenset[int]
    # what limits: "cpus", "gpus", "memory"; "" if it is that `slowest` may have no more workers, or nothing
    # does
    binding: str
    slowest: int  # the demand that limits, -1 if none does
    gains: Mapping[str, float]  # share by which `bound` rises for one more "cpu" (core), "gpu"
    gpus: int = 0  # devices that there are


class Rate:
    """Rows a second of useful time of one operator's worker, learnt from its calls; starts from a prior that
    wears off.

    A Gamma posterior whose evidence is forgotten with a half-life of 60 s of work or 30 calls, whichever is
    longer. The prior is `rows` in `busy_s`, worth so many `calls`; 0 calls is a mere guess. Idle time is no
    evidence; calls that are late are.
    """

    def __init__(self, rows: float = 0.01, busy_s: float = 0.01, calls: float = 0.0) -> None:
        self._rows, self._busy_s, self._calls, self._slower = rows, busy_s, calls, 1.0

    def observe(self, rows: float, busy_s: float, calls: int = 1) -> None:
        """`calls` are done that took `busy_s` together."""
        keep = 0.5 ** min(busy_s / HALF_S, calls / HALF_CALLS)
        self._rows, self._busy_s = self._rows * keep + rows, self._busy_s * keep + busy_s
        self._calls, self._slower = self._calls * keep + calls, 1.0

    def watch(self, running: Iterable[tuple[float, float]]) -> None:
        """The calls that run now, each with its rows and the seconds since it began: how late they are, of
        all that is known. Counts until the next `observe`."""
        mean = self._rows / self._busy_s
        calls = [(elapsed_s, rows / mean) for rows, elapsed_s in running] if mean else []
        late_s = sum(max(0.0, took - should) for took, should in calls)
        self._slower = 1.0 + late_s / (self._busy_s + sum(map(min, calls)))

    @property
    def value(self) -> float:
        return self._rows / self._busy_s / self._slower

    @property
    def trust(self) -> float:
        """Coefficient of variation: 1 for a guess, 0.1 after 99 calls."""
        return 1.0 / sqrt(1.0 + self._calls)


def allocate(demands: Sequence[Demand], nodes: Mapping[int, Node],
             current: Sequence[Sequence[tuple[Place, ...]]] = ()) -> Allocation:
    """Workers and places for these demands; `current` workers stay where they are as far as that costs
    nothing.

    A demand whose rate is unknown gets one worker and limits nothing; if no GPU work is known yet, such
    demands share up to half of the devices. Where no node has a GPU, GPU work is done on cores. A gang with
    more ranks than there are places for is in `sharing`, as are all that would have to share GPUs or memory
    by time; `rate` is then that of the others.
    """
    packer = Packer([d.resources for d in demands], nodes, current)
    sharing = _sharing(demands, packer)
    line = _Line(demands, nodes, packer, sharing)
    bound = line.bound()

    def place(rate: float, spare: float = 1.0) -> list[np.ndarray] | None:
        counts = line.counts(rate, spare)
        loads = [min(1.0, rate * work / n) if n else 0.0 for work, n in zip(line.work, counts, strict=True)]
        found, failed = packer.pack(counts, loads, line.most)
        return None if failed else found

    rate, found = _search(place, bound)
    full = min((n / work for n, work in zip(line.counts(rate), line.work, strict=True) if work), default=0.0)
    if rate < full <= bound:  # as fast as these workers can be, if there are cores for it
        more = place(full)
        rate, found = (full, more) if more is not None else (rate, found)
    if (more := place(rate, SPARE)) is not None:
        found = more
    binding, slowest = line.limit(rate, bound)
    gains = {what: line.bound(what) / bound - 1 if bound else 0.0 for what in ("cpu", "gpu")}
    workers = tuple(packer.workers(i, rows) for i, rows in enumerate(found))
    return Allocation(workers, rate, bound, sharing, binding, slowest, gains,
                      sum(n.gpus for n in nodes.values()))


def _search(place: Callable[[float], list[np.ndarray] | None],
            bound: float) -> tuple[float, list[np.ndarray]]:
    """The highest rate that can be placed, within `CLOSE` of `bound`, and its workers."""
    best, found, low, high = 0.0, None, 0.0, bound
    rate = bound
    for _ in range(TRIES):
        placed = place(rate)
        if placed is not None:
            best, found, low = rate, placed, rate
        else:
            high = rate
        if high - low <= CLOSE * bound:
            break
        rate = 0.97 * bound if rate == bound else (low + high) / 2
    found = place(0.0) if found is None else found
    assert found is not None, "the workers of a run that stands still fit, or they would share by time"
    return best, found


def _sharing(demands: Sequence[Demand], packer: Packer) -> frozenset[int]:
    """Those that do not fit side by side, with those that hold the same devices or memory; memory for one is
    put aside."""
    nothing, sharing, room = [0.0] * len(demands), set[int](), packer.room
    while True:
        packer.room = deepcopy(room)
        if sharing:
            packer.room.memory[packer.room.memory.argmax()] -= max(packer.shapes[i].memory for i in sharing)
        counts = [int(d.needed and i not in sharing) for i, d in enumerate(demands)]
        failed = packer.pack(counts, nothing, counts, go_on=True)[1]
        if not failed:
            break
        roomy = deepcopy(packer.room)
        roomy.memory[:] = inf
        shapes, lack = packer.shapes, packer.pack(counts, nothing, counts, roomy, go_on=True)[1]
        sharing |= failed
        sharing |= {i for i, n in enumerate(counts) if n and shapes[i].devices
                    and any(shapes[j].devices for j in lack)}
        sharing |= {i for i, n in enumerate(counts) if n and shapes[i].memory and failed - lack}
    return frozenset(sharing)


class _Line:
    """The straight-line model of a run: what `rate` takes of each resource if all nodes were one."""

    def __init__(self, demands: Sequence[Demand], nodes: Mapping[int, Node], packer: Packer,
                 sharing: frozenset[int]) -> None:
        self.shapes = shapes = packer.shapes
        live = [d.needed and i not in sharing for i, d in enumerate(demands)]
        guesses = [on and d.unknown for on, d in zip(live, demands, strict=True)]
        self.work = [d.rows / d.rate if on and not guess else 0.0
                     for d, on, guess in zip(demands, live, guesses, strict=True)]
        self.most = [FAR if d.most is None else max(1, d.most) for d in demands]
        self.least = [int(on) for on in live]
        gpus = sum(n.gpus for n in nodes.values())
        shared = [i for i, guess in enumerate(guesses) if guess and shapes[i].devices]
        if not any(work and s.devices for work, s in zip(self.work, shapes, strict=True)):
            for i in shared:
                each = gpus / 2 / len(shared) / (shapes[i].share * shapes[i].devices * shapes[i].ranks)
                self.least[i] = max(1, min(self.most[i], int(each)))
            if packer.pack(self.least, [0.0] * len(live), self.most)[1]:
                self.least = [int(on) for on in live]
        vram = [n.gpu_memory_gb for n in nodes.values() if n.gpus]
        # a resource, what one worker takes of it, how much there is, whether for its life, and what one more
        # brings
        self.takes = [
            ("gpus", [s.share * s.devices * s.ranks for s in shapes], float(gpus), True, {"gpu": 1.0}),
            ("gpus", [s.vram * s.devices * s.ranks for s in shapes],
             sum(n.gpus * n.gpu_memory_gb for n in nodes.values()) if all(vram) else inf, True,
             {"gpu": max(vram, default=0.0)}),
            ("memory", [s.memory * s.ranks for s in shapes],
             sum(n.memory_bytes for n in nodes.values()) / 1e9, True, {}),
            ("cpus", [s.cpus * s.ranks * bool(s.devices) for s in shapes],
             # what GPU work has beside it
             float(sum(n.cpus for n in nodes.values() if n.gpus)), False, {"cpu": 1.0}),
            ("cpus", [s.cpus * s.ranks or (0.0 if s.devices or s.memory else FREE_CPUS) for s in shapes],
             float(sum(n.cpus for n in nodes.values())), False, {"cpu": 1.0})]
        # nodes and devices have borders: what they hold of this demand alone
        for i, shape in enumerate(shapes):
            alone, room = [float(i == j) for j in range(len(shapes))], packer.room
            if shape.devices:
                fit = int(1 / shape.share + EPS) if shape.share < 1 else 1 / shape.devices  # ranks a device
                ranks = np.floor(room.share.sum(axis=1) * fit + EPS)[shape.able].sum()
                self.takes.append(("gpus", alone, float(ranks // shape.ranks), True,
                                   {"gpu": fit / shape.ranks}))
            if shape.memory:
                ranks = np.floor(room.memory / shape.memory + EPS)[shape.able].sum()
                self.takes.append(("memory", alone, float(ranks // shape.ranks), True, {}))

    def counts(self, rate: float, spare: float = 1.0) -> list[int]:
        """`spare`: so many workers for each that holds devices."""
        lines = zip(self.work, self.least, self.most, self.shapes, strict=True)
        return [min(most, max(least, ceil(rate * work * (spare if shape.devices else 1.0) - EPS)))
                for work, least, most, shape in lines]

    def lacking(self, rate: float, more: str = "", whole: bool = False) -> tuple[str, list[float]] | None:
        """The first resource of which `rate` needs more than there is, and what each demand takes; with
        `whole` workers."""
        busy = [rate * work for work in self.work]
        alive = [max(least, x) for x, least in zip(busy, self.least,
                                                   strict=True)] if not whole else self.counts(rate)
        for name, takes, capacity, for_life, bring in self.takes:
            used = [n * take for n, take in zip(alive if for_life else busy, takes, strict=True)]
            if sum(used) > (capacity + bring.get(more, 0.0)) * (1 + 1e-9):
                return name, used
        return None

    def bound(self, more: str = "") -> float:
        """The highest rate that lacks nothing, with one "cpu" or "gpu" more if told; 0 where nothing
        limits."""
        high = min((most / work for most, work in zip(self.most, self.work, strict=True) if work),
                   default=0.0)
        for _, takes, capacity, _, bring in self.takes:
            each = sum(work * take for work, take in zip(self.work, takes, strict=True))
            high = min(high, (capacity + bring.get(more, 0.0)) / each) if each else high
        if not self.lacking(high, more):
            return high
        low = 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.lacking(middle, more) else (middle, high)
        return low

    def limit(self, rate: float, bound: float) -> tuple[str, int]:
        """What limits, and the demand that takes most of it: one for which a higher rate needs more."""
        if not bound:
            return "", -1
        for i, work in enumerate(self.work):
            if work and rate * work >= self.most[i] * (1 - CLOSE):
                return "", i
        beyond = 1 + 2 * CLOSE
        lack = self.lacking(rate * beyond, whole=True) or self.lacking(bound * beyond) or ("", self.work)
        active = [i for i, work in enumerate(self.work) if work]
        growing = [i for i in active if rate * beyond * self.work[i] > self.least[i] and lack[1][i]]
        return lack[0], max(growing or active, key=lambda i: lack[1][i])


def worthwhile(new: Allocation, demands: Sequence[Demand], current: Sequence[Sequence[tuple[Place, ...]]],
               remaining_rows: float) -> bool:
    """The new plan saves more than the setups it needs cost, over the rows that are still to be read.

    The current workers are rated by today's rates; of those that hold nothing but leased cores there are
    always enough. The gain must be above 5 % and, if a worker has to go for it, above twice the uncertainty
    of the rates of those whose numbers change.
    """
    old, cost_s, doubt, going = new.bound, 0.0, 0.0, False
    for i, demand in enumerate(demands):
        now, then = current[i] if i < len(current) else (), new.workers[i]
        if then and not now:
            return True
        if not demand.needed or i in new.sharing:
            continue
        starts = len(then) - len(now)
        if demand.resources.gpus or demand.resources.gang:
            starts = (Counter(then) - Counter(now)).total()
            if not demand.unknown:
                old = min(old, len(now) * demand.rate / demand.rows) if demand.rows else old
                going = going or len(now) + starts > len(then)
                doubt = max(doubt, demand.trust if len(now) != len(then) else 0.0)
        cost_s += demand.setup_s * max(0, starts) / max(1, len(then))
    if old >= new.rate or not old:
        return False
    return remaining_rows * (1 / old
                             - 1 / new.rate) > 1.5 * cost_s and new.rate / old - 1 > max(0.05,
                                                                                         2 * doubt * going)


def in_words(allocation: Allocation, names: Sequence[str]) -> str:
    """What limits the run, and what one more core or GPU would give, in one sentence."""
    if allocation.sharing:
        sharing = [names[i] for i in sorted(allocation.sharing)]
        return (f"{', '.join(sharing[:-1])}{' and ' if sharing[1:] else ''}{sharing[-1]} do not fit side by "
                "side: they share by time")
    if allocation.slowest < 0:
        return "nothing is measured yet"
    name, count = names[allocation.slowest], len(allocation.workers[allocation.slowest])
    if allocation.binding == "gpus":
        busy = len({(p.node, g) for workers in allocation.workers for w in workers for p in w
                    for g in p.gpus})
        return (f"{name} on the GPUs: {busy} of {allocation.gpus} are busy; one more would make the run "
                f"{_gain(allocation, 'gpu')}")
    if allocation.binding == "cpus":
        return f"{name} on the cores; one more would make the run {_gain(allocation, 'cpu')}"
    if allocation.binding == "memory":
        return f"{name} on memory: there is none for another worker beside its {count}"
    return f"{name}: it can use no more than {count} worker{'s' if count > 1 else ''}"


def _gain(allocation: Allocation, what: str) -> str:
    percent = 100 * allocation.gains[what]
    return (f"{percent:.0f}% faster" if percent >= 1 else f"{percent:.1g}% faster" if percent > 0
            else "no faster by itself")
