"""Classifiers trained in a run: the answer of the mathematics, the same again from their folder, and honest about how right they are."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from curator_text import Classify, TrainClassifier
from curator_text.models.train import metrics
from curator_text.models.train.fit import fit
from curator_text.models.train.ngrams import hashed_ngrams
from curator_text.models.train.rows import Dense
from curator_text.models.train.safetensors import packed, read_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.testing import check_stage, run_stage
from curator.testing.run import fresh

WORDS = {"sea": "ship sailor harbour wave anchor storm captain deck", "land": "field farmer tractor harvest barn cow plough wheat"}
COMMON = ["the", "a", "of", "and", "in", "was", "with", "from", "they", "old", "new"]


def documents(n=120, annotated=80, seed=1):
    """Texts of two subjects, some of which say which; `share` is how many words are of the sea."""
    random_, rows = random.Random(seed), []
    for number in range(n):
        share = random_.random()
        words = [random_.choice(COMMON) if random_.random() < 0.5 else
                 random_.choice(WORDS["sea" if random_.random() < share else "land"].split()) for _ in range(60)]
        there = number < annotated
        rows.append({"id": f"r{number}", "source": "s", "text": " ".join(words), "share": share if there else None, "truth": share,
                     "subject": ("sea" if share > 0.5 else "land") if there else None})
    return Batch(rows=pa.Table.from_pylist(rows))


def vectors(batch):
    """An embedding made of counts."""
    counts = [[text.count(word) / 30 for word in " ".join(WORDS.values()).split()] for text in batch.column("text")]
    return batch.with_columns({"vector": pa.array(counts, pa.list_(pa.float32()))})


def test_labels_are_learned_and_the_folder_says_the_same_of_any_text(tmp_path):
    batch, folder = documents(), tmp_path / "model"
    out = run_stage(TrainClassifier(label="subject", save=str(folder)), batch)["out"]
    right = [told == ("sea" if truth > 0.5 else "land") for told, truth in zip(out.column("predicted"), batch.column("truth"), strict=True)]
    assert sum(right[80:]) >= 36
    assert min(out.column("predicted_score")) >= 0.5
    again = run_stage(Classify(model=str(folder), into="predicted"), batch.select(["text"]))["out"]
    assert again.column("predicted") == out.column("predicted")
    assert again.column("predicted_score") == out.column("predicted_score")
    says = json.loads((folder / "classifier.json").read_text())
    assert says["labels"] == ["land", "sea"]
    data, told = says["data"], says["metrics"]
    assert data["annotated"] == 80 == data["trained"] + data["held_out"]
    assert told["accuracy"] > 0.8
    assert sum(one["records"] for one in told["labels"].values()) == data["held_out"]
    assert f"Trained on {data['trained']} records, of 80" in (folder / "README.md").read_text()
    assert Classify(model=str(folder)).resources.gpus == 0
    before = Classify(model=str(folder)).fingerprint()
    assert Classify(model=str(folder)).fingerprint() == before
    run_stage(TrainClassifier(label="subject", save=str(folder)), documents(annotated=60))
    assert Classify(model=str(folder)).fingerprint() != before


def test_numbers_are_learned_from_texts_and_from_embeddings(tmp_path):
    batch = vectors(documents())
    for column in ("text", "vector"):
        save = str(tmp_path / column)
        out = run_stage(TrainClassifier(label="share", column=column, regression=True, save=save), batch)["out"]
        assert metrics.spearman(np.array(out.column("predicted_score")[80:]), np.array(batch.column("truth")[80:])) > 0.8
        again = run_stage(Classify(model=save, column=column, regression=True), batch)["out"]
        assert again.column("label_score") == out.column("predicted_score")
        told = json.loads((tmp_path / column / "classifier.json").read_text())["metrics"]
        assert told["rmse"] < 0.7 * told["rmse_without"]


def test_the_same_records_make_the_same_classifier_in_any_order(tmp_path):
    batch, made = documents(60, 40), []
    for name, order in {"a": np.arange(60), "b": np.random.default_rng(0).permutation(60)}.items():
        stage = fresh(TrainClassifier(label="subject", save=str(tmp_path / name), sample=30))
        for at in range(0, 60, 7):
            stage.absorb(batch.take(order[at:at + 7]))
        list(stage.finish())
        made.append((tmp_path / name / "model.safetensors").read_bytes())
        assert json.loads((tmp_path / name / "classifier.json").read_text())["data"]["annotated"] == 30
    assert made[0] == made[1]


def test_what_is_learned_is_the_minimum_of_the_loss():
    random_ = np.random.default_rng(3)
    rows = random_.normal(size=(50, 4)).astype(np.float32)
    numbers = rows @ [1.0, -2.0, 0.5, 0.0] + 3 + random_.normal(size=50)
    found = fit(Dense(rows), numbers[:, None], 0.1)
    centred = rows - rows.mean(axis=0)
    known = np.linalg.solve(centred.T @ centred / 50 + 0.1 * np.eye(4), centred.T @ (numbers - numbers.mean()) / 50)
    np.testing.assert_allclose(found.weight[0], known, atol=1e-3)
    np.testing.assert_allclose(found.bias[0], numbers.mean() - rows.mean(axis=0) @ known, atol=1e-3)

    classes = np.eye(3)[np.digitize(numbers, [2, 4])]
    made = fit(Dense(rows), classes, 0.01)

    def loss(weight, bias):
        outputs = rows @ weight.T + bias
        outputs = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
        return -(outputs * classes).sum() / 50 + 0.005 * (weight**2).sum()

    least = loss(made.weight.astype(np.float64), made.bias.astype(np.float64))
    for _ in range(20):
        step = random_.normal(size=(3, 5)) * 0.02
        assert loss(made.weight + step[:, :4], made.bias + step[:, 4]) > least


def test_hashed_ngrams_are_those_of_each_text_alone():
    texts = ["The sea, the SEA", "", "größe 狐狸 x", "the sea"]
    together = hashed_ngrams(texts, 2, 12, None)
    for row, text in enumerate(texts):
        one, alone = together.take(np.array([row])), hashed_ngrams([text], 2, 12, None)
        assert dict(zip(one.columns, one.values, strict=True)) == dict(zip(alone.columns, alone.values, strict=True))
        assert (one.values**2).sum() == pytest.approx(1.0 if text else 0.0)
    weights = np.random.default_rng(0).normal(size=(2**12, 2))
    dense = np.zeros((4, 2**12))
    for row in range(4):
        part = slice(*together.ends[row:row + 2])
        dense[row, together.columns[part]] = together.values[part]
    np.testing.assert_allclose(together.dot(weights), dense @ weights)
    np.testing.assert_allclose(together.transposed_dot(np.ones((4, 2))), dense.T @ np.ones((4, 2)))


def test_metrics_are_those_of_their_definitions():
    told = metrics.of_labels(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), np.array([0, 1, 1, 0]), ["a", "b"])
    assert (told["accuracy"], told["accuracy_without"]) == (0.75, 0.5)
    assert told["labels"]["b"] == {"records": 2, "precision": 1.0, "recall": 0.5, "f1": 0.6667, "average_precision": 0.8333}
    assert metrics.average_precision(np.zeros(4), np.array([True, False, False, False])) == 0.25
    assert metrics.spearman(np.array([1.0, 2, 2, 5]), np.array([10.0, 20, 20, 21])) == 1.0
    assert metrics.of_numbers(np.array([1.0, 3]), np.array([2.0, 2]))["spearman"] is None


def test_too_few_annotations_teach_nothing_and_an_alarm_says_so(tmp_path):
    stage = TrainClassifier(label="subject", save=str(tmp_path / "model"))
    out = run_stage(stage, documents(30, 8))["out"]
    assert out.column("predicted") == [None] * 30
    assert not (tmp_path / "model").exists()
    counts = Counts(extra={"annotated": 8, "unlearned": 1})
    assert "train learned nothing: 8 records" in next(stage.findings("train", counts)).text
    told = next(stage.findings("train", Counts(extra={"trained": 90, "held_out": 10, "accuracy": 8765}))).text
    assert told == "trained on 90 records; on 10 others accuracy 0.876"


@given(st.data())
@settings(max_examples=40)
def test_damaged_weights_are_an_error_or_arrays(tmp_path_factory, data):
    whole = bytearray(packed({"weight": np.arange(6).reshape(2, 3), "bias": np.zeros(2)}))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    path.write_bytes(whole[:data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        found = read_arrays(path)
    except CuratorError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert sum(values.nbytes for values in found.values()) <= 8 * len(whole)


def test_weights_are_a_file_that_others_read(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(2, np.float32)}
    found = library.load(packed(arrays))
    library.save_file(arrays, str(tmp_path / "theirs.safetensors"))
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)
        np.testing.assert_array_equal(read_arrays(tmp_path / "theirs.safetensors")[name], values)


def test_they_keep_the_rules_of_stages(tmp_path):
    batch = documents(40, 30).select(["id", "source", "text", "subject"])
    check_stage(TrainClassifier(label="subject", bits=12, save=str(tmp_path / "m")), batch, tolerance=1e-5)
    check_stage(TrainClassifier(label="subject", column="vector", labels={"sea": "wet"}, l2=1e-3),
                vectors(batch).select(["id", "source", "vector", "subject"]), tolerance=1e-5)
    check_stage(Classify(model=str(tmp_path / "m")), batch, tolerance=1e-5)


def test_what_cannot_be_is_told(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CuratorError, match="holds no classifier"):
        run_stage(TrainClassifier(label="subject", save=str(tmp_path)), documents(20, 20))
    with pytest.raises(CuratorError, match="set regression: true if they are numbers"):
        run_stage(TrainClassifier(label="truth"), documents(200, 0))
    with pytest.raises(Exception, match="a regression wants numbers in 'subject'"):
        run_stage(TrainClassifier(label="subject", regression=True), documents(20, 20))
    with pytest.raises(ValueError, match="would be written over"):
        TrainClassifier(label="label", into="label")
    run_stage(TrainClassifier(label="subject", save=str(tmp_path / "m"), bits=10), documents(30, 30))
    says = json.loads((tmp_path / "m/classifier.json").read_text())
    says["features"]["bits"] = 11
    (tmp_path / "m/classifier.json").write_text(json.dumps(says))
    with pytest.raises(CuratorError, match="do not fit each other"):
        run_stage(Classify(model=str(tmp_path / "m")), documents(3))
