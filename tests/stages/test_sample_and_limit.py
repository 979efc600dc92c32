"""Keeping a share of the records, and the first of them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.api.stage import Context
from curator.api.tasks import TextBatch
from curator.stages import Limit, Sample
from curator.testing import run_stage


def batch(ids, unit=0, source="s", **columns):
    rows = len(ids)
    return TextBatch(pa.table({"id": pa.array(ids, pa.string()), "source": pa.array([source] * rows, pa.string()),
                               "_unit": pa.array([unit] * rows, pa.int32()), **columns}))


IDS = [f"doc-{i}" for i in range(4000)]


# -- sample -------------------------------------------------------------------------------------------------------


def kept(ids, **parameters):
    answers = run_stage(Sample(**parameters), batch(ids))
    assert set(answers.get("dropped", batch([]).with_reason("sample")).column("reason")) <= {"sample"}
    return answers["out"].column("id") if "out" in answers else []


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 1.0])
def test_the_share_is_met_on_average(fraction):
    assert abs(len(kept(IDS, fraction=fraction)) / len(IDS) - fraction) < 0.03


def test_none_and_all_are_exact():
    assert kept(IDS, fraction=0.0) == []
    assert kept(IDS, fraction=1.0) == IDS


@given(st.permutations(IDS[:30]), st.integers(0, 2**64 - 1), st.floats(0, 1))
def test_the_choice_rests_on_seed_and_id_alone(ids, seed, fraction):
    chosen = set(kept(IDS[:30], fraction=fraction, seed=seed))
    assert kept(ids, fraction=fraction, seed=seed) == [i for i in ids if i in chosen]


def test_a_larger_share_keeps_what_a_smaller_one_kept_and_another_seed_chooses_anew():
    small, large = set(kept(IDS, fraction=0.2)), set(kept(IDS, fraction=0.6))
    assert small < large
    assert 0.1 < len(small & set(kept(IDS, fraction=0.2, seed=1))) / len(small) < 0.3


def test_the_choice_is_the_same_for_ever():
    assert kept(IDS[:10], fraction=0.5, seed=7) == ["doc-1", "doc-2", "doc-6", "doc-7", "doc-9"]


def test_values_of_a_column_may_have_their_own_shares():
    languages = ["en", "de", None, "fr"] * 1000
    stage = Sample(by="lang", fractions={"en": 0.1, "de": 1.0}, fraction=0.0)
    counts = run_stage(stage, batch(IDS, lang=languages))["out"].column("lang")
    assert counts.count("de") == 1000
    assert 60 < counts.count("en") < 140
    assert set(counts) == {"de", "en"}


def test_values_are_compared_as_text():
    answers = run_stage(Sample(by="flag", fractions={"true": 1.0}, fraction=0.0), batch(["a", "b"], flag=[True, False]))
    assert answers["out"].column("id") == ["a"]
    answers = run_stage(Sample(by="n", fractions={"2": 1.0}, fraction=0.0), batch(["a", "b"], n=[1, 2]))
    assert answers["out"].column("id") == ["b"]


@pytest.mark.parametrize(("parameters", "problem"), [
    ({"fraction": 1.5}, "fraction must be a number from 0 to 1, got 1.5"),
    ({"fraction": float("nan")}, "fraction must be a number from 0 to 1"),
    ({"by": "lang", "fractions": {"en": -1}}, "en must be a number from 0 to 1, got -1"),
    ({"by": "lang"}, "`by` .a column. and `fractions`"), ({"fractions": {"en": 0.5}}, "together"), ({"seed": -1}, "seed")])
def test_a_share_that_makes_no_sense_is_refused(parameters, problem):
    with pytest.raises(RecipeError, match=problem):
        Sample(**parameters)


# -- limit --------------------------------------------------------------------------------------------------------


def limit(records):
    stage = Limit(records=records)
    stage.setup(Context())
    return stage


def passed(stage, given):
    return stage.process(given)["out"].column("id")


def test_the_first_records_go_on_and_the_others_are_dropped():
    stage = limit(3)
    assert passed(stage, batch(["a", "b"])) == ["a", "b"]
    assert not stage.exhausted()
    answers = stage.process(batch(["c", "d"]))
    assert answers["out"].column("id") == ["c"]
    assert (answers["dropped"].column("id"), answers["dropped"].column("reason")) == (["d"], ["limit"])
    assert stage.exhausted()


def test_no_records_is_a_limit_too():
    assert limit(0).exhausted()
    with pytest.raises(ValueError, match="records must be 0 or more, got -1"):
        Limit(records=-1)


def test_a_unit_that_is_shown_again_after_a_failure_is_answered_as_before():
    stage = limit(3)
    assert passed(stage, batch(["a", "b"], unit=0)) == ["a", "b"]
    assert passed(stage, batch(["c", "d"], unit=1)) == ["c"]
    stage.replay(0)
    assert passed(stage, batch(["b"], unit=0)) == ["b"]
    assert passed(stage, batch(["a"], unit=0)) == ["a"]
    assert passed(stage, batch(["e"], unit=2)) == []


def test_what_a_unit_took_is_free_again_when_it_is_forgotten():
    stage = limit(3)
    passed(stage, batch(["a", "b"], unit=0))
    stage.discard(0)
    assert passed(stage, batch(["c", "d"], unit=1)) == ["c", "d"]
    assert passed(stage, batch(["a", "b"], unit=0)) == ["a"]


def test_records_that_share_an_id_count_one_by_one():
    assert passed(limit(3), batch(["a", "a", "a", "a"])) == ["a", "a", "a"]
    stage = limit(3)
    assert passed(stage, batch(["a", "b"], unit=0)) == ["a", "b"]
    assert passed(stage, batch(["a", "b"], unit=1)) == ["a"]
    stage = limit(1)
    assert passed(stage, batch(["a"], source="one")) == ["a"]
    assert passed(stage, batch(["a"], source="two")) == []


def test_a_resumed_run_lets_only_the_rest_through():
    first = limit(3)
    passed(first, batch(["a", "b"], unit=4))
    resumed = limit(3)
    resumed.restore(9, first.snapshot(4).rows)
    assert passed(resumed, batch(["c", "d"], unit=1)) == ["c"]


def test_a_unit_that_lost_records_rests_on_those_that_took_their_place():
    stage = limit(2)
    passed(stage, batch(["a"], unit=0))
    passed(stage, batch(["b", "c"], unit=1))
    passed(stage, batch(["d"], unit=2))
    assert [stage.snapshot(unit).rests_on for unit in range(3)] == [0, 1, 2]


@given(st.integers(0, 10), st.lists(st.lists(st.sampled_from("abcdef"), max_size=5), max_size=4))
def test_never_more_than_the_limit_and_never_fewer_than_there_are(records, units):
    stage = limit(records)
    total = sum(len(passed(stage, batch(ids, unit=unit))) for unit, ids in enumerate(units))
    assert total == min(records, sum(map(len, units)))
