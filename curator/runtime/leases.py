"""What a run takes of a cluster, and what it leaves to others there.

A run takes what is free. Once somebody waits for cores, it gives back what it has not used for a while, and
what is more than its share: that of all cores which strangers do not hold, as many as each of the others has
that want more. Strangers, which are other jobs of Ray's, count as one of those who share. It is arithmetic
over what each run says of itself, so nobody decides for the others.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.engine import protocol
from curator.runtime.workers import Job

SILENT_LOOKS = 15  # who has said nothing new for so many looks is gone, and after so many its word goes
DEAD_LOOKS = 2 * SILENT_LOOKS
# what strangers held in all of so many looks they hold; cores that we did not use for so long are idle
IDLE_LOOKS = 5


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What an agent asks of Ray: `base` cores for itself, others in pieces. `memory_bytes` 0: no need."""

    number: int
    node_id: str
    name: str = ""
    cpus: int = 1
    base: int = 1
    gpus: int = 0
    memory_bytes: int = 0

    def node(self, machine: Node, cores: float) -> Node:
        """The part of a machine that is ours with so many cores."""
        share = min(1.0, cores / machine.cpus)
        return replace(machine, name=self.name, cpus=cores, gpus=self.gpus,
                       memory_bytes=self.memory_bytes or int(machine.memory_bytes * share),
                       budget_bytes=max(64 << 20, int(machine.budget_bytes * share)))


@dataclass(frozen=True)
class Wants:
    """What a run takes of a cluster: up to `cores` in all (None for as many as there are), GPUs and memory if
    a stage asks. `base`: cores that a worker needs."""

    cores: float | None
    gpus: bool
    memory: bool
    base: int = 1

    @classmethod
    def of(cls, job: Job, cores: float | None) -> Wants:
        needs = [o.resources for o in job.operators]
        return cls(cores, any(n.gpus or n.gpu_memory_gb for n in needs), any(n.memory_gb for n in needs),
                   max([1, *(ceil(n.cpus / n.ranks) for n in needs)]))

    def lease(self, free: Mapping[str, float], room: float, number: int, node_id: str,
              name: str) -> Lease | None:
        """All that is free on a node, within what the run may still take; None if less than a core."""
        cpus = int(min(free.get("CPU", 0.0), room))
        if cpus < 1:
            return None
        return Lease(number=number, node_id=node_id, name=name, cpus=cpus, base=min(cpus, self.base),
                     gpus=int(free.get("GPU", 0)) if self.gpus else 0,
                     memory_bytes=int(free.get("memory", 0)) if self.memory else 0)


@dataclass(eq=False)
class Piece:
    """Cores on the node of an agent. `group`: the placement group that holds them, from when it is `granted`.
    `leaving`: they are given back when no call uses them."""

    cores: int
    group: Any
    granted: bool = False
    leaving: bool = False
    looks: int = 0  # since it was asked for


@dataclass(eq=False)
class Member:
    """An agent as the driver knows it. `node`: None until it is up. `known`: nodes whose agents it was told
    of. `used`: the most cores that its calls used, for each of the last looks."""

    lease: Lease
    actor: Any
    looks: int = 0  # since it was asked for; not seconds, in which the driver itself may have been stopped
    node: Node | None = None
    machine: Node | None = None
    address: str = ""
    outbox: list[protocol.Request] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    pieces: list[Piece] = field(default_factory=list)
    used: deque[float] = field(default_factory=lambda: deque(maxlen=IDLE_LOOKS))

    @property
    def cores(self) -> int:
        """Those that its workers may use."""
        return self.lease.base + sum(p.cores for p in self.pieces if p.granted and not p.leaving)

    @property
    def held(self) -> int:
        return self.lease.base + sum(p.cores for p in self.pieces)

    @property
    def idle(self) -> float:
        """Cores that were not used for a while."""
        return self.cores - max(self.used) if len(self.used) == IDLE_LOOKS else 0.0


def check_gpus(job: Job, nodes: Sequence[Mapping[str, Any]]) -> None:
    """A cluster with GPUs must have a node with as many as a worker needs. One without any is taken as it is,
    like a machine without any: a stage that can do without then does.

    Raises:
        CuratorError: naming the stage and the largest node.
    """
    largest = max(nodes, key=lambda n: n["Resources"].get("GPU", 0), default=None)
    most, name = (largest["Resources"].get("GPU", 0), largest["NodeName"]) if largest else (0, "")
    total = sum(n["Resources"].get("GPU", 0) for n in nodes)
    for operator in job.operators:
        need = operator.resources
        if most and need.gpus > (total if need.gang else most):
            has = f"its {len(nodes)} nodes together have {total:g}" if need.gang else \
                f"its largest node, {name}, has {most:g}"
            raise CuratorError(f"{operator.name} needs {need.gpus:g} GPUs, and this Ray cluster can never "
                               f"give them: {has}")


# -- beside others -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What a run says of itself: the cores that it has, and whether it has work for more."""

    has: float
    wants: bool


def may_keep(mine: Claim, others: Sequence[Claim], total: float, strangers: float, asked: float) -> float:
    """How many cores a run may have. `total`: of the cluster; `strangers`: those that they hold, and `asked`
    that they wait for."""
    due = min(asked, max(0.0, total / (len(others) + 2) - strangers))
    pool = total - strangers - due
    share = pool / (len(others) + 1)
    content = [other.has for other in others if not other.wants and other.has < share]
    share = (pool - sum(content)) / (len(others) + 1 - len(content))
    if any(other.wants and other.has + 1 <= share for other in others):
        return share
    return max(share, mine.has - due) if due else inf


def asked_for(requests: Iterable[tuple[Mapping[str, float], int]],
              nodes: Sequence[Mapping[str, float]]) -> float:
    """Cores that somebody waits for, without what no node could ever give."""
    return sum(need.get("CPU", 0.0) * times for need, times in requests
               if any(all(node.get(what, 0.0) >= much for what, much in need.items()) for node in nodes))


def halves(cores: int) -> list[int]:
    """Cores in pieces, so that any number of them can be given back, and yet they are few."""
    pieces = []
    while cores > 0:
        pieces.append((cores + 1) // 2)
        cores //= 2
    return pieces


def to_give(pieces: Sequence[int], cores: int) -> list[int]:
    """Which pieces have so many cores; one more of them, if it does not come out even."""
    found, rest = [], sorted(range(len(pieces)), key=lambda i: -pieces[i])
    for index in list(rest):
        if pieces[index] <= cores:
            found.append(index)
            rest.remove(index)
            cores -= pieces[index]
    return found + rest[-1:] if cores > 0 else found


class Heard:
    """What other runs say, each under its name, and each time anew. What is heard first may be the last word
    of a run that was killed: it counts when something new follows."""

    def __init__(self) -> None:
        self.said: dict[bytes, tuple[bytes, int]] = {}  # and for how many looks it has been the same

    def others(self, said: Mapping[bytes, bytes]) -> list[Claim]:
        """The claims of those that live, of all that lies there; asked at every look."""
        before = {name: self.said.get(name, (words, SILENT_LOOKS)) for name, words in said.items()}
        self.said = {name: (words, before[name][1] + 1 if before[name][0] == words else 0)
                     for name, words in said.items()}
        return [Claim(*json.loads(words)[:2]) for words, looks in self.said.values() if looks < SILENT_LOOKS]

    @property
    def dead(self) -> list[bytes]:
        """Who has said nothing new for so long that nobody need keep what was said last."""
        return [name for name, (_, looks) in self.said.items() if looks > DEAD_LOOKS]
