from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import feather

from curator import read
from curator.api.errors import InputError
from curator.io.tables.arrow import Arrow, ToArrow
from curator.pipeline.formats import format_of


def rows(first: int, count: int = 100) -> pa.Table:
    return pa.table({"n": range(first, first + count), "kind": pa.array(["a", "b"] * (count // 2)).dictionary_encode(),
                     "nested": [{"x": [i, None]} for i in range(count)]})


def write_file(path, begin=pa.ipc.new_file, batches: int = 10) -> None:
    with begin(str(path), rows(0).schema) as writer:
        for k in range(batches):
            writer.write_table(rows(100 * k))


@pytest.mark.parametrize(("name", "begin"), [("a.arrow", pa.ipc.new_file), ("a.arrows", pa.ipc.new_stream), ("b.arrow", pa.ipc.new_stream)])
def test_files_and_streams_come_in_units_with_their_types(tmp_path, read_all, name, begin):
    write_file(tmp_path / name, begin)
    source = Arrow(path=str(tmp_path), unit_bytes=3000)
    units = source.units()
    assert len(units) > 3
    found = read_all(source, units)
    assert found.column("n") == list(range(1000))
    assert found.types("nested") == {rows(0).schema.field("nested").type}
    assert len(set(found.column("id"))) == 1000
    assert found.column("id") == read_all(Arrow(path=str(tmp_path))).column("id")
    picked = read_all(Arrow(path=str(tmp_path), select=["kind"])).good[:2]
    assert [set(row) for row in picked] == [{"id", "source", "kind"}] * 2
    assert [row["kind"] for row in picked] == ["a", "b"]


def test_feather_and_the_cache_of_datasets(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": ["x", "y"]}).save_to_disk(tmp_path / "saved")
    feather.write_feather(pa.table({"text": ["z"]}), str(tmp_path / "saved" / "z.feather"), compression="lz4")
    assert read([str(p) for p in sorted(tmp_path.glob("saved/*.*r*")) if format_of(p.name) == "arrow"]).collect()["text"].to_pylist() \
        == ["x", "y", "z"]
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    with pytest.raises(InputError, match=r"old.feather is a Feather file of version 1.*Convert it"):
        Arrow(path=str(tmp_path / "old.feather")).units()


def test_a_broken_file_fails_alone_and_a_broken_batch_too(tmp_path, read_all):
    write_file(tmp_path / "a.arrow")
    write_file(tmp_path / "b.arrow")
    data = bytearray((tmp_path / "b.arrow").read_bytes())
    at = data.index(pa.array(range(300, 310)).buffers()[1].to_pybytes()) - 250  # in the header of the fourth batch
    data[at:at + 100] = b"\xff" * 100
    (tmp_path / "b.arrow").write_bytes(data)
    (tmp_path / "c.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:-30])
    write_file(tmp_path / "d.arrows", pa.ipc.new_stream)
    (tmp_path / "d.arrows").write_bytes((tmp_path / "d.arrows").read_bytes()[:-500])
    source = Arrow(path=str(tmp_path), unit_bytes=6000)
    found = read_all(source)
    errors = {f["id"]: f["error"] for f in found.failed}
    assert sorted(errors) == [f"{tmp_path}/b.arrow:batch=3", f"{tmp_path}/c.arrow", f"{tmp_path}/d.arrows:batch=9"]
    assert "record batch 3 cannot be read" in errors[f"{tmp_path}/b.arrow:batch=3"]
    assert "is not a whole Arrow IPC file or stream" in errors[f"{tmp_path}/c.arrow"]
    assert "record batch 9 and all behind it cannot be read" in errors[f"{tmp_path}/d.arrows:batch=9"]
    assert len(found.good) == 1000 + 900 + 900


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"stream": True, "compression": "lz4"}], ids=str)
def test_what_is_written_others_read(tmp_path, write_all, options):
    [file] = write_all(ToArrow(path=str(tmp_path), **options), rows(0), rows(100))
    table = pa.ipc.open_stream(file.path).read_all() if "stream" in options else feather.read_table(file.path)
    assert table["n"].to_pylist() == list(range(200))
    assert table["kind"].to_pylist() == ["a", "b"] * 100
    with pytest.raises(ValueError, match="compression must be one of none, lz4, zstd, got 'gzip'"):
        ToArrow(compression="gzip")
