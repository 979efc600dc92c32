"""Models of real architectures with a few thousand random weights, saved as their makers save them; and images for them.

Each function saves into a folder and gives its path, as the parameter `model` of a stage wants it.
"""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np

SIZE = 32  # of an image, in pixels
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**TOWER, "image_size": SIZE, "patch_size": 8}


def image(seed: int, height: int = 40, width: int = 48) -> np.ndarray:
    """An image of random blocks and noise: pictures of different seeds look different to any model."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (-(-height // 8), -(-width // 8), 3))
    noise = random.integers(-20, 20, (height, width, 3))
    return np.clip(np.kron(blocks, np.ones((8, 8, 1), int))[:height, :width] + noise, 0, 255).astype(np.uint8)


def save_clip(folder: Path) -> str:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    tokenizer = clip_tokenizer()
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24)
    processor = CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    return _save(folder, CLIPModel, config, processor, tokenizer)


def save_siglip(folder: Path) -> str:
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tokenizer = siglip_tokenizer()
    config = SiglipConfig(text_config={**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16},
                          vision_config=VISION)
    return _save(folder, SiglipModel, config, SiglipImageProcessor(size={"height": SIZE, "width": SIZE}), tokenizer)


def save_siglip2(folder: Path) -> str:
    """With images in their own aspect: its image processor cuts them into patches itself."""
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model

    tokenizer = siglip_tokenizer()
    vision = {**TOWER, "patch_size": 8, "num_patches": 16}
    config = Siglip2Config(text_config={**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16},
                           vision_config=vision)
    return _save(folder, Siglip2Model, config, Siglip2ImageProcessor(patch_size=8, max_num_patches=16), tokenizer)


def save_dinov2(folder: Path) -> str:
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    processor = BitImageProcessor(size={"shortest_edge": 36}, crop_size={"height": SIZE, "width": SIZE})
    return _save(folder, Dinov2Model, Dinov2Config(**VISION), processor)


def save_vit(folder: Path, labels: tuple[str, ...] = (), *, several: bool = False) -> str:
    """A backbone, or with labels a classifier; `several`: that may give an image more than one."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, ViTModel

    config = ViTConfig(**VISION)
    if labels:
        config = ViTConfig(**VISION, id2label=dict(enumerate(labels)), label2id={name: k for k, name in enumerate(labels)},
                           problem_type="multi_label_classification" if several else None)
    processor = ViTImageProcessor(size={"height": SIZE, "width": SIZE})
    return _save(folder, ViTForImageClassification if labels else ViTModel, config, processor)


def clip_tokenizer():
    """CLIP's own tokenizer with a vocabulary of single characters: texts are lowered and begin and end with a mark."""
    from transformers import CLIPTokenizer

    characters = string.ascii_lowercase + string.digits + string.punctuation
    names = [*characters, *(f"{c}</w>" for c in characters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={name: k for k, name in enumerate(names)}, merges=[], model_max_length=16)


def siglip_tokenizer():
    """SigLIP 2's own tokenizer with a vocabulary of single characters; it fills up to 16 tokens."""
    from transformers import Siglip2Tokenizer

    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *string.ascii_lowercase, *string.digits, *string.punctuation]
    return Siglip2Tokenizer(vocab={name: k for k, name in enumerate(names)}, merges=[], model_max_length=16)


def _save(folder: Path, kind, config, *parts) -> str:
    import torch

    torch.manual_seed(1)
    model = kind(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1:  # as they are made, different images have nearly the same vector
                weights.mul_(4)
            elif name in ("logit_scale", "logit_bias") and not weights.any():  # SigLIP begins with 0
                weights.fill_(1.5 if name == "logit_scale" else -0.5)
    model.save_pretrained(folder)
    for part in parts:
        part.save_pretrained(folder)
    return str(folder)
