"""What models get to see is what their own image processors make."""

import json
import sys

import numpy as np
import pytest
import torch
from curator_image import Alignment, Classify, Embed, ZeroShot
from curator_image.inputs import ASPECT_MAX, Form, ImageInputs, center_crop, shape
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoImageProcessor

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import place_of
from packs.image.tests.tiny_models import SIZE, image, save_clip, save_dinov2, save_siglip, save_siglip2, save_vit

SAVED = {"clip": save_clip, "siglip": save_siglip, "vit": save_vit, "dinov2": save_dinov2, "siglip2": save_siglip2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in SAVED.items()}


@pytest.fixture(scope="module")
def pairs(folders):
    """Our inputs and the processor, by name of the model."""
    place = place_of(Context())
    return {name: (ImageInputs(folder, place), AutoImageProcessor.from_pretrained(folder, backend="pil"))
            for name, folder in folders.items()}


def expected(processor, images):
    return processor(images=images, return_tensors="pt", input_data_format="channels_last")


@pytest.mark.parametrize("name", SAVED)
@settings(max_examples=25)
@given(sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_equal_to_the_processor_for_images_of_any_sizes(name, pairs, sizes, seed):
    ours, processor = pairs[name]
    images = [image(seed + k, h, w) for k, (h, w) in enumerate(sizes) if max(h, w) <= ASPECT_MAX * min(h, w)]
    if images:
        made, wanted = ours(images), expected(processor, images)
        assert made.keys() == wanted.keys()
        for key, values in wanted.items():
            torch.testing.assert_close(made[key], values, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["clip", "siglip", "vit", "dinov2"])
def test_steps_are_read_from_the_settings_and_only_unknown_ones_are_left_to_the_processor(name, pairs):
    assert pairs[name][0].form is not None
    assert pairs["siglip2"][0].form is None


@pytest.mark.parametrize("changed", [{"do_resize": False}, {"do_center_crop": False, "size": {"height": 20, "width": 24}},
                                     {"do_rescale": False}, {"do_normalize": False}, {"resample": 0},
                                     {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]},
                                     {"size": {"shortest_edge": 24}}, {"crop_size": {"height": 21, "width": 33}}], ids=str)
def test_every_setting_counts(folders, changed, tmp_path):
    processor = AutoImageProcessor.from_pretrained(folders["clip"], backend="pil", **changed)
    processor.save_pretrained(tmp_path)
    images = [image(1, 50, 40), image(2, 37, 61)]
    made = ImageInputs(str(tmp_path), place_of(Context()))(images)
    torch.testing.assert_close(made["pixel_values"], expected(processor, images)["pixel_values"], rtol=1e-6, atol=2e-6)


def test_pixels_of_the_right_size_are_not_touched():
    form = Form(shorter=SIZE, crop=(SIZE, SIZE))
    square, wide = image(1, SIZE, SIZE), image(2, SIZE, 50)
    assert np.shares_memory(shape(square, form), square)
    assert np.shares_memory(shape(wide, form), wide)
    assert shape(wide, form).shape == (SIZE, SIZE, 3)


def test_pixels_that_were_scaled_before_give_the_same(pairs):
    ours, _ = pairs["clip"]
    large = image(3, 90, 120)
    small = shape(large, Form(shorter=SIZE, resample=ours.form.resample))
    assert torch.equal(ours([large])["pixel_values"], ours([small])["pixel_values"])


@given(height=st.integers(1, 12), width=st.integers(400, 3000), turned=st.booleans())
def test_a_very_long_picture_is_cropped_without_scaling_all_of_it(height, width, turned):
    pixels = image(5, height, width)
    pixels = pixels.transpose(1, 0, 2) if turned else pixels
    for side in (SIZE, SIZE + 1):
        form = Form(shorter=SIZE, crop=(side, side), resample=3)
        whole = shape(pixels, Form(shorter=SIZE, resample=3))
        difference = np.abs(shape(pixels, form).astype(int) - center_crop(whole, (side, side)))
        assert difference.mean() < 1
        assert difference.max() < 64


def test_numbers_become_those_of_the_place(folders):
    half = type(place_of(Context()))(torch.device("cpu"), torch.float16)
    for name in ("clip", "siglip2"):
        made = ImageInputs(folders[name], half)([image(1)])
        assert made["pixel_values"].dtype == torch.float16
    assert made["spatial_shapes"].dtype == torch.int64


def test_a_model_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(CuratorError, match=r"cannot be loaded.*in that folder"):
        ImageInputs(str(tmp_path), place_of(Context()))


def test_a_library_that_is_missing_is_an_error_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for stage in (Embed(), Classify(model="m"), ZeroShot(labels=["a", "b"]), Alignment()):
        with pytest.raises(CuratorError, match=r"torch.*pip install 'curator-core\[models\]'"):
            stage.setup(Context())


CLIP_CONFIG = {"crop_size": 224, "do_center_crop": True, "do_normalize": True, "do_resize": True, "size": 224, "resample": 3,
               "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
               "image_std": [0.26862954, 0.26130258, 0.27577711]}  # as in openai/clip-vit-large-patch14
VIT_CONFIG = {"do_normalize": True, "do_resize": True, "size": 224, "feature_extractor_type": "ViTFeatureExtractor",
              "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


@pytest.mark.parametrize(("kind", "config", "form"), [
    ("clip", CLIP_CONFIG, Form(shorter=224, crop=(224, 224), resample=3)),
    ("vit", VIT_CONFIG, Form(size=(224, 224), resample=2)),
], ids=["clip", "vit"])
def test_settings_in_the_old_form_are_read_as_well(kind, config, form, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    ours = ImageInputs(str(tmp_path), place_of(Context()))
    assert ours.form == form
    images = [image(1, 300, 240), image(2, 100, 333)]
    torch.testing.assert_close(ours(images)["pixel_values"], expected(ours.processor, images)["pixel_values"], rtol=0, atol=2e-6)
