"""What levels, damage, noise and stereo measures are on signals whose values are known; what the stage does with nulls."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from curator_audio.measures.measured import MEASURES, measure
from curator_audio.measures.noise import WADA, WADA_DB
from curator_audio.measures.signals import COLUMNS, Signals
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.speech_like import speech_like

RATE = 16_000


def score(samples, name, rate=RATE):
    return measure(np.atleast_2d(np.asarray(samples, np.float32)), rate, [name])[name]


def test_levels_of_a_sine():
    assert score(sine(1000), "peak_db") == pytest.approx(-6.0206, abs=1e-4)
    assert score(sine(1000), "rms_db") == pytest.approx(-9.0309, abs=1e-4)
    assert score(sine(1000), "crest_db") == pytest.approx(3.0103, abs=1e-4)
    assert score(sine(1000) + 0.1, "dc_offset") == pytest.approx(0.1, abs=1e-6)
    assert score(sine(1000) + 0.1, "rms_db") == pytest.approx(-8.6967, abs=1e-4)


@pytest.mark.parametrize(("amplitude", "share"), [(1.25, 0.40967), (2, 0.66667), (4, 0.83914)])
def test_the_share_of_a_clipped_sine(amplitude, share):
    """1 - (2 / pi) asin(1 / amplitude), also after the level was changed, and of samples of 16 bits."""
    clipped = np.clip(sine(10, 5.0, amplitude=amplitude), -1, 1)
    assert score(clipped, "clipped_ratio") == pytest.approx(share, abs=5e-3)
    assert score(0.3 * clipped, "clipped_ratio") == pytest.approx(share, abs=5e-3)
    assert score(np.round(clipped * 20_000) / 32_768, "clipped_ratio") == pytest.approx(share, abs=5e-3)


@pytest.mark.parametrize("frequency", [20, 50, 100, 317, 1000, 2500])
@pytest.mark.parametrize("rate", [8_000, 48_000])
def test_the_round_top_of_a_sine_is_not_clipped(frequency, rate):
    assert score(sine(frequency, 2.0, rate, 0.9), "clipped_ratio", rate) == 0
    assert score(np.round(sine(frequency, 2.0, rate, 0.9) * 32_767) / 32_768, "clipped_ratio", rate) <= 0.001


def test_clipping_of_one_side_and_of_speech():
    x = speech_like()
    assert score(x, "clipped_ratio") == 0
    bent = np.minimum(x, 0.1)
    assert score(bent, "clipped_ratio") == pytest.approx(np.mean(bent == np.float32(0.1)), rel=0.1)
    assert score(np.clip(0.001 * np.round(4 * x), -0.002, 0.002), "clipped_ratio") == 0  # quiet and coarse


def test_zeros_and_silence():
    x = np.concatenate([noise(1.0), np.zeros(RATE, np.float32), noise(2.0, level_db=-60)])
    assert score(x, "zero_ratio") == pytest.approx(0.25)
    assert score(x, "silence_ratio") == pytest.approx(0.75, abs=0.01)


def test_gaps_in_sound_are_counted_and_pauses_are_not():
    rng = np.random.default_rng(1)
    voiced = np.sum([sine(140 * k, 10.0, amplitude=0.2 / k) for k in range(1, 9)], axis=0) + noise(10.0, level_db=-50)
    lost = voiced.copy()
    held = voiced.copy()
    places = np.arange(40) * 4000 + rng.integers(200, 2000, 40)
    for at in places:
        lost[at : at + 320] = 0
        held[at : at + 320] = held[at - 1]
    assert score(voiced, "dropouts") == 0
    assert 30 <= score(lost, "dropouts") <= 40
    assert score(np.stack([voiced, lost]), "dropouts") == score(lost, "dropouts")
    assert 30 <= score(held, "dropouts") <= 40
    padded = np.concatenate([np.zeros(8000), speech_like(), np.zeros(8000)])
    assert score(padded, "dropouts") == 0
    assert score(np.clip(8 * voiced, -1, 1), "dropouts") == 0


@pytest.mark.parametrize(("level", "expected"), [(-5, -4.7), (0, 0), (10, 10.1), (20, 20.1), (40, 40.3)])
def test_snr_of_what_is_distributed_as_the_source_says(level, expected):
    rng = np.random.default_rng(3)
    count = 30 * RATE
    speech = rng.gamma(0.4, 1, count) * rng.choice([-1, 1], count)
    mixed = 0.02 * (speech + rng.standard_normal(count) * math.sqrt(0.4 * 1.4 / 10 ** (level / 10)))
    assert score(mixed, "snr_db") == pytest.approx(expected, abs=0.5)
    assert score(np.append(mixed, np.zeros(count)), "snr_db") == pytest.approx(expected, abs=0.5)
    assert score(mixed + 0.1, "snr_db") == pytest.approx(expected, abs=0.5)


def test_the_table_of_snr_is_the_integral():
    special = pytest.importorskip("scipy.special")
    points, weights = np.polynomial.legendre.leggauss(60)
    edges = np.array([0, 1e-5, 1e-3, 0.02, 0.1, 0.4, 1, 2, 3, 4.5])
    u = np.concatenate([(b - a) / 2 * points + (a + b) / 2 for a, b in pairwise(edges)])
    weight = np.concatenate([(b - a) / 2 * weights for a, b in pairwise(edges)])
    speech = u**2.5  # the density of Gamma(0.4) has a pole at 0, which this takes away
    weight = weight * np.exp(-speech) / special.gamma(1.4)
    for level in (-4, 10, 24):
        sigma = math.sqrt(0.4 * 1.4 / 10 ** (level / 10))
        mean = weight @ (sigma * math.sqrt(2 / math.pi) * np.exp(-(speech / sigma) ** 2 / 2)
                         + speech * special.erf(speech / sigma / math.sqrt(2)))
        half = (speech / sigma) ** 2 / 2
        terms = np.arange(300)
        near = half < 150  # the logarithm of a non-central chi square is a sum over a Poisson distribution
        chances = np.exp(terms * np.log(half[near])[:, None] - half[near][:, None] - special.gammaln(terms + 1))
        logs = np.log(speech) - (sigma / speech) ** 2 / 2
        logs[near] = math.log(sigma) + (math.log(2) + chances @ special.digamma(terms + 0.5)) / 2
        assert np.interp(level, WADA_DB, WADA) == pytest.approx(math.log(mean) - weight @ logs, abs=1e-4)
    assert np.all(np.diff(WADA) > 0)


def test_noise_and_tones_have_the_lowest_snr():
    assert [score(x, "snr_db") for x in (noise(5.0), sine(440, 5.0))] == [pytest.approx(-20, abs=5), -20]
    assert score(np.zeros(RATE), "snr_db") is None


def test_snr_range_is_that_of_levels():
    x = np.concatenate([noise(1.0, level_db=-60), noise(1.0, level_db=-20), np.zeros(3 * RATE, np.float32)])
    assert score(x, "snr_range") == pytest.approx(40, abs=1)


@pytest.mark.parametrize("mains", [50, 60])
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_hum_is_what_lasts(mains, rate):
    speech = speech_like(10.0, rate)
    hum = np.sum([sine(mains * k, 10.0, rate, 0.02 / k) for k in (1, 2, 3)], axis=0)
    assert score(speech, "hum_ratio", rate) < 0.2
    assert score(noise(10.0, rate), "hum_ratio", rate) < 0.1
    assert score(hum, "hum_ratio", rate) > 0.95
    assert score(speech + hum, "hum_ratio", rate) > 0.8
    assert score(sine(440, 2.0, rate), "hum_ratio", rate) < 0.01


# -- stereo -------------------------------------------------------------------------------------------------------


def test_stereo_correlation():
    left, quarter = sine(1000), sine(1000).copy()
    quarter[:] = 0.5 * np.cos(2 * np.pi * 1000 * np.arange(RATE) / RATE)
    pairs = [(left, left), (left, -left), (left, quarter), (left, 0 * left), (left, 0.3 * left)]
    assert [score(np.stack(pair), "stereo_correlation") for pair in pairs] == pytest.approx([1, -1, 0, 0, 1], abs=1e-5)
    assert [score(np.stack(pair), "fake_stereo") for pair in pairs] == [True, False, False, False, False]
    assert score(np.stack([left, left + noise(level_db=-80)]), "fake_stereo") is True
    assert score(np.stack([left, left + noise(level_db=-50)]), "fake_stereo") is False
    assert score(left, "stereo_correlation") is None
    assert score(np.zeros((2, RATE)), "fake_stereo") is None


def test_channels_that_are_the_same_are_one_that_is_louder():
    x = speech_like(4.0)
    one, two = measure(x[None], RATE, COLUMNS), measure(np.stack([x, x]), RATE, COLUMNS)
    assert two["loudness"] == pytest.approx(one["loudness"] + 10 * math.log10(2))
    # Loudness is that of the sum of the channels, and its range a difference of two of them: both are rounded on the way.
    assert two["loudness_range"] == pytest.approx(one["loudness_range"])
    rest = [k for k in COLUMNS if "stereo" not in k and not k.startswith("loudness")]
    assert {k: two[k] for k in rest} == {k: one[k] for k in rest}


def test_channels_do_not_cancel_out():
    x = speech_like(4.0)
    one, two = measure(x[None], RATE, COLUMNS), measure(np.stack([x, -x]), RATE, COLUMNS)
    for name in ("rms_db", "snr_db", "bandwidth", "centroid", "flatness", "modulation_4hz", "hum_ratio"):
        assert two[name] == pytest.approx(one[name], rel=1e-4), name


# -- the stage ----------------------------------------------------------------------------------------------------


def test_the_measures_fill_the_columns():
    assert {name for names in MEASURES for name in names} == set(COLUMNS)
    for names in MEASURES:
        assert set(measure(speech_like(2.0)[None], RATE, names[:1])) == set(names)


@pytest.mark.parametrize("only", [None, ["snr_db"], ["fake_stereo", "kind_guess", "dropouts"]])
def test_it_keeps_its_contract(only):
    stereo = np.stack([noise(1.5), noise(1.5, seed=1)])
    stereo.flags.writeable = False
    check_stage(Signals(only=only), recordings(speech_like(2.0), None, stereo, sine(440, 0.2), np.zeros(0), rate=RATE))


def test_no_samples_no_scores():
    bad = np.array([0.1, np.nan, 0.2] * 1000)
    out = run_stage(Signals(), recordings(None, np.zeros(0), bad, np.full(4000, np.inf)))["out"]
    assert all(row[name] is None for row in out.rows.to_pylist() for name in COLUMNS)


def test_digital_silence_is_silence():
    row = run_stage(Signals(), recordings(np.zeros(3 * RATE)))["out"].rows.to_pylist()[0]
    known = {name: row[name] for name in COLUMNS if row[name] is not None}
    assert known == {"clipped_ratio": 0, "dc_offset": 0, "zero_ratio": 1, "silence_ratio": 1, "dropouts": 0, "zcr": 0,
                     "kind_guess": "silence"}


def test_only_what_is_wanted_is_added():
    full = run_stage(Signals(), recordings(speech_like(3.0)))["out"]
    for name in COLUMNS:
        assert run_stage(Signals(only=[name]), recordings(speech_like(3.0)))["out"].column(name) == full.column(name)


@pytest.mark.parametrize(("only", "told"), [
    ([], "leave it out"), (["loudnes"], "did you mean 'loudness'"), (["xyz"], "there are peak_db"),
])
def test_what_only_names_is_checked(only, told):
    with pytest.raises(ValueError, match=told):
        Signals(only=only)


@settings(max_examples=40)
@given(st.integers(1, 30_000), st.integers(1, 3), st.sampled_from(["constant", "noise", "square", "impulse"]),
       st.sampled_from([100, 8_000, 11_025, 44_100]), st.floats(-1, 1, width=32))
def test_short_and_odd_recordings_have_scores_or_null(count, channels, kind, rate, value):
    x = np.full((channels, count), value, np.float32)
    if kind == "noise":
        x *= np.random.default_rng(count).standard_normal(x.shape).astype(np.float32)
    if kind == "square":
        x *= np.where(np.arange(count) % 7 < 3, 1, -1)
    if kind == "impulse":
        x[:, 1:] = 0
    found = measure(x, rate, COLUMNS)
    for name, value_found in found.items():
        if isinstance(value_found, float | int):
            assert math.isfinite(value_found), name
            assert not name.endswith("_ratio") or 0 <= value_found <= 1, name
    assert found["bandwidth"] is None or found["bandwidth"] <= rate / 2
    assert found["crest_db"] is None or found["crest_db"] >= -1e-3


def test_listing_the_stage_imports_nothing_heavy():
    heavy = ("soundfile", "av", "soxr", "scipy", "torch", "webrtcvad")
    code = f"import sys, curator_audio.measures.signals; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
