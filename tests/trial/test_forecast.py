"""What a run will take, by a sample: records, work, bytes and money; and machines in words."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import Contract, CuratorError, Resources, Stage, read, write
from curator.stages import Checkpoint, Drop
from curator.trial.forecast import Forecast, error_of, forecast, start_error_of
from curator.trial.forecast_text import in_words
from curator.trial.nodes import parse_nodes
from curator.trial.sample import BYTES, ROWS, SQUARES, Sampled, records_in
from tests.engine.reductions import CountText

RECORD_S = 0.002


@dataclass(kw_only=True)
class Slow(Stage):
    """Takes its time for each record, and no processor."""

    record_s: float = RECORD_S

    def contract(self):
        return Contract(adds={"length": pa.int64()})

    def process(self, batch):
        time.sleep(self.record_s * len(batch))
        return batch.with_columns({"length": [len(t) for t in batch.column("text")]})


def made(**given):
    return Forecast(**{"records": 1, "error": 0, "work_s": 1, "start_s": 0, "start_error": 0, "core_s": 1, "gpu_s": 0, "cores": 64,
                       "gpus": 8, "sampled_records": 1, "sampled_parts": 1, "parts": 1, "sample_s": 1, "memory": 0, **given})


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


def test_files_of_a_record_each_are_counted_though_large_ones_are_sampled_more_often(tmp_path):
    for n in range(150):
        (tmp_path / f"{n:03}.jsonl").write_text(json.dumps({"text": "word " * (20 if n % 3 else 100)}) + "\n")
    found = forecast(read(f"{tmp_path}/*.jsonl") >> write(str(tmp_path / "out")), 40)
    assert 30 <= found.sampled_parts <= 40
    assert found.records == pytest.approx(150, rel=0.1)


def test_work_grows_with_the_records_and_starting_counts_once(told):
    slow = next(stage for stage in told.stages if stage["name"] == "slow")
    assert 4000 * RECORD_S * 0.9 < slow["core_s"] < 4000 * RECORD_S * 4  # other work on this machine makes it slower
    assert told.seconds >= slow["core_s"] / 8 * 0.9
    low, high = told.between
    assert 0 < low < told.seconds < high
    assert told.seconds == told.start_s + told.work_s > told.start_s > 0


def test_bytes_out_are_those_of_the_whole(told):
    assert set(told.outputs) == {"data", "dropped/drop", "_run/checkpoint/slow.out"}
    assert 4000 * 2 / 3 * 2 < told.outputs["data"] < 4000 * 400


def test_a_forecast_in_words_fits_a_terminal(told):
    text = in_words(told, cpu_hour=0.05)
    assert max(map(len, text.splitlines())) <= 80, text
    assert "on 8 cores" in text
    assert "cost" in text


def test_other_work_on_this_machine_widens_the_bounds_and_is_told():
    calm, busy = error_of(0.0, 10_000, 10_000), error_of(0.0, 10_000, 10_000, others=4.0)
    assert busy > 2.5 * calm
    text = in_words(made(error=busy, others=4.0))
    assert "other work, 5 processes a core" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "other work" not in in_words(made(error=calm))


def test_machines_are_paid_for_as_long_as_the_run_takes():
    found = made(work_s=7000, start_s=200)
    assert found.price(0.05, 2.0) == pytest.approx(2 * (64 * 0.05 + 8 * 2.0))
    assert found.between == (7200, 7200)


@pytest.mark.parametrize(("sample", "parts", "start_s"), [(500, 20, 1.0), (100, 10, 4.0), (300, 1, 0.2)])
def test_what_is_told_to_hold_nine_times_in_ten_does(sample, parts, start_s):
    """Runs drawn at random: parts with more and fewer records a byte, records that take more and less, a machine that is faster
    and slower, and a start that no two runs share."""
    rng, held, draws = np.random.default_rng(sample), 0, 600
    for _ in range(draws):
        density = rng.lognormal(0, 0.3, parts) if parts > 1 else np.ones(1)
        all_parts = parts * 5 if parts > 1 else 1
        rest = rng.lognormal(0, 0.3, all_parts - parts)
        records = 100 * (density.sum() + rest.sum())
        whole = Sampled(None, {"read": 100 * all_parts}, {"read": all_parts}, {"read": [100] * all_parts}, {"read": [100] * parts})
        counts = {"read": {ROWS: 100 * density.sum(), BYTES: 100 * parts, SQUARES: 1e12 * 100 * (density ** 2).sum()}}
        foreseen, input_error = records_in(counts, whole)
        price = rng.lognormal(-0.5 * math.log(5), math.sqrt(math.log(5)), sample).mean()  # the mean is 1, twice that the deviation
        machine = rng.lognormal(0, 0.15)
        starts = rng.normal(start_s, 0.2 * start_s, 2)
        found = made(work_s=foreseen * price * 0.01, error=error_of(input_error, sample, 1e9), start_s=starts.mean(),
                     start_error=start_error_of(*starts))
        took = records * machine * 0.01 + rng.normal(start_s, 0.2 * start_s)
        low, high = found.between
        held += low <= took <= high
    assert 0.84 < held / draws < 0.98


@pytest.mark.slow
def test_a_run_takes_what_was_told(corpus, tmp_path):
    """Of stages that sleep, so that it is known what they take."""
    def pipeline(out):
        slow = Slow(record_s=0.006).with_(resources=Resources(cpus=0.5), batch_size=32)
        return read(f"{corpus}/*.jsonl") >> slow >> Drop(conditions={"short": "length < 100"}) >> write(f"{out}")

    found = forecast(pipeline(tmp_path / "none"), 400)
    began = time.monotonic()
    result = pipeline(tmp_path / "out").run()
    took = time.monotonic() - began
    low, high = found.between
    assert low < took < high
    assert found.records == pytest.approx(result.records["in"], rel=0.02)
    stages = {stage["name"]: stage for stage in result.stats["stages"]}
    for stage in found.stages:
        assert stage["in"] == pytest.approx(stages[stage["name"]]["in"], rel=0.05)
    assert found.core_s == pytest.approx(sum(s["busy_s"] for s in stages.values()) / 2, rel=0.4)  # half a core each
    for group in result.stats["outputs"]:
        name = group["folder"].removeprefix(f"{tmp_path}/out/").rstrip("/")
        assert found.outputs[name] == pytest.approx(group["size_bytes"], rel=0.5), name  # small files have more beside the rows


def test_a_sample_that_does_not_end_well_says_why(corpus):
    def wrong(batch):
        raise ValueError("no such luck")

    from curator import stage

    pipeline = read(f"{corpus}/*.jsonl") >> stage(needs={"text"})(wrong) >> write(str(corpus.parent / "out"))
    with pytest.raises(CuratorError, match="no such luck"):
        forecast(pipeline, 20)


def test_what_comes_behind_a_barrier_counts_too(corpus):
    pipeline = read(f"{corpus}/*.jsonl") >> CountText() >> write(str(corpus.parent / "out"))
    found = forecast(pipeline, 100)
    assert found.records == pytest.approx(4000, rel=0.02)
    assert found.work_s > 0
    assert [stage["name"] for stage in found.stages] == ["jsonl", "count_text", "to_jsonl"]


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
