"""What measures promise: estimates near the truth, and keys under which similar records meet."""

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.near.measures import RECALL, Hamming, MinHash, meet, mix
from hypothesis import given
from hypothesis import strategies as st

from curator import Batch, RecipeError


def batch(values, kind=None, name="f"):
    values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, kind)
    return Batch(pa.table({"id": [str(i) for i in range(len(values))], "source": ["s"] * len(values), name: values}))


def minhashes(sets, count, seed=0):
    """Signatures of sets of integers with `count` independent hash functions, uint32 [n, count]."""
    functions = mix(np.arange(count, dtype=np.uint64) + np.uint64(1000 * (seed + 1)))
    hashed = (mix(mix(np.array(list(s), np.uint64))[:, None] ^ functions) >> np.uint64(32) for s in sets)
    return np.array([h.min(axis=0) for h in hashed], dtype=np.uint32)


def overlapping(similarity, size, rng):
    """Two random sets of `size` members with about this Jaccard similarity; and that similarity."""
    common = round(2 * size * similarity / (1 + similarity))
    members = rng.choice(1 << 40, 2 * size - common, replace=False)
    return members[:size], members[size - common:], common / (2 * size - common)


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_the_estimate_is_without_bias_and_as_exact_as_it_says(similarity):
    rng, count = np.random.default_rng(7), 112
    pairs = [overlapping(similarity, 200, rng) for _ in range(400)]
    measure, errors = MinHash(column="f"), []
    for at, (a, b, true) in enumerate(pairs):
        signatures = minhashes([a, b], count, seed=at)
        _, sketches = measure.encode(batch(pa.array(list(signatures), pa.list_(pa.uint32()))))
        errors.append(measure.similarity(sketches[:1], sketches[1:])[0] - true)
    expected = np.sqrt(similarity * (1 - similarity) / count + (1 - similarity) / 256 / count)
    assert abs(np.mean(errors)) <= 4 * expected / np.sqrt(len(errors)) + 1e-6
    assert np.std(errors) <= 1.15 * expected + 1e-6


@pytest.mark.parametrize(("threshold", "values", "shape"), [(0.8, 112, (18, 6)), (0.8, 128, (21, 6)), (0.8, 256, (32, 8)),
                                                            (0.5, 128, (42, 3))])
def test_bands_are_as_narrow_as_recall_allows(threshold, values, shape):
    bands, rows = MinHash(column="f", threshold=threshold).shape(values)
    assert (bands, rows) == shape
    assert meet(threshold, bands, rows) >= RECALL > meet(threshold, values // (rows + 1), rows + 1)


def test_bands_and_rows_can_be_asked_for():
    assert MinHash(column="f", bands=14, rows=8).shape(112) == (14, 8)
    assert MinHash(column="f", rows=8).shape(100) == (12, 8)
    bands, rows = MinHash(column="f", bands=10).shape(112)
    assert bands == 10
    assert meet(0.8, 10, rows) >= RECALL > meet(0.8, 10, rows + 1)


SIGNATURES = st.integers(1, 12).flatmap(lambda k: st.lists(
    st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=k, max_size=k)), min_size=1, max_size=12))


@given(SIGNATURES, st.integers(1, 3))
def test_records_share_a_key_just_where_a_band_is_equal(signatures, rows):
    width = max((len(s) for s in signatures if s), default=0)
    rows = min(rows, max(width, 1))
    measure, data = MinHash(column="f", rows=rows), batch(signatures, pa.list_(pa.uint32()))
    present, sketches = measure.encode(data)
    assert present.tolist() == [s is not None for s in signatures]
    keys = measure.keys(data, sketches)
    for i in np.flatnonzero(present):
        for j in np.flatnonzero(present):
            equal = [signatures[i][at:at + rows] == signatures[j][at:at + rows] for at in range(0, width - rows + 1, rows)]
            assert (keys[i] == keys[j]).tolist() == equal
            assert not set(keys[i].tolist()) & set(np.delete(keys[j], np.flatnonzero(equal)).tolist())


@pytest.mark.parametrize("kind", [pa.list_(pa.uint32()), pa.large_list(pa.uint32()), pa.list_(pa.uint32(), 4)])
def test_signatures_come_as_any_list(kind):
    data = batch([[9, 9, 9, 9], None, [1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4]], kind)
    data = Batch(pa.concat_tables([data.rows.slice(2), data.rows.slice(0, 2)]).slice(1))  # chunks with offsets
    measure = MinHash(column="f", rows=2, bands=2)
    measure.check({"f": kind})
    present, sketches = measure.encode(data)
    assert present.tolist() == [True, True, True, False]
    assert measure.similarity(sketches[:2], sketches[[1, 1]]).tolist() == pytest.approx([(3 / 4 - 1 / 256) / (255 / 256), 1])
    keys = measure.keys(data, sketches)
    assert (keys[0] == keys[1]).tolist() == [True, False]


def test_empty_signatures_and_columns_without_a_type_have_nothing_to_compare():
    for values in (pa.array([[], None], pa.list_(pa.uint32())), pa.nulls(2), pa.array([], pa.list_(pa.uint32()))):
        for measure in (MinHash(column="f"), Hamming(column="f", distance=3)):
            if isinstance(measure, Hamming) and not pa.types.is_null(values.type):
                continue
            present, sketches = measure.encode(batch(values))
            assert not present.any()
            assert len(sketches) == len(measure.keys(batch(values), sketches)) == len(values)


@pytest.mark.parametrize("values", [[[1, 2], [1, 2, 3]], [[1, None]]])
def test_broken_signatures_are_named(values):
    with pytest.raises(ValueError, match="column 'f' has"):
        MinHash(column="f").encode(batch(values, pa.list_(pa.uint32())))


# -- bits -----------------------------------------------------------------------------------------------------

HASHES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=10)


@given(HASHES)
def test_a_hash_is_compared_alike_whatever_type_it_has(hashes):
    measure = Hamming(column="f", distance=4)
    as_bytes = [h.to_bytes(8, "big") for h in hashes]
    columns = [pa.array(hashes, pa.uint64()), pa.array(np.array(hashes, np.uint64).astype(np.int64)), pa.array(as_bytes),
               pa.array(as_bytes, pa.binary(8)), pa.array([h.hex() for h in as_bytes]),
               pa.array([h.hex().upper() for h in as_bytes], pa.large_string()),
               pa.chunked_array([pa.array(as_bytes)]).dictionary_encode()]
    encoded = [measure.encode(batch(column))[1] for column in columns]
    for other in encoded[1:]:
        assert np.array_equal(encoded[0], other)
    expected = [1 - (a ^ b).bit_count() / 64 for a, b in zip(hashes, reversed(hashes), strict=True)]
    assert measure.similarity(encoded[0], encoded[0][::-1]).tolist() == expected


@given(st.sampled_from([(0, 8), (1, 4), (4, 8), (9, 16), (0, 32)]), st.binary(min_size=32, max_size=32), st.randoms())
def test_hashes_within_the_distance_always_meet_in_blocks(case, value, random):
    distance, width = case
    flipped = np.unpackbits(np.frombuffer(value[:width], np.uint8))
    flipped[random.sample(range(8 * width), distance)] ^= 1
    data = batch([value[:width], np.packbits(flipped).tobytes()])
    measure = Hamming(column="f", distance=distance)
    _, sketches = measure.encode(data)
    keys = measure.keys(data, sketches)
    assert keys.shape == (2, distance + 1)
    assert (keys[0] == keys[1]).any()
    assert measure.similarity(sketches[:1], sketches[1:])[0] >= np.float32(measure.least(width))


@pytest.mark.parametrize(("bits", "distance"), [(64, 5), (64, 8), (64, 12), (256, 30)])
def test_samples_of_bits_find_nearly_all(bits, distance):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, (3000, bits), dtype=np.uint8)
    b = a.copy()
    for row in b:
        row[rng.choice(bits, distance, replace=False)] ^= 1
    measure = Hamming(column="f", distance=distance)
    keys = [measure.keys(batch([]), np.packbits(some, axis=1)) for some in (a, b)]
    assert (keys[0] == keys[1]).any(axis=1).mean() >= RECALL - 0.01


@pytest.mark.parametrize(("values", "told"), [([b"ab", b"abc"], "different widths, such as 2 and 3"), (["abc"], "whole bytes"),
                                              (["zz"], "'zz' is no hexadecimal")])
def test_broken_hashes_are_named(values, told):
    with pytest.raises(ValueError, match=told):
        Hamming(column="f", distance=3).encode(batch(values))


def test_an_empty_or_missing_hash_has_nothing_to_compare():
    present, sketches = Hamming(column="f", distance=3).encode(batch([b"", None, b"ab"]))
    assert present.tolist() == [False, False, True]
    assert sketches.tolist() == [[0, 0], [0, 0], list(b"ab")]


LISTS = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 2**64 - 1)), max_size=4)), max_size=8)


@given(LISTS, st.integers(0, 3), st.integers(0, 2))
def test_lists_are_as_similar_as_their_nearest_hashes(lists, more, cut):
    measure, column = Hamming(column="f", distance=4, hashes=4 + more), pa.array(lists, pa.list_(pa.uint64()))
    data = batch(pa.chunked_array([column[:cut], column[cut:]]))
    present, sketches = measure.encode(data)
    hashes = [[h for h in some or () if h is not None] for some in lists]
    assert present.tolist() == [bool(some) for some in hashes]
    rows = np.flatnonzero(present)
    a, b = (at.ravel() for at in np.meshgrid(rows, rows))
    expected = [1 - min((x ^ y).bit_count() for x in hashes[i] for y in hashes[j]) / 64 for i, j in zip(a, b, strict=True)]
    assert measure.similarity(sketches[a], sketches[b]).tolist() == expected
    if len(rows):
        assert measure.least(sketches.shape[1]) == 1 - 4 / 64


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 3),
       st.sets(st.integers(0, 63), max_size=4))
def test_lists_meet_where_any_of_their_hashes_do(hashes, at, place, bits):
    copy = (int.from_bytes(hashes[at % len(hashes)]) ^ sum(1 << bit for bit in bits)).to_bytes(8)
    other = [bytes([value]) * 8 for value in (3, 5, 9)]
    measure, data = Hamming(column="f", distance=4, hashes=4), batch([hashes, [*other[:place], copy]], pa.list_(pa.binary(8)))
    keys = measure.keys(data, measure.encode(data)[1])
    assert keys.shape == (2, 4 * 5)
    assert set(keys[0].tolist()) & set(keys[1].tolist())


@pytest.mark.parametrize("kind", [pa.list_(pa.binary(8)), pa.large_list(pa.binary()), pa.list_(pa.binary(8), 2)])
def test_hashes_come_in_any_lists(kind):
    data, measure = batch([[b"a" * 8, b"b" * 8], None, [b"b" * 8, None]], kind), Hamming(column="f", distance=4, hashes=2)
    measure.check({"f": kind})
    present, sketches = measure.encode(data)
    assert present.tolist() == [True, False, True]
    assert sketches.tolist() == [list(b"a" * 8 + b"b" * 8), [0] * 16, list(b"b" * 16)]


def test_a_list_of_one_hash_is_the_hash():
    hashes = [b"a" * 8, None, b"b" * 8]
    alone, listed = batch(hashes), batch([[h] for h in hashes], pa.list_(pa.binary(8)))
    measure = Hamming(column="f", distance=4)
    for one, other in zip(measure.encode(alone), measure.encode(listed), strict=True):
        assert np.array_equal(one, other)


def test_more_hashes_than_were_said_are_told():
    with pytest.raises(ValueError, match="has 3 hashes in a record, and hashes is 2"):
        Hamming(column="f", distance=3, hashes=2).encode(batch([[1, 2, 3]], pa.list_(pa.uint64())))


@pytest.mark.parametrize(("measure", "kind", "told"), [
    (MinHash(), pa.string(), "column 'minhash' is string; MinHash signatures are lists of uint32"),
    (MinHash(), pa.list_(pa.float32()), "is list<.*float>; MinHash"),
    (MinHash(bands=20, rows=10), pa.list_(pa.uint32(), 112), "112 values, too few for 20 bands of 10"),
    (MinHash(rows=200), pa.list_(pa.uint32(), 112), "112 values, too few for 1 bands of 200"),
    (Hamming("minhash", 3), pa.float32(), "column 'minhash' is float; hashes are binary"),
    (Hamming("minhash", 64), pa.uint64(), "any two are within 64 bits"),
    (Hamming("minhash", 30), pa.binary(8), "keys a record would be needed, and 512 is the most"),
    (Hamming("minhash", 10, 8), pa.list_(pa.binary(8)), "smaller distance or fewer hashes"),
    (Hamming("minhash", 3), pa.list_(pa.binary(8)), "set hashes to the most that a record has, such as 8, not 1"),
    (Hamming("minhash", 3, 4), pa.list_(pa.binary(8), 8), "set hashes to the most"),
    (Hamming("minhash", 3, 4), pa.list_(pa.float32()), "hashes are binary")])
def test_columns_that_will_not_do_are_refused(measure, kind, told):
    with pytest.raises(RecipeError, match=told):
        measure.check({"minhash": kind})
    measure.check({"minhash": None})


@pytest.mark.parametrize("make", [lambda: MinHash(threshold=0), lambda: MinHash(threshold=1.1), lambda: MinHash(bands=0),
                                  lambda: MinHash(rows=0), lambda: Hamming("f", -1), lambda: Hamming("f", 1, 0)])
def test_nonsense_is_refused(make):
    with pytest.raises(RecipeError):
        make()
