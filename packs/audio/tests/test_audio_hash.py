"""The hash of a sound: one for all exact containers, another for every other sound."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from curator_audio.copies.hash import Hash, audio_hash
from curator_audio.read.decode import Decode
from curator_audio.sound.pcm import pcm16
from hypothesis import given
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.sound_files import by_soundfile, files

RATE = 16_000
WHOLE = np.rint(16384 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.int16)


def test_the_samples_are_those_of_the_known_signal():
    """SHA-256 of this signal, int16, little endian."""
    assert hashlib.sha256(WHOLE.tobytes()).hexdigest().startswith("14b94160add0b561")
    assert hashlib.sha256(WHOLE.tobytes()).hexdigest().endswith("087759")
    assert (pcm16(WHOLE[None].astype(np.float32) / 32768)[:, 0] == WHOLE).all()


def test_one_hash_for_all_exact_containers():
    stereo = np.stack([WHOLE, WHOLE[::-1]])
    kinds = [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("AIFF", "PCM_16"), ("AU", "PCM_16"),
             ("CAF", "PCM_16"), ("W64", "PCM_16"), ("CAF", "ALAC_16")]
    data = [by_soundfile(stereo, RATE, *kind) for kind in kinds]
    data.append(by_soundfile(stereo.astype(np.float32) / 32768, RATE, "WAV", "FLOAT"))
    out = run_stage(Hash(), run_stage(Decode(channel="all"), files(*data))["out"])["out"]
    pcm = np.ascontiguousarray(stereo.T).astype("<i2").tobytes() + np.array([RATE, 2], "<u4").tobytes()
    assert set(out.column("audio_hash")) == {hashlib.sha256(pcm).hexdigest()}


def test_another_sound_has_another_hash():
    tone = sine(440)
    others = [tone, tone[:-1], tone * 0.99, tone[::-1], np.stack([tone, tone]), noise()]
    hashes = [audio_hash(np.atleast_2d(one), RATE) for one in others] + [audio_hash(tone[None], 8_000)]
    assert len(set(hashes)) == len(hashes)


@given(st.integers(0, 40) | st.integers(65_500, 66_000), st.integers(0, 40) | st.integers(131_000, 132_000), st.integers(1, 200_000))
def test_trim_takes_padding_away(before, after, length):
    sound = np.abs(noise(1.0, length, seed=length)) + 0.01
    padded = np.pad(sound, (before, after))[None]
    assert audio_hash(padded, RATE, trim=True) == audio_hash(sound[None], RATE)
    assert (audio_hash(padded, RATE) == audio_hash(sound[None], RATE)) == (before + after == 0)


def test_what_has_no_hash():
    silence = np.zeros((1, 100), np.float32)
    assert audio_hash(silence, RATE) is not None
    assert audio_hash(silence, RATE, trim=True) is None
    assert audio_hash(silence[:, :0], RATE) is None
    assert audio_hash(0.4 / 32768 + silence, RATE, trim=True) is None
    assert audio_hash(0.6 / 32768 + silence, RATE, trim=True) is not None


def test_loud_floats_clip():
    assert audio_hash(np.full((1, 9), 5.0, np.float32), RATE) == audio_hash(np.full((1, 9), 1.0, np.float32), RATE)


@pytest.mark.parametrize("trim", [False, True])
def test_the_stage_keeps_its_contract(trim):
    check_stage(Hash(trim=trim), recordings(sine(440), None, np.stack([noise(), noise(seed=1)]), np.zeros(0), np.pad(sine(440), 50)))
