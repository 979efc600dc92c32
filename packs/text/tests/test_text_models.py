"""Models of texts of transformers: the same answers as the library alone, whatever stands beside a text in a call."""

import math

import numpy as np
import pyarrow as pa
import pytest
from curator_text import Classify, Embed, Perplexity, ZeroShot
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage
from packs.text.tests import tiny_text_models as tiny

TEXTS = ["the fox is good", "", None, "a ship . " * 30, "the sea", "x", "the bad ships is a bad ship ."]


def batch(texts=TEXTS):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(ids), "text": pa.array(texts, pa.string())}))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"labels": tiny.save_bert(folder / "labels", ("low", "middle", "high")), "number": tiny.save_bert(folder / "number", ("score",)),
            "encoder": tiny.save_bert(folder / "encoder"), "nvidia": tiny.save_deberta_with_head(folder / "nvidia", ("High", "Low")),
            "nli": tiny.save_bert(folder / "nli", ("contradiction", "neutral", "entailment")), "gpt2": tiny.save_gpt2(folder / "gpt2")}


def bare(model, loader):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    loaded = getattr(transformers, loader).from_pretrained(model).eval()
    return lambda text: loaded(**tokenizer(text, return_tensors="pt", truncation=True, max_length=24))


def test_classes_are_those_of_the_library_text_by_text(models):
    import torch

    alone = bare(models["labels"], "AutoModelForSequenceClassification")
    out = run_stage(Classify(model=models["labels"]), batch())["out"]
    scores = run_stage(Classify(model=models["labels"], labels={"high": "h", "low": "l"}), batch())["out"]
    for text, label, score, high in zip(TEXTS, out.column("label"), out.column("label_score"), scores.column("h"), strict=True):
        if text is None:
            assert (label, score, high) == (None, None, None)
            continue
        with torch.no_grad():
            known = alone(text).logits.softmax(-1)[0].tolist()
        assert score == pytest.approx(max(known), abs=1e-5)
        assert label == ("low", "middle", "high")[int(np.argmax(known))]
        assert high == pytest.approx(known[2], abs=1e-5)


def test_a_regression_gives_its_number_and_long_texts_the_mean_of_their_windows(models):
    import torch

    alone = bare(models["number"], "AutoModelForSequenceClassification")
    stage = Classify(model=models["number"], into="edu", regression=True)
    with torch.no_grad():
        known = [alone(text).logits[0, 0].item() for text in TEXTS if text is not None]
    found = [score for score in run_stage(stage, batch())["out"].column("edu_score") if score is not None]
    assert found == pytest.approx(known, abs=1e-5)
    words = TEXTS[3].split()
    pieces = [words[at:at + 22] for at in range(0, len(words), 22)]
    with torch.no_grad():
        parts = [alone(" ".join(piece)).logits[0, 0].item() * len(piece) for piece in pieces]
    whole = Classify(model=models["number"], into="edu", regression=True, long="windows")
    assert run_stage(whole, batch())["out"].column("edu_score")[3] == pytest.approx(sum(parts) / len(words), abs=1e-5)


def test_classifiers_that_were_saved_as_a_backbone_and_a_layer_are_read(models):
    from types import SimpleNamespace

    import torch
    from safetensors.torch import load_file

    weights = load_file(f"{models['nvidia']}/model.safetensors")
    alone = bare(f"{models['nvidia']}/base", "AutoModel")
    scores = run_stage(Classify(model=models["nvidia"], labels={"High": "high"}), batch())["out"].column("high")
    for text, score in zip(TEXTS, scores, strict=True):
        if text is not None and len(text) < 100:
            with torch.no_grad():
                first = alone(text).last_hidden_state[0, 0]
            told = SimpleNamespace(logits=first @ weights["fc.weight"].T + weights["fc.bias"])
            assert score == pytest.approx(told.logits.softmax(-1)[0].item(), abs=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", None])
def test_embeddings_are_pooled_as_said(models, pooling, tmp_path):
    import torch

    model = models["encoder"]
    if pooling is None:
        model = tiny.save_bert(tmp_path / "encoder")
        (tmp_path / "encoder/1_Pooling").mkdir()
        (tmp_path / "encoder/1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    alone = bare(model, "AutoModel")
    vectors = run_stage(Embed(model=model, pooling=pooling), batch())["out"].column("embedding")
    for text, vector in zip(TEXTS, vectors, strict=True):
        if text is None:
            assert vector is None
            continue
        with torch.no_grad():
            hidden = alone(text).last_hidden_state[0]
        known = {"mean": hidden.mean(0), "last": hidden[-1]}.get(pooling, hidden[0]).numpy()
        np.testing.assert_allclose(vector, known / np.linalg.norm(known), atol=1e-5)


def test_perplexity_counts_each_token_once_however_long_the_text(models):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(models["gpt2"])
    loaded = transformers.AutoModelForCausalLM.from_pretrained(models["gpt2"]).eval()
    found = run_stage(Perplexity(model=models["gpt2"], stride=8), batch())["out"].column("perplexity")
    assert [value is None for value in found] == [text is None or not text for text in TEXTS]
    for text, value in zip(TEXTS, found, strict=True):
        if not text:
            continue
        ids = [2, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        sums = []
        for at in range(1, len(ids)):  # each token after as many as its window has before it
            start = 0 if at < 24 else 16 * -(-(at - 23) // 16)
            with torch.no_grad():
                told = loaded(torch.tensor([ids[start:at]])).logits[0, -1].log_softmax(-1)
            sums.append(told[ids[at]].item())
        assert value == pytest.approx(math.exp(-sum(sums) / len(sums)), rel=1e-4)


@pytest.mark.parametrize("multi", [False, True], ids=["one", "each"])
def test_labels_without_training_have_the_probabilities_of_the_pipeline(models, multi):
    import transformers

    labels, texts = ["fox", "a good ship", "sea"], [text for text in TEXTS if text]
    pipeline = transformers.pipeline("zero-shot-classification", model=models["nli"])
    asked = {"model": models["nli"], "labels": labels, "template": "x is {}", "multi_label": multi}
    out = run_stage(ZeroShot(**asked, scores={label: f"s {label}" for label in labels}), batch(texts))["out"]
    for row, text in enumerate(texts):
        known = pipeline(text, labels, hypothesis_template="x is {}", multi_label=multi)
        for label, score in zip(known["labels"], known["scores"], strict=True):
            assert out.column(f"s {label}")[row] == pytest.approx(score, abs=1e-5)
    best = run_stage(ZeroShot(**asked), batch())["out"]
    assert best.column("label")[0] == pipeline(TEXTS[0], labels, hypothesis_template="x is {}", multi_label=multi)["labels"][0]
    assert best.column("label")[2] is None


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 500), st.integers(0, 200))
def test_batches_hold_every_text_once_no_more_tokens_than_allowed_and_cost_no_more_than_full_ones(lengths, most, begin):
    from curator_text.models.encoders import batches_of

    found = [[lengths[row] for row in rows] for rows in batches_of(np.array(lengths, np.int64), most, begin)]
    assert sorted(length for batch in found for length in batch) == sorted(lengths)
    assert all(len(batch) == 1 or len(batch) * max(batch) <= most for batch in found)
    left, full = sorted(lengths, reverse=True), []
    while left:
        size = max(1, most // max(1, left[0]))
        full.append(left[:size])
        left = left[size:]

    def cost(batches):
        return sum(begin + len(batch) * max(1, *batch) for batch in batches if batch)

    assert cost(found) <= cost(full)
    assert all(cost([batch[:k], batch[k:]]) >= cost([batch]) for batch in found for k in range(1, len(batch)))


def test_what_does_not_fit_is_told(models):
    with pytest.raises(CuratorError, match="gives a number: set regression: true"):
        run_stage(Classify(model=models["number"]), batch())
    with pytest.raises(CuratorError, match="knows no class 'best'; its classes are low, middle, high"):
        run_stage(Classify(model=models["labels"], labels={"best": "b"}), batch())
    with pytest.raises(CuratorError, match="does not tell whether a sentence follows"):
        run_stage(ZeroShot(model=models["labels"], labels=["fox", "sea"]), batch())
    with pytest.raises(CuratorError, match="do not fit into the 24 tokens"):
        run_stage(ZeroShot(model=models["nli"], labels=["fox", "sea " * 30]), batch())
    with pytest.raises(ValueError, match="none of the labels"):
        ZeroShot(labels=["a", "b"], scores={"c": "d"})
    with pytest.raises(CuratorError, match="there is no folder"):
        run_stage(Embed(model="./none"), batch())


def test_they_keep_the_rules_of_stages(models):
    check_stage(Classify(model=models["labels"], long="windows"), batch(), tolerance=1e-4)
    check_stage(ZeroShot(model=models["nli"], labels=["fox", "sea"], max_tokens=20), batch(), tolerance=1e-4)
    check_stage(Embed(model=models["encoder"]), batch(), tolerance=1e-4)
    check_stage(Perplexity(model=models["gpt2"]), batch(), tolerance=1e-4)
