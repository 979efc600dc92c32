"""What the readers of tables with versions share: one schema, files that a version names, units of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange, Unit
from curator.io.files.faults import is_damage
from curator.io.files.folder import FileInfo
from curator.io.source import VersionedSource, unreadable
from curator.io.tables.columns import check_named
from curator.io.tables.records import as_records, pieces, visible_names
from curator.io.units import plan_units


@dataclass(kw_only=True)
class LakeSource(VersionedSource):
    """Records of a table of which a version is read, as it was when the run began. Subclasses say which files
    it has (`look`), and read one (`rows`).

    `select`, `id_column`, `unit_bytes`: as for `parquet`.
    """

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
                yield unreadable(part, "row", done, f"what is behind its first {done} rows", error)

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

    def source_of(self, part: SourceRange) -> str:
        """What `source` says of rows of a file. Ids are made from it."""
        return part.uri

    @abstractmethod
    def look(self) -> tuple[pa.Schema, list[FileInfo]]:
        """The columns and the files of the version that is read. A file's `version` changes with the rows
        that are read of it."""

    @abstractmethod
    def rows(self, part: SourceRange) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """The rows of a file that are valid in the version, with their places: no two rows of the table share
        one."""
