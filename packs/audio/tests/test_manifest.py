"""Manifests: NeMo's lines, tables of paths, media inside Parquet; what is wrong with a line is told."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_audio.read.decode import Decode
from curator_audio.read.manifest import Manifest

from curator.api.errors import InputError
from curator.testing import check_source, run_stage
from packs.audio.tests.recordings import noise
from packs.audio.tests.sound_files import by_soundfile

SOUND = noise(4.0, 8_000)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wavs").mkdir()
    (tmp_path / "wavs" / "a.wav").write_bytes(by_soundfile(SOUND, 8_000))
    (tmp_path / "b.flac").write_bytes(by_soundfile(SOUND[::-1], 8_000, "FLAC"))
    return tmp_path


def lines(folder, *records, name="manifest.json"):
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records))
    return str(folder / name)


def read(source):
    """Rows by port."""
    found = {"out": [], "failed": [], "dropped": []}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                found[port] += batch.rows.to_pylist()
    return found


def test_a_manifest_of_nemo(folder):
    path = lines(folder, {"audio_filepath": "wavs/a.wav", "offset": 1.5, "duration": 2.0, "text": "hello", "lang": "en"},
                 {"audio_filepath": "./b.flac", "duration": 4, "text": "world", "_skipme": False},
                 {"audio_filepath": "b.flac", "duration": 4.0, "text": "not this", "_skipme": True}, "{ not json",
                 {"duration": 1.0, "text": "lost"}, {"audio_filepath": str(folder / "b.flac"), "text": "absolute"})
    found = read(Manifest(path=path))
    assert [r["path"] for r in found["out"]] == [f"{folder}/wavs/a.wav", f"{folder}/b.flac", f"{folder}/b.flac"]
    assert [(r["offset"], r["duration"], r["text"], r["extension"]) for r in found["out"]] == [
        (1.5, 2.0, "hello", "wav"), (None, 4.0, "world", "flac"), (None, None, "absolute", "flac")]
    assert all(r["bytes"] is None and r["source"] == path and "skipme_" not in r for r in found["out"])
    assert [(r["text"], r["reason"]) for r in found["dropped"]] == [("not this", "skipme")]
    errors = [r["error"] for r in found["failed"]]
    assert len(errors) == 2
    assert any(error == "no path: audio_filepath is None" for error in errors)


def test_a_duration_that_is_none(folder):
    """NeMo writes -1 where nobody knows; what is no time at all would drown the hours of all others."""
    path = lines(folder, *({"audio_filepath": "b.flac", "duration": one} for one in (-1.0, 0.0, 4.0, None, 1e300)))
    found = read(Manifest(path=path))
    assert [row["duration"] for row in found["out"]] == [None, None, 4.0, None]
    assert [row["error"] for row in found["failed"]] == ["no such time: duration is 1e+300 seconds"]


def test_only_the_part_that_a_line_names_is_decoded(folder):
    path = lines(folder, {"audio_filepath": "wavs/a.wav", "offset": 1.5, "duration": 2.0}, {"audio_filepath": "b.flac", "duration": 3.9})
    source = Manifest(path=path)
    (unit,) = source.units()
    out = run_stage(Decode(), next(iter(source.read(unit)))["out"])["out"]
    assert np.abs(out.samples[0][0] - SOUND[12_000:28_000]).max() < 1e-4
    assert out.column("duration") == [2.0, 4.0]
    assert out.column("declared_duration") == [2.0, 3.9]
    assert out.column("start_s") == [1.5, 0.0]


def test_tables_with_names_of_their_own(folder):
    (folder / "list.csv").write_text("wav,sentence,duration,offset\nwavs/a.wav,hi,4.0,\nb.flac,ho,soon,1\n")
    found = read(Manifest(path=str(folder / "list.csv"), names={"wav": "path", "sentence": "text"}))
    assert [(r["path"], r["text"], r["duration"], r["offset"]) for r in found["out"]] == [(f"{folder}/wavs/a.wav", "hi", 4.0, None)]
    assert [r["error"] for r in found["failed"]] == ["no number: duration is 'soon'"]
    pq.write_table(pa.table({"path": ["b.flac"], "duration": pa.array([4.0], pa.float32())}), folder / "list.parquet")
    found = read(Manifest(path=str(folder / "list.parquet"), root="s3://bucket/sounds/"))
    assert [(r["path"], r["duration"]) for r in found["out"]] == [("s3://bucket/sounds/b.flac", 4.0)]


def test_recordings_inside_parquet(folder):
    """As datasets of the Hugging Face hub have them: the name leads nowhere."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    audio = pa.array([{"bytes": by_soundfile(SOUND, 8_000), "path": "x.wav"}, {"bytes": None, "path": "b.flac"},
                      {"bytes": None, "path": None}, None], kind)
    pq.write_table(pa.table({"audio": audio, "sentence": ["1", "2", "3", "4"]}), folder / "hub.parquet")
    source = Manifest(path=str(folder / "hub.parquet"), names={"sentence": "text"})
    found = read(source)
    assert [(r["path"], r["extension"], r["bytes"] is None) for r in found["out"]] == [("x.wav", "wav", False), (
        f"{folder}/b.flac", "flac", True)]
    assert len(found["failed"]) == 2
    out = run_stage(Decode(), next(iter(source.read(source.units()[0])))["out"])["out"]
    assert out.column("duration") == [4.0, 4.0]
    check_source(source)


def test_the_source_keeps_its_rules(folder):
    lines(folder, {"audio_filepath": "wavs/a.wav", "duration": 4, "text": "hello"}, {"text": "no path"}, name="a.jsonl")
    lines(folder, {"audio_filepath": "b.flac", "offset": 0.5, "_skipme": 1}, {"audio_filepath": "b.flac", "source": "x"}, name="b.jsonl")
    check_source(Manifest(path=str(folder)))
    assert {row["path"] for row in read(Manifest(path=str(folder)))["out"]} == {f"{folder}/wavs/a.wav", f"{folder}/b.flac"}
    check_source(Manifest(path=str(folder), unit_bytes=1))


def test_what_is_no_manifest_is_told_before_anything_runs(folder):
    with pytest.raises(InputError, match=r"no column says where recordings lie; there are text, id, source. Name it with `names`"):
        Manifest(path=lines(folder, {"text": "hello"})).units()
    with pytest.raises(InputError, match=r"b.flac is no manifest"):
        Manifest(path=str(folder / "b.flac")).units()
    (folder / "list.csv").write_text("path\nb.flac\n")
    with pytest.raises(InputError, match="of several kinds"):
        Manifest(path=str(folder)).units()
    for wrong in ({"unit_bytes": 0}, {"names": {"a": "path", "b": "path"}}, {"path": ""}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Manifest(**{"path": "x", **wrong})


def test_a_folder_whose_name_is_not_utf8(folder):
    place = folder / os.fsdecode(b"\xff_a")
    place.mkdir()
    (folder / "b.flac").rename(place / "b.flac")
    source = Manifest(path=lines(place, {"audio_filepath": "b.flac"}, {"audio_filepath": "none.flac"}), exists=True)
    found = read(source)
    assert [r["path"] for r in found["out"]] == [rf"{folder}/\xff_a/b.flac"]
    assert [r["error"] for r in found["failed"]] == [rf"no such file: {folder}/\xff_a/none.flac"]


def test_a_manifest_that_came_later_is_read_by_the_same_source(folder):
    (folder / "lists").mkdir()
    source = Manifest(path=str(folder / "lists"))
    for count in (1, 2):
        lines(folder / "lists", {"audio_filepath": f"{count}.wav"}, name=f"{count}.jsonl")
        assert len(read(source)["out"]) == count
