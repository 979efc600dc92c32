"""The packaged recipes, run as a user runs them, on recordings made here."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner

from curator.cli.main import main
from packs.audio.tests.recordings import noise, sine, voice
from packs.audio.tests.sound_files import by_av, by_soundfile
from packs.audio.tests.speech_like import speech_like

RATE = 16_000


def pause(seconds):
    return np.zeros(round(seconds * RATE), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Talks with pauses, copies of one of them, noise, silence, what is no sound, and half a file."""
    place = tmp_path_factory.mktemp("recordings")
    long = np.concatenate([pause(1), speech_like(5, seed=1), pause(3), speech_like(4, seed=2), pause(3), voice(1), pause(1)])
    short = np.concatenate([speech_like(6, seed=4), pause(.5)])
    (place / "long.wav").write_bytes(by_soundfile(long, RATE))
    whole = np.round(32768 * short).astype(np.int16)  # libsndfile rounds floats for each format in its own way
    (place / "short.flac").write_bytes(by_soundfile(whole, RATE, "FLAC"))
    (place / "again.wav").write_bytes(by_soundfile(whole, RATE))
    (place / "quality.mp3").write_bytes(by_av(short, RATE, "mp3", "libmp3lame"))
    (place / "noise.wav").write_bytes(by_soundfile(noise(4), RATE))
    (place / "silence.wav").write_bytes(by_soundfile(pause(5), RATE))
    (place / "page.mp3").write_text("<!DOCTYPE html><p>not found</p>")
    (place / "half.flac").write_bytes(by_soundfile(sine(300, 3), RATE, "FLAC")[:3000])
    return place


def run(out, *words):
    done = CliRunner().invoke(main, ["run", *words, "--out", str(out), "--workers", "0"])
    assert done.exit_code == 0, done.output
    return json.loads((out / "_run/stats.json").read_text())


def table(place):
    return pa.concat_tables([pq.read_table(path) for path in sorted(place.glob("*.parquet"))], promote_options="permissive").to_pylist()


def members(out):
    """{key: samples} of the FLAC files in all shards."""
    found = {}
    for path in sorted((out / "data").glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".flac"):
                    found[member.name[:-5]] = soundfile.read(io.BytesIO(archive.extractfile(member).read()))
    return found


@pytest.fixture(scope="module")
def speech(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("speech")
    return out, run(out, "audio/speech", "--set", f"read.path={folder}", "--set", "max_failed=5")


def test_speech_cuts_utterances_and_writes_them_as_shards(speech):
    out, stats = speech
    rows = table(out / "data")
    from_long = sorted((row["start_s"], row["end_s"]) for row in rows if row["source"].endswith("long.wav"))
    assert len(from_long) >= 2
    assert all(.8 <= start < end <= 6.2 or 8.8 <= start < end <= 13.2 for start, end in from_long)
    assert all(2 <= end - start <= 30 for start, end in from_long)
    sounds = members(out)
    assert len(sounds) == len(rows) == stats["records"]["written"]
    for row in rows:
        samples, rate = sounds[row["key"]]
        assert (rate, samples.ndim) == (16_000, 1)
        assert len(samples) / rate == pytest.approx(row["duration"], abs=1 / rate)
        assert row["waveform"].startswith(b"\x89PNG")


def test_speech_keeps_one_of_copies_and_says_which(speech):
    out, _ = speech
    exact, = table(out / "duplicate/dedup.exact")
    near, = table(out / "duplicate/dedup.near")
    kept = [row for row in table(out / "data") if not row["source"].endswith("long.wav")]
    assert {exact["source"].rpartition("/")[2], *(row["source"].rpartition("/")[2] for row in (near, *kept))} == {
        "again.wav", "short.flac", "quality.mp3"}
    assert near["duplicate_of"] == kept[0]["id"]


def test_speech_accounts_for_every_file_and_second(speech):
    out, stats = speech
    stages = {stage["name"]: stage for stage in stats["stages"]}
    assert {row["source"].rpartition("/")[2] for row in table(out / "failed/decode")} >= {"page.mp3"}
    segment = stages["segment"]
    assert segment["dropped"]["too_short"] >= 1
    assert segment["dropped"]["no_speech"] >= 1
    seconds = segment["amounts"]["duration"]
    assert sum(seconds["out"].values()) + sum(seconds["dropped"].values()) <= seconds["in"][""] + 1e-6
    words = " ".join(segment["lines"])
    assert " too short" in words
    lost = table(out / "dropped/segment")
    assert {row["reason"] for row in lost} == {"too_short", "no_speech"}


def test_a_second_run_does_nothing_again(speech, folder):
    out, before = speech
    after = run(out, "audio/speech", "--set", f"read.path={folder}", "--set", "max_failed=5")
    assert after["records"] == before["records"]
    assert after["units"]["skipped"] == after["units"]["total"]


def test_quality_keeps_files_as_they_were(folder, tmp_path):
    stats = run(tmp_path, "audio/quality", "--set", f"read.path={folder}", "--set", "max_failed=5")
    rows = table(tmp_path / "data")
    assert {row["source"].rpartition("/")[2] for row in rows} == {"long.wav", "noise.wav", next(
        name for name in ("short.flac", "again.wav", "quality.mp3") if any(row["source"].endswith(name) for row in rows))}
    for path in (tmp_path / "data").glob("*.tar"):
        with tarfile.open(path) as archive:
            whole = {archive.extractfile(member).read() for member in archive if not member.name.endswith(".json")}
    assert (folder / "long.wav").read_bytes() in whole
    dropped = {row["source"].rpartition("/")[2]: row["reason"] for row in table(tmp_path / "dropped/quality")}
    assert dropped == {"silence.wav": "silent", "half.flac": "damaged"}
    assert stats["records"]["duplicate"] == 2


def test_asr_filter_sorts_transcripts(tmp_path):
    said = "the quick brown fox jumps over the lazy dog"
    lines = [("good", said, said), ("nearly", said, said.replace("lazy", "hazy")),
             ("other", said, "something else altogether was said here"),
             ("cut", said, "fox jumps over the lazy dog"), ("loop", said, "so so so so so so so so"), ("fast", said * 5, said),
             ("empty", "", said), ("unheard", said, ""), ("missing", said, said)]
    for name, *_ in lines[:-1]:
        (tmp_path / f"{name}.wav").touch()
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("\n".join(json.dumps({"audio_filepath": f"{name}.wav", "offset": 1.5, "duration": 3.0, "text": text,
                                              "pred_text": heard}) for name, text, heard in lines))
    out = tmp_path / "out"
    run(out, "audio/asr-filter", "--set", f"read.path={manifest}", "--set", "max_failed=0.5")
    kept, review = (read(out / "data" / name) for name in ("kept", "review"))
    reasons = {row["path"].rpartition("/")[2][:-4]: row["reason"]
               for stage in ("rates", "made_up", "wer") for row in table(out / "dropped" / stage)}
    assert kept == {"good"}
    assert review == set()
    assert [row["error"] for row in table(out / "failed/manifest")] == [f"no such file: {tmp_path}/missing.wav"]
    assert reasons == {"other": "other_words", "nearly": "other_words", "cut": "other_words", "loop": "made_up", "fast": "too_fast",
                       "empty": "no_text", "unheard": "other_words"}


def read(place):
    """The names in the manifests of a folder."""
    lines = [json.loads(line) for path in place.glob("*.json") for line in path.read_text().splitlines()]
    assert all(line["duration"] == 3.0 and line["offset"] == 1.5 for line in lines)
    return {line["audio_filepath"].rpartition("/")[2][:-4] for line in lines}
