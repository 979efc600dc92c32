"""Parquet whose audio is known for audio: by its schema, and by the library that reads it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_audio.read.manifest import Manifest
from curator_audio.write.to_hf import AUDIO, ToHf

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.testing import check_sink

ROWS = pa.table({"id": ["a", "b/c", "none"], "source": ["s"] * 3, "extension": ["flac", ".WAV", None],
                 "text": ["x", None, "z"], "words": [[{"word": "x"}], None, []],
                 "bytes": pa.chunked_array([[b"one"], [b"two", None]], pa.large_binary())})


def written(folder, **parameters) -> str:
    writer = ToHf(path=str(folder), **parameters).open("part-a")
    writer.write(Batch(rows=ROWS))
    (file,) = writer.close()
    return file.path


def told(schema: pa.Schema) -> dict:
    return json.loads(schema.metadata[b"huggingface"])["info"]["features"]


def test_the_schema_says_what_is_audio(tmp_path):
    path = written(tmp_path)
    table = pq.read_table(path)
    assert table.schema.field("audio").type.equals(AUDIO)
    assert told(table.schema) == {"audio": {"_type": "Audio"}}
    assert table.column("audio").to_pylist() == [
        {"bytes": b"one", "path": "a.flac"}, {"bytes": b"two", "path": "b_c.wav"}, None]
    assert table.column_names == ["audio", "id", "source", "extension", "text", "words"]


def test_columns_are_chosen(tmp_path):
    path = written(tmp_path, select=["text"], column="speech", rate=16_000)
    schema = pq.read_schema(path)
    assert schema.names == ["speech", "text"]
    assert told(schema) == {"speech": {"sampling_rate": 16_000, "_type": "Audio"}}


def test_the_library_sees_an_audio_feature(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features.from_arrow_schema(pq.read_schema(written(tmp_path, rate=8_000)))
    assert features["audio"] == datasets.Audio(sampling_rate=8_000)
    assert features["text"] == datasets.Value("string")


def test_manifests_are_read_back(tmp_path):
    source = Manifest(path=written(tmp_path))
    rows = [row for one in source.read(source.units()[0]) if "out" in one for row in one["out"].rows.to_pylist()]
    assert [(row["id"], row["bytes"], row["extension"]) for row in rows][:2] == [("a", b"one", "flac"), ("b/c", b"two", "wav")]


def test_the_sink_keeps_its_rules(tmp_path):
    check_sink(ToHf(path=str(tmp_path / "out")), Batch(rows=ROWS))
    check_sink(ToHf(path=str(tmp_path / "more"), target_bytes=1), Batch(rows=ROWS))


def test_wrong_parameters_are_refused():
    for wrong in ({"column": ""}, {"rate": 0}, {"compression": "rar"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ToHf(path="x", **wrong)
    with pytest.raises(RecipeError, match="not binary"):
        ToHf(path="x").check({"bytes": pa.string()})
