"""Resampling: lengths, levels of tones, and blocks that join to the bit."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.sound.resample import Resample
from curator_audio.sound.resampler import Resampler, resampled
from curator_audio.sound.waves import mono_at
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine


@pytest.mark.parametrize(("given", "rates", "expected"), [
    (44_099, (44_100, 16_000), 16_000), (44_100, (44_100, 16_000), 16_000), (44_101, (44_100, 16_000), 16_001),
    (441, (44_100, 16_000), 160), (1, (44_100, 16_000), 1), (0, (44_100, 16_000), 0), (8_000, (8_000, 48_000), 48_000)])
def test_lengths_are_rounded_up(given, rates, expected):
    assert resampled(np.ones((1, given), np.float32), *rates).shape == (1, expected)


@pytest.mark.parametrize(("frequency", "expected", "within"), [(100, 0, 0.001), (1_000, 0, 0.001), (7_000, 0, 0.01),
                                                               (7_500, -0.40, 0.02), (7_900, -52.9, 0.3)])
def test_levels_of_tones(frequency, expected, within):
    """Gains of soxr HQ from 44.1 to 16 kHz, measured on its own."""
    assert level(frequency) == pytest.approx(expected, abs=within)


@pytest.mark.parametrize("frequency", [8_100, 9_000, 12_000, 15_000, 17_000, 20_000])
def test_nothing_folds_down(frequency):
    assert level(frequency) < -130


def level(frequency, rates=(44_100, 16_000)):
    """Decibels by which a tone is louder after than before, beside its beginning and end."""
    made = resampled(sine(frequency, 2.0, rates[0])[None], *rates)[0, rates[1] // 4:-rates[1] // 4]
    return 20 * math.log10(max(1e-10, math.sqrt(2 * np.mean(made.astype(float) ** 2)) / 0.5))


def test_the_first_sample_stays_in_its_place():
    tone = sine(300, 1.0, 48_000)
    made = resampled(tone[None], 48_000, 16_000)[0]
    assert np.abs(made[500:-500] - tone[::3][500:-500]).max() < 1e-5


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=8), st.sampled_from([(44_100, 16_000), (8_000, 24_000), (48_000, 44_100)]),
       st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_blocks_join_to_the_bit(sizes, rates, channels):
    whole = np.stack([noise(1.0, sum(sizes), seed=c) if sum(sizes) else np.zeros(0, np.float32) for c in range(channels)])
    stream = Resampler(*rates, channels)
    cuts = np.cumsum([0, *sizes])
    made = [stream.add(whole[:, a:b]) for a, b in pairwise(cuts)]
    joined = np.concatenate([*made, stream.finish()], axis=1)
    assert joined.shape == (channels, math.ceil(sum(sizes) * rates[1] / rates[0]))
    assert (joined == resampled(whole, *rates)).all()


def test_the_stage():
    batch = recordings(sine(440), None, np.stack([sine(440), sine(880)]), np.zeros(0))
    out = run_stage(Resample(rate=8_000), batch)["out"]
    assert [None if s is None else s.shape for s in out.samples] == [(1, 8_000), None, (2, 8_000), (1, 0)]
    assert all(s.dtype == np.float32 for s in out.samples if s is not None)
    assert out.column("sample_rate") == [8_000, None, 8_000, 8_000]
    assert out.column("duration") == [1.0, None, 1.0, 0.0]
    check_stage(Resample(rate=8_000), batch)


def test_equal_rates_are_left_alone():
    batch = recordings(sine(440))
    assert run_stage(Resample(), batch)["out"].samples[0] is not None
    assert resampled(batch.samples[0], 16_000, 16_000) is batch.samples[0]


def test_an_impossible_rate_fails():
    batch = recordings(sine(440), sine(440), None).with_columns({"sample_rate": pa.array([0, 16_000, None], pa.int32())})
    outputs = run_stage(Resample(), batch)
    assert outputs["failed"].column("error") == ["impossible sample rate: 0 Hz"]
    assert outputs["out"].column("id") == ["1", "2"]
    with pytest.raises(ValueError, match="rate is in Hz"):
        Resample(rate=16)


def test_what_is_heard_of_channels_is_their_mean_or_the_loudest_where_they_cancel():
    left, right = sine(440, 0.5, amplitude=0.5), sine(660, 0.5, amplitude=0.2)
    assert np.allclose(mono_at(np.stack([left, right]), 16_000, 16_000), (left + right) / 2, atol=1e-6)
    assert np.array_equal(mono_at(np.stack([-left * np.float32(0.99), left]), 16_000, 16_000), left)
    assert np.array_equal(mono_at(left[None], 16_000, 16_000), left)
    high = mono_at(np.stack([sine(9_000, 0.5, 48_000)] * 2), 48_000, 16_000)  # would be a tone of 7 kHz
    assert (high.shape, high.dtype) == ((8_000,), np.float32)
    assert np.abs(high[200:-200]).max() < 1e-4
