"""Speech recognition models with random weights, a few kilobytes each, saved as the hub has them."""

from __future__ import annotations

import json
from pathlib import Path

LANGUAGES = ("en", "de", "ja")


def whisper(folder: Path, seed: int = 0) -> str:
    """A Whisper that hears three languages and writes timestamps; its text is nonsense."""
    import torch
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in LANGUAGES), "<|translate|>", "<|transcribe|>",
               "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    times = [f"<|{tick / 50:.2f}|>" for tick in range(1501)]
    tokenizer = transformers.WhisperTokenizer(vocab={token: at for at, token in enumerate((*letters, *special, *times))}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    ids = dict(zip(special, tokenizer.convert_tokens_to_ids(special), strict=True))
    end = ids["<|endoftext|>"]
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=16, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=1500, max_target_positions=64,
        decoder_start_token_id=ids["<|startoftranscript|>"], bos_token_id=end, eos_token_id=end, pad_token_id=end, init_std=0.4))
    model.generation_config = transformers.GenerationConfig(
        is_multilingual=True, lang_to_id={f"<|{name}|>": ids[f"<|{name}|>"] for name in LANGUAGES},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"], alignment_heads=[[0, 0], [0, 1]],
        max_initial_timestamp_index=50, decoder_start_token_id=ids["<|startoftranscript|>"], bos_token_id=end,
        eos_token_id=end, pad_token_id=end, max_length=64, suppress_tokens=[i for n, i in ids.items() if n != "<|endoftext|>"])
    extractor = transformers.WhisperFeatureExtractor(feature_size=16)
    model.save_pretrained(folder)
    transformers.WhisperProcessor(extractor, tokenizer).save_pretrained(folder)
    return str(folder)


def ctc(folder: Path, seed: int = 0, mask: bool = True) -> str:
    """A wav2vec2 with a CTC head over a, b, c, e, l, o and the space; `mask`: of the kind that is told where padding begins."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: at for at, token in enumerate(("<pad>", "<unk>", "|", "a", "b", "c", "e", "l", "o"))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"), bos_token=None, eos_token=None)
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=mask)
    torch.manual_seed(seed)
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        conv_dim=(16, 16, 16), conv_stride=(10, 8, 4), conv_kernel=(10, 8, 4), num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, feat_extract_norm="layer" if mask else "group", initializer_range=0.5, pad_token_id=0,
        conv_bias=mask, do_stable_layer_norm=mask))
    model.eval().save_pretrained(folder)
    transformers.Wav2Vec2Processor(extractor, tokenizer).save_pretrained(folder)
    return str(folder)
