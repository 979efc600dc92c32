"""Zero-shot labels are those of transformers' own forward over images and texts."""

import numpy as np
import pytest
import torch
from curator_image import Embed, ZeroShot
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from curator.api.errors import CuratorError
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images
from packs.image.tests.tiny_models import image, save_clip, save_siglip, save_siglip2

LABELS = ["cat", "dog", "car"]
PIXELS = [image(1), image(2, 64, 33), None, image(3, 32, 32), image(4, 20, 90), image(5, 50, 50)]
SEEN = [0, 1, 3, 4, 5]
SAVED = {"clip": save_clip, "siglip": save_siglip, "siglip2": save_siglip2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in SAVED.items()}


def reference(name, folder, template):
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    padding = True if name == "clip" else "max_length"
    words = tokenizer([template.replace("{}", label) for label in LABELS], padding=padding, truncation=True, max_length=16,
                      return_tensors="pt")
    seen = processor(images=[PIXELS[row] for row in SEEN], return_tensors="pt", input_data_format="channels_last")
    with torch.inference_mode():
        logits = model(**words, **seen).logits_per_image
    return (logits.softmax(-1) if name == "clip" else logits.sigmoid()).numpy()


@pytest.mark.parametrize("name", SAVED)
def test_equal_to_the_models_own_forward(name, folders):
    wanted = reference(name, folders[name], "a {}")
    stage = ZeroShot(model=folders[name], labels=LABELS, templates="a {}", scores=True)
    got = run_stage(stage, images(*PIXELS))["out"]
    np.testing.assert_allclose([got.column("label_scores")[row] for row in SEEN], wanted, rtol=1e-3)
    assert [got.column("label")[row] for row in SEEN] == [LABELS[k] for k in wanted.argmax(1)]
    np.testing.assert_allclose([got.column("label_score")[row] for row in SEEN], wanted.max(1), rtol=1e-3)
    assert {got.column(c)[2] for c in ("label", "label_score", "label_scores")} == {None}


@pytest.mark.parametrize("name", SAVED)
def test_an_embedding_column_takes_the_place_of_the_pixels(name, folders):
    batch = images(*PIXELS)
    for normalize in (True, False):
        embedded = run_stage(Embed(model=folders[name], normalize=normalize), batch)["out"].with_payloads(pixels=None)
        stage = ZeroShot(model=folders[name], labels=LABELS, templates="a {}", embedding="embedding")
        got = run_stage(stage, embedded)["out"]
        seen = run_stage(ZeroShot(model=folders[name], labels=LABELS, templates="a {}"), batch)["out"]
        assert got.column("label") == seen.column("label")
        np.testing.assert_allclose(*[[b.column("label_score")[row] for row in SEEN] for b in (got, seen)], rtol=1e-4)


def test_several_templates_are_averaged(folders):
    both = ZeroShot(model=folders["clip"], labels=LABELS, templates=["a {}", "one {}"], scores=True)
    same = ZeroShot(model=folders["clip"], labels=LABELS, templates=["a {}", "a {}"], scores=True)
    one = ZeroShot(model=folders["clip"], labels=LABELS, templates="a {}", scores=True)
    scores = [np.array([run_stage(stage, images(*PIXELS))["out"].column("label_scores")[row] for row in SEEN])
              for stage in (both, same, one)]
    np.testing.assert_allclose(scores[1], scores[2], rtol=1e-4)
    assert not np.allclose(scores[0], scores[2], rtol=1e-3)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_keeps_the_rules_of_a_stage(name, folders):
    check_stage(ZeroShot(model=folders[name], labels=LABELS, templates="a {}", scores=True), images(*PIXELS),
                tolerance=1e-2)


def test_keeps_the_rules_of_a_stage_with_embeddings(folders):
    batch = run_stage(Embed(model=folders["clip"]), images(*PIXELS))["out"]
    check_stage(ZeroShot(model=folders["clip"], labels=LABELS, templates="a {}", embedding="embedding"), batch, tolerance=1e-2)


def test_a_label_that_is_longer_than_the_model_reads_is_an_error(folders):
    with pytest.raises(CuratorError, match="shorten the label"):
        run_stage(ZeroShot(model=folders["clip"], labels=["cat", "an animal that is no cat"]), images(*PIXELS))


@pytest.mark.parametrize("wrong", [{"labels": ["cat"]}, {"labels": ["cat", "cat"]}, {"labels": LABELS, "templates": "a cat"},
                                   {"labels": LABELS, "templates": []}], ids=str)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"labels|templates"):
        ZeroShot(**wrong)
