"""Fingerprints: copies are alike, others are not, and what has nothing that stands out has none."""

from __future__ import annotations

import io
from functools import cache

import av
import numpy as np
import pyarrow as pa
import pytest
import soxr
from curator_audio.copies import landmarks
from curator_audio.copies.fingerprint import Fingerprint
from curator_dedup import DedupNear
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.ngrams.hashing import mixed
from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine, voice

RATE = 16_000


@cache
def melody(seed, seconds=6.0, rate=RATE):
    """Notes at random times and pitches that die away, RMS about -20 dB."""
    chance = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    made = np.zeros(len(t))
    for start, pitch in zip(chance.uniform(0, seconds - 0.2, round(6 * seconds)), chance.uniform(150, 700, 1000), strict=False):
        first = round(start * rate)
        after = t[:rate][:len(t) - first]
        tone = sum(np.sin(2 * np.pi * pitch * harmonic * after) / harmonic for harmonic in (1, 2, 3))
        made[first:first + rate] += np.exp(-6 * after) * np.minimum(after / 0.01, 1) * tone
    return (0.1 * made / np.sqrt(np.mean(made**2))).astype(np.float32)


def mp3(samples, rate=RATE, bit_rate=48_000):
    """Encoded and decoded again."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=rate, layout="mono", format="fltp", bit_rate=bit_rate)
        for at in range(0, len(samples), 1152):
            frame = av.AudioFrame.from_ndarray(samples[None, at:at + 1152].copy(), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = rate, at
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as container:
        return np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])


def at_rate(samples, rate):
    return soxr.resample(samples, RATE, rate)


COPIES = {
    "quieter": lambda x: x * np.float32(0.1),
    "mp3": mp3,
    "noisy": lambda x: x + noise(len(x) / RATE, level_db=-40.0, seed=9),
    "narrow": lambda x: soxr.resample(at_rate(x, 8_000), 8_000, RATE),
    "late": lambda x: x[777:],
    "later": lambda x: x[RATE - 100:],
    "early": lambda x: np.concatenate([np.zeros(RATE - 333, np.float32), x]),
    "all": lambda x: mp3(x[5_555:] + noise(len(x[5_555:]) / RATE, level_db=-40.0, seed=8)),
}


def hashes(samples, rate=RATE):
    return landmarks.hashes_of(soxr.resample(samples, rate, landmarks.RATE).astype(np.float32))


def jaccard(a, b):
    both = len(np.intersect1d(a, b))
    return both / (len(a) + len(b) - both)


# -- copies and others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", COPIES)
def test_copies_are_alike(copy):
    for original in (melody(1), voice(6.0, seed=1)):
        assert jaccard(hashes(original), hashes(COPIES[copy](original))) > (0.3 if copy == "all" else 0.4)


def test_others_are_not():
    made = [hashes(melody(seed)) for seed in range(6)] + [hashes(voice(6.0, pitch=90 + 20 * seed, seed=seed)) for seed in range(6)]
    assert min(map(len, made)) > 300
    assert max(jaccard(a, b) for n, a in enumerate(made) for b in made[:n]) < 0.05


def test_a_piece_is_as_alike_as_it_is_long():
    original = melody(2, 12.0)
    assert jaccard(hashes(original), hashes(original[:6 * RATE])) == pytest.approx(0.5, abs=0.1)


def test_where_chunks_end_makes_no_difference(monkeypatch):
    original = melody(3)
    whole = hashes(original)
    monkeypatch.setattr(landmarks, "CHUNK", 100)
    assert np.array_equal(hashes(original), whole)


# -- the parts ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(0, 12))
@settings(max_examples=50)
def test_sliding_max(values, reach):
    expected = [max(values[max(0, n - reach):n + reach + 1]) for n in range(len(values))]
    assert landmarks.sliding_max(np.array(values), reach).tolist() == expected
    assert landmarks.sliding_max(np.array([values]), reach, axis=1).tolist() == [expected]


def test_pairs_are_of_later_peaks_within_reach():
    found = landmarks.Peaks(np.array([0, 0, 8, 300]), np.array([20, 30, 40, 50]))
    keys = [first << 40 | second << 20 | apart for first, second, apart in [(20, 40, 2), (30, 40, 2)]]
    assert landmarks.pairs(found).tolist() == mixed(np.array(keys, np.uint64)).tolist()


def test_a_peak_has_pairs_with_the_next_ten():
    found = landmarks.Peaks(np.arange(20) * 4, np.full(20, 99))
    assert len(landmarks.pairs(found)) == 10 * 10 + sum(range(10))


def test_agreeing_places_estimate_jaccard():
    chance = np.random.default_rng(0)
    a = mixed(chance.integers(0, 2**63, 3000).astype(np.uint64))
    for shared in (0, 500, 1500, 3000):
        b = np.concatenate([a[:shared], mixed(chance.integers(0, 2**63, 3000 - shared).astype(np.uint64))])
        same = (landmarks.minhash(a, 2048, 1) == landmarks.minhash(b, 2048, 1)).mean()
        assert same == pytest.approx(jaccard(a, b), abs=0.04)
    assert (landmarks.minhash(a, 64, 1) != landmarks.minhash(a, 64, 2)).all()
    assert np.array_equal(landmarks.minhash(a, 64, 1), landmarks.minhash(a[::-1], 64, 1))


# -- the stage ------------------------------------------------------------------------------------------------------

NOTHING = {"silence": np.zeros(48_000, np.float32), "empty": np.zeros(0, np.float32), "one": np.ones(1, np.float32),
           "tone": sine(440, 5.0), "hum": sine(50, 5.0) + sine(150, 5.0), "constant": np.full(80_000, 0.3, np.float32)}


@pytest.mark.parametrize("name", NOTHING)
def test_what_has_nothing_that_stands_out_has_no_fingerprint(name):
    found = run_stage(Fingerprint(), recordings(NOTHING[name]))["out"]
    assert found.column("minhash") == [None]
    assert found.column("fingerprint_count")[0] < 20


def test_columns_and_their_types():
    found = run_stage(Fingerprint(), recordings(melody(1), None))["out"]
    assert found.rows.schema.field("minhash").type == pa.list_(pa.uint32(), 112)
    assert found.rows.schema.field("fingerprint_count").type == pa.int32()
    assert found.column("fingerprint_count") == [len(hashes(melody(1))), None]
    assert [value is None for value in found.column("minhash")] == [False, True]


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_rate_and_channels_make_no_difference(rate):
    original = melody(4)
    other = at_rate(original, rate)
    both = [run_stage(Fingerprint(), made)["out"].column("minhash")[0]
            for made in (recordings(original), recordings(np.stack([other, other]), rate=rate))]
    assert np.mean(np.array(both[0]) == both[1]) > 0.8


def test_copies_are_found_and_others_left_alone():
    """Through `dedup.near`: all copies of two originals, none of the other recordings."""
    originals = [melody(5), voice(6.0, seed=5)]
    made = [*originals, *(COPIES[name](one) for one in originals for name in ("quieter", "mp3", "noisy", "later", "all")),
            melody(6), melody(7), voice(6.0, pitch=180, seed=6), *NOTHING.values(), *NOTHING.values()]
    found = run_stage(DedupNear(threshold=0.3), run_stage(Fingerprint(), recordings(*made))["out"])
    copies = dict(zip(found["duplicate"].column("id"), found["duplicate"].column("duplicate_of"), strict=True))
    assert set(copies) | {"0", "1"} == {str(n) for n in range(12)}
    assert {copies.get(str(n), "0") for n in (0, 2, 3, 4, 5, 6)} == {"0"}
    assert {copies.get(str(n), "1") for n in (1, 7, 8, 9, 10, 11)} == {"1"}


def test_keeps_the_rules():
    check_stage(Fingerprint(hashes=16), recordings(melody(1, 2.0), None, sine(300), voice(1.5), np.zeros(0)))


@pytest.mark.parametrize("parameters", [{"hashes": 0}, {"hashes": 5000}, {"min_count": 0}])
def test_nonsense_is_refused(parameters):
    with pytest.raises(ValueError, match="got"):
        Fingerprint(**parameters)
