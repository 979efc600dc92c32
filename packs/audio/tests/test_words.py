"""Transcripts compared, counted, and looked at for what nobody said."""

from __future__ import annotations

import importlib.util

import numpy as np
import pyarrow as pa
import pytest
from curator_audio import Hallucination, Rates, Wer
from curator_audio.words.compare import compare
from curator_audio.words.hallucination import compression_ratio, repeats
from curator_audio.words.normalize import basic, normalizer
from hypothesis import given
from hypothesis import strategies as st

from curator import Batch, Context, InputError
from curator.testing import check_stage

TEXTS = st.lists(st.sampled_from(["one", "two", "Three,", "four", "é", "5"]), max_size=9).map(" ".join)


def batch(**columns) -> Batch:
    size = len(next(iter(columns.values())))
    ids = pa.array([str(n) for n in range(size)], pa.string())
    return Batch(rows=pa.table({"id": ids, "source": ids, **columns}))


def done(stage, given: Batch) -> dict[str, list]:
    stage.setup(Context())
    return stage.process(given).rows.to_pydict()


def texts(*values):
    return pa.array(values, pa.string())


# Worked out by hand, and the same as jiwer 4.0 gives (test below); edges are the first and last 12 characters.
@pytest.mark.parametrize(("reference", "hypothesis", "wrong", "wer", "cer", "start", "end"), [
    ("the cat", "the dog", 1, .5, 3 / 7, 3 / 7, 3 / 7),
    ("a b c", "a x c", 1, 1 / 3, .2, .2, .2),
    ("hello world", "helloworld", 2, 1, 1 / 11, 1 / 11, 1 / 11),
    ("the cat sat on the mat", "the cat sat on mat the", 2, 1 / 3, 6 / 22, 0, .5),
    ("one two three four", "zero one two three four five", 2, .5, 10 / 18, 10 / 12, 10 / 12),
    ("今天天气很好", "今天天很好", 1, 1 / 6, 1 / 6, 1 / 6, 1 / 6),
    ("", "", 0, 0, 0, 0, 0),
    ("", "a b", 2, None, None, None, None),
    ("a b", "", 2, 1, 1, 1, 1),
])
def test_errors_of_known_pairs(reference, hypothesis, wrong, wer, cer, start, end):
    found = compare(reference, hypothesis)
    assert found.words_wrong == wrong
    assert (found.wer, found.cer, found.edge_start, found.edge_end) == pytest.approx((wer, cer, start, end))


@given(TEXTS, TEXTS)
def test_errors_add_up(a, b):
    found = compare(a, b)
    words = a.split()
    if words:
        assert found.wer == pytest.approx(found.words_wrong / len(words))
        right = found.match_rate * len(words)
        assert right + found.substitutions + found.deletions == pytest.approx(len(words))
        assert right + found.substitutions + found.insertions == pytest.approx(len(b.split()))
    assert found.longest_run <= max(len(words), len(b.split()))
    assert (found.words_wrong == 0) == (words == b.split())
    assert compare(b, a).words_wrong == found.words_wrong


@given(TEXTS.filter(str.strip), TEXTS)
def test_rates_are_those_of_jiwer(a, b):
    jiwer = pytest.importorskip("jiwer")
    found = compare(a, b)
    assert found.wer == pytest.approx(jiwer.wer(a, b))
    assert found.cer == pytest.approx(jiwer.cer(a, b))


def test_the_longest_run_counts_words_wrong_one_after_the_other():
    assert compare("a b c d e f", "a x y d z f").longest_run == 2
    assert compare("a b", "a 1 2 3 4 5 b").longest_run == 5
    assert compare("a b c", "a b c").longest_run == 0


def test_wer_compares_without_case_and_punctuation_and_says_what_these_would_cost():
    given = batch(text=texts("Hello, World!", "It’s -- five", None, "Ünïcode"), pred_text=texts("hello world", "it's five", "x", None))
    found = done(Wer(), given)
    assert found["wer"] == [0, 0, None, None]
    assert found["written_wer"][:2] == [1, pytest.approx(2 / 3)]
    assert found["wer_errors"] == [0, 0, None, None]


def test_wer_leaves_out_fillers():
    given = batch(text=texts("well um I think"), pred_text=texts("well i think"))
    assert done(Wer(), given)["wer"] == [0.25]
    assert done(Wer(fillers=["um", "uh"]), given)["wer"] == [0]


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_whispers_normaliser_knows_contractions_and_numbers():
    same = normalizer("whisper_en")
    assert same("I can't pay twenty dollars") == same("i can not pay $20")


def test_basic_keeps_apostrophes_inside_words_and_letters_of_all_scripts():
    assert basic("  Don’t 'quote'  naïve—café… 42% ") == "don't quote naïve café 42"
    assert basic("Ｆｕｌｌ, Привет! 你好。") == "full привет 你好"


def test_rates():
    given = batch(text=texts("Hello, world 42", "", None, "你好 吗"), duration=pa.array([2.0, 4.0, 1.0, 0.0]))
    found = done(Rates(), given)
    assert found["char_count"] == [12, 0, None, 3]
    assert found["word_count"] == [3, 0, None, 2]
    assert found["char_rate"] == [6, 0, None, None]
    assert found["word_rate"] == [1.5, 0, None, None]
    assert found["seconds_per_char"][0] == pytest.approx(1 / 6)
    assert found["seconds_per_char"][1:] == [None, None, None]


@pytest.mark.parametrize(("text", "ratio"), [
    ("Thank you.", .556), ("Thank you. " * 5, 2.5), ("yes " * 20, 5.333), ("I am going to the store " * 4, 2.714)])
def test_compression_ratio_of_known_texts(text, ratio):
    assert compression_ratio(text.strip()) == pytest.approx(ratio, abs=.12)


@pytest.mark.parametrize(("text", "signs"), [
    ("Thanks for watching!", ["phrase"]),
    ("ご視聴ありがとうございました。", ["phrase"]),
    ("Продолжение следует...", ["phrase"]),
    ("Thank you very much for coming to the office today.", []),
    ("Thank you.", []),
    ("I went to the store to buy some bread and milk.", []),
    ("no no no", []),
    ("yes yes yes yes yes", ["repeated_ngram"]),
    ("I am going to the store. I am going to the store.", []),
    ("Donaudampfschifffahrtsgesellschaft", []),
    ("今日はとても天気がいいので公園へ散歩に行きましょう。", []),
    ("a sentence with " + "w" * 45, ["long_word"]),
    ("", []),
])
def test_signs_of_texts_alone(text, signs):
    assert done(Hallucination(duration=None), batch(pred_text=texts(text)))["hallucination"] == [signs]


def test_loops_are_found_in_several_ways():
    found, = done(Hallucination(duration=None), batch(pred_text=texts("I am going to the store. " * 6)))["hallucination"]
    assert {"few_unique_words", "compressible"} <= set(found)
    assert repeats(["so", "we", "went", "so", "we", "went", "so", "we", "went"], 3)
    assert not repeats(["so", "we", "went", "so", "we", "went", "home"], 3)


def test_a_phrase_that_people_say_counts_where_nobody_speaks():
    given = batch(pred_text=texts("Thank you.", "Thank you.", "Thank you.", "hello there"), duration=pa.array([1.0, 30.0, 1.0, 1.0]),
                  speech_ratio=pa.array([.8, .8, .02, None], pa.float32()), avg_logprob=pa.array([-.2, -1.5, -.2, None], pa.float32()))
    stage = Hallucination(speech_ratio="speech_ratio", avg_logprob="avg_logprob")
    assert done(stage, given)["hallucination"] == [
        [], ["filler_phrase", "low_probability"], ["filler_phrase", "no_speech"], []]


def test_words_said_too_fast():
    given = batch(pred_text=texts("a sentence that nobody says in half a second"), duration=pa.array([.5]))
    assert done(Hallucination(), given)["hallucination"] == [["too_fast"]]


def test_phrases_of_a_file_take_the_place_of_ours(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("[always]\nHold the line!\n", "utf-8")
    given = batch(pred_text=texts("hold the line", "Thanks for watching"))
    assert done(Hallucination(phrases=str(own), duration=None), given)["hallucination"] == [["phrase"], []]
    own.with_name("bad.txt").write_text("no heading\n", "utf-8")
    with pytest.raises(InputError, match=r"bad\.txt, line 1"):
        Hallucination(phrases=str(own.with_name("bad.txt"))).setup(Context())


@pytest.mark.parametrize(("stage", "message"), [
    (lambda: Wer(normalize="loud"), "normalize is one of"), (lambda: Wer(edge=0), "edge"), (lambda: Wer(hypothesis="text"), "itself"),
    (lambda: Hallucination(repeats=1), "repeats"), (lambda: Hallucination(unique_ratio=2), "unique_ratio")])
def test_nonsense_is_refused(stage, message):
    with pytest.raises(ValueError, match=message):
        stage()


def test_the_stages_keep_the_rules_of_a_pack():
    seconds = pa.array(np.linspace(.5, 6, 6))
    said = texts("one two three", None, "", "今天天气很好", "Thank you.", "a " * 30)
    given = batch(text=said, pred_text=texts("one too three", "x", "y", "今天天很好", None, "b"), duration=seconds)
    for stage in (Rates(), Wer(), Hallucination()):
        check_stage(stage, given)
