"""The truth by which benchmarks/dedup.py judges: planted similarities are real, all pairs are counted, measures are right."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

import dedup_metrics as metrics
import dedup_truth as made

WORDS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "bdglmnrst"]


@pytest.fixture(scope="module")
def pages():
    rng = np.random.default_rng(3)
    texts = [" ".join(WORDS[i] for i in rng.integers(0, len(WORDS), 4000)) for _ in range(40)]
    return made.plant(texts, 500, seed=1)


@pytest.fixture(scope="module")
def truth(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dedup") / "made"
    made.write(pages, folder)
    return metrics.Truth.read(folder)


def families(pages, kind):
    found = {}
    for page in pages:
        if page.kind == kind:
            found.setdefault(page.family, []).append(page)
    assert found
    return found.values()


def test_the_same_seed_makes_the_same_pages(pages):
    texts = ["one two three four five six seven eight nine ten " * 200, *(" ".join(WORDS[i:] + WORDS[:i]) for i in range(30))]
    first, again, other = (made.plant(texts, 60, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert len(first) == 60
    assert len(pages) == 500
    assert len({p.id for p in pages}) == 500


def test_a_planted_copy_has_the_similarity_of_its_level(pages):
    for original, copy in families(pages, "near"):
        assert original.words != copy.words
        assert made.jaccard(original.words, copy.words) == pytest.approx(original.level, abs=0.03)
    assert {p.level for p in pages if p.kind == "near"} == set(made.LEVELS)


def test_neighbours_of_a_chain_are_alike_and_its_ends_are_not(pages):
    for members in families(pages, "chain"):
        alike = [made.jaccard(a.words, b.words) for a, b in combinations(members, 2)]
        assert len(members) == made.LINKS
        assert sum(index > 0.87 for index in alike) >= made.LINKS - 1
        assert min(alike) < 0.5


@pytest.mark.parametrize(("kind", "least", "most"), [("template", 0.3, 0.55), ("translated", 0.15, 0.45),
                                                     ("boilerplate", 0.01, 0.3), ("exact", 1.0, 1.0)])
def test_what_is_no_copy_is_like_its_family_only_in_part(pages, kind, least, most):
    for members in families(pages, kind):
        for a, b in combinations(members, 2):
            assert least <= made.jaccard(a.words, b.words) <= most


def test_other_languages_are_one_to_one():
    seen = {w.translate(made.translation(n)) for n in range(made.LANGUAGES + 1) for w in ("curation",)}
    assert len(seen) == made.LANGUAGES + 1
    for n in (1, 22, made.LANGUAGES):
        assert len({w.translate(made.translation(n)) for w in WORDS}) == len(WORDS)


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=14), min_size=1, max_size=6))
def test_all_pairs_are_counted_exactly(documents):
    found = {(int(a), int(b)): float(j) for a, b, j in zip(*made.exact_pairs(documents, least=0.2), strict=True)}
    for i, j in combinations(range(len(documents)), 2):
        index = made.jaccard(documents[i], documents[j])
        assert found.pop((i, j), 0.0) == pytest.approx(index if index >= 0.2 else 0.0)
    assert not found


def one_each(truth):
    """Keep the first of all that are exactly alike."""
    alike = truth.jaccard >= 1
    cluster = metrics.components(len(truth.ids), truth.first[alike], truth.second[alike])
    return metrics.Answer(cluster == np.arange(len(cluster)), cluster)


def test_who_removes_what_is_equal_is_right_and_misses_the_rest(truth):
    found = metrics.removals(truth, one_each(truth), 0.8)
    assert found["precision"] == 1
    assert found["lost"] == 0
    assert 0 < found["recall"] < 1
    assert metrics.removals(truth, one_each(truth), 1.0)["f1"] == 1


def test_who_removes_all_loses_all_that_is_by_itself(truth):
    nothing = metrics.Answer(np.zeros(len(truth.ids), bool), np.zeros(len(truth.ids), int))
    found = metrics.removals(truth, nothing, 0.8)
    assert found["precision"] == 0
    assert found["lost"] == len(truth.ids)
    assert metrics.lost(truth, nothing, "template") == 1
    assert metrics.chains_merged(truth, nothing) == 1
    assert metrics.pairs(truth, nothing, 0.8)["recall"] == 1


def test_who_does_nothing_has_found_nothing(truth):
    nobody = metrics.Answer(np.ones(len(truth.ids), bool), np.arange(len(truth.ids)))
    assert metrics.removals(truth, nobody, 0.8)["recall"] == 0
    assert metrics.chains_merged(truth, nobody) == 0
    assert {level: value["found"] for level, value in metrics.by_level(truth, nobody, 14, 8).items()} == dict.fromkeys(
        (f"{level:.2f}" for level in made.LEVELS), 0.0)
    assert metrics.clusters(truth, nobody, 0.8) == pytest.approx(0)


def test_core_counts_a_record_as_found_when_its_cluster_holds_all_its_duplicates():
    truth = metrics.Truth(list("abcde"), np.array(["base"] * 5), np.arange(5), np.full(5, np.nan), np.full(5, 9),
                          np.array([0, 0, 1]), np.array([1, 2, 2]), np.ones(3))
    whole = metrics.Answer(np.array([1, 0, 0, 1, 1], bool), np.array([0, 0, 0, 3, 4]))
    part = metrics.Answer(np.array([1, 0, 1, 1, 1], bool), np.array([0, 0, 2, 3, 4]))
    assert metrics.core(truth, whole, 0.8) == {"as_published": 1.0, "macro_f1": 1.0}
    # a and b have a cluster without c: two false positives; c has none: a false negative; d and e are right
    assert metrics.core(truth, part, 0.8)["as_published"] == pytest.approx((0 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12))
def test_the_adjusted_rand_index_is_that_of_hubert_and_arabie(labels):
    first, second = np.array(labels).T
    same = Counter((a[0] == b[0], a[1] == b[1]) for a, b in combinations(labels, 2))
    both, one, other, neither = (same[k] for k in ((True, True), (True, False), (False, True), (False, False)))
    # their equation in terms of pairs (Steinley 2004, Psychological Methods 9, equation 3)
    many = both + one + other + neither
    chance = (both + one) * (both + other) + (other + neither) * (one + neither)
    if many * many != chance:
        wanted = (many * (both + neither) - chance) / (many * many - chance)
        assert metrics.adjusted_rand_index(first, second) == pytest.approx(wanted)


def test_the_curve_is_that_of_the_bands_and_what_is_least_is_below_it(truth):
    found = metrics.by_level(truth, one_each(truth), 14, 8)
    for level, told in found.items():
        assert told["expected"] == pytest.approx(1 - (1 - float(level) ** 8) ** 14, abs=0.08)
        assert told["least"] * told["pairs"] <= round(told["expected"] * told["pairs"])
    assert found["0.95"]["least"] > 0.8 > found["0.50"]["expected"]


def test_without_chains_all_else_stays_as_it_is(truth):
    fair, given = truth.without_chains(one_each(truth))
    assert len(fair.ids) == int((truth.kind != "chain").sum()) == len(given.cluster)
    known = {frozenset((truth.ids[a], truth.ids[b])): j for a, b, j in zip(truth.first, truth.second, truth.jaccard, strict=True)}
    for a, b, j in zip(fair.first, fair.second, fair.jaccard, strict=True):
        assert known[frozenset((fair.ids[a], fair.ids[b]))] == j
    assert metrics.clusters(fair, given, 1.0) == 1
    assert metrics.pairs(fair, given, 1.0)["f1"] == 1
