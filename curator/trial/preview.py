"""A pipeline tried on a few records, in this process, without sinks: what each stage would do to them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch, concat_tables
from curator.api.errors import CuratorError, FirstError
from curator.api.stage import SIDE_OUTPUTS, Context, Reduce, Source, Unit
from curator.engine.protocol import Call, Done, Emitted, Failed, Ref, Slice, UnitInfo
from curator.io.files.folder import Folder
from curator.io.spool import FromSpool, Shard
from curator.io.tables.jsonl import ToJsonl
from curator.observe.preview import StagePreview
from curator.pipeline.graph import Graph
from curator.pipeline.plan import Kind, Operator, Step, Target, make_plan
from curator.worker.runner import Runner

Answers = dict[str, list[Batch]]  # by port


@dataclass(frozen=True)
class Wanted:
    """A record, by id. `unit`: the key of the unit that has it, "" to look into all."""

    id: str
    unit: str = ""

    def of(self, batch: Batch) -> Batch:
        return batch.filter(pc.equal(batch.rows.column("id"), self.id))


def preview(pipeline: Graph, records: int = 5, wanted: Wanted | None = None) -> list[StagePreview]:
    """What each stage does to the first `records` records of the input, or to the one that is `wanted`, in
    pipeline order. Nothing is written.

    Raises:
        CuratorError: the plan's errors, and what a stage raised in `setup`.
    """
    plan = make_plan(pipeline >> ToJsonl() if pipeline.ends else pipeline, out="preview")  # no sink is opened
    parts = {step.name: step.part_of for step in plan.steps}
    sources = sum(isinstance(step.stage, Source) for step in plan.steps)
    answers: dict[tuple[str, str], list[Batch]] = {}
    previews = []
    for operator in (o for phase in plan.phases for o in phase.operators):
        for step in operator.steps:
            if operator.kind == "sink" or step.spool:
                continue
            errors: list[FirstError] = []
            if isinstance(step.stage, Source):
                before, got = None, _read(step, max(1, records // sources), errors, wanted)
            else:
                batches = [b for end in step.after for b in answers.get(end, ())]
                before = _table([b for end in step.after if parts.get(end[0]) != step.name
                                 for b in answers.get(end, ())])
                got = _process(operator, step, batches, errors)
            answers.update({(step.name, port): batches for port, batches in got.items()})
            outputs = {port: table for port, batches in got.items() if (table := _table(batches)) is not None}
            if (before is not None or isinstance(step.stage, Source)) and not step.part_of:
                previews.append(StagePreview(step.name, outputs, before, next(iter(errors), None)))
    return previews


class _InMemory(FromSpool):
    """Stands in for the spools that a `Reduce` reads."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches

    def rows(self, unit: Unit, columns: Collection[str] | None = None,
             kind: type[Batch] = Batch) -> Iterator[Batch]:
        return (batch for batch in self.batches if isinstance(batch, kind))


def _runner(kind: Kind, step: Step, reader: _InMemory | None = None) -> Runner:
    """One step alone, with every port open."""
    ports = (*step.stage.ports, *SIDE_OUTPUTS)
    operator = Operator(0, kind, (step,), (), {(0, port): (Target(0),) for port in ports}, reader=reader)
    runner = Runner(operator, lambda batch: batch, lambda batch: batch, Folder(""))
    runner.setup(Context())
    return runner


def _read(step: Step, records: int, errors: list[FirstError], wanted: Wanted | None) -> Answers:
    source = step.stage
    assert isinstance(source, Source)
    got: Answers = {}
    left, runner = records, _runner("source", step)
    for unit in source.units():
        if wanted and wanted.unit not in ("", unit.key):
            continue
        for part in _answers(runner, _read_call(unit)):
            errors += part.errors
            for output in part.outputs:
                batch = wanted.of(output.ref.data) if wanted else output.ref.data
                if some := min(left, len(batch)):
                    got.setdefault(output.port, []).append(batch.slice(0, some))
                    left -= some
            if not left:
                return got
    return got


def _process(operator: Operator, step: Step, batches: list[Batch], errors: list[FirstError]) -> Answers:
    got: Answers = {}
    if not batches:
        return got
    if isinstance(step.stage, Reduce):
        runner = _runner("source", step, _InMemory(batches))
        unit = Shard(first=0, stop=1, shards=1, digest="preview")
        call = _read_call(unit)
    else:
        runner = _runner(operator.kind, step)
        call = Call(0, 0, "process", tuple(Slice(Ref(b, len(b), b.nbytes), 0, 0, 0, len(b)) for b in batches),
                    ((0, 0),))
    for part in _answers(runner, call):
        errors += part.errors
        for output in part.outputs:
            got.setdefault(output.port, []).append(output.ref.data)
    runner.close()
    return got


def _read_call(unit: Unit) -> Call:
    return Call(0, 0, "read", units=((0, 0),), best_effort=True, infos={0: UnitInfo(unit, "preview")})


def _answers(runner: Runner, call: Call) -> Iterator[Emitted | Done]:
    for answer in runner.run(call):
        if isinstance(answer, Failed):
            raise CuratorError(f"{answer.error}\n{answer.first}")
        yield answer


def _table(batches: list[Batch]) -> pa.Table | None:
    tables = [Batch.concat(list(group)).visible() for _, group in itertools.groupby(batches, key=type)]
    return concat_tables(tables) if tables else None
