"""What a worker does: runs the steps of one operator over rows, and accounts for every one of them.

A `Runner` knows no process and no scheduler. It is given a `Call` and answers it as `protocol` says. Runtimes put it into processes,
actors, or the driver itself.
"""

from __future__ import annotations

import errno
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import ROW, UNIT, Batch
from curator.api.counts import WRITTEN, Counts, MemoryShort
from curator.api.errors import CuratorError, StageError, first_error
from curator.api.stage import SIDE_OUTPUTS, Context, Outputs, Reduce, Stage, Stateful, Unit, Writer, WrittenFile
from curator.engine.parts import CALL_BYTES, CHUNK_BYTES
from curator.engine.protocol import Call, Done, Emitted, Failed, Flushed, Output, Ref, Refitted, Restored, Slice
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator, Step
from curator.worker.account import Account, FirstErrors, adjacent, count_port, count_values, rows_by_unit, summarise
from curator.worker.fitting import Fitting, is_out_of_memory
from curator.worker.imports import bring_for
from curator.worker.rows import JOIN_BYTES, JOIN_ROWS, Waiting, failed_unit, gathered, ipc_bytes, joined, parts

HOLD_BYTES = 64 << 20  # of an iterator's answer kept back, so that a call that fails late can still be repeated
SMALL_BYTES = 16 << 10  # buffers up to this are not measured exactly
FULL = (errno.ENOSPC, errno.EDQUOT)  # no row is to blame for a full disk
READ_PARTS_S = (0.01, 0.2)  # a source sends what it has this often, so that the stages after it need not wait:
READ_PART_SHARE = 0.05  # as often as makes waiting for leave to go on this share of its time


Once = Callable[[str, Callable[[], None]], None]


class Runner:
    """One operator in one worker.

    `put` and `get` move batches out of and into this process. `sidecars`: where stateful stages keep what units taught them.
    `progress` is called before each `process`, `at` with the number of the step that begins. `lockstep`: other ranks make the
    same calls, so none is tried again here.
    """

    def __init__(self, operator: Operator, put: Callable[[Batch], Any], get: Callable[[Any], Batch], sidecars: Folder,
                 progress: Callable[[], None] = lambda: None, at: Callable[[int], None] = lambda step: None,
                 lockstep: bool = False) -> None:
        self.operator, self.put, self.get, self.sidecars = operator, put, get, sidecars
        self.progress, self.at, self.lockstep = progress, at, lockstep
        self.stages: list[Stage] = [s.stage for s in operator.steps]
        self.adds = [tuple(s.contract().adds) for s in self.stages]
        self.kept_contract: set[int] = set()  # steps whose answers were held against their contract
        self.fitting: dict[int, Fitting] = {}  # by step, of those that ran out of memory
        self.refitted: dict[int, Refitted] = {}  # by step, since a call was last answered: one that fails tells nothing
        self.short: dict[int, MemoryShort] = {}  # so too
        self.writers: dict[tuple[int, int], dict[int, Writer]] = {}  # by (unit, attempt) and step
        self.step = 0  # that is at work
        self.errors = FirstErrors()
        self._begin()

    def _begin(self) -> None:
        self.counts: dict[int, dict[int, Counts]] = {}
        self.pending: dict[tuple[int, str, int], list[Batch]] = {}
        self.pending_bytes = 0
        self.buffers: dict[int, Waiting] = {}  # by step
        self.only_unit: int | None = None  # the unit of all rows of this call, if it is one

    # -- life -----------------------------------------------------------------------------------------------

    def setup(self, ctx: Context, restore: Sequence[Restored] = (), once: Once = lambda name, do: do()) -> None:
        """Set up every step; a stateful one also gets what units taught it: (unit, sidecar, whether it is done again).

        `once` does what has this name, unless it has been done on this node.

        Raises:
            StageError: a step's `setup` or `setup_node` raised; the message ends with its traceback.
        """
        for step in self.operator.steps:
            if type(step.stage).setup_node is not Stage.setup_node:
                once(step.name, partial(_set_up, step, step.stage.setup_node, ctx))
            _set_up(step, step.stage.setup, ctx)
        stateful = self.stages[0]
        if restore and isinstance(stateful, Stateful):
            for (unit, _, replay), data in zip(restore, self.sidecars.read_all([name for _, name, _ in restore]), strict=True):
                stateful.restore(unit, pa.ipc.open_stream(data).read_all())
                if replay:
                    stateful.replay(unit)

    def close(self) -> None:
        for by_step in self.writers.values():
            for writer in by_step.values():
                writer.abort()
        self.writers.clear()
        for stage in self.stages:
            stage.close()

    def discard(self, unit: int, attempt: int, replay: bool) -> None:
        """Drop what was begun for this attempt of a unit; `replay`: its records come once more."""
        for writer in self.writers.pop((unit, attempt), {}).values():
            writer.abort()
        stateful = self.stages[0]
        if isinstance(stateful, Stateful):
            (stateful.replay if replay else stateful.discard)(unit)

    @property
    def exhausted(self) -> bool:
        return isinstance(self.stages[0], Stateful) and self.stages[0].exhausted()

    # -- work -----------------------------------------------------------------------------------------------

    def run(self, call: Call) -> Iterator[Emitted | Done | Failed]:
        """Do a call: parts of the answer while there is much of it, then `Done` with the rest, or `Failed`."""
        self._begin()
        began, waited, failed = time.perf_counter(), 0.0, None
        try:
            if call.kind == "flush":
                yield self._flush(call, began)
                return
            steps = {"read": self._read_internal if self.operator.internal else self._read,
                     "process": self._write if self.operator.kind == "sink" else self._process}
            for _ in steps[call.kind](call):
                part, paused = self._emit(call), time.perf_counter()
                yield part
                del part  # where nothing is put elsewhere, these are the batches themselves
                waited += time.perf_counter() - paused
            outputs = self._take_pending()
        except Exception as error:
            fatal = isinstance(error, CuratorError) or (
                isinstance(error, OSError) and error.errno in (*FULL, errno.EACCES, errno.EROFS))
            if call.kind == "read" and not isinstance(error, StageError):
                fatal = False
            named = str(error) if isinstance(error, CuratorError) else f"{type(error).__name__}: {error}"
            stage = error.stage if isinstance(error, StageError) else self.operator.steps[self.step].name
            failed = Failed(call.id, named, traceback.format_exc(), fatal, first_error(stage, error))
        if failed is not None:
            yield failed
            return
        for step, short in self.short.items():
            self._count(call.units[0][0], step).add(Counts(memory=short))
        refitted, self.short, self.refitted = tuple(self.refitted.values()), {}, {}
        seconds = time.perf_counter() - began - waited
        yield Done(call.id, outputs, self._take_counts(), seconds, self.exhausted, refitted=refitted, errors=self.errors.take())

    def _emit(self, call: Call) -> Emitted:
        return Emitted(call.id, self._take_pending(), self._take_counts(), self.errors.take())

    def _take_counts(self) -> dict[int, dict[int, Counts]]:
        counts, self.counts = self.counts, {}
        return counts

    def _enter(self, step: int) -> None:
        self.step = step
        self.at(step)

    def _read(self, call: Call) -> Iterator[None]:
        (index, _), = call.units
        self.only_unit = index
        source, unit = self.stages[0], call.infos[index].unit
        sent, pause = time.perf_counter(), READ_PARTS_S[0]
        counts = self._count(index, 0)
        try:
            began = sent
            for item in source.read(unit):
                counts.busy_s += time.perf_counter() - began
                ports = item if isinstance(item, Outputs) else Outputs(out=item)
                for port, batch in ports.items():
                    self._check_source(batch)
                    batch = batch.with_columns({UNIT: pa.array(np.full(len(batch), index, np.int32))})
                    batch = self._ended(0, port, batch)
                    counts.rows_in += len(batch)
                    count_port(counts, port, batch.rows)
                    self._collect(0, port, batch)
                    del batch
                if ports.counts:
                    counts.add(Counts(extra=dict(ports.counts)))
                del item, ports  # not to be held while it makes the next
                began = time.perf_counter()
                if self.pending_bytes >= CHUNK_BYTES // 4 or began - sent > pause:
                    yield
                    counts, sent = self._count(index, 0), time.perf_counter()
                    pause, began = min(max(READ_PARTS_S[0], (sent - began) / READ_PART_SHARE), READ_PARTS_S[1]), sent
        except (StageError, GeneratorExit):
            raise
        except Exception as error:
            if not call.best_effort:
                raise
            failed = failed_unit(unit, index, error, traceback.format_exc())
            counts.rows_in += 1
            count_port(counts, "failed", failed.rows)
            self.errors.raised(self.operator.steps[0].name, error)
            self.errors.saw(self.operator.steps[0].name, failed)
            self._collect(0, "failed", failed)

    def _read_internal(self, call: Call) -> Iterator[None]:
        """Rows that an earlier phase spooled: none of them may be lost, so what fails to the last ends the run."""
        (self.only_unit, _), = call.units
        name, unit = self.operator.steps[0].name, call.infos[self.only_unit].unit
        self._enter(0)
        try:
            if isinstance(self.stages[0], Reduce):
                for shard in unit.alone():
                    yield from self._reduce(shard)
            else:
                yield from self._read_spool(unit)
        except (StageError, GeneratorExit):
            raise
        except Exception as error:
            if not call.best_effort:
                raise
            told = f"failed on {unit.label}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            raise StageError(name, told) from error

    def _read_spool(self, unit: Unit) -> Iterator[None]:
        """Send on what a spool holds. These records were counted when they were spooled."""
        sent = time.perf_counter()
        for batch in gathered(self.stages[0].read(unit)):
            self._collect(0, "out", self._stamped(batch))
            del batch
            if self.pending_bytes >= CHUNK_BYTES // 4 or time.perf_counter() - sent > READ_PARTS_S[1]:
                yield
                sent = time.perf_counter()

    def _reduce(self, unit: Unit) -> Iterator[None]:
        """A shard: all rows once to learn from, what is made of that, and all rows again to answer them."""
        stage, began = self.stages[0], time.perf_counter()
        stage.clear()
        for batch in gathered(self.operator.reader.rows(unit, stage.columns, stage.absorbs)):
            self.progress()
            stage.absorb(batch)
        self.progress()
        for outputs in parts(stage.finish() or ()):
            for port, answer in self._ports(0, outputs):
                self._made(port, self._stamped(answer))
                del answer
            if outputs.counts:
                self._count(self.only_unit, 0).add(Counts(extra=dict(outputs.counts)))
            del outputs
            if self.pending_bytes >= CHUNK_BYTES:
                yield
        self._count(self.only_unit, 0).busy_s += time.perf_counter() - began
        sent = time.perf_counter()
        for batch in gathered(self.operator.reader.rows(unit), self._size(0)):
            for some in self._cut(0, self._stamped(batch)):
                yield from self._push(0, some)
            if time.perf_counter() - sent > READ_PARTS_S[1]:
                yield
                sent = time.perf_counter()

    def _made(self, port: str, batch: Batch) -> None:
        """Take in rows that a reduction made."""
        counts = self._count(self.only_unit, 0)
        self._check_source(batch)
        if port not in SIDE_OUTPUTS:
            if 0 not in self.kept_contract:
                self._check_adds(0, batch)
            summarise(counts, batch.rows, self.adds[0])
        counts.made += len(batch)
        count_port(counts, port, batch.rows)
        count_values(counts, port, batch.rows, self.stages[0].count_by)
        self._collect(0, port, batch)

    def _stamped(self, batch: Batch) -> Batch:
        return batch.with_columns({UNIT: pa.array(np.full(len(batch), self.only_unit, np.int32))})

    def _check_source(self, batch: Batch) -> None:
        for name in ("id", "source"):
            if name not in batch.rows.column_names:
                raise StageError(self.operator.steps[0].name, f"gave rows without the column {name!r}")

    def _process(self, call: Call) -> Iterator[None]:
        units = {s.unit for s in call.slices}
        self.only_unit = units.pop() if len(units) == 1 else None
        for batch in joined([self._load(s) for s in call.slices]):
            for some in self._cut(0, batch):
                yield from self._push(0, some)
        for step in range(1, len(self.stages)):
            yield from self._drain(step)

    def _load(self, piece: Slice) -> Batch:
        batch = self.get(piece.ref.data)
        return batch if piece.stop - piece.start == len(batch) else batch.slice(piece.start, piece.stop)

    # -- steps ------------------------------------------------------------------------------------------------

    def _size(self, step: int) -> int | None:
        asked = self.stages[step].batch_size
        learned = self.fitting[step].rows_max if step in self.fitting else None
        return min(asked or learned, learned) if learned else asked

    def _cut(self, step: int, batch: Batch, fit: int | None = None, full: bool = False) -> Iterator[Batch]:
        """A batch in pieces of the step's size (it may change on the way), or of `fit` rows; with `full` no smaller end."""
        at, rows = 0, len(batch)
        while at < rows:
            size = min(self._size(step) or rows, fit or rows)
            if full and rows - at < size:
                return
            stop = min(at + size, rows)
            yield batch if stop - at == rows else batch.slice(at, stop)
            at = stop

    def _feed(self, step: int, batch: Batch) -> Iterator[None]:
        """Give rows to a later step of the chain, in batches of its size, or of as many rows as `CALL_BYTES` are."""
        waiting, nbytes = self.buffers.setdefault(step, Waiting()), batch.nbytes
        if waiting.nbytes + nbytes > CALL_BYTES:
            yield from self._drain(step)
            waiting = self.buffers[step] = Waiting()
        waiting.add(batch, nbytes)
        del batch
        size = self._size(step)
        # The steps before this one may work on a few rows at a time; a call has a price of its own.
        rows, most = (JOIN_ROWS, JOIN_BYTES) if size is None else (size, CALL_BYTES)
        if waiting.rows >= rows or waiting.nbytes > most:
            yield from self._drain(step, full=size is not None)

    def _drain(self, step: int, full: bool = False) -> Iterator[None]:
        """Give a later step the rows that wait for it; with `full`, those that make no full batch wait on."""
        waiting = self.buffers.pop(step, Waiting())
        calls = ceil(waiting.nbytes / CALL_BYTES)  # more than one only where a step answered so much at once
        for one in joined(waiting.batches):
            done = 0
            for some in self._cut(step, one, ceil(len(one) / calls) if calls > 1 else None, full):
                done += len(some)
                yield from self._push(step, some)
            if done < len(one):
                rest = one.slice(done, len(one))
                self.buffers.setdefault(step, Waiting()).add(rest, rest.nbytes)

    def _push(self, step: int, batch: Batch) -> Iterator[None]:
        """Run one step and send its answer on; yields when a part should leave the worker."""
        if not len(batch):
            return
        chained = self.operator.chain[step] if step < len(self.operator.chain) else None
        for port, answer in self._answer(step, batch, retries=1):
            if port == chained:
                yield from self._feed(step + 1, self._lightened(step, port, answer))
            else:
                self._collect(step, port, answer)
            del answer  # not to be held while the stage makes the next
            if self.pending_bytes >= CHUNK_BYTES:
                yield

    def _lightened(self, step: int, port: str, batch: Batch) -> Batch:
        """Without the payloads that no later stage wants."""
        wanted = self.operator.payloads.get((step, port))
        gone = () if wanted is None else [name for name in batch.payloads() if name not in wanted]
        return batch.with_payloads(**dict.fromkeys(gone)) if gone else batch

    def _answer(self, step: int, batch: Batch, retries: int) -> Iterator[tuple[str, Batch]]:
        """What a step says to a batch. What it raises is retried, then halved until the bad rows are alone."""
        sent = False
        try:
            for answer in self._call(step, batch):
                sent = True
                yield answer
                del answer
            if step in self.fitting and self.fitting[step].went_well(len(batch)):
                self._refit(step, 0)
            return
        except StageError:
            raise
        except (Exception, SystemExit) as caught:
            short = not self.lockstep and is_out_of_memory(caught)
            if short:
                self.fitting.setdefault(step, Fitting()).ran_out(len(batch))
                self._refit(step, len(batch))
            if sent or self.lockstep or (isinstance(caught, OSError) and caught.errno in FULL):
                raise
            # In words: the error itself holds the frames that it went through, and what they hold.
            error, trace = f"{type(caught).__name__}: {caught}", traceback.format_exc()
            self.errors.raised(self.operator.steps[step].name, caught)
        if short and len(batch) > 1:
            retries = 0
        if retries:
            yield from self._answer(step, batch, retries=0)
        elif len(batch) > 1:
            middle = len(batch) // 2
            yield from self._answer(step, batch.slice(0, middle), retries=int(middle == 1))
            yield from self._answer(step, batch.slice(middle, len(batch)), retries=int(len(batch) - middle == 1))
        else:
            failed = batch.with_error(error, trace)
            counts = self._count(self._unit_of(batch), step)
            counts.rows_in += 1
            count_port(counts, "failed", failed.rows)
            self.errors.saw(self.operator.steps[step].name, failed)
            yield "failed", failed

    def _refit(self, step: int, ran_out: int) -> None:
        """Note that a step's size changed: `ran_out` rows were too many, or 0 and it has grown."""
        rows_max = self.fitting[step].rows_max
        before = self.refitted[step].ran_out if step in self.refitted else 0
        self.refitted[step] = Refitted(step, max(ran_out, before), rows_max)
        short = MemoryShort(int(ran_out > 0), ran_out, rows_max, time.time())
        self.short[step] = self.short[step] + short if step in self.short else short

    def _call(self, step: int, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """One `process` call, accounted for: each row in is on a port or absorbed, or it is an error."""
        self._enter(step)
        self.progress()
        stage, rows = self.stages[step], len(batch)
        bring_for(batch.rows.schema)
        batch = batch.with_columns({ROW: pa.array(np.arange(rows, dtype=np.int32))})
        account = Account(self.operator.steps[step].name, stage, batch, self.only_unit)
        held: deque[tuple[str, Batch]] | None = deque()
        held_bytes, first = 0, step not in self.kept_contract
        began = time.perf_counter()
        busy = 0.0
        for outputs in parts(stage.process(batch)):
            busy += time.perf_counter() - began
            for port, answer in self._ports(step, outputs):
                if first and port not in SIDE_OUTPUTS:
                    self._check_adds(step, answer)
                account.saw(port, answer)
                if held is None:
                    yield port, answer
                else:
                    held.append((port, answer))
                    held_bytes += answer.nbytes if held_bytes or len(held) > 1 else 0
                del answer
            if outputs.absorbed is not None:
                account.saw(None, outputs.absorbed)
            account.extra(outputs.counts)
            del outputs
            if held and held_bytes > HOLD_BYTES:
                while held:
                    yield held.popleft()
                held = None
            began = time.perf_counter()
        busy += time.perf_counter() - began
        for unit, counts in account.close(busy).items():
            self._count(unit, step).add(counts)
        while held:
            yield held.popleft()

    def _check_adds(self, step: int, answer: Batch) -> None:
        """What the first call answers has the columns that the contract adds, in their types: the plan was checked against it."""
        self.kept_contract.add(step)
        name, named = self.operator.steps[step].name, self.stages[step].contract().adds
        for added, kind in named.items():
            schema, at = answer.rows.schema, answer.rows.schema.get_field_index(added)
            if at < 0 and added not in answer.payloads():
                raise StageError(name, f"its contract adds {added!r}, and its answer has no such column or payload")
            if at >= 0 and kind is not None and not pa.types.is_null(schema.types[at]) and not schema.types[at].equals(kind):
                raise StageError(name, f"its contract adds {added!r} as {kind}, and its answer has {schema.types[at]}")

    def _ports(self, step: int, outputs: Outputs) -> Iterator[tuple[str, Batch]]:
        name = self.operator.steps[step].name
        for port, answer in outputs.items():
            if not isinstance(answer, Batch):
                raise StageError(name, f"answered {type(answer).__name__} on port {port!r}; a batch is wanted")
            if port not in SIDE_OUTPUTS and port not in self.stages[step].ports:
                known = ", ".join(self.stages[step].ports)
                raise StageError(name, f"answered on port {port!r}, which is none of its ports ({known})")
            if len(answer):
                yield port, self._ended(step, port, answer)

    def _ended(self, step: int, port: str, batch: Batch) -> Batch:
        """Rows on an ending carry why."""
        if port not in SIDE_OUTPUTS:
            return batch
        name, columns = self.operator.steps[step].name, batch.rows.column_names
        if port == "dropped" and "reason" not in columns:
            return batch.with_reason(name)
        if port == "failed":
            batch = batch if "error" in columns else batch.with_error(f"failed in {name}")
            self.errors.saw(name, batch)
        if port == "duplicate" and "duplicate_of" not in columns:
            raise StageError(name, "rows on the port 'duplicate' need the column 'duplicate_of': the id of the record kept")
        return batch

    # -- accounts -----------------------------------------------------------------------------------------------

    def _count(self, unit: int, step: int) -> Counts:
        return self.counts.setdefault(unit, {}).setdefault(step, Counts())

    def _unit_of(self, batch: Batch) -> int:
        return self.only_unit if self.only_unit is not None else batch.rows.column(UNIT)[0].as_py()

    def _by_unit(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        if self.only_unit is not None:
            yield self.only_unit, batch
            return
        for unit, at in rows_by_unit(batch).items():
            yield unit, batch.slice(int(at[0]), int(at[-1]) + 1) if adjacent(at) else batch.take(at)

    def _collect(self, step: int, port: str, batch: Batch) -> None:
        if (step, port) not in self.operator.routes or not len(batch):
            return
        batch = self._lightened(step, port, batch)
        for unit, rows in self._by_unit(batch):
            self.pending.setdefault((step, port, unit), []).append(rows)
        # An upper bound (a slice counts all that it is part of), forty times cheaper than the bytes themselves.
        bound = batch.rows.get_total_buffer_size()
        self.pending_bytes += bound if bound < SMALL_BYTES and not batch.payloads() else batch.nbytes

    def _take_pending(self) -> tuple[Output, ...]:
        part: list[Output] = []
        while self.pending:  # one after the other: what was put elsewhere is not kept here until all is
            (step, port, unit), batches = self.pending.popitem()
            for batch in joined(batches):
                part.append(Output(step, port, unit, Ref(self.put(batch), len(batch), batch.nbytes)))
        self.pending_bytes = 0
        return tuple(part[::-1])

    # -- sinks ----------------------------------------------------------------------------------------------------

    def _write(self, call: Call) -> Iterator[None]:
        groups: dict[tuple[int, int, int], list[Batch]] = {}
        for piece in call.slices:
            groups.setdefault((piece.unit, piece.attempt, piece.target), []).append(self._with_reason(piece, call))
        # What failed comes first: should a sink raise now, it is the one thing that is kept.
        order = sorted(groups, key=lambda key: not self.operator.steps[key[2]].evidence)
        for unit, attempt, step in order:
            batches = groups.pop((unit, attempt, step))
            self._enter(step)
            writers = self.writers.setdefault((unit, attempt), {})
            if step not in writers:
                writers[step] = self.stages[step].open(call.infos[unit].name)
            began = time.perf_counter()
            for batch in joined(batches):
                bring_for(batch.rows.schema)
                writers[step].write(batch)
                self._count(unit, step).add(Counts(rows_in=len(batch), out={WRITTEN: len(batch)}))
            self._count(unit, step).busy_s += time.perf_counter() - began
        return
        yield  # a generator like the others, though a sink sends nothing on

    def _with_reason(self, piece: Slice, call: Call) -> Batch:
        """The rows of a slice, with the reason if the engine sends them to `failed`."""
        reason = piece.reason
        if piece.ref is None:
            return failed_unit(call.infos[piece.unit].unit, piece.unit, reason.error, reason.traceback)
        batch = self._load(piece)
        return batch if reason is None else batch.with_error(reason.error, reason.traceback)

    def _flush(self, call: Call, began: float) -> Done:
        (unit, attempt), = call.units
        files: dict[int, list[WrittenFile]] = {}
        writers = self.writers.pop((unit, attempt), {})
        for step in [s for s in writers if call.best_effort and not self.operator.steps[s].evidence]:
            writers.pop(step).abort()  # before a file is closed: the disk may be full
        for step, writer in writers.items():
            self._enter(step)
            start = time.perf_counter()
            files[step] = writer.close()
            self._count(unit, step).busy_s += time.perf_counter() - start
        snapshot, depends, rests_on = None, frozenset[int](), 0
        stage = self.stages[0]
        if isinstance(stage, Stateful):
            memory = stage.snapshot(unit)
            if memory is not None:
                depends, rests_on = memory.depends - {unit}, memory.rests_on
                if len(memory.rows):
                    snapshot = f"{self.operator.steps[0].name}/{call.infos[unit].name}.arrow"
                    self.sidecars.write(snapshot, ipc_bytes(memory.rows))
        return Done(call.id, (), self._take_counts(), time.perf_counter() - began,
                    flushed=Flushed(files, snapshot, depends, rests_on), errors=self.errors.take())


def _set_up(step: Step, method: Callable[[Context], None], ctx: Context) -> None:
    try:
        method(ctx)
    except CuratorError:
        raise
    except Exception as error:
        raise StageError(step.name, f"{method.__name__} failed: {error}\n{traceback.format_exc()}") from error
