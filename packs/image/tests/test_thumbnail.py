"""Thumbnails: small, of the right proportions, and null where there is nothing to show."""

from __future__ import annotations

import io

import numpy as np
import pytest
from curator_image.pixels import within
from curator_image.thumbnail import Thumbnail
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images


def halves(width, height):
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, width // 2:, 0] = 250
    return pixels


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_the_stage_keeps_its_contract(kind):
    check_stage(Thumbnail(format=kind, size=32), images(halves(100, 60), None, halves(10, 10), halves(60, 100)))


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_a_thumbnail_shows_the_image(kind):
    out = run_stage(Thumbnail(format=kind), images(halves(1000, 500), None, halves(40, 30)))["out"]
    first, nothing, small = out.column("thumbnail")
    assert nothing is None
    shown = Image.open(io.BytesIO(first))
    assert (shown.format.lower(), shown.size) == (kind, (256, 128))
    colours = np.asarray(shown.convert("RGB"))
    assert colours[:, :100].max() < 30
    assert colours[:, 150:, 0].min() > 220
    assert Image.open(io.BytesIO(small)).size == (40, 30)
    assert out.pixels[0].shape == (500, 1000, 3)


def test_other_columns_and_qualities():
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    low, high = (run_stage(Thumbnail(quality=q, column="small"), images(noise))["out"].column("small")[0] for q in (10, 95))
    assert len(low) < len(high)


@given(st.integers(1, 100_000), st.integers(1, 100_000), st.integers(1, 4096))
def test_the_longer_side_has_the_size_at_most(width, height, size):
    found = within((width, height), size)
    assert max(found) == min(size, max(width, height))
    assert min(found) >= 1
    assert abs(found[0] * height - found[1] * width) <= max(width, height) * 1.01


@pytest.mark.parametrize(("wrong", "message"), [({"format": "png"}, "format is one of"),
                                                ({"quality": 101}, "quality is 1 to 100"),
                                                ({"size": 0}, "size is 1 to 4096")])
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Thumbnail(**wrong)
