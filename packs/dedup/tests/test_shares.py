"""Lists of hashes by the share that agrees: as a plain count of every pair says, whatever order and repeats they have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup import DedupNear
from curator_dedup.near.measures import Hamming
from curator_dedup.near.shares import SharedHashes
from curator_dedup.near.sketch import by_shard
from curator_dedup.near.stream import NearStream
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table

from curator import Batch, RecipeError
from curator.api.stage import Context
from curator.front import from_source
from curator.stages import Parquet, ToParquet
from curator.testing import run_stage

NEAR = st.builds(lambda base, bits: (base ^ sum(1 << bit for bit in bits)).to_bytes(8),
                 st.sampled_from([0, (1 << 64) - 1, 0x0F0F0F0F0F0F0F0F, 0x123456789ABCDEF0]), st.sets(st.integers(0, 63), max_size=5))
LISTS = st.lists(st.lists(NEAR, min_size=1, max_size=6), min_size=2, max_size=6)


def batch(lists, **columns):
    ids = [f"{number:03}" for number in range(len(lists))]
    return Batch(pa.table({"id": ids, "source": ["s"] * len(lists), "h": pa.array(lists, pa.list_(pa.binary())), **columns}))


def counted(a, b, distance, within):
    """The similarity of two lists as the definition says it, one pair of hashes after the other."""
    a, b = set(a), set(b)
    apart = {(x, y): (int.from_bytes(x) ^ int.from_bytes(y)).bit_count() for x in a for y in b}
    agreed = min(sum(any(apart[x, y] <= within for y in b) for x in a), sum(any(apart[x, y] <= within for x in a) for y in b))
    fewer = min(len(a), len(b))
    return agreed / fewer if min(apart.values()) <= distance and agreed >= min(2, fewer) else 0.0


@given(LISTS, st.integers(0, 4), st.integers(0, 6))
def test_the_similarity_is_that_of_a_plain_count(lists, distance, more):
    measure = SharedHashes(column="h", distance=distance, hashes=6, share=0.5, within=distance + more)
    _, sketches = measure.encode(batch(lists))
    a, b = (at.ravel() for at in np.meshgrid(np.arange(len(lists)), np.arange(len(lists))))
    expected = [counted(lists[i], lists[j], distance, distance + more) for i, j in zip(a, b, strict=True)]
    assert measure.similarity(sketches[a], sketches[b]).tolist() == pytest.approx(expected)
    assert measure.least(sketches.shape[1]) == measure.threshold == 0.5


@given(LISTS, st.randoms())
def test_order_and_repeats_do_not_count(lists, random):
    measure = SharedHashes(column="h", distance=4, hashes=12, share=0.5, within=4)
    mixed = [random.sample(some + random.choices(some, k=6), len(some) + 6) for some in lists]
    assert np.array_equal(measure.encode(batch(lists))[1], measure.encode(batch(mixed))[1])


@given(LISTS, st.sampled_from([0, 2, 4]))
def test_keys_are_those_of_every_hash_of_a_sketch(lists, distance):
    measure = SharedHashes(column="h", distance=distance, hashes=9, share=0.5, within=9)
    _, sketches = measure.encode(batch([*lists, None]))
    assert np.array_equal(measure.keys(batch([*lists, None]), sketches), Hamming.keys(measure, batch([*lists, None]), sketches))


@given(st.lists(st.lists(st.integers(0, 40), min_size=5, max_size=5), max_size=6), st.integers(1, 4))
def test_equal_keys_of_a_record_become_one(keys, shards):
    row, place, counts, flat = by_shard(np.array(keys, np.uint64).reshape(len(keys), 5), shards, repeats=True)
    found = {}
    for r, p, some in zip(row.tolist(), place.tolist(), np.split(flat, np.cumsum(counts)[:-1]) if len(row) else [], strict=True):
        found[r, p] = some.tolist()
    expected = {(r, p): sorted({k for k in some if k % shards == p}) for r, some in enumerate(keys) for p in range(shards)}
    assert found == {where: some for where, some in expected.items() if some}


@settings(max_examples=25)
@given(LISTS, st.sampled_from([0.3, 0.5, 0.8, 1.0]), st.sampled_from(["cluster", "stream"]))
def test_of_records_that_agree_one_stays(lists, share, mode):
    """Hashes of 64 bits within 2 bits always meet, so that what stays must be as a walk through all pairs has it."""
    out = run_stage(DedupNear(column="h", distance=2, hashes=6, share=share, within=7, mode=mode), batch(lists))
    stays = []
    for number, some in enumerate(lists):
        if not any(counted(some, lists[k], 2, 7) >= np.float32(share) for k in stays):
            stays.append(number)
    assert [int(one) for one in out["out"].column("id")] == stays
    gone = out["duplicate"].rows.to_pylist() if "duplicate" in out else []
    for row in gone:
        one, other = int(row["id"]), int(row["duplicate_of"])
        assert row["similarity"] == pytest.approx(counted(lists[one], lists[other], 2, 7))


def test_a_common_title_makes_no_copies_and_a_part_does():
    rng = np.random.default_rng(0)
    title, *rest = [rng.bytes(8) for _ in range(20)]
    films = [[title, *rest[:6]], [title, *rest[6:12]], rest[7:9], [title], [title, rest[0]], [title, rest[13]]]
    out = run_stage(DedupNear(column="h", distance=6, hashes=19, share=0.4), batch(films))
    found = dict(zip(out["duplicate"].column("id"), out["duplicate"].column("duplicate_of"), strict=True))
    assert found == {"002": "001", "003": "000", "004": "000"}
    nearest = run_stage(DedupNear(column="h", distance=6, hashes=19), batch(films))
    assert "005" in nearest["duplicate"].column("id")


def test_records_of_which_two_hashes_are_near_meet():
    rng = np.random.default_rng(5)
    lists = [[rng.bytes(8) for _ in range(9)] for _ in range(300)]
    copies = [[flipped(one, 4, rng) for one in some[:2]] + [rng.bytes(8) for _ in range(7)] for some in lists]
    measure = SharedHashes(column="h", distance=4, hashes=9, share=0.2, within=4)
    keys = [measure.keys(batch([]), measure.encode(batch(some))[1]) for some in (lists, copies)]
    assert np.mean([bool(set(a) & set(b)) for a, b in zip(*(one.tolist() for one in keys), strict=True)]) >= 0.97


def flipped(value, count, rng):
    return (int.from_bytes(value) ^ sum(1 << int(bit) for bit in rng.choice(64, count, replace=False))).to_bytes(8)


@pytest.fixture(scope="module")
def titled():
    """Lists of a title and one hash more: forty pairs of different ones, and of each pair a copy of the second, which is far enough from
    it that only the title brings them together."""
    rng = np.random.default_rng(6)
    titles, others = ([rng.bytes(7) + bytes([last]) for _ in range(80)] for last in (0, 255))  # which is first
    known = [[titles[number // 2], other] for number, other in enumerate(others)]
    return known, [[title, flipped(other, 9, rng)] for title, other in known[1::2]]


TITLED = {"column": "h", "distance": 4, "hashes": 128, "share": 0.75, "within": 10}


def test_one_record_is_not_all_that_a_stream_looks_at_under_a_key(titled):
    stage = NearStream(measure=DedupNear(**TITLED)._measure)
    stage.setup(Context())
    known, copies = titled
    assert len(stage.process(batch(known))["out"]) == 80
    assert stage.process(batch(copies))["duplicate"].column("duplicate_of") == [f"{number:03}" for number in range(1, 80, 2)]


def test_one_record_is_not_all_that_is_looked_at_in_an_index(titled, tmp_path):
    for name, lists in zip(("known", "copies"), titled, strict=True):
        rows = batch(lists).rows.drop_columns(["source"])
        write_table(rows.set_column(0, "id", pa.array([f"{name} {number}" for number in range(len(lists))])), tmp_path / f"{name}.parquet")
        made = from_source(Parquet(path=str(tmp_path / f"{name}.parquet"))) >> DedupNear(**TITLED, index=str(tmp_path / "index"))
        result = (made >> ToParquet(path=str(tmp_path / f"out {name}"))).run(workers=0)
    assert result.records["duplicate"] == 40


def test_without_a_share_nothing_changes():
    assert type(DedupNear(column="h", distance=6, hashes=19)._measure) is Hamming


@pytest.mark.parametrize(("wrong", "told"), [
    ({"share": 0.5}, "share is of lists"), ({"share": 0.5, "distance": 6}, "share is of lists"),
    ({"distance": 6, "hashes": 9, "within": 8}, "set share"), ({"distance": 6, "hashes": 9, "share": 0}, "above 0"),
    ({"distance": 6, "hashes": 9, "share": 1.5}, "at most 1"),
    ({"distance": 6, "hashes": 9, "share": 0.5, "within": 5}, "distance or more")])
def test_nonsense_is_refused(wrong, told):
    with pytest.raises(RecipeError, match=told):
        DedupNear(column="h", **wrong)


def test_single_hashes_have_no_share():
    with pytest.raises(RecipeError, match="share is for lists"):
        SharedHashes(column="h", distance=4, hashes=2, share=0.5, within=4).check({"h": pa.binary(8)})
