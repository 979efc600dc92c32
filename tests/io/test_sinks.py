from __future__ import annotations

import base64
import datetime as dt
import errno
import gzip
import json
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.io.files.folder import Folder, open_input
from curator.io.files.local import LocalOutput
from curator.io.tables.arrow import Arrow, ToArrow
from curator.io.tables.csv import Csv, ToCsv
from curator.io.tables.jsonl import Jsonl, ToJsonl
from curator.io.tables.parquet import Parquet, ToParquet

SINKS = [ToJsonl, ToParquet, ToCsv, ToArrow]
SOURCES = {ToJsonl: Jsonl, ToParquet: Parquet, ToCsv: Csv, ToArrow: Arrow}


def table(**columns) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"id": [f"r{i}" for i in range(count)], **columns})


def lines(folder: Folder) -> list[dict]:
    return [json.loads(line) for name in folder.names() for line in open_input(folder.path_of(name)).read().splitlines()]


# -- files appear whole, under the name they were given ------------------------------------------------------------------


@pytest.mark.parametrize("sink", SINKS)
def test_files_are_named_after_the_unit_and_reported(place, write_all, sink):
    files = write_all(sink(path=place), table(t=["x", "y"]), table(t=["z"]), name="part-k-a1")
    folder = Folder.open(place)
    assert [f.path for f in files] == [folder.path_of(n) for n in folder.names()]
    assert folder.names()[0].startswith("part-k-a1-000.")
    assert [f.rows for f in files] == [3]
    assert files[0].size_bytes == len(folder.read(folder.names()[0]))


@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_visible_before_close_nor_after_abort(place, sink):
    folder = Folder.open(place)
    writer = sink(path=place, target_bytes=1).open("part")
    for i in range(3):
        writer.write(Batch(rows=table(t=["x" * 50_000_000] if sink is ToParquet and i == 0 else ["x"])))
    assert all(n.startswith("part-0") for n in folder.names())  # those that are full are whole
    writer.abort()
    assert folder.everything() == []


@pytest.mark.parametrize("sink", SINKS)
def test_no_rows_make_no_file(place, write_all, sink):
    assert write_all(sink(path=place)) == []
    assert write_all(sink(path=place), table(t=[])) == []
    assert Folder.open(place).names() == []


@pytest.mark.parametrize("sink", SINKS)
def test_the_engines_columns_are_not_written(place, write_all, read_all, sink):
    write_all(sink(path=place), table(t=["x"], _row=[1], _unit=[2]))
    row = read_all(SOURCES[sink](path=place)).good[0]
    assert set(row) == {"id", "source", "t"}


@pytest.mark.parametrize("sink", SINKS)
def test_select_writes_only_these_columns(place, write_all, read_all, sink):
    write_all(sink(path=place, select=["t"]), table(t=["x", None], other=[1, 2]))
    found = read_all(SOURCES[sink](path=place))
    assert [set(row) for row in found.good] == [{"id", "source", "t"}] * 2
    assert found.column("t") == ["x", "" if sink is ToCsv else None]
    assert set(sink(path=place, select=["t"]).contract().needs) == {"t"}


@pytest.mark.parametrize("sink", SINKS)
def test_files_roll_at_the_target_size(place, write_all, read_all, sink):
    batches = [table(n=[i], t=[f"{i:05d}" * 50_000]) for i in range(80)]
    files = write_all(sink(path=place, target_bytes=5 << 20), *batches)
    assert 2 <= len(files) <= 6
    assert [f.path[-20:].split("-")[-1][:3] for f in files] == [f"{i:03d}" for i in range(len(files))]
    assert sum(f.rows for f in files) == 80
    assert [int(n) for n in read_all(SOURCES[sink](path=place)).column("n")] == list(range(80))


def full_disk(monkeypatch, call: str) -> None:
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_says_path_and_remedy_and_leaves_nothing(tmp_path, monkeypatch, sink, call):
    writer = sink(path=str(tmp_path)).open("part")
    writer.write(Batch(rows=table(t=["x"])))
    full_disk(monkeypatch, call)
    with pytest.raises(InputError, match=rf"cannot write {tmp_path}/part-000.*: the disk is full. To go on, free space"):
        writer.close()
    monkeypatch.undo()
    writer.abort()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sink", SINKS)
def test_a_disk_that_fills_while_writing(tmp_path, monkeypatch, sink):
    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            """Closing a file on a full disk may work."""

    monkeypatch.setattr("builtins.open", lambda *_, **__: Full())
    writer = sink(path=str(tmp_path)).open("part")
    rows = table(t=["x" * 40_000_000])
    with pytest.raises(InputError, match="the disk is full"):
        writer.write(Batch(rows=rows))
    writer.abort()


@pytest.mark.parametrize("sink", SINKS)
def test_a_folder_that_cannot_be_written(tmp_path, write_all, sink):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/part-000.*: a part of the path is a file"):
        write_all(sink(path=str(tmp_path / "file")), table(t=["x"]), name="part")


# -- types that change on the way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", SINKS)
def test_numbers_widen_and_new_columns_come_in_one_file(place, write_all, read_all, sink):
    files = write_all(sink(path=place), table(n=[1]), table(n=[2.5], more=["t"]), table(n=pa.nulls(1)))
    assert len(files) == 1
    found = read_all(SOURCES[sink](path=place))
    if sink is ToCsv:
        assert [float(r["n"] or 0) for r in found.good] == [1, 2.5, 0]
    else:
        assert [r["n"] for r in found.good] == [1.0, 2.5, None]
        assert found.column("more") == [None, "t", None]


@pytest.mark.parametrize("sink", [ToJsonl, ToParquet, ToArrow])
def test_types_that_cannot_be_joined_begin_a_new_file(place, write_all, sink):
    files = write_all(sink(path=place), table(v=["x"]), table(v=[1]), table(v=["y"]))
    assert [f.rows for f in files] == [1, 1, 1]


def test_a_widening_that_would_change_a_value_begins_a_new_file(place, write_all):
    files = write_all(ToParquet(path=place), table(n=[2**53 + 1]), table(n=[1.5]))
    assert [pq.read_table(open_input(f.path)).column("n").to_pylist() for f in files] == [[2**53 + 1], [1.5]]


def test_a_new_column_after_the_first_row_group_begins_a_new_parquet_file(place, write_all, read_all):
    big = table(t=["x" * (33 << 20)])
    files = write_all(ToParquet(path=place), big, table(t=["y"]), table(t=["z"], more=[1]))
    assert [f.rows for f in files] == [2, 1]
    assert [len(t) for t in read_all(Parquet(path=place)).column("t")] == [33 << 20, 1, 1]


# -- what comes back ------------------------------------------------------------------------------------------------------

LEAVES = [(pa.int64(), st.integers(-2**63, 2**63 - 1)), (pa.uint64(), st.integers(0, 2**64 - 1)), (pa.bool_(), st.booleans()),
          (pa.string(), st.text(max_size=8)), (pa.float64(), st.floats(allow_nan=False)),
          (pa.float32(), st.floats(width=32, allow_nan=False)), (pa.null(), st.none())]
PARQUET_LEAVES = [*LEAVES, (pa.binary(), st.binary(max_size=8)), (pa.date32(), st.dates()),
                  (pa.timestamp("us"), st.datetimes()), (pa.decimal128(20, 4), st.decimals(-10**9, 10**9, places=4)),
                  (pa.time64("us"), st.times())]


def nested(leaves):
    """A type and a strategy for its values."""
    leaf = st.sampled_from(range(len(leaves))).map(lambda i: leaves[i])
    return st.recursive(leaf, lambda inner: inner.map(lambda t: (pa.list_(t[0]), st.lists(st.none() | t[1], max_size=3)))
                        | st.tuples(inner, inner).map(lambda ts: (
                            pa.struct([("x", ts[0][0]), ("y", ts[1][0])]),
                            st.fixed_dictionaries({"x": st.none() | ts[0][1], "y": st.none() | ts[1][1]}))), max_leaves=4)


def columns(leaves):
    def make(kinds):
        return st.integers(1, 8).flatmap(lambda n: st.tuples(*(
            st.lists(st.none() | values, min_size=n, max_size=n).map(lambda v, k=kind: pa.array(v, k))
            for kind, values in kinds)))
    return st.lists(nested(leaves), min_size=1, max_size=3).flatmap(make).map(
        lambda arrays: table(**{f"c{i}": a for i, a in enumerate(arrays)}))


@given(columns(PARQUET_LEAVES))
def test_parquet_gives_back_what_was_written(write_all, read_all, rows):
    folder = Folder.open("memory://roundtrip-parquet")
    folder.delete(folder.names())
    write_all(ToParquet(path=folder.uri), rows, rows)
    found = pa.concat_tables(read_all(Parquet(path=folder.uri)).tables).drop_columns(["source"])
    assert found.equals(pa.concat_tables([rows, rows]))


@given(columns(LEAVES), st.sampled_from(["zst", "gz", "none"]))
def test_json_lines_give_back_what_was_written(write_all, read_all, rows, compression):
    folder = Folder.open("memory://roundtrip-jsonl")
    folder.delete(folder.names())
    write_all(ToJsonl(path=folder.uri, compression=compression), rows)
    found = read_all(Jsonl(path=folder.uri))
    assert not found.failed
    for read, wrote in zip(found.good, rows.to_pylist(), strict=True):
        for name, value in wrote.items():
            assert same(read.get(name), value), (read, wrote)


def same(a, b) -> bool:
    """Equal, where numbers are equal as numbers (a column of 1.0 and 2 may be either) and a null is a missing value."""
    if isinstance(b, dict):
        return (a is None and all(v is None for v in b.values())) or all(same((a or {}).get(k), v) for k, v in b.items())
    if isinstance(b, list):
        return isinstance(a, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), st.integers(-99, 99)),
                min_size=1, max_size=10))
def test_csv_gives_back_the_text_that_was_written(write_all, read_all, rows):
    folder = Folder.open("memory://roundtrip-csv")
    folder.delete(folder.names())
    write_all(ToCsv(path=folder.uri), table(t=[t for t, _ in rows], n=[n for _, n in rows]))
    found = read_all(Csv(path=folder.uri, types={"n": "int"}))
    assert [(r["t"], r["n"]) for r in found.good] == rows


# -- what JSON and CSV make of types they do not have -----------------------------------------------------------------------

ODD = {
    "day": (pa.array([dt.date(2020, 1, 2), None]), "2020-01-02"),
    "at": (pa.array([dt.datetime(2020, 1, 2, 3, 4, 5, 600), None], pa.timestamp("us")), "2020-01-02T03:04:05.000600"),
    "nanos": (pa.array([1, None], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
    "zone": (pa.array([dt.datetime(2020, 1, 2, 3, 4, 5), None], pa.timestamp("s", "UTC")), "2020-01-02T03:04:05Z"),
    "time": (pa.array([dt.time(1, 2, 3), None], pa.time32("s")), "01:02:03"),
    "long": (pa.array([dt.timedelta(seconds=-90.5), None], pa.duration("ms")), "-PT90.5S"),
    "raw": (pa.array([b"\x00\xff", None]), base64.b64encode(b"\x00\xff").decode()),
    "price": (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), "1.50"),
    "kind": (pa.array(["x", None]).dictionary_encode(), "x"),
}


@pytest.mark.parametrize("name", ODD)
def test_dates_bytes_and_decimals_as_text(place, write_all, read_all, name):
    values, written = ODD[name]
    deep = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 2, 2], values)], ["in"])
    write_all(ToJsonl(path=place + "/j"), table(v=values, deep=deep))
    assert [(r["v"], r["deep"]["in"]) for r in lines(Folder.open(place + "/j"))] == [(written, [written, None]), (None, [])]
    write_all(ToCsv(path=place + "/c"), table(v=values, deep=deep))
    found = read_all(Csv(path=place + "/c"))
    assert found.column("v") == [written, ""]
    assert json.loads(found.column("deep")[0]) == {"in": [written, None]}


def test_big_integers_maps_and_numbers_that_are_none(place, write_all, read_all):
    rows = table(big=pa.array([10**30, None], pa.decimal128(38, 0)), x=[float("nan"), float("-inf")],
                 pairs=pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
                 twice=pa.array([[("k", 1), ("k", 2)], None], pa.map_(pa.string(), pa.int64())),
                 deep=[[1.5, float("inf")], None], half=pa.array([1.5, None], pa.float32()).cast(pa.float16()))
    write_all(ToJsonl(path=place), rows)
    found = lines(Folder.open(place))
    assert [r["big"] for r in found] == [10**30, None]
    assert [str(r["x"]) for r in found] == ["nan", "-inf"]
    assert [r["deep"] for r in found] == [[1.5, float("inf")], None]
    assert [r["half"] for r in found] == [1.5, None]
    assert read_all(Jsonl(path=place, select=["big"])).column("big") == [10**30, None]


def test_maps_become_objects(place, write_all):
    write_all(ToJsonl(path=place), table(m=pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
                                         at=pa.array([[("k", dt.date(2020, 1, 1))], None, []],
                                                     pa.map_(pa.string(), pa.date32()))))
    assert [(r["m"], r["at"]) for r in lines(Folder.open(place))] == [
        ({"k": 1}, {"k": "2020-01-01"}), ({}, None), (None, {})]


def test_slices_are_written_as_they_stand(place, write_all):
    rows = table(at=pa.array([[dt.date(2020, 1, i + 1)] * i for i in range(9)], pa.list_(pa.date32())),
                 o=[{"d": dt.date(2020, 1, i + 1)} for i in range(9)]).slice(3, 2)
    write_all(ToJsonl(path=place), rows)
    assert [(r["at"], r["o"]) for r in lines(Folder.open(place))] == [
        (["2020-01-04"] * 3, {"d": "2020-01-04"}), (["2020-01-05"] * 4, {"d": "2020-01-05"})]


def test_text_is_not_escaped(place, write_all):
    write_all(ToJsonl(path=place, compression="none"), table(t=["Größe 日本 😀 </p>"]))
    folder = Folder.open(place)
    assert folder.read(folder.names()[0]) == '{"id":"r0","t":"Größe 日本 😀 </p>"}\n'.encode()


def test_objects_without_keys_are_json_text_in_parquet(place, write_all, read_all):
    write_all(ToParquet(path=place), table(o=pa.array([{}, None], pa.struct([]))))
    assert read_all(Parquet(path=place)).column("o") == ["{}", None]


def test_a_type_that_parquet_does_not_have_is_named(place, write_all):
    with pytest.raises(InputError, match=r"cannot write .*: Parquet has no such type: .*month_day_nano"):
        write_all(ToParquet(path=place), table(v=pa.array([(1, 2, 3)], pa.month_day_nano_interval())))


def test_rows_with_files_in_them_leave_in_small_pages(tmp_path, write_all):
    """Parquet's writer holds a page several times, and by itself would make one of a thousand rows."""
    sizes, write = [], LocalOutput.write
    rows = pa.table({"id": [str(i) for i in range(200)], "bytes": [np.random.default_rng(i).bytes(100_000) for i in range(200)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutput, "write", lambda self, data: sizes.append(memoryview(data).nbytes) or write(self, data))
        write_all(ToParquet(path=str(tmp_path)), *[rows.slice(at, 10) for at in range(0, 200, 10)])
    path, = tmp_path.iterdir()
    assert pq.read_table(path).equals(rows)
    assert max(sizes) < 2 << 20
    assert row_groups(path) == [90, 90, 20]


def test_small_rows_make_row_groups_of_32_mb(tmp_path, write_all):
    text = np.random.default_rng(0).bytes(4_000).hex()
    write_all(ToParquet(path=str(tmp_path)), *[pa.table({"id": [str(i) for i in range(1000)], "text": [text] * 1000})] * 6)
    path, = tmp_path.iterdir()
    assert row_groups(path) == [5000, 1000]


def row_groups(path: Path) -> list[int]:
    about = pq.ParquetFile(path).metadata
    return [about.row_group(i).num_rows for i in range(about.num_row_groups)]


@pytest.mark.parametrize(("compression", "suffix"), [("zst", ".jsonl.zst"), ("zstd", ".jsonl.zst"), ("gz", ".jsonl.gz"),
                                                     ("none", ".jsonl"), (None, ".jsonl")])
def test_compressions(place, write_all, compression, suffix):
    files = write_all(ToJsonl(path=place, compression=compression), table(t=["x"]))
    assert files[0].path.endswith("-000" + suffix)
    assert lines(Folder.open(place)) == [{"id": "r0", "t": "x"}]


def test_other_tools_can_read_gz(tmp_path, write_all):
    files = write_all(ToCsv(path=str(tmp_path), compression="gz", delimiter="\t"), table(t=["x"]))
    assert files[0].path.endswith(".tsv.gz")
    assert gzip.decompress(Path(files[0].path).read_bytes()) == b'"id"\t"t"\n"r0"\t"x"\n'


@pytest.mark.parametrize(("sink", "parameters", "message"), [
    (ToJsonl, {"compression": "rar"}, "compression must be one of zst, gz, none"),
    (ToParquet, {"compression": "rar"}, "compression must be one of zstd"),
    (ToCsv, {"delimiter": "::"}, "delimiter must be one"),
    (ToJsonl, {"target_bytes": 0}, "target_bytes"),
    (ToJsonl, {"select": "t"}, "select must be a list"),
    (ToJsonl, {"path": ""}, "path must be"),
])
def test_nonsense_parameters(sink, parameters, message):
    with pytest.raises(ValueError, match=message):
        sink(**{"path": "x", **parameters})
