"""Columns that a stage declares as amounts are summed wherever rows are counted, and the funnel shows the sums."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import Batch, Contract, Outputs, Stage, read, write
from curator.observe.report.funnel import show_funnel
from curator.stages import Drop


@dataclass(kw_only=True)
class Seconds(Stage):
    """Makes seconds of milliseconds; of every tenth record it makes two."""

    def contract(self) -> Contract:
        return Contract(adds={"seconds": pa.float64()})

    def amounts(self) -> dict:
        return {"seconds": "seconds"}

    def process(self, batch: Batch) -> Outputs:
        made = batch.with_columns({"seconds": pa.array(batch.array("ms") / 1000)})
        bad = batch.array("ms") == 7000
        return Outputs(out=made.filter(~bad).explode([2 if ms % 10_000 == 0 else 1 for ms in made.filter(~bad).column("ms")]),
                       failed=made.filter(bad).with_error("seven"))


@pytest.fixture(scope="module")
def stats(tmp_path_factory):
    folder = tmp_path_factory.mktemp("amounts")
    for part in range(4):
        numbers = range(25 * part, 25 * part + 25)
        pq.write_table(pa.table({"id": [str(n) for n in numbers], "ms": [1000 * n for n in numbers]}), folder / f"{part}.parquet")
    drop = Drop(conditions={"short": "seconds < 10", "odd": "seconds = 11"})
    (read(str(folder / "*.parquet")) >> Seconds() >> drop >> write(str(folder / "out"))).run(workers=1)
    return json.loads((folder / "out/_run/stats.json").read_text())


def test_sums_are_kept_by_port_and_reason(stats):
    stages = {stage["name"]: stage.get("amounts", {}).get("seconds") for stage in stats["stages"]}
    tens, rest = sum(range(0, 100, 10)), sum(range(100)) - sum(range(0, 100, 10)) - 7
    assert stages["parquet"] is None
    assert stages["seconds"] == {"out": {"out": 2 * tens + rest}, "failed": {"": 7}}
    lost = {"short": sum(range(1, 10)) - 7, "odd": 11}
    assert stages["drop"] == {"in": {"": 2 * tens + rest}, "out": {"out": 2 * tens + rest - sum(lost.values())}, "dropped": lost}
    assert stages["to_jsonl"]["out"] == {"written": stages["drop"]["out"]["out"]}


def test_the_funnel_shows_them_beside_the_records(stats):
    shown = io.StringIO()
    show_funnel(stats, shown)
    lines = [line.split() for line in shown.getvalue().splitlines() if line.strip()]
    assert lines[0][:3] == ["records", "share", "seconds"]
    assert next(line for line in lines if line[0] == "seconds")[3:5] == ["1.5", "h"]
    assert next(line for line in lines if "odd" in line)[-2:] == ["11.0", "s"]
