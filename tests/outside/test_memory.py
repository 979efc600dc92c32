"""Data in memory goes in and comes out; steps are written as in recipes; stages work in other engines."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import CuratorError, InputError, RecipeError, as_map, packs, read, stage, write
from curator.api.errors import RunStopped
from curator.outside import collect
from curator.outside.collect import run_into
from curator.outside.memory import as_table, from_memory
from curator.stages import Drop, Map, Top

ROWS = [{"text": "word " * n, "words": n} for n in range(30)]


def datasets_of(rows):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list(rows).select(range(len(rows)))


def pandas_of(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


def polars_of(rows):
    return pytest.importorskip("polars").DataFrame(rows)


def columns_of(rows):
    return {key: [row[key] for row in rows] for key in rows[0]}


@pytest.mark.parametrize("make", [list, pa.Table.from_pylist, pandas_of, polars_of, datasets_of, columns_of])
def test_rows_in_memory_are_read_whatever_library_they_are_in(make):
    table = as_table(make(ROWS))
    assert table.select(["text", "words"]).to_pylist() == ROWS


def test_a_pipeline_over_rows_in_memory_gives_a_table_and_its_ids_are_the_same_again():
    pipeline = read(ROWS) >> {"drop": {"few": "words < 10"}} >> {"map": {"double": "words * 2"}}
    made = pipeline.collect(workers=0)
    assert made.column("double").to_pylist() == [2 * n for n in range(10, 30)]
    assert set(made.column("source").to_pylist()) == {"memory"}
    assert (read(list(ROWS)) >> Drop(conditions={"few": "words < 10"})).collect(workers=0).column("id") == made.column("id")


def test_a_pipeline_without_a_sink_is_run_for_its_counts():
    result = (read(ROWS) >> Drop(conditions={"few": "words < 10"})).run(workers=0)
    assert (result.records["in"], result.records["written"], result.records["dropped"]) == (30, 20, 10)
    assert result.out == ""  # its folder is gone


def test_counts_of_a_run_that_did_not_end_well_are_given_to_who_asks_for_them():
    @stage(needs={"text"})
    def broken(batch):
        raise ValueError("none will do")

    pipeline = (read(ROWS) >> broken).named("strict", max_failed=0)
    result = pipeline.run(workers=0, check=False)
    assert not result.ok
    assert result.records["failed"]
    with pytest.raises(RunStopped, match="none will do") as caught:
        pipeline.run(workers=0)
    assert "curator-count" not in str(caught.value)


def test_rows_that_are_all_dropped_give_an_empty_table_with_their_columns():
    made = (read(ROWS) >> {"map": {"double": "words * 2"}} >> {"drop": {"all": "words >= 0"}}).collect(workers=0)
    assert made.num_rows == 0
    assert {field.name: field.type for field in made.schema} == {
        "id": pa.string(), "source": pa.string(), "text": pa.string(), "words": pa.int64(), "double": pa.int64()}


def test_rows_that_lie_on_another_machine_are_no_smaller_table(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')

    def elsewhere(*given):
        result = run_into(*given)
        next((Path(result.out) / "data").rglob("*.parquet")).unlink()
        return result

    monkeypatch.setattr(collect, "run_into", elsewhere)
    with pytest.raises(CuratorError, match="workers on other machines wrote to theirs"):
        (read(f"{tmp_path}/*.jsonl", unit_bytes=1) >> Map(columns={"n": "length(text)"})).collect(workers=0)


def test_a_table_is_in_the_order_of_the_files_that_were_read(tmp_path):
    for n in range(6):
        (tmp_path / f"{n}.jsonl").write_text(f'{{"id": "{n}a"}}\n{{"id": "{n}b"}}\n')
    made = read(str(tmp_path / "*.jsonl"), unit_bytes=1).collect(workers=0)
    assert made.column("id").to_pylist() == [f"{n}{of}" for n in range(6) for of in "ab"]


def test_ids_are_of_the_content_whatever_column_is_asked_for_first():
    rows = [{"text": "the same rows twice"}]
    for source in (from_memory(rows), from_memory(rows, id_column="doc")):
        [batch] = [batch for unit in source.units() for batch in source.read(unit)]
        assert source.path.rpartition("/")[2].startswith(batch.column("id")[0].removesuffix("-0"))


def test_a_step_in_python_is_checked_as_one_of_a_recipe():
    with pytest.raises(RecipeError, match="did you mean drop"):
        read(ROWS) >> {"drpo": {"few": "words < 10"}}
    with pytest.raises(RecipeError, match="Make a stage of it yourself"):
        read(ROWS) >> {"drop": {"few": object()}}
    with pytest.raises(RecipeError, match="sink"):
        (read(ROWS) >> write("out")).collect()
    with pytest.raises(RecipeError, match="keeps nothing"):
        read(ROWS).collect(out="out")


@pytest.mark.parametrize("data", [[], [1, 2], [{"text": "one"}, 2], 7, object()])
def test_what_has_no_rows_is_refused(data):
    with pytest.raises(InputError, match="cannot be read"):
        read(data)


@given(st.lists(st.fixed_dictionaries({"n": st.integers(-2**40, 2**40) | st.none(), "t": st.text(max_size=5)}), min_size=1, max_size=20))
@settings(max_examples=25)
def test_every_row_comes_back_as_it_was(rows):
    source = from_memory(rows)
    found = [row for unit in source.units() for batch in source.read(unit) for row in batch.rows.select(["n", "t"]).to_pylist()]
    assert found == rows


def test_the_file_goes_with_the_process():
    code = "from curator.outside.memory import from_memory; print(from_memory([{'gone': 'soon'}]).path)"
    path = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert path.endswith(".parquet")
    assert not os.path.exists(path)


def test_what_a_killed_process_left_goes_with_the_next_one():
    code = ("import os; from curator.outside.memory import from_memory; print(from_memory([{'left': 'behind'}]).path, flush=True); "
            "os._exit(9)")
    path = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert os.path.exists(path)
    mine = from_memory([{"begun": "afterwards"}]).path
    from_memory([{"begun": "later still"}])
    assert not os.path.exists(path)
    assert os.path.exists(mine)


@stage(needs={"text"}, adds={"length": pa.int64()})
def length(batch):
    return batch.with_columns({"length": [len(t) for t in batch.column("text")]})


def test_stages_are_called_batch_by_batch_in_the_kind_that_was_given():
    call = pickle.loads(pickle.dumps(as_map(Map(columns={"half": "words / 2"}), Drop(conditions={"few": "words < 10"}))))
    table = pa.Table.from_pylist(ROWS)
    assert call(table).column("half").to_pylist() == [n / 2 for n in range(10, 30)]
    assert call(table).column_names == ["text", "words", "half"]
    columns = call({"words": np.arange(20), "text": np.array(["x"] * 20)})
    assert columns["words"].tolist() == list(range(10, 20))
    frame = call(pandas_of(ROWS))
    assert list(frame["words"]) == list(range(10, 30))


def test_a_dataset_of_hugging_face_is_mapped():
    made = datasets_of(ROWS).map(as_map(length, Drop(conditions={"few": "words < 10"})), batched=True, batch_size=7)
    assert made["length"] == [5 * n for n in range(10, 30)]


def test_what_is_dropped_can_be_kept_beside():
    made = as_map(Drop(conditions={"few": "words < 10"}), keep=True)(pa.Table.from_pylist(ROWS))
    assert sorted(zip(made.column("words").to_pylist(), made.column("reason").to_pylist(), strict=True)) == [
        (n, "few" if n < 10 else None) for n in range(30)]


def test_a_stage_that_has_to_see_all_rows_is_refused():
    with pytest.raises(CuratorError, match="collect"):
        as_map(Top(by="words", n=3))
    for wrong in ((), ("text.signals",), (read(ROWS),)):
        with pytest.raises(CuratorError, match="stage"):
            as_map(*wrong)


@pytest.mark.parametrize("make", [list, pa.Table.from_pylist, pa.RecordBatch.from_pylist, pandas_of, polars_of, datasets_of, columns_of])
def test_apply_gives_the_kind_that_it_was_given(make):
    given = make(ROWS)
    made = Drop({"few": "words < 10"}).apply(Map({"half": "words / 2"}).apply(given))
    assert type(made) is type(given)
    assert as_table(made).to_pylist() == [{**row, "half": row["words"] / 2} for row in ROWS[10:]]


def test_a_data_frame_keeps_its_index():
    frame = pandas_of(ROWS).set_index(pandas_of([{"n": f"row {n}"} for n in range(30)])["n"])
    made = Drop({"few": "words < 10"}).apply(frame)
    assert list(made.index) == [f"row {n}" for n in range(10, 30)]
    assert made.index.name == "n"
    assert made.loc["row 12", "words"] == 12


def test_streams_and_splits_of_hugging_face_are_applied_to():
    whole = datasets_of(ROWS)
    assert [row["length"] for row in length.apply(whole.to_iterable_dataset())] == [5 * n for n in range(30)]
    splits = pytest.importorskip("datasets").DatasetDict({"train": whole, "test": whole.select(range(3))})
    assert length.apply(splits)["test"]["length"] == [0, 5, 10]


def test_a_stage_gets_as_many_rows_at_a_time_as_in_a_run():
    sizes = []

    @stage(needs={"text"}, batch_size=7)
    def sized(batch):
        sizes.append(len(batch))
        return batch

    assert len(sized.apply(ROWS)) == 30
    assert sizes == [7, 7, 7, 7, 2]


def test_packs_are_names_to_be_completed_and_imported_when_they_are_asked_for():
    code = ("import sys, curator; from curator import packs; print('text' in dir(packs), 'curator_text' in sys.modules); "
            "from curator.packs import text; print(text.Signals is curator.packs.text.Signals, text.Split is packs.core.Split, "
            "'torch' in sys.modules)\ntry: packs.txet\nexcept AttributeError as error: print(error)")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("True False\nTrue False False\n")
    assert "did you mean text" in shown


def test_editors_are_told_of_all_packs_of_ours():
    stub = (Path(packs.__file__).with_suffix(".pyi")).read_text()
    ours = sorted(path.name for path in (Path(__file__).parents[2] / "packs").iterdir() if path.is_dir())
    assert sorted(re.findall(r"^import curator[_.]\w+ as (\w+)", stub, re.M)) == sorted(["core", *ours])
    assert re.findall(r'"(\w+)"', stub) == sorted(["core", *ours])


def test_a_data_frame_without_pandas_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("curator.front.find_spec", lambda name: None)
    with pytest.raises(CuratorError, match="to_pandas wants pandas: pip install pandas"):
        read([{"text": "one"}]).to_pandas()
