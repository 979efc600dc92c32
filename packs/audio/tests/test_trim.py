"""audio.trim: silence at the ends goes, sound does not, and the place in the file moves along."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.sound.trim import Trim
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.speech_like import speech_like

RATE = 16_000


def silence(seconds, level_db=-80.0):
    return noise(seconds, level_db=level_db, seed=9)


def padded(before, after, seconds=1.0):
    return np.concatenate([silence(before), noise(seconds, level_db=-20), silence(after)])


def trimmed(samples, **parameters):
    out = run_stage(Trim(**parameters), recordings(samples))["out"]
    return out.samples[0], out.rows.to_pylist()[0]


@pytest.mark.parametrize("parameters", [{}, {"threshold": 20.0, "floor": -40.0, "pad_s": 0.0}])
def test_it_keeps_its_contract(parameters):
    stereo = np.stack([padded(0.5, 0.2), silence(1.7)])
    given_ = recordings(padded(0.3, 0.4), None, stereo, np.zeros(8000), sine(440, 0.01), np.zeros(0))
    check_stage(Trim(**parameters), given_)


def test_silence_goes_and_a_little_stays():
    found, row = trimmed(padded(0.5, 0.8))
    assert row["trim_start"] == pytest.approx(0.4, abs=0.025)
    assert row["trim_end"] == pytest.approx(0.7, abs=0.025)
    assert found.shape[1] / RATE == row["duration"]
    assert row["start_s"] == row["trim_start"]
    assert row["end_s"] == pytest.approx(2.3 - row["trim_end"])


def test_the_samples_are_those_between_start_and_end():
    x = padded(0.7, 0.6)
    found, row = trimmed(x, pad_s=0.05)
    assert np.array_equal(found[0], x[round(row["start_s"] * RATE) : round(row["end_s"] * RATE)])


def test_a_piece_keeps_its_place_in_the_file():
    batch = recordings(padded(0.5, 0.5)).with_columns({"start_s": pa.array([30.0]), "end_s": pa.array([32.0])})
    row = run_stage(Trim(), batch)["out"].rows.to_pylist()[0]
    assert row["start_s"] == 30 + row["trim_start"]
    assert row["end_s"] == 32 - row["trim_end"]


@pytest.mark.parametrize("gain", [0.02, 1.0])
def test_it_does_not_follow_the_level(gain):
    x = np.concatenate([silence(0.5, -100), speech_like(3.0, floor_db=-100), silence(0.5, -100)])
    assert trimmed(x * gain, floor=-90)[1]["trim_start"] == trimmed(x, floor=-90)[1]["trim_start"]


def test_what_lies_in_noise_is_cut_at_another_threshold():
    x = np.concatenate([silence(1.0, -50), noise(1.0, level_db=-20), silence(1.0, -50)])
    assert trimmed(x)[1]["trim_start"] == 0
    assert trimmed(x, threshold=20.0)[1]["trim_start"] == pytest.approx(0.9, abs=0.02)


def test_a_click_is_no_sound():
    x = padded(1.0, 0.0)
    x[1000] = 0.5
    assert trimmed(x)[1]["trim_start"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("x", [np.zeros(RATE), silence(1.0), np.zeros(10), np.full(RATE, np.nan), np.zeros(0)])
def test_what_is_silent_throughout_stays(x):
    found, row = trimmed(x)
    assert found.shape[1] == len(x)
    assert (row["trim_start"], row["trim_end"]) == (0, 0)


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 0.3), st.floats(0, 0.2))
def test_sound_is_never_cut(before, after, seconds, pad):
    x = padded(before, after, seconds)
    _, row = trimmed(x, pad_s=pad)
    assert row["start_s"] <= before + 1 / RATE
    assert row["end_s"] >= before + seconds - 0.011
    assert row["duration"] == pytest.approx(row["end_s"] - row["start_s"])


@pytest.mark.parametrize(("wrong", "told"), [({"threshold": 0.0}, "threshold is above 0"), ({"floor": 3.0}, "floor is 0 dBFS"),
                                             ({"pad_s": -0.1}, "pad_s is 0 or more")])
def test_nonsense_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Trim(**wrong)
