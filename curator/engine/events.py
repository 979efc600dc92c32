"""The whole vocabulary between the scheduler and a runtime: events in, actions out, and the things they name.

Nothing here holds data. A `Ref` names a batch that some worker wrote; the runtime knows where its bytes are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node, Place
from curator.api.stage import WrittenFile


class Ref:
    """A batch outside the scheduler. `users`: slices that still refer to it; at 0 it is released.

    `node`: where its bytes lie, and with which they are lost; None for a small one, which travels inside messages.
    """

    __slots__ = ("data", "nbytes", "node", "rows", "users")

    def __init__(self, data: Any, rows: int, nbytes: int, node: int | None = None) -> None:
        self.data, self.rows, self.nbytes, self.node, self.users = data, rows, nbytes, node, 0


@dataclass(slots=True, frozen=True)
class Output:
    """Rows of one unit that a step sent to one port."""

    step: int
    port: str
    unit: int
    rows: int
    nbytes: int
    ref: Ref


@dataclass(slots=True, frozen=True)
class Note:
    """Why rows are sent to `failed` by the engine; `row_id` names a record whose row nobody has."""

    error: str
    traceback: str = ""
    row_id: str = ""
    source: str = ""


class Slice:
    """Rows [start, stop) of a batch, waiting for step `target` of an operator. Without `ref` it is a note alone."""

    __slots__ = ("attempt", "nbytes", "note", "ref", "rows", "start", "stop", "target", "unit")

    def __init__(self, ref: Ref | None, unit: int, attempt: int, start: int, stop: int, target: int = 0,
                 note: Note | None = None) -> None:
        self.ref, self.unit, self.attempt, self.target, self.note = ref, unit, attempt, target, note
        self.start, self.stop, self.rows = start, stop, stop - start
        self.nbytes = 256 if ref is None or not ref.rows else ref.nbytes * (stop - start) // ref.rows or 1

    def split(self, rows: int) -> Slice:
        """Give the first rows away, as another slice; this one is the rest."""
        start, ref = self.start + rows, self.ref
        first = Slice(ref, self.unit, self.attempt, self.start, start, self.target, self.note)
        self.start, self.rows = start, self.stop - start
        self.nbytes = 256 if ref is None or not ref.rows else ref.nbytes * self.rows // ref.rows or 1
        return first


CallKind = Literal["read", "process", "flush"]
CountsByUnit = Mapping[int, Mapping[int, Counts]]  # by unit and step


@dataclass(slots=True, eq=False)
class Call:
    """One piece of work for one worker, and what the scheduler remembers of it.

    `units`: (unit, attempt) of the rows, or of what is read or flushed. `crashes`: deaths that these very rows caused
    before. `expected`: bytes that its answer should bring to each consumer. `held`: it has sent a part of its answer and waits
    to be resumed. `emitted_early`: a part was sent on, so it cannot be repeated without its units. `kept`: parts that are not sent on
    before the call has ended, and `told` what was counted for them. `sent`: rows that went to each consumer. `read`: rows that
    a read has told of. `best_effort`: a read that fails now keeps what it read; a flush keeps what failed and nothing else.
    """

    id: int
    operator: int
    kind: CallKind
    slices: tuple[Slice, ...] = ()
    units: tuple[tuple[int, int], ...] = ()
    worker: int = -1
    node: int = -1
    rows: int = 0
    nbytes: int = 0
    expected: tuple[tuple[int, int], ...] = ()
    crashes: int = 0
    held: bool = False
    emitted_early: bool = False
    kept: tuple[Output, ...] = ()
    told: tuple[CountsByUnit, ...] = ()
    read: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    best_effort: bool = False
    began: float = 0.0
    deadline: float | None = None


@dataclass(slots=True, frozen=True)
class Flushed:
    """What a worker kept of a unit: files by step, and what a stateful step learned."""

    files: Mapping[int, list[WrittenFile]] = field(default_factory=dict)
    memory: Any = None
    depends: frozenset[int] = frozenset()
    rests_on: int = 0


StopKind = Literal["max_failed", "interrupted", "terminated", "broken", "lost"]


@dataclass(slots=True, frozen=True)
class Stopped:
    """Why a run ended early: more failures than allowed, Ctrl-C, SIGTERM, something that cannot work ("broken"), or the
    processes that it worked in are gone ("lost"). `first`: what was raised, if something was."""

    kind: StopKind
    message: str
    first: FirstError | None = None


# -- events: what a runtime reports -----------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class WorkerReady:
    worker: int
    setup_s: float = 0.0
    exhausted: bool = False


@dataclass(slots=True, frozen=True)
class WorkerLost:
    """A worker is gone. `step`: the step that it was in, if known; `setup`: it never got ready; `fatal`: no use trying again.

    `first`: what it raised, if it did.
    """

    worker: int
    reason: str
    setup: bool = False
    fatal: bool = False
    step: int = 0
    first: FirstError | None = None


@dataclass(slots=True, frozen=True)
class Emitted:
    """A part of a call's answer; the worker waits for `Resume` before it sends the next. `counts`, `errors`: as in `Done`."""

    call: int
    outputs: tuple[Output, ...]
    counts: CountsByUnit = field(default_factory=dict)
    errors: tuple[FirstError, ...] = ()


@dataclass(slots=True, frozen=True)
class Refitted:
    """Calls of a step have another size: `ran_out` rows were too many for the memory; 0: more fit again. `rows_max`: from now
    on in this worker, None as before."""

    step: int
    ran_out: int
    rows_max: int | None


@dataclass(slots=True, frozen=True)
class Done:
    """A call's answer, or the last part of it. `counts`: what no part has told. `errors`: the first that this worker met."""

    call: int
    outputs: tuple[Output, ...] = ()
    counts: CountsByUnit = field(default_factory=dict)
    seconds: float = 0.0
    exhausted: bool = False
    flushed: Flushed | None = None
    refitted: tuple[Refitted, ...] = ()
    errors: tuple[FirstError, ...] = ()


@dataclass(slots=True, frozen=True)
class Failed:
    """A call raised where rows cannot be blamed. `fatal`: the run cannot go on (a broken stage, a full disk)."""

    call: int
    error: str
    traceback: str = ""
    fatal: bool = False
    first: FirstError | None = None


@dataclass(slots=True, frozen=True)
class Progress:
    """A call under a time limit has begun its next `process`."""

    call: int


@dataclass(slots=True, frozen=True)
class DataLost:
    """A call could not begin: a batch that it needs went with its node."""

    call: int
    reason: str


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
class Stop:
    """End now: the user asks for it, or it is `lost`."""

    reason: str
    kind: StopKind = "interrupted"


Event = WorkerReady | WorkerLost | Emitted | Done | Failed | Progress | DataLost | NodeUp | NodeDown | Stop


# -- actions: what the scheduler asks for. Those of every call are not frozen, which would triple what it costs to make one. ----


@dataclass(slots=True, frozen=True)
class StartWorker:
    """Start a worker: a process at each place, rank by rank; an ordinary worker has one.

    `restore`: committed units whose memory a stateful operator needs before its first call.
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
class Submit:
    call: Call


@dataclass(slots=True, frozen=True)
class Resume:
    worker: int
    call: int


@dataclass(slots=True, frozen=True)
class Discard:
    """Drop what a worker began for this unit and attempt. `replay`: the unit's records come once more."""

    worker: int
    unit: int
    attempt: int
    replay: bool = True


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
    memory: Mapping[str, Any]
    depends: frozenset[int]
    ran: frozenset[str]
    rests: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Evidence:
    """The run ends early: what failed of this unit lies in these files, by step. The unit will be done again."""

    unit: int
    attempt: int
    files: Mapping[str, list[WrittenFile]]


@dataclass(slots=True, frozen=True)
class Report:
    """Something a person may want to read in the log of the run. `operator`, `unit`: what it is about, by number; `details`:
    more fields for its line in the log, as JSON has them."""

    kind: str
    text: str
    operator: int | None = None
    unit: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


Action = StartWorker | StopWorker | Submit | Resume | Discard | Release | Commit | Evidence | Report
