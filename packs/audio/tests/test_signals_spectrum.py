"""Frequency and rhythm of signals whose values are known, and the guess at the kind of sound."""

from __future__ import annotations

import numpy as np
import pytest
from curator_audio.measures.measured import measure
from curator_audio.measures.signals import COLUMNS
from curator_audio.measures.spectrum import frame_size

from packs.audio.tests.recordings import noise, sine
from packs.audio.tests.speech_like import in_a_room, speech_like


def scores(samples, rate=16_000):
    return measure(np.atleast_2d(np.asarray(samples, np.float32)), rate, COLUMNS)


def limited(hertz, seconds, rate=48_000, level_db=-20.0):
    """White noise up to a frequency, cut off sharply."""
    spectrum = np.fft.rfft(noise(seconds, rate))
    spectrum[np.fft.rfftfreq(round(seconds * rate), 1 / rate) > hertz] = 0
    x = np.fft.irfft(spectrum)
    return (x / x.std() * 10 ** (level_db / 20)).astype(np.float32)


def test_white_noise():
    found = scores(noise(10.0))
    assert found["centroid"] == pytest.approx(4000, abs=60)
    assert found["rolloff"] == pytest.approx(6800, abs=60)
    assert found["flatness"] == pytest.approx(np.exp(-np.euler_gamma), abs=0.01)
    assert found["zcr"] == pytest.approx(0.5, abs=0.01)
    assert found["bandwidth"] == 8000


@pytest.mark.parametrize("frequency", [500, 1000, 3000])
def test_a_tone(frequency):
    found = scores(sine(frequency, 10.0))
    assert found["centroid"] == pytest.approx(frequency, abs=0.1)
    assert found["rolloff"] == pytest.approx(frequency, abs=32)
    assert found["bandwidth"] == pytest.approx(frequency, abs=32)
    assert found["flatness"] < 1e-4
    assert found["zcr"] == pytest.approx(2 * frequency / 16_000, abs=1e-3)
    assert found["zcr_std"] < 1e-3
    assert found["flux_std"] < 1e-3


def test_two_tones_have_their_middle():
    found = scores(sine(1000, 5.0) + sine(3000, 5.0))
    assert (found["centroid"], found["rolloff"]) == (pytest.approx(2000, abs=0.1), 3000)


@pytest.mark.parametrize("seconds", [1.0, 10.0])
@pytest.mark.parametrize("hertz", [4_000, 8_000, 11_025, 12_000, 16_000, 22_050])
@pytest.mark.parametrize("level", [-20.0, -55.0])
def test_bandwidth_is_where_the_noise_ends(hertz, seconds, level):
    rounded = np.round(limited(hertz, seconds, level_db=level) * 32_768) / 32_768
    assert scores(rounded, 48_000)["bandwidth"] == pytest.approx(hertz, abs=130)


def test_bandwidth_of_upsampled_speech():
    soxr = pytest.importorskip("soxr")
    narrow = speech_like(5.0, 8_000)
    assert scores(soxr.resample(narrow, 8_000, 48_000), 48_000)["bandwidth"] == pytest.approx(4_000, abs=150)


def test_what_is_silent_has_no_spectrum():
    for x in (noise(2.0, level_db=-70), np.zeros(32_000), noise(0.03)):
        found = scores(x)
        assert [found[name] for name in ("bandwidth", "rolloff", "centroid", "flatness", "flux_std")] == [None] * 5


def test_an_offset_is_no_sound_of_low_frequency():
    plain, shifted = scores(noise(5.0)), scores(noise(5.0) + 0.3)
    assert [shifted[name] for name in ("centroid", "rolloff", "bandwidth")] == pytest.approx(
        [plain[name] for name in ("centroid", "rolloff", "bandwidth")], rel=1e-3)


@pytest.mark.parametrize("level", [-20, 3])
def test_shape_does_not_follow_the_level(level):
    x = speech_like(5.0, floor_db=-60)
    loud, quiet = scores(x), scores(x * 10 ** (level / 20))
    assert quiet["centroid"] == pytest.approx(loud["centroid"], rel=0.05)
    assert quiet["low_energy_ratio"] == pytest.approx(loud["low_energy_ratio"], abs=0.05)
    assert quiet["loudness"] == pytest.approx(loud["loudness"] + level, abs=0.2)  # the gate of -70 LUFS stays where it is


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000])
def test_frames_are_of_about_32_ms(rate):
    assert 0.032 <= frame_size(rate) / rate < 0.034


def test_modulation_and_quiet_frames():
    seconds = np.arange(160_000) / 16_000
    four, half = (scores(noise(10.0) * (1 + 0.9 * np.sin(2 * np.pi * f * seconds))) for f in (4, 11))
    assert four["modulation_4hz"] > 0.9
    assert half["modulation_4hz"] < 0.1
    gated = noise(10.0) * (seconds % 1 < 0.7)
    assert scores(gated)["low_energy_ratio"] == pytest.approx(0.3, abs=0.03)


def tune(rate=16_000):
    """Chords of four notes, each of which decays slowly, twice a second."""
    rng = np.random.default_rng(0)
    x = np.zeros(10 * rate)
    for beat in range(20):
        at = np.arange(len(x) - beat * rate // 2) / rate
        for note in rng.choice([220, 262, 330, 392, 440, 523], 4, replace=False):
            x[beat * rate // 2 :] += np.exp(-at / 1.5) * sum(np.sin(2 * np.pi * note * k * at) / k for k in (1, 2, 3))
    return (0.5 * x / np.abs(x).max()).astype(np.float32)


def test_the_kind_is_guessed():
    silence = noise(5.0, level_db=-80)
    for rate in (8_000, 16_000, 48_000):
        assert scores(speech_like(10.0, rate), rate)["kind_guess"] == "speech"
    assert [scores(x)["kind_guess"] for x in (tune(), noise(5.0), silence, noise(0.5))] == ["music", "noise", "silence", None]
    assert scores(np.stack([speech_like(), speech_like()]))["kind_guess"] == "speech"
    assert scores(speech_like() + noise(10.0, level_db=-27))["kind_guess"] != "music"


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_decays_are_those_of_the_room(rate):
    dry = speech_like(8.0, rate)
    found = [scores(in_a_room(dry, seconds, rate), rate)["decay_s"] for seconds in (0.2, 0.4, 0.6, 0.8)]
    assert found == pytest.approx([0.26, 0.42, 0.53, 0.6], abs=0.05)
    assert scores(dry, rate)["decay_s"] < 0.25
    assert scores(0.1 * dry, rate)["decay_s"] == pytest.approx(scores(dry, rate)["decay_s"], abs=0.05)


def test_what_does_not_fade_has_no_decay():
    assert [scores(x)["decay_s"] for x in (noise(5.0), sine(500, 5.0), np.zeros(80_000), speech_like(0.2))] == [None] * 4
