"""Models of clips of the real architectures with a few thousand random weights, saved as their makers save them.

Each function saves into a folder and gives its path, as the parameter `model` of a stage wants it.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

SIZE = 32  # of a frame, in pixels
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**TOWER, "image_size": SIZE, "patch_size": 16}
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CROPPED = {"do_resize": True, "size": {"shortest_edge": 36}, "resample": 2, "do_center_crop": True,
           "crop_size": {"height": SIZE, "width": SIZE}, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
           "image_mean": MEAN, "image_std": DEVIATION}


def save_xclip(folder: Path) -> str:
    from transformers import XCLIPConfig, XCLIPModel

    tokenizer = clip_tokenizer()
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    vision = {**VISION, "num_frames": 4, "mit_hidden_size": 32, "mit_intermediate_size": 64, "mit_num_attention_heads": 2}
    config = XCLIPConfig(text_config=text, vision_config=vision, projection_dim=32, prompt_num_attention_heads=2)
    return _save(folder, XCLIPModel, config, {**CROPPED, "image_processor_type": "VideoMAEImageProcessor"}, tokenizer)


def save_transnet(path: Path) -> str:
    """The whole network, which has one size only: a file of random weights."""
    import torch
    from curator_video.shots.transnet_net import TransNet

    torch.manual_seed(0)
    torch.save(TransNet().state_dict(), path)
    return str(path)


def save_videoprism(folder: Path) -> str:
    from transformers import VideoPrismClipModel, VideoPrismConfig, VideoPrismTokenizer

    tower = {**TOWER, "num_attention_heads": 2}
    letters = [(f"▁{c}", -3.0) for c in string.ascii_lowercase] + [(c, -4.0) for c in string.ascii_lowercase]
    tokenizer = VideoPrismTokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters], extra_ids=0,
                                    model_max_length=16)
    tower.pop("num_hidden_layers")
    vision = {**tower, "image_size": SIZE, "num_frames": 4, "tubelet_size": [1, 16, 16], "num_spatial_layers": 1,
              "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    text = {**tower, "num_hidden_layers": 1, "vocab_size": len(tokenizer), "max_position_embeddings": 16}
    inputs = {"do_resize": True, "size": {"height": SIZE, "width": SIZE}, "resample": 3, "do_rescale": True,
              "rescale_factor": 1 / 255, "do_normalize": False, "video_processor_type": "LlavaOnevisionVideoProcessor"}
    return _save(folder, VideoPrismClipModel, VideoPrismConfig(text_config=text, vision_config=vision), inputs, tokenizer)


def save_videomae(folder: Path) -> str:
    from transformers import VideoMAEConfig, VideoMAEModel

    return _save(folder, VideoMAEModel, VideoMAEConfig(**VISION, num_frames=6), {**CROPPED, "size": 36, "crop_size": SIZE})


def save_timesformer(folder: Path) -> str:
    from transformers import TimesformerConfig, TimesformerModel

    return _save(folder, TimesformerModel, TimesformerConfig(**VISION, num_frames=4), CROPPED)


def save_vivit(folder: Path) -> str:
    from transformers import VivitConfig, VivitModel

    config = VivitConfig(**{k: v for k, v in VISION.items() if k != "patch_size"}, num_frames=4, tubelet_size=[2, 16, 16])
    inputs = {**CROPPED, "rescale_factor": 1 / 127.5, "offset": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return _save(folder, VivitModel, config, inputs)


def save_vjepa2(folder: Path) -> str:
    from transformers import VJEPA2Config, VJEPA2Model

    config = VJEPA2Config(patch_size=16, crop_size=SIZE, frames_per_clip=4, hidden_size=32, num_attention_heads=2,
                          num_hidden_layers=2, mlp_ratio=2, pred_hidden_size=32, pred_num_attention_heads=2,
                          pred_num_hidden_layers=1, pred_num_mask_tokens=1)
    inputs = {"video_processor": {**CROPPED, "video_processor_type": "VJEPA2VideoProcessor"}}
    return _save(folder, VJEPA2Model, config, inputs, file="processor_config.json")


def save_clip(folder: Path) -> str:
    """A model of images."""
    from transformers import CLIPConfig, CLIPModel

    tokenizer = clip_tokenizer()
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    inputs = {**CROPPED, "image_processor_type": "CLIPImageProcessor"}
    return _save(folder, CLIPModel, CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24), inputs, tokenizer)


def clip_tokenizer():
    """CLIP's own tokenizer with a vocabulary of single characters: texts are lowered and begin and end with a mark."""
    from transformers import CLIPTokenizer

    characters = string.ascii_lowercase + string.digits + string.punctuation
    names = [*characters, *(f"{c}</w>" for c in characters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={name: k for k, name in enumerate(names)}, merges=[], model_max_length=16)


def _save(folder: Path, kind, config, inputs: dict, *parts, file: str = "preprocessor_config.json") -> str:
    import torch

    torch.manual_seed(1)
    model = kind(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:  # as they are made, different clips have nearly the same vector
                weights.mul_(4)
    model.save_pretrained(folder)
    for part in parts:
        part.save_pretrained(folder)
    (folder / file).write_text(json.dumps(inputs))
    return str(folder)
