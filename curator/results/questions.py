"""The question what other rules would have done, as SQL over the output of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curator import sql
from curator.api.errors import CuratorError, RecipeError
from curator.api.names import suggestion
from curator.results.edits import RuleEdit
from curator.results.flow import Flow
from curator.results.output import RunOutput
from curator.results.places import Place
from curator.results.tables import sql_text
from curator.stages.drop import Drop


@dataclass(frozen=True)
class End:
    """Where a record ends: `kind` is written, dropped, duplicate or failed, or "reaches": the stage must see
    it, and what it does is not known. `reason`: of a drop."""

    kind: str
    stage: str
    reason: str = ""

    def __str__(self) -> str:
        return {"written": "written", "reaches": f"reaches {self.stage}"}.get(
            self.kind, f"{self.kind} by {self.stage}" + (f": {self.reason}" if self.reason else ""))


class Question:
    """The query: for every record that reached an edited step, where it would end."""

    def __init__(self, out: RunOutput, flow: Flow, edits: tuple[RuleEdit, ...]) -> None:
        self.out, self.flow, self.edits = out, flow, edits
        self.after = {edit.stage: edit.after for edit in edits}
        self.needs = {edit.stage: sql.needs(edit.after) for edit in edits}
        known = {column for place in out.places for column in out.columns(place)}
        for edit in edits:
            if missing := sorted(self.needs[edit.stage] - known) if known else ():
                hint = suggestion(missing[0], known, "another stage would have to make it", quoted=True)
                raise RecipeError(f"{edit.stage}: the column {missing[0]!r} is nowhere in the output; {hint}")
            if takers := flow.takers.get((edit.stage, "dropped")):
                raise CuratorError(f"what {edit.stage} drops goes on to {', '.join(takers)}, so it has no "
                                   "other end. `curator run` with the same values does it")
        self.ends: list[End] = []
        self.notes: list[str] = []
        self.groups: list[tuple[Place, str]] = []  # places of records that may move, and their CASE
        for place in out.places:
            if place.kind != "clusters" and not place.evidence:
                self._add(place)
        self._check_kept()

    def _add(self, place: Place) -> None:
        """A place, if its records passed an edited step or ended there."""
        if place.stage not in self.flow.stages:  # what failed in a part of a composite failed
            return
        own = place.stage in self.after and place.kind == "dropped"
        passed = [edit.stage for edit in self.edits if edit.stage in self.flow.above[place.stage]]
        if not (own or passed or place.stage in self.after) or self._is_twin(place):
            return
        if why := self._unknown(place, passed + [place.stage] * own):
            self.notes.append(f"{place.rows:,} records {spoken(place)}: {why}, so it is not told whether "
                              "they would end elsewhere")
            return
        cases = [self._cases(stage, "") for stage in passed]
        if own:
            cases.append(self._cases(place.stage, place.stage))
            cases += self._onward(place)
        self.groups.append((place, f"CASE {' '.join(c for c in cases if c)} ELSE NULL END"))

    def _is_twin(self, place: Place) -> bool:
        """Whether another sink wrote the same records, and is asked instead."""
        if place.kind != "data":
            return False
        same = {place.stage, *self.flow.twins(place.stage)}
        twins = [other for other in self.out.places if other.kind == "data" and other.stage in same]
        return place != next((p for p in twins if p.is_read), twins[0])

    def _unknown(self, place: Place, steps: Iterable[str]) -> str:
        """Why the records of a place cannot be told about; "" if they can."""
        if place.kind == "failed" and place.stage in self.after:
            return "its conditions could not be evaluated"
        if not place.is_read:
            return f"they were written as files that are no tables ({place.format})"
        columns = self.out.columns(place)
        for step in steps:
            if step not in self.flow.through[place.stage]:
                return f"not all of them came through {step}"
            behind = [*self.flow.between(step, place.stage), place.stage] if step != place.stage else []
            made = next((name for name in behind if self.out.stage(name)["made"]), None)
            if made is not None:
                return f"{made} makes records of others, behind {step}"
            touched = self.flow.changes((n for n in behind if not self.flow.is_sink(n)), self.needs[step])
            for column, by in touched.items():
                return f"{by} changes the column {column!r}, behind {step}"
            if missing := sorted(self.needs[step] - columns.keys()):
                return f"the column {missing[0]!r} was not written"
        return ""

    def _cases(self, step: str, own: str) -> str:
        """What the new conditions of a step say. `own`: it is the step that dropped the records, so they stay
        where the reason does."""
        cases = []
        for reason, condition in self.after[step].items():
            code = self._code(End("dropped", step, reason))
            answer = f"CASE WHEN reason = {sql_text(reason)} THEN NULL ELSE {code} END" if own else f"{code}"
            cases.append(f"WHEN ({condition}\n) THEN {answer}")
        return " ".join(cases)

    def _onward(self, place: Place) -> list[str]:
        """What becomes of records that a step drops no more: the rules behind it, to the first stage that
        must see them."""
        at, cases, columns = place.stage, list[str](), self.out.columns(place).keys()
        while True:
            takers = self.flow.takers.get((at, "out"), ())
            if all(self.flow.is_sink(name) for name in takers) and takers:
                return [*cases, f"WHEN true THEN {self._code(End('written', takers[0]))}"]
            at = takers[0] if takers else at
            stage = self.flow.stages[at]
            if len(takers) != 1 or not isinstance(stage, Drop) or set(stage.contract().needs) - columns:
                return [*cases, f"WHEN true THEN {self._code(End('reaches', at))}"]
            for reason, condition in stage.reasons().items():
                cases.append(f"WHEN ({condition}\n) THEN {self._code(End('dropped', at, reason))}")

    def _code(self, end: End) -> int:
        if end not in self.ends:
            self.ends.append(end)
        return self.ends.index(end)

    def _check_kept(self) -> None:
        """Note where rows were counted and not kept."""
        kept: dict[tuple[str, str], int] = {}
        for place in self.out.places:
            kept[place.kind, place.stage] = kept.get((place.kind, place.stage), 0) + place.rows
        for stage in self.out.stats["stages"]:
            name = stage["name"]
            if not any(edit.stage == name or edit.stage in self.flow.above[name] for edit in self.edits):
                continue
            lost = {"dropped": sum(stage["dropped"].values()), "duplicate": stage["duplicate"]}
            for kind, rows in lost.items():
                if rows > kept.get((kind, name), 0) and not self.flow.takers.get((name, kind)):
                    self.notes.append(f"{rows:,} records {kind} by {name} were not kept (discard), so it is "
                                      "not told whether they would end elsewhere")

    def old_end(self, place: Place, reason: str | None) -> End:
        return End("written" if place.kind == "data" else place.kind, place.stage,
                   reason or "" if place.kind == "dropped" else "")


def spoken(place: Place) -> str:
    """`written by to_parquet`."""
    return f"{'written' if place.kind == 'data' else place.kind} by {place.stage}"
