"""A new data set from a run's output with other rules: a run of its own, whose source is the rows that
reached the edited step, and whose steps are the recipe's from there on.

So the accounts, the report, dedup and limits are those of a run, and it can be killed and continued. What
stands before the edited step is not done again: its columns lie in the rows. Nothing of the first run is
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from curator.api.errors import ContractError, CuratorError
from curator.api.format import listing
from curator.api.stage import SIDE_OUTPUTS, Source
from curator.io.files.folder import Folder
from curator.io.media.to_webdataset import ToWebDataset
from curator.io.media.webdataset import WebDataset
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet
from curator.pipeline.graph import End, Graph, Node
from curator.pipeline.layout import without_path
from curator.pipeline.plan import make_plan
from curator.results.edits import RuleEdit, edited
from curator.results.flow import Flow
from curator.results.output import RunOutput
from curator.results.places import Place
from curator.results.questions import Question, spoken
from curator.results.what_if import Answer

ASIDE = {"dropped": ("reason",), "duplicate": ("duplicate_of", "similarity", "cluster"),
         "failed": ("error", "traceback", "reason"), "data": ()}  # what rows have only where they ended
SOURCES: dict[str, type] = {"parquet": Parquet, "jsonl": Jsonl, "webdataset": WebDataset}
INSTEAD = ("`curator run`, the command of that run, with the same --set values does it: in that run's folder "
           "again from the last `checkpoint` before the step, in another folder from the input")


@dataclass(frozen=True)
class Recut:
    """A pipeline that is ready to run. `step`: where its records begin; `records`: how many. `again`: the
    stages behind it that answer anew, dedup among them; `spared`: those whose columns lie in the rows."""

    pipeline: Graph
    step: str
    records: int
    again: tuple[str, ...]
    spared: tuple[str, ...]

    def __str__(self) -> str:
        spared = f"; not again: {', '.join(self.spared)}" if self.spared else ""
        again = f"; again: {', '.join(self.again)}" if self.again else ""
        return f"{self.records:,} records, from {self.step} on{again}{spared}"


def recut(out: RunOutput, overrides: Mapping[str, str], to: str) -> Recut:
    """The pipeline that makes the data set in the folder `to`.

    Raises:
        RecipeError: the values change something else than conditions of `drop` steps, or nothing.
        CuratorError: the output does not have the rows as they were at the edited step; says what to do
        instead.
    """
    if out.stats["status"] != "finished":
        raise CuratorError(f"the run in {out.folder.uri} is {out.stats['status']}, so not all its records "
                           "are there: the command of the run, given again, ends it")
    if f"{Folder.open(to).uri}/".startswith(f"{out.folder.uri.rstrip('/')}/"):
        raise CuratorError(f"{to} lies in the folder of the run, {out.folder.uri}: give another folder")
    graph, edits = edited(out, overrides)
    flow = Flow.of(graph)
    step = _first(edits, flow)
    rows = _Rows(out, flow, step)
    spared = rows.spared(edits)
    pipeline = _from_there(graph, step, spared, rows.sources(), to)
    try:
        make_plan(pipeline)
    except ContractError as error:
        raise CuratorError(f"{error}. The records were not written with it. {INSTEAD}") from error
    again = [name for name in flow.order if step in flow.above[name] and not flow.is_sink(name)
             and name not in spared]
    return Recut(pipeline, step, out.stage(step)["in"], tuple(again), tuple(spared))


def _first(edits: tuple[RuleEdit, ...], flow: Flow) -> str:
    """The edited step that the others are behind."""
    steps = [edit.stage for edit in edits]
    first = next((step for step in steps if all(step in flow.through[other] for other in steps)), None)
    if first is None:
        raise CuratorError(f"{' and '.join(steps)} stand in branches of their own, and a recut begins at one "
                           f"step: edit one of them at a time. {INSTEAD}")
    return first


class _Rows:
    """The rows that reached a step, as they lie in the output.

    `columns`: those that they had there, before stages behind the step added theirs.
    """

    def __init__(self, out: RunOutput, flow: Flow, step: str) -> None:
        self.out, self.flow, self.step = out, flow, step
        self.places = self._places()
        self.columns = self._columns()
        for place in self.places:
            self._check(place)

    def _places(self) -> list[Place]:
        """Where the rows ended; all of them must be there."""
        if takers := self.flow.takers.get((self.step, "dropped")):
            raise CuratorError(f"what {self.step} drops goes on to {', '.join(takers)}. {INSTEAD}")
        found: dict[tuple, Place] = {}
        for place in self.out.places:
            behind = place.stage == self.step or self.step in self.flow.above.get(place.stage, ())
            if place.kind != "clusters" and behind:
                # of sinks that write the same records one is read
                twins = self.flow.twins(place.stage) if place.kind == "data" else ()
                way = place.kind, min((place.stage, *twins))
                if way not in found or (place.is_read and not found[way].is_read):
                    found[way] = place
        for place in found.values():
            if self.step not in self.flow.through[place.stage]:
                raise CuratorError(f"{place.stage} is also reached by records that did not come through "
                                   f"{self.step}, and they are not told apart. {INSTEAD}")
            if place.format not in SOURCES:
                raise CuratorError(f"the records {spoken(place)} were written as {place.format}, which "
                                   f"does not give back what they were. {INSTEAD}")
        for name in (n for n in self.flow.order if self.step in self.flow.above[n]):
            if self.out.stage(name)["made"] or self.out.stage(name)["absorbed"]:
                raise CuratorError(f"{name}, behind {self.step}, makes records of others, so that those that "
                                   f"came to {self.step} are not in the output. {INSTEAD}")
        there, came = sum(place.rows for place in found.values()), self.out.stage(self.step)["in"]
        if there != came:
            raise CuratorError(f"{came:,} records came to {self.step}, and of these {there:,} are in the "
                               f"output: `discard` or a branch has let others go. {INSTEAD}")
        return list(found.values())

    def _columns(self) -> list[str]:
        """The columns that rows had when they came to the step."""
        own = next((p for p in self.places if p.stage == self.step and p.kind == "dropped"), None)
        if own is not None:
            return self._bare(own)
        place = max(self.places, key=lambda p: p.rows, default=None)
        if place is None:
            return []
        before = {column for p in self.out.places if p.stage in self.flow.above[self.step]
                  for column in self.out.columns(p)}
        added: set[str] = set()
        for name in self._behind(place):
            contract = self.flow.stages[name].contract()
            added |= set(contract.adds) - set(contract.needs) - before
        for name in self.flow.above[self.step]:
            added -= set(self.flow.stages[name].contract().adds)
        return [column for column in self._bare(place) if column not in added]

    def _bare(self, place: Place) -> list[str]:
        return [column for column in self.out.columns(place) if column not in ASIDE[place.kind]]

    def _behind(self, place: Place) -> list[str]:
        """The stages from the step to where the rows ended, that may have changed them."""
        if place.stage == self.step:
            return []
        names = [*self.flow.between(self.step, place.stage), place.stage]
        return [name for name in names if not self.flow.is_sink(name)]

    def _check(self, place: Place) -> None:
        """Refuse rows that have not all the columns as they were."""
        for column, name in self.flow.changes(self._behind(place), self.columns).items():
            raise CuratorError(f"{name}, behind {self.step}, changes the column {column!r}, so what it was "
                               f"is gone in the records {spoken(place)}. {INSTEAD}")
        there = {*self.out.columns(place), *self._archived(place)}
        if missing := [column for column in self.columns if column not in there]:
            raise CuratorError(f"the records {spoken(place)} have not {listing(missing)}, which came to "
                               f"{self.step} (`select`, or a stage behind it). {INSTEAD}")

    def _archived(self, place: Place) -> tuple[str, ...]:
        """What reading archives gives back and the tables beside them do not have."""
        sink = self.flow.stages.get(place.stage)
        return ("bytes",) if isinstance(sink, ToWebDataset) and sink.media == "bytes" else ()

    def spared(self, edits: tuple[RuleEdit, ...]) -> list[str]:
        """The stages behind the step that only add columns, which all rows have that will come there; from
        now on `columns` has theirs too."""
        measures = [name for name in self.flow.order
                    if self.step in self.flow.above[name] and self._adds_only(name)]
        if not measures:
            return []
        question = Question(self.out, self.flow, edits)
        with self.out.connect() as db:
            moves = Answer(question, db).moves
        found = []
        for name in measures:
            new = [move for move in moves if name in self.flow.through[move.after.stage]
                   and name not in self.flow.through[move.before.stage]]
            adds = list(self.flow.stages[name].contract().adds)
            have = all(self.out.columns(place).keys() >= set(adds) for place in self.places
                       if name in self.flow.above[place.stage])
            if have and not new and not question.notes:
                found.append(name)
                self.columns += adds
        return found

    def _adds_only(self, name: str) -> bool:
        """Whether all that a stage did was to add columns, to each record by itself."""
        stage, numbers = self.flow.stages[name], self.out.stage(name)
        contract = stage.contract()
        return (bool(contract.adds) and not contract.removes and not set(contract.adds) & set(self.columns)
                and tuple(stage.ports) == ("out",) and [port for _, port in numbers["after"]] == ["out"]
                and not self.flow.remembers(name)
                and not self.flow.is_sink(name) and numbers["in"] == sum(numbers["out"].values()))

    def sources(self) -> list[Source]:
        """What reads them: one for each format."""
        found = []
        for form in dict.fromkeys(place.format for place in self.places):
            files = [self.out.path_of(file) for place in self.places if place.format == form
                     for file in (place.tables if form != "webdataset" else place.files)
                     if form != "webdataset" or file.endswith(".tar")]
            more = {"metadata": True} if form == "webdataset" else {}
            found.append(SOURCES[form](path=files, select=self.columns or None, **more,
                                       storage_options=self.out.folder.storage_options))
        if not found:
            raise CuratorError(f"no record came to {self.step}")
        return found


def _from_there(graph: Graph, step: str, spared: list[str], sources: list[Source], to: str) -> Graph:
    """The pipeline from a step on, with these sources before it, in another folder."""
    names = graph.names()
    copies: dict[Node, Node] = {}
    for node in graph.nodes():
        if names[node] == step:
            copies[node] = replace(node, inputs=tuple(End(Node(source)) for source in sources))
        elif names[node] in spared:
            copies[node] = copies[node.inputs[0].node]
        elif any(end.node in copies for end in node.inputs):
            stage = node.stage
            # one with a path lies in the run's folder, or elsewhere
            if node in graph.sinks and node.sink.path is not None:
                stage = without_path(node.sink)
            stage = stage.with_(name=names[node])
            inputs = tuple(End(copies[end.node], end.port) for end in node.inputs)
            copies[node] = Node(stage, inputs, node.place)
    kept = {names[node] for node in copies}
    discard = tuple(one for one in graph.settings.discard
                    if one in SIDE_OUTPUTS or one.partition("/")[2] in kept)
    return replace(graph, sinks=tuple(copies[sink] for sink in graph.sinks if sink in copies),
                   settings=replace(graph.settings, out=to, discard=discard))
