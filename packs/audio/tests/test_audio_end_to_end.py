"""The recipe audio/speech over long files of several rates: each second of the input is told of, each utterance lies in its file to the
sample, and a run that is killed goes on to the same bytes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner

from curator.cli.main import main
from packs.audio.tests.recordings import noise, voice
from packs.audio.tests.sound_files import by_soundfile
from packs.audio.tests.speech_like import speech_like
from tests.marks import soaked_after

STEPS = """
name: whole
read: {audio.files: {path: recordings}}
steps:
  - audio.decode: {part_s: 60}
  - audio.hash
  - dedup.exact: {column: audio_hash}
  - audio.vad
  - audio.segment
  - audio.signals
  - audio.encode: {format: flac}
  - drop: {rules: audio/speech}
    with: {name: quality}
write: parquet
out: out
"""
FILES = {"a.wav": (8_000, 1, 95.0), "b.flac": (22_050, 2, 130.0), "c.wav": (48_000, 1, 20.0)}


def talk(rate, channels, seconds, seed):
    """Speech with pauses of 1 to 6 s, and a stretch of noise; int16 [channels, n]."""
    chance = np.random.default_rng(seed)
    heard = noise(seconds, rate, -70.0, seed=seed)
    at = 1.0
    while at + 4 < seconds:
        length = chance.uniform(.3, 4)
        said = (voice if chance.random() < .3 else speech_like)(length, rate, seed=int(at))
        heard[round(at * rate):round(at * rate) + len(said)] += said
        at += length + chance.uniform(1, 6)
    whole = np.stack([heard, .5 * heard])[:channels]
    return np.round(32767 * np.clip(whole, -1, 1)).astype(np.int16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "recordings").mkdir()
    for seed, (name, (rate, channels, seconds)) in enumerate(FILES.items()):
        data = by_soundfile(talk(rate, channels, seconds, seed), rate, "FLAC" if name.endswith("flac") else "WAV", "PCM_16")
        (folder / "recordings" / name).write_bytes(data)
    (folder / "recordings/again.wav").write_bytes((folder / "recordings/c.wav").read_bytes())
    (folder / "recipe.yaml").write_text(STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0"])
    assert done.exit_code == 0, done.output
    return folder


def rows(folder):
    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def pieces(out):
    """{file: rows of what was cut out of it}, kept or dropped after the cut or by it."""
    found = {}
    for row in rows(out):
        found.setdefault(row["source"].rpartition("/")[2], []).append(row)
    return {name: sorted(of, key=lambda row: row["start_s"]) for name, of in found.items()}


def test_each_second_is_in_a_segment_in_a_drop_or_in_silence(whole):
    stats = json.loads((whole / "out/_run/stats.json").read_text())
    stages = {stage["name"]: stage for stage in stats["stages"]}
    of = {name: stage.get("amounts", {}).get("duration", {}) for name, stage in stages.items()}
    total = sum(seconds for _, _, seconds in FILES.values()) + FILES["c.wav"][2]
    assert sum(of["decode"]["out"].values()) == pytest.approx(total, abs=1e-6)
    assert sum(of["dedup.exact"]["duplicate"].values()) == pytest.approx(20.0)
    cut = stages["segment"]["extra"]
    assert sum(cut.values()) == pytest.approx(1000 * (total - 20), abs=10)  # kept, too short, silence: in ms
    kept = sum(of["segment"]["out"].values())
    assert cut["kept_ms"] == pytest.approx(1000 * kept, abs=10)
    assert kept == pytest.approx(sum(of["quality"]["out"].values()) + sum(of["quality"].get("dropped", {}).values()))
    assert kept > 60
    for name, found in pieces(whole / "out").items():  # nothing is in two of them, nothing outside the file
        spans = np.array([(row["start_s"], row["end_s"]) for row in found if row.get("reason") != "no_speech"])
        assert (spans[1:, 0] >= spans[:-1, 1] - 1e-9).all()
        assert spans[-1, 1] <= FILES.get(name, FILES["c.wav"])[2] + 1e-9


def test_each_utterance_is_what_the_file_has_there(whole):
    seen, parts = set(), set()
    for row in rows(whole / "out/data"):
        name = row["source"].rpartition("/")[2]
        file = whole / "recordings" / name
        rate = soundfile.info(file).samplerate
        first, stop = round(row["start_s"] * rate), round(row["end_s"] * rate)
        there = soundfile.read(file, start=first, stop=stop, dtype="int16", always_2d=True)[0]
        given, at = soundfile.read(io.BytesIO(row["bytes"]), dtype="int16")
        assert at == rate == row["sample_rate"] == row["source_rate"]
        assert len(given) == stop - first == round(row["duration"] * rate)
        assert np.abs(given - there.mean(axis=1)).max() <= 1  # the mean of two channels is rounded
        seen.add(name)
        parts.add(row["parent"])
    assert seen == {*FILES} or seen == {*FILES, "again.wav"} - {"c.wav"}
    assert sum("#" in parent for parent in parts) >= 3  # of files in parts


@pytest.fixture(scope="module")
def recordings_of_six(tmp_path_factory):
    folder = tmp_path_factory.mktemp("six")
    for number in range(6):
        name = "last" if number == 5 else str(number)
        said = np.concatenate([speech_like(3, seed=number), np.zeros(48_000, np.float32), speech_like(2.5, seed=10 + number)])
        (folder / f"{name}.wav").write_bytes(by_soundfile(said, 16_000))
    return folder


def speech_with(out, recordings, *words):
    return ["run", "audio/speech", "--set", f"read={{audio.files: {{path: {recordings}, unit_bytes: 100000}}}}", "--out", str(out), *words]


def contents(folder):
    """Of each folder the files' kinds and bytes; their names tell the run."""
    return sorted((str(path.parent.relative_to(folder)), path.suffix, path.read_bytes()) for place in ("data", "dropped", "duplicate")
                  for path in (folder / place).rglob("*") if path.is_file())


@pytest.mark.parametrize("phase", soaked_after(1, [1, 2]))
def test_a_killed_run_goes_on_to_the_same_bytes(recordings_of_six, tmp_path, phase):
    calm, out = tmp_path / "calm", tmp_path / "out"
    done = CliRunner().invoke(main, speech_with(calm, recordings_of_six, "--workers", "0"))
    assert done.exit_code == 0, done.output
    ledger = out / "_run" / ("ledger" if phase == 1 else f"ledger-{phase}")
    killed = subprocess.Popen([sys.executable, "-m", "curator", *speech_with(out, recordings_of_six, "--workers", "1")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 60
    while killed.poll() is None and time.monotonic() < until and not any(
            path.stat().st_size for path in (ledger.iterdir() if ledger.exists() else ())):
        time.sleep(0.001)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    done = CliRunner().invoke(main, speech_with(out, recordings_of_six, "--workers", "0"))
    assert done.exit_code == 0, done.output
    assert contents(out) == contents(calm)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_a_run_on_ray_gives_the_same_bytes(recordings_of_six, tmp_path):
    pytest.importorskip("ray")
    calm, out = tmp_path / "calm", tmp_path / "out"
    done = CliRunner().invoke(main, speech_with(calm, recordings_of_six, "--workers", "0"))
    assert done.exit_code == 0, done.output
    there = subprocess.run([sys.executable, "-m", "curator", *speech_with(out, recordings_of_six, "--ray")], capture_output=True,
                           text=True, check=False, env={**os.environ, "RAY_AUTH_MODE": "disabled"})
    assert there.returncode == 0, there.stderr
    assert contents(out) == contents(calm)


def test_a_rule_behind_the_copies_decodes_nothing_again(recordings_of_six, tmp_path):
    recipe, out = tmp_path / "speech.yaml", tmp_path / "out"
    recipe.write_text(CliRunner().invoke(main, ["recipes", "audio/speech"]).output)
    words = speech_with(out, recordings_of_six, "--workers", "0", "--yes")
    words[1] = str(recipe)
    assert CliRunner().invoke(main, words).exit_code == 0
    before = recipe.read_text()
    recipe.write_text(before.replace("\nwrite:", "  - drop: {long: duration > 2.8}\n\nwrite:"))
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    stats = json.loads((out / "_run/stats.json").read_text())
    decoding, copies = stats["phases"][0]["units"], stats["phases"][-1]["units"]
    assert decoding["skipped"] == decoding["total"] == 6
    assert copies["skipped"] == 0
    assert stats["records"]["dropped"] > 0
    assert 0 < len(rows(out / "data")) == stats["records"]["written"]
    assert all(row["duration"] <= 2.8 for row in rows(out / "data"))
