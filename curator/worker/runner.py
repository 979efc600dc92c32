"""The life of a call: what it reads or is given goes through the fused steps of one operator, and all that
comes out is answered.

A `Runner` knows no process and no scheduler. It is given a `Call` and answers it as `protocol` says. Runtimes
put it into processes, actors, or the driver itself. What one step does with a batch stands in `steps`, what
waits to leave in `answer`.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import UNIT, Batch
from curator.api.counts import WRITTEN, Counts
from curator.api.errors import CuratorError, StageError, first_error, in_words
from curator.api.stage import SIDE_OUTPUTS, Context, Stage, Stateful, Unit, Writer, WrittenFile
from curator.engine.parts import CHUNK_BYTES
from curator.engine.protocol import Call, Done, Emitted, Failed, Flushed, Restored, Slice
from curator.io.failed import WHY, FromFailed, killed
from curator.io.files.folder import Folder
from curator.io.files.reading import UnitProgress
from curator.io.spool import Shard
from curator.pipeline.plan import Operator, Step
from curator.worker.account import count_answer, count_failed
from curator.worker.answer import Answer
from curator.worker.device import DeviceLost, device_lost
from curator.worker.imports import bring_for
from curator.worker.rows import JOIN_ROWS, Waiting, by_port, failed_unit, gathered, joined, parts, together
from curator.worker.steps import FULL, WorkingStep

# a source sends what it has as often as makes waiting for leave to go on this share of its time,
READ_PART_SHARE = 0.05
READ_PART_S = 0.01  # and not more often than this
ABSORBED_S = 1.0  # a reduction that learns says this often how far it is

Once = Callable[[str, Callable[[], None]], None]


class Runner:
    """One operator in one worker.

    `put` and `get` move batches out of and into this process. `sidecars`: where stateful stages keep what
    units taught them. `progress` is called before each `process`, `at` with the number of the step that
    begins. `lockstep`: other ranks make the same calls, so none is tried again here. `answer`: what takes in
    what the steps send on, if it is not to leave by `put`.
    """

    def __init__(self, operator: Operator, put: Callable[[Batch], Any], get: Callable[[Any], Batch],
                 sidecars: Folder,
                 progress: Callable[[], None] = lambda: None, at: Callable[[int], None] = lambda step: None,
                 lockstep: bool = False, answer: Answer | None = None) -> None:
        self.operator, self.get, self.sidecars, self.progress, self.at = operator, get, sidecars, progress, at
        self.answer = answer or Answer(operator, put)
        self.steps = [WorkingStep(i, step, self.answer, self._begins, lockstep)
                      for i, step in enumerate(operator.steps)]
        # a source, a stateful stage, a reduction: what is one of these stands alone or first
        self.stage: Any = self.steps[0].stage
        self.writers: dict[tuple[int, int], dict[int, Writer]] = {}  # by (unit, attempt) and step
        self.step = 0  # that is at work
        self.read_share: Callable[[], float] = lambda: 0.0  # of the unit that is read

    # -- life -----------------------------------------------------------------------------------------------

    def setup(self, ctx: Context, restore: Sequence[Restored] = (),
              once: Once = lambda name, do: do()) -> None:
        """Set up every step; a stateful one also gets what units taught it: (unit, sidecar, whether it is
        done again).

        `once` does what has this name, unless it has been done on this node.

        Raises:
            StageError: a step's `setup` or `setup_node` raised; the message ends with its traceback.
        """
        ctx = replace(ctx, progress=self.progress)
        for step in self.operator.steps:
            if type(step.stage).setup_node is not Stage.setup_node:
                once(step.name, partial(_set_up, step, step.stage.setup_node, ctx))
            _set_up(step, step.stage.setup, ctx)
        if restore and isinstance(self.stage, Stateful):
            read = self.sidecars.read_all([name for _, name, _ in restore])
            for (unit, _, replay), data in zip(restore, read, strict=True):
                self.stage.restore(unit, pa.ipc.open_stream(data).read_all())
                if replay:
                    self.stage.replay(unit)

    def discard(self, unit: int, attempt: int, replay: bool) -> None:
        """Drop what was begun for this attempt of a unit; `replay`: its records come once more."""
        for writer in self.writers.pop((unit, attempt), {}).values():
            writer.abort()
        if isinstance(self.stage, Stateful):
            (self.stage.replay if replay else self.stage.discard)(unit)

    def close(self) -> None:
        for by_step in self.writers.values():
            for writer in by_step.values():
                writer.abort()
        self.writers.clear()
        for step in self.steps:
            step.stage.close()

    @property
    def exhausted(self) -> bool:
        return isinstance(self.stage, Stateful) and self.stage.exhausted()

    # -- a call ----------------------------------------------------------------------------------------------

    def run(self, call: Call) -> Iterator[Emitted | Done | Failed]:
        """Do a call: parts of the answer while there is much of it, then `Done` with the rest, or `Failed`.

        Raises:
            DeviceLost: no further call can go well in this process.
        """
        answer, failed = self.answer, None
        units = {s.unit for s in call.slices} if call.slices else {unit for unit, _ in call.units}
        answer.begin(units.pop() if len(units) == 1 else None)
        for step in self.steps:
            step.waiting = Waiting()
        began, paused_s = perf_counter(), 0.0
        size = call.infos[call.units[0][0]].size_bytes if call.kind == "read" else 0
        try:
            if call.kind == "flush":
                yield self._flush(call, began)
                return
            for _ in self._work(call):
                part = Emitted(call.id, answer.take_rows(), answer.take_counts(), answer.errors.take(),
                               int(size * self.read_share()))
                paused = perf_counter()
                yield part
                del part  # where nothing is put elsewhere, these are the batches themselves
                paused_s += perf_counter() - paused
            outputs = answer.take_rows()
        except Exception as error:
            if device_lost():
                raise DeviceLost(f"{type(error).__name__}: {error}") from error
            failed = self._failed(call, error)
        if failed is not None:
            yield failed
            return
        refitted = answer.take_refitted(call.units[0][0])
        seconds = perf_counter() - began - paused_s
        yield Done(call.id, outputs, answer.take_counts(), seconds, self.exhausted, None, refitted,
                   answer.errors.take(), size)

    def _work(self, call: Call) -> Iterator[None]:
        """What a call of this operator is; yields when a part of the answer should leave."""
        self.read_share = lambda: 0.0
        if call.kind == "process":
            return self._write(call) if self.operator.kind == "sink" else self._process(call)
        return self._read_internal(call) if self.operator.internal else self._read(call)

    def _failed(self, call: Call, error: Exception) -> Failed:
        """The whole call failed, and no row is to blame."""
        fatal = isinstance(error, CuratorError) or (
            isinstance(error, OSError) and error.errno in (*FULL, errno.EACCES, errno.EROFS))
        if call.kind == "read" and not isinstance(error, StageError):
            fatal = False
        first = first_error(self.steps[self.step].name, error)
        return Failed(call.id, in_words(error), traceback.format_exc(), fatal, first)

    def _enters(self, step: int) -> None:
        self.step = step
        self.at(step)

    def _begins(self, step: int) -> None:
        self._enters(step)
        self.progress()

    # -- rows through the steps ------------------------------------------------------------------------------

    def _process(self, call: Call) -> Iterator[None]:
        first, batches = self.steps[0], map(self._load, call.slices)
        for batch in together(batches, first.most_bytes):
            for some in first.cut(batch):
                yield from self._push(first, some)
                del some
            del batch  # before the next is read
        for step in self.steps[1:]:
            yield from self._drain(step)

    def _load(self, rows: Slice) -> Batch:
        assert rows.ref is not None
        batch = self.get(rows.ref.data)
        return batch if rows.stop - rows.start == len(batch) else batch.slice(rows.start, rows.stop)

    def _push(self, step: WorkingStep, batch: Batch) -> Iterator[None]:
        """Run one step and send its answer on: to the step that is fused behind it, or out of the worker."""
        index = step.index
        fused = self.operator.chain[index] if index < len(self.operator.chain) else None
        for port, answer in step.answers(batch):
            further: Iterator[None] = iter(())
            if port == fused:
                further = self._feed(self.steps[index + 1], self.answer.lightened(index, port, answer))
            else:
                self.answer.collect(index, port, answer)
            del answer  # not to be held while others work on it, or the stage makes the next
            yield from further
            # A later step that answered at once has no more: its caller, who then holds less, lets it leave.
            enough = CHUNK_BYTES // 4 if step.streams else CHUNK_BYTES
            if self.answer.nbytes >= enough and (not index or step.streams):
                yield

    def _feed(self, step: WorkingStep, batch: Batch) -> Iterator[None]:
        """Give rows to a later step, in batches of its size, or of as many rows as `batch_bytes` are."""
        nbytes = batch.nbytes
        if step.waiting.nbytes + nbytes > step.stage.batch_bytes:
            yield from self._drain(step)
        step.waiting.add(batch, nbytes)
        del batch
        # The steps before this one may work on a few rows at a time; a call has a price of its own.
        if step.waiting.rows >= (step.size or JOIN_ROWS) or step.waiting.nbytes > step.join_bytes:
            yield from self._drain(step, full=step.size is not None)

    def _drain(self, step: WorkingStep, full: bool = False) -> Iterator[None]:
        """Give a later step the rows that wait for it; with `full`, those that make no full batch wait on."""
        waiting, step.waiting = step.waiting, Waiting()
        calls = ceil(waiting.nbytes / step.most_bytes)  # more than one only where so much came at once
        for one in joined(waiting.batches):
            done = 0
            for some in step.cut(one, ceil(len(one) / calls) if calls > 1 else None, full):
                if done and self.answer.nbytes >= CHUNK_BYTES:
                    yield
                done += len(some)
                yield from self._push(step, some)
            if done < len(one):
                rest = one.slice(done, len(one))
                step.waiting.add(rest, rest.nbytes)

    # -- sources ---------------------------------------------------------------------------------------------

    def _read(self, call: Call) -> Iterator[None]:
        (index, _), = call.units
        unit, step, answer = call.infos[index].unit, self.steps[0], self.answer
        sent, pause = perf_counter(), READ_PART_S
        self.read_share = UnitProgress(unit.parts).share
        counts = answer.count(index, 0)
        try:
            began = sent
            for item in self.stage.read(unit):
                counts.busy_s += perf_counter() - began
                outputs = by_port(item)
                for port, batch in outputs.items():
                    step.check_columns(batch)
                    batch = step.explained(port, self._stamped(batch))
                    counts.rows_in += len(batch)
                    count_answer(counts, port, batch.rows, amounts=step.amounts)
                    answer.collect(0, port, batch)
                    del batch
                if outputs.counts:
                    counts.add(Counts(extra=dict(outputs.counts)))
                del item, outputs  # not to be held while it makes the next
                began = perf_counter()
                if answer.nbytes >= CHUNK_BYTES // 4 or began - sent > pause:
                    yield
                    counts, sent = answer.count(index, 0), perf_counter()
                    pause, began = min(max(READ_PART_S, (sent - began) / READ_PART_SHARE), call.part_s), sent
        except (StageError, GeneratorExit):
            raise
        except Exception as error:
            if not call.best_effort:
                raise
            failed = failed_unit(unit, index, error, traceback.format_exc())
            answer.failed(0, failed, answer.errors.first(step.name, error))
            answer.collect(0, "failed", failed)

    def _read_internal(self, call: Call) -> Iterator[None]:
        """Rows that an earlier phase spooled. None may be lost: what fails to the last ends the run."""
        (index, _), = call.units
        unit = call.infos[index].unit
        self._enters(0)
        try:
            if isinstance(unit, Shard):  # of a reduction
                for shard in unit.alone():
                    before = (shard.first - unit.first) / (unit.stop - unit.first)
                    yield from self._reduce(call, shard, before, 1 / (unit.stop - unit.first))
            elif isinstance(self.stage, FromFailed):
                yield from self._read_failed(index, unit)
            else:
                self.read_share = UnitProgress(unit.parts).share
                yield from self._read_spool(unit, call.part_s)
        except (StageError, GeneratorExit):
            raise
        except Exception as error:
            if not call.best_effort:
                raise
            text = f"failed on {unit.label}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            raise StageError(self.steps[0].name, text) from error

    def _read_spool(self, unit: Unit, part_s: float) -> Iterator[None]:
        """Send on what a spool holds. These records were counted when they were spooled."""
        sent = perf_counter()
        for port, files in groupby(unit.parts, key=self.stage.port_of):
            for batch in gathered(self.stage.read(Unit(tuple(files)))):
                self.answer.collect(0, port, self._stamped(batch))
                del batch
                if self.answer.nbytes >= CHUNK_BYTES // 4 or perf_counter() - sent > part_s:
                    yield
                    sent = perf_counter()

    def _read_failed(self, index: int, unit: Unit) -> Iterator[None]:
        """Rows that failed before go to where they did. What they counted there, as a row that came in and
        failed, is told by stage in `Counts.inner`: it is true no more."""
        for outputs in self.stage.read(unit):
            for port, batch in outputs.items():
                if port in self.stage.needs:
                    counts, dead = Counts(), killed(batch.rows)
                    count_failed(counts, batch.filter(~dead).rows, self.stage.counted[port],
                                 self.steps[0].amounts)
                    counts.add(Counts(rows_in=int(dead.sum()), failed=int(dead.sum())))
                    self.answer.count(index, 0).add(Counts(inner={port: counts}))
                    batch = batch.without(WHY)
                self.answer.collect(0, port, self._stamped(batch))
            yield

    def _reduce(self, call: Call, shard: Unit, before: float, share: float) -> Iterator[None]:
        """A shard: all rows once to learn from, what is made of that, and all rows again to answer them.
        `before`: the share of the unit that is done, `share`: that this shard is."""
        stage, step, reader, began = self.stage, self.steps[0], self.operator.reader, perf_counter()
        assert reader is not None, step.name
        (index, _), = call.units
        reading, passes = UnitProgress(shard.parts), 0
        self.read_share = lambda: before + share * (passes + reading.share()) / 2
        stage.clear()
        for batch in gathered(reader.rows(shard, stage.columns, stage.absorbs)):
            self.progress()
            stage.absorb(batch)
            del batch
            if perf_counter() - began > ABSORBED_S:  # to say how far it is
                self.answer.count(index, 0).busy_s += perf_counter() - began
                yield
                began = perf_counter()
        passes = 1
        self.progress()
        for outputs in parts(stage.finish() or ()):
            for port, batch in step.ports(outputs):
                self._made(index, port, self._stamped(batch))
                del batch
            if outputs.counts:
                self.answer.count(index, 0).add(Counts(extra=dict(outputs.counts)))
            del outputs
            if self.answer.nbytes >= CHUNK_BYTES:
                yield
        self.answer.count(index, 0).busy_s += perf_counter() - began
        sent = perf_counter()
        for batch in gathered(reader.rows(shard), step.size):
            for some in step.cut(self._stamped(batch)):
                yield from self._push(step, some)
            if perf_counter() - sent > call.part_s:
                yield
                sent = perf_counter()

    def _made(self, index: int, port: str, batch: Batch) -> None:
        """Take in rows that a reduction made."""
        step, counts = self.steps[0], self.answer.count(index, 0)
        step.check_columns(batch)
        if port not in SIDE_OUTPUTS and not step.checked:
            step.check_adds(batch)
        counts.made += len(batch)
        count_answer(counts, port, batch.rows, step.adds, step.stage.count_by, step.amounts)
        self.answer.collect(0, port, batch)

    def _stamped(self, batch: Batch) -> Batch:
        return batch.with_columns({UNIT: pa.array(np.full(len(batch), self.answer.only_unit, np.int32))})

    # -- sinks, and the end of a unit ------------------------------------------------------------------------

    def _write(self, call: Call) -> Iterator[None]:
        groups: dict[tuple[int, int, int], list[Batch]] = {}
        for rows in call.slices:
            groups.setdefault((rows.unit, rows.attempt, rows.target),
                              []).append(self._with_reason(rows, call))
        # What failed comes first: should a sink raise now, it is the one thing that is kept.
        order = sorted(groups, key=lambda key: not self.steps[key[2]].evidence)
        for unit, attempt, step in order:
            batches = groups.pop((unit, attempt, step))
            self._enters(step)
            writers = self.writers.setdefault((unit, attempt), {})
            if step not in writers:
                writers[step] = self.operator.steps[step].sink.open(call.infos[unit].name)
            began = perf_counter()
            for batch in together(batches):
                bring_for(batch.rows.schema)
                writers[step].write(batch)
                counts = self.answer.count(unit, step)
                counts.rows_in += len(batch)
                count_answer(counts, WRITTEN, batch.rows, amounts=self.steps[step].amounts)
            self.answer.count(unit, step).busy_s += perf_counter() - began
        return iter(())  # a sink sends nothing on

    def _with_reason(self, rows: Slice, call: Call) -> Batch:
        """The rows of a slice, with the reason if the engine sends them to `failed`."""
        reason = rows.reason
        if reason is None:
            return self._load(rows)
        if rows.ref is None:
            return failed_unit(call.infos[rows.unit].unit, rows.unit, reason.error, reason.traceback)
        return self._load(rows).with_error(reason.error, reason.traceback)

    def _flush(self, call: Call, began: float) -> Done:
        """Nothing more comes of a unit: its files are closed, and what it taught a stateful stage is kept."""
        (unit, attempt), = call.units
        files: dict[int, list[WrittenFile]] = {}
        writers = self.writers.pop((unit, attempt), {})
        for step in [s for s in writers if call.best_effort and not self.steps[s].evidence]:
            writers.pop(step).abort()  # before a file is closed: the disk may be full
        for step, writer in writers.items():
            self._enters(step)
            start = perf_counter()
            files[step] = writer.close()
            self.answer.count(unit, step).busy_s += perf_counter() - start
        snapshot = self.stage.snapshot(unit) if isinstance(self.stage, Stateful) else None
        if snapshot is None:
            flushed = Flushed(files)
        else:
            name = f"{self.steps[0].name}/{call.infos[unit].name}.arrow" if len(snapshot.rows) else None
            if name:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, snapshot.rows.schema) as stream:
                    stream.write_table(snapshot.rows)
                self.sidecars.write(name, sink.getvalue().to_pybytes())
            flushed = Flushed(files, name, snapshot.depends - {unit}, snapshot.rests_on)
        return Done(call.id, (), self.answer.take_counts(), perf_counter() - began, flushed=flushed,
                    errors=self.answer.errors.take())


def _set_up(step: Step, method: Callable[[Context], None], ctx: Context) -> None:
    try:
        method(ctx)
    except StageError:
        raise
    except CuratorError as error:
        raise StageError(step.name, str(error)) from error
    except Exception as error:
        raise StageError(step.name, f"{method.__name__} failed: {error}\n{traceback.format_exc()}") from error
