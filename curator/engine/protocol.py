"""The protocol between the engine and its workers: everything that crosses, each as one dataclass.

The scheduler makes a `Call`; the runtime fills in what the engine does not know (`Call.infos`) and hands it
to the worker, whose `Runner` answers with any number of `Emitted` and one `Done` or `Failed`. The runtime
fills in where the batches lie (`Ref.node`) and passes the answer on, as it is, to the scheduler. The rest of
the vocabulary of the scheduler stands in `events`.

Messages hold no data: a `Ref` names a batch that some worker wrote, and the runtime knows where its bytes
are. Those of every call are pickled as their class and arguments, which costs less than a dataclass's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from curator.api.counts import Counts, MemoryShort
from curator.api.errors import FirstError
from curator.api.stage import Unit, WrittenFile

# -- rows ----------------------------------------------------------------------------------------------------


class Ref:
    """A batch outside the scheduler. `node`: where its bytes lie, and with which they are lost; None for a
    small one, which travels inside messages. `users`: slices that refer to it, as the scheduler counts them;
    at 0 it is released."""

    __slots__ = ("data", "nbytes", "node", "rows", "users")

    def __init__(self, data: Any, rows: int, nbytes: int, node: int | None = None) -> None:
        self.data, self.rows, self.nbytes, self.node, self.users = data, rows, nbytes, node, 0

    def __reduce__(self) -> tuple:
        return Ref, (self.data, self.rows, self.nbytes, self.node)


@dataclass(slots=True, frozen=True)
class Reason:
    """Why the engine sends rows to `failed`; `row_id` names a record whose row nobody has."""

    error: str
    traceback: str = ""
    row_id: str = ""
    source: str = ""


class Slice:
    """Rows [start, stop) of a batch, waiting for step `target` of an operator. `reason`: why they failed;
    without `ref` it is all that is known of the row."""

    __slots__ = ("attempt", "nbytes", "reason", "ref", "rows", "start", "stop", "target", "unit")

    def __init__(self, ref: Ref | None, unit: int, attempt: int, start: int, stop: int, target: int = 0,
                 reason: Reason | None = None) -> None:
        self.ref, self.unit, self.attempt, self.target, self.reason = ref, unit, attempt, target, reason
        self.start, self.stop, self.rows = start, stop, stop - start
        self.nbytes = 256 if ref is None or not ref.rows else ref.nbytes * (stop - start) // ref.rows or 1

    def __reduce__(self) -> tuple:
        return Slice, (self.ref, self.unit, self.attempt, self.start, self.stop, self.target, self.reason)

    def split(self, rows: int) -> Slice:
        """Give the first rows away, as another slice; this one is the rest."""
        start, ref = self.start + rows, self.ref
        first = Slice(ref, self.unit, self.attempt, self.start, start, self.target, self.reason)
        self.start, self.rows = start, self.stop - start
        self.nbytes = 256 if ref is None or not ref.rows else ref.nbytes * self.rows // ref.rows or 1
        return first


@dataclass(slots=True)
class Output:
    """Rows of one unit that a step sent to one port."""

    step: int
    port: str
    unit: int
    ref: Ref

    def __reduce__(self) -> tuple:
        return Output, (self.step, self.port, self.unit, self.ref)


# -- a call and its answer -----------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class UnitInfo:
    """What a worker is told of a unit: what to read, how its files are called, and as how many bytes it
    counts (what is read in its place may have others)."""

    unit: Unit
    name: str
    size_bytes: int = 0


PART_S = 0.2  # a source sends what it has at least this often, so that the stages behind it need not wait
CallKind = Literal["read", "process", "flush"]


@dataclass(slots=True, eq=False)
class Call:
    """One piece of work for one worker.

    `units`: (unit, attempt) of the rows, or of what is read or flushed. `rows`: of the slices, each row-less
    one counts as one; 1 for a read. `crashes`: deaths that these very rows caused before. `best_effort`: a
    read that fails now keeps what it read; a flush keeps what failed and nothing else. `part_s`: a read sends
    what it has at least this often. `infos`: filled in by the runtime, where the worker needs it.
    """

    id: int
    operator: int
    kind: CallKind
    slices: tuple[Slice, ...] = ()
    units: tuple[tuple[int, int], ...] = ()
    worker: int = -1
    rows: int = 0
    crashes: int = 0
    best_effort: bool = False
    part_s: float = PART_S
    infos: Mapping[int, UnitInfo] = field(default_factory=dict)

    def __reduce__(self) -> tuple:  # of a subclass too: what the scheduler remembers of a call stays with it
        return Call, (self.id, self.operator, self.kind, self.slices, self.units, self.worker, self.rows,
                      self.crashes, self.best_effort, self.part_s, self.infos)


CountsByUnit = Mapping[int, Mapping[int, Counts]]  # by unit and step


@dataclass(slots=True)
class Emitted:
    """A part of a call's answer; the worker waits for `Resume` before it sends the next. `counts`: since the
    part before. `errors`: the first of each step that this worker met. `read_bytes`: of the unit that a read
    has come to."""

    call: int
    outputs: tuple[Output, ...] = ()
    counts: CountsByUnit = field(default_factory=dict)
    errors: tuple[FirstError, ...] = ()
    read_bytes: int = 0

    def __reduce__(self) -> tuple:
        return Emitted, (self.call, self.outputs, self.counts, self.errors, self.read_bytes)


@dataclass(slots=True, frozen=True)
class Flushed:
    """What a worker kept of a unit: files by step; and the state that the unit left in a stateful step, as
    the name of a sidecar, with the units that it `depends` on."""

    files: Mapping[int, list[WrittenFile]] = field(default_factory=dict)
    snapshot: str | None = None
    depends: frozenset[int] = frozenset()
    rests_on: int = 0


@dataclass(slots=True)
class Done:
    """A call's answer, or the last part of it. `outputs`, `counts`, `errors`, `read_bytes`: as in `Emitted`.
    `exhausted`: the operator's stage wants no more rows. `flushed`: what a flush gave. `refitted`: by step,
    where calls have another size from now on."""

    call: int
    outputs: tuple[Output, ...] = ()
    counts: CountsByUnit = field(default_factory=dict)
    seconds: float = 0.0
    exhausted: bool = False
    flushed: Flushed | None = None
    refitted: Mapping[int, MemoryShort] = field(default_factory=dict)
    errors: tuple[FirstError, ...] = ()
    read_bytes: int = 0

    def __reduce__(self) -> tuple:
        return Done, (self.call, self.outputs, self.counts, self.seconds, self.exhausted, self.flushed,
                      self.refitted, self.errors, self.read_bytes)


@dataclass(slots=True, frozen=True)
class Failed:
    """A call raised where rows cannot be blamed. `fatal`: the run cannot go on (a broken stage, a full
    disk)."""

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


# -- what else a worker is asked: passed on to its processes as it is ----------------------------------------


@dataclass(slots=True, frozen=True)
class Resume:
    """Go on with a call of which a part was `Emitted`."""

    worker: int
    call: int


@dataclass(slots=True, frozen=True)
class Discard:
    """Drop what a worker began for this unit and attempt. `replay`: the unit's records come once more."""

    worker: int
    unit: int
    attempt: int
    replay: bool = True


# -- the processes of a worker: an ordinary one has one, a gang one for each rank ----------------------------


@dataclass(slots=True, frozen=True)
class Rank:
    """One process of a worker.

    `gpus`: its devices, by their place in the node's list. `visible`: those that it sees: its own, and in a
    gang those of all ranks on its node, rank by rank, as with torchrun. `local_rank` and `local_size`: among
    the ranks of the same node. `address` and `port`: where rank 0 listens; its own port is 0, and it looks
    for one.
    """

    worker: int
    gpus: tuple[int, ...] = ()
    visible: tuple[int, ...] = ()
    gang: bool = False
    number: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = "127.0.0.1"
    port: int = 0

    def environment(self, port: int) -> dict[str, str]:
        """What torchrun sets, so that `torch.distributed.init_process_group()` needs no argument but the
        backend."""
        return {"RANK": str(self.number), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(self.local_rank),
                "LOCAL_WORLD_SIZE": str(self.local_size), "MASTER_ADDR": self.address,
                "MASTER_PORT": str(port)}


# a unit, the sidecar with what it taught a stateful stage, and whether it is done again
Restored = tuple[int, str, bool]


@dataclass(slots=True, frozen=True)
class Setup:
    """The first message to a process, which starts it. `spec`: the pickled operator and the folder of
    sidecars. Its node fills in `folders`, shared memory for batches, and `devices`, as `CUDA_VISIBLE_DEVICES`
    names those that it sees."""

    spec: bytes
    rank: Rank
    restored: list[Restored]
    folders: tuple[str, ...] = ()
    devices: str = ""


@dataclass(slots=True, frozen=True)
class End:
    """The last message to a process: end after the calls that it has."""


@dataclass(slots=True, frozen=True)
class Ready:
    """A process is set up."""

    setup_s: float
    exhausted: bool


@dataclass(slots=True, frozen=True)
class MeetsAt:
    """Rank 0 of a gang listens on this port: the others may start."""

    port: int


@dataclass(slots=True, frozen=True)
class Ended:
    """A process has ended, or says that it cannot go on. `fatal`: another would fare no better. Its node
    fills in `step`, in which it ended."""

    reason: str
    fatal: bool = False
    step: int = 0
    first: FirstError | None = None


# a call whose data is lost is answered in its turn
ToProcess = Setup | Call | Resume | Discard | DataLost | End
FromProcess = Ready | MeetsAt | Emitted | Done | Failed | Progress | DataLost | Ended


# -- requests to a node --------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Send:
    """Give a process a message; with `Setup`, start it. `far`: batches of a call (by `Ref.data`) that have to
    be fetched first, from these nodes."""

    process: int
    message: Setup | Call | Resume | Discard
    far: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class EndProcess:
    """`kill`: without waiting for it, and no message follows."""

    process: int
    kill: bool = False


@dataclass(slots=True, frozen=True)
class ReleaseBatch:
    data: str


Request = Send | EndProcess | ReleaseBatch
