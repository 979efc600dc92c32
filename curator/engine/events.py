"""What the scheduler hears and asks for beside the messages of `protocol`: of workers, nodes, units and the
end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node, Place
from curator.api.stage import WrittenFile
from curator.engine.protocol import Call, DataLost, Discard, Done, Emitted, Failed, Progress, Ref, Resume

StopKind = Literal["max_failed", "interrupted", "terminated", "broken", "lost"]
GO_ON = "what was committed is safe: run the same command again"


@dataclass(slots=True, frozen=True)
class Stop:
    """Why a run ends early: more failures than allowed, Ctrl-C, SIGTERM, something that cannot work
    ("broken"), or the processes that it worked in are gone ("lost"). `first`: what was raised, if something
    was. As an event: end now."""

    kind: StopKind
    message: str
    first: FirstError | None = None


# -- events: what a runtime reports --------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class WorkerReady:
    worker: int
    setup_s: float = 0.0
    exhausted: bool = False


@dataclass(slots=True, frozen=True)
class WorkerLost:
    """A worker is gone. `step`: the step that it was in, if known; `setup`: it never got ready; `fatal`: no
    use trying again. `first`: what it raised, if it did. `overdue`: the engine ended it, because its call
    took too long."""

    worker: int
    reason: str
    setup: bool = False
    fatal: bool = False
    step: int = 0
    first: FirstError | None = None
    overdue: bool = False


@dataclass(slots=True, frozen=True)
class NodeUp:
    """A node has joined; `number` is one that no node of this run had before."""

    number: int
    node: Node


@dataclass(slots=True, frozen=True)
class NodeDown:
    """A node is gone with its workers and the batches on it. No `WorkerLost` follows for them."""

    number: int
    reason: str


@dataclass(slots=True, frozen=True)
class NodeCores:
    """What a node of the run has now; `CoresUsed` is the answer. Calls that run keep their cores."""

    number: int
    node: Node


Event = (WorkerReady | WorkerLost | Emitted | Done | Failed | Progress | DataLost | NodeUp | NodeDown
         | NodeCores | Stop)


# -- actions: what the scheduler asks for --------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class StartWorker:
    """Start a worker: a process at each place, rank by rank; an ordinary worker has one.

    `restore`: committed units whose snapshots a stateful operator needs before its first call.
    """

    worker: int
    operator: int
    places: tuple[Place, ...] = (Place(),)
    restore: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class StopWorker:
    """End a worker. `kill`: without waiting for it, and no event follows."""

    worker: int
    kill: bool = False


@dataclass(slots=True)
class Submit:  # not frozen: that would triple what it costs to make one for every call
    call: Call


@dataclass(slots=True)
class Release:
    ref: Ref


@dataclass(slots=True, frozen=True)
class Commit:
    """Nothing of the unit is left: keep what it gave. `ran`: the names of the steps that ran."""

    unit: int
    attempt: int
    counts: Mapping[str, Counts]
    files: Mapping[str, list[WrittenFile]]
    snapshots: Mapping[str, str]
    depends: frozenset[int]
    ran: frozenset[str]
    rests: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Evidence:
    """The run ends early: what failed of this unit lies in these files, by step. The unit will be done
    again."""

    unit: int
    attempt: int
    files: Mapping[str, list[WrittenFile]]


@dataclass(slots=True, frozen=True)
class CoresUsed:
    """How many cores of a node calls use `now`, and the `most` since this was told last."""

    number: int
    now: float
    most: float


ReportKind = Literal["plan", "preempt", "crowded", "limit", "retry", "restart", "failed", "lost", "stopped",
                     "node up", "node down", "out_of_memory", "batch_grown", "waiting", "shared",
                     "shared_folder", "cluster_silent"]


@dataclass(slots=True, frozen=True)
class Report:
    """Something a person may want to read in the log of the run. `operator`, `unit`: what it is about, by
    number; `details`: more fields for its line in the log, as JSON has them."""

    kind: ReportKind
    text: str
    operator: int | None = None
    unit: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


RuntimeAction = StartWorker | StopWorker | Submit | Resume | Discard | Release | CoresUsed
Action = RuntimeAction | Commit | Evidence | Report  # what is not for the runtime the run does itself
