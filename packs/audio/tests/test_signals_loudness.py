"""Loudness on the test signals of EBU Tech 3341 and 3342, on tones, and beside another implementation."""

from __future__ import annotations

import numpy as np
import pytest
from curator_audio.measures.loudness import true_peak
from curator_audio.measures.measured import measure
from curator_audio.measures.views import Views
from curator_audio.measures.weighting import coefficients, weighted

from packs.audio.tests.recordings import noise, sine
from packs.audio.tests.speech_like import speech_like


def loudness(samples, rate=48_000):
    return measure(np.atleast_2d(samples), rate, ["loudness"])


def programme(*parts):
    """Seconds of a stereo tone of 1 kHz at peak levels, as in the EBU's cases."""
    one = np.concatenate([sine(1000, seconds, 48_000, 10 ** (level / 20)) for level, seconds in parts])
    return np.stack([one, one])


@pytest.mark.parametrize(("rate", "expected"), [(48_000, -3.0103), (44_100, -3.0075), (32_000, -2.9958), (24_000, -2.9843),
                                                (16_000, -2.970), (8_000, -2.996)])
def test_a_full_tone_of_997_hz(rate, expected):
    assert loudness(sine(997, 5.0, rate, 1.0), rate)["loudness"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("frequency", "expected"), [(25, -14.095), (100, -4.835), (500, -3.659), (1000, -3.004),
                                                     (2000, -0.630), (10_000, 0.341)])
def test_the_weighting_over_frequency(frequency, expected):
    assert loudness(sine(frequency, 5.0, 48_000, 1.0))["loudness"] == pytest.approx(expected, abs=3e-3)


@pytest.mark.parametrize(("parts", "expected", "exactly"), [
    ([(-23, 20)], -23, -22.993),
    ([(-33, 20)], -33, -32.993),
    ([(-36, 10), (-23, 60), (-36, 10)], -23, -23.014),
    ([(-72, 10), (-36, 10), (-23, 60), (-36, 10), (-72, 10)], -23, -23.014),
    ([(-26, 20), (-20, 20.1), (-26, 20)], -23, -22.979),
])
def test_loudness_of_the_cases_of_ebu_tech_3341(parts, expected, exactly):
    found = loudness(programme(*parts))["loudness"]
    assert found == pytest.approx(expected, abs=0.1)
    assert found == pytest.approx(exactly, abs=1e-3)


@pytest.mark.parametrize(("levels", "expected"), [((-20, -30), 10), ((-20, -15), 5), ((-40, -20), 20),
                                                  ((-50, -35, -20, -35, -50), 15)])
def test_range_of_the_cases_of_ebu_tech_3342(levels, expected):
    assert loudness(programme(*((level, 20) for level in levels)))["loudness_range"] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("divisor", "degrees", "amplitude", "expected"), [
    (4, 0, 0.5, -6), (4, 45, 0.5, -6), (6, 60, 0.5, -6), (8, 67.5, 0.5, -6), (4, 45, 1.41, 3)])
def test_true_peaks_of_ebu_tech_3341(divisor, degrees, amplitude, expected):
    """Cases 15 to 19: tones whose tops lie between the samples; the tolerance of the source is -0.4 to +0.2."""
    count = 48_000
    tone = amplitude * np.sin(2 * np.pi * np.arange(count) / divisor + np.deg2rad(degrees))
    faded = tone * np.minimum(1, np.minimum(np.arange(count), np.arange(count)[::-1]) / 480)
    found = true_peak(Views(faded.astype(np.float32)[None], 48_000))["true_peak"]
    assert found == pytest.approx(expected, abs=0.03)


def test_the_true_peak_is_not_below_the_peak_and_is_that_of_the_wave():
    for seed in range(3):
        x = noise(0.5, seed=seed)
        spectrum = np.fft.rfft(x)
        spectrum[int(0.4 * len(x)):] = 0
        low = np.fft.irfft(spectrum, len(x)).astype(np.float32)
        wave = 16 * np.fft.irfft(spectrum, 16 * len(x))
        found = measure(low[None], 16_000, ["true_peak", "peak_db"])
        assert found["true_peak"] >= found["peak_db"]
        assert found["true_peak"] == pytest.approx(20 * np.log10(np.abs(wave).max()), abs=0.2)


@pytest.mark.parametrize(("rate", "block"), [(8_000, 50), (11_025, 55), (16_000, 64), (48_000, 64)])
def test_the_filter_in_blocks_is_the_filter(rate, block):
    signal = pytest.importorskip("scipy.signal")
    x = noise(3.0, rate) + 0.2
    expected = x.astype(np.float64)
    for b, a in coefficients(rate):
        expected = signal.lfilter(b, a, expected)
    found = np.concatenate(list(weighted(x, rate, block)))
    assert len(x) - block < len(found) <= len(x)
    assert np.abs(found - expected[: len(found)]).max() < 3e-5


def test_the_coefficients_are_those_of_the_standard():
    (shelf, pole), (_, high_pass) = coefficients(48_000)
    assert shelf == pytest.approx([1.53512485958697, -2.69169618940638, 1.19839281085285], abs=1e-8)
    assert pole == pytest.approx([1, -1.69065929318241, 0.73248077421585], abs=1e-8)
    assert high_pass == pytest.approx([1, -1.99004745483398, 0.99007225036621], abs=1e-8)


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_another_implementation_agrees(rate):
    """Its filter is up to 0.2 LU low (997 Hz of full scale has -3.05 at 48 kHz, -3.15 at 16 kHz)."""
    other = pytest.importorskip("pyloudnorm")
    x = speech_like(10.0, rate)
    assert loudness(x, rate)["loudness"] == pytest.approx(other.Meter(rate).integrated_loudness(x.astype(np.float64)), abs=0.25)


def test_loudness_of_what_is_short_silent_or_slow():
    assert loudness(noise(0.3, 48_000))["loudness"] is None
    assert loudness(noise(0.41, 48_000))["loudness"] is not None
    assert loudness(noise(2.9, 48_000))["loudness_range"] is None
    assert loudness(noise(5.0, 48_000, -90))["loudness"] is None
    assert loudness(np.zeros(48_000, np.float32))["loudness"] is None
    assert loudness(noise(1.0, 2_000), 2_000)["loudness"] is None


def test_surround_channels_count_more_and_the_low_one_not_at_all():
    x = noise(2.0, 48_000)
    alone = loudness(x)["loudness"]

    def only(channel):
        channels = np.zeros((6, len(x)), np.float32)
        channels[channel] = x
        return loudness(channels)["loudness"]

    assert only(0) == pytest.approx(alone)
    assert only(3) is None
    assert only(4) == pytest.approx(alone + 10 * np.log10(1.41))
