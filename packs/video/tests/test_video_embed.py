"""Embeddings and scores of texts equal those of transformers' own forward, for every kind of model."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest
from curator_video.models.embed import Embed
from curator_video.models.text_match import TextMatch
from curator_video.models.windows import spread

from curator.api.errors import CuratorError
from curator.testing import check_stage, run_stage
from packs.video.tests import tiny_encoders
from packs.video.tests.clips import clips
from packs.video.tests.tiny_encoders import SIZE

pytest.importorskip("torch")
MODELS = ("xclip", "videoprism", "videomae", "timesformer", "vivit", "vjepa2")
PAIRED = ("xclip", "videoprism")
LONG = "a very long text about nothing"
TEXTS = ["a cat", LONG, "no clip", None, "  ", "two dogs", "x"]


def frames(seed: int, count: int = 5, height: int = 40, width: int = 56) -> dict[str, np.ndarray]:
    """Pictures of random blocks that move."""
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8 + count, 3), np.uint8)
    wide = blocks.repeat(8, axis=0).repeat(8, axis=1)
    return {"frames": np.stack([wide[:, 8 * k:8 * k + width] for k in range(count)]), "timestamps": np.arange(count) / 2}


GIVEN = [frames(1), frames(2, 3, 64, 40), None, frames(3, 1, SIZE, SIZE), frames(4, 9, 32, 80), frames(5, 4),
         {"frames": np.empty((0, 8, 8, 3), np.uint8), "timestamps": np.empty(0)}]
SEEN = [0, 1, 3, 4, 5]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    return cache(lambda name: getattr(tiny_encoders, f"save_{name}")(tmp_path_factory.mktemp(name)))


def batch():
    return clips(*GIVEN, caption=pa.array(TEXTS, pa.string()))


def seen_by(name: str, row: int, count: int):
    """The input that a model is given for a clip, made one frame at a time by Pillow and numpy."""
    import torch
    from PIL import Image

    made = []
    for picture in GIVEN[row]["frames"][spread(len(GIVEN[row]["frames"]), count)]:
        height, width = picture.shape[:2]
        shorter = min(height, width)
        size = (SIZE, SIZE) if name == "videoprism" else (width * 36 // shorter, height * 36 // shorter)
        filter = Image.Resampling.BICUBIC if name == "videoprism" else Image.Resampling.BILINEAR
        scaled = np.asarray(Image.fromarray(picture).resize(size, filter))
        high, wide = scaled.shape[:2]
        middle = scaled[round((high - SIZE) / 2):, round((wide - SIZE) / 2):][:SIZE, :SIZE] / 255
        if name == "vivit":
            middle = (middle * 2 - 1.5) / 0.5
        elif name != "videoprism":
            middle = (middle - tiny_encoders.MEAN) / tiny_encoders.DEVIATION
        made.append(middle.transpose(2, 0, 1))
    return torch.tensor(np.stack(made)[None], dtype=torch.float32)


def reference(name: str, folder: str) -> np.ndarray:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    count = {"videomae": 6}.get(name, 4)
    found = []
    with torch.inference_mode():
        for row in SEEN:
            values = seen_by(name, row, count)
            if name in PAIRED:
                vector = model.get_video_features(values).pooler_output.flatten()
            elif name == "vivit":
                vector = model(values).pooler_output[0]
            else:
                tokens = model(values).last_hidden_state[0]
                vector = tokens[0] if name == "timesformer" else tokens.mean(dim=0)
            found.append(vector.numpy())
    return np.stack(found)


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_models_own_forward(name, folder_of):
    wanted = reference(name, folder_of(name))
    got = run_stage(Embed(model=folder_of(name), normalize=False), batch())["out"].column("embedding")
    assert [row for row, vector in enumerate(got) if vector is not None] == SEEN
    np.testing.assert_allclose(np.array([got[row] for row in SEEN]), wanted, rtol=.02, atol=.02 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["xclip", "vjepa2"])
def test_keeps_the_rules_of_a_stage_and_tells_clips_apart(name, folder_of):
    check_stage(Embed(model=folder_of(name), into="vector"), batch(), tolerance=1e-2)
    vectors = np.array([v for v in run_stage(Embed(model=folder_of(name)), batch())["out"].column("embedding") if v is not None])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert np.triu(vectors @ vectors.T, 1).max() < 0.999


@pytest.mark.parametrize("name", PAIRED)
def test_a_text_is_matched_as_by_the_models_own_forward(name, folder_of):
    import torch
    from transformers import AutoModel, AutoTokenizer

    stage = TextMatch(model=folder_of(name))
    if name == "xclip":
        check_stage(stage, batch(), tolerance=1e-2)
    got = run_stage(stage, batch())["out"]
    assert list(got.column("text_match_truncated")) == [False, True, False, None, None, False, False]
    both = [0, 1, 5]
    assert [row for row, score in enumerate(got.column("text_match")) if score is not None] == both
    model, tokenizer = AutoModel.from_pretrained(folder_of(name)).eval(), AutoTokenizer.from_pretrained(folder_of(name))
    for row in both:
        words = tokenizer([TEXTS[row]], padding="max_length", truncation=True, max_length=16, return_tensors="pt")
        words.pop("token_type_ids", None)
        with torch.inference_mode():
            made = model(**{"pixel_values" if name == "xclip" else "pixel_values_videos": seen_by(name, row, 4)}, **words)
        cosine = torch.nn.functional.cosine_similarity(made.video_embeds.flatten(), made.text_embeds.flatten(), dim=0)
        assert got.column("text_match")[row] == pytest.approx(cosine.item(), abs=.01)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="transformers' own video processors want torchvision")
@pytest.mark.parametrize(("name", "processor"), [("vivit", "VivitVideoProcessor"), ("vjepa2", "VJEPA2VideoProcessor"),
                                                 ("timesformer", "TimesformerVideoProcessor")])
def test_inputs_equal_those_of_transformers(name, processor, folder_of):
    import torch
    import transformers
    from curator_video.models.inputs import ClipInputs

    from curator.models.loading import Place

    given = GIVEN[1]["frames"]
    theirs = getattr(transformers, processor).from_pretrained(folder_of(name))(
        [torch.from_numpy(given).permute(0, 3, 1, 2)], size={"shortest_edge": 36}, return_tensors="pt")
    ours = ClipInputs(folder_of(name), Place(torch.device("cpu"), torch.float32))([given])
    torch.testing.assert_close(ours, next(iter(theirs.values())))


def test_frames_are_chosen_evenly():
    assert spread(8, 4).tolist() == [1, 3, 5, 7]
    assert spread(3, 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert spread(1, 2).tolist() == [0, 0]


def test_a_model_that_cannot_is_an_error_that_names_one_that_can(folder_of, tmp_path):
    with pytest.raises(CuratorError, match=r"reads no clips.*image.embed inside `each`"):
        run_stage(Embed(model=folder_of("clip")), batch())
    with pytest.raises(CuratorError, match=r"knows no texts.*X-CLIP"):
        run_stage(TextMatch(model=folder_of("videomae")), batch())
    bare = tiny_encoders.save_videomae(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(CuratorError, match="does not say how it wants its frames"):
        run_stage(Embed(model=bare), batch())


def test_settings_as_they_were_written_over_the_years():
    from curator_video.models.inputs import form_of

    normal = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    old = {"do_resize": True, "size": 224, "do_center_crop": True, "resample": 2, **normal}  # of 2022: no crop_size, no rescale_factor
    new = {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}, "rescale_factor": 1 / 255, **normal}
    assert form_of(old, "old") == form_of(new, "new")
    assert form_of(new, "new").crop == (224, 224)
    for wrong in ({}, {"size": {"shortest_edge": 224}}, new | {"resample": 1}):
        with pytest.raises(CuratorError, match="wants its frames as nothing here makes them"):
            form_of(wrong, "wrong")
