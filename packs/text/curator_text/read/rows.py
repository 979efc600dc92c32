"""Rows on their way from a reader to batches, and files that cannot be opened."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange, Unit
from curator.api.tasks import TextBatch

BATCH_ROWS, BATCH_BYTES = 500, 2 << 20
_EXTRA = {"dropped": [("reason", pa.string())], "duplicate": [("duplicate_of", pa.string())],
          "failed": [("offset", pa.int64()), ("error", pa.string()), ("traceback", pa.string())]}
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError)  # trying again would not help


class Rows:
    """Rows by port, until there are enough for a batch. `schema`: the columns on `out`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._ports: dict[str, list[dict[str, Any]]] = {}
        self._count = self._bytes = 0

    def add(self, port: str, row: dict[str, Any]) -> None:
        self._ports.setdefault(port, []).append(row)
        self._count += 1
        self._bytes += sum(len(value) for value in row.values() if isinstance(value, (bytes, str)))

    def fail(self, row: dict[str, Any], error: BaseException) -> None:
        """A row on `failed`."""
        self.add("failed", row | {"error": f"{type(error).__name__}: {error}",
                                  "traceback": "".join(traceback.format_exception(error))})

    def __bool__(self) -> bool:
        return self._count > 0

    def full(self) -> bool:
        return self._count >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def take(self) -> Outputs:
        taken = Outputs({port: TextBatch(rows=pa.Table.from_pylist(rows, schema=self._schema_of(port)))
                         for port, rows in self._ports.items()})
        self._ports, self._count, self._bytes = {}, 0, 0
        return taken

    def _schema_of(self, port: str) -> pa.Schema:
        return pa.schema([*self._schema, *_EXTRA.get(port, ())])


def read_parts(unit: Unit, rows: Rows, read: Callable[[SourceRange], Iterator[None]]) -> Iterator[Outputs]:
    """What `read` adds to the rows of each part of a unit, record by record, in batches. A part that cannot be
    opened now nor later is a failed row, and the others are read."""
    for part in unit.parts:
        try:
            for _ in read(part):
                if rows.full():
                    yield rows.take()
        except InputError as error:
            if not is_lasting(error):
                raise
            name = f"{part.uri}@{part.start}" if part.start else part.uri  # another range of it may fail too
            rows.fail({"id": name, "source": part.uri}, error)
    if rows:
        yield rows.take()


def is_lasting(error: InputError) -> bool:
    """Whether a file cannot be opened now nor later, so that it is a failed record and the others are
    read."""
    return isinstance(error.__cause__, _LASTING)
