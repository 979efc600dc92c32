"""Recordings cut in a run: each utterance can be traced back to its samples in the file, and each second is accounted for."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner

from curator.cli.main import main
from curator.io.files.folder import Folder
from curator.observe.report.examples import find_examples
from packs.audio.tests.recordings import noise, voice

RATE = 44_100
RECIPE = """
name: cut
read: {audio.files: {path: recordings}}
steps:
  - audio.decode
  - audio.vad
  - audio.segment: {min: 1.0, max: 5.0, merge_gap: 0.5}
  - audio.fingerprint
  - dedup.near: {threshold: 0.3}
  - audio.encode: {format: flac}
write: parquet
out: out
"""
TRUTH = {"talk": [(0.5, 2.5), (4.0, 7.0), (8.0, 8.5)], "copy": [(1.0, 3.0)], "hiss": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A talk, its first utterance again in another file and quieter, and a file where nobody speaks."""
    folder = tmp_path_factory.mktemp("cut")
    (folder / "recordings").mkdir()
    (folder / "recipe.yaml").write_text(RECIPE)
    said = [voice(end - start, RATE, pitch=100 + 30 * n, seed=n) for n, (start, end) in enumerate(TRUTH["talk"])]
    for name, gain, length in (("talk", 1.0, 10.0), ("copy", 0.4, 4.0), ("hiss", 1.0, 3.0)):
        heard = noise(length, RATE, -65.0, seed=len(name))
        for (start, _), speech in zip(TRUTH[name], said, strict=False):
            heard[round(start * RATE):round(start * RATE) + len(speech)] += np.float32(gain) * speech
        soundfile.write(folder / "recordings" / f"{name}.wav", heard, RATE, "PCM_16")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0"])
    assert done.exit_code == 0, done.output
    return folder


def rows(path):
    return [row for file in sorted(path.rglob("*.parquet")) for row in pa.Table.to_pylist(pq.read_table(file))]


def name_of(row):
    return row["source"].rsplit("/")[-1]


def test_each_utterance_is_in_its_file_to_the_sample(folder):
    written = sorted(rows(folder / "out" / "data"), key=lambda row: row["start_s"])
    found = [(name_of(row), row["start_s"], row["end_s"]) for row in written]
    expected = [("talk.wav", 0.4, 2.6), ("talk.wav", 3.9, 7.1)]
    if found[0][0] == "copy.wav":  # which of the copies stays rests on their ids
        expected[0] = ("copy.wav", 0.9, 3.1)
    assert [name for name, _, _ in found] == [name for name, _, _ in expected]
    assert np.abs(np.array([row[1:] for row in found]) - [row[1:] for row in expected]).max() < 0.15
    for row in written:
        samples, rate = soundfile.read(io.BytesIO(row["bytes"]), dtype="int16")
        whole, _ = soundfile.read(folder / "recordings" / name_of(row), dtype="int16")
        first, stop = (round(row[name] * RATE) for name in ("start_s", "end_s"))
        assert rate == row["sample_rate"] == RATE
        assert np.array_equal(samples, whole[first:stop])


def test_each_second_is_accounted_for(folder):
    stats = json.loads((folder / "out/_run/stats.json").read_text())
    segment = next(stage for stage in stats["stages"] if stage["name"] == "segment")
    assert segment["dropped"] == {"too_short": 1, "no_speech": 1}
    assert sum(segment["extra"].values()) == 17_000
    assert segment["extra"]["kept_ms"] == pytest.approx(1000 * (2.2 + 3.2 + 2.2), abs=300)
    records = stats["records"]
    assert (records["in"], records["written"], records["dropped"], records["duplicate"]) == (3, 2, 2, 1)


def test_what_the_cut_took_is_played_in_the_report(folder):
    stats = json.loads((folder / "out/_run/stats.json").read_text())
    groups = {group.reason: group for group in find_examples(stats, Folder.open(str(folder / "out"))) if group.stage == "segment"}
    assert groups.keys() == {"too_short", "no_speech"}
    for one in (one for group in groups.values() for one in group.examples):
        assert any(str(shown).startswith("data:audio/flac;base64,") for shown in one.values())
