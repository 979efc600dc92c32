"""The line of a unit when rows of it that had failed ran again: as if it had been so at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from curator.api.counts import WRITTEN, Counts
from curator.api.stage import WrittenFile
from curator.engine.events import Commit
from curator.io.failed import FailedRows, FromFailed
from curator.pipeline.plan import Phase
from curator.run.folder.ledger_files import FileRecord, Record, StageRecord, counts_of, to_line


def take_in(record: Record, phase: Phase, unit: FailedRows, commit: Commit,
            named: Callable[[WrittenFile], FileRecord], totals: dict[str, Counts]) -> list[str]:
    """Put what became of the rows into the record and the totals of its ledger; gives the files that it names
    no more. So one line says both: that the results are there, and that the rows they came from are not."""
    steps = [s for s in phase.steps if s.name in commit.ran]
    readers = [s.name for s in steps if isinstance(s.stage, FromFailed)]
    gone = {stage: counts for name in readers if name in commit.counts
            for stage, counts in commit.counts[name].inner.items()}
    read, replaced = {part.uri for part in unit.parts}, []
    for step in (s for s in steps if s.name not in readers):
        if step.checkpoint and step.name not in record.stages:  # it would hold these rows, and no others
            continue
        before = record.stages.get(step.name, StageRecord(step.key))
        new, less = commit.counts.get(step.name, Counts()), gone.get(step.name, Counts())
        files = [file for file in before.files if file.path not in read]
        if rows := sum(file.rows for file in before.files) - sum(file.rows for file in files):
            less = Counts(rows_in=rows, out={WRITTEN: rows})  # of the sink that kept them
        counts = counts_of(before)
        for sums in (counts, totals.setdefault(step.name, Counts())):
            sums.add(new)
            sums.take_away(less)
        sidecar = commit.snapshots.get(step.name, before.sidecar)
        replaced += [file.path for file in before.files if file.path in read]
        replaced += [f"_run/state/{before.sidecar}"] if before.sidecar not in (None, sidecar) else []
        record.stages[step.name] = StageRecord(step.key, msgspec.Raw(to_line(counts.to_json())),
                                               files + [named(f) for f in commit.files.get(step.name, ())],
                                               sidecar)
    record.rests = {**record.rests, **commit.rests}
    return replaced
