"""lhotse shar: what is written comes back, names and fields are lhotse's, what does not fit together fails
alone."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from curator_audio.read.shar import Shar
from curator_audio.sound.encode import Encode
from curator_audio.write.to_shar import ToShar, header_of
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.testing import check_sink, check_source, run_stage
from packs.audio.tests.recordings import recordings, sine
from packs.audio.tests.sound_files import by_soundfile

WORDS = pa.list_(pa.struct({"word": pa.string(), "start": pa.float64(), "end": pa.float64(), "score": pa.float64()}))
FLAC = [run_stage(Encode(), recordings(sine(440, seconds)))["out"].column("bytes")[0] for seconds in (0.5, 0.25)]


def read(folder, port="out", **parameters) -> list[dict]:
    source = Shar(path=str(folder), **parameters)
    outputs = [one for unit in source.units() for one in source.read(unit)]
    batches = [one[port] if isinstance(one, dict) else one for one in outputs if port in (one if isinstance(one, dict) else ("out",))]
    return [row for batch in batches for row in batch.rows.to_pylist()]


def write(folder, batch, **parameters):
    writer = ToShar(path=str(folder), **parameters).open("part-a")
    writer.write(batch)
    return writer.close()


def batch_of(*rows: dict) -> Batch:
    names = dict.fromkeys(name for row in rows for name in row)
    return Batch(rows=pa.table({name: [row.get(name) for row in rows] for name in names}))


def archive(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def shard(folder: Path, cuts: Sequence[dict | str], members: Sequence[tuple[str, bytes]] | None, number: str = "000000") -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join((cut if isinstance(cut, str) else json.dumps(cut)) + "\n" for cut in cuts)
    (folder / f"cuts.{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    if members is not None:
        archive(folder / f"recording.{number}.tar", members)


def cut(key: str, **more) -> dict:
    return {"id": key, "start": 0, "duration": 0.5, "channel": 0, "supervisions": [], "type": "MonoCut"} | more


# -- writing ------------------------------------------------------------------------------------------------------


def test_files_and_fields_are_those_of_lhotse(tmp_path):
    """The set of lhotse 1.33: three cuts of half a second, two a shard."""
    row = {"source": "s", "bytes": FLAC[0], "extension": "flac", "duration": 0.5, "sample_rate": 16_000, "text": "hello",
           "speaker": "spk", "language": "en", "gender": "f", "snr": 3.5,
           "words": [{"word": "hello", "start": 0.25, "end": 0.5, "score": 0.9}]}
    write(tmp_path, batch_of(*({"id": f"spk/c{number}"} | row for number in range(3))), records=2)
    folder = tmp_path / "part-a"
    assert sorted(path.name for path in folder.iterdir()) == [
        "cuts.000000.jsonl.gz", "cuts.000001.jsonl.gz", "recording.000000.tar", "recording.000001.tar"]
    recording = {"id": "spk/c0", "sources": [{"type": "shar", "channels": [0], "source": ""}], "sampling_rate": 16_000,
                 "num_samples": 8_000, "duration": 0.5, "channel_ids": [0]}
    supervision = {"id": "spk/c0", "recording_id": "spk/c0", "start": 0, "duration": 0.5, "channel": 0, "text": "hello",
                   "language": "en", "speaker": "spk", "gender": "f", "alignment": {"word": [["hello", 0.25, 0.25, 0.9]]}}
    expected = {"id": "spk/c0", "start": 0, "duration": 0.5, "channel": 0, "supervisions": [supervision], "recording": recording,
                "custom": {"source": "s", "snr": 3.5}, "type": "MonoCut"}
    first = gzip.decompress((folder / "cuts.000000.jsonl.gz").read_bytes()).splitlines()[0]
    assert json.loads(first) == expected
    assert list(json.loads(first)) == list(expected)
    with tarfile.open(folder / "recording.000000.tar") as file:
        assert [(one.name, one.mtime, one.uid) for one in file] == [
            (name, 0, 0) for name in ("spk/c0.flac", "spk/c0.json", "spk/c1.flac", "spk/c1.json")]
        assert file.extractfile("spk/c0.json").read().decode() == json.dumps(recording) + "\n"  # byte for byte


def test_no_audio_and_two_channels(tmp_path):
    stereo = by_soundfile([sine(440, 0.5), sine(330, 0.5)], 8_000, "WAV")
    write(tmp_path, batch_of({"id": "none", "source": "s", "bytes": None, "duration": 2.0},
                             {"id": "two", "source": "s", "bytes": stereo, "extension": ".WAV", "duration": 1.0}))
    with tarfile.open(tmp_path / "part-a" / "recording.000000.tar") as file:
        assert [one.name for one in file] == ["none.nodata", "none.nometa", "two.wav", "two.json"]
    lines = gzip.decompress((tmp_path / "part-a" / "cuts.000000.jsonl.gz").read_bytes()).splitlines()
    none, two = map(json.loads, lines)
    assert "recording" not in none
    assert (two["type"], two["channel"], two["recording"]["sampling_rate"], two["duration"]) == ("MultiCut", [0, 1], 8_000, 1.0)
    assert [(row["bytes"], row["extension"], row["channels"]) for row in read(tmp_path)] == [(None, None, 1), (stereo, ".WAV", 2)]


def test_headers():
    assert header_of(memoryview(FLAC[1])) == (16_000, 4_000, 1)
    assert header_of(memoryview(by_soundfile(sine(440, 0.5, 44_100), 44_100, "OGG"))) == (44_100, 22_050, 1)
    assert header_of(memoryview(b"no sound")) is None


NAMES = st.one_of(st.text(max_size=12), st.sampled_from(["spk/a", "a.b.flac", "/a", "../x", "a//b", ".", "", "A", "a", "a-2", "x\n"]))
RECORDS = st.lists(st.fixed_dictionaries({
    "id": NAMES, "source": st.sampled_from(["s", "t"]), "bytes": st.sampled_from([None, b"", b"any", *FLAC]),
    "extension": st.sampled_from([None, "flac", "FLAC", "a b", "tar.gz"]), "text": st.none() | st.text(max_size=5),
    "speaker": st.sampled_from([None, "s0"]), "language": st.sampled_from([None, "de"]), "gender": st.none(),
    "words": st.none() | st.lists(st.fixed_dictionaries({
        "word": st.text(max_size=3), "start": st.sampled_from([0.1, 0.25]), "end": st.sampled_from([0.3, 1.7]), "score": st.none()})),
    "snr": st.none() | st.floats(-5, 5), "tags": st.lists(st.text(max_size=3), max_size=2), "id_2": st.integers(0, 9)}),
    min_size=1, max_size=5)


@given(RECORDS)
@settings(max_examples=25, deadline=None)
def test_what_is_written_comes_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("shar")
    batch = Batch(rows=pa.Table.from_pylist(rows))
    batch = batch.with_columns({"words": pa.array([row["words"] for row in rows], WORDS)})
    write(folder, batch, records=3)
    found = read(folder)
    assert [{name: got.get(name) for name in row} for row, got in zip(rows, found, strict=True)] == rows


def test_the_same_records_give_the_same_bytes(tmp_path):
    batch = batch_of({"id": "a", "source": "s", "bytes": FLAC[0]}, {"id": "b", "source": "s", "bytes": None})
    for name in "xy":
        write(tmp_path / name, batch)
    contents = [[path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))] for name in "xy"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("parameters", [{}, {"records": 1}, {"select": ["text"]}])
def test_the_sink_keeps_its_rules(tmp_path, parameters):
    rows = ({"id": f"r{number}", "source": "s", "bytes": FLAC[0], "text": "x", "extension": "flac"} for number in range(3))
    check_sink(ToShar(path=str(tmp_path / "out"), **parameters), batch_of(*rows))


# -- reading ------------------------------------------------------------------------------------------------------


def test_supervisions_as_columns_and_as_a_list(tmp_path):
    said = [{"id": "b", "recording_id": "r", "start": 0.3, "duration": 0.1, "channel": 0, "text": "two", "speaker": "s1", "language": "en"},
            {"id": "a", "recording_id": "r", "start": 0.0, "duration": 0.2, "channel": 0, "text": "one", "speaker": "s0", "language": "en"}]
    shard(tmp_path, [cut("c", supervisions=said, custom={"text": "x", "snr": 1.5})], [("c.flac", FLAC[0]), ("c.json", b"{}")])
    row, = read(tmp_path)
    assert (row["text"], row["language"], row["custom_text"], row["snr"]) == ("one two", "en", "x", 1.5)
    assert "speaker" not in row
    assert row["turns"] == [{"start": 0.0, "end": 0.2, "speaker": "s0"}, {"start": 0.3, "end": 0.4, "speaker": "s1"}]
    row, = read(tmp_path, supervisions="list")
    assert [one["text"] for one in row["supervisions"]] == ["one", "two"]
    assert row["text"] == "x"


def test_what_does_not_fit_fails_alone(tmp_path):
    members = [(f"{name}.{ending}", b"data") for name in ("a", "stray", "c", "b", "late") for ending in ("flac", "json")]
    shard(tmp_path, [cut("a"), cut("b"), cut("c"), "{broken", cut("mixed", type="MixedCut", tracks=[]), cut("last")], members)
    assert [row["id"] for row in read(tmp_path)] == ["a", "c"]
    errors = sorted(row["error"].partition(": ")[2].split(": ", 1)[-1] for row in read(tmp_path, "failed"))
    told = "\n".join(errors)
    for words in ("the cut 'b' is not in", "the cut 'last' is not in", "not JSON", "MixedCut", "'stray' belongs to no cut",
                  "'b' belongs to no cut, or not in this place", "'late' belongs to no cut"):
        assert words in told
    assert len(errors) == 7
    check_source(Shar(path=str(tmp_path)))


def test_a_damaged_archive(tmp_path):
    shard(tmp_path, [cut(name) for name in "abc"], [(f"{name}.{ending}", b"x" * 600) for name in "abc" for ending in ("flac", "json")])
    path = tmp_path / "recording.000000.tar"
    data = bytearray(path.read_bytes())
    data[2 * 1536:2 * 1536 + 100] = b"?" * 100  # the header of the second recording
    path.write_bytes(data)
    assert [row["id"] for row in read(tmp_path)] == ["a", "c"]
    assert any("the cut 'b' is not in" in row["error"] for row in read(tmp_path, "failed"))
    path.write_bytes(bytes(data[:4 * 1536 + 800]))
    assert [row["id"] for row in read(tmp_path)] == ["a"]


def test_other_fields(tmp_path):
    shard(tmp_path, [cut("a", custom={"note": "old"}), cut("b")], [(f"{n}.{e}", b"x") for n in "ab" for e in ("flac", "json")])
    archive(tmp_path / "features.000000.tar", [("a.llc", b"123"), ("a.json", b'{"num_frames": 2}'), ("b.nodata", b""), ("b.nometa", b"")])
    notes = '{"cut_id": "a", "note": "new"}\n{"cut_id": "b"}\n'
    (tmp_path / "note.000000.jsonl.gz").write_bytes(gzip.compress(notes.encode()))
    (tmp_path / "recording.000000.tar.idx").write_bytes(b"ignored")
    rows = read(tmp_path)
    assert [(row["note"], row["features"], row["features_manifest"], row["bytes"]) for row in rows] == [
        ("new", b"123", '{"num_frames": 2}', b"x"), (None, None, None, b"x")]
    assert [set(row) for row in read(tmp_path, select=["note"])] == [{"id", "source", "note"}] * 2
    check_source(Shar(path=str(tmp_path)))


def test_cuts_of_files(tmp_path):
    recording = {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "/in/x.wav"}], "sampling_rate": 8_000,
                 "num_samples": 80_000, "duration": 10.0}
    shard(tmp_path, [cut("a", start=2.5, recording=recording)], None)
    row, = read(tmp_path)
    assert (row["path"], row["offset"], row["duration"], row["sample_rate"], row["bytes"]) == ("/in/x.wav", 2.5, 0.5, 8_000, None)


def test_a_shard_that_lacks_a_file(tmp_path):
    for number in ("000000", "000001"):
        shard(tmp_path, [cut(f"a{number}")], [(f"a{number}.flac", b"x")], number)
    assert len(read(tmp_path)) == 2
    (tmp_path / "recording.000001.tar").unlink()
    with pytest.raises(InputError, match=r"has no recording\.000001"):
        Shar(path=str(tmp_path)).units()
    with pytest.raises(InputError, match=r"cuts\.000000"):
        Shar(path=str(tmp_path / "recording.000000.tar")).units()


def test_original_files_get_the_ending_of_their_content(tmp_path):
    shard(tmp_path, [cut("a")], [("a.original", FLAC[0]), ("a.json", b"{}")])
    assert [row["extension"] for row in read(tmp_path)] == ["flac"]


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="supervisions is columns or list"):
        Shar(path="x", supervisions="all")
    with pytest.raises(ValueError, match="max_record_bytes"):
        Shar(path="x", max_record_bytes=0)
    with pytest.raises(RecipeError, match="words: "):
        ToShar(path="x").check({"bytes": pa.binary(), "words": pa.string()})


def test_cuts_that_end_too_early(tmp_path):
    shard(tmp_path, [cut(name) for name in "abc"], [(f"{name}.{ending}", b"x") for name in "abc" for ending in ("flac", "json")])
    path = tmp_path / "cuts.000000.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:150])[:-12])
    assert {row["id"] for row in read(tmp_path)} <= {"a"}
    assert any("is damaged" in row["error"] for row in read(tmp_path, "failed"))
