from __future__ import annotations

import pyarrow as pa
import pytest

from curator import read, write
from curator.api.errors import InputError
from curator.io.lake.lance import Lance
from curator.testing import check_source

lance = pytest.importorskip("lance")


def rows(count: int) -> pa.Table:
    return pa.table({"text": [f"t{i}" for i in range(count)], "n": range(count), "_odd": ["x"] * count,
                     "vector": pa.array([[float(i)] * 4 for i in range(count)], pa.list_(pa.float32(), 4))})


@pytest.fixture
def dataset(tmp_path):
    return lance.write_dataset(rows(1000), str(tmp_path / "a.lance"), max_rows_per_file=300)


def test_a_version_comes_in_units_of_fragments_without_deleted_rows(dataset, tmp_path, read_all):
    dataset.delete("n < 10")
    source = Lance(path=str(tmp_path / "a.lance"), unit_bytes=5000)
    units = source.units()
    assert len(units) == 4
    dataset.delete("n < 500")  # after the run began
    found = read_all(source, units)
    assert found.column("n") == list(range(10, 1000))
    assert found.types("vector") == {pa.list_(pa.float32(), 4)}
    assert found.good[0]["odd_"] == "x"
    assert found.good[0]["source"] == str(tmp_path / "a.lance")
    check_source(Lance(path=str(tmp_path / "a.lance"), revision=1, select=["text"], unit_bytes=5000))
    assert read_all(Lance(path=str(tmp_path / "a.lance"), revision=1)).column("n") == list(range(1000))
    after = Lance(path=str(tmp_path / "a.lance"), unit_bytes=5000).units()
    assert [unit.key for unit in after[1:]] == [unit.key for unit in units[-2:]]  # what did not change is not done again


def test_shards_read_one_version_and_the_run_that_gathers_them_too(dataset, tmp_path, caplog):
    def run(**how):
        made = read(str(tmp_path / "a.lance"), unit_bytes=5000) >> write(str(tmp_path / "out"), format="parquet")
        return made.run(workers=0, **how).records["written"]

    written = run(shard="1/2")
    dataset.delete("n < 500")
    assert written + run(shard="2/2") == 1000
    assert "a.lance has changed since this run began: it goes on with version 1, and the next run reads 2" in caplog.text
    assert run() == 1000
    assert run(replace=True, prune=True) == 500


def test_a_broken_fragment_fails_and_the_others_come(dataset, tmp_path, read_all):
    path = tmp_path / "a.lance" / "data" / dataset.get_fragments()[1].metadata.files[0].path
    path.write_bytes(b"\xff" * path.stat().st_size)
    found = read_all(Lance(path=str(tmp_path / "a.lance")))
    assert len(found.good) == 700
    assert [f["id"] for f in found.failed] == [f"{tmp_path}/a.lance#fragment=1:row=0"]
    for source, said in ((Lance(path=str(tmp_path / "none")), "cannot read the Lance dataset .*none"),
                         (Lance(path=str(tmp_path / "a.lance"), revision=9), r"a.lance, version 9"),
                         (Lance(path=str(tmp_path / "a.lance"), select=["texd"]), r"did you mean 'text'\?")):
        with pytest.raises(InputError, match=said):
            source.units()


def test_a_run_makes_a_version_and_another_when_something_changed(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one", "n": 1}\n{"text": "two", "n": 2}\n')
    out = str(tmp_path / "made.lance")

    def run():
        made = read(str(tmp_path / "in"), format="jsonl") >> write(str(tmp_path / "out"), format="lance", dataset=out)
        return " ".join(alarm["text"] for alarm in made.run(workers=0).stats["alarms"])

    assert "2 rows are version 1 of" in run()
    assert "has all of it already, as version 1" in run()
    (tmp_path / "in" / "b.jsonl").write_text('{"text": "three", "n": 2.5}\n')
    assert "3 rows are version 2 of" in run()
    assert sorted(lance.dataset(out).to_table()["n"].to_pylist()) == [1, 2, 2.5]
    assert lance.dataset(out, version=1).count_rows() == 2
    assert sorted(read(out).collect(workers=0)["text"].to_pylist()) == ["one", "three", "two"]


def test_a_dataset_that_no_run_made_is_left_alone(dataset, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    made = read(str(tmp_path / "a.jsonl")) >> write(str(tmp_path / "out"), format="lance", dataset=str(tmp_path / "a.lance"))
    with pytest.raises(InputError, match=r"a\.lance is a Lance dataset whose version 1 no run made"):
        made.run(workers=0)
    assert lance.dataset(str(tmp_path / "a.lance")).version == 1
