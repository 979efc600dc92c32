"""What is finished: one line a unit, beside the output. With it a run can be killed at any moment and started again.

`_run/ledger/` holds small files of JSON lines, each written once and atomically, so that it works on a disk and on an object
store alike. A line is one of

    {"run": 3, "elapsed": 12.5}                  how long the third attempt has worked; what was to be removed is gone
    {"reset": true}                              forget all lines before this one (written when old results are cleared)
    {"remove": [path, ...]}                      files of results that were cleared, to be deleted
    {"unit": key, "label": ..., "uris": [...], "stages": {name: {"key", "counts", "files", "memory"}}, "depends": [keys]}

The last line of a unit is the true one. A stage of a unit is done when its line has that stage with its present key. Files of
ours (their names have the unit, the run folder and the attempt) that no line names are removed when the next attempt begins, and
when a run ends in which units were begun more than once.

Each phase of a run has a ledger of its own: the first one `ledger/`, the others `ledger-2/` and so on. A ledger touches the files
of its own phase only: their names tell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.counts import Counts
from curator.engine.events import Commit
from curator.errors import CuratorError
from curator.io.files import FileInfo, Folder
from curator.io.local import TEMPORARY
from curator.plan import SPOOLS, Operator, Phase, Step, Target
from curator.stage import ENDINGS, Unit, WrittenFile

FOLDER = "ledger"
COMPACT_FILES = 64  # more ledger files than this are made one when a run begins
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
    """A finished unit."""

    unit: str
    label: str
    uris: tuple[str, ...]
    stages: dict[str, StageRecord]
    depends: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        stages = {}
        for name, s in self.stages.items():
            stages[name] = {"key": s.key, "counts": s.counts.to_json(),
                            "files": [[f.path, f.rows, f.size_bytes] for f in s.files], "memory": s.memory}
            stages[name] = {k: v for k, v in stages[name].items() if v}
        return {"unit": self.unit, "label": self.label, "uris": list(self.uris), "stages": stages, "depends": list(self.depends)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        stages = {name: StageRecord(s["key"], Counts.from_json(s.get("counts", {})),
                                    [WrittenFile(*f) for f in s.get("files", ())], s.get("memory"))
                  for name, s in data["stages"].items()}
        return cls(data["unit"], data["label"], tuple(data["uris"]), stages, tuple(data["depends"]))


class Ledger:
    """The finished units of one phase in a run folder. `run`: the number of this attempt, from 1.

    `number`: the phase's, from 0. `sinks`: every sink of the plan, in whose folders an interrupted attempt may have left files;
    which phase a sink is in may have changed since.

    `confirm`: called before anything is written or removed; raises if the folder is another run's meanwhile.

    `unfinished`: units whose record is not whole any more, because an edit does some of their steps again.

    Raises:
        CuratorError: a file of the ledger is damaged, or of a later version.
    """

    def __init__(self, out: Folder, number: int = 0, sinks: Sequence[Step] = (),
                 confirm: Callable[[], None] = lambda: None) -> None:
        self.out, self.sinks, self.confirm = out, sinks, confirm
        self.folder = out.sub("_run").sub(f"{FOLDER}-{number + 1}" if number else FOLDER)
        place = f"{out.uri}\n{number}" if number else out.uri
        self.place = hashlib.blake2b(place.encode(), digest_size=3).hexdigest()
        self.records: dict[str, Record] = {}
        self.unfinished: set[str] = set()
        self.elapsed: dict[int, float] = {}  # seconds by attempt
        self._totals: dict[str, Counts] | None = None  # of the finished units, once asked for
        self._doomed: list[str] = []
        self._pending: list[dict] = []
        self._files = sorted(n for n in self.folder.names() if n.endswith(".jsonl"))
        for name in self._files:
            self._load(name)
        self.run = max(self.elapsed, default=0) + 1
        self.elapsed[self.run] = 0.0

    def part_name(self, unit: Unit, attempt: int) -> str:
        """How the files of a unit's attempt are called; never the same twice, also after an edit or in another run's folder."""
        return f"part-{unit.key}-{self.place}-{self.run}-{attempt}"

    def _load(self, name: str) -> None:
        line = ""
        try:
            for line in self.folder.read(name).decode().splitlines():
                self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CuratorError(
                f"{self.folder.path_of(name)} is damaged, or of another version ({error!r} at {line[:80]!r}). Remove this file: "
                "the units that it names will be done again") from error

    def _take(self, line: dict) -> None:
        if "reset" in line:
            self.records.clear()
        elif "run" in line:
            self.elapsed[line["run"]] = max(line["elapsed"], self.elapsed.get(line["run"], 0.0))
            self._doomed = []
        elif "remove" in line:
            self._doomed = line["remove"]
        else:
            self.records[line["unit"]] = Record.from_json(line)

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Remember a finished unit; it is safe after the next `flush`."""
        self.records[record.unit] = record
        self.unfinished.discard(record.unit)
        if self._totals is not None:
            _add_counts(self._totals, record)
        self._pending.append(record.to_json())

    def flush(self, elapsed: float) -> None:
        """Write what was added, and how long this attempt has worked."""
        self.elapsed[self.run] = elapsed
        self._write([{"run": self.run, "elapsed": round(elapsed, 3)}, *self._pending])
        self._pending = []

    @property
    def pending(self) -> int:
        return len(self._pending)

    def _write(self, lines: Iterable[dict]) -> None:
        self.confirm()
        number = int(self._files[-1].split(".")[0]) + 1 if self._files else 1
        name = f"{number:08d}.jsonl"
        self.folder.write(name, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        self._files.append(name)

    def rewrite(self) -> None:
        """Make the present records all there is, in one file."""
        old = list(self._files)
        times = [{"run": n, "elapsed": s} for n, s in self.elapsed.items()]
        self._write([{"reset": True}, *times, {"remove": self._doomed}, *(r.to_json() for r in self.records.values())])
        self.folder.delete(old)
        self._files = self._files[-1:]

    # -- what is to do --------------------------------------------------------------------------------------------

    def prepare(self, phase: Phase, units: Sequence[tuple[int, Unit]], prune: bool) -> list[frozenset[Target] | bool | None]:
        """What each unit needs: True for nothing, None for everything, else the steps to run. Old results are cleared.

        `units`: the operator that reads it, and the unit.

        Raises:
            CuratorError: there are results of inputs that are no longer read, and `prune` is false.
        """
        present = {unit.key for _, unit in units}
        uris = {part.uri for _, unit in units for part in unit.parts}
        gone = [r for key, r in self.records.items() if key not in present]
        self._refuse_lost_inputs({uri for r in gone for uri in r.uris} - uris, prune)
        needs: list[frozenset[Target] | bool | None] = []
        changed = bool(gone)
        self._doomed += [f for r in gone for s in r.stages.values() for f in _all_files(s)]
        for record in gone:
            del self.records[record.unit]
        known: dict[tuple, frozenset[Target] | bool] = {}  # most units are alike
        keys = {step.name: step.key for step in phase.steps}
        for source, unit in units:
            record, need = self.records.get(unit.key), None
            if record is not None and set(record.depends) <= self.records.keys():
                like = (source, *((name, stage.key) for name, stage in record.stages.items()))
                if like not in known:
                    known[like] = _need(phase, source, record)
                need = known[like]
            needs.append(need)
            if record is not None:
                changed |= self._clear(phase, keys, record, frozenset() if need is True else need)
                self.unfinished |= set() if need is True else {unit.key}
        if changed or len(self._files) > COMPACT_FILES:
            self.rewrite()
        self.remove_unnamed(phase)
        self.flush(0.0)  # from now on this attempt's number is taken
        return needs

    def expire(self, phase: Phase) -> None:
        """Clear what is no longer true of a phase whose turn has not come: results of other steps than it has now."""
        keys = {step.name: step.key for step in phase.steps}
        changed = False
        for record in self.records.values():
            done = frozenset(name for name, stage in record.stages.items() if stage.memory_key == keys.get(name))
            changed |= self._drop(record, record.stages.keys() - done, keys)
        if changed:
            self.rewrite()
        self.remove_unnamed(phase)

    def abolish(self) -> bool:
        """Clear everything: the plan has no such phase any more. False if there was nothing."""
        if not self._files:
            return False
        self._doomed += [f for r in self.records.values() for s in r.stages.values() for f in _all_files(s)]
        self.records.clear()
        if self._doomed:
            self.rewrite()
        self.remove_unnamed(Phase(0, (Operator(0, "sink", ()),)))
        self.folder.delete(self._files)
        return True

    def lose(self, paths: Collection[str]) -> None:
        """Files that records name are gone: the steps that wrote them are to be done again, under a new attempt's number."""
        for record in self.records.values():
            for name in [n for n, s in record.stages.items() if any(f.path in paths for f in s.files)]:
                del record.stages[name]
        self._totals = None
        self.run += 1
        self.elapsed[self.run] = 0.0
        self.rewrite()

    def _refuse_lost_inputs(self, lost: set[str], prune: bool) -> None:
        if lost and not prune:
            count = "an input" if len(lost) == 1 else f"{len(lost)} inputs"
            raise CuratorError(
                f"{self.out.uri} holds results of {count} that this recipe no longer reads ({', '.join(sorted(lost)[:3])}"
                f"{', …' if len(lost) > 3 else ''}). Remove those results with --prune (prune=True), or write to another folder.")

    def _clear(self, phase: Phase, keys: Mapping[str, str], record: Record, need: frozenset[Target] | None) -> bool:
        """Take out of a record what will be done again, and what the plan no longer has."""
        done = {step.name for o in phase.operators for at, step in enumerate(o.steps)
                if need is not None and Target(o.index, at) not in need}
        return self._drop(record, record.stages.keys() - done, keys)

    def _drop(self, record: Record, again: Collection[str], keys: Mapping[str, str]) -> bool:
        """Take these steps out of a record. What a stateful one remembers is kept while its key is the present one."""
        for name in again:
            stage = record.stages.pop(name)
            self._doomed.extend(f.path for f in stage.files)
            if stage.memory and stage.memory_key == keys.get(name):
                record.stages[name] = StageRecord(AGAIN + stage.memory_key, memory=stage.memory)
            elif stage.memory:
                self._doomed.append(f"_run/state/{stage.memory}")
        return bool(again)

    def remove_unnamed(self, phase: Phase) -> None:
        """Delete files of results that were cleared, and those of ours that no record names: what an interrupted attempt left.

        Nobody may be writing: a file is named only once its unit is finished.
        """
        self.confirm()
        named = {path for r in self.records.values() for s in r.stages.values() for path in _all_files(s)}
        places = {self.out.path_of(f): self.out for f in ("_run/state", SPOOLS, *ENDINGS)}
        for step in (*phase.operators[-1].steps, *self.sinks):
            folder = Folder.open(str(step.stage.path), dict(getattr(step.stage, "storage_options", None) or {}) or None)
            places.setdefault(folder.uri, folder)
        for path in set(self._doomed) - named:
            full = path if _absolute(path) else self.out.path_of(path)
            above, _, name = full.rpartition("/")
            options = next((f.storage_options for p, f in places.items() if full.startswith(p + "/")), self.out.storage_options)
            Folder(above, options).delete([name])
        self._doomed = []
        ours = re.compile(rf"(?:^|/)(?:{re.escape(TEMPORARY)})?(part-[0-9a-f]{{16}}-{self.place}-\d+-\d+(?!\d).*)$", re.DOTALL)
        # From the file or folder on that is named after an attempt; what is above it does not matter.
        names = {found[1] for path in named if (found := ours.search(path))}
        for place, folder in places.items():
            if not any(place.startswith(other + "/") for other in places):
                inside = Folder(place, folder.storage_options)
                inside.delete([n for n in inside.everything() if (own := ours.search(n)) and own[1] not in names])

    def relative(self, path: str) -> str:
        """A path as records hold it: relative to the run's folder where it lies below it."""
        root = self.out.path_of("").rstrip("/") + "/"
        path = path if _absolute(path) else os.path.abspath(path)
        return path[len(root):] if path.startswith(root) else path

    # -- what was done ----------------------------------------------------------------------------------------------

    def record_of(self, phase: Phase, unit: Unit, commit: Commit, keys: Sequence[str]) -> Record:
        """The line of a unit: what ran now, and for the rest what its line said before. `keys`: of all units, by index."""
        steps = {s.name: s for s in phase.steps}
        before = self.records.get(unit.key)
        stages = {} if before is None else {n: s for n, s in before.stages.items() if n not in commit.ran}
        for name in sorted(commit.ran):
            files = [WrittenFile(self.relative(f.path), f.rows, f.size_bytes) for f in commit.files.get(name, ())]
            stages[name] = StageRecord(steps[name].key, commit.counts.get(name, Counts()), files, commit.memory.get(name))
        ordered = {s.name: stages[s.name] for s in phase.steps if s.name in stages}
        depends = {keys[i] for i in commit.depends} | set(before.depends if before is not None else ())
        uris = tuple(p.uri for p in unit.parts) if not phase.number else ()  # what a run made itself is nobody's input
        return Record(unit.key, unit.label, uris, ordered, tuple(sorted(depends)))

    def spooled(self, step: Step) -> list[FileInfo]:
        """The files of a step that spools, of all finished units; `uri` is relative to the folder of all spools."""
        files = [f for key, r in self.records.items() if key not in self.unfinished and step.name in r.stages
                 for f in r.stages[step.name].files]
        return [FileInfo(f.path.removeprefix(f"{SPOOLS}/"), f.size_bytes, step.key) for f in files]

    def memories(self, step: Step) -> dict[str, str]:
        """The sidecars of a stateful step, by unit key."""
        found = {}
        for key, record in self.records.items():
            done = record.stages.get(step.name)
            if done is not None and done.memory and done.memory_key == step.key:
                found[key] = done.memory
        return found

    def counts(self) -> dict[str, Counts]:
        """The counts of all finished units, by stage; the caller's own copy."""
        if self._totals is None:
            self._totals = {}
            for key, record in self.records.items():
                if key not in self.unfinished:
                    _add_counts(self._totals, record)
        copy: dict[str, Counts] = {}
        for name, counts in self._totals.items():
            copy.setdefault(name, Counts()).add(counts)
        return copy


def _add_counts(totals: dict[str, Counts], record: Record) -> None:
    for name, stage in record.stages.items():
        totals.setdefault(name, Counts()).add(stage.counts)


def _all_files(stage: StageRecord) -> list[str]:
    return [f.path for f in stage.files] + ([f"_run/state/{stage.memory}"] if stage.memory else [])


def _absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path


def _need(phase: Phase, source: int, record: Record) -> frozenset[Target] | bool:
    """The steps that a unit needs: those not done with their present key, and all that lead to one."""
    needed: set[Target] = set()
    for operator in reversed(phase.operators):
        if operator.index != source and source not in _upstream(phase, operator):
            continue
        for at, step in reversed(list(enumerate(operator.steps))):
            done = record.stages.get(step.name)
            if done is None or done.key != step.key or _leads_to(operator, at, needed):
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
