"""Of equal records exactly one goes on, through replays, restarts and resumed runs."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup import DedupExact
from curator_dedup.exact.stream import ExactStream
from curator_dedup.shared.hash_index import HashIndex
from curator_dedup.shared.values import normalized
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.api.stage import Context
from curator.api.tasks import ImageBatch, TextBatch
from curator.testing import check_stage


def batch(texts, ids=None, unit=0, source="s", **columns):
    rows = len(texts)
    ids = [f"u{unit}-{i}" for i in range(rows)] if ids is None else ids
    values = texts if isinstance(texts, (pa.Array, pa.ChunkedArray)) else pa.array(texts, pa.string())
    return TextBatch(pa.table({"id": pa.array(ids, pa.string()), "source": pa.array([source] * rows, pa.string()),
                               "_unit": pa.array([unit] * rows, pa.int32()), "text": values, **columns}))


def streaming(column="text", **parameters):
    return ExactStream(column=[column] if isinstance(column, str) else column, **parameters)


def dedup(**parameters):
    stage = streaming(**parameters)
    stage.setup(Context())
    return stage


def answers(stage, given):
    """By id in order: None for a record that goes on, else the id that it is a duplicate of."""
    outputs = stage.process(given)
    copies = outputs["duplicate"]
    told = dict.fromkeys(outputs["out"].column("id")) | dict(zip(copies.column("id"), copies.column("duplicate_of"), strict=True))
    assert len(outputs["out"]) + len(copies) == len(given)
    return [told[i] for i in given.column("id")]


def shown_again(stage, given):
    stage.replay(int(given.column("_unit")[0]))
    return answers(stage, given)


# -- what is equal ------------------------------------------------------------------------------------------------


def test_the_first_to_arrive_goes_on_and_the_others_name_it():
    stage = dedup()
    assert answers(stage, batch(["x", "y", "x", "x"])) == [None, None, "u0-0", "u0-0"]
    assert answers(stage, batch(["y", "z", "x", "z"], unit=1)) == ["u0-1", None, "u0-0", "u1-1"]


def test_null_equals_nothing_and_empty_texts_are_equal():
    stage = dedup()
    assert answers(stage, batch([None, "", None, ""])) == [None, None, None, "u0-1"]
    assert answers(stage, batch([None, ""], unit=1)) == [None, "u0-1"]


@pytest.mark.parametrize("values", [
    pa.array(["a", "b", "a", None], pa.large_string()), pa.array(["a", "b", "a", None]).dictionary_encode(),
    pa.array([b"a", b"b", b"a", None]), pa.array([1, 2, 1, None]),
    pa.array([0.5, 2.0, 0.5, None]), pa.array([True, False, True, None]), pa.array([[1], [2], [1], None]),
    pa.array([{"a": 1}, {"a": 2}, {"a": 1}, None]), pa.array([datetime.date(2020, 1, d) for d in (1, 2, 1)] + [None]),
    pa.array([float("nan"), 1.0, float("nan"), None]),
    pa.chunked_array([["zz", "a"], ["b", "a"], [None]]).slice(1)])
def test_values_of_any_type_can_be_compared(values):
    assert answers(dedup(), batch(values)) == [None, None, "u0-0", None]


def test_only_records_with_the_same_scope_are_compared():
    given = batch(["x", "x", "x", "x", "a", "b", None], scope=["a", "b", "a", None, "a", "b", "a"])
    assert answers(dedup(scope="scope"), given) == [None, None, "u0-0", None, None, None, None]
    assert answers(dedup(scope="source"), batch(["x", "x"])) == [None, "u0-0"]
    two = dedup(scope="source")
    assert answers(two, batch(["x"])) + answers(two, batch(["x"], source="t", unit=1)) == [None, None]


def test_duplicates_say_how_similar_they_are_and_to_which_cluster_they_belong():
    copies = dedup().process(batch(["x", "y", "x", "y", "x"]))["duplicate"].rows
    assert copies.schema.field("similarity").type == pa.float32()
    assert copies.column("similarity").to_pylist() == [1.0] * 3
    x, y, replay = copies.column("cluster").to_pylist()
    assert (x == replay, x == y, len(x)) == (True, False, 16)


def test_numbers_are_equal_by_value_across_types():
    stage = dedup(column="text")
    assert answers(stage, batch(pa.array([1, 2]))) == [None, None]
    assert answers(stage, batch(pa.array([1.0, 2.5]), unit=1)) == ["u0-0", None]


def test_payloads_can_be_compared():
    pixels = [np.zeros((2, 3, 3), np.uint8), np.zeros((3, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8), None, None]
    images = ImageBatch(batch(["a"] * 5).rows, encoded=[b"1", b"2", b"1", None, b""], pixels=pixels)
    assert answers(dedup(column="encoded"), images) == [None, None, "u0-0", None, None]
    assert answers(dedup(column="pixels"), images) == [None, None, "u0-0", None, None]


def test_several_columns_must_all_be_equal_and_null_equals_null_there():
    given = batch(["a", "a", "a", None, None, "ab"], title=["x", "y", "x", None, None, None])
    assert answers(dedup(column=["text", "title"]), given) == [None, None, "u0-0", None, None, None]
    given = batch(["ab", "a", None, None], title=["c", "bc", "t", "t"])
    assert answers(dedup(column=["text", "title"]), given) == [None, None, None, "u0-2"]


def test_normalized_texts_are_compared_without_case_space_and_compatible_forms():
    given = batch(["Straße  1", "STRASSE 1\n", "ﬁle ²", "FILE 2", "Straße1"])
    assert answers(dedup(normalize=True), given) == [None, "u0-0", None, "u0-2", None]
    assert answers(dedup(), given) == [None] * 5


@given(st.text())
def test_normalizing_twice_is_normalizing_once(text):
    assert normalized(normalized(text)) == normalized(text)


def test_it_wants_something_to_compare():
    with pytest.raises(RecipeError, match="wants a column"):
        DedupExact(column=[])
    assert DedupExact(column=["a", "b"]).contract().needs == {"a", "b"}
    assert DedupExact(normalize=True).fingerprint() != DedupExact().fingerprint()


# -- who is who ---------------------------------------------------------------------------------------------------


def test_different_records_with_one_id_both_go_on():
    stage = dedup()
    assert answers(stage, batch(["x"], ids=["a"])) == [None]
    assert answers(stage, batch(["y"], ids=["a"])) == [None]
    assert answers(stage, batch(["y"], ids=["b"], unit=1)) == ["a"]


@pytest.mark.parametrize("place", [{"source": "copy"}, {"unit": 7}])
def test_equal_records_with_one_id_in_two_places_are_duplicates(place):
    stage = dedup()
    assert answers(stage, batch(["x", "y"], ids=["a", "b"])) == [None, None]
    assert answers(stage, batch(["x", "y"], ids=["a", "b"], **place)) == ["a", "b"]


def test_equal_records_with_one_id_in_one_call_are_duplicates():
    stage = dedup()
    given = batch(["x", "x", "x"], ids=["a", "a", "a"])
    for _ in range(2):
        outputs = stage.process(given)
        assert (outputs["out"].column("id"), outputs["duplicate"].column("duplicate_of")) == (["a"], ["a", "a"])
        stage.replay(0)


def test_equal_records_with_one_id_far_apart_in_one_unit():
    stage = dedup()
    assert answers(stage, batch(["x"], ids=["a"])) == [None]
    assert answers(stage, batch(["x"], ids=["a"])) == ["a"]


def test_a_unit_that_is_shown_again_is_answered_as_before():
    stage = dedup()
    first, second = batch(["x", "y", "x"]), batch(["x", "z", "y", "z"], unit=1)
    before = [answers(stage, first), answers(stage, second)]
    assert [shown_again(stage, second), shown_again(stage, first)] == before[::-1]


def test_rows_that_are_shown_again_in_other_batches_are_answered_as_before():
    stage = dedup()
    given = batch(["x", "y", "x", None, "y"])
    before = answers(stage, given)
    stage.replay(0)
    assert answers(stage, given.slice(0, 2)) + answers(stage, given.slice(2, 5)) == before
    stage.replay(0)
    assert [answers(stage, given.slice(at, at + 1))[0] for at in (4, 2, 0, 1, 3)] == [before[at] for at in (4, 2, 0, 1, 3)]


def test_until_a_record_is_shown_again_it_still_stands_for_its_equals():
    stage = dedup()
    answers(stage, batch(["x"]))
    stage.replay(0)
    assert answers(stage, batch(["x"], unit=1)) == ["u0-0"]
    assert answers(stage, batch(["x"])) == [None]
    assert answers(stage, batch(["x"])) == ["u0-0"]


def test_the_next_equal_record_takes_the_place_of_a_forgotten_one():
    stage = dedup()
    answers(stage, batch(["x", "y"]))
    stage.discard(0)
    assert answers(stage, batch(["x"], unit=1)) == [None]
    assert answers(stage, batch(["x", "y"])) == ["u1-0", None]
    assert answers(stage, batch(["y", "x"], unit=2)) == ["u0-1", "u1-0"]


def test_a_call_that_raises_leaves_nothing_behind():
    stage = dedup()

    class Failing(TextBatch):
        def filter(self, mask):
            raise MemoryError

    with pytest.raises(MemoryError):
        stage.process(Failing(batch(["x", "y"]).rows))
    assert answers(stage, batch(["x", "y"])) == [None, None]


# -- memory -------------------------------------------------------------------------------------------------------


def through_a_file(memory):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, memory.rows.schema) as writer:
        writer.write_table(memory.rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def test_a_resumed_run_knows_what_finished_units_brought():
    stage = dedup()
    answers(stage, batch(["x", "y", "x"]))
    answers(stage, batch(["y", "z"], unit=1))
    resumed = dedup()
    resumed.restore(3, through_a_file(stage.snapshot(1)))
    resumed.restore(2, through_a_file(stage.snapshot(0)))
    assert answers(resumed, batch(["z", "x", "w"], unit=7)) == ["u1-1", "u0-0", None]
    assert resumed.snapshot(2).rows.equals(stage.snapshot(0).rows)
    assert resumed.snapshot(7).depends == {2, 3}


def test_a_unit_rests_on_those_that_brought_what_its_duplicates_are_equal_to():
    stage = dedup()
    answers(stage, batch(["x", "y"]))
    answers(stage, batch(["z", "z"], unit=1))
    answers(stage, batch(["x", "z", "n"], unit=2))
    assert [stage.snapshot(unit).depends for unit in range(4)] == [set(), set(), {0, 1}, set()]
    assert [stage.snapshot(unit).rows.num_rows for unit in range(4)] == [2, 1, 1, 0]


UNITS = st.lists(st.lists(st.sampled_from(["x", "y", "z", "w", "", None]), min_size=1, max_size=6), min_size=1, max_size=5)


def check_one_of_each(units, last):
    """Of each text that there is exactly one record went on at last; each null did."""
    on = [texts[row] for unit, texts in enumerate(units) for row in range(len(texts)) if last[unit][row] is None]
    everything = [text for texts in units for text in texts]
    assert sorted(t for t in on if t is not None) == sorted({t for t in everything if t is not None})
    assert on.count(None) == everything.count(None)


@given(UNITS, st.data())
def test_of_equal_records_one_goes_on_whatever_is_shown_again(units, data):
    stage, last = dedup(), {}
    given = [batch(texts, unit=unit) for unit, texts in enumerate(units)]
    for unit in data.draw(st.permutations(range(len(units)))):
        last[unit] = answers(stage, given[unit])
        for replay in data.draw(st.lists(st.sampled_from(sorted(last)), max_size=2)):
            last[replay] = shown_again(stage, given[replay])
    check_one_of_each(units, last)


@given(UNITS, st.data())
def test_of_equal_records_one_goes_on_over_two_runs(units, data):
    finished = data.draw(st.sets(st.integers(0, len(units) - 1)), label="units that the first run finished")
    given = [batch(texts, unit=unit) for unit, texts in enumerate(units)]
    first, second = dedup(), dedup()
    last = {unit: answers(first, one) for unit, one in enumerate(given)}
    for unit in finished:
        second.restore(unit, first.snapshot(unit).rows)
    for unit in set(range(len(units))) - finished:
        last[unit] = answers(second, given[unit])
    check_one_of_each(units, last)


def test_records_of_many_units_may_come_in_one_batch():
    rows = pa.concat_tables([batch(["x", "y"], unit=0).rows, batch(["y", "z"], unit=1).rows])
    stage = dedup()
    assert answers(stage, TextBatch(rows)) == [None, None, "u0-1", None]
    assert stage.snapshot(1).depends == {0}
    assert [stage.snapshot(unit).rows.num_rows for unit in (0, 1)] == [2, 1]


def test_many_records_take_little_memory():
    stage, rows = dedup(), 5000
    for unit in range(4):
        answers(stage, batch([f"text {unit} {i}" for i in range(rows)], unit=unit))
    assert stage._kept.nbytes / (4 * rows) < 150


def test_the_stage_keeps_the_rules():
    given = batch(["one", "two", "one", None, "", "One "], title=["a", None, "a", "b", "c", "A"])
    for stage in (streaming(), streaming(column=["text", "title"]), streaming(normalize=True), streaming(scope="title")):
        check_stage(stage, given)


# -- the index ----------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=30), max_size=5))
def test_the_index_finds_what_was_added_though_hashes_crowd_into_one_slot(calls):
    index, known = HashIndex(), {}
    for call in calls:
        # The low bits say where a hash wants to go: all of these want the same few slots.
        hashes = np.array([(low << 60, high) for low, high in call], dtype=np.uint64).reshape(-1, 2)
        assert index.find(hashes).tolist() == [known.get(pair, -1) for pair in call]
        new = [pair for pair in dict.fromkeys(call) if pair not in known]
        numbers = index.add(np.array([(low << 60, high) for low, high in new], dtype=np.uint64).reshape(-1, 2))
        known |= dict(zip(new, numbers.tolist(), strict=True))
    assert sorted(known.values()) == list(range(len(index)))


def test_the_index_grows_and_keeps_everything():
    index, generator = HashIndex(), np.random.default_rng(1)
    hashes = generator.integers(0, 2**64, size=(50_000, 2), dtype=np.uint64)
    for part in np.array_split(hashes, 7):
        index.add(part)
    assert index.find(hashes).tolist() == list(range(50_000))
    assert (index.hashes(np.array([3, 5])) == hashes[[3, 5]]).all()
    assert (index.find(hashes + np.uint64(1)) == -1).all()
    assert index.nbytes < 50_000 * 60
