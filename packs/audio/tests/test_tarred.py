"""Tarred sets of NeMo: several parts of one member, members and lines without each other, our own sets."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from curator_audio.read.decode import Decode
from curator_audio.read.tarred import Tarred
from curator_audio.write.to_nemo import ToNemo

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.testing import check_source, run_stage
from packs.audio.tests.recordings import noise
from packs.audio.tests.sound_files import by_soundfile
from packs.audio.tests.test_nemo import records


def shard(folder: Path, number: int, lines: list, members: dict[str, bytes]) -> None:
    (folder / "sharded_manifests").mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / "sharded_manifests" / f"manifest_{number}.json").write_text(text)
    with tarfile.open(folder / f"audio_{number}.tar", "w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def line(name: str, **more) -> dict:
    return {"audio_filepath": name, "duration": 1.0, "text": "hello"} | more


def read(folder, port="out", **parameters) -> list[dict]:
    source = Tarred(path=str(folder), **parameters)
    outputs = [one for unit in source.units() for one in source.read(unit)]
    batches = [one if isinstance(one, Batch) else one.get(port) for one in outputs if port == "out" or not isinstance(one, Batch)]
    return [row for batch in batches if batch is not None for row in batch.rows.to_pylist()]


def test_two_parts_of_one_member(tmp_path):
    sound = noise(2.0)
    parts = [line(f"a-sub{number}.wav", offset=start, duration=0.5, shard_id=0) for number, start in ((1, 0.25), (2, 1.0))]
    shard(tmp_path, 0, [*parts, line("b.flac", _skipme=False)], {"a.wav": by_soundfile(sound, 16_000), "b.flac": b"x"})
    first, second, third = read(tmp_path)
    assert [row["audio_filepath"] for row in (first, second, third)] == ["a-sub1.wav", "a-sub2.wav", "b.flac"]
    assert first["bytes"] == second["bytes"]
    assert (first["extension"], third["extension"], second["offset"], third["offset"]) == ("wav", "flac", 1.0, None)
    assert "key" not in first
    source = Tarred(path=str(tmp_path))
    batch = next(one for one in source.read(source.units()[0]) if isinstance(one, Batch))
    out = run_stage(Decode(), batch.slice(0, 2))["out"]
    for samples, start in zip(out.samples, (0.25, 1.0), strict=True):
        expected = sound[round(start * 16_000):round((start + 0.5) * 16_000)]
        assert abs(samples[0] - expected).max() < 1e-4
    check_source(Tarred(path=str(tmp_path)))


def test_what_does_not_fit_together(tmp_path):
    shard(tmp_path, 3, [line("gone.wav"), line("a.wav"), "{broken", {"text": "no name"}, line("a.wav", _skipme=1),
                        line("late.wav", _skipme=True)], {"a.wav": b"a", "unknown.wav": b"u"})
    assert [(row["audio_filepath"], row["bytes"]) for row in read(tmp_path)] == [("a.wav", b"a")]
    errors = "\n".join(row["error"] for row in read(tmp_path, "failed"))
    for words in ("'gone.wav' is not in", "not an object with an audio_filepath: Expecting", "audio_filepath: 'audio_filepath'"):
        assert words in errors
    assert len(errors.splitlines()) == 3
    dropped = read(tmp_path, "dropped")
    assert sorted((row["audio_filepath"], row["reason"], row["bytes"]) for row in dropped) == [
        ("a.wav", "skipme", None), ("late.wav", "skipme", None), ("unknown.wav", "not_in_manifest", None)]
    check_source(Tarred(path=str(tmp_path)))


def test_a_damaged_archive(tmp_path):
    shard(tmp_path, 0, [line(f"{name}.wav") for name in "abc"], {f"{name}.wav": b"x" * 600 for name in "abc"})
    path = tmp_path / "audio_0.tar"
    data = bytearray(path.read_bytes())
    data[1536:1636] = b"?" * 100
    path.write_bytes(data)
    assert [row["audio_filepath"] for row in read(tmp_path)] == ["a.wav", "c.wav"]
    path.write_bytes(data[:2 * 1536 + 800])
    assert [row["audio_filepath"] for row in read(tmp_path)] == ["a.wav"]
    assert any("'b.wav' is not in" in row["error"] for row in read(tmp_path, "failed"))
    assert any("c.wav is not whole" in row["error"] for row in read(tmp_path, "failed"))


def test_a_recording_that_is_too_large(tmp_path):
    shard(tmp_path, 0, [line("a.wav"), line("b.wav")], {"a.wav": b"x" * 600, "b.wav": b"x"})
    assert [row["audio_filepath"] for row in read(tmp_path, max_record_bytes=500)] == ["b.wav"]
    assert "more than max_record_bytes" in read(tmp_path, "failed", max_record_bytes=500)[0]["error"]
    assert [set(row) for row in read(tmp_path, select=["text"])] == [{"id", "source", "text"}] * 2


def test_what_we_write_is_read(tmp_path):
    writer = ToNemo(path=str(tmp_path), audio="tar", records=1).open("part-a")
    writer.write(records())
    writer.close()
    rows = read(tmp_path)
    assert sorted((row["id"], row["bytes"], row["text"], row["duration"]) for row in rows) == [
        ("a.b/1", b"RIFF1", "ja", 1.5), ("a.b/1#0-sub1", b"RIFF22", 'say "ü"', 2.0)]
    assert [row["reason"] for row in read(tmp_path, "dropped")] == ["skipme"]
    check_source(Tarred(path=str(tmp_path)))


def test_buckets_and_files_that_are_missing(tmp_path):
    for bucket in ("one", "two"):
        shard(tmp_path / bucket, 0, [line(f"{bucket}.wav")], {f"{bucket}.wav": b"x"})
    assert len(read(tmp_path)) == 2
    assert len(Tarred(path=str(tmp_path)).units()) == 2
    (tmp_path / "two" / "audio_0.tar").unlink()
    with pytest.raises(InputError, match=r"two/sharded_manifests/manifest_0.json has no archive with the number 0"):
        Tarred(path=str(tmp_path)).units()
    (tmp_path / "one" / "sharded_manifests" / "manifest_0_clean.json").write_text("")
    with pytest.raises(InputError, match="both have the number 0"):
        Tarred(path=str(tmp_path / "one")).units()
    with pytest.raises(InputError, match="no manifests named"):
        Tarred(path=str(tmp_path / "one" / "audio_0.tar")).units()
