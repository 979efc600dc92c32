"""What runs again of the records that failed: alone, from where they failed, or with their unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from curator.api.errors import CuratorError
from curator.api.stage import Reduce, SourceRange, Unit
from curator.io.failed import FailedRows, FromFailed, killed, matches, opened
from curator.io.files.folder import Folder
from curator.io.files.listing import RUN
from curator.pipeline.plan import Phase, Plan, Step
from curator.recipe.dump import dump
from curator.run.folder.ledger import Ledger
from curator.run.folder.ledger_files import FileRecord, Record, counts_of

READ = "the stage reads the input"
SHARD = "the stage sees all records before it answers for any"
PAYLOAD = "what the stage works on is not in failed/"
MADE = "the stage makes records of records, and which of them failed is not known"
LOST = "a worker died, and its record is kept as it was some stages before"
BESIDE = "another record of the same unit cannot run again alone"


@dataclass(kw_only=True)
class Replay:
    """Which failed records run again: those of a stage, those with a text in their error, or all.

    `keep_passed`: where code has changed since, the results of records that passed stay as they are.

    What a run finds: `rows`: records that run again alone, by stage. `whole`: those whose unit is read again,
    by stage and why. `units`: how many these are.
    """

    stage: str | None = None
    error: str = ""
    keep_passed: bool = False
    rows: Counter[str] = field(default_factory=Counter)
    whole: Counter[tuple[str, str]] = field(default_factory=Counter)
    units: int = 0

    def refuse(self, described: str) -> bool:
        """Say what is to be done where more has changed than may be replayed.

        Raises:
            CuratorError: always.
        """
        raise CuratorError(f"{described}. `curator run` does that. If only code was mended, and what passed "
                           "would pass as it did: curator replay --keep-passed (keep_passed=True)")

    def check(self, plan: Plan) -> None:
        """That it is the recipe of the run, if what passed is kept.

        Raises:
            CuratorError: it was edited.
        """
        own = plan.out.sub(RUN)
        before = own.read("recipe.yaml").decode() if own.exists("recipe.yaml") else ""
        if self.keep_passed and _without_out(before) != _without_out(dump(plan.pipeline)):
            raise CuratorError(f"the recipe is not that of the run in {plan.out.uri}: results that an edit "
                               "changes are not kept. `curator run` does again what is to be done")

    def stages(self, out: Folder) -> set[str]:
        """The stages that may have failed records."""
        found = {name.rpartition("/")[0] for name in out.sub("failed").names(recursive=True)}
        return found & {self.stage} if self.stage else found

    def choose(self, phase: Phase, ledger: Ledger,
               units: Mapping[str, Unit]) -> tuple[dict[str, FailedRows], set[str]]:
        """By unit, the failed rows that run again alone; and the units that are read again, of these.

        Raises:
            InputError: a file is gone or damaged.
        """
        reader = next((s.stage for s in phase.steps if isinstance(s.stage, FromFailed)), None)
        steps = {step.name: step for step in phase.steps}
        kept = {s.name: steps[s.after[0][0]] for s in phase.steps if s.implicit and s.evidence
                and self.stage in (None, s.after[0][0])}
        alone: dict[str, FailedRows] = {}
        whole: set[str] = set()
        for record in (r for r in ledger.of_units(units) if not r.redo):
            found: list[tuple[str, int, str]] = []
            for name in kept.keys() & record.stages.keys():
                for file in record.stages[name].files:
                    rows, why = self._asked(ledger, reader, record, kept[name], file)
                    if rows:
                        found.append((kept[name].name, rows, why))
            if any(why for _, _, why in found):
                whole.add(record.unit)
                self.whole.update({(stage, why or BESIDE): rows for stage, rows, why in found})
            elif found:
                # all files of these stages: rows that are not asked for are written anew with those that fail
                stages = {stage for stage, _, _ in found}
                parts = tuple(SourceRange(uri=file.path, size_bytes=file.size_bytes, version=kept[name].name)
                              for name in kept if kept[name].name in stages and name in record.stages
                              for file in record.stages[name].files)
                alone[record.unit] = FailedRows(of=units[record.unit], parts=parts, text=self.error,
                                                rows=sum(rows for _, rows, _ in found))
                for stage, rows, _ in found:
                    self.rows[stage] += rows
        self.units += len(whole)
        return alone, whole

    def _asked(self, ledger: Ledger, reader: FromFailed | None, record: Record, step: Step,
               file: FileRecord) -> tuple[int, str]:
        """How many rows of a file are asked for, and why they cannot run again alone; "" if they can."""
        kept = opened(ledger.out, file.path)
        errors = kept.read(columns=["error"])
        asked = matches(errors.column("error"), self.error)
        rows = int(asked.sum())
        if not rows:
            return 0, ""
        if reader is None or step.name not in reader.needs:
            return rows, SHARD if isinstance(step.stage, Reduce) else READ
        if not reader.suffices(step.name, kept.schema_arrow.names):
            return rows, PAYLOAD
        if counts_of(record.stages[step.name]).made > 0:
            return rows, MADE
        died = step.name in reader.behind and (killed(errors) & asked).any()
        return rows, LOST if died else ""


def _without_out(recipe: str) -> list[str]:
    """A recipe but for the run's folder, which may have been moved."""
    return [line for line in recipe.splitlines() if not line.startswith("out:")]
