"""Text models of real architectures with a few thousand random weights, saved as their makers save them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "fox", "sea", "ship", "is", "a", "good", "bad", "##s", "x", "."]


def save_tokenizer(folder: Path):
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), vocab_file=str(folder / "vocab.txt"), model_max_length=24)
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_bert(folder: Path, labels: tuple[str, ...] = (), *, seed: int = 0) -> str:
    """An encoder, or with labels a classifier; with one label a regression."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    torch.manual_seed(seed)
    save_tokenizer(folder)
    config = BertConfig(**SIZES, vocab_size=len(WORDS), max_position_embeddings=24)
    if labels:
        config.id2label, config.label2id = dict(enumerate(labels)), {name: k for k, name in enumerate(labels)}
        config.problem_type = "regression" if len(labels) == 1 else None
    model = (BertForSequenceClassification if labels else BertModel)(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    model.save_pretrained(folder)
    return str(folder)


def save_deberta_with_head(folder: Path, labels: tuple[str, ...]) -> str:
    """As NVIDIA saves its classifiers: a configuration without a type, and the backbone's weights below `model.`."""
    import torch
    from safetensors.torch import save_file
    from transformers import DebertaV2Config, DebertaV2Model

    base = folder / "base"
    save_tokenizer(base)
    config = DebertaV2Config(**SIZES, vocab_size=len(WORDS), relative_attention=True, position_buckets=8, max_position_embeddings=24,
                             pos_att_type=["p2c", "c2p"], type_vocab_size=0, position_biased_input=False)
    torch.manual_seed(1)
    backbone = DebertaV2Model(config)
    backbone.save_pretrained(base)
    save_tokenizer(folder)
    head = torch.nn.Linear(16, len(labels))
    weights = {f"model.{name}": value for name, value in backbone.state_dict().items()} | {
        "fc.weight": head.weight.detach(), "fc.bias": head.bias.detach()}
    save_file({name: value.contiguous() for name, value in weights.items()}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"base_model": str(base), "fc_dropout": 0.2, "id2label": dict(enumerate(labels))}))
    return str(folder)


def save_gpt2(folder: Path) -> str:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(2)
    save_tokenizer(folder)
    config = GPT2Config(vocab_size=len(WORDS), n_positions=24, n_embd=16, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3)
    model = GPT2LMHeadModel(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    model.save_pretrained(folder)
    return str(folder)


CHAT = ("{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}<|assistant|> {% endif %}")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def save_chat_model(folder: Path, *, template: str | None = CHAT, length: int = 256) -> str:
    """A Llama whose tokens are letters, and that knows how it is asked."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: k for k, word in enumerate(["<pad>", "</s>", "<unk>", " ", *LETTERS, "{", "}", '"', ":", ".", "1", "2"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=len(words),
                         max_position_embeddings=length, eos_token_id=1, pad_token_id=0)
    model = LlamaForCausalLM(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.35)
    model.save_pretrained(folder)
    return str(folder)


def save_static(folder: Path, kind: str = "F32", **more: np.ndarray) -> str:
    """A table of vectors for the words the, fox, jumps and ?, the last for what is unknown; `more`: weights, mapping."""
    folder.mkdir()
    vocabulary = {"the": 0, "fox": 1, "jumps": 2, "?": 3}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None, "post_processor": None, "decoder": None}))
    (folder / "config.json").write_text('{"normalize": true}')
    arrays = {"embeddings": TABLE.astype({"F32": "<f4", "F16": "<f2"}[kind]), **more}
    head, body = {}, b""
    for name, values in arrays.items():
        dtype = {"f4": "F32", "f2": "F16", "i8": "I64"}[values.dtype.str[1:]]
        head[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(body), len(body) + values.nbytes]}
        body += values.tobytes()
    told = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(told)) + told + body)
    return str(folder)


TABLE = np.array([[1, 0, 2], [0, 3, 1], [-1, 0.5, 0], [9, 9, 9]])
