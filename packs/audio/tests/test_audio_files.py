"""Audio files: which ones count, and when only their path travels."""

from __future__ import annotations

import numpy as np
import pytest
from curator_audio.read.decode import Decode
from curator_audio.read.files import AudioFiles

from curator.testing import check_source, run_stage
from packs.audio.tests.recordings import noise
from packs.audio.tests.sound_files import by_soundfile


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.WAV").write_bytes(by_soundfile(noise(0.5), 16_000))
    (tmp_path / "two.flac").write_bytes(by_soundfile(noise(1.0, seed=1), 16_000, "FLAC"))
    (tmp_path / "none.opus").write_bytes(b"")
    (tmp_path / "clip.mkv").write_bytes(b"film")
    (tmp_path / "notes.txt").write_text("no sound")
    return tmp_path


def read(source):
    rows = [row for unit in source.units() for outputs in source.read(unit) for row in outputs["out"].rows.to_pylist()]
    return sorted(rows, key=lambda row: row["path"])


def test_files_that_end_as_sound_does(folder):
    rows = read(AudioFiles(path=str(folder)))
    assert [(r["path"].removeprefix(f"{folder}/"), r["extension"]) for r in rows] == [("a/one.WAV", "wav"), ("none.opus", "opus"),
                                                                                     ("two.flac", "flac")]
    assert all(r["source"] == r["path"] and len(r["bytes"]) == r["size_bytes"] for r in rows)
    assert len({r["id"] for r in rows}) == 3
    assert [r["extension"] for r in read(AudioFiles(path=str(folder), suffixes=["mkv"]))] == ["mkv"]
    assert [r["extension"] for r in read(AudioFiles(path=str(folder / "*.txt")))] == ["txt"]


def test_files_of_other_kinds_are_told_unless_some_were_chosen(folder):
    source, chosen = AudioFiles(path=str(folder)), AudioFiles(path=str(folder), suffixes=["mkv"])
    for one in (source, chosen):
        one.units()
    assert "files of other kinds are not read: 1 .mkv, 1 .txt." in source.remarks()[0]
    assert chosen.remarks() == []


def test_of_large_files_only_the_path_travels(folder):
    small, large = read(AudioFiles(path=str(folder))), read(AudioFiles(path=str(folder), inline_bytes=20_000))
    assert [r["bytes"] is None for r in large] == [False, False, True]
    assert [{**r, "bytes": 0} for r in large] == [{**r, "bytes": 0} for r in small]
    sources = [AudioFiles(path=str(folder / "two.flac"), inline_bytes=most) for most in (1 << 20, 1)]
    batches = [next(iter(source.read(source.units()[0])))["out"] for source in sources]
    inline, by_path = (run_stage(Decode(), batch)["out"] for batch in batches)
    assert (inline.samples[0] == by_path.samples[0]).all()
    assert np.abs(inline.samples[0][0] - noise(1.0, seed=1)).max() < 1e-4


def test_the_source_keeps_its_rules(folder):
    check_source(AudioFiles(path=str(folder)))
    check_source(AudioFiles(path=str(folder), inline_bytes=20_000, unit_bytes=1))


def test_a_file_that_is_gone_fails(folder):
    source = AudioFiles(path=str(folder))
    (unit,) = source.units()
    (folder / "two.flac").unlink()
    outputs = list(source.read(unit))
    assert [o["failed"].column("id") for o in outputs if "failed" in o] == [[f"{folder}/two.flac"]]
    assert sum(len(o["out"]) for o in outputs if "out" in o) == 2


@pytest.mark.parametrize("wrong", [{"inline_bytes": 0}, {"unit_bytes": 0}, {"suffixes": []}, {"path": ""}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AudioFiles(**{"path": "x", **wrong})
