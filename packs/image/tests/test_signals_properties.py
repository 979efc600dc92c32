"""What must hold of the scores, whatever the picture: how they answer to light, blur, noise, compression, borders, mirrors."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from curator_image.borders import find_borders
from curator_image.measures import measure
from curator_image.signals import OF_PIXELS
from curator_image.views import Views
from hypothesis import given, settings
from hypothesis import strategies as st

from packs.image.tests.signal_images import as_jpeg, blurred, flat, framed, noisy, page, texture

SEEDS = st.integers(0, 10_000)
SIDES = st.integers(130, 420)


def score(image, name):
    return measure(image, [name])[name]


@given(SEEDS, SIDES, SIDES, st.sampled_from([np.fliplr, np.flipud, np.rot90]))
@settings(max_examples=40)
def test_a_mirrored_or_turned_image_has_the_same_scores(seed, height, width, turn):
    image = texture(height, width, seed)
    turned = np.ascontiguousarray(turn(image))
    names = [name for name in OF_PIXELS if turn is not np.rot90 or name not in ("text_ratio", "edge_text_ratio")]
    before, after = measure(image, names), measure(turned, names)
    for name in names:
        rounding = 5e-4 if name == "tiling" else 2e-5  # of the scaling: where nothing repeats, the highest peak is chance
        assert after[name] == pytest.approx(before[name], rel=2e-3, abs=rounding), name


@pytest.mark.parametrize("turn", [np.fliplr, np.flipud])
def test_a_mirrored_page_has_as_much_text(turn):
    image = page()
    assert score(np.ascontiguousarray(turn(image)), "text_ratio") == pytest.approx(score(image, "text_ratio"), rel=0.02)


@given(SEEDS, st.floats(0.2, 0.95))
@settings(max_examples=30)
def test_a_darker_image_is_less_bright(seed, factor):
    image = texture(200, 260, seed)
    darker = (image * factor).astype(np.uint8)
    assert score(darker, "brightness") < score(image, "brightness")
    assert score(darker, "dark_ratio") >= score(image, "dark_ratio")
    assert score(darker, "contrast") < score(image, "contrast")


@given(SEEDS, st.floats(0.5, 6))
@settings(max_examples=30)
def test_a_blurred_image_is_less_sharp(seed, sigma):
    image = texture(300, 400, seed)
    once = blurred(image, sigma)
    for name in ("sharpness", "sharpness_max"):
        assert score(once, name) < score(image, name)


@given(SEEDS, st.floats(1, 20), st.integers(60, 200))
@settings(max_examples=30)
def test_noise_is_recovered_from_a_flat_image(seed, sigma, level):
    assert score(noisy(flat(level, 200, 260), sigma, seed), "noise") == pytest.approx(sigma, rel=0.15)


@given(SEEDS, st.floats(3, 15))
@settings(max_examples=20)
def test_noise_is_recovered_from_a_textured_image_nearly(seed, sigma):
    image = texture(400, 500, seed).clip(60, 195)
    assert score(image, "noise") < 1.5
    assert score(noisy(image, sigma, seed), "noise") == pytest.approx(sigma, rel=0.2)


def test_texture_in_half_of_the_picture_is_no_noise():
    image = noisy(texture(512, 512), 2)
    image[:256] = np.random.default_rng(0).integers(0, 256, (256, 512, 1), dtype=np.uint8)
    assert score(image, "noise") == pytest.approx(2, rel=0.3)


@given(SEEDS)
@settings(max_examples=10)
def test_stronger_compression_leaves_stronger_blocks(seed):
    image = noisy(texture(384, 512, seed), 3, seed)
    scores = [score(as_jpeg(image, quality), "blockiness") for quality in (95, 60, 30, 15, 5)]
    assert scores == sorted(scores)
    assert score(image, "blockiness") < 0.05 < 0.3 < scores[-1]


@given(SEEDS, st.integers(1, 7), st.integers(1, 7))
@settings(max_examples=10)
def test_blocks_are_found_where_the_grid_was_cropped(seed, down, right):
    image = as_jpeg(noisy(texture(384, 512, seed), 3, seed), 10)
    assert score(image[down:, right:], "blockiness") == pytest.approx(score(image, "blockiness"), abs=0.03)


def test_one_line_in_the_picture_is_no_grid():
    image = texture(256, 256)
    image[:, 128:] //= 2
    assert score(image, "blockiness") < 0.05


@given(SEEDS, st.lists(st.integers(0, 90), min_size=4, max_size=4), st.sampled_from([0, 255, 128]))
def test_borders_are_found_to_the_pixel(seed, sides, colour):
    image = texture(260, 300, seed)
    image = np.where(np.abs(image.astype(int) - colour) < 40, (image.astype(int) + 90) % 256, image).astype(np.uint8)
    top, bottom, left, right = sides
    bordered = framed(image, *sides, colour)
    height, width = bordered.shape[:2]
    scale = min(1, 384 / min(height, width))
    found = np.array(find_borders(Views(bordered).grey)) / scale
    expected = [top, height - bottom, left, width - right]
    assert np.abs(found - expected).max() <= 1 / scale + 0.5


@given(SEEDS, st.integers(20, 90))
@settings(max_examples=20)
def test_noise_and_compression_do_not_hide_borders(seed, size):
    image = texture(300, 400, seed).clip(50, 255)
    bordered = as_jpeg(framed(image, size, size, 0, 0), 70)
    assert score(bordered, "border_ratio") == pytest.approx(2 * size / (300 + 2 * size), abs=0.01)


@given(SEEDS, SIDES, SIDES)
@settings(max_examples=30)
def test_a_picture_without_borders_has_none(seed, height, width):
    assert score(texture(height, width, seed), "border_ratio") < 0.02


def test_a_gradient_and_an_object_on_white_have_no_border():
    gradient = np.repeat(np.linspace(0, 255, 300).astype(np.uint8)[:, None], 400, axis=1)[..., None].repeat(3, axis=2)
    assert score(gradient, "border_ratio") == 0
    thing = flat(255, 300, 400)
    rows, columns = np.mgrid[:300, :400]
    inside = ((rows - 150) / 100) ** 2 + ((columns - 200) / 120) ** 2 < 1
    thing[inside] = texture(300, 400)[inside] // 2
    assert score(thing, "border_ratio") == 0
    assert score(thing, "blank_ratio") > 0.6


def test_a_wall_beside_a_thing_is_no_border():
    wall = np.repeat(np.linspace(110, 128, 300)[:, None, None], 400, axis=1).repeat(3, axis=2).astype(np.uint8)
    wall[:, 150:260] = texture(300, 110) // 3
    assert score(wall, "border_ratio") == 0
    wall[:, :150], wall[:, 260:] = 119, 119  # the same in one shade is a pillarbox
    assert score(wall, "border_ratio") == pytest.approx(290 / 400, abs=0.01)


def test_a_mount_in_a_frame_is_border_too():
    image = framed(framed(texture(240, 300).clip(60, 200), 30, 30, 30, 30, 255), 12, 12, 12, 12, 20)
    assert find_borders(Views(image).grey) == (42, 282, 42, 342)


def test_a_credit_on_a_border_does_not_end_it():
    bordered = framed(texture(300, 400).clip(60, 255), 0, 60, 0, 0)
    bordered[330:340, 20:50] = 255
    assert score(bordered, "border_ratio") == pytest.approx(60 / 360, abs=0.01)


def test_a_large_image_has_the_sharpness_of_its_smaller_copy():
    image = noisy(texture(768, 1024), 6)
    half = cv2.resize(image, (512, 384), interpolation=cv2.INTER_AREA)
    assert score(image, "sharpness") == pytest.approx(score(half, "sharpness"), rel=0.05)
