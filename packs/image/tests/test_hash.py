"""Perceptual hashes: those of their definitions, near for copies, far for others, and none where there is nothing to see."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_dedup import DedupNear
from curator_image import hashes
from curator_image.hash import Hash
from hypothesis import given
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.image.tests import image_batches

KINDS = ["phash", "dhash", "pdq"]


def waves(height, width, seed=0):
    """A picture of twenty waves, grey: smooth, as much structure as a photograph, and like no other seed's."""
    rng = np.random.Generator(np.random.PCG64(seed))
    y, x = np.mgrid[0:height, 0:width] / np.array([height, width])[:, None, None]
    parts = rng.uniform([-1, -4, -4, 0], [1, 4, 4, 6.3], (20, 4))
    total = sum(a * np.cos(2 * np.pi * (u * x + v * y) + p) for a, u, v, p in parts)
    return np.clip(128 + 30 * total, 0, 255).astype(np.uint8)


def colored(grey):
    return np.stack([grey] * 3, axis=-1)


def jpeg(grey, quality):
    return cv2.imdecode(cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_GRAYSCALE)


def made(kind, grey, variants="none"):
    found = getattr(hashes, kind)(grey, variants)
    return found[0] if kind == "pdq" else found


def bits_apart(a, b):
    return np.bitwise_count(a[:, None] ^ b[None]).sum(axis=2)


# -- the definitions ------------------------------------------------------------------------------------------


def cosine_transform(square):
    """The discrete cosine transform by its sum, without scaling."""
    size = len(square)
    waves = np.cos(np.pi / size * np.outer(np.arange(size), np.arange(size) + 0.5))
    return waves @ square.astype(np.float64) @ waves.T


@pytest.mark.parametrize("seed", range(5))
def test_phash_is_that_of_its_definition(seed):
    low = cosine_transform(waves(32, 32, seed))[:8, :8]
    assert made("phash", waves(32, 32, seed)).tobytes() == np.packbits(low > np.median(low)).tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_dhash_is_that_of_its_definition(seed):
    grey = waves(8, 9, seed)
    assert made("dhash", grey).tobytes() == np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes()


@pytest.mark.parametrize(("shape", "seed", "kind", "expected"), [
    ((32, 32), 1, "phash", "8bc87b568768e82b"), ((200, 300), 3, "phash", "ba6ce0e548f8a556"),  # imagehash 4.3.2
    ((480, 640), 4, "phash", "88de04cf6960bb75"), ((8, 9), 2, "dhash", "762b2793cd4fcb25"),
    ((64, 64), 5, "pdq", "412d5297552cb516a52c2b16522d5297152daf97afcd6b79ff92005b0076afa5"),  # pdqhash 0.2.8, Facebook's code
    ((200, 300), 3, "pdq", "ccc16fad33e333278ec14dad3ee137b5aae1efb555d2000faac9007355032a1b"),
    ((480, 640), 4, "pdq", "007fffc0006fe0c01d6f00d6fd6f02c4f56f07d7406eaa875fcb0079ab90f43d")])
def test_other_implementations_give_the_same(shape, seed, kind, expected):
    assert bits_apart(made(kind, waves(*shape, seed)), np.frombuffer(bytes.fromhex(expected), np.uint8)[None]) <= 2


def test_quality_of_pdq_counts_gradients():
    """One step of 255 grey levels in each of 64 rows: 64 times 100, by 90."""
    split = np.zeros((64, 64), np.uint8)
    split[:, 32:] = 255
    assert hashes.pdq(split)[1] == 71
    assert hashes.pdq(np.full((64, 64), 9, np.uint8))[1] == 0
    assert hashes.pdq(waves(64, 64))[1] == 100


# -- copies and others ----------------------------------------------------------------------------------------

COPIES = {
    "halved": lambda g: cv2.resize(g, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
    "squashed": lambda g: cv2.resize(g, (200, 200), interpolation=cv2.INTER_AREA),
    "jpeg": lambda g: jpeg(g, 30),
    "darker": lambda g: (g * 0.9).astype(np.uint8),
}
NEAR = {"phash": 6, "dhash": 6, "pdq": 40}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copy", COPIES)
def test_copies_are_near(kind, copy):
    for seed in range(8):
        grey = waves(300, 400, seed)
        assert bits_apart(made(kind, grey), made(kind, COPIES[copy](grey))) <= NEAR[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_others_are_far(kind):
    found = np.concatenate([made(kind, waves(90, 120, seed)) for seed in range(30)])
    assert bits_apart(found, found)[~np.eye(30, dtype=bool)].min() >= 2 * NEAR[kind]


def ways(grey):
    """As it is, mirrored, upside down, both; and these of the picture with rows and columns swapped."""
    return [view for one in (grey, grey.T) for upright in (one, one[::-1]) for view in (upright, upright[:, ::-1])]


@given(st.sampled_from(KINDS), st.integers(0, 10_000), st.integers(64, 200), st.integers(64, 200))
def test_views_are_the_hashes_of_turned_and_mirrored_pictures(kind, seed, height, width):
    # Other sizes are not shrunk alike for pdq when mirrored: a filter of an even width has no middle.
    grey = waves(64, 64, seed) if kind == "pdq" else waves(height, width, seed)
    views = made(kind, grey, "all")
    assert np.array_equal(made(kind, grey), views[:1])
    assert np.array_equal(made(kind, grey, "flips"), views[:2])
    for view, turned in zip(views, ways(grey), strict=True):
        assert bits_apart(view[None], made(kind, np.ascontiguousarray(turned))) <= 2


# -- nothing to see -------------------------------------------------------------------------------------------


def noisy(grey, amount):
    noise = np.random.Generator(np.random.PCG64(1)).normal(0, amount, grey.shape)
    return np.clip(grey + noise, 0, 255).astype(np.uint8)


def split(height=240, width=320):
    grey = np.zeros((height, width), np.uint8)
    grey[:, width // 2:] = 255
    return grey


BLANK = {
    "white": np.full((240, 320), 255, np.uint8), "grey": np.full((240, 320), 100, np.uint8), "pixel": np.zeros((1, 1), np.uint8),
    "noisy": noisy(np.full((240, 320), 100.0), 5), "dark": jpeg(noisy(np.full((240, 320), 4.0), 3), 75),
    "gradient": np.tile(np.linspace(0, 255, 320), (240, 1)).astype(np.uint8),
    "noisy gradient": noisy(np.tile(np.linspace(20, 230, 320), (240, 1)), 5), "half": split(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BLANK)
@pytest.mark.parametrize("variants", ["none", "all"])
def test_pictures_without_structure_have_no_hash(kind, name, variants):
    assert made(kind, BLANK[name], variants) is None


def test_a_page_of_text_has_structure():
    page = np.full((480, 640), 255, np.uint8)
    for y in range(30, 460, 20):
        cv2.putText(page, "the quick brown fox jumps over the lazy dog", (30, y), cv2.FONT_HERSHEY_SIMPLEX, 0.5, 0, 1)
    assert made("phash", page) is not None
    assert made("pdq", page) is not None


# -- the stage ------------------------------------------------------------------------------------------------


def batch(*images):
    return image_batches.images(*(None if image is None else colored(image) for image in images))


def test_columns_and_their_types():
    found = run_stage(Hash(kinds=KINDS), batch(waves(90, 120), None, BLANK["white"]))["out"]
    expected = {"phash": pa.binary(8), "dhash": pa.binary(8), "pdq": pa.binary(32), "pdq_quality": pa.int32()}
    assert {name: found.rows.schema.field(name).type for name in expected} == expected
    assert [h.hex() for h in found.column("phash")[:1]] == [made("phash", waves(90, 120)).tobytes().hex()]
    for kind in KINDS:
        assert [value is None for value in found.column(kind)] == [False, True, True]
    assert found.column("pdq_quality") == [100, None, 0]


@pytest.mark.parametrize(("variants", "views"), [("flips", 2), ("all", 8)])
def test_variants_are_lists(variants, views):
    found = run_stage(Hash(variants=variants), batch(waves(90, 120), None))["out"]
    assert found.rows.schema.field("phash").type == pa.list_(pa.binary(8))
    hashed, none = found.column("phash")
    assert none is None
    assert hashed == [view.tobytes() for view in made("phash", waves(90, 120), variants)]


def test_colors_count_as_luma():
    rng = np.random.Generator(np.random.PCG64(2))
    pixels = np.stack([waves(90, 120, seed) for seed in rng.integers(0, 100, 3)], axis=-1)
    pixels.flags.writeable = False  # as the engine hands it over
    expected = pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(hashes.grey(pixels) - expected).max() <= 1


def test_pictures_of_any_size_are_hashed():
    sizes = [(1, 1), (1, 500), (500, 1), (2, 3), (7, 9), (33, 31), (64, 64), (1500, 40), (1100, 1300)]
    found = run_stage(Hash(kinds=KINDS, variants="all"), batch(*(waves(*size, 1) for size in sizes)))["out"]
    for kind in KINDS:
        assert all(hashed is None or len(hashed) == 8 for hashed in found.column(kind))
        assert found.column(kind)[-1] is not None


@pytest.mark.parametrize("variants", ["none", "flips", "all"])
def test_the_stage_keeps_the_rules(variants):
    check_stage(Hash(kinds=KINDS, variants=variants), batch(waves(90, 120), None, BLANK["white"], waves(64, 64, 3)))


@pytest.mark.parametrize(("variants", "alike"), [("none", {"1"}), ("flips", {"1", "2"}), ("all", {"1", "2", "3"})])
def test_copies_are_found_by_their_hashes(variants, alike):
    grey = waves(240, 320, 7)
    views = [grey, COPIES["halved"](grey), grey[:, ::-1], np.rot90(grey)]
    pictures = batch(*map(np.ascontiguousarray, views), waves(240, 320, 8), BLANK["white"], BLANK["noisy"], BLANK["white"])
    hashed = run_stage(Hash(variants=variants), pictures)["out"]
    near = run_stage(DedupNear(column="phash", distance=6, hashes=hashes.VIEWS[variants]), hashed)
    assert set(near["duplicate"].column("id")) == alike
    assert set(near["duplicate"].column("duplicate_of")) == {"0"}


@pytest.mark.parametrize("parameters", [{"kinds": []}, {"kinds": ["ahash"]}, {"kinds": ["phash", "phash"]}, {"variants": "some"}])
def test_nonsense_is_refused(parameters):
    with pytest.raises(ValueError, match="got"):
        Hash(**parameters)
