"""NeMo manifests: what stands in a line, where the audio lies, what NeMo would make of the names."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from curator_audio.write.to_nemo import ToNemo
from curator_audio.write.to_shar import ToShar

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.testing import check_sink


def records(**columns) -> Batch:
    """Three utterances of two files, the last one without audio."""
    given = {"id": ["a.b/1", "a.b/1#0-sub1", "none"], "source": ["s"] * 3,
             "path": ["/in/x.wav", "/in/x.wav", "/in/y.wav"], "bytes": [b"RIFF1", b"RIFF22", None],
             "extension": ["wav"] * 3, "duration": [1.5, 2.0, 3.25], "start_s": [0.0, 1.5, 0.0],
             "sample_rate": pa.array([16_000] * 3, pa.int32()), "text": ["ja", 'say "ü"', None],
             "lang": ["de", "de", None], "speech": [[{"start": 0.0, "end": 1.0}]] * 3,
             "snr_db": pa.array([20.5, None, 3.0], pa.float32())}
    return Batch(rows=pa.table(given | columns))


def written(folder, batch=None, **parameters) -> list:
    """Writes one unit and gives its files."""
    writer = ToNemo(path=str(folder), **parameters).open("part-a")
    writer.write(records() if batch is None else batch)
    return writer.close()


def lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_audio_beside_the_manifest(tmp_path):
    files = written(tmp_path)
    first, second, last = lines(tmp_path / "part-a-000.json")
    assert first == {"audio_filepath": "part-a-000/a_b_1.wav", "duration": 1.5, "text": "ja", "lang": "de",
                     "id": "a.b/1", "source": "s", "extension": "wav", "start_s": 0.0,
                     "snr_db": 20.5}
    assert list(first)[:4] == ["audio_filepath", "duration", "text", "lang"]
    assert (second["text"], second["snr_db"]) == ('say "ü"', None)
    assert (last["audio_filepath"], last["_skipme"]) == ("", True)
    assert (tmp_path / second["audio_filepath"]).read_bytes() == b"RIFF22"
    assert [file.rows for file in files] == [3, 0, 0]


def test_audio_in_tars(tmp_path):
    written(tmp_path, audio="tar", records=2)
    tars, manifests = sorted(tmp_path.glob("*.tar")), sorted(tmp_path.glob("sharded_manifests/*.json"))
    numbers = [re.search(r"audio[^/]*_(\d+)[^/]*\.tar", str(path))[1] for path in tars]  # as NeMo finds them
    assert numbers == [re.search(r"manifest[^/]*_(\d+)[^/]*\.json", str(path))[1] for path in manifests]
    assert len(set(numbers)) == 2
    first, second = lines(manifests[0])
    assert (first["shard_id"], first["audio_filepath"]) == (int(numbers[0]), "a_b_1.wav")
    assert not re.search(r"-sub\d+(\.\w+)?$", second["audio_filepath"])  # NeMo would look for another member
    with tarfile.open(tars[0]) as archive:
        assert [member.name for member in archive] == [first["audio_filepath"], second["audio_filepath"]]
        assert archive.extractfile(second["audio_filepath"]).read() == b"RIFF22"
        assert {member.mtime for member in archive} == {0}
    assert lines(manifests[1])[0]["_skipme"] is True


def test_no_copies(tmp_path):
    written(tmp_path, audio="source")
    assert [path.name for path in tmp_path.rglob("*")] == ["part-a-000.json"]
    found = lines(tmp_path / "part-a-000.json")
    assert [(line["audio_filepath"], line["offset"], line["duration"]) for line in found] == [
        ("/in/x.wav", 0.0, 1.5), ("/in/x.wav", 1.5, 2.0), ("/in/y.wav", 0.0, 3.25)]
    assert "sample_rate" not in found[0]  # NeMo would take it for that of the file
    assert "path" not in found[0]


def test_columns_are_chosen(tmp_path):
    batch = records(said=["x", "y", "z"], offset=[9.0] * 3)
    written(tmp_path, batch, select=["speech", "sample_rate"], text="said", absolute=True)
    assert lines(tmp_path / "part-a-000.json")[0] == {
        "audio_filepath": f"{tmp_path}/part-a-000/a_b_1.wav", "duration": 1.5, "text": "x", "lang": "de",
        "id": "a.b/1", "speech": [{"start": 0.0, "end": 1.0}], "sample_rate": 16_000}


def test_a_duration_that_is_none(tmp_path):
    written(tmp_path, records(duration=[1.0, None, float("nan")]))
    assert [line.get("_skipme") for line in lines(tmp_path / "part-a-000.json")] == [None, True, True]


def test_the_same_records_give_the_same_bytes(tmp_path):
    for audio in ("files", "tar", "source"):
        contents = []
        for run in "xy":
            written(tmp_path / audio / run, audio=audio)
            found = sorted(path for path in (tmp_path / audio / run).rglob("*") if path.is_file())
            contents.append([(path.name, path.read_bytes()) for path in found])
        assert contents[0] == contents[1]


@pytest.mark.parametrize("parameters", [{}, {"audio": "tar"}, {"audio": "source"}, {"records": 1},
                                        {"audio": "tar", "records": 1}])
def test_the_sink_keeps_its_rules(tmp_path, parameters):
    check_sink(ToNemo(path=str(tmp_path / "out"), **parameters), records())


def test_wrong_parameters_are_refused():
    for wrong in ({"audio": "copy"}, {"absolute": True, "audio": "tar"}, {"records": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ToNemo(path="x", **wrong)
    with pytest.raises(RecipeError, match="duration is string"):
        ToNemo(path="x").check({"bytes": pa.binary(), "duration": pa.string()})
    with pytest.raises(RecipeError, match="not binary"):
        ToNemo(path="x").check({"bytes": pa.string(), "duration": pa.float64()})


def test_columns_that_change_begin_no_new_manifest(tmp_path):
    for sink, name in ((ToNemo, "part-a-000.json"), (ToShar, "part-a/cuts.000000.jsonl.gz")):
        writer = sink(path=str(tmp_path / sink.name)).open("part-a")
        writer.write(records(score=[1, 2, 3]))
        writer.write(records(score=[0.5, 1.0, None], more=[1, 2, 3]))
        writer.write(records())
        assert writer.close()[0].rows == 9
        assert (tmp_path / sink.name / name).exists()
