"""Rows that failed, read from `failed/` to go once more through the stage where they did."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, Source, SourceRange, Unit, setting
from curator.io.files.folder import Folder

ROWS = 1000  # that are read at a time
KILLED = r"^(the worker died: |a call took longer than its limit)"
WHY = ("error", "traceback")  # what a row has that failed


@dataclass(frozen=True, kw_only=True)
class FailedRows(Unit):
    """Failed rows of a unit that is finished, whose key this has.

    `parts`: files, relative to the run's folder; the `version` of each is the stage where its rows failed.
    `text`: rows with this in their error only; there are `rows` of these.
    """

    of: Unit
    rows: int
    text: str = ""
    parts: tuple[SourceRange, ...] = ()

    @property
    def key(self) -> str:
        return self.of.key

    @property
    def label(self) -> str:
        return f"failed rows of {self.of.label}"

    @property
    def stages(self) -> set[str]:
        return {part.version for part in self.parts}


@dataclass(kw_only=True)
class FromFailed(Source):
    """Reads files below `failed/`: rows that are asked for to the port that is called as the stage where they
    failed, all others to `failed/<stage>`.

    `path`: the run's folder. `needs`: by stage, the columns and payloads that it and those behind it read;
    None where nobody knows. `counted`: by stage, the columns by whose values it counts rows. `behind`: stages
    that are fused to one before them in other runs.
    """

    path: str = setting()
    needs: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    counted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    behind: Collection[str] = ()
    storage_options: dict[str, Any] | None = setting(default=None)

    def units(self) -> list[Unit]:
        """None: the ledger tells what failed."""
        return []

    def read(self, unit: Unit) -> Iterator[Outputs]:
        """Rows as they are kept, with `error` and `traceback`."""
        assert isinstance(unit, FailedRows)
        folder = Folder.open(self.path, self.storage_options)
        for part in unit.parts:
            with opened(folder, part.uri) as file:
                for some in file.iter_batches(ROWS):
                    batch = Batch(pa.Table.from_batches([some]))
                    asked = matches(batch.rows.column("error"), unit.text)
                    yield Outputs({part.version: batch.filter(asked),
                                   f"failed/{part.version}": batch.filter(~asked)})

    def suffices(self, stage: str, columns: Collection[str]) -> bool:
        """Whether rows with these columns can come to a stage again: nothing that it reads was a payload,
        which no file has, and nothing hid behind the error."""
        needs = self.needs.get(stage)
        return needs is not None and set(needs) <= set(columns) - set(WHY)


def opened(folder: Folder, path: str) -> pq.ParquetFile:
    """A file of failed rows.

    Raises:
        InputError: it is gone or damaged.
    """
    try:
        return pq.ParquetFile(folder.open_file(path))
    except pa.ArrowException as error:
        raise InputError(f"{folder.path_of(path)} cannot be read: {error}") from error


def matches(errors: pa.ChunkedArray, text: str) -> np.ndarray:
    """Which errors have this text, in whatever case."""
    found = pc.match_substring(errors.cast(pa.string()), text, ignore_case=True)
    return pc.fill_null(found, not text).to_numpy(zero_copy_only=False)


def killed(rows: pa.Table) -> np.ndarray:
    """Which rows killed a worker, or took it too long: these are kept as they were before its first stage."""
    found = pc.match_substring_regex(rows.column("error").cast(pa.string()), KILLED)
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)
