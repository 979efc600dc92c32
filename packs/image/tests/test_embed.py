"""Embeddings equal those of transformers' own forward, for every kind of model."""

import numpy as np
import pytest
import torch
from curator_image import Embed, Resize
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoImageProcessor, AutoModel

from curator.api.errors import CuratorError
from curator.models.vectors import unit, vector_column, vectors_of
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images
from packs.image.tests.tiny_models import SIZE, image, save_clip, save_dinov2, save_siglip, save_siglip2, save_vit

SAVED = {"clip": save_clip, "siglip": save_siglip, "siglip2": save_siglip2, "vit": save_vit, "dinov2": save_dinov2}
PIXELS = [image(1), image(2, 64, 33), None, image(3, 32, 32), image(4, 20, 90)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in SAVED.items()}


def reference(folder):
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder, backend="pil")
    made = []
    with torch.inference_mode():
        for pixels in (p for p in PIXELS if p is not None):
            inputs = processor(images=[pixels], return_tensors="pt", input_data_format="channels_last")
            forward = model.get_image_features if hasattr(model, "get_image_features") else model
            made.append(forward(**inputs).pooler_output[0].numpy())
    return np.stack(made)


@pytest.mark.parametrize("name", SAVED)
def test_equal_to_the_models_own_forward(name, folders):
    wanted = reference(folders[name])
    got = run_stage(Embed(model=folders[name], normalize=False), images(*PIXELS))["out"].column("embedding")
    assert got[2] is None
    np.testing.assert_allclose(np.array([v for v in got if v is not None]), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["clip", "siglip2", "vit"])
def test_keeps_the_rules_of_a_stage(name, folders):
    check_stage(Embed(model=folders[name], into="vector"), images(*PIXELS), tolerance=1e-2)


def test_has_length_1_and_tells_images_apart(folders):
    for folder in folders.values():
        rows = run_stage(Embed(model=folder), images(*PIXELS))["out"]
        _, vectors = vectors_of(rows, "embedding", len(rows.column("embedding")[0]))
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        assert np.triu(vectors @ vectors.T, 1).max() < 0.999


def test_image_resize_before_it_changes_nothing(folders):
    batch = images(*PIXELS)
    small = run_stage(Resize(size=SIZE, crop="center"), batch)["out"]
    plain, resized = (run_stage(Embed(model=folders["clip"]), given)["out"].column("embedding") for given in (batch, small))
    assert small.pixels[1].shape == (SIZE, SIZE, 3)
    assert resized == plain


def test_a_classifier_without_a_pooler_gives_its_first_token(tmp_path):
    folder = save_vit(tmp_path, ("cat", "dog"))
    got = run_stage(Embed(model=folder, normalize=False), images(*[image(1)] * 3))["out"].column("embedding")
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        wanted = model(**processor(images=[image(1)], return_tensors="pt")).last_hidden_state[0, 0]
    np.testing.assert_allclose(got[0], wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_weights_that_are_missing_are_an_error_and_not_made_up(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = save_clip(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({name: w for name, w in weights.items() if "projection" not in name}, tmp_path / "model.safetensors",
              metadata={"format": "pt"})
    with pytest.raises(CuratorError, match=r"no weights for text_projection\.weight and 1 others"):
        run_stage(Embed(model=folder), images(*PIXELS))


def test_numbers_that_are_not_finite_are_an_error(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = save_clip(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["visual_projection.weight"][0] = float("inf")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="not finite"):
        run_stage(Embed(model=folder), images(*PIXELS))


def test_a_model_that_is_not_here_is_an_error_that_says_what_to_do(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CuratorError, match=r"'nobody/nothing' cannot be loaded.*HF_HOME.*HF_HUB_OFFLINE is set"):
        run_stage(Embed(model="nobody/nothing"), images(*PIXELS))
    with pytest.raises(CuratorError, match=r"no folder '\./nothing'"):
        run_stage(Embed(model="./nothing"), images(*PIXELS))


@given(st.lists(st.none() | st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), max_size=8))
def test_vectors_survive_the_way_through_a_column(values):
    batch = images(*[None] * len(values))
    at = np.array([i for i, v in enumerate(values) if v is not None], np.int64)
    matrix = np.array([v for v in values if v is not None], np.float32).reshape(-1, 3)
    batch = batch.with_columns({"v": vector_column(matrix, at, len(values))})
    assert batch.rows["v"].null_count == len(values) - len(at)
    back_at, back = vectors_of(batch, "v", 3)
    assert np.array_equal(back_at, at)
    assert np.array_equal(back, matrix)
    sliced_at, sliced = vectors_of(batch.slice(1, len(values)), "v", 3)
    assert np.array_equal(sliced_at, at[at > 0] - 1)
    assert np.array_equal(sliced, matrix[at > 0])
    lengths = np.linalg.norm(unit(matrix), axis=1)
    assert np.all(np.isclose(lengths, 1, atol=1e-5) | ~matrix.any(axis=1) | (np.abs(matrix).max(axis=1) < 1e-18))


def test_a_batch_that_carries_no_pixels_has_no_embeddings(folders):
    got = run_stage(Embed(model=folders["clip"]), images(None).with_payloads(pixels=None))["out"]
    assert got.column("embedding") == [None]
