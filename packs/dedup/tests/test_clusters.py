"""Clusters as going through the records one by one, in plain Python, would make them."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.shared import clusters, greedy
from curator_dedup.shared.clusters import Clusters, size_names
from curator_dedup.shared.greedy import assign
from curator_dedup.shared.rows import EDGE, VERDICT, EdgeBatch
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.testing import check_stage, run_stage

# -- pure arrays --------------------------------------------------------------------------------------------------


def one_by_one(count, pairs, order, reference, radius):
    """Who is kept for each record: the definition, as slowly as it can be said."""
    beside = {node: set() for node in range(count)}
    for a, b in pairs:
        beside[a].add(b)
        beside[b].add(a)
    kept = {node: node for node in range(count) if reference[node]}
    for node in sorted(range(count), key=lambda n: (not reference[n], order[n])):
        if kept.setdefault(node, node) != node:
            continue
        level, steps = {node}, 0
        while level and (radius is None or steps < radius):
            level = {other for one in level for other in beside[one] if other not in kept}
            kept |= dict.fromkeys(level, node)
            steps += 1
    return [kept[node] for node in range(count)]


def arrays(pairs):
    first, second = (np.array([pair[side] for pair in pairs], dtype=np.uint32) for side in (0, 1))
    return first, second, np.array([similarity_of(a, b) for a, b in pairs], dtype=np.float32)


def similarity_of(a, b):
    return random.Random(f"{min(a, b)} {max(a, b)}").random()


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    node = st.integers(0, count - 1)
    return (count, draw(st.lists(st.tuples(node, node), max_size=30)), draw(st.permutations(range(count))),
            draw(st.lists(st.sampled_from([False, False, False, True]), min_size=count, max_size=count)))


@given(graphs(), st.sampled_from([1, 2, 3, None]), st.sampled_from([0.0, greedy.WORTHWHILE]))
def test_it_is_what_going_through_the_records_gives(graph, radius, worthwhile):
    count, pairs, order, reference = graph
    before, greedy.WORTHWHILE = greedy.WORTHWHILE, worthwhile  # 0: in turn from the first round on
    try:
        kept, similarity = assign(*arrays(pairs), np.array(order), np.array(reference), radius)
    finally:
        greedy.WORTHWHILE = before
    assert kept.tolist() == one_by_one(count, pairs, order, reference, radius)
    known = {frozenset(pair) for pair in pairs}
    for node, (best, found) in enumerate(zip(kept.tolist(), similarity.tolist(), strict=True)):
        assert np.isnan(found) == (best == node)
        if frozenset((node, best)) in known and node != best:
            assert found == np.float32(similarity_of(node, best))


@given(graphs(), st.sampled_from([1, 2, None]), st.randoms(use_true_random=False))
def test_neither_the_order_nor_the_numbers_of_the_input_matter(graph, radius, rng):
    count, pairs, order, reference = graph
    order, reference = np.array(order), np.array(reference)
    kept, similarity = assign(*arrays(pairs), order, reference, radius)
    new = np.array(rng.sample(range(count), count))  # the new number of each record
    first, second, found = arrays(pairs)
    shuffled = np.array(rng.sample(range(len(pairs)), len(pairs)), dtype=np.int64)
    shuffled = np.concatenate([shuffled, shuffled[:3]])
    other = np.argsort(new)
    replay = assign(new[second[shuffled]].astype(np.uint32), new[first[shuffled]].astype(np.uint32), found[shuffled],
                   order[other], reference[other], radius)
    assert new[kept].tolist() == replay[0][new].tolist()
    assert np.array_equal(similarity, replay[1][new], equal_nan=True)


@given(graphs())
def test_with_radius_1_duplicates_are_like_the_record_that_is_kept_and_kept_records_are_not_alike(graph):
    _, pairs, order, reference = graph
    kept = assign(*arrays(pairs), np.array(order), np.array(reference), 1)[0].tolist()
    known = {frozenset(pair) for pair in pairs}
    assert all(frozenset((node, best)) in known for node, best in enumerate(kept) if node != best)
    for a, b in pairs:
        both = a != b and kept[a] == a and kept[b] == b
        assert not both or (reference[a] and reference[b])


@given(graphs())
def test_without_a_bound_clusters_are_connected_components(graph):
    count, pairs, order, _ = graph
    kept = assign(*arrays(pairs), np.array(order), np.zeros(count, dtype=bool), None)[0].tolist()
    parent = list(range(count))

    def root(node):
        return node if parent[node] == node else root(parent[node])

    for a, b in pairs:
        parent[root(a)] = root(b)
    assert all((kept[a] == kept[b]) == (root(a) == root(b)) for a in range(count) for b in range(count))
    assert all(order[best] <= order[node] for node, best in enumerate(kept))


@pytest.mark.parametrize(("order", "shares"), [(np.arange(1000), {1: (500, 500), 2: (334, 334), None: (1, 1)}),
                                               (np.random.default_rng(3).permutation(1000), {1: (400, 470), None: (1, 1)})])
def test_a_chain_of_look_alikes_does_not_merge(order, shares):
    chain = np.arange(999, dtype=np.uint32)
    for radius, (least, most) in shares.items():
        kept, _ = assign(chain, chain + 1, np.ones(999, np.float32), order, np.zeros(1000, dtype=bool), radius)
        assert least <= np.count_nonzero(kept == np.arange(1000)) <= most
        assert radius is None or np.abs(kept.astype(int) - np.arange(1000)).max() <= radius


def test_many_random_pairs_in_large_clusters():
    rng = np.random.default_rng(5)
    count = 3000
    pairs = [(int(a), int(b)) for a, b in rng.integers(0, count, (6000, 2))]
    order, reference = rng.permutation(count), rng.random(count) < 0.01
    for radius in (1, 2, 4, None):
        kept, _ = assign(*arrays(pairs), order, reference, radius)
        assert kept.tolist() == one_by_one(count, pairs, order.tolist(), reference.tolist(), radius)


def test_what_no_pair_leads_to_directly_is_as_similar_as_the_weakest_pair_on_the_best_short_way():
    first, second = np.array([0, 0, 1, 2, 3], np.uint32), np.array([1, 2, 3, 3, 4], np.uint32)
    found = assign(first, second, np.array([0.9, 0.8, 0.7, 0.95, 0.6], np.float32), np.arange(5), np.zeros(5, bool), None)[1]
    assert found[1:].tolist() == np.array([0.9, 0.8, 0.8, 0.6], np.float32).tolist()


# -- the stage ----------------------------------------------------------------------------------------------------


def record(name):
    """Id, source and digest; three records share an id, and some of them the source too."""
    return f"r{name // 3}", "s" if name % 4 else "t", name % 3


def edge(a, b, ranks, reference, similarity=None):
    (one, here, digest), (other, there, other_digest) = record(a), record(b)
    return {"id": one, "source": here, "digest": digest, "other_id": other, "other_source": there, "other_digest": other_digest,
            "similarity": similarity_of(a, b) if similarity is None else similarity, "rank": ranks[a], "other_rank": ranks[b],
            "reference": reference[a], "other_reference": reference[b]}


def edges(rows):
    return EdgeBatch(pa.Table.from_pylist(rows, EDGE))


def verdicts(stage, *batches):
    answer = run_stage(stage, *batches)
    return answer["out"].visible().to_pylist() if "out" in answer else []


@given(graphs(), st.sampled_from([1, 2, None]), st.booleans(), st.integers(0, 2), st.randoms(use_true_random=False))
def test_verdicts_are_a_function_of_the_set_of_pairs(graph, radius, drops_all, width, rng):
    count, pairs, order, reference = graph
    ranks = [[float(place // 3), float(place)][:width] for place in order]
    rows = [edge(a, b, ranks, reference) for a, b in pairs]
    stage = Clusters(radius=radius, drops_all=drops_all)
    given = verdicts(stage, edges(rows))
    other = [edge(b, a, ranks, reference) if rng.random() < 0.5 else row
             for row, (a, b) in rng.sample(list(zip(rows, pairs, strict=True)), len(rows))] + rows[:2]
    cut = rng.randint(0, len(other))
    assert verdicts(stage, edges(other[:cut]), edges(other[cut:])) == given
    check_verdicts(given, count, pairs, ranks, reference, radius, drops_all)


def check_verdicts(given, count, pairs, ranks, reference, radius, drops_all):
    names = [record(node) for node in range(count)]
    by_name = sorted(range(count), key=lambda n: (ranks[n], names[n]))
    order = np.argsort(by_name).tolist()
    kept = one_by_one(count, pairs, order, reference, radius)
    sizes = Counter(kept) + Counter(kept[a] for a in {a for a, b in pairs if a == b})
    told = {(row["id"], row["source"], row["digest"]): row for row in given}
    assert len(told) == len(given)
    assert set(told) == {names[node] for node in range(count) if sizes[kept[node]] > 1}
    assert [row["cluster"] for row in given] == sorted(row["cluster"] for row in given)
    for node in range(count):
        if sizes[kept[node]] > 1:
            row, best = told[names[node]], told[names[kept[node]]]
            gone = not reference[node] and (drops_all or kept[node] != node)
            assert (row["duplicate_of"], row["similarity"] is None) == (names[kept[node]][0] if gone else None, not gone)
            assert (row["cluster"], row["cluster_size"]) == (best["cluster"], sizes[kept[node]])


def test_a_record_that_is_there_twice_has_a_verdict_of_its_own():
    ranks, reference = [[], []], [False, False]
    alone, = verdicts(Clusters(), edges([edge(0, 0, ranks, reference, 1.0)] * 2))
    assert (alone["id"], alone["duplicate_of"], alone["cluster_size"], alone["cluster_sizes"]) == ("r0", None, 2, "2")
    alone, = verdicts(Clusters(drops_all=True), edges([edge(0, 0, ranks, reference, 1.0)]))
    assert (alone["duplicate_of"], alone["similarity"]) == ("r0", 1.0)


def test_records_with_one_id_in_two_sources_are_two_records():
    rows = [edge(0, 1, [[], []], [False, False], 0.5)]
    assert [(row["id"], row["source"], row["duplicate_of"]) for row in verdicts(Clusters(), edges(rows))] == [
        ("r0", "s", None), ("r0", "t", "r0")]


def test_clusters_are_named_after_their_best_record():
    import xxhash

    rows = verdicts(Clusters(), edges([edge(1, 3, [[]] * 7, [False] * 7), edge(6, 1, [[]] * 7, [False] * 7)]))
    assert {row["cluster"] for row in rows} == {f"{xxhash.xxh3_64_intdigest(b's' + bytes(1) + b'r0', 1):016x}"}
    assert [(row["id"], row["cluster_size"], row["cluster_sizes"]) for row in rows] == [(f"r{i}", 3, "3-4") for i in (0, 1, 2)]


def test_records_with_one_id_and_source_that_differ_have_clusters_of_their_own():
    rows = verdicts(Clusters(), edges([edge(1, 3, [[]] * 7, [False] * 7), edge(2, 6, [[]] * 7, [False] * 7)]))
    assert [row["duplicate_of"] for row in rows].count("r0") == 2
    assert len({row["cluster"] for row in rows}) == 2


def test_no_pairs_make_no_verdicts():
    assert verdicts(Clusters(), edges([])) == []
    assert verdicts(Clusters()) == []


def test_many_verdicts_come_in_batches_and_pairs_that_came_twice_are_sorted_out(monkeypatch):
    monkeypatch.setattr(clusters, "VERDICT_ROWS", 7)
    monkeypatch.setattr(clusters, "SORT_OUT_EDGES", 10)
    ranks, reference = [[]] * 40, [False] * 40
    rows = [edge(2 * i, 2 * i + 1, ranks, reference) for i in range(20)]
    stage = Clusters()
    stage.clear()
    for _ in range(9):
        stage.absorb(edges(rows))
    assert sum(len(part[0]) for part in stage._edges) <= 40
    batches = list(stage.finish())
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 7, 5]
    assert all(batch.rows.schema.equals(VERDICT) for batch in batches)
    assert pa.concat_tables([batch.rows for batch in batches]).to_pylist() == verdicts(stage, edges(rows))


def test_it_keeps_the_rules():
    ranks, reference = [[float(i % 5)] for i in range(18)], [i == 10 for i in range(18)]
    rows = [edge(a, b, ranks, reference) for a, b in ((0, 3), (3, 4), (6, 6), (9, 10), (12, 13), (15, 17))]
    check_stage(Clusters(), edges(rows), skip={"nulls", "needs"})  # a pair has no nulls


@pytest.mark.parametrize("radius", [0, -1])
def test_a_radius_below_1_is_refused(radius):
    with pytest.raises(RecipeError, match="radius must be 1 or more"):
        Clusters(radius=radius)


def test_sizes_have_names_in_classes_that_double():
    assert size_names(np.array([1, 2, 3, 4, 5, 8, 9, 16, 17, 1025])).to_pylist() == [
        "1", "2", "3-4", "3-4", "5-8", "5-8", "9-16", "9-16", "17-32", "1025-2048"]
    assert size_names(np.array([], int)).to_pylist() == []
