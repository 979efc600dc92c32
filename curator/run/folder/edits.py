"""What an edit does again, why, and what goes: found from the ledgers before anything is done.

`curator plan` and a run that would remove results say it in the same words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.api.format import listing, plural, shorten, size
from curator.api.stage import SIDE_OUTPUTS, Reduce, Stage, Unit
from curator.io.files.folder import FileInfo
from curator.io.files.listing import CLUSTERS, DATA, RUN
from curator.io.spool import shard_units, spool_units
from curator.pipeline.checkpoint import CHECKPOINTS
from curator.pipeline.plan import CHECKPOINT_PREFIX, Phase, Plan, Step
from curator.recipe.dump import plain
from curator.run.folder.ledger import Ledger
from curator.run.folder.ledger_files import FileRecord, counts_of
from curator.run.folder.needs import Need, begins_behind, taken_up

NAMED = 12  # steps are named at most, and of a step so many values that changed:
VALUES = 3
VALUE_CHARS = 60
LARGE_CHARS = 20_000  # parameters that take more are not kept to be compared


@dataclass
class Goes:
    """Files and rows to be removed, by folder. `strange`: files elsewhere of this folder's former self."""

    files: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    strange: list[str] = field(default_factory=list)

    def add(self, ledger: Ledger, file: FileRecord) -> None:
        full, root = ledger.out.full_path(file.path), ledger.out.path_of("")
        place = full.rpartition("/")[0]
        if full.startswith(root):
            first, _, rest = full.removeprefix(root).partition("/")
            kept = file.path.startswith(f"{CHECKPOINTS}/")
            place = {RUN: "checkpoint" if kept else "between phases",
                     DATA: DATA}.get(first, f"{first}/{rest.partition('/')[0]}")
        elif not ledger.owner.names(None, False).search(full):
            self.strange.append(full)
        self.files[place] += 1
        self.rows[place] += file.rows
        self.size_bytes += file.size_bytes

    def __str__(self) -> str:
        files, rows = sum(self.files.values()), sum(self.rows.values())
        places = ", ".join(f"{place} {self.rows[place]:,}" for place in sorted(self.files))
        return (f"{plural(files, 'file')} with {plural(rows, 'row')}" + (f" ({places})" if places else "")
                + (f", {size(self.size_bytes)}" if self.size_bytes else ""))


@dataclass
class Edit(Goes):
    """What is to do in a folder that has results, and what goes.

    `changed`: the first edited step on each way, with what changed. `dropped`: steps that the recipe has no
    more. `again`, `rest`: the steps that are done again, and those that are not. `begins`: the checkpoints
    where that begins. `units`, `records`, `read_bytes`: what is done again, as it is read. `done`, `total`,
    `new`, `new_bytes`: of the source's units. `other`: the recipe that made the results, if it is another
    one.
    """

    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    begins: list[str] = field(default_factory=list)
    units: int = 0
    records: int = 0
    read_bytes: int = 0
    done: int = 0
    total: int = 0
    new: int = 0
    new_bytes: int = 0
    other: str | None = None

    @property
    def what(self) -> str:
        """What was edited."""
        named = [*self.changed, *(f"without {name}" for name in self.dropped)]
        return listing(named, VALUES) or "the recipe writes less, or in another order"

    @property
    def how(self) -> str:
        """What is done again; empty if nothing is."""
        if not self.units:
            return ""
        begin = (f" from the checkpoint behind {listing(self.begins)} on" if self.begins
                 else ", as no checkpoint lies before the edit")
        return (f"done again{begin}: {listing(self.again, NAMED)} ({plural(self.units, 'unit')}, "
                f"{plural(self.records, 'record')}, {size(self.read_bytes)})")

    def describe(self, out: str) -> str:
        """For who is asked whether to go on: what it is, and what goes."""
        if self.other is not None:
            return f"{out} holds the results of another recipe, {self.other!r}: {self} would be removed"
        how = f"{self.how[0].upper()}{self.how[1:]}. " if self.how else ""
        return (f"{out} holds results of this recipe as it was before an edit: {self.what}. {how}"
                f"Removed first: {self}")

    def lines(self, out: str) -> Iterator[str]:
        """For `curator plan`."""
        if self.other is not None:
            yield f"{out} holds the results of another recipe, {self.other!r}: {self}"
            return
        yield (f"{out} has results of this recipe: {self.done:,} of {plural(self.total, 'unit')} done as it "
               "says now")
        if self.new:
            yield f"new or changed inputs: {plural(self.new, 'unit')}, {size(self.new_bytes)}, all steps"
        if self.units or self.files:
            yield f"edited: {self.what}"
        if self.units:
            yield self.how
            yield f"not again: {listing(self.rest, NAMED) or 'none'}"
        if self.files:
            yield f"removed first: {self}"


def find_what_goes(plan: Plan, ledgers: Sequence[Ledger], units: Collection[tuple[int, Unit]]) -> Edit:
    """What an edit takes away, in all phases, and no more: all that a run has to know which nobody asks."""
    found = Edit(total=len(units))
    same = _count_what_goes(found, plan, ledgers, units)
    before = _manifest(plan).get("name") if found.files else None
    if before is not None and (before != plan.pipeline.name or not same):
        found.other = before
    return found


def find_edit(plan: Plan, ledgers: Sequence[Ledger], units: Collection[tuple[int, Unit]]) -> Edit:
    """What an edit does again, too. New and changed inputs are no edit."""
    found = find_what_goes(plan, ledgers, units)
    if found.other is not None:
        return found
    stale, again = _count_what_is_done(found, plan, ledgers, units)
    whole = {s.name: s.part_of or s.name for s in plan.steps if not s.implicit}
    found.again = list(dict.fromkeys(name for s, name in whole.items() if s in again))
    found.rest = [name for name in dict.fromkeys(whole.values()) if name not in found.again]
    was = {stage["name"]: stage for stage in _manifest(plan).get("stages", ())}
    first = [s for s in plan.steps if s.name in stale and not s.implicit
             and stale.isdisjoint(n for n, _ in s.after)]
    found.changed = list(dict.fromkeys(whole[s.name] + _why(s, was) for s in first))
    if was:
        found.dropped = [name for name in was if name not in whole and not _implied(name, was)]
        found.changed = [text for text in found.changed if not (found.dropped and text in whole)]
    return found


def _count_what_goes(found: Edit, plan: Plan, ledgers: Sequence[Ledger],
                     units: Collection[tuple[int, Unit]]) -> bool:
    """Gives whether what lies there was made by this recipe, as it was before."""
    read: set[str] = set()
    keys_of = [{step.name: step.key for step in phase.steps} for phase in plan.phases]
    keyed = list(zip(ledgers, keys_of + [{}] * (len(ledgers) - len(keys_of)), strict=True))
    same = any(stage.key == keys.get(stage.name) for ledger, keys in keyed
               for stages in {brief.stages for brief in ledger.records.values()} for stage in stages)
    outdated = ((ledger, keys, record) for ledger, keys in keyed for record in ledger.outdated(keys))
    for ledger, keys, record in outdated:
        read = read or {part.uri for _, unit in units for part in unit.parts}
        edited = {name: stage for name, stage in record.stages.items() if stage.key != keys.get(name)}
        same = same or not read.isdisjoint(record.uris)
        if all(name.startswith(CHECKPOINT_PREFIX) for name in edited):  # they go, and no result does
            continue
        for file in (file for stage in edited.values() for file in stage.files):
            found.add(ledger, file)
    return same


def _count_what_is_done(found: Edit, plan: Plan, ledgers: Sequence[Ledger],
                        units: Collection[tuple[int, Unit]]) -> tuple[set[str], set[str]]:
    """Gives the steps whose key is another one, and all that are done again."""
    stale: set[str] = set()
    again: set[str] = set()
    moved = False  # what is spooled for later phases is made anew, and so are their units
    for phase, ledger in zip(plan.phases, ledgers, strict=False):
        names = [step.name for step in phase.steps if not step.spool]
        if moved:
            stale |= _stale(phase, ledger) if ledger.records else set()
            again.update(names)
            continue
        here = list(units) if not phase.number else later_units(plan, phase, ledgers)
        needs = ledger.needs(phase, here)
        todo = [(at, unit, need) for (at, unit), need in zip(here, needs, strict=True) if need is not True]
        fresh = [unit for _, unit, _ in todo if unit.key not in ledger.records]
        edited = {unit.key: (at, unit, need) for at, unit, need in todo if unit.key in ledger.records}
        if not phase.number:
            found.done, found.new = len(here) - len(todo), len(fresh)
            found.new_bytes = sum(unit.size_bytes for unit in fresh)
        if edited:
            stale |= _stale(phase, ledger)
        for need in {need for _, _, need in edited.values()}:
            again |= _steps(phase, need, names)
        _count_what_is_read(found, phase, ledger, {} if found.units else edited)
        moved = bool(fresh) or any(step.spool and not step.checkpoint and step.name in
                                   _steps(phase, need, [s.name for s in phase.steps])
                                   for step in phase.operators[-1].steps for _, _, need in edited.values())
        moved = moved or len(here) - len(fresh) < len(ledger.records)
    return stale, again


def _stale(phase: Phase, ledger: Ledger) -> set[str]:
    """The steps that some units have not done with their present key."""
    done = [{s.name: s.key for s in stages} for stages in {brief.stages for brief in ledger.records.values()}]
    return {step.name for step in phase.steps if not step.spool and not step.implicit
            and any(keys.get(step.name) != step.key for keys in done)}


def _steps(phase: Phase, need: Need, names: Sequence[str]) -> set[str]:
    """Which of these steps are among what a unit needs."""
    if need is None:
        return set(names)
    if need is True:
        return set()
    steps = (phase.operators[target.operator].steps[target.step].name for target in need)
    return set(steps) & set(names)


def _count_what_is_read(found: Edit, phase: Phase, ledger: Ledger,
                        edited: Mapping[str, tuple[int, Unit, Need]]) -> None:
    begins: dict[str, None] = {}
    for record in ledger.of_units(edited):
        at, unit, need = edited[record.unit]
        found.units += 1
        if begins_behind(phase, need):
            names = taken_up(phase, need)
            files = [file for name in names for file in record.stages[name].files]
            begins |= dict.fromkeys(sorted(names))
            found.records += sum(file.rows for file in files)
            found.read_bytes += sum(file.size_bytes for file in files)
        else:
            source = record.stages.get(phase.operators[at].steps[0].name)
            found.records += counts_of(source).rows_in if source else 0
            found.read_bytes += unit.size_bytes
    found.begins += [step.after[0][0] for step in phase.operators[-1].steps if step.name in begins]


def later_units(plan: Plan, phase: Phase, ledgers: Sequence[Ledger]) -> list[tuple[int, Unit]]:
    """What a phase behind a barrier reads: what was spooled for it."""
    units: list[tuple[int, Unit]] = []
    for operator in (o for o in phase.operators if o.internal and not o.replays):
        files = [file for name in operator.spools for file in spooled(plan, ledgers, name)[1]]
        stage = operator.steps[0].stage
        made = (shard_units(files, stage.shards if stage.key is not None else 1) if isinstance(stage, Reduce)
                else spool_units(files))
        units += [(operator.index, unit) for unit in made]
    return units


def spooled(plan: Plan, ledgers: Sequence[Ledger], name: str) -> tuple[int, list[FileInfo]]:
    """The phase that fills a spool, and the files that it has written."""
    number, step = next((p.number, s) for p in plan.phases for s in p.operators[-1].steps if s.name == name)
    return number, ledgers[number].spooled(step)


# -- why -----------------------------------------------------------------------------------------------------


def _manifest(plan: Plan) -> dict[str, Any]:
    """What the run before said of itself."""
    folder = plan.out.sub(RUN)
    return json.loads(folder.read("manifest.json")) if folder.exists("manifest.json") else {}


def _implied(name: str, was: Mapping[str, Any]) -> bool:
    """A sink of a side output or a part of a composite, which nobody wrote."""
    return name.partition("/")[0] in (*SIDE_OUTPUTS, CLUSTERS) or any(
        name.startswith(f"{other}.") for other in was)


def _why(step: Step, was: Mapping[str, Mapping[str, Any]]) -> str:
    """What changed in a step, in brackets; empty where that is not known."""
    before = was.get(step.part_of or step.name)
    if not was or (before is not None and before["key"] == step.key):  # the edit was begun before
        return ""
    stage = step.stage
    if before is None:
        return " (new)"
    if before["class"] != f"{type(stage).__module__}.{type(stage).__qualname__}" and not step.part_of:
        return f" (was {before['class'].rpartition('.')[2]})"
    if before["version"] != stage.version:
        return f" (version {stage.version} of its code, was {before['version']})"
    if before["fingerprint"] == step.fingerprint:  # what is before it is another
        return ""
    changes = list(_differences(before.get("parameters"), parameters_of(stage)))
    return f" ({listing(changes, VALUES)})" if changes else " (its code)"


def parameters_of(stage: Stage) -> dict[str, Any] | None:
    """The parameters that decide, for the manifest: plain, without secrets; None where they are large."""
    values = plain({name: value for name, value in stage.parameters().items() if not callable(value)})
    return values if len(json.dumps(values)) < LARGE_CHARS else None


def _differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    before, now = _by_name(before), _by_name(now)
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            if before.get(key) != now.get(key):
                yield from _differences(before.get(key), now.get(key), key)
    elif before != now and name:
        words = [shorten(v if isinstance(v, str) else json.dumps(v), VALUE_CHARS) for v in (before, now)]
        if before is None or now is None:
            yield f"{name}: {words[1]}, new" if before is None else f"{name}: gone, was {words[0]}"
        else:
            yield f"{name}: {words[1]}, was {words[0]}"


def _by_name(values: Any) -> Any:
    """Pairs of a name and a value as a mapping."""
    pairs = isinstance(values, (list, tuple)) and values and all(
        isinstance(v, (list, tuple)) and len(v) == 2 and isinstance(v[0], str) for v in values)
    return dict(values) if pairs else values
