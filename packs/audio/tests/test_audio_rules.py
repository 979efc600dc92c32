"""The packaged rule sets: each rule drops a recording damaged for it, and clean ones stay."""

from __future__ import annotations

from pathlib import Path

import curator_audio
import numpy as np
import pyarrow as pa
import pytest
from curator_audio.measures.signals import COLUMNS, Signals

from curator.registry import packs
from curator.stages.drop import Drop
from curator.stages.rules import load_rules
from curator.testing import run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.speech_like import in_a_room, speech_like

FOLDER = Path(curator_audio.__file__).parent / "rules"
SETS = ("quality", "speech", "speech-over-music", "tts")
OF_DECODING = {"duration", "sample_rate", "source_rate", "decode_note"}
RATE = 24_000
CLEAN = speech_like(6.0, RATE, seed=2)


def reasons(name, *samples, rate=RATE, notes=None):
    """Why each recording is dropped by a rule set, None if it stays."""
    batch = recordings(*samples, rate=rate, decode_note=pa.array(notes or [None] * len(samples), pa.string()))
    batch = batch.with_columns({"source_rate": batch.rows.column("sample_rate")})
    scored = run_stage(Signals(), batch)["out"]
    dropped = Drop(rules=str(FOLDER / f"{name}.yaml")).process(scored)["dropped"]
    found = dict(zip(dropped.column("id"), dropped.column("reason"), strict=True))
    return [found.get(i) for i in scored.column("id")]


def limited(samples, hertz, rate=RATE):
    spectrum = np.fft.rfft(samples)
    spectrum[np.fft.rfftfreq(len(samples), 1 / rate) > hertz] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def with_gaps(samples, every=3000, length=480):
    """Packets of 20 ms lost where there is sound."""
    damaged = samples.copy()
    for at in range(every, len(samples) - every, every):
        if np.mean(np.square(samples[at - 240 : at])) > 1e-3:
            damaged[at : at + length] = 0
    return damaged


def chords(seconds=6.0):
    return sum(sine(f, seconds, RATE, 0.1) * (1 + 0.2 * np.sin(np.arange(round(seconds * RATE)) / RATE * 2)) for f in (220, 277, 330))


def hum(level):
    return np.sum([sine(50 * k, 6.0, RATE, level / k) for k in (1, 2, 3)], axis=0).astype(np.float32)


def test_the_rule_sets_are_the_files():
    assert {path.stem for path in FOLDER.glob("*.yaml")} >= set(SETS)
    assert [load_rules(str(FOLDER / f"{name}.yaml")).name for name in SETS] == list(SETS)


@pytest.mark.parametrize("name", SETS)
def test_every_rule_names_its_source_and_reads_scores_only(name):
    rules = load_rules(str(FOLDER / f"{name}.yaml"))
    assert rules.source
    assert rules.description
    assert all(rule.source for rule in rules.rules)
    assert set(Drop(rules=str(FOLDER / f"{name}.yaml")).contract().needs) <= {*COLUMNS, *OF_DECODING}


@pytest.mark.parametrize("name", SETS)
def test_rule_sets_are_found_by_name_where_the_pack_is_installed(name):
    assert Path(packs.resource("rules", f"audio/{name}")).name == f"{name}.yaml"


@pytest.mark.parametrize("name", SETS)
def test_clean_speech_passes(name):
    others = [CLEAN + noise(6.0, RATE, -60), 0.5 * CLEAN, CLEAN / np.abs(CLEAN).max(), np.stack([CLEAN, 0.5 * CLEAN])]
    assert reasons(name, CLEAN, speech_like(8.0, RATE, seed=3), *others) == [None] * 6


def test_other_sounds_pass_quality():
    sounds = [chords(), noise(2.0, RATE), limited(noise(2.0, RATE), 2000), noise(0.2, RATE), sine(1000, 1.0, RATE)]
    assert reasons("quality", *sounds) == [None] * 5


QUALITY = {
    "short": CLEAN[:2000],
    "silent": np.concatenate([CLEAN[3000:5000], noise(6.0, RATE, -70)]),
    "zeros": np.concatenate([CLEAN, np.zeros(8 * RATE, np.float32)]),
    "clipped": np.clip(6 * CLEAN, -1, 1),
    "offset": CLEAN + 0.05,
    "gaps": with_gaps(CLEAN),
    "cancels": np.stack([CLEAN, -CLEAN + noise(6.0, RATE, -60)]),
}


@pytest.mark.parametrize("reason", QUALITY)
def test_each_rule_of_quality_drops_what_it_is_for(reason):
    assert reasons("quality", QUALITY[reason]) == [reason]


def test_quality_looks_at_the_file_and_its_rate():
    assert reasons("quality", CLEAN, CLEAN, CLEAN, notes=["truncated", "truncated, format_changes", "damaged"]) == ["damaged"] * 3
    assert reasons("quality", CLEAN, rate=11_025) == ["low_rate"]
    full = noise(2.0, 48_000)
    assert reasons("quality", full, limited(full, 8000, 48_000), rate=48_000) == [None, "upsampled"]


SPEECH = {
    "silent": np.concatenate([CLEAN[3000:9000], noise(6.0, RATE, -70)]),
    "zeros": np.concatenate([CLEAN, noise(4.0, RATE, -40), np.zeros(11 * RATE, np.float32)]),
    "quiet": 0.004 * speech_like(6.0, RATE, seed=2, floor_db=-120) + 0.0001 * sine(1000, 6.0, RATE),
    "clipped": np.clip(3 * CLEAN, -1, 1),
    "offset": CLEAN - 0.03,
    "gaps": with_gaps(CLEAN),
    "narrow": limited(CLEAN, 3000),
    "music": chords(),
    "noisy": CLEAN + noise(6.0, RATE, -27),
    "hum": CLEAN + hum(0.02),
}


@pytest.mark.parametrize("reason", SPEECH)
def test_each_rule_of_speech_drops_what_it_is_for(reason):
    assert reasons("speech", SPEECH[reason]) == [reason]


def test_speech_over_music_stays_where_the_recipe_says_so_and_noise_goes():
    over = CLEAN + 0.4 * chords()
    assert reasons("speech", over) == ["music"]
    assert reasons("speech-over-music", over, CLEAN + noise(6.0, RATE, -10)) == [None, "drowned"]
    for reason in SPEECH.keys() - {"music", "noisy", "hum"}:
        assert reasons("speech-over-music", SPEECH[reason]) == [reason]


def test_telephone_speech_is_speech():
    assert reasons("speech", speech_like(6.0, 8_000, seed=2), rate=8_000) == [None]


TTS = {
    "length": CLEAN[: 2 * RATE],
    "narrow": limited(CLEAN, 8000),
    "noisy": CLEAN + noise(6.0, RATE, -38),
    "reverberant": in_a_room(speech_like(6.0, RATE, seed=1), 0.7, RATE),
    "clipped": np.clip(2.2 * CLEAN, -1, 1),
    "gaps": with_gaps(CLEAN),
    "mostly_silent": np.concatenate([CLEAN, noise(9.0, RATE, -80)]),
}


@pytest.mark.parametrize("reason", TTS)
def test_each_rule_of_tts_drops_what_it_is_for(reason):
    assert reasons("tts", TTS[reason]) == [reason]


def test_tts_wants_a_rate_and_a_bandwidth_of_its_own():
    assert reasons("tts", speech_like(6.0, 16_000), rate=16_000) == ["low_rate"]
    wide = speech_like(6.0, 48_000, seed=2) + noise(6.0, 48_000, -65)
    assert reasons("tts", limited(wide, 11_000, 48_000), rate=48_000) == ["narrow"]


def test_what_has_no_scores_is_judged_by_its_length():
    assert reasons("quality", None, np.zeros(0), np.zeros(6 * RATE)) == [None, "short", "silent"]
    assert reasons("speech", None, np.zeros(0), np.zeros(6 * RATE)) == [None, None, "silent"]
