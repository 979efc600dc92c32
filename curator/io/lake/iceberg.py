"""Iceberg tables: a snapshot read by data files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import SourceRange, setting
from curator.io.files.faults import lacking
from curator.io.files.folder import FileInfo
from curator.io.lake.source import LakeSource
from curator.io.tables.columns import check_named


@dataclass(kw_only=True)
class Iceberg(LakeSource):
    """Read an Iceberg table, by data files; rows that were deleted are left out.

    A run reads one snapshot from its beginning to its end; continued, it does those files that are new or
    have other deletions, unless `revision` names the snapshot: then it reads the same again.

    `path`: `namespace.table` of a catalog, or the URL of a `…metadata.json`. `catalog`: its name, for which
    pyiceberg finds its address in the environment or in `~/.pyiceberg.yaml`. `storage_options`: further
    properties of catalog and files, as pyiceberg names them. `revision`: the id of a snapshot; None for the
    newest. `select`, `id_column`, `unit_bytes`: as for `parquet`. Known limit: tables with equality deletes
    are refused, as pyiceberg cannot read them. Needs `curator-core[iceberg]`.
    """

    catalog: str = setting(default="default")
    revision: int | None = setting(default=None)

    name = "iceberg"
    _metadata = ""  # where what is pinned is described; an instance's own goes to the workers

    def pin(self, version: str | int | None = None) -> None:
        table, wanted = self._table(), version or self.revision
        snapshot = table.snapshot_by_id(int(wanted)) if wanted else table.current_snapshot()
        if wanted and snapshot is None:
            known = ", ".join(str(one.snapshot_id) for one in table.snapshots()[-5:])
            raise InputError(f"{self.path} has no snapshot {wanted}; the last ones are {known}")
        self._metadata, self.pinned = table.metadata_location, snapshot.snapshot_id if snapshot else None
        self._opened = None

    def look(self) -> tuple[pa.Schema, list[FileInfo]]:
        table, files = self._table_as_pinned(), []
        check_named("select", self.select or (), [field.name for field in table.schema().fields], self.path)
        for url, task in self._planned(table).items() if self.pinned else ():
            deletes = sorted(one.file_path for one in task.delete_files)
            version = hashlib.blake2b("\n".join(deletes).encode(), digest_size=8).hexdigest()
            files.append(FileInfo(url, task.file.file_size_in_bytes, version))
        return _schema(self._scan(table)), sorted(files, key=lambda file: file.uri)

    def rows(self, part: SourceRange) -> Iterator[tuple[pa.Table, np.ndarray]]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        if self._opened is None:
            table = self._table_as_pinned()
            self._opened = table, self._planned(table)
        table, tasks = self._opened
        schema = _schema(self._scan(table))
        scan = ArrowScan(table.metadata, table.io, self._scan(table).projection(), AlwaysTrue())
        done = 0
        for batch in scan.to_record_batches([tasks[part.uri]]):
            places = np.arange(done, done + batch.num_rows)
            yield pa.Table.from_batches([batch]).cast(schema), places
            done += batch.num_rows

    def _scan(self, table: Any) -> Any:
        names = [field.name for field in table.schema().fields]
        fields = tuple(self.wanted(names)) if self.select else ("*",)
        return table.scan(snapshot_id=self.pinned, selected_fields=fields)

    def _planned(self, table: Any) -> dict[str, Any]:
        try:
            return {task.file.file_path: task for task in self._scan(table).plan_files()}
        except ValueError as error:  # equality deletes
            raise InputError(f"cannot read {self.path}: {error}") from error

    def _table_as_pinned(self) -> Any:
        """What the catalog knows of the files' place is asked for where it is needed."""
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(self._metadata, self._table().io.properties)

    def _table(self) -> Any:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.table import StaticTable
        except ImportError as error:
            raise InputError(lacking("pyiceberg", "an Iceberg table needs")) from error
        options = self.storage_options or {}
        try:
            if self.path.endswith(".metadata.json"):
                return StaticTable.from_metadata(self.path, options)
            return load_catalog(self.catalog, **options).load_table(self.path)
        except Exception as error:  # pyiceberg's have no class in common
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"cannot read the Iceberg table {self.path} of the catalog {self.catalog!r}: "
                             f"{told}. Check its name, and what PYICEBERG_CATALOG__… or ~/.pyiceberg.yaml "
                             "say of the catalog") from error


def _schema(scan: Any) -> pa.Schema:
    return pa.schema([(field.name, _small(field.type)) for field in scan.projection().as_arrow()])


def _small(kind: pa.DataType) -> pa.DataType:
    """The type as other readers give it. pyiceberg's is large in one file and small in another."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.string() if pa.types.is_large_string(kind) else pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _small(field.type)) for field in kind])
    return kind
