"""Cosines of vectors: against plain numpy in float64, and the same whatever batch a vector is in."""

import math

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.near.cosine import Cosine, bits_and_bands
from curator_dedup.near.products import GRID, on_grid
from hypothesis import given
from hypothesis import strategies as st

from curator import Batch, RecipeError
from curator.api.errors import InputError
from packs.dedup.tests.vectors import directions, turned

KINDS = {"list": pa.list_, "large_list": pa.large_list, "fixed_size_list": lambda kind: pa.list_(kind, 3)}


def records(vectors, kind=None):
    column = pa.array(vectors, kind)
    names = [f"r{i}" for i in range(len(column))]
    return Batch(pa.table({"id": names, "source": ["s"] * len(column), "v": column}))


def encoded(measure, vectors):
    return measure.encode(records([list(map(float, v)) for v in vectors]))


@pytest.mark.parametrize("width", [2, 3, 16, 384, 1024])
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_similarity_is_the_cosine(width, kind):
    random = np.random.default_rng(width)
    vectors = random.standard_normal((60, width)) * random.lognormal(sigma=2, size=(60, 1))
    stored = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel().astype(kind.to_pandas_dtype())), width)
    measure = Cosine("v", 0.5)
    present, sketches = measure.encode(records(stored))
    assert present.all()
    assert sketches.shape == (60, 2 * width)
    assert sketches.dtype == np.uint8
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = measure.similarity(sketches[:30], sketches[30:])
    assert found.dtype == np.float32
    assert np.abs(found - (unit[:30] * unit[30:]).sum(axis=1)).max() < (3e-3 if kind == pa.float16() else 3e-4)


NUMBERS = st.floats(-1e300, 1e300).filter(lambda v: v == 0 or abs(v) > 1e-300)


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=8))
def test_a_vector_has_cosine_1_to_itself_and_to_its_multiples_and_minus_1_to_its_opposite(vectors):
    measure = Cosine("v", 1.0)
    present, sketches = encoded(measure, vectors)
    assert (present == np.any(np.array(vectors) != 0, axis=1)).all()
    _, doubled = encoded(measure, np.array(vectors) * 0.125)
    _, opposite = encoded(measure, -np.array(vectors))
    assert (measure.similarity(sketches, doubled)[present] == 1).all()
    assert (measure.similarity(sketches, opposite)[present] <= -0.999).all()
    assert {(int(i), int(i)) for i in np.flatnonzero(present)} <= set(zip(*(p.tolist() for p in measure.pairs(
        sketches, sketches)[:2]), strict=True))


@pytest.mark.parametrize("shape", KINDS)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.int8()])
def test_vectors_without_a_direction_are_not_compared(shape, kind):
    values = [[3, 0, 4], None, [0, 0, 0], [1, None, 2], [3, 0, 4]]
    if pa.types.is_floating(kind):
        values += [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, np.inf, 2]]
        values = [v if v is None else [x if x is None else kind.to_pandas_dtype()(x) for x in v] for v in values]
    if shape != "fixed_size_list":
        values.append([])
    column = pa.array(values, KINDS[shape](kind))
    measure = Cosine("v")
    for rows in (records(column), Batch(pa.concat_tables([records(column).rows.slice(n, 1) for n in range(len(values))]))):
        present, sketches = measure.encode(rows)
        assert np.flatnonzero(present).tolist() == [0, 4]
        assert (sketches[~present] == 0).all()
        assert sketches[0].view(np.float16).tolist() == pytest.approx([0.6, 0, 0.8], abs=1e-3)
    alone, sketches = measure.encode(Batch(rows.rows.slice(1, 1)))
    assert alone.tolist() == [False]
    assert len(sketches) == 1
    assert measure.encode(Batch(rows.rows.slice(0, 0)))[0].shape == (0,)


def test_tensors_of_one_dimension_are_vectors():
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    measure = Cosine("v")
    measure.check({"v": column.type})
    present, sketches = measure.encode(records(column))
    assert present.tolist() == [True, False]
    assert sketches[0].view(np.float16).tolist() == pytest.approx([0.6, 0.8], abs=1e-3)


def test_vectors_of_two_widths_are_an_error_that_names_them():
    with pytest.raises(InputError, match="in 'v' there are some with 2, 3 values"):
        Cosine("v").encode(records([[1.0, 2.0], [1.0, 2.0, 3.0], []]))


@pytest.mark.parametrize("kind", [pa.string(), pa.float32(), pa.list_(pa.string()), pa.binary()])
def test_a_column_without_vectors_is_refused_by_the_plan(kind):
    with pytest.raises(RecipeError, match="wants vectors: 'v' is"):
        Cosine("v").check({"v": kind})


def test_a_column_whose_type_the_plan_did_not_know_is_refused_when_it_comes():
    with pytest.raises(InputError, match="wants vectors: 'v' is string"):
        Cosine("v").encode(records(["a"]))
    Cosine("v").check({"v": None})
    Cosine("v").check({"v": pa.list_(pa.float16())})


@pytest.mark.parametrize("threshold", [0, -1, 1.01, math.nan])
def test_a_threshold_that_is_no_cosine_is_refused(threshold):
    with pytest.raises(RecipeError, match="threshold"):
        Cosine("v", threshold)


@pytest.mark.parametrize(("width", "planted"), [(3, 0.9501), (64, 0.9501), (384, 0.9501), (384, 0.9499), (1024, 0.5)])
def test_pairs_are_all_that_reach_the_threshold_and_the_same_in_any_blocks(width, planted):
    random = np.random.default_rng(7)
    some = directions(random, 80, width)
    vectors = np.concatenate([some, turned(random, some, planted), some[:20] * 3])
    measure = Cosine("v", 0.95)
    _, sketches = encoded(measure, vectors)
    a, b = sketches[:100], sketches[70:]
    i, j, cosines = measure.pairs(a, b)
    unit = sketches.view(np.float16).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    exact = (unit[:100] @ unit[70:].T).astype(np.float32)
    assert (exact >= np.float32(0.95)).sum() == len(i) >= 30
    assert np.abs(exact[i, j] - cosines).max() < 1e-6
    assert (cosines == measure.similarity(a[i], b[j])).all()
    in_rows = [measure.pairs(a[n:n + 1], b) for n in range(100)]
    assert np.array_equal(np.concatenate([found[2] for found in in_rows]), cosines)
    assert np.array_equal(np.concatenate([found[1] for found in in_rows]), j)
    matrix = measure.matrix(a, b)
    assert matrix.dtype == np.float32
    assert (np.argwhere(matrix > 0) == np.column_stack([i, j])).all()
    assert (matrix[i, j] == cosines).all()


def test_many_pairs_have_the_same_cosines_as_few():
    random = np.random.default_rng(3)
    center = directions(random, 1, 48)
    _, sketches = encoded(Cosine("v"), turned(random, np.repeat(center, 40, axis=0), 0.99))
    measure = Cosine("v", 0.9)
    i, j, cosines = measure.pairs(sketches, sketches)
    assert len(i) == 1600
    assert (cosines == measure.similarity(sketches[i], sketches[j])).all()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch_finds_the_same_pairs(device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    random = np.random.default_rng(5)
    some = directions(random, 100, 96)
    _, sketches = encoded(Cosine("v"), np.concatenate([some, turned(random, some, 0.951), turned(random, some, 0.9495)]))
    measure = Cosine("v", 0.95)
    for here, there in zip(measure.pairs(sketches, sketches), measure.pairs(sketches, sketches, device), strict=True):
        assert np.array_equal(here, there)


# -- keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.7, 0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("width", [2, 64, 384])
def test_pairs_at_the_threshold_share_a_key(threshold, width):
    random = np.random.default_rng(11)
    some = directions(random, 600, width)
    _, a = encoded(Cosine("v"), some)
    _, b = encoded(Cosine("v"), turned(random, some, threshold))
    measures = [Cosine("v", threshold, seed=n) for n in range(100 if width == 2 else 12)]
    keys = [measure.keys(None, a) for measure in measures]
    assert np.mean([_meet(*one, b) for one in zip(measures, keys, strict=True)]) >= 0.985  # 0.99 over all planes
    if width == 384:
        _, far = encoded(Cosine("v"), directions(random, 600, width))
        assert np.mean([_meet(*one, far) for one in zip(measures, keys, strict=True)]) < 0.5


def _meet(measure, keys, others):
    return (keys == measure.keys(None, others)).any(axis=1).mean()


def test_bits_and_bands_reach_the_recall_with_few_keys():
    for threshold in (0.3, 0.5, 0.8, 0.95, 0.999, 1.0):
        bits, bands = bits_and_bands(threshold)
        one_side = 1 - math.acos(threshold) / math.pi
        assert 1 - (1 - one_side**bits) ** bands >= 0.99
        assert bands <= 32
    assert bits_and_bands(1.0) == (32, 1)


def test_keys_do_not_depend_on_the_batch_and_differ_by_band():
    _, sketches = encoded(Cosine("v"), directions(np.random.default_rng(1), 300, 50))
    keys = Cosine("v").keys(None, sketches)
    assert keys.dtype == np.uint64
    for n in (0, 17, 299):
        assert (Cosine("v").keys(None, sketches[n:n + 1]) == keys[n]).all()
    assert len(np.unique(keys[0])) == keys.shape[1]
    assert (Cosine("v", seed=2).keys(None, sketches) != keys).mean() > 0.99


def test_without_planes_there_is_one_key_for_all():
    _, sketches = encoded(Cosine("v"), np.eye(4))
    assert Cosine("v", planes=False).keys(None, sketches).tolist() == [[0]] * 4


@given(st.integers(2, 2000), st.integers(0, 2**32 - 1))
def test_products_on_the_grid_are_exact(width, seed):
    vectors = on_grid(directions(np.random.default_rng(seed), 6, width))
    exact = vectors.astype(np.int64) @ vectors.astype(np.int64).T
    assert np.abs(exact).max() < 2**24
    assert (vectors @ vectors.T == exact).all()
    assert np.abs(np.diag(exact) / GRID**2 - 1).max() < 0.05
