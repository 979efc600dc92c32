"""The packaged recipe, run as a user runs it, on films made here."""

from __future__ import annotations

import io
import json
import tarfile
from itertools import chain

import av
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator.cli.main import main
from packs.video.tests.films import film, moving, sine, sound_only

FPS = 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A film of three shots, a copy of one of them in another container, a film that is too small, and what is no film."""
    place = tmp_path_factory.mktemp("films")
    shots = [moving(1, 3), moving(2, 1), moving(3, 4)]
    (place / "shots.mp4").write_bytes(film(chain(*shots), FPS, sound=sine(300, 8), options={"crf": "4"}))
    (place / "copy.mkv").write_bytes(film(moving(3, 4), FPS, container="matroska", options={"crf": "8"}))
    (place / "small.mp4").write_bytes(film(moving(4, 3, 120, 160), FPS))
    (place / "sound.mp4").write_bytes(sound_only("mp4", "aac"))
    (place / "page.mp4").write_text("<!DOCTYPE html><p>not found</p>")
    return place


def run(out, *words):
    done = CliRunner().invoke(main, ["run", *words, "--out", str(out), "--workers", "0"])
    assert done.exit_code == 0, done.output
    return json.loads((out / "_run/stats.json").read_text())


def table(place):
    return pa.concat_tables([pq.read_table(path) for path in sorted(place.glob("*.parquet"))], promote_options="permissive").to_pylist()


def members(place, ending):
    """{key: content} of the members of all shards whose names end so."""
    found = {}
    for path in sorted(place.glob("*.tar")):
        with tarfile.open(path) as archive:
            found |= {member.name.removesuffix(ending): archive.extractfile(member).read() for member in archive
                      if member.name.endswith(ending)}
    return found


def named(rows):
    return [row["source"].rpartition("/")[2] for row in rows]


@pytest.fixture(scope="module")
def split(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("split")
    return out, run(out, "video/split", "--set", f"read.path={folder}", "--set", "max_failed=5")


def test_shots_become_clips_with_their_sound(split):
    out, stats = split
    rows = sorted(table(out / "data"), key=lambda row: row["start_s"])
    assert named(rows) == ["shots.mp4", "shots.mp4"]
    assert [(row["start_s"], row["end_s"]) for row in rows] == [pytest.approx((0, 3), abs=.05), pytest.approx((4, 8), abs=.05)]
    clips = members(out / "data", ".mp4")
    for row in rows:
        with av.open(io.BytesIO(clips[row["key"]])) as clip:
            assert len(list(clip.decode(video=0))) == row["clip_frames"] == pytest.approx(FPS * row["duration"], abs=1)
        with av.open(io.BytesIO(clips[row["key"]])) as clip:
            sound = sum(frame.samples for frame in clip.decode(audio=0)) / clip.streams.audio[0].rate
            assert sound == pytest.approx(row["duration"], abs=.1)
        assert row["sheet"].startswith(b"\xff\xd8")
    assert stats["records"]["written"] == 2


def test_what_is_left_out_says_why(split):
    out, stats = split
    assert {(row["source"].rpartition("/")[2], row["reason"]) for row in table(out / "dropped/source")} == {("small.mp4", "too_small")}
    assert [(row["source"].rpartition("/")[2], row["reason"]) for row in table(out / "dropped/clips")] == [("shots.mp4", "too_short")]
    assert {row["source"].rpartition("/")[2]: row["error"].partition(":")[0] for row in table(out / "failed/probe")} == {
        "sound.mp4": "no_video", "page.mp4": "not_media"}
    copy, = table(out / "duplicate/dedup.near")
    assert copy["source"].endswith("copy.mkv")
    assert copy["duplicate_of"] in [row["id"] for row in table(out / "data")]
    assert sum(stats["records"][end] for end in ("written", "dropped", "duplicate", "failed")) == (
        stats["records"]["in"] + stats["records"]["made"])


def test_a_second_run_does_nothing_again(split, folder):
    out, before = split
    after = run(out, "video/split", "--set", f"read.path={folder}", "--set", "max_failed=5")
    assert after["records"] == before["records"]
    assert after["units"]["skipped"] == after["units"]["total"]
