"""Captions by vision-language models: small random ones of the real architectures, saved to a folder and loaded from there."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from curator_image.caption import Caption

from curator.errors import CuratorError
from curator.stage import Context
from curator.tasks import ImageBatch
from curator.testing import check_stage, run_stage

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**SMALL, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


# -- models -------------------------------------------------------------------------------------------------------


def tokenizer(*special: str, image: str | None):
    """One token a byte, and special ones from number 3 on. `image`: what the chat template writes for an image."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["<pad>", "<s>", "</s>", *special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                                   additional_special_tokens=list(special))
    if image is not None:
        wrapped.chat_template = TEMPLATE.replace("IMAGE", image)
    return wrapped


def save(folder: Path, kind: type, config, words, images, processor: dict | None = None, **generation) -> str:
    """A random model with its processor as a folder, as from the hub."""
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.3)  # answers that depend on the image, and no two tokens nearly as likely
    model.generation_config.update(**{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **generation})
    for part in (model, words, images):
        part.save_pretrained(folder)
    if processor:
        (folder / "processor_config.json").write_text(json.dumps(processor))
    return str(folder)


def llava(folder: Path, image: str | None = "<image>", **generation) -> str:
    """One size for every image."""
    words = tokenizer("<image>", image=image)
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SMALL, image_size=28, patch_size=14),
        text_config=transformers.LlamaConfig(vocab_size=len(words), **TEXT), image_token_index=3)
    processor = {"processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default",
                 "num_additional_image_tokens": 1}
    return save(folder, transformers.LlavaForConditionalGeneration, config, words, images, processor, **generation)


def qwen(folder: Path, **generation) -> str:
    """As many tokens as the image has patches, positions in three dimensions, a part for videos that wants torchvision."""
    special = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    words = tokenizer(*special, image="<|vision_start|><|image_pad|><|vision_end|>")
    images = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=64 * 28 * 28)
    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 10000.0}
    config = transformers.Qwen2_5_VLConfig(
        text_config={"vocab_size": len(words), **TEXT, "rope_parameters": rope},
        vision_config={"depth": 2, "hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 32, "num_heads": 4,
                       "patch_size": 14, "fullatt_block_indexes": [1]},
        image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)
    return save(folder, transformers.Qwen2_5_VLForConditionalGeneration, config, words, images, **generation)


def idefics(folder: Path, **generation) -> str:
    """An image in as many tiles as its shape asks for, padded with blank ones in a batch."""
    places = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]
    words = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *places, image="<image>")
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": 112}, max_image_size={"longest_edge": 56})
    config = transformers.Idefics3Config(
        vision_config={**SMALL, "image_size": 56, "patch_size": 14}, scale_factor=2, image_token_id=3,
        text_config=transformers.LlamaConfig(vocab_size=len(words), **TEXT))
    processor = {"processor_class": "Idefics3Processor", "image_seq_len": 4}
    return save(folder, transformers.Idefics3ForConditionalGeneration, config, words, images, processor, **generation)


def florence(folder: Path, **generation) -> str:
    """An encoder and a decoder, and no chat template."""
    words = tokenizer("<image>", image=None)
    for name, value in (("image_token", "<image>"), ("image_token_id", 3)):
        setattr(words, name, value)
        words.init_kwargs[name] = value
    images = transformers.CLIPImageProcessorPil(size={"height": 64, "width": 64}, do_center_crop=False)
    images.image_seq_length = 5
    config = transformers.Florence2Config(
        vision_config={"embed_dim": (8, 8, 8, 16), "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 2), "num_groups": (1, 1, 1, 2),
                       "projection_dim": 32, "window_size": 2},
        text_config={"model_type": "bart", "vocab_size": len(words), "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
                     "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                     "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
        image_token_id=3)
    processor = {"processor_class": "Florence2Processor", "num_additional_image_tokens": 0}
    return save(folder, transformers.Florence2ForConditionalGeneration, config, words, images, processor,
                decoder_start_token_id=2, forced_eos_token_id=2, **generation)


FAMILIES = {"llava": llava, "qwen": qwen, "idefics": idefics, "florence": florence}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    return cache(lambda family: FAMILIES[family](tmp_path_factory.mktemp(family)))


# -- images -------------------------------------------------------------------------------------------------------


def images(*shapes: tuple[int, int] | None) -> ImageBatch:
    noise = np.random.default_rng(7)
    ids = [f"i{k}" for k in range(len(shapes))]
    return ImageBatch(rows=pa.table({"id": ids, "source": ids}),
                      pixels=[shape and noise.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes])


MANY = images((20, 30), (60, 40), None, (100, 30), (30, 90), (120, 160), (8, 8))


def rows(stage: Caption, batch: ImageBatch) -> list[dict]:
    return run_stage(stage, batch)["out"].rows.select(list(stage.contract().adds)).to_pylist()


def captioner(stage: Caption):
    stage.setup(Context())
    return stage._captioner


# -- tests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_conformance(family, folder_of):
    """Among others: an image gets the same caption alone and in a batch, whatever padding that brings."""
    check_stage(Caption(model=folder_of(family), system="Be brief." if family != "florence" else None, max_new_tokens=6), MANY)


@pytest.mark.parametrize("family", ["llava", "qwen", "idefics"])
def test_tokens_are_the_likeliest_ones_by_the_bare_model(family, folder_of):
    batch = images((60, 40), (100, 30), (120, 160))
    stage = Caption(model=folder_of(family), max_new_tokens=6)
    answers = rows(stage, batch)
    asking, words = captioner(stage), transformers.AutoTokenizer.from_pretrained(folder_of(family))
    bare = transformers.AutoModelForImageTextToText.from_pretrained(folder_of(family)).eval()
    for pixels, answer in zip(batch.pixels, answers, strict=True):
        inputs = dict(asking.inputs([pixels]))
        length = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            for _ in range(answer["caption_tokens"]):
                token = bare(**inputs, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
                more = {"input_ids": token, "attention_mask": token * 0 + 1, "mm_token_type_ids": token * 0}
                inputs |= {name: torch.cat([inputs[name], one], dim=1) for name, one in more.items() if name in inputs}
        made = inputs["input_ids"][0, length:]
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
    batch = images((60, 40))
    cut = rows(Caption(model=folder_of(family), max_new_tokens=2), batch)[0]
    assert (cut["caption_tokens"], cut["caption_finish_reason"]) == (2, "length")
    stage = Caption(model=folder_of(family), max_new_tokens=8)
    (sequence,) = captioner(stage)._model.generate(
        **captioner(stage).inputs(batch.pixels), do_sample=False, max_new_tokens=8, forced_eos_token_id=None).tolist()
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
    (pixels,) = images((120, 160)).pixels
    long, short = (captioner(Caption(model=folder_of("qwen"), image_options=options)).inputs([pixels])["input_ids"].shape[1]
                   for options in ({}, {"size": {"shortest_edge": 28 * 28, "longest_edge": 4 * 28 * 28}}))
    assert long - short > 10


def test_the_prompt_and_the_system_message_are_in_the_question(folder_of):
    stage = Caption(model=folder_of("llava"), prompt="What is it?", system="Be brief.")
    words = transformers.AutoTokenizer.from_pretrained(folder_of("llava"))
    asked = words.decode(captioner(stage).inputs(images((20, 30)).pixels)["input_ids"][0])
    assert asked == "<system>Be brief.</s><user>" + "<image>" * 4 + "What is it?</s><assistant>"


def test_a_model_without_chat_template_is_refused(tmp_path):
    with pytest.raises(CuratorError, match="no chat template"):
        Caption(model=llava(tmp_path, image=None)).setup(Context())


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed, so that nothing is missing")
def test_a_processor_that_cannot_do_without_torchvision_says_so(tmp_path, folder_of):
    words = transformers.AutoTokenizer.from_pretrained(folder_of("idefics"))
    images = transformers.SmolVLMImageProcessorPil(size={"longest_edge": 112}, max_image_size={"longest_edge": 56})
    config = transformers.SmolVLMConfig(
        vision_config={**SMALL, "image_size": 56, "patch_size": 14}, scale_factor=2, image_token_id=3,
        text_config=transformers.LlamaConfig(vocab_size=len(words), **TEXT))
    processor = {"processor_class": "SmolVLMProcessor", "image_seq_len": 4}
    model = save(tmp_path, transformers.SmolVLMForConditionalGeneration, config, words, images, processor)
    with pytest.raises(CuratorError, match="pip install torchvision"):
        Caption(model=model).setup(Context())


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "curator_image.captioner", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CuratorError, match=r"pip install 'curator-image\[models\]'"):
        Caption(model="any").setup(Context())


@pytest.mark.parametrize(("fields", "message"), [
    ({"model": ""}, "model is empty"), ({"prompt": " "}, "prompt is empty"), ({"into": ""}, "into is empty"),
    ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more"),
])
def test_a_wrong_parameter_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Caption(**{"model": "any", **fields})
