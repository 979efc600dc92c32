"""Selecting, renaming and making columns; merging branches."""

import numpy as np
import pyarrow as pa
import pytest

from curator.api.errors import RecipeError
from curator.api.tasks import ImageBatch
from curator.stages import Map, Merge, Rename, Select
from curator.testing import run_stage

BATCH = ImageBatch(pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "text": ["x y", None, "z"], "n": [1, 2, 3]}),
                   encoded=[b"1", b"2", b"3"], pixels=[np.zeros((1, 1, 3), np.uint8)] * 3)
COLUMNS = {"id": pa.string(), "source": pa.string(), "text": pa.string(), "n": pa.int64(), "encoded": None, "pixels": None}


def test_select_keeps_what_is_named_besides_id_and_source():
    kept = run_stage(Select(keep=["n", "encoded"]), BATCH)["out"]
    assert kept.columns == ["id", "source", "n"]
    assert list(kept.payloads()) == ["encoded"]
    assert list(Select(keep=["n", "encoded"]).columns_after(COLUMNS)) == ["id", "source", "n", "encoded"]


def test_select_drops_what_is_named():
    kept = run_stage(Select(drop=["text", "pixels"]), BATCH)["out"]
    assert kept.columns == ["id", "source", "n"]
    assert list(kept.payloads()) == ["encoded"]


def test_keeping_nothing_keeps_id_and_source():
    kept = run_stage(Select(keep=[]), BATCH)["out"]
    assert (kept.columns, kept.payloads(), type(kept)) == (["id", "source"], {}, ImageBatch)


def test_rename_gives_other_names_and_may_swap():
    assert run_stage(Rename(columns={"text": "caption"}), BATCH)["out"].columns == ["id", "source", "caption", "n"]
    swapped = run_stage(Rename(columns={"text": "n", "n": "text"}), BATCH)["out"]
    assert swapped.rows.column("text").to_pylist() == [1, 2, 3]
    assert Rename(columns={"text": "caption"}).columns_after({"text": pa.string(), "n": None}) == {
        "caption": pa.string(), "n": None}


def test_map_makes_columns_of_the_types_it_told():
    stage = Map(columns={"words": "len(string_split(text, ' '))", "n": "n * 0.5", "both": "text || n"})
    made = run_stage(stage, BATCH)["out"]
    assert made.rows.select(["words", "n", "both"]).to_pydict() == {
        "words": [2, None, 1], "n": [0.5, 1.0, 1.5], "both": ["x y1", None, "z3"]}
    after = stage.columns_after(COLUMNS)
    assert {name: after[name] for name in ("words", "n", "both")} == {
        "words": pa.int64(), "n": pa.float64(), "both": pa.string()}


def test_a_value_that_cannot_be_computed_raises_and_names_the_column():
    with pytest.raises(ValueError, match=r"^as_number: `text::int`: Could not convert string 'x y'"):
        run_stage(Map(columns={"as_number": "text::int"}), BATCH)


def test_merge_passes_everything_on():
    assert run_stage(Merge(), BATCH)["out"].rows.drop_columns(["_row", "_unit"]).equals(BATCH.rows)


@pytest.mark.parametrize(("build", "problem"), [
    (lambda: Select(), "either `keep` or `drop`"),
    (lambda: Select(keep=["a"], drop=["b"]), "either `keep` or `drop`"),
    (lambda: Select(drop=["id"]), "cannot drop id: every record keeps"),
    (lambda: Rename(columns={}), "nothing to rename"),
    (lambda: Rename(columns={"id": "x"}), "cannot touch id"),
    (lambda: Rename(columns={"x": "source"}), "cannot touch source"),
    (lambda: Rename(columns={"a": "x", "b": "x"}), "two columns one name"),
    (lambda: Rename(columns={"a": "_x"}), "'_x' cannot be a column's name"),
    (lambda: Map(columns={}), "map has no expression"),
    (lambda: Map(columns={"id": "n"}), "map cannot make the column 'id'"),
    (lambda: Map(columns={"_x": "n"}), "map cannot make the column '_x'"),
    (lambda: Map(columns={"x": "n +"}), "x: `n .` is not valid SQL"),
])
def test_nonsense_is_refused_when_the_stage_is_made(build, problem):
    with pytest.raises(RecipeError, match=problem):
        build()


def test_the_plan_refuses_a_name_that_is_taken_and_types_that_do_not_fit():
    with pytest.raises(RecipeError, match="cannot rename 'text' to 'n': there is a column of that name"):
        Rename(columns={"text": "n"}).check(COLUMNS)
    with pytest.raises(RecipeError, match=r"x: `upper.n.` cannot be evaluated: No function matches"):
        Map(columns={"x": "upper(n)"}).check(COLUMNS)


@pytest.mark.parametrize("stage", [Select(keep=["texts"]), Select(drop=["texts"]), Rename(columns={"texts": "x"})])
def test_a_column_that_is_not_there_is_told_with_the_nearest(stage):
    with pytest.raises(RecipeError, match=r"no column 'texts'; did you mean 'text'\?"):
        run_stage(stage, BATCH)


def test_the_order_of_expressions_is_the_order_of_columns_and_part_of_the_fingerprint():
    a, b = Map(columns={"x": "n", "y": "n"}), Map(columns={"y": "n", "x": "n"})
    assert a.fingerprint() != b.fingerprint()
    assert run_stage(b, BATCH)["out"].columns[-2:] == ["y", "x"]
