"""What is finished: one line a unit, beside the output. With it a run can be killed at any moment and started again.

`_run/ledger/` holds files of JSON lines, each written once (`ledger_files`), on a disk and on an object store alike. A line
is one of

    {"run": 3, "elapsed": 12.5, "whole": 70}     how long the third attempt has worked; what was to be removed is gone. `whole`:
                                                 it has ended with so many units, and left no file that no line names
    {"reset": true}                              files before this one count no more (written when old results are cleared)
    {"remove": [path, ...]}                      files of results that were cleared, to be deleted
    {"unit": key, "redo": true, "label": ..., "uris": [...], "stages": {name: {"key", "counts", "files", "memory"}},
     "depends": [keys], "rests": {name: n}}      `redo`: some of its steps, or all, are to be done again; `rests`: it is, too, if
                                                 fewer than n other units taught that stage anything
    {"sum": {name: counts}}                      of units before it
    {"evidence": [path, ...]}                    of a run that stopped early: what failed in units that were not finished. The
                                                 next attempt removes it, and does these units again

In memory a finished unit is its key and a `Brief`, the same for all units that are alike; its line is read again when somebody
asks for more. The newest line of a unit is the true one. A stage of a unit is done when its line has that stage with its present
key.
Files of ours (their names have the unit, the id of this output, and the attempt) that no line names are removed when the next
attempt begins, and when a run ends that stopped early or in which units were begun more than once.

Each phase of a run has a ledger of its own: the first one `ledger/`, the others `ledger-2/` and so on. A ledger touches the files
of its own phase only: their names tell.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.api.stage import SIDE_OUTPUTS, Stateful, Unit, WrittenFile
from curator.engine.events import Commit
from curator.io.files.folder import FileInfo, Folder
from curator.io.files.listing import CLUSTERS, DATA
from curator.pipeline.plan import SPOOLS, Operator, Phase, Step, Target
from curator.run.folder.ledger_files import UNIT_FILES, UNIT_LINE, LedgerFiles, add_counts, is_marked, sum_line, sums_of, unit_of
from curator.run.folder.owner import Owner

FOLDER = "ledger"
COMPACT_FILES = 64  # more small ledger files than this are made one when a run begins
AGAIN = "again:"  # before the key of a stateful stage whose records come again: its sidecar is kept


@dataclass
class StageRecord:
    """What a stage did with a unit. `files` are relative to the run's folder where they lie below it."""

    key: str
    counts: Counts = field(default_factory=Counts)
    files: list[WrittenFile] = field(default_factory=list)
    memory: str | None = None

    @property
    def memory_key(self) -> str:
        return self.key.removeprefix(AGAIN)


@dataclass
class Record:
    """A finished unit, or with `redo` what is still true of one that an edit does again."""

    unit: str
    label: str
    uris: tuple[str, ...]
    stages: dict[str, StageRecord]
    depends: tuple[str, ...] = ()
    redo: bool = False
    rests: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        stages = {}
        for name, s in self.stages.items():
            stages[name] = {"key": s.key, "counts": s.counts.to_json(),
                            "files": [[f.path, f.rows, f.size_bytes] for f in s.files], "memory": s.memory}
            stages[name] = {k: v for k, v in stages[name].items() if v}
        return {"unit": self.unit, **({"redo": True} if self.redo else {}), "label": self.label, "uris": list(self.uris),
                "stages": stages, "depends": list(self.depends), **({"rests": dict(self.rests)} if self.rests else {})}

    @classmethod
    def from_line(cls, line: bytes) -> Record:
        data = msgspec.json.decode(line)
        stages = {name: StageRecord(s["key"], Counts.from_json(s.get("counts", {})),
                                    [WrittenFile(*f) for f in s.get("files", ())], s.get("memory"))
                  for name, s in data["stages"].items()}
        return cls(data["unit"], data["label"], tuple(data["uris"]), stages, tuple(data["depends"]), data.get("redo", False),
                   data.get("rests", {}))


class Brief(NamedTuple):
    """What the ledger has in mind of a unit; one object serves all units that are alike.

    `stages`: (name, key, what the name of its sidecar has around the unit's key, or None). `depends`: 8 bytes each.
    """

    stages: tuple[tuple[str, str, tuple[str, ...] | None], ...]
    depends: bytes = b""
    redo: bool = False
    rests: tuple[tuple[str, int], ...] = ()

    def taught(self, step: str) -> bool:
        """Whether it taught a stateful step anything."""
        return any(name == step and memory for name, _, memory in self.stages)

    def rests_on(self) -> Iterator[str]:
        """The keys of the units that it depends on."""
        return (self.depends[at:at + 8].hex() for at in range(0, len(self.depends), 8))


class Ledger:
    """The finished units of one phase in a run folder. `run`: the number of this attempt, from 1.

    `number`: the phase's, from 0. `sinks`: every sink of the plan, in whose folders an interrupted attempt may have left files;
    which phase a sink is in may have changed since. `owner`: of the folder; by default what stands in it.

    `confirm`: called before anything is written or removed; raises if the folder is another run's meanwhile.

    `unfinished`: units whose record is not whole any more, because an edit does some of their steps again.

    Raises:
        CuratorError: a file of the ledger is damaged, or of a later version.
    """

    def __init__(self, out: Folder, number: int = 0, sinks: Sequence[Step] = (), owner: Owner | None = None,
                 confirm: Callable[[], None] = lambda: None) -> None:
        self.out, self.number, self.sinks, self.confirm = out, number, sinks, confirm
        self.owner = owner or Owner.of(out)
        self._names = {inside: self.owner.names(number, inside) for inside in (True, False)}
        self.folder = out.sub("_run").sub(f"{FOLDER}-{number + 1}" if number else FOLDER)
        self.evidence: list[tuple[str, WrittenFile]] = []  # of this attempt, with the name of the stage that wrote it
        self.files = LedgerFiles(self.folder)
        self._load()
        self.run = max(self.elapsed, default=0) + 1
        self.elapsed[self.run] = 0.0

    def part_name(self, unit: Unit, attempt: int) -> str:
        """How the files of a unit's attempt are called; never the same twice, also after an edit or in another run's folder."""
        return f"part-{unit.key}-{self.owner.id}-{self.number}-{self.run}-{attempt}"

    def _load(self) -> None:
        self.records: dict[str, Brief] = {}
        self.unfinished: dict[str, tuple[str, int, int]] = {}  # and where their lines are: file, offset, length
        self.elapsed: dict[int, float] = {}  # seconds by attempt
        self._alike: dict[Brief, Brief] = {}
        self._totals: dict[str, Counts] = {}  # of the finished units,
        self._new: dict[str, Counts] = {}  # and of those that were not written down yet
        self._doomed: list[str] = []
        self._pending: list[bytes] = []
        whole_with = -1  # units
        newest = next(reversed(self.files.sizes), None)
        for name, block in self.files.scan():
            lines, whole, line = [], True, b""
            try:
                for other in block.others:
                    self._take(other, name == newest)
                    whole_with = max(whole_with, other.get("whole", -1)) if name == newest else whole_with
                for offset, line in block.units:
                    told = UNIT_LINE.decode(line)
                    if told.unit in self.records:
                        whole = whole and told.redo
                        continue
                    stages = [(n, s.key, s.memory) for n, s in told.stages.items()]
                    self.records[told.unit] = self._brief(told.unit, stages, told.depends, told.redo, told.rests)
                    if told.redo:
                        self.unfinished[told.unit] = name, offset, len(line)
                    else:
                        lines.append(line)
                add_counts(self._totals, sums_of(block, lines, whole))
            except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
                raise self.files.damaged(name, line, error) from error
        self._pinned = max((name for name, _, _ in self.unfinished.values()), default="")
        self._tidy = whole_with == len(self.records)  # else somebody died, or has removed a file of the ledger
        self._replaces = bool(self.unfinished)  # sidecars: the old ones are there until the next attempt begins

    def _take(self, line: dict, newest: bool) -> None:
        if "run" in line:
            self.elapsed[line["run"]] = max(line["elapsed"], self.elapsed.get(line["run"], 0.0))
        elif "remove" in line:
            self._doomed = line["remove"] if newest else []  # else they are gone
        elif "evidence" in line:
            self._doomed += line["evidence"] if newest else []
        elif "reset" not in line:
            raise ValueError(f"a line about {str(line)[:80]}")

    def _brief(self, unit: str, stages: Iterable[tuple[str, str, str | None]], depends: Iterable[str] = (),
               redo: bool = False, rests: Mapping[str, int] = {}) -> Brief:
        told = []
        for name, key, memory in stages:
            told.append((name, key, tuple(memory.split(unit)) if memory else None))
        brief = Brief(tuple(told), b"".join(map(bytes.fromhex, depends)), redo, tuple(rests.items()))
        return brief if brief.depends else self._like(brief)

    def _like(self, brief: Brief) -> Brief:
        return self._alike.setdefault(brief, brief)

    @property
    def done(self) -> int:
        """Units that are finished."""
        return len(self.records) - len(self.unfinished)

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Remember a finished unit; it is safe after the next `flush`."""
        self.records[record.unit] = self._brief(record.unit, [(n, s.key, s.memory) for n, s in record.stages.items()])
        self.unfinished.pop(record.unit, None)
        add_counts(self._new, {name: stage.counts for name, stage in record.stages.items()})
        self._pending.append(msgspec.json.encode(record.to_json()))

    def add_evidence(self, files: Mapping[str, Sequence[WrittenFile]]) -> None:
        """Name the files of what failed of a unit that is not finished."""
        self.evidence += [(name, WrittenFile(self.relative(f.path), f.rows, f.size_bytes)) for name in files for f in files[name]]

    def flush(self, elapsed: float, whole: bool = False) -> None:
        """Write what was added, and how long this attempt has worked. `whole`: it has ended, and left nothing to remove."""
        self.elapsed[self.run] = elapsed
        self.confirm()
        ended = {"whole": len(self.records)} if whole and not self._replaces else {}
        told = msgspec.json.encode({"run": self.run, "elapsed": round(elapsed, 3), **ended})
        evidence = [msgspec.json.encode({"evidence": [file.path for _, file in self.evidence]})] if self.evidence else []
        self.files.add([told, *self._pending, *([sum_line(self._new)] if self._pending else []), *evidence])
        add_counts(self._totals, self._new)
        self._pending, self._new = [], {}
        # Lines that will be asked for stay where they are.
        self.files.merge(behind=self._pinned)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def rewrite(self, edit: Callable[[Record], Record | None] = lambda record: record, units: Container[str] = ()) -> None:
        """Make the present lines all there is, in one file. `edit` gives what becomes of the records of these units."""

        def edited(unit: str, line: bytes) -> bytes | None:
            if unit not in units:
                return line
            record = edit(Record.from_line(line))
            return None if record is None else msgspec.json.encode(record.to_json())

        def lines() -> Iterator[bytes]:
            yield msgspec.json.encode({"reset": True})
            for run, seconds in self.elapsed.items():
                yield msgspec.json.encode({"run": run, "elapsed": seconds})
            yield from self.files.copied(None, edited, times=False)
            yield msgspec.json.encode({"remove": self._doomed})

        self.confirm()
        run, elapsed = self.run, self.elapsed
        self.files.replace(list(self.files.sizes), lines())
        self._load()
        self.run, self.elapsed = run, elapsed

    # -- what is to do --------------------------------------------------------------------------------------------

    def prepare(self, phase: Phase, units: Sequence[tuple[int, Unit]], prune: bool) -> list[frozenset[Target] | bool | None]:
        """What each unit needs: True for nothing, None for everything, else the steps to run. Old results are cleared.

        `units`: the operator that reads it, and the unit.

        Raises:
            CuratorError: there are results of inputs that are no longer read, and `prune` is false.
        """
        keys = [unit.key for _, unit in units]
        gone = self.records.keys() - keys
        if gone and not prune:
            present = {part.uri for _, unit in units for part in unit.parts}
            self._refuse_lost_inputs({uri for record in self._records(gone) for uri in record.uris} - present)
        needs = self._needs(phase, units, keys, gone)
        edits = self._edits(phase, dict(zip(keys, needs, strict=True)))
        if afresh := len(self.elapsed) > 1 and not any(need is True for need in needs):
            self.elapsed = {self.run: 0.0}  # of what earlier attempts did nothing is left
        if gone or edits or afresh or self.files.small > COMPACT_FILES:
            present_keys = {step.name: step.key for step in phase.steps}

            def edit(record: Record) -> Record | None:
                if record.unit in gone:
                    self._doomed += [f for stage in record.stages.values() for f in _all_files(stage)]
                    return None
                need, done = edits[record.unit]
                self._drop(record, record.stages.keys() - done, present_keys)
                record.redo = need is not True
                return record

            self.rewrite(edit, gone | edits.keys())
        # What a unit depends on nobody asks again, and its key needs to be there once only.
        self.records = {key: self.records[key] for key in keys if key in self.records}
        for key, brief in self.records.items():
            if brief.depends:
                self.records[key] = self._like(Brief(brief.stages, redo=brief.redo))
        self.tidy(phase)
        self.flush(0.0, whole=all(need is True for need in needs))  # from now on this attempt's number is taken
        return needs

    def _needs(self, phase: Phase, units: Sequence[tuple[int, Unit]], keys: Sequence[str],
               gone: Container[str]) -> list[frozenset[Target] | bool | None]:
        known: dict[tuple, frozenset[Target] | bool] = {}  # most units are alike
        alike = Counter(brief.stages for unit, brief in self.records.items() if unit not in gone)
        taught: Counter[str] = Counter()  # units with a sidecar, by step
        for stages, count in alike.items():
            taught.update({name: count for name, _, memory in stages if memory})
        needs: list[frozenset[Target] | bool | None] = []
        for (source, _), key in zip(units, keys, strict=True):
            brief, need = self.records.get(key), None
            if brief is not None and all(d in self.records and d not in gone for d in brief.rests_on()) and all(
                    taught[step] - brief.taught(step) >= n for step, n in brief.rests):
                like = source, brief.stages
                if like not in known:
                    known[like] = _need(phase, source, {name: done for name, done, _ in brief.stages})
                need = known[like]
            needs.append(need)
        return needs

    def _edits(self, phase: Phase, needs: Mapping[str, frozenset[Target] | bool | None]
               ) -> dict[str, tuple[frozenset[Target] | bool | None, frozenset[str]]]:
        """Units whose records change: what they need, and the steps that stay: not what will be done again, nor what the plan no
        longer has."""
        keys = {step.name: step.key for step in phase.steps}
        known: dict[tuple, frozenset[str] | None] = {}
        edits = {}
        for unit, brief in self.records.items():
            if unit not in needs:
                continue
            need = needs[unit]
            like = brief.stages, brief.redo, need
            if like not in known:
                done = frozenset(step.name for o in phase.operators for at, step in enumerate(o.steps)
                                 if need is not None and (need is True or Target(o.index, at) not in need))
                known[like] = done if brief.redo != (need is not True) or _drops(brief, done, keys) else None
            if known[like] is not None:
                edits[unit] = need, known[like]
        return edits

    def expire(self, phase: Phase) -> None:
        """Clear what is no longer true of a phase whose turn has not come: results of other steps than it has now."""
        keys = {step.name: step.key for step in phase.steps}
        touched = self._outdated(keys)

        def edit(record: Record) -> Record:
            done = {name for name, stage in record.stages.items() if stage.memory_key == keys.get(name)}
            record.redo = self._drop(record, record.stages.keys() - done, keys)
            return record

        if touched:
            self.rewrite(edit, touched)
        self.tidy(phase)

    def abolish(self) -> bool:
        """Clear everything: the plan has no such phase any more. False if there was nothing."""
        if not self.files.sizes:
            return False
        self._doomed += self.named()
        if self._doomed:
            self.rewrite(lambda record: None, set(self.records))
        self.remove_unnamed(Phase(0, (Operator(0, "sink", ()),)))
        self.folder.delete(list(self.files.sizes))
        return True

    def lose(self, paths: Collection[str]) -> None:
        """Files that records name are gone: the steps that wrote them are to be done again, under a new attempt's number."""

        def edit(record: Record) -> Record:
            for name in [n for n, s in record.stages.items() if any(f.path in paths for f in s.files)]:
                del record.stages[name]
                record.redo = True
            return record

        self.run += 1
        self.elapsed[self.run] = 0.0
        self.rewrite(edit, set(self.records))

    def _refuse_lost_inputs(self, lost: set[str]) -> None:
        if lost:
            count = "an input" if len(lost) == 1 else f"{len(lost)} inputs"
            raise CuratorError(
                f"{self.out.uri} holds results of {count} that this recipe no longer reads ({', '.join(sorted(lost)[:3])}"
                f"{', …' if len(lost) > 3 else ''}). Remove those results with --prune (prune=True), or write to another folder.")

    def _drop(self, record: Record, replay: Collection[str], keys: Mapping[str, str]) -> bool:
        """Take these steps out of a record. What a stateful one remembers is kept while its key is the present one."""
        for name in replay:
            stage = record.stages.pop(name)
            self._doomed.extend(f.path for f in stage.files)
            if stage.memory and stage.memory_key == keys.get(name):
                record.stages[name] = StageRecord(AGAIN + stage.memory_key, memory=stage.memory)
            elif stage.memory:
                self._doomed.append(f"_run/state/{stage.memory}")
        return bool(replay)

    def tidy(self, phase: Phase) -> None:
        """Remove what nobody names, if there may be any: not after an attempt that has ended well."""
        if not self._tidy:
            self.remove_unnamed(phase)
        self._tidy = True

    def remove_unnamed(self, phase: Phase) -> None:
        """Delete files of results that were cleared, and those of ours that no record names: what an interrupted attempt left.

        Nobody may be writing: a file is named only once its unit is finished.
        """
        self.confirm()
        places = {self.out.path_of(f): self.out for f in ("_run/state", SPOOLS, DATA, CLUSTERS, *SIDE_OUTPUTS)}
        for step in (*phase.operators[-1].steps, *self.sinks):
            folder = Folder.open(str(step.stage.path), dict(getattr(step.stage, "storage_options", None) or {}) or None)
            places.setdefault(folder.uri, folder)
        outer = [Folder(place, folder.storage_options) for place, folder in places.items()
                 if not any(place.startswith(other + "/") for other in places)]
        # What is above the file or folder that is named after an attempt does not matter.
        found = [{n: own[1] for n in folder.everything() if (own := self._ours(folder.path_of(n)))} for folder in outer]
        unnamed, doomed = {name for there in found for name in there.values()}, {p for p in self._doomed if self._ours(p)}
        if unnamed or doomed:
            for path in chain(self.named(), (file.path for _, file in self.evidence)):
                doomed.discard(path)
                if own := self._ours(path):
                    unnamed.discard(own[1])
        for path in doomed:
            self._remove(path, places)
        self._doomed = []
        for folder, there in zip(outer, found, strict=True):
            folder.delete([n for n, name in there.items() if name in unnamed])

    def _ours(self, path: str) -> re.Match[str] | None:
        """The name that proves that this output made a file in this phase, None if it did not."""
        return self._names[not _absolute(path) or path.startswith(self.out.path_of(""))].search(path)

    def full_path(self, path: str) -> str:
        """The path or URL of a file as records hold it."""
        return path if _absolute(path) else self.out.path_of(path)

    def _remove(self, path: str, places: Mapping[str, Folder]) -> None:
        """Delete a file whose name says that this output made it, where it lies below the output or in a sink's folder.

        Behind a link below these it does not. A sink that wrote elsewhere before has no folder in the plan any more: of its files
        only the name tells.
        """
        full = self.full_path(path)
        if ".." in full.split("/"):  # no line of ours has that
            return
        known = {self.out.uri.rstrip("/"): self.out, **places}
        place = max((p for p in known if full.startswith(p + "/")), key=len, default=None)
        above, name = full.rsplit("/", 1) if place is None else (place, full[len(place) + 1:])
        Folder(above, (self.out if place is None else known[place]).storage_options).delete([name])

    def relative(self, path: str) -> str:
        """A path as records hold it: relative to the run's folder where it lies below it."""
        root = self.out.path_of("").rstrip("/") + "/"
        path = path if _absolute(path) else os.path.abspath(path)
        return path[len(root):] if path.startswith(root) else path

    # -- what was done ----------------------------------------------------------------------------------------------

    def record_of(self, phase: Phase, unit: Unit, commit: Commit, units: Sequence[Unit]) -> Record:
        """The line of a unit: what ran now, and for the rest what its line said before. `units`: all, by index."""
        steps = {s.name: s for s in phase.steps}
        place = self.unfinished.get(unit.key)
        before = None if place is None else Record.from_line(self.files.line_at(*place))
        stages = {} if before is None else {n: s for n, s in before.stages.items() if n not in commit.ran}
        for name in sorted(commit.ran):
            files = [WrittenFile(self.relative(f.path), f.rows, f.size_bytes) for f in commit.files.get(name, ())]
            stages[name] = StageRecord(steps[name].key, commit.counts.get(name, Counts()), files, commit.snapshots.get(name))
        ordered = {s.name: stages[s.name] for s in phase.steps if s.name in stages}
        depends = {units[i].key for i in commit.depends}
        if before is not None and any(isinstance(s.stage, Stateful) and s.name not in commit.ran for s in phase.steps):
            depends.update(before.depends)
        uris = tuple(p.uri for p in unit.parts) if not phase.number else ()  # what a run made itself is nobody's input
        rests = {n: count for n, count in (before.rests if before is not None else {}).items() if n not in commit.ran}
        return Record(unit.key, unit.label, uris, ordered, tuple(sorted(depends)), rests={**rests, **commit.rests})

    def memories(self, step: Step) -> dict[str, str]:
        """The sidecars of a stateful step, by unit key."""
        found = {}
        for unit, brief in self.records.items():
            for name, key, memory in brief.stages:
                if name == step.name and memory and key.removeprefix(AGAIN) == step.key:
                    found[unit] = unit.join(memory)
        return found

    def written(self) -> Iterator[tuple[str, WrittenFile]]:
        """The files of all finished units, each with its stage's name; read from the ledger's own files."""
        for line in self._lines():
            if not is_marked(line):
                for name, stage in UNIT_FILES.decode(line).stages.items():
                    for file in stage.files:
                        yield name, WrittenFile(*file)

    def spooled(self, step: Step) -> list[FileInfo]:
        """The files of a step that spools, of all finished units; `uri` is relative to the folder of all spools."""
        files = [file for name, file in self.written() if name == step.name]
        return [FileInfo(f.path.removeprefix(f"{SPOOLS}/"), f.size_bytes, step.key) for f in files]

    def named(self) -> Iterator[str]:
        """All that records name, also those of units that are to be done again."""
        for line in self._lines():
            for stage in UNIT_FILES.decode(line).stages.values():
                yield from (f[0] for f in stage.files)
                if stage.memory:
                    yield f"_run/state/{stage.memory}"

    def outdated(self, phase: Phase | None) -> Iterator[Record]:
        """Units with steps that the plan has otherwise, or not at all; all if it has no such phase."""
        keys = {step.name: step.key for step in phase.steps} if phase is not None else {}
        units = self._outdated(keys)
        return self._records(units) if units else iter(())

    def _outdated(self, keys: Mapping[str, str]) -> set[str]:
        """Units with steps that have other keys now, or none."""
        alike = {stages: any(key.removeprefix(AGAIN) != keys.get(name) for name, key, _ in stages)
                 for stages in {brief.stages for brief in self.records.values()}}
        return {unit for unit, brief in self.records.items() if alike[brief.stages]} if any(alike.values()) else set()

    def _records(self, units: Container[str]) -> Iterator[Record]:
        return (Record.from_line(line) for line in self._lines() if unit_of(line) in units)

    def _lines(self) -> Iterator[bytes]:
        """The true line of each unit."""
        assert not self._pending
        seen: set[str] = set()
        for _, block in self.files.scan():
            for _, line in block.units:
                unit = unit_of(line)
                if unit not in seen:
                    seen.add(unit)
                    yield line

    def counts(self) -> dict[str, Counts]:
        """The counts of all finished units, by stage; the caller's own copy."""
        copy: dict[str, Counts] = {}
        add_counts(copy, self._totals)
        add_counts(copy, self._new)
        return copy


def _drops(brief: Brief, done: Container[str], keys: Mapping[str, str]) -> bool:
    """Whether steps of a unit go where only `done` stay. What a stateful one remembers under its present key is kept."""
    return any(name not in done and not (memory and key.startswith(AGAIN) and key.removeprefix(AGAIN) == keys.get(name))
               for name, key, memory in brief.stages)


def _all_files(stage: StageRecord) -> list[str]:
    return [f.path for f in stage.files] + ([f"_run/state/{stage.memory}"] if stage.memory else [])


def _absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path


def _need(phase: Phase, source: int, done: Mapping[str, str]) -> frozenset[Target] | bool:
    """The steps that a unit needs: those not done with their present key, and all that lead to one. `done`: keys by step."""
    needed: set[Target] = set()
    for operator in reversed(phase.operators):
        if operator.index != source and source not in _upstream(phase, operator):
            continue
        for at, step in reversed(list(enumerate(operator.steps))):
            if done.get(step.name) != step.key or _leads_to(operator, at, needed):
                needed.add(Target(operator.index, at))
    return frozenset(_whole_operators(phase, needed)) if needed else True


def _upstream(phase: Phase, operator: Operator) -> set[int]:
    found: set[int] = set()
    for other in reversed(phase.operators[:operator.index]):
        if phase.consumers(other.index) & (found | {operator.index}):
            found.add(other.index)
    return found


def _leads_to(operator: Operator, at: int, needed: set[Target]) -> bool:
    targets = {t for (step, _), ts in operator.routes.items() if step == at for t in ts}
    if at + 1 < len(operator.steps) and operator.kind != "sink":
        targets.add(Target(operator.index, at + 1))
    return bool(targets & needed)


def _whole_operators(phase: Phase, needed: set[Target]) -> set[Target]:
    """An operator runs as a whole or not at all; a sink alone."""
    whole = set(needed)
    for target in needed:
        operator = phase.operators[target.operator]
        if operator.kind != "sink":
            whole |= {Target(operator.index, at) for at in range(len(operator.steps))}
    return whole
