"""Times of what is said: what Whisper and CTC models say of them, held against transformers' own answers."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from curator_audio import Transcribe

from curator import Context, CuratorError
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, voice
from packs.audio.tests.tiny_recognisers import ctc, whisper

pytest.importorskip("transformers")
TOKENS = 16


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timed")
    return {"whisper": whisper(folder / "whisper", seed=2), "ctc": ctc(folder / "ctc")}


@pytest.fixture(scope="module")
def talk():
    """Longer than what Whisper hears at once, shorter, and none."""
    return recordings(np.concatenate([voice(31, seed=1), noise(9, seed=2)]), noise(3), None)


@pytest.fixture(scope="module")
def found(models, talk):
    return {mode: answers(models["whisper"], talk, mode) for mode in ("segments", "words")}


def answers(model, given, mode, **options):
    stage = Transcribe(model=model, timestamps=mode, max_new_tokens=TOKENS, **options)
    stage.setup(Context())
    return stage.process(given)["out"].rows.to_pylist()


def of_transformers(folder, samples, language):
    """Segments with the times of their tokens, of a record that is heard to its end and beyond."""
    import transformers

    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    inputs = processor(samples[0], sampling_rate=16_000, return_tensors="pt", truncation=False, padding="longest",
                       return_attention_mask=True)
    made = model.generate(inputs.input_features, attention_mask=inputs.attention_mask, language=language, task="transcribe",
                          max_new_tokens=TOKENS, return_timestamps=True, return_segments=True, return_token_timestamps=True)
    return [(float(one["start"]), float(one["end"]), processor.tokenizer.decode(one["tokens"], skip_special_tokens=True).strip(),
             one["token_timestamps"].tolist()) for one in made["segments"][0]]


def test_a_long_record_is_heard_as_transformers_hears_it(models, talk, found):
    row = found["words"][0]
    theirs = [one for one in of_transformers(models["whisper"], talk.samples[0], row["asr_language"]) if one[0] < 40 and one[2]]
    assert max(start for start, *_ in theirs) > 30
    assert len(theirs) > 3
    ours = row["asr_segments"]
    assert [one["text"] for one in ours] == [text for _, _, text, _ in theirs]
    assert [one["start"] for one in ours] == pytest.approx([start for start, *_ in theirs])
    assert [one["end"] for one in ours] == pytest.approx([min(end, 40) for _, end, *_ in theirs])
    times = {round(time, 3) for *_, some in theirs for time in some}
    assert {word["start"] for word in row["words"]} <= times
    assert {word["end"] for word in row["words"]} <= times
    assert [word["start"] for word in row["words"]][:3] == pytest.approx([some[1] for *_, some in theirs][:3])


def test_times_lie_in_the_record_and_tell_the_same_text(found, talk):
    for mode, rows in found.items():
        for row, seconds in zip(rows, talk.column("duration"), strict=True):
            if seconds is None:
                assert [row[name] for name in ("transcript", "asr_segments", "words", "avg_logprob")] == [None] * 4
                continue
            assert 0 < len(row["asr_segments"]) <= row["transcript"].count("") - 1
            assert row["avg_logprob"] < 0 <= row["no_speech"] <= 1
            squeezed = "".join(row["transcript"].split())
            assert "".join("".join(one["text"].split()) for one in row["asr_segments"]) == squeezed
            assert all(0 <= one["start"] <= one["end"] <= seconds for one in (*row["asr_segments"], *row["words"]))
            assert (row["words"] != []) == (mode == "words")
            if mode == "words":
                assert "".join("".join(one["word"].split()) for one in row["words"]) == squeezed
                assert all(word["score"] < 0 for word in row["words"])
    assert [row["asr_segments"] for row in found["words"]] == [row["asr_segments"] for row in found["segments"]]


@pytest.mark.parametrize("mode", ["segments", "words"])
def test_what_a_record_gets_does_not_rest_on_the_others(models, talk, found, mode):
    for at in (0, 1):
        alone, = answers(models["whisper"], talk.slice(at, at + 1), mode)
        for name in ("transcript", "asr_segments", "asr_language"):
            assert alone[name] == found[mode][at][name]
        assert [word["start"] for word in alone["words"]] == [word["start"] for word in found[mode][at]["words"]]


@pytest.mark.parametrize(("ticks", "spans", "moved"), [
    ([0, -1, -1, 100, 100, -1, 200, 200], [(0, 4, 0, 2), (4, 7, 2, 4)], 400),  # what begins at 4 s is heard again
    ([0, -1, 100, 110, -1, 200], [(0, 3, 0, 2), (3, 6, 2.2, 4)], 3000),  # silence behind the last
    ([0, -1, -1], [(0, 3, 0, 30)], 3000), ([50, -1, 100], [(0, 3, 0, 2)], 3000), ([], [], 3000),
    ([0, 0, -1], [(0, 1, 0, 0)], 3000)])  # nothing was heard, and it must go on
def test_timestamps_side_by_side_end_a_segment(ticks, spans, moved):
    from curator_audio.words.timed import segments_of

    assert segments_of(ticks, 3000) == (spans, moved)


@pytest.mark.parametrize(("text", "language", "expected"), [
    (" So it (was), 3.5!", "en", [" So", " it", " (was),", " 3.5!"]), ("今日は。", "ja", ["今", "日", "は。"]), (" žluť", "cs", [" žluť"])])
def test_tokens_become_words(models, text, language, expected):
    """Each letter of the tiny tokenizer is one to three tokens."""
    from curator_audio.words.load import load_recogniser

    model = load_recogniser(models["whisper"], Context(), timestamps="words")
    ids = model._processor.tokenizer(text, add_special_tokens=False).input_ids
    words = model._words(ids, range(5, 5 + len(ids)), language)
    assert [word for word, _, _ in words] == [word.strip() for word in expected]
    sizes = [len(model._processor.tokenizer(word, add_special_tokens=False).input_ids) for word in expected]
    assert [last - first + 1 for _, first, last in words] == sizes
    assert all(one[2] + 1 == other[1] for one, other in pairwise(words))


def test_words_of_a_ctc_model_are_where_its_tokenizer_finds_them(models):
    from curator_audio.words.load import load_recogniser

    model, chance = load_recogniser(models["ctc"], Context()), np.random.default_rng(0)
    for _ in range(50):
        best = chance.choice([0, 0, 0, 2, 2, 3, 4, 5, 6], 40)
        heard = model._heard(np.log(np.full((40, 9), 0.01) + 0.9 * (np.arange(9) == best[:, None])), 40 * 0.02)
        theirs = model.tokenizer.decode(best, output_word_offsets=True).word_offsets
        assert [(one["word"], one["start_offset"], one["end_offset"]) for one in theirs] == [
            (word.text, round(word.start / 0.02), round(word.end / 0.02)) for word in heard.words]
        assert [(one.text, one.start, one.end) for one in heard.segments] == [(heard.text, heard.words[0].start, heard.words[-1].end)]


def test_each_window_of_a_ctc_model_is_a_segment(models):
    row, = answers(models["ctc"], recordings(noise(33, level_db=-12)), "segments")
    first, second = row["asr_segments"]
    assert first["end"] <= second["start"]
    assert f"{first['text']} {second['text']}" == row["transcript"]
    assert (first["start"], second["end"]) == (row["words"][0]["start"], row["words"][-1]["end"])


def test_a_model_that_tells_no_times_is_named(models, tmp_path):
    import shutil

    folder = Path(shutil.copytree(models["whisper"], tmp_path / "other"))
    settings = json.loads((folder / "generation_config.json").read_text())
    for mode, missing in (("words", "alignment_heads"), ("segments", "no_timestamps_token_id")):
        del settings[missing]
        (folder / "generation_config.json").write_text(json.dumps(settings))
        with pytest.raises(CuratorError, match=missing):
            Transcribe(model=str(folder), timestamps=mode).setup(Context())
    with pytest.raises(ValueError, match="timestamps"):
        Transcribe(model="m", timestamps="letters")


@pytest.mark.slow  # torch answers as often as the kit asks
def test_the_stage_keeps_the_rules_of_a_pack(models):
    given = recordings(noise(1), None, voice(2))
    check_stage(Transcribe(model=models["whisper"], timestamps="words", max_new_tokens=4), given, tolerance=1e-2)
