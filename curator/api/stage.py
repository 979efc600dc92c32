"""What a pack author writes: stages, sources and sinks.

A stage is a dataclass. Its fields are its parameters; what `setup` makes is not a field. The engine pickles
the stage once a worker, calls `setup`, then `process` for each batch, then `close`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Self

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.findings import Finding, Shown, Summed
from curator.api.fingerprint import fingerprint
from curator.api.resources import Resources

# ports whose rows are kept beside the output unless a recipe takes them
SIDE_OUTPUTS = ("dropped", "duplicate", "failed")


@dataclass(frozen=True)
class Contract:
    """What a stage needs and what it changes.

    `needs`: names of columns and payloads that must be there; a mapping may state a column's type, None for
    any. `adds`: new or replaced columns with their types; payloads (by name) with None. `removes`: columns
    that go.
    """

    needs: Collection[str] | Mapping[str, pa.DataType | None] = ()
    adds: Mapping[str, pa.DataType | None] = field(default_factory=dict)
    removes: Collection[str] = ()


@dataclass(frozen=True)
class Context:
    """What a worker tells a stage in `setup`.

    `gpus`: the devices this worker may use (also in CUDA_VISIBLE_DEVICES). `cpus`: threads it may use.
    `worker`: a number unique in the run. `rank` and `world_size`: which of how many processes of a gang this
    is; their environment is that of torchrun, each sees its own devices only, and all get the same calls in
    the same order. `progress`: a stage that does one piece after the other in a `process` call may call it
    before each: the time limit is for a piece then.
    """

    worker: int = 0
    cpus: float = 1.0
    gpus: tuple[int, ...] = ()
    rank: int = 0
    world_size: int = 1
    progress: Callable[[], None] = lambda: None


class Outputs(dict[str, Batch]):
    """Batches by port: `Outputs(out=good, dropped=bad.with_reason("short"))`.

    `absorbed`: input rows that the stage took in and answers for later or never (a reduction). `counts`:
    numbers by name that no row says (tokens, cache hits), summed into `Counts.extra`; `inner`: the counts of
    stages that work inside this one, for `Counts.inner`. Of a call on rows of several units both count for
    the first one.
    """

    def __init__(self, ports: Mapping[str, Batch] | None = None, *, absorbed: Batch | None = None,
                 counts: Mapping[str, int] | None = None, inner: Mapping[str, Counts] | None = None,
                 **named: Batch) -> None:
        super().__init__(ports or {}, **named)
        self.absorbed, self.counts, self.inner = absorbed, counts, inner


Result = Batch | Outputs | Iterable["Batch | Outputs"]


def snake_case(name: str) -> str:
    """`ExtractHtml` -> `extract_html`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Stage:
    """One step. Subclass it as a dataclass and write `process`.

    `name`: how recipes and the funnel call it; by default the class name in snake case. `resources`: what one
    worker occupies. `batch_size`: rows a `process` call, None to leave it to the engine. The last ones may be
    shorter, and so are those of large rows: no call takes more than `batch_bytes`, unless one row is more.
    `timeout_s`: seconds that one `process` call may take before its worker is killed and its rows are
    isolated, None for no limit. `version`: raise it when the stage answers differently for the same input, so
    that old results are not mixed with new ones. `ports`: every port `process` may answer on, beside
    `dropped`, `duplicate` and `failed`. `count_by`: columns by whose values the rows that it answers are
    counted for `findings`: at most 1,000 values of each. `reports`: of a part of a `Composite`, the columns
    that the whole shows as its own; other columns of parts are nobody's business. `sparse`: columns that are
    null, or 0, in most data, so that no alarm asks about them. `requires`: modules that `setup` imports, and
    what installs each: a run on this machine ends before it works where one is missing.
    """

    name: str = ""
    resources: Resources = Resources()
    batch_size: int | None = None
    batch_bytes: ClassVar[int] = 48 << 20
    timeout_s: float | None = None
    version: ClassVar[int] = 1
    count_by: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    sparse: tuple[str, ...] = ()
    requires: Mapping[str, str] = {}
    ports: tuple[str, ...] = ("out",)
    _decides_nothing: ClassVar[frozenset[str]] = frozenset({
        "name", "resources", "batch_size", "timeout_s", "count_by", "reports", "sparse", "requires",
        "findings", "example_columns", "amounts", "text_marks"})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = snake_case(cls.__name__)

    def contract(self) -> Contract:
        """Columns and payloads needed, added and removed; checked for the whole chain before a run starts."""
        return Contract()

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        """What `out` and the author's own ports carry, given what comes in; by default as `contract` says."""
        contract = self.contract()
        kept = {name: kind for name, kind in columns.items() if name not in set(contract.removes)}
        return kept | dict(contract.adds)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        """Raise a `RecipeError` when columns of these types will not do, or an `InputError` when a file that
        the stage needs is missing; called by the plan, before anything runs.

        `columns` is complete; a type is None where it is not known. The contract's needs have been checked.
        """

    def reasons(self) -> Collection[str]:
        """Every reason that the stage can give for a drop, as far as it knows them: so that a rule that never
        fires is seen. Where an SQL condition over columns decides, a mapping from each reason to its own."""
        return ()

    def findings(self, step: str, counts: Counts) -> Iterable[Finding]:
        """What people should know of the run so far: lines below the stage in the funnel, alarms, tables of
        the report.

        Called on the driver now and then, and at the end, without `setup`. What it raises becomes an alarm
        and ends no run. `step`: what the pipeline calls this stage. `counts`: its own in all units; those of
        the main part of a `Composite` have `extra`, `by_value` and what `reports` names of all parts.
        """
        return ()

    def example_columns(self) -> Mapping[str, Shown]:
        """Columns by which the report shows records to look at: pictures (JPEG, PNG, GIF, WebP), sounds
        (FLAC, WAV, MP3, Ogg), films (MP4, WebM), texts, numbers."""
        return {}

    def text_marks(self) -> Mapping[str, str]:
        """What columns say of a text, to be marked in it for who looks at a record: by column a regular
        expression of JavaScript (flags gmu), or `repeated lines`, or `repeated 5 words`."""
        return {}

    def amounts(self) -> Mapping[str, Summed]:
        """Columns of numbers whose sum says more than the number of records: seconds of sound, tokens. From
        this stage on the funnel shows how much of them every stage kept, and lost for which reason."""
        return {}

    def inner(self) -> Mapping[str, Stage]:
        """Stages that work inside this one, in its workers, by their names there: the plan shows them."""
        return {}

    def setup_node(self, ctx: Context) -> None:
        """Called once a node in a run, before any `setup` there: fetch weights, unpack archives.

        One worker calls it while the others of the node wait; if that one dies, the next one calls it. What
        it leaves on disk is for all of them, what it sets on `self` stays in the one.
        """

    def setup(self, ctx: Context) -> None:
        """Called once a worker: import what is heavy, load the model."""

    def process(self, batch: Any) -> Result:
        """Answer one batch: a batch (on `out`), `Outputs`, or an iterator of these, sent on as they come.

        `batch`: of the kind that carries the payloads which the stage needs.
        Every input row must be on at least one port or absorbed. Make new batches from the given one (`take`,
        `filter`, `split`, `explode`, `with_columns`): that is how the engine knows which row became which.
        """
        raise TypeError(f"{type(self).__name__} has no process method")

    def close(self) -> None:
        """Called when the worker ends in order."""

    def apply(self, data: Any) -> Any:
        """What it makes of rows in memory, without a pipeline, in the kind that was given: an Arrow table, a
        list of dicts, a dict of columns, a data frame, a dataset of `datasets` or Ray Data."""
        return self.as_map()(data)

    def as_map(self, *, keep: bool = False) -> Callable[[Any], Any]:
        """It as a callable for another engine, which sets it up at its first call; see `curator.as_map`."""
        # by name: it lies above everything, and needs it
        return import_module("curator.outside.elsewhere").StageMap(self, keep=keep)

    def with_(self, *, resources: Resources | Mapping[str, Any] | None = None, batch_size: int | None = None,
              name: str | None = None, timeout_s: float | None = None) -> Self:
        """A copy with these settings; None leaves one as it is."""
        adjusted = copy.copy(self)
        if isinstance(resources, Mapping):
            resources = Resources(**resources)
        given = {"resources": resources, "batch_size": batch_size, "name": name, "timeout_s": timeout_s}
        for key, value in given.items():
            if value is not None:
                object.__setattr__(adjusted, key, value)
        return adjusted

    def at_least(self, least: float, *names: str) -> None:
        """For `__post_init__`: raise ValueError if a parameter is smaller, or None where it may not be."""
        assert dataclasses.is_dataclass(self)
        may = {f.name: f.default is None or "None" in str(f.type) for f in dataclasses.fields(self)}
        for name in names:
            value = getattr(self, name)
            fits = may[name] if value is None else value >= least  # so that NaN is refused
            if not fits:
                raise ValueError(f"{name} must be {least} or more, got {value}")

    def parameters(self) -> dict[str, Any]:
        """The values of the fields that decide what the stage answers."""
        if not dataclasses.is_dataclass(self):
            return {}
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)
                if f.init and f.metadata.get("fingerprint", True)}

    def fingerprint(self) -> str:
        """16 hex digits of class name, version and parameters: equal when the stage answers the same.

        A class of a script, a notebook or a module beside them has no version that anybody raises; there its
        code counts too, and what that uses (see `curator.api.fingerprint`).
        """
        return fingerprint(self)


def setting(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field that does not change what the stage answers (credentials, threads), so not its fingerprint."""
    return field(default=default, metadata={"fingerprint": False}, **kwargs)


@dataclass(frozen=True)
class Snapshot:
    """What one unit taught a stateful stage: kept beside the output and given back to a resumed run.

    `rows`: what `restore` will be given; of an empty table nothing is kept. `depends`: other units on whose
    records answers for this unit rest (its duplicates point to them): when one of those is gone, this one is
    done again. `rests_on`: where answers rest on all other units that taught the stage anything (it is full),
    how many those are: the unit is done again when there are fewer. To name them all would take the square of
    their number.
    """

    rows: pa.Table
    depends: frozenset[int] = frozenset()
    rests_on: int = 0


class Stateful(Stage):
    """A stage whose answer depends on records it saw before; one worker holds the state.

    The unit of a row is in the hidden column `_unit`. A record is shown twice only after `replay` was called
    for its unit, or when its call raised; `process` therefore learns last, when nothing can raise any more.
    """

    def replay(self, unit: int) -> None:
        """The records of a unit will be shown again: each of them is to get the answer that it got before.

        Called when a unit starts again after a failure, and after `restore` for a unit that an edit has done
        again. What other units were told on the strength of this unit's records stays true that way.
        """

    def discard(self, unit: int) -> None:
        """All that a unit brought is void and will not be shown again."""

    def snapshot(self, unit: int) -> Snapshot | None:
        """What this unit taught; called when nothing of the unit is left before this stage, maybe twice."""
        return None

    def restore(self, unit: int, rows: pa.Table) -> None:
        """Take in what a finished unit taught; called after `setup` and before the first `process`."""

    def exhausted(self) -> bool:
        """True when every further record would be dropped (a limit is reached): the rest need not be read."""
        return False


class Reduce(Stage):
    """A barrier: it sees all records before it answers for any. Clusters, the n best, shares of a mixture are
    found so.

    Everything before it is done first and spooled; then each shard is read twice. In pass one `absorb` sees
    every row of the shard, and `finish` may make rows of what was learned. In pass two `process` says what
    becomes of each row. Other shards are not seen: rows that must meet have one `key`.

    `key`: the column by whose value rows are sharded (rows without a value are together); None for one shard
    of everything. `shards`: how many, where there is a key: it is no part of the answer. `columns`: the
    columns and payloads that `absorb` reads, beside `id` and `source`; None for all. What `key` and `columns`
    name is needed, whether `contract` says so or not. `absorbs`: the kind of batch that `absorb` is shown;
    others are processed only.

    What is learned must fit into a worker's memory; rows need not, if `absorb` lets them go. The order of
    rows is the same in both passes, and is not that of the input: break ties by `id`.
    """

    key: str | None = None
    shards: int = 16
    columns: tuple[str, ...] | None = None
    absorbs: type[Batch] = Batch

    def clear(self) -> None:
        """Forget what was absorbed; called before each shard, also when one is tried again."""

    def absorb(self, batch: Batch) -> None:
        """Pass one: learn from rows of the shard. What it raises has the whole shard tried again, then ends
        the run."""
        raise TypeError(f"{type(self).__name__} has no absorb method")

    def finish(self) -> Iterable[Batch | Outputs] | None:
        """Rows made of what was learned, with `id` and `source`; called after the last `absorb`, also when
        there was none."""
        return None

    def process(self, batch: Any) -> Result:
        """Pass two: what becomes of rows. By default they are absorbed: only what `finish` makes goes on."""
        return Outputs(absorbed=batch)

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        """As for any stage; where all rows are absorbed, what the contract adds and no more."""
        if type(self).process is Reduce.process:
            return {name: columns[name] for name in ("id", "source")
                    if name in columns} | dict(self.contract().adds)
        return super().columns_after(columns)


class Composite(Stage):
    """A stage that is made of others: the plan puts what `expand` gives in its place, and users see one
    stage.

    Its parts have names of their own in the plan (`<name>.<part>`); in the funnel their work is that of the
    whole. They get no batch through this class: it has no `process`.
    """

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        """`rows`, an open `Pipeline`, with the parts added. The stage that was added last is the main one: it
        takes the records, answers on this stage's ports and absorbs what else comes to it, from the other
        parts.

        `folder`, `storage_options`: where parts that are sinks may write tables beside the output of the run.
        """
        raise TypeError(f"{type(self).__name__} has no expand method")


# -- sources ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRange:
    """A file, or a range of one. `start` and `stop` are what the source makes of them: bytes, row groups.

    `version` changes when the content does (modification time or etag).
    """

    uri: str
    size_bytes: int
    version: str = ""
    start: int = 0
    stop: int | None = None


class _Key:
    """Room for the key of a unit, once somebody has asked for it; neither compared nor pickled."""

    __slots__ = ("_key",)
    _key: str


@dataclass(frozen=True, slots=True)
class Unit(_Key):
    """A piece of the source: what is read, recovered, resumed and committed as one."""

    parts: tuple[SourceRange, ...]

    @property
    def key(self) -> str:
        """16 hex digits of what is read: the same content has the same key."""
        try:
            return self._key
        except AttributeError:
            text = json.dumps([[p.uri, p.size_bytes, p.version, p.start, p.stop] for p in self.parts])
            key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            object.__setattr__(self, "_key", key)
            return key

    @property
    def size_bytes(self) -> int:
        return sum(p.size_bytes if p.stop is None else p.stop - p.start for p in self.parts)

    @property
    def label(self) -> str:
        """A name for people: the file, its range, how many more."""
        first = self.parts[0]
        span = "" if first.stop is None else f"[{first.start}:{first.stop}]"
        return first.uri + span + (f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else "")


class Source(Stage):
    """Where records come from. Subclass it as a dataclass and write `units` and `read`."""

    pinned: str | int | None = None  # no field: the version that is read, where there are several

    def pin(self, version: str | int | None = None) -> None:
        """Read this version of a table or dataset from here on, None for the newest as it is now.

        Raises:
            InputError: there is no such version.
        """

    def remarks(self) -> list[str]:
        """What people should know before the run of what `units` found: files that are passed over."""
        return []

    def units(self) -> list[Unit]:
        """The pieces of the source, listed quickly and without reading them; called once, before the run.

        Raises:
            InputError: nothing matches, or it cannot be listed.
        """
        raise TypeError(f"{type(self).__name__} has no units method")

    def read(self, unit: Unit) -> Iterator[Batch | Outputs]:
        """The records of a unit, in batches of a few MB, called in a worker.

        Each row has `id` and `source`. What cannot be read is a row on `failed` (`with_error`), with its
        place as its id; an exception restarts the unit, and after three tries ends it as one failed record.
        """
        raise TypeError(f"{type(self).__name__} has no read method")

    def columns(self) -> dict[str, pa.DataType | None] | None:
        """The columns and payloads that `read` gives, as far as known before; None if they are not."""
        return dict(self.contract().adds) or None


# -- sinks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenFile:
    """A finished file: its full path or URL, rows and bytes."""

    path: str
    rows: int
    size_bytes: int


class Writer:
    """Writes the records of one unit. Made by `Sink.open`; ends with either `close` or `abort`."""

    def write(self, batch: Batch) -> None:
        raise TypeError(f"{type(self).__name__} has no write method")

    def close(self) -> list[WrittenFile]:
        """Finish the files, so that they survive a crash, and name them."""
        raise TypeError(f"{type(self).__name__} has no close method")

    def abort(self) -> None:
        """Remove what was begun."""


class Sink(Stage):
    """Where records go. Subclass it as a dataclass and write `open`.

    A sink has the fields `path` (a folder or URL; None until the plan puts it into the run's folder) and
    `storage_options`. Each file it makes lies below `path`, and its name, or that of a folder between, begins
    with the `name` it was given, so that files of an interrupted run can be told and removed. It is given all
    columns, and of the payloads those that its contract needs.
    """

    path: str | None
    ports = ()

    def open(self, name: str) -> Writer:
        """Begin the files of one unit. `name` is unique to unit and attempt:
        `part-<unit>-<output>-<phase>-<run>-<attempt>`."""
        raise TypeError(f"{type(self).__name__} has no open method")

    def may_publish(self) -> None:
        """Called on the driver before a run begins.

        Raises:
            InputError: `publish` would replace what no run made.
        """

    def publish(self, files: Sequence[WrittenFile], about: str) -> str:
        """Show others what a run has written: called on the driver when it has ended well, and again when it
        is run again. `about`: the run as Markdown, with funnel and recipe. Gives what to tell the user."""
        return ""


# -- functions as stages ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class FunctionStage(Stage):
    """A plain function as a stage. Calling it gives a copy with parameters bound."""

    function: Callable[..., Result]
    arguments: dict[str, Any] = field(default_factory=dict)
    stage_contract: Contract = field(default_factory=Contract)

    def contract(self) -> Contract:
        return self.stage_contract

    def process(self, batch: Batch) -> Result:
        return self.function(batch, **self.arguments)

    def __call__(self, **arguments: Any) -> FunctionStage:
        bound = copy.copy(self)
        bound.arguments = {**self.arguments, **arguments}
        return bound

    def parameters(self) -> dict[str, Any]:
        return {"function": self.function, "arguments": self.arguments}

    def fingerprint(self) -> str:
        return fingerprint(self, own=getattr(self.function, "__module__", None) or "")


def stage(function: Callable[..., Result] | None = None, *, needs: Collection[str] = (),
          adds: Mapping[str, pa.DataType | None] | None = None, removes: Collection[str] = (),
          resources: Resources | None = None, batch_size: int | None = None,
          ports: tuple[str, ...] = ("out",)) -> Any:
    """Turn a function from batch to result into a stage; its further arguments become parameters.

        @stage(needs={"text"}, adds={"shouting": pa.bool_()})
        def shouting(batch):
            return batch.with_columns({"shouting": [(t or "").isupper() for t in batch.column("text")]})

    The stage's fingerprint covers the function's code, and the code and values that it uses (see
    `curator.api.fingerprint`).
    """

    def make(wrapped: Callable[..., Result]) -> FunctionStage:
        made = FunctionStage(function=wrapped, stage_contract=Contract(needs, dict(adds or {}), removes))
        made.__doc__ = wrapped.__doc__
        made.ports = ports
        return made.with_(name=wrapped.__name__.strip("<>"), resources=resources, batch_size=batch_size)

    return make if function is None else make(function)
