"""Motion of pictures moved by known paths: its size, its direction, what is the camera's and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from curator_video.measures.flow import _looked, fitted, motion
from curator_video.measures.motion import COLUMNS, Motion
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.video.tests.clips import barred, clip, clips, thumbs
from packs.video.tests.paths import DIAGONAL, FPS, HEIGHT, WIDTH, moved, with_square


def found(pictures, fps=FPS, rate=FPS):
    return motion(thumbs(pictures), np.arange(len(pictures)) / rate, WIDTH, HEIGHT, fps)


@pytest.mark.parametrize("fps", [25, 12.5])
@pytest.mark.parametrize(("x", "y"), [(2, 0), (-2, 0), (8, 0), (0, 3), (3, -3)])
def test_a_pan_is_found_in_size_and_direction(x, y, fps):
    got = found(moved(x=x, y=y), fps)
    assert got["camera_x"] == pytest.approx(x / DIAGONAL * FPS, abs=0.004)
    assert got["camera_y"] == pytest.approx(-y / DIAGONAL * FPS, abs=0.004)
    assert got["motion_mean"] == pytest.approx(math.hypot(x, y) / DIAGONAL * FPS, rel=0.03)
    assert got["shake"] < 0.0005
    assert got["moving_area"] < 0.06
    assert got["camera"] == ("mixed" if x and y else "pan" if x else "tilt")
    assert got["static"] is False


def test_a_zoom_and_a_roll():
    closer, away = found(moved(grow=1.01)), found(moved(grow=1 / 1.01))
    assert closer["zoom"] == pytest.approx(FPS * math.log(1.01), rel=0.1)
    assert away["zoom"] == pytest.approx(-FPS * math.log(1.01), rel=0.1)
    assert (closer["camera"], away["camera"]) == ("zoom_in", "zoom_out")
    turned = found(moved(turn=1))
    assert (turned["roll"], turned["camera"]) == (pytest.approx(25, rel=0.1), "roll")
    assert max(abs(turned["camera_x"]), abs(turned["zoom"])) < 0.01


def test_shake():
    path = np.random.default_rng(0).normal(0, 4, (30, 2))
    got = found(moved(path=path))
    steps = np.diff(path, axis=0)
    assert got["shake"] == pytest.approx(np.hypot(*np.diff(steps, axis=0).T).mean() / 2 / DIAGONAL, rel=0.05)
    assert (got["camera"], got["static"]) == ("handheld", False)


def test_a_still_and_grain():
    still = moved()
    got = found(still)
    assert (got["motion_mean"], got["shake"], got["moving_area"], got["camera"], got["static"]) == (0, 0, 0, "static", True)
    rng = np.random.default_rng(0)
    grain = found([np.clip(one + rng.normal(0, 5, one.shape), 0, 255).astype(np.uint8) for one in still])
    assert grain["motion_mean"] < 0.006
    assert (grain["moving_area"], grain["camera"], grain["static"]) == (0, "static", True)


@pytest.mark.parametrize("x", [0, 2])
def test_what_moves_by_itself(x):
    """A square of 8.3 % of the picture moves 4 pixels a frame."""
    got = found(with_square(moved(x=x)))
    assert got["camera_x"] == pytest.approx(x / DIAGONAL * FPS, abs=0.012)
    assert got["camera"] == ("pan" if x else "static")
    assert 0.08 < got["moving_area"] < 0.25
    assert got["static"] is False


def test_repeats_and_bars_change_little():
    pan = moved(40, x=3)
    assert found([pan[k * 4 // 5] for k in range(50)], 12)["motion_mean"] == pytest.approx(0.8 * 3 / DIAGONAL * FPS, rel=0.05)
    got = found([barred(one, rows=40) for one in pan])
    assert got["camera_x"] == pytest.approx(3 / DIAGONAL * FPS, rel=0.05)


def test_steps_across_cuts_do_not_count():
    got = found(moved(20) + [one[:, ::-1] for one in moved(20)])
    assert (got["motion_max"], got["static"]) == (0, True)


def test_the_time_counts_and_not_the_frames():
    slow, fast = (found(moved(x=2), rate, rate)["motion_mean"] for rate in (12.5, 25))
    assert fast == pytest.approx(2 * slow, rel=0.02)


def test_of_four_steps_two_that_follow_each_other_are_looked_at():
    assert _looked(8) == list(range(8))
    numbers = _looked(400)
    assert len(numbers) == 200
    pairs = np.reshape(numbers, (100, 2))
    assert (np.diff(pairs) == 1).all()
    assert (pairs // 4 == np.arange(100)[:, None]).all()
    assert np.bincount(pairs[:, 0] % 4).min() > 25  # nor is it always the same place in the four
    for count in range(9, 20):
        assert _looked(count) == [k for k in numbers if k < count]


def test_without_structure_the_camera_is_unknown():
    grey = found([np.full((HEIGHT, WIDTH, 3), 120, np.uint8)] * 10)
    assert (grey["motion_mean"], grey["static"], grey["camera"], grey["camera_x"], grey["shake"]) == (0, True, None, None, None)


def test_too_little_to_compare():
    assert set(found(moved(1)).values()) == {None}
    assert set(motion(None, None, 16, 9, 12).values()) == {None}
    assert found(moved(2))["shake"] is None
    assert set(found(moved(1)).keys()) == set(COLUMNS)
    pictures = thumbs(moved(4, x=2))
    assert set(motion(pictures, np.zeros(4), 16, 9, 12).values()) == {None}  # no times
    assert motion(pictures, np.array([0, 0.04, 0.04, 0.08]), WIDTH, HEIGHT, 25)["camera_x"] == pytest.approx(0.125, abs=0.005)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(-0.02, 0.02), st.floats(-0.02, 0.02), st.floats(-0.05, 0.05), st.floats(-0.05, 0.05))
def test_the_fit_finds_what_two_thirds_have_in_common(seed, x, y, grow, turn):
    rng = np.random.default_rng(seed)
    places = rng.uniform(-0.5, 0.5, 300) + 1j * rng.uniform(-0.5, 0.5, 300)
    flow = x + 1j * y + (grow + 1j * turn) * places
    flow[:100] = complex(*rng.uniform(0.03, 0.13, 2))
    others = rng.uniform(-1, 1, 300) + 1j * rng.uniform(-1, 1, 300)  # at places that are not asked
    columns = np.stack([np.concatenate([one, one[::-1]]) for one in (places.real, places.imag)], dtype=np.float32)
    rows = np.stack([[np.concatenate(two), np.concatenate(two)[::-1]]
                     for two in ((flow.real, others.real), (flow.imag, others.imag))], dtype=np.float32)
    asked = np.repeat([[True, False], [False, True]], 300, axis=1)
    shift, change = fitted(columns, rows, asked, 0.0125)
    for step in (0, 1):
        found = [shift[step].real, shift[step].imag, change[step].real, change[step].imag]
        assert found == pytest.approx([x, y, grow, turn], abs=2e-3)


def test_the_stage_keeps_its_contract():
    batch = clips(clip(moved(12, x=2)), None, clip(with_square(moved(8))), clip(moved(1)))
    check_stage(Motion(), batch)
    check_stage(Motion(fps=5), batch)
    assert run_stage(Motion(), batch)["out"].column("camera") == ["pan", None, "static", None]
    with pytest.raises(ValueError, match="fps is more than 0"):
        Motion(fps=0)
