"""The Parquet files that a run wrote, as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import WrittenFile
from curator.io.files.folder import open_input
from curator.io.tables.columns import Seen, conform, merge
from curator.io.tables.records import PIECE_ROWS


def schema_of(files: Sequence[WrittenFile], options: dict[str, Any] | None) -> pa.Schema:
    """The columns of all files, each in a type that holds those of all. `options`: of their filesystem.

    Raises:
        InputError: a column has types that no common type holds.
    """
    import pyarrow.parquet as pq

    columns: dict[str, Seen] = {}
    for file in files:
        with open_input(file.path, options, None) as opened:
            schema = pq.read_schema(opened)
        merge(columns, [(field.name, Seen(field.type, file.path)) for field in schema])
    return pa.schema([(name, seen.type) for name, seen in columns.items()])


def rows_of(files: Sequence[WrittenFile], options: dict[str, Any] | None,
            schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of all files, some at a time, with these columns; null where a file lacks one.

    Raises:
        InputError: a value does not fit the type of its column (2**53 + 1 as a float).
    """
    import pyarrow.parquet as pq

    seen = {field.name: Seen(field.type, "") for field in schema}
    for file in files:
        with open_input(file.path, options, None) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(PIECE_ROWS):
                rows, _ = conform(pa.Table.from_batches([batch]).replace_schema_metadata(), seen)
                try:
                    rows = rows.select(schema.names).cast(schema)
                except pa.ArrowException as error:
                    raise InputError(f"{file.path}: a value does not fit the type that its column has in all "
                                     f"files ({error}). Convert it in a step before") from error
                yield rows
