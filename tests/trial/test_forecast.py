"""What a run will take, by a sample: records, work, bytes and money; and machines in words."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import Contract, CuratorError, Stage, read, write
from curator.stages import Checkpoint, Drop
from curator.trial.forecast import Forecast, forecast
from curator.trial.forecast_text import in_words
from curator.trial.nodes import parse_nodes

RECORD_S = 0.002


@dataclass(kw_only=True)
class Slow(Stage):
    """Takes 2 ms a record."""

    def contract(self):
        return Contract(adds={"length": pa.int64()})

    def process(self, batch):
        time.sleep(RECORD_S * len(batch))
        return batch.with_columns({"length": [len(t) for t in batch.column("text")]})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """4,000 records in five files, a third of them short."""
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(5):
        rows = ({"text": ("long " * 60 if n % 3 else "short ") + str(n)} for n in range(800))
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def told(corpus):
    elsewhere = corpus.parent / "elsewhere"
    scored = read(f"{corpus}/*.jsonl") >> Slow() >> Checkpoint()
    pipeline = scored >> Drop(conditions={"short": "length < 100"}) >> write(str(elsewhere))
    found = forecast(pipeline, 400, parse_nodes("2x4cpu"))
    assert not elsewhere.exists()  # nothing is written but the sample, which is gone
    return found


def test_the_records_of_the_whole_are_told_by_a_sample_of_all_files(told):
    assert (told.parts, told.sampled_parts) == (5, 5)
    assert told.sampled_records <= 400
    assert told.records == pytest.approx(4000, rel=0.02)
    by_name = {stage["name"]: stage for stage in told.stages}
    assert by_name["drop"]["in"] == pytest.approx(4000, rel=0.02)
    assert by_name["drop"]["out"] / by_name["drop"]["in"] == pytest.approx(2 / 3, abs=0.02)


def test_work_grows_with_the_records_and_starting_counts_once(told):
    slow = next(stage for stage in told.stages if stage["name"] == "slow")
    assert 4000 * RECORD_S * 0.9 < slow["core_s"] < 4000 * RECORD_S * 4  # other work on this machine makes it slower
    assert told.seconds >= slow["core_s"] / 8 * 0.9
    low, high = told.between
    assert low < told.seconds + told.setup_s < high


def test_bytes_out_are_those_of_the_whole(told):
    assert set(told.outputs) == {"data", "dropped/drop", "_run/checkpoint/slow.out"}
    assert 4000 * 2 / 3 * 2 < told.outputs["data"] < 4000 * 400


def test_a_forecast_in_words_fits_a_terminal(told):
    text = in_words(told, cpu_hour=0.05)
    assert max(map(len, text.splitlines())) <= 80, text
    assert "on 8 cores" in text
    assert "cost" in text


def test_machines_are_paid_for_as_long_as_the_run_takes():
    found = Forecast(records=1, error=0, seconds=7000, setup_s=200, core_s=1, gpu_s=0, cores=64, gpus=8, sampled_records=1,
                     sampled_parts=1, parts=1, sample_s=1, memory=0)
    assert found.price(0.05, 2.0) == pytest.approx(2 * (64 * 0.05 + 8 * 2.0))
    assert found.between == (7200, 7200)


def test_a_sample_that_does_not_end_well_says_why(corpus):
    def wrong(batch):
        raise ValueError("no such luck")

    from curator import stage

    pipeline = read(f"{corpus}/*.jsonl") >> stage(needs={"text"})(wrong) >> write(str(corpus.parent / "out"))
    with pytest.raises(CuratorError, match="no such luck"):
        forecast(pipeline, 20)


@pytest.mark.parametrize(("text", "expected"), [
    ("8x(64cpu,8gpu)", [(64, 8)] * 8), ("16cpu", [(16, 0)]), ("2x(32 CPUs, 256GB) + 1x(8cpu,1gpu)", [(32, 0), (32, 0), (8, 1)])])
def test_nodes_are_written_as_count_and_what_each_has(text, expected):
    assert [(n.cpus, n.gpus) for n in parse_nodes(text).values()] == expected


@pytest.mark.parametrize("text", ["", "8", "8x", "8x(8gpu)", "x(4cpu)", "4cpu+", "4 cores", "0x4cpu"])
def test_what_is_no_node_is_refused_with_the_form(text):
    with pytest.raises(CuratorError, match="8x"):
        parse_nodes(text)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 128), st.integers(0, 8), st.integers(1, 999)), min_size=1, max_size=3))
def test_any_cluster_is_read_as_it_is_written(kinds):
    nodes = parse_nodes("+".join(f"{n}x({c}cpu,{g}gpu,{m}gb)" for n, c, g, m in kinds))
    assert [(n.cpus, n.gpus, n.memory_bytes >> 30) for n in nodes.values()] == [
        (c, g, m) for n, c, g, m in kinds for _ in range(n)]
