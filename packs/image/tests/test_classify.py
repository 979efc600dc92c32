"""Classes and their probabilities are those of transformers' own classifier."""

import numpy as np
import pytest
import torch
from curator_image import Classify, Nsfw
from transformers import AutoImageProcessor, AutoModelForImageClassification

from curator.api.errors import CuratorError
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images
from packs.image.tests.tiny_models import image, save_vit

LABELS = ("normal", "nsfw", "drawing")
PIXELS = [image(1), image(2, 64, 33), None, image(3, 32, 32), image(4, 20, 90), image(5, 50, 50)]
SEEN = [0, 1, 3, 4, 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_vit(tmp_path_factory.mktemp("vit"), LABELS)


def logits(folder):
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    inputs = processor(images=[PIXELS[row] for row in SEEN], return_tensors="pt", input_data_format="channels_last")
    with torch.inference_mode():
        return model(**inputs).logits


def test_the_best_label_and_its_probability(folder):
    wanted = logits(folder).softmax(-1)
    got = run_stage(Classify(model=folder), images(*PIXELS))["out"]
    assert [got.column("label")[row] for row in SEEN] == [LABELS[k] for k in wanted.argmax(-1)]
    np.testing.assert_allclose([got.column("label_score")[row] for row in SEEN], wanted.max(-1).values, rtol=1e-4)
    assert {got.column(name)[2] for name in ("label", "label_score")} == {None}


def test_a_column_for_each_class_that_is_named(folder):
    wanted = logits(folder).softmax(-1)
    got = run_stage(Classify(model=folder, labels={"nsfw": "nsfw_score", "drawing": "art"}), images(*PIXELS))["out"]
    assert "label" not in got.columns
    for column, k in (("nsfw_score", 1), ("art", 2)):
        np.testing.assert_allclose([got.column(column)[row] for row in SEEN], wanted[:, k], rtol=1e-4)
        assert got.column(column)[2] is None


def test_nsfw_is_a_preset(folder):
    nsfw = Nsfw(model=folder)
    plain = Classify(model=folder, labels={"nsfw": "nsfw_score"})
    assert run_stage(nsfw, images(*PIXELS))["out"].rows == run_stage(plain, images(*PIXELS))["out"].rows
    assert Nsfw().model == "Falconsai/nsfw_image_detection"


def test_classes_that_do_not_exclude_each_other_have_a_probability_each(tmp_path):
    folder = save_vit(tmp_path, LABELS, several=True)
    got = run_stage(Classify(model=folder, labels={name: name for name in LABELS}), images(*PIXELS))["out"]
    scores = np.stack([[got.column(name)[row] for row in SEEN] for name in LABELS], 1)
    np.testing.assert_allclose(scores, logits(folder).sigmoid(), rtol=1e-4)


@pytest.mark.parametrize("labels", [None, {"nsfw": "nsfw_score"}])
def test_keeps_the_rules_of_a_stage(folder, labels):
    check_stage(Classify(model=folder, labels=labels), images(*PIXELS), tolerance=1e-3)


def test_a_class_that_the_model_does_not_know_is_an_error_that_lists_those_it_knows(folder):
    with pytest.raises(CuratorError, match="no class 'porn'; its classes are normal, nsfw, drawing"):
        run_stage(Classify(model=folder, labels={"porn": "p"}), images(*PIXELS))


def test_a_backbone_is_no_classifier(tmp_path):
    with pytest.raises(CuratorError, match="no weights for classifier"):
        run_stage(Classify(model=save_vit(tmp_path)), images(*PIXELS))


@pytest.mark.parametrize("labels", [{}, {"a": "x", "b": "x"}], ids=str)
def test_nonsense_is_refused(labels):
    with pytest.raises(ValueError, match="labels"):
        Classify(model="m", labels=labels)
