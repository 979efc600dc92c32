"""Runs that are not a finished folder on this disk: in an object store, and at work."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import Stage, load, read, write
from curator.explore.questions import Questions
from curator.results import RunOutput
from curator.stages import Drop
from tests.explore.runs import STEPS, png, texts


@pytest.mark.slow
def test_a_run_in_an_object_store_is_looked_at_where_it_is(tmp_path, bucket, s3_options):
    rows = [{**row, "picture": None} for row in texts(40)]
    rows[12]["picture"] = png()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    recipe = f"name: far\nread: {{parquet: {{path: {tmp_path}/in.parquet}}}}\nsteps:{STEPS}\nwrite: parquet\n"
    load(recipe + f"out: {tmp_path}/near\n").run(workers=0)
    load(recipe + f"out: {bucket}/far\nstorage_options: {json.dumps(s3_options)}\n").run(workers=0)
    here = Questions(RunOutput.open(f"{tmp_path}/near"))
    there = Questions(RunOutput.open(f"{bucket}/far", s3_options))
    rule = {"stage": "drop", "reason": "few", "at": 0}
    for name, given in (("page", {"sort": "n", "limit": 50}), ("counts", {"by": "reason"}), ("histogram", {"rule": rule}),
                        ("near", {"rule": rule, "value": 12}),
                        ("what_if", {"changes": [{"stage": "drop", "reason": "few", "values": [20]}]})):
        answers = [one.answer(name, given) for one in (here, there)]
        for some in (some for answer in answers for some in answer.values() if isinstance(some, list)):
            for row in (row for row in some if isinstance(row, dict)):
                row.pop("_file", None)
        assert answers[0] == answers[1], name
    assert there.answer("run", {})["places"] == here.answer("run", {})["places"]
    [row] = there.answer("page", {"filter": {"where": "n = 12"}})["rows"]
    asked = {"id": row["id"], "place": row["_place"], "stage": row["_stage"], "file": row["_file"], "column": "picture"}
    with there.blob(asked) as blob:
        assert b"".join(blob.pieces(0, blob.size, 1 << 16)) == png()
    here.close()
    there.close()


@dataclass(kw_only=True)
class Slow(Stage):
    def process(self, batch):
        time.sleep(1)
        return batch


@pytest.mark.slow
def test_a_run_that_works_shows_the_units_that_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr("curator.run.run.STATS_S", 0.05)
    for file in range(5):
        pq.write_table(pa.Table.from_pylist([{**row, "id": f"{file}-{row['id']}"} for row in texts(40)]), tmp_path / f"{file}.parquet")
    slow = Slow().with_(batch_size=40)
    made = (read(f"{tmp_path}/*.parquet", unit_bytes=1) >> slow >> Drop(conditions={"few": "n < 10"})
            >> write(f"{tmp_path}/out", format="parquet"))
    thread = threading.Thread(target=made.run, kwargs={"workers": 1})
    thread.start()
    total, status = 0, ""
    try:
        while thread.is_alive() and not total:
            thread.join(0.3)
            if (tmp_path / "out/_run/stats.json").exists():
                questions = Questions(RunOutput.open(str(tmp_path / "out")))
                told = questions.answer("run", {})
                total, status = told["total"], told["status"]
                rows = questions.answer("page", {"limit": 200})["rows"]
                assert len(rows) == min(200, total)
                assert told["places"]["data"] == total * 3 // 4  # whole units
                questions.close()
    finally:
        thread.join()
    assert status == "running"
    assert 0 < total < 200
