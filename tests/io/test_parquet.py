from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator.api.errors import InputError
from curator.io.files.folder import Folder
from curator.io.tables.parquet import Parquet

DAY = dt.date(2020, 1, 2)
TYPED = pa.table({
    "id": pa.array(["a", "b"]),
    "zip": pa.array(["007", None]),
    "day": pa.array([DAY, None], pa.date32()),
    "at": pa.array([dt.datetime(2020, 1, 2, 3), None], pa.timestamp("us", "UTC")),
    "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    "small": pa.array([1, None], pa.int8()),
    "big": pa.array([2**64 - 1, None], pa.uint64()),
    "nested": pa.array([{"x": [1, None], "y": {"z": "t"}}, None],
                       pa.struct([("x", pa.list_(pa.int32())), ("y", pa.struct([("z", pa.string())]))])),
    "pairs": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "raw": pa.array([b"\x00\xff", None], pa.binary()),
    "kind": pa.array(["x", None]).dictionary_encode(),
    "none": pa.nulls(2),
})


def test_every_type_comes_out_as_it_went_in(tmp_path, read_all):
    pq.write_table(TYPED, tmp_path / "a.parquet")
    source = Parquet(path=str(tmp_path))
    found = read_all(source)
    assert found.tables[0].select(TYPED.column_names).equals(TYPED)
    columns = source.columns()
    assert columns["price"] == pa.decimal128(10, 2)
    assert columns["none"] is None
    assert list(columns)[-1] == "source"


def test_a_big_file_is_split_at_row_groups_and_each_row_comes_once(tmp_path, read_all):
    pq.write_table(pa.table({"n": range(10_000)}), tmp_path / "a.parquet", row_group_size=700, compression="none")
    source = Parquet(path=str(tmp_path), unit_bytes=3000)
    units = source.units()
    assert len(units) > 5
    found = read_all(source, units)
    assert found.column("n") == list(range(10_000))
    assert found.column("id") == read_all(Parquet(path=str(tmp_path))).column("id")
    assert len(set(found.column("id"))) == 10_000


def test_select_reads_only_these_columns(tmp_path, read_all):
    pq.write_table(TYPED, tmp_path / "a.parquet")
    found = read_all(Parquet(path=str(tmp_path), select=["nested", "zip"]))
    assert set(found.good[0]) == {"id", "source", "nested", "zip"}
    with pytest.raises(InputError, match=r"no column 'prise' \(did you mean 'price'\?\)"):
        Parquet(path=str(tmp_path), select=["prise"]).units()


def test_files_that_differ_widen_and_missing_columns_are_null(tmp_path, read_all):
    pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "kind": pa.array(["x"]).dictionary_encode()}),
                   tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [1.5], "kind": ["y"], "more": ["t"]}), tmp_path / "b.parquet")
    found = read_all(Parquet(path=str(tmp_path)))
    assert (found.column("n"), found.types("n")) == ([1.0, 1.5], {pa.float64()})
    assert (found.column("more"), found.types("more")) == ([None, "t"], {pa.string()})
    assert (found.column("kind"), found.types("kind")) == (["x", "y"], {pa.string()})


def test_types_that_cannot_be_joined_are_told_before_anything_runs(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"column 'a' is int64 in .*a.parquet and string in .*b.parquet"):
        Parquet(path=str(tmp_path)).units()


def test_bytes_are_not_taken_for_text(tmp_path):
    pq.write_table(pa.table({"a": [b"x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"column 'a' is binary in .* and string in"):
        Parquet(path=str(tmp_path)).columns()


def test_a_type_that_differs_in_a_file_nobody_looked_into_fails_there(tmp_path, read_all, monkeypatch):
    monkeypatch.setattr("curator.io.tables.columns.HEAD_FILES", 2)
    for i in range(4):
        pq.write_table(pa.table({"id": [f"r{i}"], "a": ["x"] if i == 1 else [i]}), tmp_path / f"{i}.parquet")
    found = read_all(Parquet(path=str(tmp_path)))
    assert found.column("id") == ["r0", "r2", "r3"]
    assert [(f["id"], f["raw"]) for f in found.failed] == [("r1", '{"a": "x"}')]
    assert "column 'a' is string here but int64 in" in found.failed[0]["error"]


def test_a_broken_file_is_one_failed_row_and_the_others_are_read(tmp_path, read_all):
    for name in "abc":
        pq.write_table(pa.table({"n": [name]}), tmp_path / f"{name}.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-10])
    found = read_all(Parquet(path=str(tmp_path)))
    assert found.column("n") == ["a", "c"]
    assert [f["id"] for f in found.failed] == [str(tmp_path / "b.parquet")]
    assert "is not a whole Parquet file" in found.failed[0]["error"]


def test_a_broken_split_file_fails_once(tmp_path, read_all):
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"n": range(5000)}), path, row_group_size=500, compression="none")
    source = Parquet(path=str(path), unit_bytes=5000)
    units = source.units()
    path.write_bytes(path.read_bytes()[:-10] + b"x" * 10)
    assert len(read_all(source, units).failed) == 1


def test_a_broken_row_group_fails_and_the_others_come(tmp_path, read_all):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [f"text {n * 7919 % 1000}" for n in range(3000)]}), path, row_group_size=1000,
                   compression="zstd", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + 60:column.data_page_offset + 100] = b"\xff" * 40
    path.write_bytes(bytes(data))
    found = read_all(Parquet(path=str(path)))
    assert len(found.good) == 2000
    assert [f["id"] for f in found.failed] == [f"{path}:row=1000"]
    assert "rows 1000 to 1999 (row group 1) cannot be read" in found.failed[0]["error"]


def test_files_that_are_not_parquet_are_told_before_anything_runs(tmp_path):
    (tmp_path / "a.parquet").write_text("hello")
    with pytest.raises(InputError, match=r"a.parquet is not a whole Parquet file"):
        Parquet(path=str(tmp_path)).units()


def test_empty_tables_and_no_columns(tmp_path, read_all):
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "a.parquet")
    assert read_all(Parquet(path=str(tmp_path))).good == []


def test_names_that_are_the_engines_and_own_ids(tmp_path, read_all):
    pq.write_table(pa.table({"_id": ["x"], "id": [7], "source": [{"site": "s"}]}), tmp_path / "a.parquet")
    assert read_all(Parquet(path=str(tmp_path))).good == [{"id_": "x", "id": "7", "source": '{"site": "s"}'}]


def test_batches_are_small(tmp_path, read_all):
    pq.write_table(pa.table({"t": ["x" * 100_000] * 300, "n": range(300)}), tmp_path / "a.parquet", use_dictionary=False)
    found = read_all(Parquet(path=str(tmp_path)))
    assert max(t.nbytes for t in found.tables) < 8 << 20
    assert found.column("n") == list(range(300))


def test_in_memory(read_all):
    folder = Folder.open("memory://parquet-test/in")
    with folder.open_file("a.parquet", "wb") as file:
        pq.write_table(TYPED, file)
    assert read_all(Parquet(path=folder.uri)).column("zip") == ["007", None]
