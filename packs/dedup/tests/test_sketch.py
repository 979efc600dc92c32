"""What is made of each record before it is compared."""

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.near.measures import Hamming, MinHash
from curator_dedup.near.sketch import Sketch, by_shard, sets
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.rows import SHINGLES, SKETCH, SketchBatch

from curator import RecipeError, TextBatch
from curator.api.keys import shard_of
from curator.testing import check_stage, run_stage


def batch(count=12, **columns):
    rng = np.random.default_rng(5)
    signatures = [list(s) for s in rng.integers(0, 2**32, (count, 24), dtype=np.uint32)]
    signatures[1] = None
    rows = {"id": [f"r{i:02}" for i in range(count)], "source": ["a.jsonl"] * count, "text": ["t"] * count,
            "minhash": pa.array(signatures, pa.list_(pa.uint32())), "quality": pa.array([i / 7 for i in range(count)]),
            "language": [("en", "de", None)[i % 3] for i in range(count)]}
    return TextBatch(pa.table(rows | columns))


def sketch(**options):
    return Sketch(**({"measure": MinHash(bands=8, rows=3), "keep": Keep.parse({"by": "quality"}), "shards": 4} | options))


def answer(stage, data):
    return run_stage(stage, data)["out"]


def test_a_row_for_each_record_and_shard():
    data = batch()
    got = run_stage(sketch(), data)
    assert type(got["out"]) is SketchBatch
    assert got["absorbed"].column("id") == ["r01"]
    rows = got["out"].visible()
    assert rows.schema.names == SKETCH.names
    assert [f.type for f in rows.schema] == [f.type for f in SKETCH]
    places = shard_of(rows.column("shard"), 4)
    seen = {}
    for row, place in zip(rows.to_pylist(), places.tolist(), strict=True):
        assert {key % 4 for key in row["keys"]} == {place}
        assert (row["id"], place) not in seen
        seen[row["id"], place] = row["keys"]
        assert row["rank"] == [-int(row["id"][1:]) / 7]
        assert row["reference"] is False
    expected = MinHash(bands=8, rows=3).encode(data)[1]
    for name in {name for name, _ in seen}:
        assert sum(len(keys) for (of, _), keys in seen.items() if of == name) == 8
        assert {row["sketch"] for row in rows.to_pylist() if row["id"] == name} == {expected[int(name[1:])].tobytes()}


@pytest.mark.parametrize("shards", [1, 2, 5, 16])
def test_shards_divide_the_same_keys(shards):
    keys = [key for row in answer(sketch(shards=shards), batch()).rows.to_pylist() for key in row["keys"]]
    alone = [key for row in answer(sketch(shards=1), batch()).rows.to_pylist() for key in row["keys"]]
    assert sorted(keys) == sorted(alone)
    assert sketch(shards=shards).fingerprint() == sketch(shards=1).fingerprint()


def test_records_of_another_scope_do_not_meet():
    same = batch(minhash=pa.array([list(range(24))] * 12, pa.list_(pa.uint32())))
    met = {}
    for row in answer(sketch(scope="language"), same).rows.to_pylist():
        for key in row["keys"]:
            met.setdefault(key, set()).add(int(row["id"][1:]) % 3)
    assert len(met) == 24
    assert all(len(languages) == 1 for languages in met.values())
    numbers = same.with_columns({"language": pa.array([1, 2, None] * 4)})
    assert len({key for row in answer(sketch(scope="language"), numbers).rows.to_pylist() for key in row["keys"]}) == 24


def test_references_are_those_for_which_the_condition_is_true():
    got = answer(sketch(reference="quality > 1 OR language = 'de'"), batch()).rows.to_pylist()
    for row in got:
        at = int(row["id"][1:])
        assert row["reference"] == (at / 7 > 1 or at % 3 == 1)


def test_shingles_travel_sorted_and_each_once():
    shingles = pa.array([[5, 3, 5, 2**32 + 3], None, [], *([[1, 2]] * 9)], pa.list_(pa.uint64()))
    rows = answer(sketch(shingles="sh"), batch(sh=shingles)).visible()
    assert rows.schema.field("shingles").type == SHINGLES.type
    assert {row["id"]: row["shingles"] for row in rows.to_pylist()} == {
        f"r{i:02}": [3, 5] if i == 0 else [] if i == 2 else [1, 2] for i in range(12) if i != 1}
    sliced = pa.array([[9], [2, 1], None, [7, 7]], pa.list_(pa.uint32())).slice(1)
    assert sets(sliced).to_pylist() == [[1, 2], [], [7]]


def test_keys_are_grouped_by_row_and_shard():
    row, place, counts, keys = by_shard(np.array([[4, 3, 8], [1, 5, 9]], dtype=np.uint64), 4)
    assert [row.tolist(), place.tolist(), counts.tolist(), keys.tolist()] == [[0, 0, 1], [0, 3, 1], [2, 1, 3], [4, 8, 3, 1, 5, 9]]


def test_a_batch_with_nothing_to_compare_is_absorbed():
    got = run_stage(sketch(), batch(minhash=pa.nulls(12)))
    assert {port: len(rows) for port, rows in got.items()} == {"absorbed": 12}


@pytest.mark.parametrize("options", [{}, {"scope": "language"}, {"reference": "language = 'en'"}, {"shingles": "minhash"},
                                     {"measure": Hamming("hash", 6)}, {"shards": 1}])
def test_it_keeps_the_rules(options):
    hashes = pa.array(np.random.default_rng(1).integers(0, 2**63, 12))
    check_stage(sketch(**options), batch(hash=hashes))


@pytest.mark.parametrize(("options", "columns", "told"), [
    ({}, {"minhash": pa.string()}, "column 'minhash' is string"),
    ({}, {"quality": pa.string()}, "keep: by wants numbers"),
    ({"reference": "text > 1"}, {"text": pa.list_(pa.int8())}, "reference: "),
    ({"shingles": "text"}, {"text": pa.string()}, "column 'text' is string; shingles are lists of integers"),
    ({"shingles": "text"}, {"text": pa.list_(pa.string())}, "shingles are lists of integers")])
def test_columns_that_will_not_do_are_refused(options, columns, told):
    with pytest.raises(RecipeError, match=told):
        sketch(**options).check({"id": pa.string(), "source": pa.string()} | columns)


def test_nonsense_is_refused():
    with pytest.raises(RecipeError, match="shards must be"):
        sketch(shards=0)
