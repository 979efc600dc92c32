"""Readers and writers in a few words."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from curator.api.batch import Batch
from curator.api.stage import Outputs


class Records:
    """What a source gave: the good records and the failed ones, as dicts."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.failed: list[dict] = []

    @property
    def good(self) -> list[dict]:
        return [row for table in self.tables for row in table.to_pylist()]

    def column(self, name: str) -> list:
        return [row.get(name) for row in self.good]

    def types(self, name: str) -> set[pa.DataType]:
        return {table.schema.field(name).type for table in self.tables}


def _read_all(source, units=None) -> Records:
    found = Records()
    for unit in source.units() if units is None else units:
        for given in source.read(unit):
            if isinstance(given, Outputs):
                found.failed += given["failed"].rows.to_pylist()
            else:
                found.tables.append(given.rows)
    return found


def _write_all(sink, *tables, name="part-x-a0"):
    writer = sink.open(name)
    for table in tables:
        writer.write(Batch(rows=table))
    return writer.close()


@pytest.fixture(scope="session")
def read_all():
    """`read_all(source, units=None)`: all that a source gives."""
    return _read_all


@pytest.fixture(scope="session")
def write_all():
    """`write_all(sink, *tables, name=...)`: the files that a sink makes of tables."""
    return _write_all


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path) -> str:
    """A folder that does not exist yet, on this disk and in memory."""
    return str(tmp_path / "data") if request.param == "local" else f"memory://test-{uuid.uuid4().hex}/data"
