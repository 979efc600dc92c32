"""One stage watched over a sample, and its recorded calls made again."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from curator import CuratorError, load
from curator.cli.main import main
from curator.io.spool import to_table
from curator.recipe import dump
from curator.trial.calls import RecordedCalls, call_again, recorded
from curator.trial.profile import profile

RECIPE = """
name: tried
read: {{jsonl: {{path: "{folder}/*.jsonl"}}}}
steps:
  - map: {{columns: {{length: length(text)}}}}
  - drop: {{short: length < 100}}
write: jsonl
out: {folder}/out
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tried")
    for file in range(2):
        rows = ({"text": "word " * (n % 40)} for n in range(300))
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tried.yaml").write_text(RECIPE.format(folder=folder))
    return folder / "tried.yaml"


def test_the_calls_of_one_stage_are_watched_and_nothing_is_written(recipe):
    found = profile(load(recipe), "drop", 100)
    assert 90 <= found.rows <= 110
    assert found.calls
    assert found.seconds > 0
    assert any("drop.py" in place and "process" in place for place, *_ in found.functions)
    assert not (recipe.parent / "out").exists()


def test_memory_of_a_gpu_is_what_torch_gave_out_at_most(recipe, monkeypatch):
    class Cuda:
        most = 9 << 30  # of work before

        def is_available(self):
            return True

        def reset_peak_memory_stats(self):
            self.most = 0

        def max_memory_allocated(self):
            self.most += 1 << 20
            return self.most

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda()))
    found = profile(load(recipe), "drop", 100)
    assert 0 < found.gpu_memory <= len(found.calls) << 20
    shown = CliRunner().invoke(main, ["profile", str(recipe), "--stage", "drop", "--probe", "20"]).output
    assert "GPU memory" in shown


def test_a_source_is_watched_by_what_it_gives(recipe):
    found = profile(load(recipe), "jsonl", 100)
    assert found.rows >= 100
    assert any("process" not in place for place, *_ in found.functions)


def test_recorded_calls_are_made_again_alone_with_the_same_batches(recipe, tmp_path):
    pipeline, path = load(recipe), str(tmp_path / "drop.calls")
    with RecordedCalls(path, dump(pipeline), "drop") as kept:
        found = profile(pipeline, "drop", 100, kept)
    stage, batches = recorded(path)
    assert sum(map(len, batches)) == found.rows
    assert found.recorded == len(batches)
    again = list(call_again(stage, batches, times=2))
    assert [made["rows"] for made in again] == [len(b) for b in batches] * 2
    assert all(sum(made["out"].values()) == made["rows"] for made in again)
    short = np.sum([t < 100 for b in batches for t in to_table(b).column("length").to_pylist()])
    assert sum(made["out"].get("dropped", 0) for made in again) == 2 * short


def test_the_command_shows_functions_and_keeps_calls(recipe, tmp_path):
    path = str(tmp_path / "kept.calls")
    shown = CliRunner().invoke(main, ["profile", str(recipe), "--stage", "drop", "--probe", "50", "--record", path])
    assert shown.exit_code == 0, shown.output
    assert "records/s" in shown.output
    assert max(map(len, shown.output.splitlines()[:-1])) <= 80
    again = CliRunner().invoke(main, ["call", path])
    assert again.exit_code == 0, again.output
    assert "dropped" in again.output


def test_the_command_watches_a_stage_over_another_input(recipe, tmp_path):
    (tmp_path / "three.jsonl").write_text('{"text": "a"}\n' * 3)
    shown = CliRunner().invoke(main, ["profile", str(recipe), str(tmp_path / "three.jsonl"), "--stage", "drop"]).output
    assert "3 records" in shown


@pytest.mark.parametrize(("arguments", "message"), [
    (["profile", "RECIPE", "--stage", "dorp"], "did you mean drop"), (["profile", "RECIPE", "--stage", "to_jsonl"], "is a sink"),
    (["call", "RECIPE"], "holds no recorded calls"), (["call", "gone.calls"], "holds no recorded calls")])
def test_what_cannot_be_watched_is_refused_with_what_to_do(recipe, arguments, message):
    done = CliRunner().invoke(main, [str(recipe) if word == "RECIPE" else word for word in arguments])
    assert done.exit_code == 2
    assert message in done.output


def test_a_file_that_is_there_is_not_written_over(recipe):
    before = recipe.read_text()
    done = CliRunner().invoke(main, ["profile", str(recipe), "--stage", "drop", "--record", str(recipe)])
    assert (done.exit_code, recipe.read_text()) == (2, before)
    assert "name a file that is not there yet" in done.output


def test_calls_that_were_not_recorded_to_the_end_leave_no_file(tmp_path):
    path = tmp_path / "half.calls"
    with pytest.raises(CuratorError), RecordedCalls(str(path), "", "drop"):
        raise CuratorError("no")
    assert not path.exists()
