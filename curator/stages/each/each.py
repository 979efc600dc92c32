"""A pipeline over a record's items: frames of a clip, pages of a document, crops of an image.

The life of a batch: `process` is given records. `Items`, the first step of a small operator, makes records of
their items, and the `Runner`, which runs every operator of a pipeline, feeds them to the inner steps in
batches of the size of each, over many records. What comes out carries which item it is; `Found` takes it in,
and folds it into columns of the records when all of it is there.

One failure: an inner stage raises. The runner halves its batch until the bad item is alone on `failed`, as it
does with records. The item is counted, and its record gathered from the others. If more than
`max_failed_items` of them fail, the record leaves on `failed` with the first error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import UNIT, Batch
from curator.api.counts import Counts
from curator.api.errors import RecipeError, StageError
from curator.api.findings import Alarm, Finding, Line, Shown, Summed
from curator.api.format import count, plural
from curator.api.resources import Resources
from curator.api.stage import (
    Composite,
    Context,
    Contract,
    Outputs,
    Reduce,
    Sink,
    Source,
    Stage,
    Stateful,
)
from curator.engine.protocol import Call, Failed, Ref, Slice
from curator.io.files.folder import Folder
from curator.pipeline.contracts import check_contracts
from curator.pipeline.graph import End, Node, unique
from curator.pipeline.plan import Operator, Step
from curator.stages.columns import require
from curator.stages.each.folds import gathered, type_of
from curator.stages.each.found import Found
from curator.stages.each.items import RECORD, Items

TOLD = 3  # reasons and errors of an inner step that are named


@dataclass(kw_only=True)
class Each(Stage):
    """Run steps over the items of each record (frames, pages, crops, values of a list) and gather what they
    add.

    Adds the columns that `gather` names. A record without items, or of whose items none is left, has null
    there (a count is 0). It keeps the payload.

    Inside, an item is a record: `id` (that of the record and `#k`), `source`, `parent`, `item` (0, 1, ...),
    and the item itself; where that is `pixels` also its `width` and `height`, as image.decode gives them.
    Items of many records share a batch. What a step drops is not gathered; children that it makes of an item
    are gathered with the others. Steps that answer one by one may stand here, in one worker; not sources,
    sinks, stages with a memory or several ports, nor another `each`. A time limit is for one call of one of
    them.

    An item that fails is counted, and its record gathered from the others. Where more than the share
    `max_failed_items` of them fail, or all that were not dropped, the record fails with the first error. Half
    of them is the usual limit: a score that rests on the smaller part of a record says little of it.

    `payload`: what has the items: a payload (an array, or a list), or a column of lists. `as_`: what an item
    is called inside, in recipes `as`: the payload that the steps need (`pixels`), or a column. `steps`: what
    runs over the items. `gather`: by inner column what is made of it: `{nsfw_score: max}`; `{nsfw_score:
    [max, mean]}` makes `nsfw_score_max` and `nsfw_score_mean`; `{nsfw_score: {max: worst}}` makes `worst`. Of
    numbers there are max, min, mean, median, std (of the items themselves: divided by their number) and sum;
    of truth values any, all and mean (the share); of vectors max, min and mean, place by place (the mean of
    vectors of length 1 has length 1); of all values first, last, count and list. Nulls are passed over, but
    in list. `per_record`: columns of the record that its items carry. `per_item`: payloads or columns of
    lists with a value for each item (`timestamps`), which carries it. `max_failed_items`: from 0, where no
    item may fail, to 1.
    """

    payload: str
    as_: str
    steps: list[Stage]
    gather: dict[str, str | list[str] | dict[str, str]]
    per_record: list[str] = field(default_factory=list)
    per_item: list[str] = field(default_factory=list)
    max_failed_items: float = 0.5

    def __post_init__(self) -> None:
        if not self.steps or not self.gather:
            raise RecipeError("each wants `steps`, what runs over the items, and `gather`, what becomes of "
                              "the columns that they add")
        if not 0 <= self.max_failed_items <= 1:
            raise RecipeError(f"max_failed_items is a share from 0 to 1, got {self.max_failed_items}")
        for stage in self.steps:
            _check_inner(stage)
        self._names: list[str] = []
        for stage in self.steps:
            self._names.append(unique(stage.name, self._names))
        self._gathered = gathered(self.gather)
        self.resources = together([stage.resources for stage in self.steps])
        self.requires = {name: get for stage in self.steps for name, get in stage.requires.items()}
        self.timeout_s = max((one.timeout_s for one in self.steps if one.timeout_s is not None), default=None)
        sparse = {name for stage in self.steps for name in stage.sparse}
        self.sparse = tuple(one.into for one in self._gathered if one.column in sparse)
        self.contract()  # what can be said against the types is said now

    def inner(self) -> Mapping[str, Stage]:
        return dict(zip(self._names, self.steps, strict=True))

    def parameters(self) -> dict[str, Any]:
        """With what decides the answers of the inner stages in their place."""
        return super().parameters() | {"steps": [stage.fingerprint() for stage in self.steps]}

    # -- the plan --------------------------------------------------------------------------------------------

    def contract(self) -> Contract:
        inside = self._first({})
        for stage in self.steps:
            inside |= stage.contract().adds
        adds = {one.into: type_of(one, inside.get(one.column)) for one in self._gathered}
        return Contract(needs={self.payload, *self.per_record, *self.per_item}, adds=adds)

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        inside = self._inside(columns)
        return dict(columns) | {one.into: type_of(one, inside.get(one.column)) for one in self._gathered}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.payload)
        if kind is not None and not pa.types.is_null(kind) and not hasattr(kind, "value_type"):
            raise RecipeError(f"{self.payload!r} is {kind}, neither a list nor a payload: it has no items")
        try:
            inside = self._inside(columns)
        except RecipeError as error:
            first = self._first(columns)
            needs = {name for stage in self.steps for name in stage.contract().needs}
            hints = [f"; the record has it: per_record: [{name}] gives it to the items"
                     for name in needs & set(columns) - set(first) if repr(name) in str(error)]
            raise type(error)(f"{error}{''.join(hints)}") from None
        for one in self._gathered:
            if one.column not in inside:
                raise RecipeError(f"gather: no column {one.column!r} comes out of the steps; "
                                  f"there are {', '.join(sorted(inside))}")
            type_of(one, inside[one.column])

    def _first(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        """What an item has before the first step."""
        def one(name: str) -> pa.DataType | None:
            return getattr(columns.get(name), "value_type", None)

        own = {"id": pa.string(), "source": pa.string(), "parent": pa.string(), "item": pa.int32()}
        size = dict.fromkeys(("width", "height") if self.as_ == "pixels" else (), pa.int32())
        beside = {name: columns.get(name) for name in self.per_record}
        beside |= {name: one(name) for name in self.per_item}
        return own | {self.as_: one(self.payload)} | size | beside

    def _inside(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        """What an item has after the last step; checked on the way."""
        nodes = [Node(_Given(self._first(columns)))]
        for stage in self.steps:
            nodes.append(Node(stage, (End(nodes[-1]),)))
        names = dict(zip(nodes, (self.name, *(f"{self.name} > {name}" for name in self._names)), strict=True))
        return check_contracts(nodes, names, {})[nodes[-1]] or {}

    # -- what people see -------------------------------------------------------------------------------------

    def findings(self, step: str, counts: Counts) -> Iterable[Finding]:
        first = counts.inner.get(self._names[0])
        if first is None:
            return
        items, left = first.rows_in, counts.inner.get(self._names[-1], Counts()).out.get("out", 0)
        yield Line(f"{plural(items, 'item')} of {self.payload}, {count(left)} gathered")
        for name, stage in self.inner().items():
            inner = counts.inner.get(name, Counts())
            if dropped := sum(inner.dropped.values()):
                yield Line(f"{name}: {plural(dropped, 'item')} dropped ({_most(inner.dropped)})")
            if inner.failed:
                failed = f"{count(inner.failed)} of {plural(items, 'item')} failed in {name}"
                yield Alarm("warning", f"Stage {step}: {failed} ({_most(inner.errors)}): their records are "
                                       "gathered from the others, or fail where too few are left.")
            yield from stage.findings(f"{step} > {name}", inner)

    def example_columns(self) -> Mapping[str, Shown]:
        shown = {name: kind for stage in self.steps for name, kind in stage.example_columns().items()}
        return {one.into: kind for one in self._gathered if (kind := shown.get(one.column))
                and (one.fold in ("first", "last") or (kind == "number" and one.fold != "list"))}

    def amounts(self) -> Mapping[str, Summed]:
        summed = {name: kind for stage in self.steps for name, kind in stage.amounts().items()}
        return {one.into: summed[one.column] for one in self._gathered
                if one.fold == "sum" and one.column in summed}

    # -- the worker ------------------------------------------------------------------------------------------

    def setup_node(self, ctx: Context) -> None:
        for stage in self.steps:
            stage.setup_node(ctx)

    def setup(self, ctx: Context) -> None:
        from curator.worker.runner import Runner

        items = Items(payload=self.payload, as_=self.as_, per_item=self.per_item)
        named = [("items", items), *self.inner().items()]
        steps = tuple(Step(f"{self.name} > {name}", stage, "") for name, stage in named)
        operator = Operator(0, "map", steps, ("out",) * len(self.steps), {})  # all ends where it is gathered
        self._found = Found(operator, self._names, self._gathered)
        self._runner = Runner(operator, self._found.put, lambda batch: batch, Folder(""), ctx.progress,
                              answer=self._found)
        only = self._runner.steps[-1]
        if len(steps) == 2 and None not in only.adds.values():  # no step wants items from the cache, and none
            only.most_bytes = only.stage.batch_bytes  # makes a payload: fewer and larger calls
        self._known: tuple[dict, dict] = {}, {}
        self._runner.setup(ctx, once=lambda name, do: None)  # by `setup_node`

    def close(self) -> None:
        self._runner.close()

    def process(self, batch: Batch) -> Outputs:
        held = {self.payload, *self.per_item}
        require({*held, *self.per_record}, batch)
        inside = batch.select(held | set(self.per_record)).with_columns({
            UNIT: pa.array(np.zeros(len(batch), np.int32)),
            RECORD: pa.array(np.arange(len(batch), dtype=np.int32))})
        inside = inside.with_payloads(**{name: None for name in batch.payloads() if name not in held})
        found = self._found.of(len(batch))
        rows = Slice(Ref(inside, len(batch), 0), 0, 0, 0, len(batch))
        (done,) = self._runner.run(Call(0, 0, "process", (rows,), ((0, 0),)))
        if isinstance(done, Failed):
            raise StageError(self.name, done.error) if done.fatal else RuntimeError(done.error)
        bad = found.failures(self.max_failed_items)
        answered = batch.with_columns(found.columns(self._types(batch)))
        outputs = Outputs(out=answered.filter([row not in bad for row in range(len(batch))]),
                          inner=found.inner(done.counts))
        if bad:
            errors, traces = zip(*bad.values(), strict=True)
            outputs["failed"] = batch.take(list(bad)).with_error(errors).with_columns(
                {"traceback": pa.array(traces, pa.string())})
        return outputs

    def _types(self, batch: Batch) -> dict[str, pa.DataType | None]:
        """Of the columns of the answer, also where no item says one."""
        columns = {one.name: one.type for one in batch.visible().schema} | dict.fromkeys(batch.payloads())
        if columns != self._known[0]:
            self._known = columns, self.columns_after(columns)
        return self._known[1]


class _Given(Source):
    """Stands before the first inner step: what items have."""

    def __init__(self, given: dict[str, pa.DataType | None]) -> None:
        self.given = given

    def columns(self) -> dict[str, pa.DataType | None]:
        return self.given


def _most(reasons: Mapping[str, int]) -> str:
    if len(reasons) == 1:
        return next(iter(reasons))
    most = sorted(reasons, key=lambda reason: -reasons[reason])[:TOLD]
    words = [f"{reason} {count(reasons[reason])}" for reason in most]
    return ", ".join([*words, "…"] if len(reasons) > TOLD else words)


def _check_inner(stage: Stage) -> None:
    """Refuse what cannot answer item by item in one worker."""
    if not isinstance(stage, Stage):
        raise RecipeError(f"each > {stage!r} is not a stage; @curator.stage makes one of a plain function")
    kinds = {Each: "is another `each`: let it stand before this one, or explode the records before",
             Source: "is a source, and items come from the record",
             Sink: "is a sink: write what is gathered after `each`",
             Composite: "is made of several stages, which one worker cannot hold: put it after `each`",
             Reduce: "must see all records before it answers: put it after `each`",
             Stateful: "remembers what it saw, which only one worker may do: put it after `each`"}
    for kind, why in kinds.items():
        if isinstance(stage, kind):
            raise RecipeError(f"each > {stage.name} {why}")
    if stage.ports != ("out",):
        ports = ", ".join(stage.ports)
        raise RecipeError(f"each > {stage.name} has the ports {ports}, and inside `each` all goes one way: "
                          "use `drop`, or a column and several folds")
    if stage.resources.gang:
        raise RecipeError(f"each > {stage.name} is a gang, and `each` is one process: put it outside")


def together(needed: list[Resources]) -> Resources:
    """What one worker needs that holds all of these stages, and works at one after the other.

    Memory adds up, cores do not. Shares of a device stand for memory on it: they add up to a whole one.
    """
    gpus = [one.gpus for one in needed]
    return Resources(cpus=max(one.cpus for one in needed), gpus=max(*gpus, min(1.0, sum(gpus))),
                     gpu_memory_gb=sum(one.gpu_memory_gb for one in needed),
                     memory_gb=sum(one.memory_gb for one in needed))
