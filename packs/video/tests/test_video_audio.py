"""The sound of films with the stages of the audio pack: by its recipe, and beside the clips of the same films in one run."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import soundfile

from packs.audio.tests.speech_like import speech_like
from packs.video.tests.films import film, moving
from packs.video.tests.test_video_recipes import members, named, run, table

RATE = 48_000
TALK = np.concatenate([speech_like(3, RATE, seed=1), np.zeros(3 * RATE, np.float32), speech_like(2.5, RATE, seed=2),
                       np.zeros(RATE // 2, np.float32)])


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A film of three shots of 3 s in which people talk, and a silent one."""
    folder = tmp_path_factory.mktemp("talk")
    pictures = [picture for seed in range(3) for picture in moving(seed, 3, 256, 256)]
    options = {"crf": "12", "preset": "ultrafast"}
    (folder / "talk.mp4").write_bytes(film(pictures, 25, sound=TALK[None], sound_rate=RATE, options=options))
    (folder / "silent.mkv").write_bytes(film(moving(9, 3, 256, 256), 25, container="matroska", options=options))
    return folder


def sounds(folder):
    """{key: samples of a FLAC, rate}."""
    return {key: soundfile.read(io.BytesIO(data)) for key, data in members(folder, ".flac").items()}


@pytest.mark.slow
def test_the_recipe_cuts_utterances_out_of_films(films, tmp_path):
    stats = run(tmp_path, "video/audio", "--set", f"read.path={films}")
    rows = sorted(table(tmp_path / "data"), key=lambda row: row["start_s"])
    assert named(rows) == ["talk.mp4"] * 2
    spans = np.array([(row["start_s"], row["end_s"]) for row in rows])
    assert np.abs(spans - [(0, 3), (6, 8.5)]).max() < .3
    heard = sounds(tmp_path / "data")
    for row in rows:
        samples, rate = heard[row["key"]]
        assert (rate, row["video_codec"], row["source_rate"]) == (16_000, "h264", RATE)
        assert len(samples) == round(row["duration"] * 16_000)
    silent, = table(tmp_path / "dropped/audio")
    assert (silent["source"].rpartition("/")[2], silent["reason"]) == ("silent.mkv", "no_audio")
    assert stats["records"]["failed"] == 0


BOTH = """
name: both
read: {video.files: {path: films/}}
steps:
  - video.probe
  - video.shots
  - video.spans
  - video.cut
write: webdataset
branches:
  sound:
    from: cut.out
    steps:
      - video.audio: {rate: 16000}
      - audio.vad
      - audio.signals
      - map: {said: "'the weather is nice today, and the people of this town go for a walk'"}
      - text.language: {column: said}
      - audio.encode: {format: flac}
    write: webdataset
out: out/
"""


@pytest.mark.slow
def test_clips_and_their_sound_come_out_of_one_run(films, tmp_path):
    (tmp_path / "both.yaml").write_text(BOTH)
    stats = run(tmp_path / "out", str(tmp_path / "both.yaml"), "--set", f"read.path={films}")
    clips = {row["id"]: row for row in table(tmp_path / "out/data/webdataset")}
    sound = {row["id"]: row for row in table(tmp_path / "out/data/sound")}
    assert sorted(named(clips.values())) == ["silent.mkv", *["talk.mp4"] * 3]
    assert set(sound) == {name for name, row in clips.items() if row["source"].endswith("talk.mp4")}
    assert [row["reason"] for row in table(tmp_path / "out/dropped/audio")] == ["no_audio"]
    heard = sounds(tmp_path / "out/data/sound")
    for name, row in sound.items():
        assert (row["start_s"], row["language"]) == (clips[name]["start_s"], "en")
        samples, rate = heard[row["key"]]
        first = round(row["start_s"] * RATE)
        whole = TALK[first:first + 3 * RATE].reshape(-1, 3).mean(axis=1)[:len(samples)]
        assert rate == 16_000
        assert abs(len(samples) - 48_000) < 800
        if np.abs(whole).max() > .1:
            assert np.corrcoef(samples[:len(whole)], whole)[0, 1] > .9  # in step, though it was encoded twice
    records = stats["records"]
    assert records["in"] + records["made"] == sum(records[end] for end in ("written", "dropped", "duplicate", "failed"))
    assert json.loads((tmp_path / "out/_run/stats.json").read_text())["records"]["written"] == 7
