"""Clips in NeMo Curator's folders: names, keys, windows; by the recipe, and a second time."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path

import av
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_video.models.captions import CAPTION
from curator_video.write.to_nemo import ToNemo

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.testing import check_sink
from packs.video.tests.hostile import two_shots
from packs.video.tests.test_video_recipes import run

CAPTIONS = [[{"start": 2.0, "end": 12.0, "text": "a dog runs", "finish_reason": "stop"},
             {"start": 12.0, "end": 14.5, "text": None, "finish_reason": None}], None, []]


def clips(**columns):
    given = {"id": ["f#0", "f#1", "g#0"], "source": ["/in/f.mp4", "/in/f.mp4", "shard.tar"], "path": ["/in/f.mp4", "/in/f.mp4", None],
             "bytes": [b"mp4-1", b"mp4-22", None], "extension": ["mp4"] * 3, "start_s": [2.0, 14.5, 0.0], "end_s": [14.5, 20.0, 4.0],
             "duration": [12.5, 5.5, 4.0], "width": [640] * 3, "height": [360] * 3, "fps": [24.0, 24.0, None],
             "clip_frames": pa.array([300, 132, None], pa.int32()), "captions": pa.array(CAPTIONS, pa.list_(CAPTION)),
             "caption": ["a dog runs", "a cat", None], "preview": [b"webp", None, None], "aesthetic": [5.5, None, 4.0],
             "embedding": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32())), "motion_mean": [.125, None, .5],
             "phash": pa.array([[b"12345678"]] * 3, pa.list_(pa.binary()))}
    return Batch(rows=pa.table(given | columns))


def written(folder, batch=None, **parameters):
    writer = ToNemo(path=str(folder), **parameters).open("part-a")
    writer.write(clips() if batch is None else batch)
    return writer.close()


def test_a_tree_of_clips(tmp_path):
    files = written(tmp_path)
    names = [str(uuid.uuid5(uuid.NAMESPACE_URL, text)) for text in ("/in/f.mp4_2.0_14.5", "/in/f.mp4_14.5_20.0", "shard.tar_0.0_4.0")]
    stem = "part-a-000"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted([
        f"{stem}.parquet", f"ce1_embd_parquet/{stem}.parquet", *(f"clips/{stem}/{name}.mp4" for name in names[:2]),
        f"previews/{stem}/{names[0]}/0_240.webp", *(f"metas/v0/{stem}/{name}.json" for name in names)])
    assert [file.rows for file in files] == [3] + [0] * 7
    assert (tmp_path / f"clips/{stem}/{names[1]}.mp4").read_bytes() == b"mp4-22"
    first, second, last = (json.loads((tmp_path / f"metas/v0/{stem}/{name}.json").read_text()) for name in names)
    assert first.pop("columns") == {"id": "f#0", "source": "/in/f.mp4", "extension": "mp4", "start_s": 2.0, "end_s": 14.5, "duration": 12.5,
                                    "clip_frames": 300, "caption": "a dog runs", "aesthetic": 5.5, "motion_mean": .125}
    assert first == {
        "span_uuid": names[0], "source_video": "/in/f.mp4", "width_source": 640, "height_source": 360, "framerate_source": 24.0,
        "duration_span": [2.0, 14.5], "clip_location": f"clips/{stem}/{names[0]}.mp4", "num_frames": 300, "num_bytes": 5,
        "aesthetic_score": 5.5, "has_caption": True, "valid": True,
        "windows": [{"start_frame": 0, "end_frame": 240, "vlm_caption": "a dog runs"}, {"start_frame": 240, "end_frame": 300}]}
    assert second["windows"] == [{"start_frame": 0, "end_frame": 132, "vlm_caption": "a cat"}]
    assert (last["valid"], last["has_caption"], last["source_video"]) == (False, False, "shard.tar")
    assert pq.read_table(tmp_path / f"ce1_embd_parquet/{stem}.parquet").to_pylist() == [
        {"id": names[0], "embedding": [1.0, 2.0]}, {"id": names[2], "embedding": [3.0, 4.0]}]
    about = pq.read_table(tmp_path / f"{stem}.parquet").to_pylist()
    assert [row["span_uuid"] for row in about] == names
    assert about[0]["phash"] == [b"12345678"]


def test_what_is_asked_for(tmp_path):
    written(tmp_path, model="qwen", absolute=True, select=["motion_mean", "phash"])
    metas = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("metas/v0/*/*.json")}
    first = next(one for one in metas.values() if one["duration_span"] == [2.0, 14.5])
    assert Path(first["clip_location"]).read_bytes() == b"mp4-1"
    assert first["windows"][0]["qwen_caption"] == "a dog runs"
    assert set(first["columns"]) == {"motion_mean", "phash"}
    with pytest.raises(RecipeError, match="embedding is string"):
        ToNemo().check({"bytes": pa.binary(), "embedding": pa.string()})
    with pytest.raises(ValueError, match="model"):
        ToNemo(model="")


def test_the_sink_keeps_the_rules(tmp_path):
    check_sink(ToNemo(path=str(tmp_path)), clips())


@pytest.mark.slow
def test_the_recipe_writes_it_once(tmp_path):
    (tmp_path / "film.mp4").write_bytes(two_shots(1))
    words = ["video/split", "--set", f"read.path={tmp_path / 'film.mp4'}", "--set", "write={video.nemo: {}}"]
    assert run(tmp_path / "out", *words)["records"]["written"] == 2
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/data").rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path / "out/data").parts[0].partition(".")[0].partition("-")[0] for path in made} == {
        "clips", "previews", "metas", "part"}
    for meta in (tmp_path / "out/data").glob("metas/v0/*/*.json"):
        said = json.loads(meta.read_text())
        data = (tmp_path / "out/data" / said["clip_location"]).read_bytes()
        assert len(data) == said["num_bytes"]
        with av.open(io.BytesIO(data)) as clip:
            assert len(list(clip.decode(video=0))) == said["num_frames"] == said["windows"][0]["end_frame"] == 60
    assert run(tmp_path / "out", *words)["units"]["skipped"] == 1
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "out/data").rglob("*") if path.is_file()}
