"""Models of sounds and voices with random weights, a few kilobytes each, saved as the hub has them."""

from __future__ import annotations

from pathlib import Path

CLASSES = ("Speech", "Music", "Rain")


def clap(folder: Path, seed: int = 0) -> str:
    """A CLAP with vectors of 8 numbers."""
    import torch
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = {token: at for at, token in enumerate([*special, *sorted(ByteLevel.alphabet())])}
    tokenizer = transformers.RobertaTokenizer(vocab=letters, merges=[])
    torch.manual_seed(seed)
    text = {"vocab_size": len(letters), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
            "max_position_embeddings": 66, "pad_token_id": 1, "projection_dim": 8}
    sound = {"spec_size": 64, "num_mel_bins": 16, "window_size": 4, "patch_size": 4, "patch_stride": [4, 4], "patch_embeds_hidden_size": 8,
             "hidden_size": 16, "depths": [1, 1], "num_attention_heads": [2, 2], "num_hidden_layers": 2, "projection_dim": 8,
             "num_classes": 2, "patch_embed_input_channels": 1}
    model = transformers.ClapModel(transformers.ClapConfig(text_config=text, audio_config=sound, projection_dim=8))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=.3) if parameter.dim() > 1 else None
    model.eval().save_pretrained(folder)
    transformers.ClapFeatureExtractor(feature_size=16, hop_length=2400, truncation="rand_trunc").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tagger(folder: Path, seed: int = 0) -> str:
    """An AST with the classes above."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.ASTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_length=128,
                                    num_mel_bins=16, frequency_stride=8, time_stride=32, num_labels=len(CLASSES), initializer_range=.5,
                                    id2label=dict(enumerate(CLASSES)), label2id={name: at for at, name in enumerate(CLASSES)})
    transformers.ASTForAudioClassification(config).eval().save_pretrained(folder)
    transformers.ASTFeatureExtractor(num_mel_bins=16, max_length=128).save_pretrained(folder)
    return str(folder)


def diariser(folder: Path, seed: int = 0) -> str:
    """A WavLM that hears two speakers."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.WavLMConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=(16, 16),
                                      conv_stride=(20, 16), conv_kernel=(20, 16), num_conv_pos_embeddings=4, num_labels=2,
                                      num_conv_pos_embedding_groups=2, initializer_range=.5, num_buckets=16, max_bucket_distance=32)
    transformers.WavLMForAudioFrameClassification(config).eval().save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return str(folder)


def voice(folder: Path, seed: int = 0) -> str:
    """A WavLM with an x-vector head of 8 numbers."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.WavLMConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=(16, 16),
                                      conv_stride=(20, 16), conv_kernel=(20, 16), num_conv_pos_embeddings=4,
                                      num_conv_pos_embedding_groups=2, tdnn_dim=(16, 16), tdnn_kernel=(3, 1), tdnn_dilation=(1, 1),
                                      xvector_output_dim=8, initializer_range=.5, num_buckets=16, max_bucket_distance=32)
    transformers.WavLMForXVector(config).eval().save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return str(folder)
