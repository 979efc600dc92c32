from __future__ import annotations

import pyarrow as pa
import pytest

from curator import read, write
from curator.api.errors import InputError
from curator.api.stage import SourceRange, Unit
from curator.io.lake.iceberg import Iceberg
from curator.testing import check_source

catalogs = pytest.importorskip("pyiceberg.catalog")
pytest.importorskip("sqlalchemy")


@pytest.fixture
def options(tmp_path):
    return catalog_in(tmp_path)


@pytest.fixture
def table(options):
    catalog = catalogs.load_catalog("test", **options)
    catalog.create_namespace("texts")
    made = catalog.create_table("texts.web", schema=rows(0, 0).schema)
    for first in (0, 100, 200):
        made.append(rows(first, first + 100))
    return made


def rows(first: int, stop: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, stop), pa.int64()), "text": pa.array([f"t{i}" for i in range(first, stop)], pa.string())})


def catalog_in(folder) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def web(options, **more) -> Iceberg:
    return Iceberg(**{"path": "texts.web", "catalog": "test", "storage_options": options, **more})


def test_a_snapshot_comes_in_units_of_data_files(table, options, read_all):
    source = web(options, unit_bytes=1000)
    units, before = source.units(), table.current_snapshot().snapshot_id
    assert len(units) == 3
    table.delete("n < 10")  # after the run began
    table.append(rows(300, 350))
    assert sorted(read_all(source, units).column("n")) == list(range(300))
    check_source(source)
    now = web(options, unit_bytes=1000)
    assert sorted(read_all(now).column("n")) == list(range(10, 350))
    assert len({u.key for u in units} & {u.key for u in now.units()}) == 2  # what did not change is not done again
    old = web(options, revision=before, select=["n"], unit_bytes=1000)
    assert [u.key for u in old.units()] == [u.key for u in units]
    assert set(read_all(old).good[0]) == {"id", "source", "n"}
    again = web(options, unit_bytes=1000)
    again.pin(before)
    assert [u.key for u in again.units()] == [u.key for u in units]
    assert sorted(read_all(again).column("n")) == list(range(300))
    with pytest.raises(InputError, match=r"texts\.web has no snapshot 17; the last ones are"):
        again.pin(17)
    static = Iceberg(path=table.metadata_location)
    assert len(read_all(static).good) == 340


def test_deleted_positions_are_left_out(table, options, read_all, tmp_path, monkeypatch):
    """pyiceberg writes no such files, other engines do: here one is put beside a data file of the plan."""
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    [path] = [str(task.file.file_path) for task in table.scan().plan_files() if task.file.file_path == first_file(table)]
    ids = [pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"}),
           pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"})]
    pq.write_table(pa.table({"file_path": [path] * 2, "pos": [0, 5]}, schema=pa.schema(ids)), tmp_path / "deletes.parquet")
    deletes = DataFile.from_args(content=DataFileContent.POSITION_DELETES, file_path=f"file://{tmp_path}/deletes.parquet",
                                 file_format=FileFormat.PARQUET, partition=None, record_count=2, file_size_in_bytes=1)
    planned = Iceberg._planned

    def with_deletes(self, table):
        tasks = planned(self, table)
        tasks[path].delete_files.add(deletes)
        return tasks

    source = web(options)
    before = {unit.key for unit in source.units()}
    monkeypatch.setattr(Iceberg, "_planned", with_deletes)
    found = read_all(source).column("n")
    assert len(found) == 298
    assert {unit.key for unit in source.units()} != before


def first_file(table) -> str:
    return min(str(task.file.file_path) for task in table.scan().plan_files())


def test_workers_know_of_the_place_what_the_catalog_knows(table, options, read_all, monkeypatch):
    from pyiceberg.table import StaticTable
    from pyiceberg.utils.config import Config

    for name, value in {**options, "s3__endpoint": "https://s3.example.org"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name.upper()}", value)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    told, opened = [], StaticTable.from_metadata
    monkeypatch.setattr(StaticTable, "from_metadata", lambda url, properties: told.append(properties) or opened(url, properties))
    assert len(read_all(web(None)).good) == 300
    assert {properties["s3.endpoint"] for properties in told} == {"https://s3.example.org"}


def test_a_file_elsewhere_that_cannot_be_reached_is_tried_again_and_a_broken_one_here_is_told(options, monkeypatch):
    def unreached(self, part):
        raise OSError("AWS Error NETWORK_CONNECTION")
        yield

    monkeypatch.setattr(Iceberg, "rows", unreached)
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        list(web(options).read(Unit((SourceRange(uri="s3://bucket/a.parquet", size_bytes=1),))))
    [told] = web(options).read(Unit((SourceRange(uri="file:///a.parquet", size_bytes=1),)))
    assert len(told["failed"]) == 1


def test_what_is_not_there_is_told(table, options):
    for made, said in ((web(options, path="texts.none"), "cannot read the Iceberg table texts.none.*does not exist"),
                       (web(options, revision=7), "has no snapshot 7; the last ones are"),
                       (web(options, select=["texd"]), r"did you mean 'text'\?")):
        with pytest.raises(InputError, match=said):
            made.units()


def test_tables_of_one_name_in_two_catalogs_are_each_read_as_when_the_run_began(table, options, tmp_path, caplog):
    (tmp_path / "other").mkdir()
    other = catalogs.load_catalog("test", **catalog_in(tmp_path / "other"))
    other.create_namespace("texts")
    second = other.create_table("texts.web", schema=rows(0, 0).schema)
    second.append(rows(1000, 1005))

    def run(watch=None) -> int:
        made = (read(web(options)) + read(web(catalog_in(tmp_path / "other")))) >> write(str(tmp_path / "out"))
        return made.run(workers=0, watch=watch).records["written"]

    def stop(_) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(stop)
    for grown in (table, second):
        grown.append(rows(5000, 5001))
    assert run() == 305
    assert "cannot be read as it was" not in caplog.text
    assert run() == 307


def test_a_table_without_rows_holds_no_shard_to_being_empty(options, tmp_path):
    catalog = catalogs.load_catalog("test", **options)
    catalog.create_namespace("texts")
    made = catalog.create_table("texts.web", schema=rows(0, 0).schema)

    def run(shard: str | None = None) -> int:
        return (read(web(options, unit_bytes=1000)) >> write(str(tmp_path / "out"))).run(workers=0, shard=shard).records["written"]

    with pytest.raises(InputError, match="has no rows"):
        run("1/2")
    for first in (0, 10, 20, 30):
        made.append(rows(first, first + 10))
    one = run("1/2")
    made.append(rows(40, 50))
    assert one + run("2/2") == 40
