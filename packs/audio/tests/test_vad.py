"""Voice activity: speech of known borders is found by each engine, at each level and rate; what is steady is none."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.cut import spans as sp
from curator_audio.cut.vad import Vad
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import CuratorError
from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine, voice

TRUTH = [(1.0, 2.5), (3.2, 4.0), (5.5, 8.0)]


def spoken(rate=16_000, floor_db=-60.0, seconds=9.0):
    """Bursts of voice at the places of TRUTH, over faint noise."""
    heard = noise(seconds, rate, floor_db)
    for start, end in TRUTH:
        burst = voice(end - start, rate)
        heard[round(start * rate):round(start * rate) + len(burst)] += burst
    return heard


def found(samples, rate=16_000, **options):
    return run_stage(Vad(**options), recordings(samples, rate=rate))["out"].rows.to_pylist()[0]


def spans(row):
    return [(span["start"], span["end"]) for span in row["speech"]]


def assert_near(row, truth, within=0.08):
    assert len(spans(row)) == len(truth), spans(row)
    assert np.abs(np.array(spans(row)) - np.array(truth)).max() <= within, spans(row)


# -- speech is found ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["webrtc", "energy"])
@pytest.mark.parametrize("gain", [1.0, 0.03, 1e-2])
def test_bursts_of_voice_at_any_level(engine, gain):
    row = found(spoken() * np.float32(gain), engine=engine)
    assert_near(row, TRUTH)
    assert row["speech_seconds"] == pytest.approx(4.8, abs=0.25)
    assert row["speech_ratio"] == pytest.approx(row["speech_seconds"] / 9, rel=1e-6)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_bursts_of_voice_at_any_rate(rate):
    assert_near(found(spoken(rate), rate), TRUTH)


@pytest.mark.parametrize("floor_db", [-40.0, -32.0])
def test_bursts_of_voice_over_hiss(floor_db):
    assert_near(found(spoken(floor_db=floor_db)), TRUTH, within=0.12)


def test_channels_are_mixed_and_do_not_cancel():
    left = spoken()
    assert_near(found(np.stack([left, np.zeros_like(left)])), TRUTH)
    assert_near(found(np.stack([left, -left])), TRUTH)


def test_what_is_above_8_khz_is_not_folded_down():
    """Noise between 9 and 24 kHz, louder than the voice, is not heard at 16 kHz."""
    spectrum = np.fft.rfft(noise(9.0, 48_000, -10.0))
    spectrum[: round(9_500 * 9.0)] = 0
    hiss = np.fft.irfft(spectrum).astype(np.float32)
    assert_near(found(spoken(48_000) + hiss, 48_000), TRUTH)


def test_longer_pauses_join_more():
    assert_near(found(spoken(), min_pause=1.0), [(1.0, 4.0), (5.5, 8.0)])
    assert_near(found(spoken(), min_speech=1.0), [TRUTH[0], TRUTH[2]])
    assert_near(found(spoken(), pad=0.3), [(0.7, 2.8), (2.9, 4.3), (5.2, 8.3)], within=0.12)


# -- what is none ---------------------------------------------------------------------------------------------------

STEADY = {
    "silence": np.zeros(80_000, np.float32), "constant": np.full(80_000, 0.1, np.float32), "hiss": noise(5.0),
    "faint hiss": noise(5.0, level_db=-60.0), "tone": sine(440, 5.0), "high tone": sine(4000, 5.0),
    "chord": sine(220, 5.0, amplitude=0.2) + sine(277, 5.0, amplitude=0.2) + sine(330, 5.0, amplitude=0.2),
    "empty": np.zeros(0, np.float32), "one sample": np.full(1, 0.5, np.float32),
}


@pytest.mark.parametrize("name", STEADY)
def test_a_record_without_speech_stays_with_nothing(name):
    row = found(STEADY[name])
    assert row["speech"] == []
    assert row["speech_seconds"] == 0
    assert row["speech_ratio"] == (None if name == "empty" else 0)


def test_without_the_gate_webrtc_calls_hiss_speech():
    assert found(STEADY["hiss"], gate_db=None)["speech_ratio"] > 0.9


# -- silero ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def silero():
    pytest.importorskip("onnxruntime")
    from curator_audio.cut import engines

    try:
        engines.silero_weights()
    except CuratorError:
        pytest.skip("the weights of silero-vad are not installed")
    return engines.Silero()


@pytest.mark.parametrize("name", [*STEADY, "clicks", "wavering noise"])
def test_silero_hears_no_speech_in_what_is_none(silero, name):
    clicks = np.zeros(80_000, np.float32)
    clicks[::8000] = 0.9
    wavering = noise(5.0) * (1 + sine(4.0, 5.0, amplitude=0.9))
    samples = (STEADY | {"clicks": clicks, "wavering noise": wavering})[name]
    assert found(samples, engine="silero", gate_db=None)["speech"] == []


def test_silero_carries_its_state_from_stretch_to_stretch(silero, monkeypatch):
    from curator_audio.cut import engines

    heard = spoken()
    whole = silero.scores(heard)
    assert whole.shape == (-(-len(heard) // 512),)
    assert silero.scores(heard[:0]).shape == (0,)
    monkeypatch.setattr(engines, "SILERO_FRAMES", 7)
    np.testing.assert_allclose(silero.scores(heard), whole, atol=2e-6)


SAY = """
import ctypes, sys, espeakng_loader, numpy
library, heard = ctypes.CDLL(espeakng_loader.get_library_path()), []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
def take(samples, count, events):
    heard.extend(samples[:count] if samples and count > 0 else [])
    return 0
rate = library.espeak_Initialize(1, 0, espeakng_loader.get_data_path().encode(), 0)
library.espeak_SetSynthCallback(take)
library.espeak_SetVoiceByName(b"en")
said = []
for text in sys.argv[2:]:
    heard.clear()
    library.espeak_Synth(text.encode(), len(text) + 1, 0, 1, 0, 1, None, None)
    library.espeak_Synchronize()
    said.append(numpy.array(heard, numpy.float32) / 32768)
numpy.savez(sys.argv[1], rate, *said)
"""
TEXTS = ("The quick brown fox jumps over the lazy dog.", "She sells sea shells by the sea shore.", "Good morning.")


@pytest.fixture(scope="module")
def read_aloud(tmp_path_factory):
    """Three sentences read by a machine at (1, 3.49), (4.99, 6.91) and (7.11, 7.77), in 9.8 s at 22,050 Hz."""
    pytest.importorskip("espeakng_loader")
    file = tmp_path_factory.mktemp("said") / "said.npz"
    subprocess.run([sys.executable, "-c", SAY, str(file), *TEXTS], check=True)  # it says the same in each process, not in each call
    rate, *said = np.load(file).values()
    pauses = [np.zeros(round(seconds * rate), np.float32) for seconds in (1.0, 1.5, 0.2, 2.0)]
    return np.concatenate([part for both in zip(pauses, [*said, pauses[0][:0]], strict=True) for part in both]), int(rate)


def test_sentences_read_aloud(read_aloud):
    """The last two are 0.2 s apart, which is less than their fading ends leave."""
    assert_near(found(*read_aloud), [(1, 3.45), (4.99, 7.77)], within=0.06)
    assert_near(found(*read_aloud, min_pause=0.1, gate_db=None), [(1, 3.55), (4.99, 7.02), (7.11, 7.86)], within=0.06)


def test_silero_answers_as_its_own_package(silero, read_aloud):
    row = found(*read_aloud, engine="silero", min_pause=0.1, gate_db=None)
    assert_near(row, [(1.026, 3.582), (5.058, 7.006), (7.106, 7.838)], within=0.001)  # silero-vad 6.2.3


# -- frames to spans ------------------------------------------------------------------------------------------------


def test_scores_hang_on_until_they_are_low():
    scores = np.array([0, 0.4, 0.6, 0.4, 0.2, 0.4, 0.9, 0.36, 0, 0], np.float32)
    assert sp.runs_of(sp.hysteresis(scores, 0.5, 0.35)).tolist() == [[2, 4], [6, 8]]


def test_common_parts():
    a, b = np.array([[0, 2], [3, 5], [7, 8]]), np.array([[1, 4], [4.5, 4.6], [8, 9]])
    assert sp.common(a, b).tolist() == [[1, 2], [3, 4], [4.5, 4.6]]
    assert sp.common(a, b[:0]).shape == (0, 2)


@given(st.lists(st.booleans(), max_size=80), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 0.5))
@settings(max_examples=60)
def test_spans_are_in_order_apart_and_within(flags, min_speech, min_pause, pad):
    duration = len(flags) * 0.03
    how = sp.Smoothing(0.5, 0.35, min_speech, min_pause, pad)
    made = sp.spans_of(np.array(flags, np.float32), 0.03, how, duration)
    flat = made.reshape(-1)
    assert made.shape[1] == 2
    assert (np.diff(flat) >= 0).all()
    assert not len(flat) or (flat[0] >= 0 and flat[-1] <= duration)


# -- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["webrtc", "energy"])
def test_keeps_the_rules(engine):
    check_stage(Vad(engine=engine), recordings(spoken()[:80_000], None, noise(1.0), np.zeros(0), sine(300)))


def test_silero_keeps_the_rules(silero):
    check_stage(Vad(engine="silero"), recordings(spoken()[:60_000], None, noise(1.0), np.zeros(0)))


def test_types_and_nulls():
    rows = run_stage(Vad(), recordings(None, sine(300)))["out"].rows
    assert rows.column("speech").type == sp.SPANS
    assert rows.column("speech").to_pylist() == [None, []]
    assert rows.column("speech_ratio").type == pa.float32()
    assert rows.column("speech_seconds").to_pylist() == [None, 0.0]


@pytest.mark.parametrize("options", [{"engine": "ears"}, {"mode": 4}, {"frame_ms": 15}, {"threshold": 1.0}, {"pad": -1},
                                     {"gate_db": -3.0}])
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Vad(**options)


def test_a_long_recording_needs_no_second_copy():
    heard = recordings(spoken(seconds=300.0), rate=16_000)
    stage = Vad()
    stage.setup(None)
    stage.process(heard)
    tracemalloc.start()
    stage.process(heard)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < heard.samples[0].nbytes / 2
