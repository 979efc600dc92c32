"""The pairs found in buckets, beside a search that goes through them one by one."""

import numpy as np
import pytest
from curator_dedup.near import candidates
from curator_dedup.near.candidates import LEADERS, Found, Verify, verified
from hypothesis import given
from hypothesis import strategies as st

HALF = candidates.HALF


def points(values, reach, reference=()):
    """Places are similar where their values are within `reach`; they look alike where the values are equal."""
    values = np.asarray(values, dtype=np.float64)

    def similar(a, b):
        apart = np.abs(values[a] - values[b])
        return np.where(apart <= reach, 1 - apart / 100, np.nan).astype(np.float32)

    marks = np.zeros(len(values), dtype=bool)
    marks[list(reference)] = True
    return Verify(similar, lambda places: values[places].astype(np.int64).view(np.uint64), marks)


def entries(buckets):
    return np.array(sorted((number << 32) | place for number, bucket in enumerate(buckets) for place in set(bucket)), np.uint64)


def find(buckets, verify, rounds=10**6):
    found = Found()
    parts = list(verified(entries([b for b in buckets if len(set(b)) > 1]), verify, rounds, found))
    pairs = [(a, b) for part in parts for a, b in zip(part[0].tolist(), part[1].tolist(), strict=True)]
    for a, b, similarity in parts:
        assert (a < b).all()
        assert not np.isnan(similarity).any()
        assert np.array_equal(similarity, verify.similar(a, b))
    return set(pairs), found


def one_by_one(bucket, verify, small):
    """What the module says of a bucket, in plain Python."""
    def alike(a, b):
        both = verify.reference[a] and verify.reference[b]
        return not both and not np.isnan(verify.similar(np.array([a]), np.array([b])))[0]

    bucket = sorted(set(bucket))
    if len(bucket) <= small:
        return {(a, b) for at, a in enumerate(bucket) for b in bucket[at + 1:] if alike(a, b)}
    pairs, led = set(), dict.fromkeys(bucket, 0)
    for at, leader in enumerate(bucket):
        if led[leader] < LEADERS:
            for member in bucket[at + 1:]:
                if led[member] < LEADERS and alike(leader, member):
                    pairs.add((leader, member))
                    led[member] += 1
    return pairs


BUCKETS = st.lists(st.lists(st.integers(0, 39), max_size=40), max_size=8)


@given(BUCKETS, st.lists(st.integers(0, 30), min_size=40, max_size=40), st.integers(0, 6),
       st.sets(st.integers(0, 39), max_size=15), st.integers(2, 12))
def test_it_finds_what_a_search_one_by_one_would(buckets, values, reach, reference, small):
    order = sorted(range(40), key=lambda place: place not in reference)  # references come first in keep order
    rename = {place: at for at, place in enumerate(order)}
    verify = points(np.array(values)[order], reach, [rename[r] for r in reference])
    buckets = [[rename[p] for p in bucket] for bucket in buckets]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SMALL", small)
        patch.setattr(candidates, "PAIRS", 7)
        got, found = find(buckets, verify)
    assert got == set().union(*(one_by_one(bucket, verify, small) for bucket in buckets))
    assert found.crowded == 0


def test_a_bucket_of_copies_costs_a_few_comparisons_a_copy():
    got, found = find([range(5000)], points(np.zeros(5000), 0))
    assert len(got) <= LEADERS * 5000
    assert found.candidates <= LEADERS * 5000
    assert {b for _, b in got} == set(range(1, 5000))


def test_a_crowd_ends_after_some_rounds_and_is_counted():
    values = np.arange(1000) * 10.0
    values[900:950] = values[950:]  # copies of each other, late in the order
    got, found = find([range(1000)], points(values, 1), rounds=20)
    assert found.candidates <= 20 * 1000 + 50
    assert (found.buckets, found.crowded) == (1, 980)
    assert got == {(place, place + 50) for place in range(900, 950)}


def test_what_meets_in_several_buckets_is_compared_once():
    verify = points(np.arange(500) * 10.0, 1)
    _, one = find([range(500)], verify, rounds=20)
    pairs, several = find([range(500)] * 9 + [range(0, 500, 2)], verify, rounds=20)
    assert (pairs, several.buckets) == (set(), 10)
    assert several.candidates <= one.candidates + 20 * 250


def test_references_alone_are_not_compared():
    _, found = find([range(500)], points(np.zeros(500), 0, range(500)))
    assert found.candidates == 0
