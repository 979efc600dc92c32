"""Before a run touches anything: what it reads, whose folder it is, which results it would take away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace as replaced
from typing import Any

from curator.api.errors import CuratorError, InputError
from curator.api.format import listing, plural
from curator.api.own_code import spec_of
from curator.api.stage import Sink, Source, Stage, Unit
from curator.io.files.listing import DATA, RUN
from curator.pipeline.layout import OURS, sink_folder, written_to
from curator.pipeline.plan import Phase, Plan
from curator.run.folder.edits import Goes, find_edit, find_what_goes, later_units
from curator.run.folder.ledger import Ledger
from curator.run.folder.ledger_files import FileRecord
from curator.run.folder.owner import OWNER

VERSIONS = "versions.json"
# all that lies in `_run/` before a run makes the folder its own
STARTED = ("lock", "lease/", "shards/", VERSIONS)


def paths_of(stage: Stage) -> list[str]:
    """What a source reads, or where a sink writes, as its author wrote it."""
    path = getattr(stage, "path", None)
    return [str(p) for p in (path if isinstance(path, (list, tuple)) else [path]) if p is not None]


def list_units(plan: Plan) -> list[tuple[int, Unit]]:
    """What there is to read: the operator that reads it, and the unit.

    Raises:
        InputError: two sources read one unit, or the run would read what it writes.
    """
    units: list[tuple[int, Unit]] = []
    seen: set[str] = set()
    for operator in plan.phases[0].operators:
        source = operator.steps[0].stage
        for unit in source.units() if isinstance(source, Source) and not operator.internal else ():
            if unit.key in seen:
                raise InputError(f"{unit.label} is read by two sources; read it once and branch")
            seen.add(unit.key)
            units.append((operator.index, unit))
    outputs = written_to(plan.out, (step.stage for step in plan.steps))
    inside = next((part.uri for _, unit in units for part in unit.parts
                   if f"{part.uri}/".startswith(outputs)), None)
    if inside is not None:
        folder = max((f for f in outputs if f"{inside}/".startswith(f)), key=len)
        raise InputError(f"{inside} is read, and {folder} is where this run writes: a run does not read its "
                         "own output; write elsewhere, or name what is to be read more closely")
    return units


def remarks(plan: Plan) -> list[str]:
    """What people should know of what is read, after it was listed."""
    found = [said for step in plan.steps if isinstance(step.stage, Source) for said in step.stage.remarks()]
    return [*plan.notes, *found]


def check_free(plan: Plan) -> None:
    """The folder is a run's, or nothing is in the way of one, nor of what its sinks publish.

    Raises:
        CuratorError: something else lies where this run would write.
    """
    out = plan.out
    there = [name for name in OURS if name != RUN and out.exists(name)]
    if any(not name.startswith(STARTED) for name in out.sub(RUN).names(recursive=True)):
        there.append(RUN)
    # in this order: a run that starts beside this one makes its owner first
    if there and not out.sub(RUN).exists(OWNER):
        raise CuratorError(f"{out.uri} has {', '.join(there)}, and no run of this version made it: a run "
                           "would write there too. Write to another folder, or move away what is there")
    for step in plan.steps:
        if isinstance(step.stage, Sink):
            step.stage.may_publish()


def check(plan: Plan, ledgers: Sequence[Ledger], units: Collection[tuple[int, Unit]],
          prune: bool | Callable[[str], Any] = False) -> Plan:
    """Nothing but an edit is in the way of a run in a folder that is its own; see `curator.run.run.run` for
    `prune`. Gives the plan, with a note of what was written and is gone.

    Raises:
        CuratorError: files of others in a sink's folder, or results of vanished inputs.
    """
    _check_sinks(plan, ledgers)
    if lost := describe_lost(plan, ledgers[0], units):
        if not prune:
            raise CuratorError(f"{lost}. `curator run` with --prune (prune=True) removes them; or write to "
                               "another folder.")
        if callable(prune):
            prune(f"{lost} are removed")
    files = find_missing(plan, ledgers, units)
    if missing := describe_missing(plan, files):
        if not prune:
            return replaced(plan, notes=(*plan.notes, f"{missing}. Put them back, or run with --prune "
                                                      "(prune=True), which makes them again"))
        for ledger, gone in zip(ledgers, files, strict=False):
            if gone:
                ledger.lose([file.path for file in gone])
        if callable(prune):
            prune(f"{missing}; they are made again")
    return plan


def lacking(phases: Iterable[Phase]) -> list[str]:
    """What stages want that is not installed here, a line each."""
    return [f"{step.name} wants {name}, which is not installed: {get}" for phase in phases
            for step in phase.steps for name, get in step.stage.requires.items() if spec_of(name) is None]


def check_installed(plan: Plan, ledgers: Sequence[Ledger], units: list[tuple[int, Unit]], is_here: bool,
                    again: bool = False) -> Plan:
    """Stages with work to do have what they want: else one behind a barrier fails after hours, and what an
    edit replaces is gone for nothing. `is_here`: they run on this machine; of the nodes of a cluster, which
    may have more, this machine only knows what they may lack: a note of the plan that this gives. `again`:
    all of them have work.

    Raises:
        CuratorError: something is not installed.
    """
    for phase in plan.phases:
        if not (lacks := lacking(plan.phases[phase.number:])):
            break
        there = later_units(plan, phase, ledgers) if phase.number else units
        if again or any(need is not True for need in ledgers[phase.number].needs(phase, there)):
            if is_here:
                raise CuratorError("\n".join(lacks))
            noted = (f"{lack} (here; a node of the cluster that lacks it cannot run it)" for lack in lacks)
            return replaced(plan, notes=(*plan.notes, *noted))
    return plan


def check_edit(plan: Plan, ledgers: Sequence[Ledger], units: Collection[tuple[int, Unit]],
               replace: bool | Callable[[str], bool] = False) -> None:
    """What an edit would remove may go; see `curator.run.run.run` for `replace`.

    Raises:
        CuratorError: it may not.
    """
    goes = find_what_goes(plan, ledgers, units)
    if goes.strange:
        raise CuratorError(f"{goes.strange[0]} was made when {plan.out.uri} lay elsewhere, and outside of a "
                           "folder that was moved or copied an edit removes nothing. Write to another "
                           "folder, or give the sink another path")
    if not goes.files or replace is True:
        return
    described = find_edit(plan, ledgers, units).describe(plan.out.uri)
    if goes.other is not None:
        raise CuratorError(f"{described}. Write to another folder (--out, out=), or say --replace "
                           "(replace=True)")
    if not (callable(replace) and replace(described)):
        raise CuratorError(f"{described}. Go on with --yes (in Python replace=True), or write to another "
                           "folder (--out, out=)")


def _check_sinks(plan: Plan, ledgers: Sequence[Ledger]) -> None:
    """Sinks with a path of their own find nothing there that others made."""
    root = plan.out.path_of("")
    named: frozenset[str] = frozenset()  # read when it is needed
    for step in plan.steps:
        if not isinstance(step.stage, Sink) or step.implicit or step.part_of:
            continue
        folder = sink_folder(step.stage)
        path = folder.uri.rstrip("/")
        if f"{path}/".startswith(f"{root}{DATA}/"):
            continue
        ours = ledgers[0].owner.names(None, path.startswith(root))
        for name in folder.names(recursive=True):
            if any(part[0] in "._" for part in name.split("/")) or ours.search(f"/{name}"):
                continue
            named = named or frozenset(ledger.out.full_path(p) for ledger in ledgers for p in ledger.named())
            if folder.path_of(name) not in named:
                raise CuratorError(f"sink {step.name!r} writes to {path}, and there lies {name}, which no "
                                   f"run in {plan.out.uri} "
                                   "made. Give the sink another path, or move away what is there")


def describe_lost(plan: Plan, ledger: Ledger, units: Collection[tuple[int, Unit]]) -> str:
    """Results of inputs of the first phase that nobody reads any more, in a sentence; empty if none."""
    gone = ledger.records.keys() - {unit.key for _, unit in units}
    if not gone:
        return ""
    present, found = {part.uri for _, unit in units for part in unit.parts}, Goes()
    inputs: set[str] = set()
    beside = False
    for record in ledger.outdated({}):
        lost = set(record.uris) - present if record.unit in gone else ()
        inputs.update(lost)
        beside = beside or 0 < len(lost) < len(record.uris)
        for file in (file for stage in record.stages.values() for file in stage.files if lost):
            found.add(ledger, file)
    if not inputs:  # they have changed, and are read again
        return ""
    named = f"{', '.join(sorted(inputs)[:3])}{', …' if len(inputs) > 3 else ''}"
    count = "an input" if len(inputs) == 1 else f"{len(inputs):,} inputs"
    among = " (other inputs of their units among them, which are read again)" if beside else ""
    return (f"{plan.out.uri} holds results of {count} that this recipe no longer reads ({named}): "
            f"{found}{among}")


def find_missing(plan: Plan, ledgers: Sequence[Ledger],
                 units: Collection[tuple[int, Unit]]) -> list[list[FileRecord]]:
    """By phase the files with written records that somebody has removed, but for those of inputs that are
    not read any more: nothing makes them again."""
    read = {unit.key for _, unit in units}
    return [ledger.missing(plan, ledger.records.keys() if phase.number else ledger.records.keys() & read)
            for phase, ledger in zip(plan.phases, ledgers, strict=False)]


def describe_missing(plan: Plan, files: Iterable[Iterable[FileRecord]]) -> str:
    """What `find_missing` has found, in a sentence; empty if that is nothing."""
    gone = [file for some in files for file in some]
    if not gone:
        return ""
    return (f"{plan.out.uri} lacks {plural(len(gone), 'file')} that the run there wrote, with "
            f"{plural(sum(file.rows for file in gone), 'record')} ({listing((f.path for f in gone), 3)})")
