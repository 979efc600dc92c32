"""`write("out.parquet")` makes that file, and what belongs to the run lies beside it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import InputError, RecipeError, Stage, load, read, write
from curator.results import RunOutput


@pytest.fixture
def many(tmp_path):
    for n in range(4):
        more = {"late": n} if n == 2 else {}
        (tmp_path / f"{n}.jsonl").write_text("".join(json.dumps({"id": f"{n}-{k}", "k": k, **more}) + "\n" for k in range(5)))
    return read(str(tmp_path / "*.jsonl"), unit_bytes=60) >> {"drop": {"threes": "k = 3"}}


KEPT = [f"{n}-{k}" for n in range(4) for k in range(5) if k != 3]


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl", "out.jsonl.gz", "out.csv", "out.arrow"])
def test_a_path_that_is_a_file_is_one_file_in_the_order_of_the_input(many, tmp_path, name):
    made = tmp_path / "made" / name
    (many >> write(made)).run(workers=0)
    assert made.is_file()
    assert {path.name for path in made.parent.iterdir()} == {name, f"{name}.run"}
    again = read(str(made)).collect(workers=0)
    assert again["id"].to_pylist() == KEPT
    assert sorted(map(int, filter(None, again["late"].to_pylist()))) == [2, 2, 2, 2]
    output = RunOutput.open(str(made) + ".run")
    assert output.stats["records"]["dropped"] == 4
    assert f"16 records are in {made}" in json.dumps(output.stats["alarms"])


def test_it_is_replaced_when_the_input_has_changed(many, tmp_path):
    made = tmp_path / "made.parquet"
    (many >> write(made)).run(workers=0)
    (tmp_path / "9.jsonl").write_text('{"id": "9-0", "k": 0}\n')
    result = (many >> write(made)).run(workers=0)
    assert result.stats["units"]["skipped"]
    assert pq.read_table(made)["id"].to_pylist() == [*KEPT, "9-0"]


def test_no_record_is_an_empty_file(many, tmp_path):
    for name in ("none.jsonl", "none.parquet", "none.csv", "none.arrow"):
        (many >> {"drop": {"all": "true"}} >> write(tmp_path / name)).run(workers=0)
    assert (tmp_path / "none.jsonl").read_text() == ""
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_a_failed_run_leaves_the_file_as_it_was(many, tmp_path):
    made = tmp_path / "made.jsonl"
    (many >> write(made)).run(workers=0)
    before = made.read_bytes()
    broken = many.named("broken", max_failed=0) >> {"map": {"n": "cast(id AS integer)"}} >> write(made)
    assert not broken.run(workers=0, check=False, replace=True).ok
    assert made.read_bytes() == before


def test_columns_of_types_that_no_type_holds_are_told_with_both_places(tmp_path):
    for n in range(2):
        (tmp_path / f"{n}.jsonl").write_text(json.dumps({"id": f"{n}"}) + "\n")
    made = read(str(tmp_path / "*.jsonl"), unit_bytes=1) >> TypeByUnit() >> write(tmp_path / "made.jsonl")
    with pytest.raises(InputError, match=r"column 'odd' is (int64|string) in .*part-.* and (int64|string) in .*part-.*, and no type"):
        made.run(workers=0)
    said = RunOutput.open(f"{tmp_path}/made.jsonl.run").stats["alarms"]
    assert "has published nothing" in said[-1]["text"]
    assert not (tmp_path / "made.jsonl").exists()


@dataclass(kw_only=True)
class TypeByUnit(Stage):
    """A number for one file, a text for the other."""

    name = "type_by_unit"

    def process(self, batch):
        first = batch.rows["id"].to_pylist() == ["0"]
        return batch.with_columns({"odd": pa.array([1 if first else "x"])})


def test_a_file_that_no_run_made_is_left_alone(many, tmp_path):
    """The input itself, above all."""
    (tmp_path / "theirs.csv").write_text("precious")
    before = (tmp_path / "1.jsonl").read_bytes()
    for name in ("theirs.csv", "1.jsonl"):
        with pytest.raises(InputError, match=rf"{name} is there, and the run with .*{name}.run/data did not make it as it is now"):
            (many >> write(tmp_path / name)).run(workers=0)
    assert ((tmp_path / "theirs.csv").read_text(), (tmp_path / "1.jsonl").read_bytes()) == ("precious", before)
    made = tmp_path / "made.jsonl"
    (many >> write(made)).run(workers=0)
    made.write_text("changed by hand\n")
    with pytest.raises(InputError, match="did not make it as it is now"):
        (many >> write(made)).run(workers=0)


def test_a_run_that_was_killed_when_its_file_appeared_knows_it(many, tmp_path, monkeypatch):
    made = tmp_path / "made.jsonl.gz"
    with monkeypatch.context() as patch:
        patch.setattr("curator.io.tables.one_file.list_files", _killed)
        with pytest.raises(KeyboardInterrupt):
            (many >> write(made)).run(workers=0)
    assert made.exists()
    assert (many >> write(made)).run(workers=0).ok


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_recipe_says_it_too(many, tmp_path):
    pipeline = many >> write(tmp_path / "made.jsonl.gz", select=["id"])
    load(pipeline.to_yaml()).run(workers=0)
    with gzip.open(tmp_path / "made.jsonl.gz") as file:
        assert json.loads(file.readline()) == {"id": "0-0"}


def test_a_folder_ends_with_a_slash_and_formats_do_not_contradict(tmp_path):
    assert write("out.jsonl/").name == "to_jsonl"
    assert write("out", format="parquet").name == "to_parquet"
    assert write("out.parquet", format="parquet").name == "to_file"
    with pytest.raises(RecipeError, match="another format"):
        write("out.parquet", format="csv")
    with pytest.raises(RecipeError, match="named like a file in a format that no file is written in"):
        write("out.json")
    assert write("out.json/").path == "out.json/"
