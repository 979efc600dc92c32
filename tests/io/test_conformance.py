"""The core's own readers and writers pass the kit also where there is no disk."""

from __future__ import annotations

import pyarrow as pa
import pytest

from curator.api.batch import Batch
from curator.io.tables.arrow import Arrow, ToArrow
from curator.io.tables.csv import Csv, ToCsv
from curator.io.tables.jsonl import Jsonl, ToJsonl
from curator.io.tables.parquet import Parquet, ToParquet
from curator.testing import check_sink, check_source

ROWS = Batch(rows=pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "text": ["x", None, "é\n"], "n": [1, 2, None]}))
PAIRS = [(ToJsonl, Jsonl), (ToParquet, Parquet), (ToCsv, Csv), (ToArrow, Arrow)]


@pytest.mark.parametrize("place", ["memory"], indirect=True)
@pytest.mark.parametrize("sink", [sink for sink, _ in PAIRS])
def test_sinks(place, sink):
    check_sink(sink(path=place), ROWS)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
@pytest.mark.parametrize(("sink", "source"), PAIRS)
def test_sources(place, write_all, sink, source):
    for k in range(3):
        write_all(sink(path=place), pa.table({"text": [f"t{k}-{i}" for i in range(50)]}), name=f"part-{k}")
    check_source(source(path=place))
    check_source(source(path=place, unit_bytes=100))
