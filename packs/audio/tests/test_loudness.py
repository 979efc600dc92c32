"""audio.loudness: the loudness that was asked for, unless a peak or the limit of the gain stands before it."""

from __future__ import annotations

import numpy as np
import pytest
from curator_audio.measures.measured import measure
from curator_audio.sound.loudness import Loudness
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.speech_like import speech_like

SPEECH = speech_like(3.0)


def changed(samples, **parameters):
    out = run_stage(Loudness(**parameters), recordings(samples))["out"]
    return out.samples[0], out.column("gain_db")[0]


def measured(samples):
    return measure(np.atleast_2d(samples), 16_000, ["loudness", "true_peak"])


@pytest.mark.parametrize("parameters", [{}, {"target": -16.0, "gain_max": 3.0, "peak_max": -3.0}])
def test_it_keeps_its_contract(parameters):
    check_stage(Loudness(**parameters), recordings(SPEECH, None, np.stack([noise(), -noise()]), sine(440, 0.2), np.zeros(8000)))


@pytest.mark.parametrize("target", [-30.0, -23.0, -20.0])
@pytest.mark.parametrize("level", [0.1, 0.5, 1.5])
def test_the_loudness_is_the_target(target, level):
    found, gain = changed(noise(2.0) * level, target=target)
    assert measured(found)["loudness"] == pytest.approx(target, abs=0.01)
    assert np.allclose(found[0], noise(2.0) * level * 10 ** (gain / 20), rtol=1e-5)


def test_no_peak_is_above_the_limit():
    x = 0.01 * noise(3.0)
    x[20_000] = 0.9
    found, gain = changed(x)
    assert gain == pytest.approx(-1 - measured(x)["true_peak"], abs=1e-4)
    assert measured(found)["true_peak"] == pytest.approx(-1.0, abs=1e-3)
    assert measured(changed(sine(1000, 2.0, amplitude=1.0), target=0.0)[0])["true_peak"] == pytest.approx(-1.0, abs=1e-3)


def test_what_is_quiet_is_raised_so_far_only():
    assert changed(noise(2.0, level_db=-60))[1] == 20
    assert changed(noise(2.0, level_db=-60), gain_max=0.0)[1] == 0
    assert changed(noise(2.0, level_db=0), gain_max=0.0)[1] < -20


def test_without_loudness_there_is_no_gain():
    for x in (np.zeros(16_000), noise(0.3), noise(2.0, level_db=-90), np.full(16_000, np.nan)):
        found, gain = changed(x)
        assert gain is None
        assert np.array_equal(found[0], np.asarray(x, np.float32), equal_nan=True)


@settings(max_examples=15)
@given(st.floats(-50, -5), st.floats(-60, 10), st.floats(0, 40))
def test_limits_hold_for_all_levels(target, level, gain_max):
    x = np.asarray(SPEECH * 10 ** (level / 20), np.float32)
    found, gain = changed(x, target=target, gain_max=gain_max)
    if gain is not None:
        assert gain <= gain_max + 1e-4
        assert measured(found)["true_peak"] <= -1 + 1e-3
        assert (measured(found)["loudness"] or -70) <= target + 0.01


@pytest.mark.parametrize(("wrong", "told"), [({"target": 3.0}, "target is -70 to 0"), ({"gain_max": -1.0}, "gain_max is 0 or more"),
                                             ({"peak_max": 1.0}, "peak_max is 0 dBTP or below")])
def test_nonsense_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Loudness(**wrong)
