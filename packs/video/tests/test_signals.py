"""What the signals of a clip are on pictures whose values are known; what the stage does with nulls."""

from __future__ import annotations

import subprocess
import sys

import cv2
import numpy as np
import pytest
from curator_video.measures.bars import find_bars
from curator_video.measures.measured import OF_FRAMES, OF_THUMBS, measure
from curator_video.measures.signals import COLUMNS, Signals
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.video.tests.clips import barred, clip, clips, thumbs
from packs.video.tests.films import film, pan, texture

A, B = texture(1), texture(2)
MOVING = pan(3, 150, 4)


def scores(pictures, fps=25.0):
    made = clip(pictures, fps)
    return measure(made["thumbs"], made["thumb_times"], made["frames"], COLUMNS)


def even(level, count=1):
    return [np.full((240, 320, 3), level, np.uint8)] * count


def test_every_column_has_a_measure():
    assert {name for names in (*OF_THUMBS, *OF_FRAMES) for name in names} == set(COLUMNS)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_light_of_one_shade(level):
    found = scores(even(level, 20))
    for name in ("brightness", "brightness_min", "brightness_max"):
        assert found[name] == pytest.approx(level / 255, abs=2e-3)
    assert (found["contrast"], found["blank_ratio"], found["greyscale"]) == (0, 1, True)
    assert (found["black_ratio"], found["white_ratio"]) == (level == 0, level == 255)
    assert found["exposure_ratio"] == (level in (0, 255))


def test_contrast_of_two_halves():
    half = np.zeros((240, 320, 3), np.uint8)
    half[:, 160:] = 255
    assert scores([half] * 2)["contrast"] == pytest.approx(0.5, abs=1e-3)


def test_black_in_the_middle():
    found = scores([*MOVING[:50], *even(0, 50), *MOVING[50:100]])
    assert found["black_ratio"] == pytest.approx(1 / 3, abs=1e-6)
    assert found["blank_ratio"] == pytest.approx(1 / 3, abs=1e-6)


def test_shares_are_of_time_and_not_of_frames():
    pictures = thumbs([*even(0, 10), *even(200, 10)])
    times = np.append(np.arange(10) * 0.3, 3 + np.arange(10) * 0.1)  # the last frame counts as the usual one: 0.3
    assert measure(pictures, times, None, ["black_ratio"])["black_ratio"] == pytest.approx(3 / 4.2, abs=1e-6)


def test_burnt_and_drowned():
    burnt = np.clip(texture(5).astype(int) * 3, 0, 255).astype(np.uint8)
    found = scores([burnt] * 5 + [A] * 5)
    assert found["exposure_ratio"] == pytest.approx(0.5)
    assert scores([barred(A, rows=40)] * 5)["exposure_ratio"] == 0  # bars are not shadows


def test_a_freeze():
    """50 frames that move, one for 50 more, 50 that move: of the 51 that show the same, 2.04 s."""
    found = scores([*MOVING[:50], *[MOVING[49]] * 50, *MOVING[50:100]])
    assert found["longest_freeze"] == pytest.approx(2.04, abs=1e-9)
    assert found["freeze_ratio"] == pytest.approx(51 / 150, abs=1e-6)
    assert found["duplicate_ratio"] == 0
    assert found["true_fps"] == pytest.approx(25, abs=0.6)


def test_a_still_is_a_freeze_and_has_no_rate():
    found = scores([A] * 50)
    assert (found["freeze_ratio"], found["true_fps"], found["duplicate_ratio"], found["jump_ratio"]) == (1, None, None, 0)


def test_a_slow_pan_is_no_freeze():
    wide = texture(7, 240, 400)
    slow = [cv2.warpAffine(wide, np.float32([[1, 0, -0.3 * k], [0, 1, 0]]), (320, 240)) for k in range(75)]
    assert scores(slow)["freeze_ratio"] == 0


@pytest.mark.parametrize(("kept", "of"), [(4, 5), (1, 2), (2, 3), (5, 8)])
def test_repeats_tell_the_true_rate(kept, of):
    """Of `of` frames `kept` are new, as when a film of fewer pictures a second is written at a higher rate."""
    numbers = [k * kept // of for k in range(150)]
    found = scores([MOVING[k] for k in numbers], fps=30)
    assert found["duplicate_ratio"] == pytest.approx(1 - kept / of, abs=0.01)
    assert found["true_fps"] == pytest.approx(30 * kept / of, abs=0.4)
    assert found["freeze_ratio"] == 0


def test_repeats_survive_an_encoder():
    from curator_video.read.film import Film

    data = film([MOVING[k * 4 // 5] for k in range(100)], 30, options={"crf": "20", "preset": "veryfast"})
    with Film(data) as opened:
        times, pictures = zip(*[(time, opened.thumb(frame)) for time, frame in opened.frames()], strict=True)
    found = measure(np.stack(pictures), np.array(times), None, ["true_fps", "duplicate_ratio"])
    assert found["duplicate_ratio"] == pytest.approx(0.2, abs=0.02)
    assert found["true_fps"] == pytest.approx(24, abs=0.5)


def test_flicker():
    still = thumbs([A])[0].astype(float) - 16
    gains = {0.2: 1 + 0.1 * (-1) ** np.arange(50), 0.0: np.linspace(0.8, 1.2, 50)}
    for expected, gain in gains.items():
        pictures = np.round(16 + still * gain[:, None, None]).astype(np.uint8)
        assert measure(pictures, np.arange(50) / 25, None, ["flicker"])["flicker"] == pytest.approx(expected, abs=2e-3)
    assert scores([*MOVING[:40], *pan(9, 40, 2)])["flicker"] < 0.005  # a cut is none
    assert scores(even(0, 9))["flicker"] is None


@pytest.mark.parametrize(("pictures", "cuts"), [
    (pan(1, 40, 2) + pan(2, 40, 1) + pan(3, 40, 3), 2),
    ([A] * 30 + [B] * 30, 1),
    ([(one * 0.12).astype(np.uint8) for one in pan(1, 30, 2) + pan(2, 30, 2)], 1),
    (pan(1, 30, 2) + [one[:, ::-1] for one in pan(1, 30, 2)], 1),
    (pan(1, 30, 2) + pan(2, 30, 2)[:3] + pan(4, 30, 2), None),          # a very short shot
    (MOVING[:20] + even(255, 1) + MOVING[21:60], 0),                    # a flash
    (MOVING[:20] + even(255, 2) + MOVING[22:60], 0),
    (pan(1, 60, 16), 0),
    (pan(1, 30, 40), 0),                                                # a whip
    ([np.round(A * (1 - k / 60)).astype(np.uint8) for k in range(60)], 0),  # to black
    ([np.round(A * (1 - k / 20) + B * (k / 20)).astype(np.uint8) for k in range(21)], 0),
])
def test_cuts_left_inside(pictures, cuts):
    found = scores(pictures)["jump_ratio"] * (len(pictures) - 1)
    assert found == pytest.approx(cuts, abs=1e-6) if cuts is not None else 0 <= found <= 2


def test_colour():
    red = np.zeros((90, 160, 3), np.uint8)
    red[..., 0] = 200
    assert scores([red] * 2)["saturation"] == 1
    assert scores([red] * 2)["greyscale"] is False
    grey = np.repeat(A[..., :1], 3, axis=2)
    found = scores([grey] * 3)
    assert (found["saturation"], found["colourfulness"], found["greyscale"]) == (0, 0, True)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (64, 64, 3), np.uint8)  # small enough that every pixel counts
    opponents = noise[..., 0] - noise[..., 1].astype(float), (noise[..., 0] + noise[..., 1].astype(float)) / 2 - noise[..., 2]
    expected = np.hypot(*(o.std() for o in opponents)) + 0.3 * np.hypot(*(o.mean() for o in opponents))
    assert scores([noise] * 2)["colourfulness"] == pytest.approx(expected, rel=1e-4)


def test_sharpness_falls_with_blur_and_not_with_size():
    rng = np.random.default_rng(3)
    sharp = cv2.resize(rng.integers(0, 256, (54, 96, 3), np.uint8), (384, 216), interpolation=cv2.INTER_NEAREST)
    soft = cv2.GaussianBlur(sharp, (0, 0), 4)
    twice = cv2.resize(sharp, (768, 432), interpolation=cv2.INTER_NEAREST)
    found = scores([sharp] * 13 + [soft] * 13)
    assert found["sharpness_max"] > 50 * found["sharpness_min"]
    assert scores([twice] * 2)["sharpness"] == pytest.approx(scores([sharp] * 2)["sharpness"], rel=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (44, 0), (0, 60), (30, 40)])
def test_bars_are_found_to_the_pixel(rows, columns):
    found = scores([barred(one, rows, columns) for one in pan(4, 60, 3)])
    shares = [found[f"border_{side}"] for side in ("top", "bottom", "left", "right")]
    assert shares == pytest.approx([rows / 240, rows / 240, columns / 320, columns / 320])
    assert found["border_ratio"] == pytest.approx(1 - (240 - 2 * rows) * (320 - 2 * columns) / (240 * 320))
    assert found["content_aspect"] == pytest.approx((320 - 2 * columns) / (240 - 2 * rows))


def test_a_dark_scene_has_no_bars():
    night = [(one * np.linspace(0, 1, 240)[:, None, None] ** 3).astype(np.uint8) for one in pan(5, 60, 3)]
    assert scores(night)["border_ratio"] == 0
    lamp = np.zeros((240, 320, 3), np.uint8)
    lamp[100:120, 150:170] = 200
    assert scores([lamp] * 20)["border_ratio"] is None
    assert scores(even(0, 20))["border_ratio"] is None


def test_a_bar_beside_the_dark_is_known_by_the_other_one():
    lit = [(one * np.linspace(0, 1, 240)[:, None, None]).astype(np.uint8) for one in pan(5, 60, 3)]  # dark above, light below
    found = scores([barred(one, rows=30) for one in lit])
    assert (found["border_top"], found["border_bottom"]) == (0.125, 0.125)


@pytest.mark.parametrize("rows", [slice(8, 60), slice(200, 230)])
def test_a_bar_with_a_logo_or_words_over_it_is_known_by_the_other_one(rows):
    pictures = [barred(one, rows=44) for one in pan(4, 60, 3)]
    for one in pictures:
        one[rows, 8:56] = 255
    found = scores(pictures)
    assert (found["border_top"], found["border_bottom"]) == pytest.approx((44 / 240, 44 / 240))


def test_a_dark_floor_is_no_bar_if_nothing_is_dark_above():
    pictures = pan(4, 60, 3)
    for one in pictures:
        one[200:] = 0
    found = scores(pictures)
    assert (found["border_top"], found["border_bottom"]) == (0, pytest.approx(40 / 240))


def test_what_is_left_between_bars_is_no_line():
    """Words below a bright line in the middle, all on black, lie over no bar."""
    pictures = np.full((3, 36, 64), 16, np.uint8)
    pictures[:, 17:20] = 200
    pictures[:, [23, 27, 31, 35], 20:54] = 200
    assert find_bars(pictures, 32) == (17, 36, 0, 64)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 12), st.sampled_from([(36, 64), (5, 7), (1, 1)]), st.integers(0, 2**31), st.integers(0, 4))
@example(4, (1, 1), 0, 0)
def test_ratios_are_ratios_whatever_is_given(count, size, seed, sampled):
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 256, (count, *size), np.uint8), np.cumsum(rng.uniform(0.01, 0.2, count))
    frames = rng.integers(0, 256, (sampled, *size, 3), np.uint8)
    for name, value in measure(*made, frames, COLUMNS).items():
        assert value is None or isinstance(value, bool) or np.isfinite(value)
        if name.endswith("_ratio") and value is not None:
            assert -1e-9 <= value <= 1 + 1e-9
    assert (measure(*made, frames, ["brightness"])["brightness"] is None) == (count == 0)


def test_one_and_no_frame():
    assert set(measure(None, None, None, COLUMNS).values()) == {None}
    single = scores([A])
    assert single["brightness"] is not None
    assert [single[name] for name in ("freeze_ratio", "flicker", "jump_ratio", "true_fps")] == [None] * 4


def test_the_stage_keeps_its_contract():
    batch = clips(clip(MOVING[:30]), None, clip([A] * 3), clip([A]))
    check_stage(Signals(), batch)
    check_stage(Signals(only=["flicker", "border_ratio"]), batch)
    check_stage(Signals(only=["sharpness"]), batch)


def test_only_what_is_asked_for_is_needed():
    assert set(Signals(only=["sharpness"]).contract().needs) == {"frames"}
    assert set(Signals(only=["flicker"]).contract().needs) == {"thumbs", "thumb_times"}
    out = run_stage(Signals(only=["black_ratio"]), clips(clip(even(0, 5)), None))["out"]
    assert out.column("black_ratio") == [1.0, None]
    with pytest.raises(ValueError, match="did you mean 'flicker'"):
        Signals(only=["flickr"])
    with pytest.raises(ValueError, match="names no column"):
        Signals(only=[])


def test_the_module_is_light():
    code = "import sys, curator_video.measures.signals as s; print('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
