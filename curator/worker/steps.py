"""One step at work: calls of a size that fits, tried again and halved when they raise, and checked."""

from __future__ import annotations

import errno
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import pyarrow as pa

from curator.api.batch import ROW, Batch
from curator.api.errors import StageError
from curator.api.stage import SIDE_OUTPUTS, Outputs
from curator.pipeline.plan import Step
from curator.worker.account import Account
from curator.worker.answer import Answer
from curator.worker.device import device_lost
from curator.worker.fitting import Fitting, is_out_of_memory
from curator.worker.imports import bring_for
from curator.worker.rows import JOIN_BYTES, PART_BYTES, Waiting, parts

# of an iterator's answer kept back, so that a call that fails late can still be repeated
BUFFERED_BYTES = 64 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)  # no row is to blame for a full disk


class WorkingStep:
    """A step of an operator in a worker.

    `begins` is called with the step's number before each `process`. `lockstep`: other ranks make the same
    calls, so none is tried again here.
    """

    def __init__(self, index: int, step: Step, answer: Answer, begins: Callable[[int], None],
                 lockstep: bool) -> None:
        self.index, self.name, self.stage, self.evidence = index, step.name, step.stage, step.evidence
        self.answer, self.begins, self.lockstep = answer, begins, lockstep
        self.adds, self.amounts = dict(step.stage.contract().adds), step.amounts
        self.checked = False  # whether an answer was held against the contract
        self.streams = False  # whether its stage answers the current call bit by bit
        self.fitting = Fitting()
        self.waiting = Waiting()  # rows of this call that are not enough yet
        # Bytes that it may be given at once, and for which small batches wait. A few rows at a time stay in
        # the cache; but what asks for batches of n rows, or works by stages that do, is to have them whole.
        asks = any(one.batch_size for one in (step.stage, *step.stage.inner().values()))
        self.most_bytes, self.join_bytes = (step.stage.batch_bytes,) * 2 if asks else (PART_BYTES, JOIN_BYTES)

    # -- the size of a call ----------------------------------------------------------------------------------

    @property
    def size(self) -> int | None:
        """The rows that a call may have; None: as suits the engine."""
        asked, fits = self.stage.batch_size, self.fitting.rows_max
        return asked if fits is None else min(asked or fits, fits)

    def cut(self, batch: Batch, fit: int | None = None, full: bool = False) -> Iterator[Batch]:
        """A batch in pieces of the step's size (it may change on the way), or of `fit` rows; with `full` no
        smaller end."""
        at, rows = 0, len(batch)
        while at < rows:
            size = min(self.size or rows, fit or rows)
            if full and rows - at < size:
                return
            stop = min(at + size, rows)
            yield batch if stop - at == rows else batch.slice(at, stop)
            at = stop

    # -- a call ----------------------------------------------------------------------------------------------

    def answers(self, batch: Batch, retries: int = 1) -> Iterator[tuple[str, Batch]]:
        """What the stage says to a batch, by port. What it raises is retried, then halved until the bad rows
        are alone.

        Raises:
            StageError: the stage broke its contract.
        """
        sent = False

        def leaves(answer: tuple[str, Batch]) -> tuple[str, Batch]:
            nonlocal sent
            sent = True
            return answer

        try:
            # not in a loop, which would hold an answer while others work on it
            yield from map(leaves, self._call(batch))
            if self.fitting.went_well(len(batch)):
                self.answer.refit(self.index, 0, self.fitting.rows_max)
            return
        except StageError:
            raise
        except BaseException as caught:
            # libraries in Rust and exit() raise what is no Exception; these two are the process's own
            if isinstance(caught, (GeneratorExit, KeyboardInterrupt)):
                raise
            short = not self.lockstep and is_out_of_memory(caught)
            if short:
                self.fitting.ran_out(len(batch))
                self.answer.refit(self.index, len(batch), self.fitting.rows_max)
            full = isinstance(caught, OSError) and caught.errno in FULL
            if sent or self.lockstep or full or device_lost():
                raise
            # In words: the error itself holds the frames that it went through, and what they hold.
            error, trace = f"{type(caught).__name__}: {caught}", traceback.format_exc()
            first = None if retries or len(batch) > 1 else self.answer.errors.first(self.name, caught)
        if short and len(batch) > 1:
            retries = 0
        if retries:
            yield from self.answers(batch, retries=0)
        elif len(batch) > 1:
            middle = len(batch) // 2
            for half in (batch.slice(0, middle), batch.slice(middle, len(batch))):
                yield from self.answers(half, retries=int(len(half) == 1))
        else:
            failed = batch.with_error(error, trace)
            self.answer.failed(self.index, failed, first)
            yield "failed", failed

    def _call(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """One `process` call, accounted for: each row in is on a port or absorbed, or it is an error."""
        self.begins(self.index)
        bring_for(batch.rows.schema)
        batch = batch.with_columns({ROW: pa.array(np.arange(len(batch), dtype=np.int32))})
        summarised = self.adds if self.answer.summarises else ()
        account = Account(self.name, self.stage, batch, self.answer.only_unit, summarised, self.amounts)
        kept: deque[tuple[str, Batch]] = deque()  # what leaves is held by nothing here
        kept_bytes, check = 0, not self.checked
        began = perf_counter()
        busy = 0.0
        result = self.stage.process(batch)
        self.streams = not isinstance(result, (Batch, Outputs))
        for outputs in parts(result):
            busy += perf_counter() - began
            answers = deque(self.ports(outputs))
            # without the rows
            outputs = Outputs(absorbed=outputs.absorbed, counts=outputs.counts, inner=outputs.inner)
            while answers:
                port, answer = answers.popleft()
                account.saw(port, answer)
                if check and port not in SIDE_OUTPUTS:
                    self.check_columns(answer)
                    self.check_adds(answer)
                kept.append((port, answer))
                if kept_bytes <= BUFFERED_BYTES and (kept_bytes or len(kept) > 1):  # one alone is no matter
                    kept_bytes += answer.nbytes
                del answer
                while kept and kept_bytes > BUFFERED_BYTES:
                    yield kept.popleft()
            if outputs.absorbed is not None:
                account.saw(None, outputs.absorbed)
            account.extra(outputs)
            del outputs
            began = perf_counter()
        busy += perf_counter() - began
        for unit, counts in account.close(busy).items():
            self.answer.count(unit, self.index).add(counts)
        while kept:
            yield kept.popleft()

    # -- what a stage may answer -----------------------------------------------------------------------------

    def ports(self, outputs: Outputs) -> Iterator[tuple[str, Batch]]:
        """The rows on each port; those on a side output carry why."""
        for port, answer in outputs.items():
            if not isinstance(answer, Batch):
                raise StageError(self.name,
                                 f"answered {type(answer).__name__} on port {port!r}; a batch is wanted")
            if port not in SIDE_OUTPUTS and port not in self.stage.ports:
                known = ", ".join(self.stage.ports)
                raise StageError(self.name, f"answered on port {port!r}, which is none of its ports "
                                            f"({known}): name it in `ports`")
            if len(answer):
                yield port, self.explained(port, answer)

    def explained(self, port: str, batch: Batch) -> Batch:
        """Rows with their reason, if they are on a side output."""
        columns = batch.rows.column_names
        if port == "dropped" and "reason" not in columns:
            return batch.with_reason(self.name)
        if port == "failed":
            batch = batch if "error" in columns else batch.with_error(f"failed in {self.name}")
            self.answer.errors.saw(self.name, batch)
        if port == "duplicate" and "duplicate_of" not in columns:
            raise StageError(self.name, "rows on the port 'duplicate' need the column 'duplicate_of': the id "
                                        "of the record kept")
        return batch

    def check_adds(self, answer: Batch) -> None:
        """What the first call answers has the columns that the contract adds, in their types: the plan was
        checked against it."""
        self.checked = True
        schema = answer.rows.schema
        for added, kind in self.adds.items():
            at = schema.get_field_index(added)
            if at < 0 and added not in answer.payloads():
                raise StageError(self.name,
                                 f"its contract adds {added!r}, and its answer has no such column or payload")
            if (at >= 0 and kind is not None and not pa.types.is_null(schema.types[at])
                and not schema.types[at].equals(kind)):
                raise StageError(self.name, f"its contract adds {added!r} as {kind}, and its answer has "
                                            f"{schema.types[at]}")

    def check_columns(self, batch: Batch) -> None:
        """Every record has an id and a source."""
        for name in ("id", "source"):
            if name not in batch.rows.column_names:
                raise StageError(self.name, f"gave rows without the column {name!r}")
        if nulls := batch.rows.column("id").null_count:
            raise StageError(self.name, f"gave {nulls} of {len(batch)} rows the id null: each needs one")
