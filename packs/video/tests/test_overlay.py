"""What lies over a clip is found where it was drawn, and nothing where nothing was."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from curator_video.measures.overlay import COLUMNS, Overlay
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.video.tests.clips import clips
from packs.video.tests.films import pan

WIDTH, HEIGHT = 384, 216
MOVING = pan(3, 12, 60, HEIGHT, WIDTH)
STILL = [MOVING[0]] * 12


def written(picture, words, at, size=0.7):
    """White letters with a dark edge, as subtitles have it."""
    made = picture.copy()
    for colour, thick in (((0, 0, 0), 5), ((255, 255, 255), 2)):
        cv2.putText(made, words, at, cv2.FONT_HERSHEY_SIMPLEX, size, colour, thick, cv2.LINE_AA)
    return made


def box_of(words, at, size=0.7):
    """Where these letters are, as shares: left, top, right, bottom."""
    rows, columns = np.nonzero(written(np.zeros((HEIGHT, WIDTH, 3), np.uint8), words, at, size).max(axis=2))
    return columns.min() / WIDTH, rows.min() / HEIGHT, (columns.max() + 1) / WIDTH, (rows.max() + 1) / HEIGHT


def found(pictures, every_s=0.5):
    given = {"frames": np.stack(pictures), "timestamps": np.arange(len(pictures)) * every_s}
    return run_stage(Overlay(), clips(given))["out"].rows.to_pylist()[0]


def test_nothing_lies_over_it():
    assert (found(MOVING)["overlay_area"], found(MOVING)["overlays"]) == (0, [])


@pytest.mark.parametrize(("words", "at", "kind"), [("so much is said below", (60, 195), "text_area"), ("LOGO", (310, 28), "logo_area")])
def test_boxes_lie_where_it_was_drawn(words, at, kind):
    row = found([written(one, words, at) for one in MOVING])
    left, top, right, bottom = box_of(words, at)
    (one,) = row["overlays"]
    assert [one[side] for side in ("left", "right")] == pytest.approx([left, right], abs=4 / WIDTH)
    assert [one[side] for side in ("top", "bottom")] == pytest.approx([top, bottom], abs=4 / HEIGHT)
    assert one["share"] == 1
    assert row[kind] == row["overlay_area"] == pytest.approx((right - left) * (bottom - top), rel=0.25)
    assert row["text_area" if kind == "logo_area" else "logo_area"] == 0


def test_a_subtitle_counts_for_as_long_as_it_stands():
    words = ("this is what he said", "another line it was")
    pictures = [written(one, words[k // 6], (60, 195)) if k % 6 < 5 else one for k, one in enumerate(MOVING)]
    row = found(pictures)
    assert row["logo_area"] == 0
    left, top, right, bottom = box_of(words[0], (60, 195))
    assert 0.5 < row["text_area"] / ((right - left) * (bottom - top)) < 1.1
    assert max(one["share"] for one in row["overlays"]) < 0.7


@pytest.mark.parametrize("first", [0, 5, 8])
def test_what_stands_for_two_seconds_is_found_also_at_the_end(first):
    def standing(count):
        return [written(one, "so much is said", (60, 195)) if first <= k < first + count else one for k, one in enumerate(MOVING)]

    assert [one["share"] for one in found(standing(4))["overlays"]] == pytest.approx([0.2])  # two windows out of ten
    assert found(standing(3))["overlays"] == []


def test_of_a_still_scene_nothing_can_be_told():
    row = found([written(one, "LOGO", (310, 28)) for one in STILL])
    assert [row[name] for name in COLUMNS] == [None] * 4
    assert found(MOVING[:2])["overlay_area"] is None
    assert found(MOVING, every_s=0.1)["overlay_area"] == 0  # pictures are taken half a second apart
    assert found(MOVING[:9], every_s=0.1)["overlay_area"] is None


def test_a_scene_that_stands_behind_something_that_moves_is_none():
    pictures = [cv2.circle(STILL[0].copy(), (30 + 30 * k, 110), 45, (40, 90, 200), -1) for k in range(12)]
    assert found(pictures)["overlay_area"] == 0
    signs = [written(one, "SHOP", (150, 100)) for one in STILL]
    passing = [cv2.rectangle(one.copy(), (40 * k - 60, 0), (40 * k, HEIGHT), (90, 90, 90), -1) for k, one in enumerate(signs)]
    assert found(passing)["overlay_area"] == 0


@settings(max_examples=8)
@given(st.integers(0, 300), st.integers(20, 200))
def test_a_mark_is_found_wherever_it_is(left, top):
    row = found([written(one, "MARK", (left, top), 0.6) for one in MOVING])
    x, y, right, bottom = box_of("MARK", (left, top), 0.6)
    assert any(one["left"] < right and x < one["right"] and one["top"] < bottom and y < one["bottom"] for one in row["overlays"])


def test_the_stage_keeps_its_contract():
    given = {"frames": np.stack([written(one, "LOGO", (310, 28)) for one in MOVING]), "timestamps": np.arange(12) * 0.5}
    check_stage(Overlay(), clips(given, None, {"frames": np.stack(STILL), "timestamps": np.arange(12) * 0.5}))
