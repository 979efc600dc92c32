"""Where a run reads and writes: paths in every form mean the same place, and a run's folder may be moved."""

import os
from pathlib import Path

import pytest

from curator import read, write
from curator.api.errors import RecipeError
from curator.stages import Drop


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    return read("in.jsonl") >> Drop(conditions={"one": "text = 'one'"})


def skipped(pipeline):
    return pipeline.run(workers=0, replace=True).stats["units"]["skipped"]


@pytest.mark.parametrize("again", ["out/", "./out", "../{here}/out", "{cwd}/out", "file://{cwd}/out"])
def test_a_folder_named_in_another_way_is_the_same_folder(tmp_path, texts, again):
    assert skipped(texts >> write("out")) == 0
    assert skipped(texts >> write(again.format(cwd=tmp_path, here=tmp_path.name))) == 1


def test_a_run_folder_that_was_moved_is_continued(texts):
    skipped(texts >> write("out"))
    os.rename("out", "moved")
    assert skipped(texts >> write("moved")) == 1


def test_a_sink_beside_the_run_folder_that_is_sent_elsewhere_is_done_again(texts):
    assert skipped((texts.to(write("a")) >> write("b")).named("x", out="out")) == 0
    assert skipped((texts.to(write("a")) >> write("c")).named("x", out="out")) == 0
    assert not list(Path("b").glob("*.zst"))
    assert len(list(Path("c").glob("*.zst"))) == 1


def test_two_sinks_in_one_folder_are_refused_however_it_is_written(texts):
    with pytest.raises(RecipeError, match="write to one folder"):
        (texts.to(write("to")) >> write("./to/")).run(workers=0, out="out")


def test_paths_may_be_path_objects(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    assert (read(tmp_path / "a.jsonl") >> write(tmp_path / "one")).run(workers=0).records["written"] == 1
    assert (read([tmp_path / "a.jsonl"]) >> write(tmp_path / "two")).run(workers=0).records["written"] == 1


def test_a_preview_needs_no_sink(texts, capsys):
    texts.preview(2)
    assert "dropped: one" in capsys.readouterr().out
    assert not Path("preview").exists()
