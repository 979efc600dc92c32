"""Captions by vision-language models: small random ones of the real architectures, saved to a folder and loaded from there."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from curator_image.caption import Caption

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.api.tasks import ImageBatch
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images
from packs.image.tests.tiny_captioners import FAMILIES, llava, smolvlm


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    return cache(lambda family: FAMILIES[family](tmp_path_factory.mktemp(family)))


def noise(*shapes: tuple[int, int] | None) -> ImageBatch:
    random = np.random.default_rng(7)
    return images(*(shape and random.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes))


MANY = noise((20, 30), (60, 40), None, (100, 30), (30, 90), (120, 160), (8, 8))


def rows(stage: Caption, batch: ImageBatch) -> list[dict]:
    return run_stage(stage, batch)["out"].rows.select(list(stage.contract().adds)).to_pylist()


def captioner(stage: Caption):
    stage.setup(Context())
    return stage._captioner


def inputs(stage: Caption, *images: np.ndarray):
    """What the model is given for these images."""
    asked = captioner(stage)
    return asked.inputs([stage._question(stage.prompt, [pixels]) for pixels in images])


@pytest.mark.parametrize("family", FAMILIES)
def test_conformance(family, folder_of):
    """Among others: an image gets the same caption alone and in a batch, whatever padding that brings."""
    check_stage(Caption(model=folder_of(family), system="Be brief." if family != "florence" else None, max_new_tokens=6), MANY,
                skip={"gpu"})  # words of a random model turn on the last digit


@pytest.mark.parametrize("family", ["llava", "qwen", "idefics"])
def test_tokens_are_the_likeliest_ones_by_the_bare_model(family, folder_of):
    batch = noise((60, 40), (100, 30), (120, 160))
    stage = Caption(model=folder_of(family), max_new_tokens=6)
    answers = rows(stage, batch)
    words = transformers.AutoTokenizer.from_pretrained(folder_of(family))
    bare = transformers.AutoModelForImageTextToText.from_pretrained(folder_of(family)).eval()
    for pixels, answer in zip(batch.pixels, answers, strict=True):
        given = dict(inputs(stage, pixels))
        length = given["input_ids"].shape[1]
        with torch.inference_mode():
            for _ in range(answer["caption_tokens"]):
                token = bare(**given, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
                more = {"input_ids": token, "attention_mask": token * 0 + 1, "mm_token_type_ids": token * 0}
                given |= {name: torch.cat([given[name], one], dim=1) for name, one in more.items() if name in given}
        made = given["input_ids"][0, length:]
        assert answer["caption"] == words.decode(made, skip_special_tokens=True).strip()
        assert answer["caption_finish_reason"] == ("stop" if 2 in made else "length")


def test_a_caption_depends_on_the_image_and_a_missing_image_has_none(folder_of):
    answers = rows(Caption(model=folder_of("qwen"), max_new_tokens=12, into="alt"), MANY)
    assert set(answers[2].values()) == {None}
    texts = [answer["alt"] for answer in answers if answer["alt"] is not None]
    assert len(texts) == 6
    assert len(set(texts)) > 3, "tiny models see alike what is much alike"


@pytest.mark.parametrize("family", ["llava", "florence"])
def test_a_caption_that_ends_is_told_from_one_that_is_cut_off(family, folder_of, tmp_path):
    batch = noise((60, 40))
    cut = rows(Caption(model=folder_of(family), max_new_tokens=2), batch)[0]
    assert (cut["caption_tokens"], cut["caption_finish_reason"]) == (2, "length")
    stage = Caption(model=folder_of(family), max_new_tokens=8)
    (sequence,) = captioner(stage)._model.generate(
        **inputs(stage, *batch.pixels), do_sample=False, max_new_tokens=8, forced_eos_token_id=None).tolist()
    third = sequence[-8:][2]
    ending = FAMILIES[family](tmp_path / "model", eos_token_id=[2, third])
    first = sequence[-8:].index(third) + 1
    answer = rows(Caption(model=ending, max_new_tokens=8), batch)[0]
    assert (answer["caption_tokens"], answer["caption_finish_reason"]) == (first, "stop")


@pytest.mark.parametrize("family", ["qwen", "idefics"])
def test_settings_of_the_model_do_not_make_an_answer_depend_on_its_batch(family, tmp_path):
    """A penalty on repetition would count the padding, and sampling would draw."""
    model = FAMILIES[family](tmp_path, repetition_penalty=3.0, do_sample=True, temperature=0.7, top_k=20, top_p=0.8)
    stage = Caption(model=model, max_new_tokens=12)
    alone = [row for pixels in MANY.pixels for row in rows(stage, MANY.slice(0, 1).with_payloads(pixels=[pixels]))]
    assert rows(stage, MANY) == alone
    assert all(len(set(row["caption"])) > 5 for row in alone if row["caption"]), "the penalty is at work"


def test_image_options_reach_the_image_processor(folder_of):
    (pixels,) = noise((120, 160)).pixels
    long, short = (inputs(Caption(model=folder_of("qwen"), image_options=options), pixels)["input_ids"].shape[1]
                   for options in ({}, {"size": {"shortest_edge": 28 * 28, "longest_edge": 4 * 28 * 28}}))
    assert long - short > 10


def test_the_prompt_and_the_system_message_are_in_the_question(folder_of):
    stage = Caption(model=folder_of("llava"), prompt="What is it?", system="Be brief.")
    words = transformers.AutoTokenizer.from_pretrained(folder_of("llava"))
    asked = words.decode(inputs(stage, *noise((20, 30)).pixels)["input_ids"][0])
    assert asked == "<system>Be brief.</s><user>" + "<image>" * 4 + "What is it?</s><assistant>"


def test_a_model_without_chat_template_is_refused(tmp_path):
    with pytest.raises(CuratorError, match="no chat template"):
        Caption(model=llava(tmp_path, image=None)).setup(Context())


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed, so that nothing is missing")
def test_a_processor_that_cannot_do_without_torchvision_says_so(tmp_path):
    with pytest.raises(CuratorError, match="pip install torchvision"):
        Caption(model=smolvlm(tmp_path)).setup(Context())


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "curator.models.captioner", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CuratorError, match=r"pip install 'curator-core\[models\]'"):
        Caption(model="any").setup(Context())


@pytest.mark.parametrize(("fields", "message"), [
    ({"model": ""}, "model is empty"), ({"prompt": " "}, "prompt is empty"), ({"into": ""}, "into is empty"),
    ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more"),
])
def test_a_wrong_parameter_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Caption(**{"model": "any", **fields})
