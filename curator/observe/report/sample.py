"""A sample of a run's rows, spread over its files: enough to draw what the scores look like."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.folder import Folder, open_input
from curator.io.tables.parquet import BUFFER_BYTES

ROWS_MAX = 50_000  # of one output: a port of a stage,
LINES_MAX = 4_000  # where they are lines of JSON, which take a hundred times as long
FILES_MAX = 32  # that are read for it
ENDINGS = ("written", *SIDE_OUTPUTS)

Stats = Mapping[str, Any]


@dataclass(frozen=True)
class Sample:
    """Rows that ended at one port of one stage. `total`: how many there are; `rows` stands for all of
    them."""

    port: str
    stage: str
    rows: pa.Table
    total: int

    @property
    def weight(self) -> float:
        """How many rows of the run one row of the sample stands for."""
        return self.total / max(1, len(self.rows))


def files_by_end(stats: Stats) -> list[tuple[tuple[str, str], list[str]]]:
    """The files that can be read as tables, by (port, stage): the written first, then by ending in pipeline
    order."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in stats["files"]:
        if (file["path"].endswith(".parquet") or ".jsonl" in file["path"]) and file["port"] in ENDINGS:
            found.setdefault((file["port"], file["stage"]), []).append(file["path"])
    order = {stage["name"]: at for at, stage in enumerate(stats["stages"])}
    return sorted(found.items(), key=lambda one: (ENDINGS.index(one[0][0]), order.get(one[0][1], len(order))))


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, from all over: the first one, and the others at equal distances."""
    return [items[at * len(items) // most] for at in range(most)] if len(items) > most else list(items)


def samples(stats: Stats, out: Folder, columns: Collection[str]) -> list[Sample]:
    """A sample of every output that has files: those of the columns that it has, whatever their types.

    Reads at most `ROWS_MAX` rows of an output, in groups from all over its files. Files that cannot be read
    any more give none.
    """
    rows = {(group["port"], group["stage"]): group["rows"] for group in stats["outputs"]}
    found = []
    for (port, stage), paths in files_by_end(stats):
        chosen = spread(paths, FILES_MAX)
        tables = [table for path in chosen if (table := _table(out, path, columns, len(chosen))) is not None]
        if tables:
            table = pa.concat_tables(tables, promote_options="permissive")
            found.append(Sample(port, stage, table, rows.get((port, stage), len(table))))
    return found


def _table(out: Folder, path: str, columns: Collection[str], files: int) -> pa.Table | None:
    try:
        with open_input(out.full_path(path), out.storage_options) as file:
            if path.endswith(".parquet"):
                return _parquet(file, columns, max(1, ROWS_MAX // files))
            return _lines(file, columns, max(1, LINES_MAX // files))
    except (InputError, OSError, ValueError, pa.ArrowException):
        return None


def _parquet(file: BinaryIO, columns: Collection[str], most: int) -> pa.Table:
    """The beginnings of row groups from all over the file."""
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    names = [f.name for f in opened.schema_arrow if f.name in columns]
    schema = pa.schema([f for f in opened.schema_arrow if f.name in columns])
    if not names:  # that there are rows, and how many, is known all the same
        return pa.table({"": pa.nulls(min(most, opened.metadata.num_rows))}).select([])
    groups = spread(range(opened.num_row_groups), 16)
    each = -(-most // max(1, len(groups)))
    batches = [batch.slice(0, each) for group in groups
               for batch in islice(opened.iter_batches(each, row_groups=[group], columns=names,
                                                       use_threads=False), 1)]
    return pa.Table.from_batches(batches, schema).replace_schema_metadata(None)


def _lines(file: BinaryIO, columns: Collection[str], most: int) -> pa.Table:
    import json

    rows = [json.loads(line) for line in islice(file, most)]
    return pa.Table.from_pylist([{name: row.get(name) for name in columns if name in row} for row in rows])
