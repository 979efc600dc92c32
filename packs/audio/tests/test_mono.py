"""Channels into one: levels, correlation, and channels that would cancel each other out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from curator_audio.sound.channels import correlation, mixed
from curator_audio.sound.mono import Mono

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine

TONE = sine(440)
QUARTER = (0.5 * np.cos(2 * np.pi * 440 * np.arange(16_000) / 16_000)).astype(np.float32)
# name: right channel, correlation with TONE, decibels by which the mean is louder than one
PAIRS = {"same": (TONE, 1.0, 0.0), "inverted": (-TONE, -1.0, -math.inf), "quarter phase": (QUARTER, 0.0, -3.0103),
         "left only": (0 * TONE, 0.0, -6.0206), "half inverted": (-0.5 * TONE, -1.0, -12.0412)}


def rms_db(samples):
    power = np.mean(samples.astype(float) ** 2)
    return 10 * math.log10(power) if power > 1e-20 else -math.inf


@pytest.mark.parametrize("name", PAIRS)
def test_known_pairs(name):
    right, alike, gain = PAIRS[name]
    pair = np.stack([TONE, right])
    out = run_stage(Mono(anti_phase="mix"), recordings(pair))["out"]
    assert out.column("stereo_correlation")[0] == (None if alike is None else pytest.approx(alike, abs=1e-6))
    assert out.samples[0].shape == (1, 16_000)
    assert rms_db(out.samples[0]) - rms_db(TONE) == pytest.approx(gain, abs=1e-3)


def test_what_would_cancel_out_gives_its_first_channel():
    batch = recordings(np.stack([TONE, -TONE]), np.stack([TONE, QUARTER]), TONE, None, np.stack([TONE, TONE, -TONE]))
    out = run_stage(Mono(), batch)["out"]
    assert (out.samples[0] == TONE).all()
    assert (out.samples[1] == (TONE + QUARTER)[None] / 2).all()
    assert (out.samples[2] == TONE).all()
    assert out.samples[3] is None
    assert np.abs(out.samples[4] - TONE / 3).max() < 1e-6
    assert [None if c is None else round(c, 5) for c in out.column("stereo_correlation")] == [-1, 0, None, None, 1]


def test_a_constant_offset_is_no_likeness():
    assert correlation(np.stack([noise(seed=1) + 0.5, noise(seed=2) + 0.5])) == pytest.approx(0, abs=0.03)
    assert correlation(np.full((2, 100), 0.1, np.float32)) is None
    assert correlation(np.zeros((2, 0), np.float32)) is None


def test_one_channel_is_not_copied():
    one = TONE[None]
    assert mixed(one) is one


def test_the_stage_keeps_its_contract():
    check_stage(Mono(), recordings(np.stack([TONE, -TONE]), TONE, None, np.zeros((2, 0))))
    with pytest.raises(ValueError, match="anti_phase"):
        Mono(anti_phase="last")
