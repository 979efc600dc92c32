"""Groups of directions: planted ones are found, and the answer is the same however it is computed."""

import numpy as np
import pytest
from curator_dedup.near import products
from curator_dedup.near.products import nearest, on_grid, pairs_over
from curator_dedup.semantic.kmeans import first, fit
from hypothesis import given
from hypothesis import strategies as st


def planted(groups, each, width, spread, seed=0):
    """Vectors on the grid around `groups` random directions, and the group of each."""
    random = np.random.default_rng(seed)
    centers = random.standard_normal((groups, width))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    labels = random.permutation(np.repeat(np.arange(groups), each))
    vectors = centers[labels] + spread * random.standard_normal((len(labels), width)) / np.sqrt(width)
    return on_grid(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)), labels


@pytest.mark.parametrize("width", [8, 64, 384])
def test_planted_groups_are_found(width):
    vectors, labels = planted(12, 40, width, spread=0.2)
    pure = []
    for seed in range(8):
        found = nearest(vectors, fit(vectors, 12, seed=seed))[0][:, 0]
        pure.append(sum(np.bincount(labels[found == n]).max() for n in np.unique(found)) / len(labels))
    assert np.mean(pure) >= 0.85


def test_rounds_make_groups_tighter_than_the_first_centers_are():
    vectors, _ = planted(30, 50, 32, spread=1.0)
    before = nearest(vectors, first(vectors, 30))[1].astype(np.float64).mean()
    assert nearest(vectors, fit(vectors, 30))[1].astype(np.float64).mean() > before * 1.02


def test_first_centers_are_different_and_far_apart():
    vectors, labels = planted(16, 100, 64, spread=0.05)
    chosen = first(vectors, 16, seed=3)
    assert len(np.unique(chosen, axis=0)) == 16
    groups = {int(labels[(vectors == one).all(axis=1)][0]) for one in chosen}
    random = np.random.default_rng(3)
    by_chance = np.mean([len(set(random.choice(labels, 16, replace=False).tolist())) for _ in range(100)])
    assert len(groups) > by_chance  # 10.3 of 16


def test_fewer_different_vectors_than_clusters_give_fewer_centers():
    vectors = on_grid(np.repeat(np.eye(3), 20, axis=0))
    assert sorted(fit(vectors, 10).argmax(axis=1).tolist()) == [0, 1, 2]
    assert fit(vectors[:1], 1).tolist() == vectors[:1].tolist()


def test_a_group_that_cancels_out_keeps_its_center():
    vectors = on_grid(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert np.abs(fit(vectors, 1)).tolist() == [[2048.0, 0.0]]


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 4), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_the_nearest_are_those_that_plain_python_finds_and_ties_go_to_the_first(rows, centers, count, seed, block):
    random = np.random.default_rng(seed)
    x, c = random.integers(-3, 4, (rows, 3)).astype(np.float32), random.integers(-3, 4, (centers, 3)).astype(np.float32)
    full = (x @ c.T).astype(int)
    expected = [sorted(range(centers), key=lambda k, row=row: (-row[k], k))[:count] for row in full]
    before, products.BLOCK_BYTES = products.BLOCK_BYTES, 4 * block
    try:
        numbers, found = nearest(x, c, count)
    finally:
        products.BLOCK_BYTES = before
    assert numbers.tolist() == expected
    assert found.tolist() == np.take_along_axis(full, numbers, axis=1).tolist()


def test_one_row_has_the_answer_that_it_has_among_many():
    vectors, _ = planted(40, 25, 384, spread=2.0)
    centers = fit(vectors, 40)
    together = nearest(vectors, centers, 3)
    for n in range(0, 1000, 37):
        alone = nearest(vectors[n:n + 1], centers, 3)
        assert alone[0][0].tolist() == together[0][n].tolist()
        assert alone[1][0].tolist() == together[1][n].tolist()


def torch_on(device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [2, 50, 384])
def test_torch_gives_the_same_centers_and_labels(width, device):
    torch_on(device)
    vectors, _ = planted(20, 30, width, spread=1.0)
    here, there = fit(vectors, 20), fit(vectors, 20, device=device)
    assert np.array_equal(here, there)
    for a, b in zip(nearest(vectors, here, 4), nearest(vectors, here, 4, device=device), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_torch_breaks_ties_as_numpy_does(device):
    torch_on(device)
    random = np.random.default_rng(0)
    x, c = random.integers(-1, 2, (500, 4)).astype(np.float32), random.integers(-1, 2, (300, 4)).astype(np.float32)
    assert np.array_equal(nearest(x, c, 5)[0], nearest(x, c, 5, device=device)[0])


def test_the_seed_decides_and_nothing_else():
    vectors, _ = planted(10, 50, 16, spread=1.0)
    assert np.array_equal(fit(vectors, 10, seed=4), fit(vectors, 10, seed=4))
    assert not np.array_equal(fit(vectors, 10, seed=4), fit(vectors, 10, seed=5))


def test_pairs_over_a_product_come_in_order():
    a, b = np.array([[1.0, 0], [0, 1], [1, 1]], np.float32), np.array([[1.0, 0], [2, 2]], np.float32)
    i, j = pairs_over(a, b, 1.0)
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert [len(x) for x in pairs_over(a, b[:0], 1.0)] == [0, 0]
