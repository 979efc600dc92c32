"""Near duplicates while records flow by: the first stays, whatever is shown again and wherever a run was cut."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupNear
from curator_dedup.near.measures import MinHash
from curator_dedup.near.stream import NearStream, Postings
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError, TextBatch
from curator.api.stage import Context
from curator.front import from_source
from curator.stages import Parquet, ToParquet
from curator.testing import check_stage
from packs.dedup.tests.corpus import corpus, signature, write

WORDS = {name: [f"{name}{n}" for n in range(40)] for name in "xyzw"}
WORDS |= {f"{name}'": [*words[:-1], "other"] for name, words in list(WORDS.items())}  # alike: 39 of 41 words
SIGNATURES = {name: signature(words).tolist() for name, words in WORDS.items()}


def stage(**parameters):
    made = NearStream(measure=MinHash(threshold=0.8), **parameters)
    made.setup(Context())
    return made


def batch(names, unit=0, ids=None, source="s", **columns):
    ids = ids or [f"u{unit}-{row}" for row in range(len(names))]
    signatures = pa.array([SIGNATURES.get(n) for n in names], pa.list_(pa.uint32()))
    return TextBatch(pa.table({"id": ids, "source": [source] * len(names), "minhash": signatures, **columns,
                               "_unit": pa.array([unit] * len(names), pa.int32()),
                               "_row": pa.array(range(len(names)), pa.int32())}))


def answers(made, given):
    """For each row what it is a duplicate of."""
    outputs, told = made.process(given), [None] * len(given)
    for row, of in zip(outputs["duplicate"].column("_row"), outputs["duplicate"].column("duplicate_of"), strict=True):
        told[row] = of
    assert len(outputs["out"]) + len(outputs["duplicate"]) == len(given)
    return told


def test_the_first_of_those_that_are_alike_stays():
    made = stage()
    assert answers(made, batch(["x", "y", "x'", None, "x", None])) == [None, None, "u0-0", None, "u0-0", None]
    assert answers(made, batch(["y'", "z'", "z"], unit=1)) == ["u0-1", None, "u1-1"]


def test_a_duplicate_says_how_similar_it_is_and_in_which_cluster():
    made = stage()
    first = made.process(batch(["x", "x"]))["duplicate"]
    second = made.process(batch(["x'"], unit=1))["duplicate"]
    assert first.column("similarity") == [1.0]
    assert 0.8 <= second.column("similarity")[0] < 1
    assert first.column("cluster") == second.column("cluster")


def test_a_scope_keeps_records_apart():
    made = stage(scope="lang")
    assert answers(made, batch(["x", "x", "x"], lang=["de", "en", "de"])) == [None, None, "u0-0"]
    assert answers(made, batch(["x'", "x'"], unit=1, lang=["en", None])) == ["u0-1", None]


def test_a_unit_that_is_shown_again_is_answered_as_before():
    made, first, second = stage(), batch(["x", "y", "x'"]), batch(["x", "z", "y'", "z"], unit=1)
    before = [answers(made, first), answers(made, second)]
    for unit, given_, told in ((1, second, before[1]), (0, first, before[0])):
        made.replay(unit)
        assert answers(made, given_) == told


def test_another_one_takes_the_place_of_a_forgotten_record():
    made = stage()
    answers(made, batch(["x", "y"]))
    made.discard(0)
    assert answers(made, batch(["x'"], unit=1)) == [None]
    assert answers(made, batch(["x", "y"])) == ["u1-0", None]


def test_a_resumed_run_knows_what_finished_units_brought():
    made = stage()
    answers(made, batch(["x", "y", "x"]))
    answers(made, batch(["y", "z"], unit=1))
    resumed = stage()
    for unit, of in ((3, 1), (2, 0), (5, 4)):
        resumed.restore(unit, made.snapshot(of).rows)
    assert answers(resumed, batch(["z", "x'", "w"], unit=7)) == ["u1-1", "u0-0", None]
    assert resumed.snapshot(2).rows.equals(made.snapshot(0).rows)
    assert resumed.snapshot(7).depends == {2, 3}


UNITS = st.lists(st.lists(st.sampled_from([*SIGNATURES, None]), min_size=1, max_size=6), min_size=1, max_size=5)


@given(UNITS, st.data())
def test_of_those_that_are_alike_one_stays_whatever_is_shown_again_and_wherever_the_run_was_cut(units, data):
    batches = [batch(names, unit=unit) for unit, names in enumerate(units)]
    first, last = stage(), {}
    for unit in data.draw(st.permutations(range(len(units)))):
        last[unit] = answers(first, batches[unit])
        for replay in data.draw(st.lists(st.sampled_from(sorted(last)), max_size=2)):
            first.replay(replay)
            last[replay] = answers(first, batches[replay])
    finished = data.draw(st.sets(st.integers(0, len(units) - 1)), label="units that the first run finished")
    second = stage()
    for unit in finished:
        second.restore(unit, first.snapshot(unit).rows)
    for unit in set(range(len(units))) - finished:
        last[unit] = answers(second, batches[unit])
    on = [name for unit, names in enumerate(units) for row, name in enumerate(names) if last[unit][row] is None]
    everything = [name for names in units for name in names]
    assert sorted(n[0] for n in on if n) == sorted({n[0] for n in everything if n})
    assert on.count(None) == everything.count(None)


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_postings_find_every_record_under_each_key_once(parts, wanted):
    import numpy as np

    postings, have, number = Postings(), [], 0
    for part in parts:
        keys = np.array(part, dtype=np.uint64)
        numbers = np.arange(number, number + len(part), dtype=np.uint32)
        postings.add(keys, numbers)
        have += list(zip(part, numbers.tolist(), strict=True))
        number += len(part)
    row, found = postings.find(np.array([wanted], dtype=np.uint64))
    assert sorted(found.tolist()) == sorted(n for key, n in have if key in wanted)
    assert not row.any()


def test_from_files_to_files(tmp_path):
    rows = corpus()
    made = from_source(Parquet(path=str(write(rows, tmp_path / "in") / "*.parquet"))) >> DedupNear(mode="stream")
    result = (made >> ToParquet(path=str(tmp_path / "out"))).run(workers=2)
    stay = [r for p in (tmp_path / "out/data").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert result.ok
    assert sorted(r["family"] for r in stay) == list(range(70))
    assert result.records["duplicate"] == len(rows) - 70


@pytest.mark.parametrize(("name", "value"), [("keep", "longest"), ("reference", "true"), ("radius", None), ("verify", "exact")])
def test_what_needs_all_records_is_refused(name, value):
    with pytest.raises(RecipeError, match=f"{name} needs all records"):
        DedupNear(mode="stream", **{name: value})


def test_the_stage_keeps_the_rules():
    given_ = batch(["x", "y", "x'", None, "x", "z"]).without(["_unit", "_row"])
    check_stage(NearStream(measure=MinHash()), given_)
