"""Recognition, languages and alignment with tiny random models: what comes in, what comes out, held against transformers' own answers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from curator_audio import Align, SpokenLanguage, Transcribe
from curator_audio.sound.waves import calls, windows
from curator_audio.words.align import fill_gaps

from curator import Context, CuratorError
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.tiny_recognisers import LANGUAGES, ctc, whisper

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recognisers")
    return {"whisper": whisper(folder / "whisper"), "ctc": ctc(folder / "ctc"), "unmasked": ctc(folder / "unmasked", mask=False)}


def batch(**columns):
    """Speech-like noise of several lengths, one of two channels, one of another rate's length, one without sound."""
    return recordings(noise(1.5, level_db=-12), None, sine(440, .9), np.stack([noise(1, seed=1), noise(1, seed=2)]), **columns)


def answers(stage, given):
    stage.setup(Context())
    out = stage.process(given)
    return (out["out"] if isinstance(out, dict) else out).rows.to_pylist()


def test_whisper_says_what_transformers_says(models):
    import torch
    import transformers

    given = batch()
    found = answers(Transcribe(model=models["whisper"], max_new_tokens=9), given)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(models["whisper"]).eval()
    processor = transformers.AutoProcessor.from_pretrained(models["whisper"])
    for row, samples in zip(found, given.samples, strict=True):
        if samples is None:
            assert [row[name] for name in ("transcript", "asr_language", "avg_logprob", "no_speech", "words")] == [None] * 5
            continue
        features = processor(samples.mean(axis=0), sampling_rate=16_000, return_tensors="pt").input_features
        language, = model.detect_language(features)
        assert row["asr_language"] == processor.tokenizer.decode(language).strip("<|>")
        ids = model.generate(features, language=row["asr_language"], task="transcribe", max_new_tokens=9)
        assert row["transcript"] == processor.batch_decode(ids, skip_special_tokens=True)[0].strip()
        with torch.inference_mode():
            begin = torch.tensor([[model.generation_config.decoder_start_token_id]])
            first = model(features, decoder_input_ids=begin).logits[0, -1].softmax(-1)
        silent, = processor.tokenizer.convert_tokens_to_ids(["<|nospeech|>"])
        assert row["no_speech"] == pytest.approx(float(first[silent]), rel=1e-3)
        assert row["avg_logprob"] < 0


def test_a_language_may_be_said_or_stand_in_a_column(models):
    given = recordings(noise(1), noise(1, seed=4), lang=pa.array(["ja", None], pa.string()))
    found = answers(Transcribe(model=models["whisper"], language="lang", max_new_tokens=3), given)
    assert found[0]["asr_language"] == "ja"
    assert found[1]["asr_language"] in LANGUAGES
    assert {row["asr_language"] for row in answers(Transcribe(model=models["whisper"], language="de", max_new_tokens=3), given)} == {"de"}


@pytest.mark.parametrize("kind", ["ctc", "unmasked"])
def test_a_ctc_model_says_what_its_tokenizer_reads_and_when(models, kind):
    import torch
    import transformers

    given = batch()
    found = answers(Transcribe(model=models[kind]), given)
    model = transformers.AutoModelForCTC.from_pretrained(models[kind]).eval()
    processor = transformers.AutoProcessor.from_pretrained(models[kind])
    for row, samples in zip(found, given.samples, strict=True):
        if samples is None:
            assert row["transcript"] is None
            continue
        inputs = processor(samples.mean(axis=0), sampling_rate=16_000, return_tensors="pt")
        with torch.inference_mode():
            ids = model(**inputs).logits.argmax(-1)
        assert row["transcript"].split() == processor.batch_decode(ids)[0].replace("<unk>", "").split()
        assert row["transcript"] == " ".join(word["word"] for word in row["words"])
        spans = [(word["start"], word["end"]) for word in row["words"]]
        assert all(0 <= start < end <= samples.shape[1] / 16_000 + 1e-9 for start, end in spans)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


@pytest.mark.parametrize("kind", ["whisper", "ctc", "unmasked"])
def test_what_a_record_gets_does_not_rest_on_the_others(models, kind):
    stage, given = Transcribe(model=models[kind], max_new_tokens=6), batch()
    together = answers(stage, given)
    for at, row in enumerate(together):
        alone = stage.process(given.slice(at, at + 1))["out"].rows.to_pylist()[0]
        assert alone["transcript"] == row["transcript"]
        if row["transcript"] is None:
            continue
        assert alone["avg_logprob"] == pytest.approx(row["avg_logprob"], rel=1e-4)


def test_long_records_are_heard_in_windows(models):
    long = np.concatenate([noise(26), np.zeros(1600, np.float32), noise(20, seed=5)])
    row, = answers(Transcribe(model=models["ctc"]), recordings(long))
    assert row["words"][-1]["end"] > 40
    assert row["transcript"]


def test_windows_end_where_it_is_quiet_and_lose_no_sample():
    rate = 1000
    wave = np.ones(70 * rate, np.float32)
    wave[27 * rate:27 * rate + 100] = 0
    spans = windows(wave, rate, 30)
    assert spans[0][0] == 0
    assert 27 * rate <= spans[0][1] <= 27 * rate + 100
    assert [stop for _, stop in spans[:-1]] == [start for start, _ in spans[1:]]
    assert spans[-1][1] == len(wave)
    assert max(stop - start for start, stop in spans) <= 30 * rate
    assert windows(wave[:0], rate, 30) == [(0, 0)]


def test_calls_hold_each_record_once_and_no_more_than_they_may():
    lengths = [5, 1, 9, 3, 3, 12, 0]
    groups = list(calls(lengths, 10))
    assert sorted(at for group in groups for at in group) == list(range(7))
    assert all(len(group) == 1 or len(group) * max(lengths[at] for at in group) <= 10 for group in groups)


def test_the_language_is_the_likeliest_of_all_windows(models):
    found = answers(SpokenLanguage(model=models["whisper"], windows=2), batch())
    assert [row["spoken_language"] in LANGUAGES for row in found] == [True, False, True, True]
    assert all(1 / 3 <= row["spoken_language_score"] <= 1 for row in found if row["spoken_language"])


def test_words_of_a_transcript_get_times_and_scores(models):
    texts = pa.array(["Abel, 42 cocoa!", "abc", "", "x y"], pa.string())
    first, no_sound, no_text, unknown = answers(Align(model=models["ctc"]), batch(text=texts))
    words = first["alignment"]
    assert [word["word"] for word in words] == ["Abel,", "42", "cocoa!"]
    assert [word["estimated"] for word in words] == [False, True, False]
    assert words[0]["end"] <= words[1]["start"] <= words[1]["end"] <= words[2]["start"] <= words[2]["end"] <= 1.5
    assert words[1]["score"] is None
    assert first["align_min"] == pytest.approx(min(words[0]["score"], words[2]["score"]))
    assert first["align_min"] <= first["align_score"] < 0
    for row in (no_sound, no_text, unknown):
        assert (row["alignment"], row["align_score"], row["align_min"]) == (None, None, None)


def test_words_without_a_time_share_what_is_between_their_neighbours():
    words = [{"start": None, "end": None}, {"start": 2.0, "end": 3.0}, {"start": None, "end": None}, {"start": None, "end": None}]
    fill_gaps(words, 5.0)
    assert [(word["start"], word["end"]) for word in words] == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_models_that_will_not_do_are_named(models, tmp_path):
    for stage, message in ((SpokenLanguage(model=models["ctc"]), "does not tell languages"),
                           (Align(model=models["whisper"]), "no CTC head"), (Transcribe(model="./nowhere"), "no folder")):
        with pytest.raises(CuratorError, match=message):
            stage.setup(Context())


@pytest.mark.parametrize(("stage", "message"), [
    (lambda: Transcribe(model="m", task="sing"), "task"), (lambda: Transcribe(model="m", seconds_per_batch=1), "seconds_per_batch"),
    (lambda: SpokenLanguage(model="m", windows=0), "windows"), (lambda: Align(model="m", longest_s=0), "longest_s")])
def test_nonsense_is_refused(stage, message):
    with pytest.raises(ValueError, match=message):
        stage()


@pytest.mark.slow  # torch answers as often as the kit asks
@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_the_stages_keep_the_rules_of_a_pack(models, kind):
    given = batch(text=pa.array(["abel", None, "co", "b b"], pa.string()))
    words = {"gpu"}  # those of a random model turn on the last digit
    check_stage(Transcribe(model=models[kind], max_new_tokens=3), given, tolerance=1e-2, skip=words)
    other = SpokenLanguage(model=models[kind]) if kind == "whisper" else Align(model=models[kind])
    check_stage(other, given, tolerance=1e-2)
