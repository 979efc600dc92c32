"""How well captions fit is what transformers' own forward says of each pair."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from curator_image import Alignment, Embed
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from curator.api.errors import CuratorError
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images
from packs.image.tests.tiny_models import image, save_clip, save_dinov2, save_siglip

LONG = "a very long text about nothing"
CAPTIONS = ["a cat", LONG, "no image", None, "", "  ", "two dogs"]
PIXELS = [image(1), image(2, 64, 33), None, image(3, 32, 32), image(4, 20, 90), image(5, 50, 50), image(6, 33, 32)]
PAIRS = [0, 1, 6]
SAVED = {"clip": save_clip, "siglip": save_siglip}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in SAVED.items()}


def batch():
    return images(*PIXELS, txt=pa.array(CAPTIONS, pa.string()))


def reference(name, folder):
    """Cosines and logits of the pairs, each by itself."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    cosines, logits = [], []
    for row in PAIRS:
        words = tokenizer([CAPTIONS[row]], padding=True if name == "clip" else "max_length", truncation=True, max_length=16,
                          return_tensors="pt")
        seen = processor(images=[PIXELS[row]], return_tensors="pt", input_data_format="channels_last")
        with torch.inference_mode():
            made = model(**words, **seen)
        cosines.append(torch.nn.functional.cosine_similarity(made.image_embeds, made.text_embeds).item())
        logits.append(made.logits_per_image.item())
    return np.array(cosines), np.array(logits)


@pytest.mark.parametrize("name", SAVED)
def test_equal_to_the_models_own_forward(name, folders):
    got = run_stage(Alignment(model=folders[name]), batch())["out"]
    np.testing.assert_allclose([got.column("alignment")[row] for row in PAIRS], reference(name, folders[name])[0], atol=1e-5)
    assert [row for row, score in enumerate(got.column("alignment")) if score is not None] == PAIRS
    assert got.column("alignment_truncated") == [False, True, False, None, None, None, False]


def test_the_probability_of_siglip(folders):
    got = run_stage(Alignment(model=folders["siglip"], probability=True), batch())["out"]
    wanted = 1 / (1 + np.exp(-reference("siglip", folders["siglip"])[1]))
    np.testing.assert_allclose([got.column("alignment")[row] for row in PAIRS], wanted, rtol=1e-4)
    with pytest.raises(CuratorError, match="SigLIP does"):
        run_stage(Alignment(model=folders["clip"], probability=True), batch())


@pytest.mark.parametrize("name", SAVED)
def test_an_embedding_column_takes_the_place_of_the_pixels(name, folders):
    embedded = run_stage(Embed(model=folders[name]), batch())["out"].with_payloads(pixels=None)
    got = run_stage(Alignment(model=folders[name], embedding="embedding"), embedded)["out"]
    seen = run_stage(Alignment(model=folders[name]), batch())["out"]
    assert got.column("alignment_truncated") == seen.column("alignment_truncated")
    np.testing.assert_allclose(*[[b.column("alignment")[row] for row in PAIRS] for b in (got, seen)], atol=1e-5)


@pytest.mark.parametrize("name", SAVED)
def test_keeps_the_rules_of_a_stage(name, folders):
    check_stage(Alignment(model=folders[name]), batch(), tolerance=1e-2)


def test_keeps_the_rules_of_a_stage_with_embeddings(folders):
    embedded = run_stage(Embed(model=folders["clip"]), batch())["out"]
    check_stage(Alignment(model=folders["clip"], embedding="embedding", into="fits"), embedded, tolerance=1e-2)


def test_a_text_of_a_million_characters_is_judged_by_its_beginning(folders):
    texts = ["a cat", LONG + " x" * 500_000, LONG]
    got = run_stage(Alignment(model=folders["clip"]), images(*[image(1)] * 3, txt=texts))["out"]
    assert list(got.column("alignment_truncated")) == [False, True, True]
    assert got.column("alignment")[1] == pytest.approx(got.column("alignment")[2], abs=1e-5)


def test_a_model_that_knows_no_texts_is_an_error(tmp_path):
    with pytest.raises(CuratorError, match="knows no texts"):
        run_stage(Alignment(model=save_dinov2(tmp_path)), batch())
