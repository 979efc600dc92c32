"""What the readers of tables with versions share: one schema, files that a version names, units of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, Source, SourceRange, Unit, setting
from curator.io.files.faults import is_damage
from curator.io.files.folder import FileInfo
from curator.io.source import failures
from curator.io.tables.columns import check_named
from curator.io.tables.records import Failure, as_records, pieces, visible_names
from curator.io.units import TARGET_BYTES, plan_units


@dataclass(kw_only=True)
class LakeSource(Source):
    """Records of a table of which a version is read, as it was when the run began. Subclasses say which files
    it has (`look`), and read one (`rows`).

    `select`, `id_column`, `unit_bytes`: as for `parquet`.
    """

    path: str = setting()
    select: list[str] | None = None
    id_column: str = "id"
    storage_options: dict[str, Any] | None = setting(default=None)
    unit_bytes: int = setting(default=TARGET_BYTES)

    def __post_init__(self) -> None:
        if isinstance(self.path, list) and len(self.path) == 1:
            self.path = self.path[0]
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(f"path must name one table, got {self.path!r}")
        if isinstance(self.select, str) or self.select == []:
            raise ValueError(f"select must be a list of column names, got {self.select!r}")

    def units(self) -> list[Unit]:
        _, files = self._looked()
        if not files:
            raise InputError(f"{self.path} has no rows")
        return plan_units(files, self.unit_bytes)

    def columns(self) -> dict[str, pa.DataType | None]:
        schema, _ = self._looked()
        names = self.wanted(schema.names)
        known = dict(zip(visible_names(names), (schema.field(name).type for name in names), strict=True))
        return {**known, "id": pa.string(), "source": pa.string()}

    def read(self, unit: Unit) -> Iterator[Batch | Outputs]:
        for part in unit.parts:
            done = 0
            try:
                for rows, positions in self.rows(part):
                    yield from pieces(as_records(rows, self.source_of(part), positions, self.id_column))
                    done += rows.num_rows
            except Exception as error:
                # elsewhere than on this machine it cannot be told: there the engine tries the unit again
                here = "://" not in part.uri.removeprefix("file://")
                if not here or not (is_damage(error) or isinstance(error, RuntimeError)):
                    raise
                fault = InputError(f"{part.uri}: what is behind its first {done} rows cannot be read: "
                                   f"{error}")
                fault.__cause__ = error
                yield failures(part, [Failure(f"{part.uri}:row={done}", done, fault)])

    def _looked(self) -> tuple[pa.Schema, list[FileInfo]]:
        if self.pinned is None:
            self.pin()
        schema, files = self.look()
        check_named("select", self.select or (), schema.names, self.path)
        return schema, files

    def wanted(self, names: list[str]) -> list[str]:
        """The columns to read: those selected, and those an `id` and a `source` come from."""
        chosen = {*self.select, self.id_column, "source"} if self.select else set(names)
        return [name for name in names if name in chosen]

    @abstractmethod
    def source_of(self, part: SourceRange) -> str:
        """What `source` says of rows of a file. Ids are made from it."""

    @abstractmethod
    def look(self) -> tuple[pa.Schema, list[FileInfo]]:
        """The columns and the files of the version that is read. A file's `version` changes with the rows
        that are read of it."""

    @abstractmethod
    def rows(self, part: SourceRange) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """The rows of a file that are valid in the version, with their places: no two rows of the table share
        one."""


def missing(package: str, extra: str, error: ImportError) -> InputError:
    return InputError(f"this needs the package {package}. Install it with: pip install "
                      f"'curator-core[{extra}]' ({error})")


