"""What is finished: one line a unit, beside the output, so that a run can be killed and started again.

`_run/ledger/` holds files of JSON lines, each written once (`ledger_files`), on a disk and on an object store
alike: a `Record` for each unit, and a `State` of all together.

In memory a finished unit is its key and a `Brief`, the same for all units that are alike; its line is read
again when somebody asks for more. The newest line of a unit is the true one. A stage of a unit is done when
its line has that stage with its present key. Files of ours that no line names are removed when the next
attempt begins, and when a run ends that stopped early or in which units were begun more than once.

Each phase of a run has a ledger of its own: the first one `ledger/`, the others `ledger-2/` and so on. A
ledger touches the files of its own phase only: their names tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from curator.api.counts import Counts
from curator.api.stage import Sink, SourceRange, Stateful, Unit, WrittenFile
from curator.engine.events import Commit
from curator.io.failed import FailedRows
from curator.io.files.folder import FileInfo, Folder
from curator.io.files.local import ATTEMPT
from curator.pipeline.checkpoint import CHECKPOINTS
from curator.pipeline.layout import sink_folder
from curator.pipeline.plan import SPOOLS, Phase, Plan, Step
from curator.run.folder.ledger_files import (
    NO_COUNTS,
    FileRecord,
    LedgerFiles,
    Record,
    StageRecord,
    State,
    add_counts,
    counts_in,
    counts_of,
    is_marked,
    to_line,
    to_record,
    unit_of,
)
from curator.run.folder.lock import Lock
from curator.run.folder.needs import Need, begins_behind, kept, needed, taken_up
from curator.run.folder.owner import Owner, Removal
from curator.run.folder.replayed import take_in

FOLDER = "ledger"
COMPACT_FILES = 64  # more small ledger files than this are made one when a run begins


class Done(NamedTuple):
    """What the ledger has in mind of a stage of a unit. `sidecar`: its name without the unit's key."""

    name: str
    key: str
    sidecar: tuple[str, ...] | None
    replay: bool


class Brief(NamedTuple):
    """What the ledger has in mind of a unit, one object for all that are alike. `depends`: 8 bytes each."""

    stages: tuple[Done, ...]
    depends: bytes = b""
    redo: bool = False
    rests: tuple[tuple[str, int], ...] = ()

    def depends_on(self) -> Iterator[str]:
        return (self.depends[at:at + 8].hex() for at in range(0, len(self.depends), 8))


def ledgers_of(plan: Plan, lock: Lock | None) -> list[Ledger]:
    """The ledgers of a plan's phases, then of those that it does not have any more. The folder must be ours.

    `lock`: of the folder; None to look only.
    """
    count, owner = len(plan.phases), Owner.of(plan.out, make=lock is not None)
    while plan.out.sub("_run").exists(f"{FOLDER}-{count + 1}"):
        count += 1
    sinks = [step for step in plan.steps if isinstance(step.stage, Sink)]
    return [Ledger(plan.out, number, sinks, owner, lock.confirm if lock else Lock().confirm)
            for number in range(count)]


class Ledger:
    """The finished units of one phase in a run folder. `run`: the number of this attempt, from 1.

    `number`: the phase's, from 0. `sinks`: every sink of the plan. `owner`: of the folder; by default what
    stands in it. `confirm`: called before anything is written or removed; raises if the folder is another
    run's meanwhile.

    `unfinished`: units whose record is not whole any more, because an edit does some of their steps again.
    `replayed`: finished units of which rows that failed are on their way again, and where their lines are.

    Raises:
        CuratorError: a file of the ledger is damaged, or of a later version.
    """

    def __init__(self, out: Folder, number: int = 0, sinks: Sequence[Step] = (), owner: Owner | None = None,
                 confirm: Callable[[], None] = lambda: None) -> None:
        self.out, self.number, self.confirm = out, number, confirm
        self.owner = owner or Owner.of(out)
        self.removal = Removal(out, number, sinks, self.owner)
        self.folder = out.sub("_run").sub(f"{FOLDER}-{number + 1}" if number else FOLDER)
        # of this attempt, with the name of the stage that wrote it
        self.evidence: list[tuple[str, FileRecord]] = []
        self.replayed: dict[str, tuple[str, int, int]] = {}
        self.files = LedgerFiles(self.folder)
        # of what is kept of units that are done again from their checkpoints: rows, and no columns
        self._ahead: dict[str, Counts] = {}
        self._load()
        self.run = max(self.elapsed, default=0) + 1
        self.elapsed[self.run] = 0.0

    def part_name(self, unit: Unit, attempt: int) -> str:
        """How the files of a unit's attempt are called: never the same twice, in whatever run or folder."""
        return f"{ATTEMPT}{unit.key}-{self.owner.id}-{self.number}-{self.run}-{attempt}"

    def _load(self) -> None:
        self.records: dict[str, Brief] = {}
        # and where their lines are: file, offset, length
        self.unfinished: dict[str, tuple[str, int, int]] = {}
        self._alike: dict[Brief, Brief] = {}
        self._stages: dict[tuple, tuple[Done, ...]] = {}  # likewise
        self._pending: list[bytes] = []
        for name, offset, line in self.files.units():
            try:
                record = to_record(line)
                self.records[record.unit] = self._brief(record, record.depends, record.rests)
            except (ValueError, TypeError, msgspec.MsgspecError) as error:
                raise self.files.damaged(name, line, error) from error
            if record.redo:
                self.unfinished[record.unit] = name, offset, len(line)
        newest, *older = self.files.states or [State()]
        self.elapsed = dict(newest.elapsed)  # seconds by attempt
        for run, seconds in (item for state in older for item in state.elapsed.items()):
            self.elapsed[run] = max(seconds, self.elapsed.get(run, 0.0))
        self._totals: dict[str, Counts] = {}  # of the finished units
        if newest.done == self.done:
            self._totals = {name: Counts.from_json(counts) for name, counts in newest.totals.items()}
        else:  # somebody has removed a file of the ledger
            for _, _, line in self.files.units():
                self._count(line)
        self._doomed, self._replaced = [*newest.remove, *newest.replaced], list[str]()
        self._tidy = newest.whole and newest.done == len(self.records)
        self._pinned = max((name for name, _, _ in self.unfinished.values()), default="")
        # sidecars: the old ones are there until the next attempt begins
        self._replaces = bool(self.unfinished)

    def _count(self, line: bytes) -> None:
        if not is_marked(line):
            add_counts(self._totals, counts_in(to_record(line)))

    def _brief(self, record: Record, depends: Collection[str] = (), rests: Mapping[str, int] = {}) -> Brief:
        said = tuple([(name, s.key, tuple(s.sidecar.split(record.unit)) if s.sidecar else None, s.replay)
                      for name, s in record.stages.items()])
        if said not in self._stages:
            self._stages[said] = tuple(Done(*stage) for stage in said)
        brief = Brief(self._stages[said], b"".join(map(bytes.fromhex, depends)), record.redo,
                      tuple(rests.items()))
        return brief if depends else self._alike.setdefault(brief, brief)

    @property
    def done(self) -> int:
        """Units that are finished."""
        return len(self.records) - len(self.unfinished)

    # -- writing ---------------------------------------------------------------------------------------------

    def add(self, phase: Phase, unit: Unit, commit: Commit, units: Sequence[Unit]) -> None:
        """Remember a finished unit; it is safe after the next `flush`. `units`: all, by index.

        Its line says what ran now, and for the rest what its line said before.
        """
        if isinstance(unit, FailedRows):
            return self._add_replayed(phase, unit, commit, units)
        place = self.unfinished.pop(unit.key, None)
        before = None if place is None else to_record(self.files.line_at(*place))
        stages, counts = {}, {}
        replay = phase.operators[phase.replay].steps[0] if phase.replay is not None else None
        replayed = replay is not None and replay.name in commit.ran
        for step in (s for s in phase.steps if s is not replay):
            if step.name in commit.ran:
                counts[step.name] = commit.counts.get(step.name, Counts())
                files = [self._file(f) for f in commit.files.get(step.name, ())]
                said = counts[step.name].to_json()
                stages[step.name] = StageRecord(step.key, msgspec.Raw(to_line(said)) if said else NO_COUNTS,
                                                files, commit.snapshots.get(step.name))
            elif before is not None and step.name in before.stages:
                stages[step.name] = before.stages[step.name]
                counts[step.name] = counts_of(stages[step.name])
                if replayed:
                    self._ahead[step.name].shift(counts[step.name], -1)
        depends, rests = {units[i].key for i in commit.depends}, {}
        if before is not None:
            rests = {name: count for name, count in before.rests.items() if name not in commit.ran}
            if any(isinstance(s.stage, Stateful) and s.name not in commit.ran for s in phase.steps):
                depends.update(before.depends)
        # what a run made itself is nobody's input
        uris = () if phase.number else tuple(p.uri for p in unit.parts)
        record = Record(unit=unit.key, label=unit.label, uris=uris, stages=stages,
                        depends=tuple(sorted(depends)), rests={**rests, **commit.rests})
        self.records[unit.key] = self._brief(record)
        add_counts(self._totals, counts)
        self._pending.append(to_line(record))

    def _add_replayed(self, phase: Phase, unit: FailedRows, commit: Commit, units: Sequence[Unit]) -> None:
        record = to_record(self.files.line_at(*self.replayed.pop(unit.key)))
        record.depends = tuple(sorted({*record.depends, *(units[i].key for i in commit.depends)}))
        self._replaced += take_in(record, phase, unit, commit, self._file, self._totals)
        self.records[unit.key] = self._brief(record)
        self._pending.append(to_line(record))

    def expect_replayed(self, units: Collection[str]) -> None:
        """Rows of these finished units, which failed, are on their way again."""
        self.replayed = {unit: (name, offset, len(line)) for name, offset, line in self.files.units()
                         if (unit := unit_of(line)) in units}
        self._pinned = max((self._pinned, *(name for name, _, _ in self.replayed.values())))

    def take_over(self, shard: Ledger) -> None:
        """Remember what a shard has finished, whose files lie here now; of a unit that is known here already
        nothing changes. The shards worked side by side, so the longest of them counts."""
        self.confirm()
        self.elapsed[self.run] = max(self.elapsed[self.run], sum(shard.elapsed.values()))

        def lines() -> Iterator[bytes]:
            for record in self.lacks(shard):
                self.records[record.unit] = self._brief(record, record.depends, record.rests)
                add_counts(self._totals, counts_in(record))
                yield to_line(record)

        self.files.add(lines(), lambda: self._state(remove=self._doomed))

    def lacks(self, other: Ledger) -> Iterator[Record]:
        """What another ledger has finished and this one does not know."""
        return (to_record(line) for line in other._lines()
                if not is_marked(line) and unit_of(line) not in self.records)

    def give_up(self) -> None:
        """Forget all units, since another ledger has them, and remove what is left here of ours: of attempts
        that were interrupted. The newest file goes last: it may say that older ones count no more."""
        self.confirm()
        self.folder.delete(list(self.files.sizes))
        self.files = LedgerFiles(self.folder)
        self.remove_unnamed()

    def _file(self, file: WrittenFile) -> FileRecord:
        return FileRecord(self.removal.relative(file.path), file.rows, file.size_bytes)

    def add_evidence(self, files: Mapping[str, Sequence[WrittenFile]]) -> None:
        """Name the files of what failed of a unit that is not finished."""
        self.evidence += [(name, self._file(f)) for name in files for f in files[name]]

    def flush(self, elapsed: float, whole: bool = False) -> None:
        """Write what was added, and how long this attempt has worked. `whole`: nothing is left to remove."""
        self.elapsed[self.run] = elapsed
        self.confirm()
        state = self._state(whole=whole and not self._replaces,
                            remove=[file.path for _, file in self.evidence], replaced=self._replaced)
        self.files.add(self._pending, lambda: state)
        self._pending = []
        self.files.merge(state, behind=self._pinned)  # lines that will be asked for stay where they are

    def _state(self, **more: Any) -> State:
        return State(elapsed=self.elapsed,
                     totals={name: counts.to_json() for name, counts in self._totals.items()}, done=self.done,
                     **more)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def _rewrite(self, edit: Callable[[Record], Record | None], units: Collection[str]) -> None:
        """Make the present lines all there is, in one file; `edit` changes the records of these units."""

        done = 0

        def lines() -> Iterator[bytes]:
            nonlocal done
            for _, _, line in self.files.units():
                unit = unit_of(line)
                if unit in units:
                    record = edit(to_record(line))
                    if record is None:
                        continue
                    line = to_line(record)
                done += not is_marked(line)
                if recount or unit in units:
                    self._count(line)
                yield line

        assert not self._pending  # nobody would copy it
        self.confirm()
        # of a sum nothing can be taken away
        if recount := any(unit not in self.unfinished for unit in units):
            self._totals = {}
        run, elapsed = self.run, self.elapsed
        self.files.replace(list(self.files.sizes), lines(),
                           lambda: replace(self._state(remove=self._doomed, reset=True), done=done))
        self._load()
        self.run, self.elapsed = run, elapsed

    # -- what is to do ---------------------------------------------------------------------------------------

    def prepare(self, phase: Phase, units: Sequence[tuple[int, Unit]], again: Collection[str] = (),
                nothing: bool = True) -> list[Need]:
        """What each unit needs. Results that are not true any more are cleared, also those of units that are
        not there, and of those that are done `again`.

        `units`: the operator that reads it, and the unit. `nothing`: where they need nothing, nothing will be
        written.
        """
        needs, keys = self.needs(phase, units), [unit.key for _, unit in units]
        gone = self.records.keys() - keys
        needs = [None if key in again else need for key, need in zip(keys, needs, strict=True)]
        edits = self._edits(phase, dict(zip(keys, needs, strict=True)))
        if afresh := len(self.elapsed) > 1 and not any(need is True for need in needs):
            self.elapsed = {self.run: 0.0}  # of what earlier attempts did nothing is left
        if gone or edits or afresh or self.files.small > COMPACT_FILES:
            present = {step.name: step.key for step in phase.steps}

            def edit(record: Record) -> Record | None:
                if record.unit in gone:
                    self._doomed += [path for stage in record.stages.values() for path in stage.named()]
                    return None
                need = edits[record.unit]
                self._drop(record, record.stages.keys() - kept(phase, need), present)
                record.redo = need is not True
                return record

            self._rewrite(edit, gone | edits.keys())
        # What a unit depends on nobody asks again, and its key needs to be there once only.
        self.records = {key: self.records[key] for key in keys if key in self.records}
        for key, brief in self.records.items():
            if brief.depends:
                bare = Brief(brief.stages, redo=brief.redo)
                self.records[key] = self._alike.setdefault(bare, bare)
        self._tidy_up()
        # from now on this attempt's number is taken
        self.flush(0.0, whole=nothing and all(need is True for need in needs))
        return needs

    def needs(self, phase: Phase, units: Sequence[tuple[int, Unit]]) -> list[Need]:
        """What each unit needs, as `prepare` says it; nothing is changed."""
        keys = [unit.key for _, unit in units]
        gone = self.records.keys() - keys
        known: dict[tuple, Need] = {}  # most units are alike
        alike = Counter(brief.stages for unit, brief in self.records.items() if unit not in gone)
        taught: Counter[str] = Counter()  # units with a sidecar, by step
        for stages, count in alike.items():
            taught.update({stage.name: count for stage in stages if stage.sidecar})
        needs: list[Need] = []
        for (source, _), key in zip(units, keys, strict=True):
            brief, need = self.records.get(key), None
            if (brief is not None and all(d in self.records and d not in gone for d in brief.depends_on())
                and all(taught[step] - any(s.name == step and s.sidecar for s in brief.stages) >= n
                        for step, n in brief.rests)):
                like = source, brief.stages
                if like not in known:
                    known[like] = needed(phase, source, {s.name: s.key for s in brief.stages if not s.replay})
                need = known[like]
            needs.append(need)
        self._replays(phase, units, needs)
        return needs

    def _replays(self, phase: Phase, units: Sequence[tuple[int, Unit]], needs: list[Need]) -> None:
        """Find the files that checkpoints kept of units which begin there; where one is gone, the unit begins
        before it. Counts what is kept."""
        self._ahead = {}
        at = {unit.key: i for i, ((_, unit), need) in enumerate(zip(units, needs, strict=True))
              if begins_behind(phase, need)}
        if not at:
            return
        there = {f"{CHECKPOINTS}/{name}" for name in self.out.sub(CHECKPOINTS).names(recursive=True)}
        for record in self.of_units(at):
            index, done = at[record.unit], {n: s.key for n, s in record.stages.items() if not s.replay}
            while lost := [name for name in taken_up(phase, needs[index])
                           if not there.issuperset(f.path for f in record.stages[name].files)]:
                done = {name: key for name, key in done.items() if name not in lost}
                needs[index] = needed(phase, units[index][0], done)
            if begins_behind(phase, needs[index]):
                stay = kept(phase, needs[index])
                for name, stage in record.stages.items():
                    if name in stay:
                        self._ahead.setdefault(name, Counts()).shift(counts_of(stage), 1)

    def _edits(self, phase: Phase, needs: Mapping[str, Need]) -> dict[str, Need]:
        """Units whose records change, and what they need: steps go that are done again or not in the plan."""
        keys = {step.name: step.key for step in phase.steps}
        known: dict[tuple, bool] = {}
        edits = {}
        for unit, brief in self.records.items():
            if unit not in needs:
                continue
            need = needs[unit]
            like = brief.stages, brief.redo, need
            if like not in known:
                stay = kept(phase, need)
                drops = any(s.name not in stay and not (s.sidecar and s.replay and s.key == keys.get(s.name))
                            for s in brief.stages)
                known[like] = drops or brief.redo != (need is not True)
            if known[like]:
                edits[unit] = need
        return edits

    def _drop(self, record: Record, names: Collection[str], keys: Mapping[str, str]) -> bool:
        """Take these steps out of a record. What a stateful one remembers stays while its key is the same."""
        for name in names:
            stage = record.stages.pop(name)
            if stage.sidecar and stage.key == keys.get(name):
                self._doomed += [f.path for f in stage.files]
                record.stages[name] = StageRecord(stage.key, sidecar=stage.sidecar, replay=True)
            else:
                self._doomed += stage.named()
        return bool(names)

    def expire(self, phase: Phase) -> None:
        """Clear results of a phase whose turn has not come, where it has other steps now."""
        keys = {step.name: step.key for step in phase.steps}

        def edit(record: Record) -> Record:
            stale = [name for name, stage in record.stages.items() if stage.key != keys.get(name)]
            record.redo = self._drop(record, stale, keys)
            return record

        if touched := self._outdated(keys):
            self._rewrite(edit, touched)
        self._tidy_up()

    def abolish(self) -> None:
        """Clear everything: the plan has no such phase any more."""
        if self.files.sizes:
            self._doomed += self.named()
            if self._doomed:
                self._rewrite(lambda record: None, set(self.records))
            self.remove_unnamed()
            self.folder.delete(list(self.files.sizes))

    def lose(self, paths: Collection[str]) -> None:
        """Files that records name are gone: their steps are to be done again, as a new attempt."""

        def edit(record: Record) -> Record:
            for name in [n for n, s in record.stages.items() if any(f.path in paths for f in s.files)]:
                del record.stages[name]
                record.redo = True
            return record

        self.run += 1
        self.elapsed[self.run] = 0.0
        self._rewrite(edit, set(self.records))

    def _tidy_up(self) -> None:
        """Remove what nobody names, if there may be any: not after an attempt that has ended well."""
        if not self._tidy:
            self.remove_unnamed()
        self._tidy = True

    def remove_unnamed(self) -> None:
        """Delete files of cleared results, and those of interrupted attempts, which no record names."""
        assert not self._pending  # its files are not named yet
        self.confirm()
        evidence = (file.path for _, file in self.evidence)
        self.removal.sweep([*self._doomed, *self._replaced], chain(self.named(), evidence))
        self._doomed, self._replaced = [], []

    # -- what was done ---------------------------------------------------------------------------------------

    def sidecars(self, step: Step) -> dict[str, str]:
        """The sidecars of a stateful step, by unit key."""
        return {unit: unit.join(stage.sidecar) for unit, brief in self.records.items()
                for stage in brief.stages
                if stage.name == step.name and stage.sidecar and stage.key == step.key}

    def written(self) -> Iterator[tuple[str, FileRecord]]:
        """The files of all finished units, each with its stage's name; read from the ledger's own files."""
        for record in (to_record(line) for line in self._lines() if not is_marked(line)):
            for name, stage in record.stages.items():
                for file in stage.files:
                    yield name, file

    def kept_of(self, phase: Phase, unit: Unit, need: Need) -> Unit:
        """What checkpoints kept of a unit that begins there, as a unit to be read."""
        record = to_record(self.files.line_at(*self.unfinished[unit.key]))
        files = (f for name in sorted(taken_up(phase, need)) for f in record.stages[name].files)
        return Unit(tuple(SourceRange(uri=f.path.removeprefix(f"{CHECKPOINTS}/"), size_bytes=f.size_bytes)
                          for f in files))

    def adopt(self, phase: Phase) -> None:
        """Take what was done under other keys for what the phase's steps of the same name would do."""
        keys = {step.name: step.key for step in phase.steps}

        def edit(record: Record) -> Record:
            for name, stage in record.stages.items():
                stage.key = keys.get(name, stage.key)
            return record

        if touched := self._outdated(keys):
            self._rewrite(edit, touched)

    def of_units(self, units: Container[str]) -> Iterator[Record]:
        """The records of these units."""
        return (to_record(line) for line in self._lines() if unit_of(line) in units)

    def spooled(self, step: Step) -> list[FileInfo]:
        """The files that a step spooled of all finished units; `uri` is relative to the folder of spools."""
        files = [file for name, file in self.written() if name == step.name]
        return [FileInfo(f.path.removeprefix(f"{SPOOLS}/"), f.size_bytes, step.key) for f in files]

    def missing(self, plan: Plan, units: Collection[str]) -> list[FileRecord]:
        """Files that sinks of the plan wrote of these units, that nothing took out, and that are gone."""
        if not units:
            return []
        sinks = {step.name: (step.key, sink_folder(step.sink)) for step in plan.steps
                 if isinstance(step.stage, Sink) and not (step.implicit or step.part_of or step.spool)}
        there = {name: set(folder.names(recursive=True)) for name, (_, folder) in sinks.items()}
        return [file for record in self.of_units(units) for name, (key, folder) in sinks.items()
                if (stage := record.stages.get(name)) and stage.key == key for file in stage.files
                if self.out.full_path(file.path).removeprefix(folder.path_of("")) not in there[name]]

    def named(self) -> Iterator[str]:
        """All that records name, also those of units that are to be done again."""
        return (path for line in self._lines() for stage in to_record(line).stages.values()
                for path in stage.named())

    def outdated(self, keys: Mapping[str, str]) -> Iterator[Record]:
        """Units with steps that have other keys now, or none. `keys`: by step."""
        units = self._outdated(keys)
        return self.of_units(units) if units else iter(())

    def _outdated(self, keys: Mapping[str, str]) -> set[str]:
        alike = {stages: any(s.key != keys.get(s.name) for s in stages)
                 for stages in {brief.stages for brief in self.records.values()}}
        return {unit for unit, brief in self.records.items()
                if alike[brief.stages]} if any(alike.values()) else set()

    def _lines(self) -> Iterator[bytes]:
        """The true line of each unit that was written down."""
        return (line for _, _, line in self.files.units())

    def counts(self) -> dict[str, Counts]:
        """The counts of all finished units, and of what is kept of those that are done again from their
        checkpoints, by stage; the caller's own copy."""
        copy: dict[str, Counts] = {}
        add_counts(copy, self._totals)
        add_counts(copy, self._ahead)
        return copy
