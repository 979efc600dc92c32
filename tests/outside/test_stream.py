"""A loop over a pipeline: all rows once, the run a bounded amount ahead, nothing left behind."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import Batch, CuratorError, RecipeError, Source, read, stage, write
from curator.api.errors import RunStopped
from curator.api.stage import SourceRange, Unit
from curator.front import from_source
from curator.outside import stream

FILES, ROWS = 12, 100


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Files that are a unit each, and a temporary folder of our own."""
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(FILES):
        text = [f"{n} {row} " * 90 for row in range(ROWS)]
        pq.write_table(pa.table({"text": text, "row": range(n * ROWS, (n + 1) * ROWS)}), folder / f"{n:02}.parquet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return read(str(folder / "*.parquet"), unit_bytes=pq_bytes(folder) // FILES)


def pq_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def left_behind() -> list:
    return [*Path(tempfile.gettempdir()).glob("curator-loop*"),
            *(thread for thread in threading.enumerate() if thread.name == "curator loop")]


def processes(of: str = "self") -> int:
    """How many there are below this one."""
    found = [pid for task in Path(f"/proc/{of}/task").glob("*/children") for pid in task.read_text().split()]
    return len(found) + sum(map(processes, found))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_gets_every_row_once_and_leaves_nothing(many, workers):
    tables = list((many >> {"drop": {"odd": "row % 2 = 1"}}).batches(workers=workers))
    assert sorted(row for table in tables for row in table["row"].to_pylist()) == list(range(0, FILES * ROWS, 2))
    assert not left_behind()


def test_tables_have_as_many_rows_as_are_asked_for(many):
    sizes = [table.num_rows for table in many.batches(rows=230, workers=0)]
    assert sizes == [230] * 5 + [50]


def test_the_run_stops_ahead_of_the_loop_at_a_bounded_amount(many, monkeypatch):
    monkeypatch.setattr(stream, "AHEAD_BYTES", 100_000)
    rows = 0
    for number, table in enumerate(many.batches(workers=0)):
        working = next(thread for thread in threading.enumerate() if thread.name == "curator loop") if number < 3 else None
        if working is not None:
            working.join(0.3)  # time enough for all, were it not to wait
            assert working.is_alive()
        [pieces] = Path(tempfile.gettempdir()).glob("curator-loop*/pieces")
        assert sum(file.stat().st_size for file in pieces.glob("*.arrow")) < 250_000  # of 900 kB; a piece may have two files
        rows += table.num_rows
    assert rows == FILES * ROWS


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_is_left_ends_the_run(many, monkeypatch, workers):
    monkeypatch.setattr(stream, "AHEAD_BYTES", 1)
    for table in many.batches(workers=workers):
        assert table.num_rows
        working = processes()
        break
    assert not left_behind()
    assert processes() < working or not workers


def test_an_error_of_a_stage_reaches_the_loop_behind_what_came_before_it(many):
    @stage(needs={"row"})
    def broken(batch):
        if max(batch.column("row")) >= 5 * ROWS:
            raise ValueError("this one is too much")
        return batch

    rows = []
    with pytest.raises(RunStopped, match="this one is too much") as caught:
        rows.extend(table.num_rows for table in (many >> broken).batches(workers=0))
    assert rows
    assert "curator-loop" not in str(caught.value)  # a folder that is gone
    assert not left_behind()


@dataclass(kw_only=True)
class Flaky(Source):
    """A unit of three batches that cannot be read to its end at first."""

    seen: str = field()

    def units(self):
        return [Unit((SourceRange(uri="flaky", size_bytes=1),))]

    def read(self, unit):
        for n in range(3):
            yield Batch(pa.table({"id": [f"{n}-{k}" for k in range(5)], "source": ["flaky"] * 5}))
            if n == 1 and not os.path.exists(self.seen):
                Path(self.seen).touch()
                raise ConnectionError("it hung up")


def test_a_unit_that_begins_again_gives_no_row_twice(tmp_path):
    tables = list(from_source(Flaky(seen=str(tmp_path / "seen"))).batches(workers=0))
    assert [one for table in tables for one in table["id"].to_pylist()] == [f"{n}-{k}" for n in range(3) for k in range(5)]


@given(st.lists(st.sampled_from("abc"), max_size=8), st.data())
@settings(max_examples=40)
def test_attempts_of_a_unit_together_give_its_rows_once(ids, data):
    """Each attempt has the same rows in its own order, and ends anywhere but for the last one."""
    given_rows, last = Counter(), data.draw(st.integers(1, 3))
    known = stream._Given()
    for attempt in range(last):
        order = data.draw(st.permutations(ids))
        part = order if attempt == last - 1 else order[:data.draw(st.integers(0, len(ids)))]
        for at in range(0, len(part), 3):
            given_rows.update(known.fresh("unit", f"attempt {attempt}", pa.table({"id": pa.array(part[at:at + 3], pa.string())}),
                                          False)["id"].to_pylist())
    known.fresh("unit", f"attempt {last - 1}", pa.table({}), True)
    assert given_rows == Counter(ids)
    assert not known.fresh("unit", "another", pa.table({"id": ["a"]}), False).num_rows


def test_a_pipeline_with_a_sink_has_nothing_for_a_loop():
    with pytest.raises(RecipeError, match="writes to a sink"):
        iter(read([{"text": "one"}]) >> write("out"))
    with pytest.raises(CuratorError, match="this machine"):
        read([{"text": "one"}]).batches(ray=True)
