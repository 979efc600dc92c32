"""Folders of films that are broken, lie or are none: what can be read becomes clips, and each file is told of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_video.clips.cut import Cut
from curator_video.clips.frames import Frames
from curator_video.once.clips import Clips
from curator_video.read.decode import Decode
from curator_video.read.files import VideoFiles
from curator_video.read.probe import Probe
from curator_video.shots.shots import Shots

from curator.testing import run_stage
from packs.video.tests.films import film, films, numbered
from packs.video.tests.hostile import bad_films, no_films, two_shots
from packs.video.tests.test_video_recipes import named, run, table


def test_what_is_no_film_says_why(tmp_path):
    wanted = no_films()
    for name, (data, _) in wanted.items():
        (tmp_path / name).write_bytes(data)
    source = VideoFiles(path=str(tmp_path))
    batches = [batch for unit in source.units() for batch in source.read(unit)]
    found = [run_stage(Probe(), batch) for batch in batches]
    assert not any(len(outputs["out"]) for outputs in found if "out" in outputs)
    rows = pa.concat_tables([outputs["failed"].rows for outputs in found]).to_pylist()
    errors = {row["source"].rpartition("/")[2]: row["error"] for row in rows}
    assert set(errors) == set(wanted)
    assert [name for name, (_, begins) in wanted.items() if not errors[name].startswith(begins)] == [], errors


@pytest.mark.parametrize("stage", [Shots(), Clips(), Decode(), Frames(), Cut(), Cut(method="exact")])
def test_a_span_in_milliseconds_is_told_with_the_length_of_the_film(stage):
    given = films(film(numbered(50), 25)).with_columns({"start_s": pa.array([500.0]), "end_s": pa.array([600.0])})
    error, = run_stage(stage, given)["failed"].column("error")
    assert error == "no_frames: no picture from 500 to 600 s; by its header it has 2 s"


@pytest.mark.slow
def test_a_folder_of_them_gives_the_clips_that_can_be_read(tmp_path):
    films, out = tmp_path / "films", tmp_path / "out"
    films.mkdir()
    bad, none = bad_films(), no_films()
    files = {"good.mp4": two_shots(17), **bad, **{name: data for name, (data, _) in none.items()}}
    for name, data in files.items():
        (films / name).write_bytes(data)
    stats = run(out, "video/split", "--set", f"read.path={films}", "--set", "max_failed=100")
    records = stats["records"]
    assert records["in"] + records["made"] == sum(records[end] for end in ("written", "dropped", "duplicate", "failed"))
    assert set(named(table(out / "failed/probe"))) == set(none)
    clips: dict[str, list] = {}
    for row in table(out / "data"):
        clips.setdefault(row["source"].rpartition("/")[2], []).append(row)
    spans = {name: sorted((round(row["start_s"], 2), round(row["end_s"], 2)) for row in rows) for name, rows in clips.items()}
    whole = [(0.0, 2.4), (2.4, 4.8)]
    for name in ("good.mp4", "back.ts", "wrong.mp4", "lying_length.mp4", "lying_size.mp4"):
        assert spans.get(name) == whole, (name, spans)
    for name in ("half.mp4", "half.mkv", "half.ts", "flipped.mp4"):
        assert spans.get(name) == whole[:1], (name, spans)
    said = {name: rows[0]["probe_note"] for name, rows in clips.items()}
    assert said["half.mp4"] == said["half.mkv"] == "truncated"
    assert {row["decode_note"] for row in clips["back.ts"]} == {None, "times_go_back"}
    assert clips["zeroed.mp4"][0]["probe_note"] is None  # the packets are there
    assert "damaged" in {row["decode_note"] for row in clips["zeroed.mp4"]}
    damaged, = table(out / "dropped/damaged")
    assert (damaged["source"].rpartition("/")[2], damaged["start_s"]) == ("flipped.mp4", pytest.approx(2.4))
