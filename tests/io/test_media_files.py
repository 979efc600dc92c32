"""Files of any kind, read and written one a record, and media in Parquet."""

from __future__ import annotations

import json
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.io.files.folder import Folder
from curator.io.media.files import Files, ToFiles
from curator.io.media.sink import Names, safe
from curator.io.media.types import extension_of
from curator.io.tables.parquet import Parquet, ToParquet
from curator.stages import Map
from curator.testing import check_sink, check_source


def on(port: str, source, units=None) -> list[dict]:
    """The records that a source gives on a port."""
    outputs = [one for unit in (source.units() if units is None else units) for one in source.read(unit)]
    return [row for one in outputs if port in one for row in one[port].rows.to_pylist()]


def table(**columns) -> pa.Table:
    count = len(next(iter(columns.values())))
    always = {"id": [f"r{i}" for i in range(count)], "source": ["s"] * count, "bytes": [b"%d" % i for i in range(count)],
              "extension": ["jpg"] * count}
    return pa.table(always | columns)


# -- files to records ------------------------------------------------------------------------------------------


CONTENT = {"a.JPG": b"one", "sub/b.tar.gz": b"two", "sub/none": b"", "ü.png": b"\0\xff"}


def filled(place: str) -> Folder:
    folder = Folder.open(place)
    for name, data in CONTENT.items():
        folder.write(name, data)
    return folder


def test_a_record_a_file(place):
    folder = filled(place)
    found = on("out", Files(path=place))
    assert {row["source"]: (row["bytes"], row["extension"]) for row in found} == {
        folder.path_of("a.JPG"): (b"one", "jpg"), folder.path_of("sub/b.tar.gz"): (b"two", "gz"),
        folder.path_of("sub/none"): (b"", ""), folder.path_of("ü.png"): (b"\0\xff", "png")}
    assert len({row["id"] for row in found}) == 4
    check_source(Files(path=place))
    check_source(Files(path=place, unit_bytes=1))


def test_suffixes_choose_in_folders_and_not_in_globs(place):
    filled(place)
    assert [r["extension"] for r in on("out", Files(path=place, suffixes=["JPG", ".png"]))] == ["jpg", "png"]
    assert [r["extension"] for r in on("out", Files(path=f"{place}/sub/*", suffixes=["jpg"]))] == ["gz", ""]
    with pytest.raises(InputError, match=r"has no \.flac file"):
        Files(path=place, suffixes=["flac"]).units()


def test_a_subclass_has_suffixes_of_its_own(place):
    class Pictures(Files):
        default_suffixes = (".jpg", ".png")

    filled(place)
    assert len(on("out", Pictures(path=place))) == 2
    assert len(on("out", Pictures(path=place, suffixes=["gz"]))) == 1


def test_too_large_and_gone_files_are_accounted_for(place):
    folder = filled(place)
    source = Files(path=place, max_file_bytes=2)
    units = source.units()
    folder.write("ü.png", b"grown")
    dropped = on("dropped", source, units)
    assert sorted(row["extension"] for row in dropped) == ["gz", "jpg", "png"]
    assert {row["reason"] for row in dropped} == {"too_large"}
    folder.delete("sub/none")
    failed = on("failed", source, units)
    assert [row["source"] for row in failed] == [folder.path_of("sub/none")]
    assert "does not exist" in failed[0]["error"]


def test_a_name_that_is_no_text(tmp_path):
    path = os.fsencode(str(tmp_path)) + b"/\xff.png"
    with open(path, "wb") as file:
        file.write(b"1")
    row, = on("out", Files(path=str(tmp_path)))
    assert row["source"].endswith(r"/\xff.png")
    assert (row["bytes"], row["extension"]) == (b"1", "png")


def test_records_come_in_pieces_of_a_few_mb(place):
    folder = Folder.open(place)
    for i in range(12):
        folder.write(f"{i:02d}.bin", bytes([i]) * (1 << 20))
    source = Files(path=place)
    read = [batch for unit in source.units() for batch in source.read(unit)]
    assert all(len(outputs["out"]) <= 4 for outputs in read)
    assert [row[0] for outputs in read for row in outputs["out"].column("bytes")] == list(range(12))


@pytest.mark.parametrize(("uri", "extension"), [
    ("a.b.JPG", "jpg"), ("https://h/a.jpg?w=1.5", "jpg"), ("https://h/a#b.png", ""), ("/x.y/z", ""), ("/x/.bashrc", ""),
    ("s3://b/a?.webp", "webp"), ("a.", "")])
def test_endings(uri, extension):
    assert extension_of(uri) == extension


def test_parameters_are_checked(tmp_path):
    for name, value in [("path", []), ("suffixes", "jpg"), ("suffixes", []), ("max_file_bytes", 0), ("max_file_bytes", 1 << 31),
                        ("unit_bytes", 0)]:
        with pytest.raises(ValueError, match=f"^{name} must"):
            Files(**{"path": str(tmp_path), name: value})
    with pytest.raises(RecipeError, match="by: the column 'tags' is list"):
        ToFiles(path=str(tmp_path), by="tags").check({"bytes": pa.binary(), "tags": pa.list_(pa.string())})


# -- records to files ------------------------------------------------------------------------------------------


ROWS = {"key": ["x/1", None, "x/1", "b.c"], "extension": ["jpg", None, ".PNG", "a/b"], "bytes": [b"1", b"", None, b"4"],
        "label": ["cat", None, "../dog", "_x"], "thumb": [b"t", None, b"", b"u"], "file_name": ["old"] * 4}


def test_files_and_their_metadata(place, write_all):
    files = write_all(ToFiles(path=place), table(**ROWS), name="part-k")
    folder = Folder.open(place)
    assert folder.names(recursive=True) == ["part-k-000.parquet", "part-k-000/b_c", "part-k-000/r1", "part-k-000/x_1.jpg"]
    assert sorted(f.path for f in files) == [folder.path_of(n) for n in folder.names(recursive=True)]
    assert [f.rows for f in files] == [4, 0, 0, 0]
    about = pq.read_table(pa.BufferReader(folder.read("part-k-000.parquet"))).to_pylist()
    assert [row["file_name"] for row in about] == ["part-k-000/x_1.jpg", "part-k-000/r1", None, "part-k-000/b_c"]
    assert [(row["label"], row["thumb"], row["key"]) for row in about] == list(
        zip(ROWS["label"], ROWS["thumb"], ROWS["key"], strict=True))
    assert "bytes" not in about[0]
    assert [folder.read(row["file_name"]) for row in about if row["file_name"]] == [b"1", b"", b"4"]


def test_a_folder_for_each_value(place, write_all):
    write_all(ToFiles(path=place, by="label", select=["thumb"]), table(**ROWS), name="part-k")
    folder = Folder.open(place)
    assert folder.names(recursive=True) == ["cat/part-k-000-x_1.jpg", "null/part-k-000-r1", "part-k-000.parquet",
                                            "x/part-k-000-b_c"]
    assert set(pq.read_table(pa.BufferReader(folder.read("part-k-000.parquet"))).column_names) == {
        "id", "key", "extension", "label", "thumb", "file_name"}


def test_several_files_a_record(place, write_all):
    sink = ToFiles(path=place, beside={"jpg": "thumb", "txt": "label"}, json=True)
    write_all(sink, table(**ROWS, n=[[1, 2], None, [3], []]), name="part-k")
    folder, stem = Folder.open(place), "part-k-000"
    assert folder.names(recursive=True) == [f"{stem}.parquet", *(f"{stem}/{name}" for name in (
        "b_c", "b_c.jpg", "b_c.json", "b_c.txt", "r1", "r1.json", "x_1.jpg", "x_1.json", "x_1.thumb.jpg", "x_1.txt"))]
    assert [folder.read(f"{stem}/{name}") for name in ("x_1.jpg", "x_1.thumb.jpg", "x_1.txt", "b_c.jpg")] == [b"1", b"t", b"cat", b"u"]
    assert json.loads(folder.read(f"{stem}/x_1.json")) == {
        "id": "r0", "source": "s", "key": "x/1", "extension": "jpg", "label": "cat", "n": [1, 2]}
    about = pq.read_table(pa.BufferReader(folder.read(f"{stem}.parquet")))
    assert set(about.column_names) == {"id", "source", "key", "extension", "label", "n", "file_name"}
    with pytest.raises(RecipeError, match="neither bytes nor text"):
        ToFiles(path=place, beside={"txt": "n"}).check({"bytes": pa.binary(), "n": pa.list_(pa.int64())})
    with pytest.raises(ValueError, match="no ending of its own"):
        ToFiles(path=place, beside={"json": "n"}, json=True)


def test_a_new_folder_begins_after_so_many_records(place, write_all, read_all):
    files = write_all(ToFiles(path=place, records=10), *[table(n=list(range(7))).set_column(
        0, "id", pa.array([f"{k}-{i}" for i in range(7)])) for k in range(5)], name="part-k")
    assert [f.rows for f in files if f.rows] == [10, 10, 10, 5]
    assert len(Folder.open(place).names(recursive=True)) == 39
    found = read_all(Parquet(path=place))
    assert len(found.good) == 35
    assert len(on("out", Files(path=place, suffixes=["jpg"]))) == 35


@pytest.mark.parametrize("by", [None, "n"])
def test_the_kit(place, by):
    check_sink(ToFiles(path=place, by=by, json=by is not None), Batch(rows=table(n=[1, None, 2], extension=["jpg", "png", None])))


def test_a_disk_that_is_full_leaves_nothing(tmp_path, monkeypatch):
    writer = ToFiles(path=str(tmp_path)).open("part")
    writer.write(Batch(rows=table(n=[1, 2])))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="the disk is full"):
        writer.write(Batch(rows=table(n=[3, 4]).set_column(0, "id", pa.array(["x", "y"]))))
    writer.abort()
    assert Folder.open(str(tmp_path)).names(recursive=True) == []
    assert not list(tmp_path.rglob(".tmp-*"))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), max_size=8))
def test_safe_names(texts):
    names = Names()
    made = [names.unique(safe(text)) for text in texts]
    assert len({name.casefold() for name in made}) == len(texts)
    for name in made:
        assert not set(name) & set("./\\\0\n")
        assert name[0] != "_"
        assert 0 < len(name.encode()) <= 130


# -- media in Parquet ------------------------------------------------------------------------------------------


def test_a_hundred_records_of_a_megabyte(tmp_path, write_all):
    """They come back byte for byte, a few at a time, and never many of them are in memory."""
    rng = np.random.default_rng(0)
    rows = [table(bytes=[rng.bytes(1 << 20) for _ in range(10)], n=list(range(k, k + 10))) for k in range(0, 100, 10)]
    write_all(ToParquet(path=str(tmp_path)), *rows)
    groups = pq.ParquetFile(next(tmp_path.iterdir())).metadata
    assert max(groups.row_group(i).total_byte_size for i in range(groups.num_row_groups)) < 48 << 20
    source = Parquet(path=str(tmp_path))
    units = source.units()
    before = pa.total_allocated_bytes()
    count = most = 0
    expected = (value for table in rows for value in table["bytes"].to_pylist())
    for unit in units:
        for batch in source.read(unit):
            most = max(most, pa.total_allocated_bytes() - before)
            assert len(batch) <= 4
            assert batch.column("bytes") == [next(expected) for _ in range(len(batch))]
            count += len(batch)
    assert count == 100
    assert most < 80 << 20


def test_a_row_group_of_everything(tmp_path):
    """Files of others may have all their records in one row group; what is held of it are some pages."""
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"image": [rng.bytes(1 << 20) for _ in range(100)]}), tmp_path / "a.parquet", row_group_size=100,
                   compression="none", write_batch_size=4)
    source = Parquet(path=str(tmp_path))
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        count = sum(len(batch) for unit in source.units() for batch in source.read(unit))
        assert count == 100
        assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before < 50 << 20
    finally:
        tracemalloc.stop()


def test_the_layout_of_hugging_face(tmp_path):
    images = [{"bytes": b"one", "path": "a/x.JPG"}, {"bytes": b"two", "path": None}, None, {"bytes": None, "path": "http://x/y.png"}]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(images, kind), "label": [0, 1, 2, 3]}), tmp_path / "a.parquet")
    source = Parquet(path=str(tmp_path))
    unpack = Map(columns={"bytes": "image.bytes", "extension": r"lower(regexp_extract(image.path, '\.([^./]+)$', 1))"})
    assert unpack.columns_after(source.columns())["bytes"] == pa.binary()
    unpack.check(source.columns())
    batches = [unpack.process(batch) for unit in source.units() for batch in source.read(unit)]
    rows = batches[0].rows
    assert rows["bytes"].type == pa.binary()
    assert rows["bytes"].to_pylist() == [b"one", b"two", None, None]
    assert rows["extension"].to_pylist() == ["jpg", None, None, "png"]
    assert rows["label"].to_pylist() == [0, 1, 2, 3]
