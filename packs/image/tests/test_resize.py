"""Resizing: bit for bit what the image processors of transformers do before they normalise."""

from __future__ import annotations

import numpy as np
import pytest
from curator_image.resize import FILTERS, Resize, resize, target
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images


def noise(width, height, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def clip():
    processors = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    return processors.CLIPImageProcessorPil(do_rescale=False, do_normalize=False)


def test_the_stage_keeps_its_contract():
    data = images(noise(50, 40), None, noise(10, 90), noise(24, 24))
    check_stage(Resize(size=24), data)
    check_stage(Resize(size=24, crop="center"), data)
    check_stage(Resize(size=[20, 30]), data)
    check_stage(Resize(size=[20, 30], crop="center", resample="area"), data)


SHAPES = [(500, 375), (375, 500), (224, 224), (225, 224), (223, 300), (640, 480), (100, 80), (1000, 230), (301, 299), (226, 447)]


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_clip_does(clip, shape):
    pixels = noise(*shape)
    expected = clip(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    out = run_stage(Resize(size=224, crop="center"), images(pixels, width=[7]))["out"]
    assert out.pixels[0].dtype == np.uint8
    assert out.pixels[0].flags.c_contiguous
    assert (out.pixels[0] == expected).all()
    assert out.column("width") == [7], "that of the image"


@given(st.integers(20, 130), st.integers(20, 130), st.integers(8, 60), st.sampled_from(["bilinear", "bicubic", "lanczos"]))
@settings(max_examples=40)
def test_it_is_what_clip_does_at_any_size(clip, width, height, size, resample):
    pixels = noise(width, height)
    settings_of_it = {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size},
                      "resample": Image.Resampling[FILTERS[resample]]}
    expected = clip(Image.fromarray(pixels), return_tensors="np", **settings_of_it)["pixel_values"][0].transpose(1, 2, 0)
    assert (resize(pixels, size, "center", resample) == expected).all()


def test_it_is_what_siglip_does():
    processors = pytest.importorskip("transformers.models.siglip.image_processing_pil_siglip")
    siglip = processors.SiglipImageProcessorPil(do_rescale=False, do_normalize=False, size={"height": 64, "width": 48})
    pixels = noise(150, 110)
    resample = {int(Image.Resampling[pillow]): ours for ours, pillow in FILTERS.items()}[int(siglip.resample)]
    expected = siglip(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    assert (resize(pixels, (64, 48), None, resample) == expected).all()


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 512), st.integers(1, 512))
def test_targets(width, height, first, second):
    rows, columns = target((height, width), first, None)
    assert min(rows, columns) == first
    assert (rows <= columns) == (height <= width) or rows == columns
    assert target((height, width), (first, second), None) == (first, second)
    rows, columns = target((height, width), (first, second), "center")
    assert rows >= first
    assert columns >= second
    assert rows == first or columns == second


def test_a_crop_with_two_numbers_keeps_proportions():
    pixels = np.zeros((100, 300, 3), np.uint8)
    pixels[:, 100:200] = 200  # a square in the middle
    cut = resize(pixels, (50, 100), "center", "area")
    assert cut.shape == (50, 100, 3)
    assert (cut[:, 25:75] == 200).all()
    assert (cut[:, :25] == 0).all()
    assert (cut[:, 75:] == 0).all()


def test_a_line_that_would_become_gigabytes_fails():
    outputs = run_stage(Resize(size=224, crop="center"), images(noise(1, 60_000), noise(9, 9), None))
    assert outputs["failed"].column("error") == ["too narrow: 1 x 60000 would become 224 x 13,440,000 pixels"]
    assert outputs["out"].column("id") == ["1", "2"]
    assert outputs["out"].pixels[1] is None


@pytest.mark.parametrize(("wrong", "message"), [({"size": 0}, "size must be 1"), ({"size": [1, 2, 3]}, "size is one number"),
                                                ({"size": [5]}, "size is one number"), ({"size": 5, "crop": "left"}, "crop is"),
                                                ({"size": 5, "resample": "nearest"}, "resample is one of")])
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Resize(**wrong)
