"""What a pipeline makes of one unit of its source after the other, in this process and no other.

The rows of a unit come in the same order each time, so a place in it is a number of rows. Nothing is written:
there is no folder, no ledger, and no worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import UNIT, Batch, is_list, is_number
from curator.api.errors import CuratorError, FirstError, RunStopped
from curator.api.stage import Context, Contract, Outputs, Sink, Source, Unit, setting
from curator.engine.protocol import Call, Failed, Ref, Slice
from curator.engine.scheduler import SHARE_OF, failures_allowed, too_many_failed
from curator.io.files.folder import Folder
from curator.outside.collect import with_sink
from curator.pipeline.graph import Graph
from curator.pipeline.plan import Plan, make_plan
from curator.run.folder.guard import list_units
from curator.worker.runner import Runner


@dataclass(kw_only=True)
class ToHere(Sink):
    """Where rows end that nobody writes. `columns`: those, and the payloads, that are wanted; None for all
    columns."""

    path: str | None = setting(default=None)
    columns: list[str] | None = None

    def contract(self) -> Contract:
        return Contract(needs=self.columns or ())


class ByUnit:
    """A pipeline that has no sink, and whose stages look at no more than a batch.

    Raises:
        CuratorError: it has a sink, or a stage that has to see all rows; the plan's errors.
    """

    def __init__(self, pipeline: Graph, columns: list[str] | None = None) -> None:
        self.limit = pipeline.settings.max_failed
        plan = make_plan(with_sink(pipeline, ToHere(columns=columns)), out="nowhere")
        _check(plan)
        self.operators = plan.phases[0].operators
        self.units = list_units(plan)
        self.wanted = next(step for step in self.operators[-1].steps if isinstance(step.stage, ToHere))
        keys = [self.wanted.key, *(unit.key for _, unit in self.units)]
        self.digest = hashlib.blake2b("\n".join(keys).encode(), digest_size=8).hexdigest()
        self.runners: dict[int, Runner] = {}
        self.read = self.failed = 0
        self.first: FirstError | None = None

    def rows(self, number: int) -> Iterator[Batch]:
        """What becomes of a unit, by its place in `units`.

        Raises:
            RunStopped: too many records failed, of those that were read so far.
            CuratorError: a stage cannot work.
        """
        if not self.runners:
            self._set_up()
        operator, unit = self.units[number]
        for outputs in self._read(operator, unit):
            for port, batch in outputs.items():
                self.read += len(batch)
                yield from self._on(operator, 0, port, batch)
            if self.failed > failures_allowed(self.limit, max(self.read, SHARE_OF)):
                why = too_many_failed(self.failed, self.read, self.limit)
                raise RunStopped(f"{why}\n{self.first or ''}".rstrip())

    def close(self) -> None:
        """End the stages. They are set up again when more is wanted."""
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()

    def _set_up(self) -> None:
        for operator in self.operators[:-1]:
            runner = Runner(operator, lambda batch: batch, lambda batch: batch, Folder(""))
            runner.setup(Context())
            self.runners[operator.index] = runner

    def _read(self, operator: int, unit: Unit) -> Iterator[Outputs]:
        """Each answer of the source alone: a runner would join them, as many as come in some milliseconds."""
        source = self.operators[operator].steps[0].stage
        assert isinstance(source, Source)
        for item in source.read(unit):
            outputs = item if isinstance(item, Outputs) else Outputs(out=item)
            yield Outputs({port: batch.with_columns({UNIT: pa.array(np.zeros(len(batch), np.int32))})
                           for port, batch in outputs.items()})

    def _on(self, operator: int, step: int, port: str, batch: Batch) -> Iterator[Batch]:
        """Where rows go that came out on a port: to other operators, and what is made of them further."""
        for target in self.operators[operator].routes.get((step, port), ()) if len(batch) else ():
            if target.operator != self.operators[-1].index:
                yield from self._process(target.operator, batch)
            elif self.operators[-1].steps[target.step] is self.wanted:
                yield batch
            elif self.operators[-1].steps[target.step].evidence:
                self.failed += len(batch)

    def _process(self, operator: int, batch: Batch) -> Iterator[Batch]:
        rows = Slice(Ref(batch, len(batch), batch.nbytes), 0, 0, 0, len(batch))
        for answer in self.runners[operator].run(Call(0, 0, "process", (rows,), ((0, 0),))):
            if isinstance(answer, Failed):
                raise CuratorError(f"{answer.error}\n{answer.first}")
            self.first = self.first or next(iter(answer.errors), None)
            for output in answer.outputs:
                yield from self._on(operator, output.step, output.port, output.ref.data)


def _check(plan: Plan) -> None:
    whole = [operator.steps[0].name for phase in plan.phases for operator in phase.operators
             if operator.kind == "stateful" or (phase.number and not operator.steps[0].spool)]
    if len(plan.phases) > 1 or whole:
        raise CuratorError(f"stage {whole[0]!r} has to see all rows, and here each part of them is worked on "
                           "alone: run the pipeline with write(…) first, and read what it wrote")


def values(batch: Batch, columns: list[str] | None) -> Iterator[dict[str, Any]]:
    """The rows as dicts. A list of numbers is an array."""
    table, payloads = batch.visible(), batch.payloads()
    named = {name: _values(table.column(name)) if name in table.column_names
             else payloads.get(name, [None] * len(batch))
             for name in (table.column_names if columns is None else columns)}
    for row in zip(*named.values(), strict=True):
        yield dict(zip(named, row, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if is_list(kind) and (is_number(kind.value_type) or pa.types.is_boolean(kind.value_type)):
        return [np.array(value.values.to_numpy(zero_copy_only=False)) if value.is_valid else None
                for value in column]
    return column.to_pylist()
