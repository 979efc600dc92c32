"""fastText's classifiers: as fastText computes them, from files that may be damaged."""

import numpy as np
import pyarrow as pa
import pytest
from curator_text import Fasttext
from curator_text.models.fasttext_file import read_fasttext
from curator_text.models.fasttext_model import FasttextModel, _hashes_of
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage
from packs.text.tests.fasttext_models import TinyModel, fnv

WORDS = ["</s>", "the", "fox", "größe", "狐狸", "a"]
LABELS = ["en", "de", "zh", "cc", "hq"]
TEXTS = ["the fox jumps", "", "größe größe 狐狸 x", "the __label__en fox </s> never read", "a\0b\tthe\nfox", "word " * 300]
KINDS = {"softmax": {}, "hs": {"loss": "hs"}, "ova": {"loss": "ova"}, "words alone": {"ngrams": 1, "minn": 0, "maxn": 0, "bucket": 0},
         "single characters": {"minn": 1, "maxn": 4, "ngrams": 3}, "quantised": {"quantised": True, "pruned": True, "bucket": 4000},
         "nothing hashed": {"pruned": "all"}}


@pytest.fixture(params=KINDS, scope="module")
def pair(request, tmp_path_factory):
    """A model, and ours made of its file."""
    tiny = TinyModel(WORDS, LABELS, **KINDS[request.param])
    path = tmp_path_factory.mktemp("models") / "model.bin"
    path.write_bytes(tiny.save())
    return tiny, FasttextModel(read_fasttext(path))


def test_hashes_are_those_of_fasttext():
    known = {"": 2166136261, "a": 3826002220, "the": 3020861980, "</s>": 3617362777, "<w": 1526122084, "é": 1023043777, "狐": 500578469}
    assert _hashes_of([word.encode() for word in known]).tolist() == list(known.values())
    assert all(fnv(word.encode()) == value for word, value in known.items())


def test_probabilities_are_those_of_fasttext_to_a_millionth(pair):
    tiny, ours = pair
    assert ours.labels == LABELS
    np.testing.assert_allclose(ours.probabilities(TEXTS), [tiny.probabilities(text) for text in TEXTS], atol=1e-6)


@given(st.lists(st.text(st.sampled_from("ab é狐\n\0<>_x"), max_size=12), min_size=1, max_size=4))
@settings(max_examples=30)
def test_any_text_has_the_probabilities_of_fasttext_whatever_came_before(pair, texts):
    tiny, ours = pair
    np.testing.assert_allclose(ours.probabilities(texts), [tiny.probabilities(text) for text in texts], atol=1e-6)


def test_words_are_forgotten_before_they_fill_the_memory(pair, monkeypatch):
    tiny, ours = pair
    monkeypatch.setattr("curator_text.models.fasttext_model._WORDS_MAX", 3)
    for text in TEXTS:
        np.testing.assert_allclose(ours.probabilities([text]), [tiny.probabilities(text)], atol=1e-6)


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_file_is_an_error_or_a_model_and_never_a_crash(tmp_path_factory, data):
    whole = TinyModel(WORDS, LABELS, **KINDS[data.draw(st.sampled_from(list(KINDS)))]).save()
    broken = bytearray(whole[:data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if broken:
            broken[data.draw(st.integers(0, min(len(broken) - 1, 400)))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("broken") / "model.bin"
    path.write_bytes(broken)
    try:
        model = read_fasttext(path)
    except CuratorError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert len(model.labels) >= 1


# -- the stage ------------------------------------------------------------------------------------------------------


def batch(texts):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(texts), "text": pa.array(texts, pa.string())}))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.bin"
    path.write_bytes(TinyModel(WORDS, LABELS).save())
    return str(path)


def test_it_adds_the_best_label_the_probabilities_asked_for_and_candidates(model):
    tiny, texts = TinyModel(WORDS, LABELS), ["the fox", None, "größe"]
    out = run_stage(Fasttext(model=model, label="language", scores={"quality": "hq"}, candidates_min=0.1), batch(texts))["out"]
    for text, language, score, quality, candidates in zip(texts, *(out.column(name) for name in (
            "language", "language_score", "quality", "language_candidates")), strict=True):
        if text is None:
            assert (language, score, quality, candidates) == (None,) * 4
            continue
        known = dict(zip(LABELS, tiny.probabilities(text), strict=True))
        assert language == max(known, key=known.get)
        assert score == pytest.approx(known[language], abs=1e-6)
        assert quality == pytest.approx(known["hq"], abs=1e-6)
        assert [c["label"] for c in candidates] == sorted((k for k in known if known[k] >= 0.1), key=lambda k: -known[k])


def test_it_keeps_the_rules_of_stages(model):
    check_stage(Fasttext(model=model, scores={"q": "__label__hq"}, max_chars=100), batch([*TEXTS, None]), tolerance=1e-6)


def test_what_cannot_be_is_told(model, tmp_path):
    with pytest.raises(CuratorError, match=r"no label .hp.; it has 5, such as .*hq"):
        run_stage(Fasttext(model=model, scores={"q": "hp"}), batch(["a"]))
    with pytest.raises(CuratorError, match="there is no file"):
        run_stage(Fasttext(model=str(tmp_path / "none.bin")), batch(["a"]))
    vectors = TinyModel(WORDS, LABELS).save()
    (tmp_path / "vectors.bin").write_bytes(vectors[:36] + b"\2" + vectors[37:])
    with pytest.raises(CuratorError, match="word vectors and no classifier"):
        run_stage(Fasttext(model=str(tmp_path / "vectors.bin")), batch(["a"]))
    with pytest.raises(ValueError, match="nothing is asked for"):
        Fasttext(model=model, label=None)
