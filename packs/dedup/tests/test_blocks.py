"""Leaders and those that they lead, found by blocks: the same as one leader after the other."""

import numpy as np
import pytest
from curator_dedup.near import blocks
from curator_dedup.near.blocks import led
from hypothesis import given
from hypothesis import strategies as st


def one_by_one(places, similar, reference, most):
    count, pairs = dict.fromkeys(places, 0), []
    for at, leader in enumerate(places):
        if count[leader] < most:
            for member in places[at + 1:]:
                if similar[leader, member] and count[member] < most and not (reference[leader] and reference[member]):
                    count[member] += 1
                    pairs.append((leader, member))
    return sorted(pairs)


@given(st.integers(2, 40), st.floats(0, 1), st.integers(0, 5), st.integers(1, 3), st.integers(1, 12), st.integers(1, 12),
       st.integers(0, 2**32 - 1))
def test_blocks_find_what_one_leader_after_the_other_finds(size, share, references, most, leading, members, seed):
    random = np.random.default_rng(seed)
    similar = random.random((60, 60)) < share
    similar = similar | similar.T
    values = random.random((60, 60)).astype(np.float32)
    reference = np.arange(60) < references
    places = np.sort(random.choice(60, size, replace=False))

    def near(a, b):
        i, j = np.nonzero(similar[np.ix_(a, b)])
        return i, j, values[a[i], b[j]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LEADERS_BLOCK", leading)
        patch.setattr(blocks, "MEMBERS_BLOCK", members)
        parts = list(led(places, near, reference, most))
    a, b, similarity = (np.concatenate(columns) for columns in zip(*parts, strict=True)) if parts else (np.empty(0, int),) * 3
    assert sorted(zip(a.tolist(), b.tolist(), strict=True)) == one_by_one(places.tolist(), similar, reference, most)
    assert (similarity == values[a, b]).all()


def test_copies_are_compared_with_few_leaders_only():
    compared = []

    def near(a, b):
        compared.append(len(a) * len(b))
        i, j = np.divmod(np.arange(len(a) * len(b)), len(b))
        return i, j, np.ones(len(i), np.float32)

    pairs = sum(len(a) for a, _, _ in led(np.arange(20_000), near, np.zeros(20_000, bool), 3))
    assert pairs == 3 * 20_000 - 6  # the first three have 0, 1 and 2
    assert sum(compared) == blocks.LEADERS_BLOCK**2 + 3 * (20_000 - blocks.LEADERS_BLOCK)
