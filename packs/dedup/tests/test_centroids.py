"""Which clusters a vector is given: the nearest ones, whatever the order of rows and the batches they come in."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.semantic import centroids
from curator_dedup.semantic.centroids import Centroids, automatic
from curator_dedup.shared.rows import SKETCH, SketchBatch, digests

from curator.api.errors import InputError, RecipeError
from curator.api.keys import shard_of
from curator.testing import check_stage, run_stage


def sketched(vectors, scope=None, rank=()):
    """Sketches as `Sketch` makes them of `Cosine` without planes."""
    vectors = np.asarray(vectors, dtype=np.float64)
    sketches = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).view(np.uint8)
    count = len(vectors)
    keys = [7] * count if scope is None else scope
    columns = [[f"r{i:05}" for i in range(count)], ["s"] * count, digests(sketches), np.zeros(count, np.int64),
               [[key] for key in keys], [row.tobytes() for row in sketches], [list(rank)] * count, [False] * count]
    return SketchBatch(pa.table([pa.array(c, f.type) for c, f in zip(columns, SKETCH, strict=True)], schema=SKETCH))


def around(groups, each, width, spread, seed=0):
    random = np.random.default_rng(seed)
    centers = random.standard_normal((groups, width))
    labels = np.repeat(np.arange(groups), each)
    return centers[labels] + spread * random.standard_normal((len(labels), width)), labels


def keys_of(answer):
    """The keys of each record, and how many rows it has."""
    found, rows = {}, {}
    for record, keys in zip(answer.column("id"), answer.column("keys"), strict=True):
        found.setdefault(record, set()).update(keys)
        rows[record] = rows.get(record, 0) + 1
    return found, rows


def test_records_of_a_group_get_one_key_and_groups_different_ones():
    vectors, labels = around(4, 30, 32, 0.05)
    answer = run_stage(Centroids(clusters=40, probes=1), sketched(vectors))["out"]
    keys, _ = keys_of(answer)
    by_key = {}
    for n, label in enumerate(labels.tolist()):
        (key,) = keys[f"r{n:05}"]
        by_key.setdefault(key, set()).add(label)
    assert len(by_key) >= 4
    assert all(len(groups) == 1 for groups in by_key.values())


@pytest.mark.parametrize("shards", [1, 3, 16])
def test_a_record_has_a_row_for_each_shard_of_its_keys(shards):
    vectors, _ = around(50, 8, 16, 1.0)
    batch = sketched(vectors)
    answer = run_stage(Centroids(clusters=30, probes=4, shards=shards), batch)["out"]
    keys, rows = keys_of(answer)
    assert {len(found) for found in keys.values()} == {4}
    assert max(rows.values()) <= min(shards, 4)
    places = shard_of(answer.rows.column("shard"), shards)
    led = {}
    for record, place, some in zip(answer.column("id"), places.tolist(), answer.column("keys"), strict=True):
        assert (record, place) not in led
        led[record, place] = True
        assert {key % shards for key in some} == {place}
    assert answer.rows.column("sketch").to_pylist()[0] == batch.rows.column("sketch").to_pylist()[0]


def test_more_probes_add_keys_to_those_that_were_there():
    batch = sketched(around(50, 8, 16, 1.0)[0])
    one, three = (keys_of(run_stage(Centroids(clusters=30, probes=n), batch)["out"])[0] for n in (1, 3))
    assert all(one[record] < three[record] for record in one)


def test_neither_order_nor_batches_matter(monkeypatch):
    monkeypatch.setattr(centroids, "SAMPLE_BYTES", 2 * 24 * 60)  # 60 sketches; more are sorted out on the way
    vectors, _ = around(20, 25, 24, 1.0)
    batch = sketched(np.concatenate([vectors, vectors[:50]]))
    stage = Centroids(clusters=12, rank="hard")
    expected = sorted(run_stage(stage, batch)["out"].rows.to_pylist(), key=str)
    for seed in range(4):
        random = np.random.default_rng(seed)
        mixed = batch.take(random.permutation(len(batch)))
        cuts = [0, *np.sort(random.choice(len(batch), 6, replace=False)).tolist(), len(batch)]
        parts = [mixed.slice(a, b) for a, b in itertools.pairwise(cuts) if a < b]
        answer = run_stage(stage, *parts)["out"]
        assert sorted(answer.without(["_row", "_unit"]).rows.to_pylist(), key=str) == [
            {name: value for name, value in row.items() if not name.startswith("_")} for row in expected]


def test_copies_of_one_vector_do_not_draw_centers_to_them():
    vectors, _ = around(10, 20, 16, 0.5)
    few = keys_of(run_stage(Centroids(clusters=15), sketched(vectors))["out"])[0]
    more = sketched(np.concatenate([vectors, np.repeat(vectors[:1], 500, axis=0)]))
    many = keys_of(run_stage(Centroids(clusters=15), more)["out"])[0]
    assert all(many[record] == found for record, found in few.items())


def test_scopes_have_clusters_of_their_own():
    vectors, _ = around(5, 20, 16, 0.1)
    scope = [3, 2**64 - 1] * 50
    keys, _ = keys_of(run_stage(Centroids(clusters=3), sketched(vectors, scope))["out"])
    ours, theirs = (set().union(*(keys[f"r{n:05}"] for n in range(start, 100, 2))) for start in (0, 1))
    assert ours.isdisjoint(theirs)
    assert len(ours) == len(theirs) == 3


def test_ranks_by_centers_come_before_the_others():
    vectors, labels = around(6, 30, 48, 0.3)
    batch = sketched(vectors, rank=(5.0, 6.0))
    hard, easy, random, other, none = (
        dict(zip(answer.column("id"), answer.column("rank"), strict=True))
        for answer in (run_stage(Centroids(clusters=6, rank=rank, seed=seed), batch)["out"] for rank, seed in (
            ("hard", 1), ("easy", 1), ("random", 1), ("random", 2), (None, 1))))
    assert set(map(tuple, none.values())) == {(5.0, 6.0)}
    assert all(hard[record][1:] == [5.0, 6.0] and hard[record][0] == -easy[record][0] for record in none)
    assert len({rank[0] for rank in random.values()}) == len(none)
    assert random != other
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    middles = np.stack([unit[labels == label].mean(axis=0) for label in range(6)])
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    cosines = (unit * middles[labels]).sum(axis=1)
    found = np.array([hard[f"r{n:05}"][0] for n in range(len(vectors))])
    assert np.median(np.abs(found - cosines)) < 0.02  # some groups share a center or have two


def test_clusters_by_themselves_have_a_thousand_rows_or_the_root_of_all():
    assert [automatic(n) for n in (1, 999, 5000, 1_000_000, 100_000_000)] == [1, 1, 5, 1000, 10_000]


def test_no_rows_and_one_row_are_fine():
    assert "out" not in run_stage(Centroids())
    assert len(run_stage(Centroids(), sketched([[1.0, 2.0]]))["out"]) == 1


def test_vectors_of_two_widths_are_refused():
    with pytest.raises(InputError, match="some with 2 values and others with 3"):
        run_stage(Centroids(), sketched([[1.0, 2.0]]), sketched([[1.0, 2.0, 3.0]]))
    both = SketchBatch(pa.concat_tables([sketched([[1.0, 2.0]]).rows, sketched([[1.0, 2.0, 3.0]]).rows]))
    with pytest.raises(InputError, match="some with 2, 3 values"):
        run_stage(Centroids(), both)


@pytest.mark.parametrize(("options", "told"), [({"clusters": 0}, "clusters must"), ({"probes": 0}, "probes must"),
                                               ({"rank": "far"}, "hard, easy or random")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        Centroids(**options)


@pytest.mark.parametrize("options", [{}, {"clusters": 5, "probes": 3, "rank": "random"}, {"clusters": 5, "shards": 1}])
def test_it_keeps_the_rules(options):
    check_stage(Centroids(**options), sketched(around(6, 5, 8, 0.5)[0]), skip={"nulls"})  # `Sketch` gives none
