"""Before a run touches anything: whose folder it is, and what of the results there it would take away."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.api.errors import CuratorError
from curator.api.stage import Sink, Source, Unit
from curator.io.files.folder import Folder
from curator.io.files.listing import RUN
from curator.pipeline.layout import OURS, folder_of
from curator.pipeline.plan import Plan
from curator.run.folder.ledger import Ledger
from curator.run.folder.owner import OWNER, Owner

STARTED = ("lock", "lease/")  # all that a start leaves in `_run/` before the folder is its own


@dataclass
class Changes:
    """What an edit makes untrue of finished results. `gone`: files and rows that will be removed, by folder."""

    changed: list[str] = field(default_factory=list)  # the first edited step on each way
    units: set[tuple[int, str]] = field(default_factory=set)
    records: int = 0  # read for these units
    files: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)  # files elsewhere that this folder's former self made
    other: str | None = None  # the recipe that made them, if it is another one

    def goes(self) -> str:
        """The files and rows, and where they are."""
        count, rows = sum(self.files.values()), sum(self.rows.values())
        places = ", ".join(f"{place} {self.rows[place]:,}" for place in sorted(self.files))
        return f"{count:,} {'file' if count == 1 else 'files'} with {rows:,} rows" + (f" ({places})" if places else "")

    def describe(self, out: str) -> str:
        """One sentence or two: what it is, and what goes."""
        goes = self.goes()
        if self.other is not None:
            return f"{out} holds the results of another recipe, {self.other!r}: {goes} would be removed"
        what = f"changed: {', '.join(self.changed)}" if self.changed else "the recipe writes less, or in another order"
        units = f"{len(self.units):,} {'unit' if len(self.units) == 1 else 'units'}"
        return (f"{out} holds results of this recipe as it was before an edit ({what}). {units} ({self.records:,} records) "
                f"would be done again from there, and {goes} removed first")


def check_free(out: Folder) -> None:
    """The folder is a run's, or nothing is in the way of one.

    Raises:
        CuratorError: something else lies where this run would write.
    """
    there = [name for name in OURS if name != RUN and out.exists(name)]
    if any(not name.startswith(STARTED) for name in out.sub(RUN).names(recursive=True)):
        there.append(RUN)
    if there and not out.sub(RUN).exists(OWNER):  # in this order: a run that starts beside this one makes its owner first
        raise CuratorError(f"{out.uri} has {', '.join(there)}, and no run of this version made it: a run would write there too. "
                           "Write to another folder, or move away what is there")


def check_sinks(plan: Plan, owner: Owner, ledgers: Iterable[Ledger]) -> None:
    """Sinks with a path of their own find nothing there that others made.

    Raises:
        CuratorError: what lies there.
    """
    sinks = [s for s in plan.steps if isinstance(s.stage, Sink) and not s.implicit and not s.part_of]
    apart = [s for s in sinks if not f"{folder_of(s.stage)}/".startswith(plan.out.path_of("data/"))]
    named: frozenset[str] = frozenset()  # read when it is needed
    for step in apart:
        path = folder_of(step.stage)
        inside = path.startswith(plan.out.path_of(""))
        ours = owner.names(None, inside)
        folder = Folder.open(path, dict(getattr(step.stage, "storage_options", None) or {}) or None)
        for name in folder.names(recursive=True):
            hidden = any(part[0] in "._" for part in name.split("/"))
            if not hidden and not ours.search(f"/{name}") and folder.path_of(name) not in (named := named or _named(ledgers)):
                raise CuratorError(f"sink {step.name!r} writes to {path}, and there lies {name}, which no run in {plan.out.uri} "
                                   "made. Give the sink another path, or move away what is there")


def _named(ledgers: Iterable[Ledger]) -> frozenset[str]:
    return frozenset(ledger.full_path(path) for ledger in ledgers for path in ledger.named())


def find_changes(plan: Plan, ledgers: Sequence[Ledger], units: Collection[tuple[int, Unit]]) -> Changes:
    """What an edit takes away, in all phases; `ledgers`: also of phases that the plan does not have any more.

    New and changed inputs are no edit. Nothing is changed here.
    """
    found, stale, same = Changes(), set(), False
    sources = {s.name for s in plan.steps if isinstance(s.stage, Source)}
    read: set[str] = set()
    for number, ledger in enumerate(ledgers):
        phase = plan.phases[number] if number < len(plan.phases) else None
        keys = {s.name: s.key for s in phase.steps} if phase is not None else {}
        for record in ledger.outdated(phase):
            read = read or {part.uri for _, unit in units for part in unit.parts}
            edited = {name: stage for name, stage in record.stages.items() if stage.memory_key != keys.get(name)}
            same = same or len(edited) < len(record.stages) or not read.isdisjoint(record.uris)
            stale |= edited.keys()
            for file in (file for stage in edited.values() for file in stage.files):
                _count(found, ledger, plan.out, file.path, file.rows)
            found.units.add((number, record.unit))
            found.records += sum(s.counts.rows_in for n, s in record.stages.items() if n in sources)
    found.changed = [s.name for s in plan.steps if s.name in stale and not s.implicit and not stale & {n for n, _ in s.after}]
    before = _name_before(plan.out)
    if before is not None and (before != plan.pipeline.name or not same):
        found.other = before
    return found


def describe_lost(plan: Plan, ledger: Ledger, units: Collection[tuple[int, Unit]]) -> str:
    """What there is of inputs that nobody reads any more, in a sentence; empty if there is nothing. Of the first phase."""
    gone = ledger.records.keys() - {unit.key for _, unit in units}
    if not gone:
        return ""
    present, found, inputs = {part.uri for _, unit in units for part in unit.parts}, Changes(), set()
    beside = False
    for record in ledger.outdated(None):
        lost = set(record.uris) - present if record.unit in gone else ()
        inputs.update(lost)
        beside = beside or 0 < len(lost) < len(record.uris)
        for file in (file for stage in record.stages.values() for file in stage.files if lost):
            _count(found, ledger, plan.out, file.path, file.rows)
    if not inputs:  # they have changed, and are read again
        return ""
    named = f"{', '.join(sorted(inputs)[:3])}{', …' if len(inputs) > 3 else ''}"
    count = "an input" if len(inputs) == 1 else f"{len(inputs):,} inputs"
    replay = " (other inputs of their units among them, which are read again)" if beside else ""
    return f"{plan.out.uri} holds results of {count} that this recipe no longer reads ({named}): {found.goes()}{replay}"


def _count(found: Changes, ledger: Ledger, out: Folder, path: str, rows: int) -> None:
    full = ledger.full_path(path)
    root = out.path_of("")
    if not full.startswith(root) and not ledger.owner.names(None, False).search(full):
        found.strange.append(full)
    first, _, rest = full.removeprefix(root).partition("/") if full.startswith(root) else (full.rpartition("/")[0], "", "")
    place = "between phases" if first == RUN else first if first == "data" or not full.startswith(root) else \
        f"{first}/{rest.partition('/')[0]}"
    found.files[place] += 1
    found.rows[place] += rows


def _name_before(out: Folder) -> str | None:
    """What the recipe was called whose results lie here."""
    folder = out.sub(RUN)
    if not folder.exists("manifest.json"):
        return None
    told: dict[str, Any] = json.loads(folder.read("manifest.json"))
    return told.get("name")
