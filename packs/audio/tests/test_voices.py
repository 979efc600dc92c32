"""Speakers: clusters of voices, turns, RTTM."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from curator_audio import Diarise, EmbedSpeaker, Rttm, Speakers
from curator_audio.voices import clusters as module
from curator_audio.voices.clusters import clusters
from curator_audio.voices.speakers import owned, spread
from curator_audio.voices.turns import Turn, merged, overlap_s, read_rttm, rttm_line
from hypothesis import given
from hypothesis import strategies as st

from curator import Context, CuratorError, InputError
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, sine

TURNS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.sampled_from("ab")), max_size=6).map(
    lambda found: [Turn(start / 4, (start + length) / 4, who) for start, length, who in found])


def voices(sigma: float, seed: int = 0) -> np.ndarray:
    """100 vectors of four speakers in turn: a random direction each, and noise in all 192."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((4, 192))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    made = np.tile(centres, (25, 1)) + sigma * random.standard_normal((100, 192))
    return made / np.linalg.norm(made, axis=1, keepdims=True)


# Voices of one speaker have a mean cosine of 1 / (1 + 192 sigma^2): 0.85, 0.68, 0.52. Which cut parts them rests on that.
@pytest.mark.parametrize(("sigma", "counts"), [(.03, (4, 4, 4)), (.05, (None, 4, 4)), (.07, (100, None, 4))])
def test_speakers_are_told_apart(sigma, counts):
    for distance, wanted in zip((.3, .5, .7), counts, strict=True):
        found = clusters(voices(sigma), distance)
        if wanted is not None:
            assert found.max() + 1 == wanted
        if wanted == 4:
            assert (found == np.tile([0, 1, 2, 3], 25)).all()


def naive(vectors, distance):
    """Average linkage as it is defined."""
    groups = [[at] for at in range(len(vectors))]
    apart = 1 - vectors @ vectors.T
    while len(groups) > 1:
        least, one, other = min((apart[np.ix_(a, b)].mean(), i, j) for (i, a), (j, b) in itertools.combinations(enumerate(groups), 2))
        if least > distance:
            break
        groups[one] += groups.pop(other)
    labels = np.empty(len(vectors), int)
    for number, group in enumerate(sorted(groups, key=min)):
        labels[group] = number
    return labels


@given(st.integers(0, 10 ** 6), st.integers(1, 9), st.floats(.1, 1.5))
def test_clusters_are_those_of_average_linkage(seed, many, distance):
    vectors = np.random.default_rng(seed).standard_normal((many, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert (clusters(vectors, distance) == naive(vectors, distance)).all()


def test_of_very_many_voices_some_stand_for_all(monkeypatch):
    monkeypatch.setattr(module, "EXACT", 40)
    assert (clusters(voices(.03), .5) == np.tile([0, 1, 2, 3], 25)).all()
    assert len(clusters(np.zeros((0, 3)), .5)) == 0


@given(TURNS)
def test_merged_turns_cover_what_the_turns_cover(turns):
    found = merged(turns, 0.0)
    ticks = np.arange(0, 16, .25) + .125
    for who in "ab":
        def said(of, who=who):
            return [any(turn.start <= at < turn.end and turn.speaker == who for turn in of) for at in ticks]
        assert said(found) == said(turns)
    both = [len([turn for turn in turns if turn.start <= at < turn.end]) > 1 for at in ticks]
    assert overlap_s(turns) == pytest.approx(.25 * sum(both))


@given(TURNS)
def test_an_rttm_says_what_was_written(turns):
    text = "; a comment\nSPKR-INFO x\n" + "".join(rttm_line("my file", turn) for turn in turns)
    found = read_rttm(text, "a.rttm").get("my_file", [])
    assert sorted(found, key=str) == sorted(turns, key=str)  # quarters of a second are exact in three digits


def test_windows_cover_a_span_and_share_it_out():
    spans = spread(1.0, 4.0, 1.5, .75)
    assert spans == [(1.0, 2.5), (1.75, 3.25), (2.5, 4.0)]
    assert owned(spans) == [(1.0, 2.125), (2.125, 2.875), (2.875, 4.0)]
    assert spread(0, 1, 1.5, .75) == [(0, 1)]


def answers(stage, given_batch):
    stage.setup(Context())
    return stage.process(given_batch).rows.to_pylist()


def test_turns_come_from_rttm_files(tmp_path):
    (tmp_path / "a.rttm").write_text("SPEAKER call 1 0.50 2.00 <NA> <NA> ann <NA> <NA>\nSPEAKER call 1 2.00 1.50 <NA> <NA> bob <NA> <NA>\n")
    rows = pa.table({"id": ["whole", "part", "other"], "source": ["/x/call.wav", "/x/call.wav", "/x/none.flac"],
                     "start_s": [0.0, 1.0, 0.0], "end_s": [10.0, 2.25, 3.0]})
    whole, part, other = answers(Rttm(path=str(tmp_path)), recordings(None).__class__(rows=rows))
    assert whole["turns"] == [{"start": .5, "end": 2.5, "speaker": "ann"}, {"start": 2.0, "end": 3.5, "speaker": "bob"}]
    assert (whole["speaker_count"], whole["overlap_s"]) == (2, pytest.approx(.5))
    assert part["turns"] == [{"start": 0, "end": 1.25, "speaker": "ann"}, {"start": 1.0, "end": 1.25, "speaker": "bob"}]
    assert (other["turns"], other["speaker_count"]) == (None, None)
    with pytest.raises(InputError, match=r"bad\.rttm, line 2.*SPEAKER call"):
        read_rttm("\nSPEAKER call 1 x\n", "bad.rttm")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("transformers")
    from packs.audio.tests.tiny_listeners import voice

    return voice(tmp_path_factory.mktemp("voice"))


def test_a_voice_is_a_vector_that_rests_on_its_record_alone(model):
    stage = EmbedSpeaker(model=model, longest_s=1)
    long, none, short, other = answers(stage, recordings(noise(3), None, noise(.2), sine(200, .8)))
    assert np.linalg.norm(long["speaker_embedding"]) == pytest.approx(1, abs=1e-5)
    assert (none["speaker_embedding"], short["speaker_embedding"]) == (None, None)
    alone, = answers(stage, recordings(sine(200, .8)))
    assert alone["speaker_embedding"] == pytest.approx(other["speaker_embedding"], abs=1e-5)
    middle, = answers(stage, recordings(noise(3)[16_000:32_000]))
    assert middle["speaker_embedding"] == pytest.approx(long["speaker_embedding"], abs=1e-5)


def test_turns_lie_in_speech(model):
    speech = [[{"start": .5, "end": 4.5}], [], None, None]
    given_batch = recordings(noise(5), noise(2), sine(200, 1), None,
                             speech=pa.array(speech, pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64()}))))
    first, quiet, unknown, none = answers(Speakers(model=model, distance=2), given_batch)
    assert first["turns"] == [{"start": .5, "end": 4.5, "speaker": "s0"}]
    assert (first["speaker_count"], 0 < first["speaker_purity"] <= 1) == (1, True)
    several, = answers(Speakers(model=model, distance=0), given_batch.slice(0, 1))
    assert several["speaker_count"] == len({turn["speaker"] for turn in several["turns"]}) > 1
    assert several["turns"][0]["start"], several["turns"][-1]["end"] == (.5, 4.5)
    for row in (quiet, unknown):
        assert (row["turns"], row["speaker_count"], row["speaker_purity"]) == ([], 0, None)
    assert (none["turns"], none["speaker_count"]) == (None, None)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    pytest.importorskip("transformers")
    from packs.audio.tests.tiny_listeners import diariser

    return diariser(tmp_path_factory.mktemp("diariser"))


def test_frames_become_turns():
    stage = Diarise(model="m", min_s=.25, gap_s=.25)
    chances = np.zeros((40, 2))  # of 0.1 s
    chances[5:15, 1] = chances[17:20, 1] = chances[12:30, 0] = chances[35:36, 0] = .9
    assert [(turn.start, turn.end, turn.speaker) for turn in stage._turns(chances, 4.0)] == [
        (pytest.approx(.5), pytest.approx(2.0), "s0"), (pytest.approx(1.2), pytest.approx(3.0), "s1")]


def test_a_diarisation_model_answers_as_transformers_does(pair):
    import torch
    import transformers

    first, none, long = answers(Diarise(model=pair, longest_s=3, min_s=0, gap_s=0), recordings(noise(2), None, noise(4)))
    assert (none["turns"], long["turns"]) == (None, None)
    model = transformers.WavLMForAudioFrameClassification.from_pretrained(pair).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(pair)
    with torch.inference_mode():
        talks = model(**extractor(noise(2), sampling_rate=16_000, return_tensors="pt")).logits[0].sigmoid().numpy() >= .5
    seconds = sum(turn["end"] - turn["start"] for turn in first["turns"])
    assert seconds == pytest.approx(talks.sum() * 2 / len(talks), abs=1e-6)
    assert first["speaker_count"] == talks.any(axis=0).sum()
    assert first["overlap_s"] == pytest.approx(talks.all(axis=1).sum() * 2 / len(talks), abs=1e-6)


def test_what_cannot_be_is_refused(model, tmp_path):
    for make, message in ((lambda: Speakers(model="m", hop_s=2), "hop_s"), (lambda: Speakers(model="m", distance=3), "distance"),
                          (lambda: EmbedSpeaker(model="m", longest_s=.1), "longest_s")):
        with pytest.raises(ValueError, match=message):
            make()
    from packs.audio.tests.tiny_listeners import tagger

    with pytest.raises(CuratorError, match="no voices"):
        EmbedSpeaker(model=tagger(tmp_path)).setup(Context())
    with pytest.raises(CuratorError, match="tells no speakers"):
        Diarise(model=tagger(tmp_path)).setup(Context())


def test_the_stages_keep_the_rules_of_a_pack(tmp_path):
    (tmp_path / "a.rttm").write_text("SPEAKER 0 1 0.50 2.00 <NA> <NA> ann <NA> <NA>\n")
    check_stage(Rttm(path=str(tmp_path / "*.rttm")), recordings(noise(.1), None, sine(300, .1)))


@pytest.mark.slow  # torch answers as often as the kit asks
def test_the_models_keep_the_rules_of_a_pack(model, pair):
    spans = pa.array([[{"start": 0, "end": 1}], [], None], pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64()})))
    given_batch = recordings(noise(1.2), sine(200, .7), None, speech=spans)
    check_stage(EmbedSpeaker(model=model), given_batch, tolerance=1e-2)
    check_stage(Speakers(model=model), given_batch, tolerance=1e-2)
    check_stage(Diarise(model=pair), given_batch, tolerance=1e-2)
