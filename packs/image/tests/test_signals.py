"""What each score is on small images, computed here in plain Python; what the stage does with nulls and odd shapes."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from curator_image.measures import MEASURES, measure
from curator_image.signals import COLUMNS, OF_PIXELS, Signals
from hypothesis import given
from hypothesis import strategies as st

from curator.api.stage import Context
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import sized

RNG = np.random.default_rng(1)
SMALL = RNG.integers(0, 256, (9, 13, 3), dtype=np.uint8)
EVEN = np.repeat(RNG.integers(0, 256, (48, 40, 1), dtype=np.uint8), 3, axis=2)


def luma(image):
    """ITU-R BT.601, rounded, as lists of rows."""
    return [[round(0.299 * int(r) + 0.587 * int(g) + 0.114 * int(b)) for r, g, b in row] for row in image]


def score(image, name, **kwargs):
    return measure(image, [name], **kwargs)[name]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def deviation(values):
    values = list(values)
    return math.sqrt(mean(v * v for v in values) - mean(values) ** 2)


def inner(grey, weights):
    """A 3 x 3 filter at every pixel that has all neighbours."""
    return [[sum(weights[dy][dx] * grey[y + dy - 1][x + dx - 1] for dy in range(3) for dx in range(3))
             for x in range(1, len(grey[0]) - 1)] for y in range(1, len(grey) - 1)]


def test_exposure():
    levels = [level for row in luma(SMALL) for level in row]
    assert score(SMALL, "brightness") == pytest.approx(mean(levels) / 255)
    assert score(SMALL, "contrast") == pytest.approx(deviation(levels) / 255)
    assert score(SMALL, "dark_ratio") == mean(level <= 5 for level in levels)
    assert score(SMALL, "bright_ratio") == mean(level >= 250 for level in levels)
    assert score(SMALL, "entropy") == pytest.approx(
        -sum(n / len(levels) * math.log2(n / len(levels)) for n in Counter(levels).values()))


def test_clipped_pixels_are_counted():
    image = np.array([[0, 5, 6, 100], [249, 250, 255, 100]], np.uint8)[..., None].repeat(3, axis=2)
    assert (score(image, "dark_ratio"), score(image, "bright_ratio")) == (2 / 8, 2 / 8)


def test_colourfulness():
    colours = [[int(c) for c in pixel] for row in SMALL for pixel in row]
    red_green = [r - g for r, g, _ in colours]
    yellow_blue = [(r + g) / 2 - b for r, g, b in colours]
    expected = (math.sqrt(deviation(red_green) ** 2 + deviation(yellow_blue) ** 2)
                + 0.3 * math.sqrt(mean(red_green) ** 2 + mean(yellow_blue) ** 2))
    assert score(SMALL, "colourfulness") == pytest.approx(expected, rel=1e-5)


def test_colourfulness_of_red_and_green():
    """Red-green is 255 and -255, yellow-blue 127.5 throughout: a deviation of 255 and 0.3 of a mean of 127.5."""
    image = np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8)
    assert score(image, "colourfulness") == pytest.approx(255 + 0.3 * 127.5)


def test_blank_ratio_counts_what_is_near_the_most_frequent_colour():
    image = np.zeros((4, 5, 3), np.uint8)
    image[:] = (200, 100, 50)
    image[0] = (208, 92, 50)  # another of the 4096 colours, but 8 levels away
    image[1, :3] = (10, 10, 10)
    assert score(image, "blank_ratio") == 17 / 20
    image[0] = (212, 100, 50)
    assert score(image, "blank_ratio") == 12 / 20


def test_sharpness():
    edges = [v for row in inner(luma(SMALL), [[0, 1, 0], [1, -4, 1], [0, 1, 0]]) for v in row]
    assert score(SMALL, "sharpness") == pytest.approx(deviation(edges) ** 2, rel=1e-5)
    assert score(SMALL, "sharpness_max") == pytest.approx(mean(v * v for v in edges), rel=1e-5)  # one tile


def test_sharpness_max_is_that_of_the_sharpest_tile():
    image = np.full((240, 240, 3), 90, np.uint8)
    image[100:140, 100:140] = RNG.integers(0, 256, (40, 40, 1), dtype=np.uint8)
    edges = np.array(inner(luma(image), [[0, 1, 0], [1, -4, 1], [0, 1, 0]]), float)
    bounds = [238 * i // 5 if i < 3 else 238 - 238 * (5 - i) // 5 for i in range(6)]  # five tiles of 48, the same from both ends
    tiles = [np.mean(edges[a:b, c:d] ** 2) for a, b in pairwise(bounds) for c, d in pairwise(bounds)]
    assert score(image, "sharpness_max") == pytest.approx(max(tiles), rel=1e-5)
    assert score(image, "sharpness_max") > 15 * score(image, "sharpness")


def test_noise():
    small = SMALL[:, :9]  # one tile
    response = [abs(v) for row in inner(luma(small), [[1, -2, 1], [-2, 4, -2], [1, -2, 1]]) for v in row]
    assert score(small, "noise") == pytest.approx(math.sqrt(math.pi / 2) / 6 * mean(response), rel=1e-5)


def test_blockiness():
    grey = luma(EVEN)

    def excess(lines):
        steps = [sum(abs(line[i + 1] - line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
        medians = [sorted(steps[phase::8])[len(steps[phase::8]) // 2] for phase in range(8)]
        on = max(medians)
        inside = (sum(medians) - on) / 7
        return (on - inside) / (on + inside)

    columns = [list(column) for column in zip(*grey, strict=True)]
    assert score(EVEN, "blockiness") == pytest.approx((excess(grey) + excess(columns)) / 2)


def test_border_ratio():
    image = np.full((20, 30, 3), 40, np.uint8)
    image[3:18, 5:29] = 200
    assert score(image, "border_ratio") == pytest.approx(1 - 15 * 24 / (20 * 30))


def test_grey_is_within_a_tolerance_and_sepia_is_not():
    grey = EVEN.copy()
    assert score(grey, "greyscale") is True
    grey[..., 0] = np.minimum(grey[..., 1].astype(int) + 8, 255)
    assert score(grey, "greyscale") is True
    grey[3, 4] = (100, 109, 100)
    assert score(grey, "greyscale") is False
    assert score((EVEN * [1, 0.9, 0.7]).astype(np.uint8), "greyscale") is False


# -- the stage ----------------------------------------------------------------------------------------------------


def test_the_measures_fill_the_columns():
    assert [name for names in MEASURES for name in names] == list(OF_PIXELS)
    for names, function in MEASURES.items():
        assert set(measure(EVEN, names[:1])) == set(names), function


@pytest.mark.parametrize("only", [None, ["megapixels"], ["noise"], ["blockiness", "aspect_ratio"], ["greyscale", "tiling"]])
def test_it_keeps_its_contract(only):
    wide = RNG.integers(0, 256, (140, 200, 3), dtype=np.uint8)
    wide.flags.writeable = False
    check_stage(Signals(only=only), sized(SMALL, None, wide, EVEN, sizes=[(18, 26), (None, None), (140, 200), (48, 40)]))


def test_shape_and_size_are_those_of_the_file():
    rows = run_stage(Signals(), sized(SMALL, None, None, sizes=[(1500, 3000), (0, 10), (None, 10)]))["out"].rows.to_pylist()
    assert [row["aspect_ratio"] for row in rows] == [2, None, None]
    assert [row["megapixels"] for row in rows] == [4.5, None, None]


def test_blockiness_is_not_told_of_reduced_pixels():
    rows = run_stage(Signals(), sized(EVEN, EVEN, EVEN, sizes=[(48, 40), (96, 80), (None, None)]))["out"].rows.to_pylist()
    assert [row["blockiness"] is None for row in rows] == [False, True, True]
    for name in set(OF_PIXELS) - {"blockiness"}:
        assert rows[0][name] == rows[1][name] == rows[2][name]


def test_no_pixels_no_scores():
    empty = np.zeros((0, 5, 3), np.uint8)
    for row in run_stage(Signals(), sized(None, empty))["out"].rows.to_pylist():
        assert all(row[name] is None for name in OF_PIXELS)


def test_only_what_is_wanted_is_added():
    out = run_stage(Signals(only=["noise", "brightness"]), sized(EVEN))["out"]
    assert set(out.columns) - {"id", "source", "height", "width"} == {"noise", "brightness"}
    full = run_stage(Signals(), sized(EVEN))["out"]
    assert full.column("noise") == out.column("noise")


@pytest.mark.parametrize(("only", "told"), [
    ([], "leave it out"), (["sharpnes"], "did you mean 'sharpness'"), (["xyz"], "there are aspect_ratio"),
])
def test_what_only_names_is_checked(only, told):
    with pytest.raises(ValueError, match=told):
        Signals(only=only)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["one colour", "noise", "two halves"]), st.integers(0, 255))
def test_small_images_have_scores_or_null(height, width, kind, value):
    image = np.full((height, width, 3), value, np.uint8)
    if kind == "noise":
        image[:] = np.random.default_rng(value).integers(0, 256, image.shape)
    if kind == "two halves":
        image[:, width // 2:] = 255 - value
    check_values(image)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (2, 2), (2, 3000), (3, 3), (700, 1), (31, 32), (33, 2500),
                                   (128, 128), (127, 999), (600, 900)])
def test_extreme_shapes_have_scores_or_null(shape):
    check_values(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    check_values(np.zeros((*shape, 3), np.uint8))


RATIOS = [name for name in COLUMNS if name.endswith("_ratio") and name != "aspect_ratio"]


def check_values(image):
    image.flags.writeable = False
    working = Signals()
    working.setup(Context())
    row = working.process(sized(image)).rows.to_pylist()[0]
    for name in COLUMNS:
        assert row[name] is None or math.isfinite(row[name]), name
        assert row[name] is None or row[name] >= 0, name
    for name in [*RATIOS, "brightness", "blockiness", "tiling"]:
        assert row[name] is None or row[name] <= 1 + 1e-6, name
    side = min(image.shape[:2])
    assert (row["sharpness"] is None) == (row["noise"] is None) == (side < 3)
    assert (row["blockiness"] is None) == (side < 32)
    scaled = round(side * min(1, 384 / side, 1536 / max(image.shape)))
    assert (row["text_ratio"] is None) == (scaled < 32)
    assert (row["tiling"] is None) == (scaled < 128)


def test_listing_the_stage_imports_nothing_heavy():
    code = "import sys, curator_image.signals; print([m for m in ('cv2', 'PIL', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
