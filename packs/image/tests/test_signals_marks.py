"""Text, captions and tiled marks: drawn ones are found, textures are not taken for them."""

from __future__ import annotations

import numpy as np
import pytest
from curator_image.marks import find_lines
from curator_image.measures import measure
from curator_image.views import Views

from packs.image.tests.signal_images import as_jpeg, captioned, flat, noisy, page, texture, tiled


def score(image, name):
    return measure(image, [name])[name]


PAGES = [(1000, 800, 16), (720, 1280, 14), (720, 1280, 20), (800, 600, 24), (512, 512, 12)]
INKS = [((20, 20, 20), (255, 255, 255)), ((220, 220, 220), (30, 30, 40)), ((180, 0, 0), (255, 250, 220))]


@pytest.mark.parametrize(("height", "width", "size"), PAGES)
@pytest.mark.parametrize(("ink", "paper"), INKS)
def test_pages_of_text_are_mostly_text(height, width, size, ink, paper):
    assert score(page(height, width, size, ink, paper), "text_ratio") > 0.3


@pytest.mark.parametrize("seed", range(8))
def test_textures_have_hardly_any(seed):
    for image in (texture(seed=seed), noisy(texture(seed=seed), 8), noisy(flat(128), 60, seed)):
        assert score(image, "text_ratio") < 0.01


def test_each_line_of_text_has_its_box():
    image = captioned(texture(384, 512) // 2, lines=2)
    boxes = find_lines(Views(image).grey)
    assert len(boxes) == 2
    assert (boxes[:, 1] > 300).all()
    assert (boxes[:, 2] > 200).all()


@pytest.mark.parametrize("at_top", [True, False])
def test_captions_are_text_at_the_edge(at_top):
    image = captioned(texture() // 2, at_top=at_top)
    assert score(image, "edge_text_ratio") == score(image, "text_ratio") > 0.03


def test_text_in_the_middle_is_not_at_the_edge():
    image = texture(600, 512) // 2
    image[200:400] = captioned(image[200:400])
    assert score(image, "text_ratio") > 0.02
    assert score(image, "edge_text_ratio") == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("angle", [0, 30, 45])
def test_a_tiled_mark_repeats(seed, angle):
    image = noisy(texture(seed=seed), 4, seed)
    assert score(image, "tiling") < 0.002
    assert score(tiled(image, 0.25, angle=angle), "tiling") > 0.004


def test_a_fainter_mark_repeats_less():
    image = noisy(texture(), 4)
    scores = [score(tiled(image, opacity), "tiling") for opacity in (0, 0.08, 0.2, 0.4)]
    assert scores == sorted(scores)


def test_one_mark_does_not_repeat():
    """Said in the documentation: it is not found."""
    image = noisy(texture(), 4)
    assert score(tiled(image, 0.5, across=2000, down=2000), "tiling") < 0.003


def test_straight_lines_and_boxes_are_no_tiles():
    image = noisy(texture(), 4)
    image[:, 100:103] = 255
    image[200:204] = 0
    image[np.arange(384), np.arange(384)] = 255
    assert score(image, "tiling") < 0.003
    boxes = flat(120)
    boxes[100:200, 100:300] = 200
    boxes[220:300, 80:330] = 40
    assert score(boxes, "tiling") < 0.002


def test_compressed_blocks_are_no_tiles():
    assert score(as_jpeg(noisy(texture(256, 256), 4), 15), "tiling") < 0.003


def test_a_row_of_equal_things_is_no_tiling():
    """Piano keys, a balustrade, lights: repeated along one axis."""
    image = noisy(texture(), 4)
    for left in range(10, 500, 30):
        image[150:190, left:left + 12] = 230
        image[160:170, left + 4:left + 8] = 20
    assert score(image, "tiling") < 0.003
    assert score(np.ascontiguousarray(np.rot90(image)), "tiling") < 0.003


def test_fences_and_blinds_are_no_tiles():
    image = noisy(texture(), 4)
    image[:, ::32] = 230
    assert score(image, "tiling") < 0.003
    image[::32] = 20
    assert score(np.ascontiguousarray(image[:, 1::2][:, :200]), "tiling") < 0.003


def test_bars_and_blocks_of_stripes_are_no_lines_of_text():
    rules = flat(255)
    rules[20:360:24] = 0  # a ruled page: one pixel high
    blocks = flat(255)
    blocks[160:220, 40:480:6] = 0  # higher than a line
    assert score(rules, "text_ratio") == score(blocks, "text_ratio") == 0
