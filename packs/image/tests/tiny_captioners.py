"""Small random vision-language models of the real architectures, saved to a folder as they come from the hub.

Each function saves into a folder and gives its path; further arguments are settings for generation.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**SMALL, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


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


def smolvlm(folder: Path) -> str:
    """The architecture of Idefics3 with a part for videos that it cannot do without."""
    words = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", image="<image>")
    images = transformers.SmolVLMImageProcessorPil(size={"longest_edge": 112}, max_image_size={"longest_edge": 56})
    config = transformers.SmolVLMConfig(
        vision_config={**SMALL, "image_size": 56, "patch_size": 14}, scale_factor=2, image_token_id=3,
        text_config=transformers.LlamaConfig(vocab_size=len(words), **TEXT))
    processor = {"processor_class": "SmolVLMProcessor", "image_seq_len": 4}
    return save(folder, transformers.SmolVLMForConditionalGeneration, config, words, images, processor)


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
