"""The Parquet file beside a WebDataset shard: what it alone says of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from curator.api.errors import InputError
from curator.io.files.folder import open_input
from curator.io.tables.columns import Seen, conform

ENDING = ".parquet"


def of_shards(columns: dict[str, Seen]) -> dict[str, Seen]:
    """Of the columns of a source those that were seen in shards, not beside them."""
    return {name: seen for name, seen in columns.items() if not seen.place.endswith(ENDING)}


class Beside:
    """The table beside a shard; one without columns where there is none. Columns are read as they are asked
    for, and kept.

    Raises:
        InputError: it cannot be read.
    """

    def __init__(self, shard: str, storage_options: dict[str, Any] | None) -> None:
        import pyarrow.parquet as pq

        self.uri = shard.removesuffix(".tar") + ENDING
        self._file: Any = None
        self._columns: dict[str, pa.ChunkedArray] = {}
        if shard.endswith(".tar"):
            try:
                self._file = pq.ParquetFile(open_input(self.uri, storage_options))
            except InputError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
            except pa.ArrowException as error:
                raise InputError(f"{self.uri}, beside its shard, cannot be read: {error}. Remove it, or read "
                                 "without `metadata`") from error
        self.schema: pa.Schema = self._file.schema_arrow if self._file is not None else pa.schema([])
        if "key" not in self.schema.names:
            self.schema = pa.schema([])

    def columns(self, but: Sequence[str]) -> list[tuple[str, Seen]]:
        """Its columns, but for those that the shard has."""
        return [(f.name, Seen(f.type, self.uri)) for f in self.schema if f.name not in but]

    def filled(self, rows: pa.Table, keys: Sequence[str], columns: dict[str, Seen]) -> pa.Table:
        """The rows with its values in those of the columns that they do not have. `keys`: of the samples, as
        the shard names them."""
        missing = [name for name in self.schema.names if name in columns and name not in rows.column_names]
        if missing:
            places = {key: at for at, key in enumerate(self._column("key").to_pylist())}
            at = pa.array([places.get(key) for key in keys], pa.int64())
            for name in missing:
                rows = rows.append_column(name, self._column(name).take(at))
        return conform(rows, columns)[0]

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self._columns:
            self._columns[name] = self._file.read([name], use_threads=False).column(0)
        return self._columns[name]
