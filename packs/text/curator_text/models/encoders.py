"""Models that read texts, from transformers. Imported in workers only.

Texts of a call are cut into windows, sorted by length, and put together so that a batch has up to
`TOKENS_AT_ONCE` tokens with its padding: of 1,024 texts of log-normal lengths a model then reads 1 % of
padding on a core and 9 % on a GPU, and not as much again as there is text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import fetch, library, load, load_model, place_of
from curator.models.vectors import finite

TOKENS_AT_ONCE = {"cuda": 16_384, "cpu": 4_096}  # a core gains nothing by more, and a GPU idles with less
BEGIN_TOKENS = {"cuda": 2_048, "cpu": 48}  # what it costs to begin a batch: of small ones less is padded


class Reader:
    """A model and its tokenizer. `length`: the most tokens that the model takes at a time, special ones
    included."""

    def __init__(self, loader: str, model: str, ctx: Context, max_tokens: int | None) -> None:
        self.name, self.place = model, place_of(ctx)
        self.tokenizer = load("AutoTokenizer", model)
        loaded = self.load(loader)
        self.model = loaded.to(self.place.device)
        positions = getattr(loaded.config, "max_position_embeddings", None) or 1 << 30
        if loaded.config.model_type in ("roberta", "xlm-roberta", "camembert"):
            positions -= 2  # the first two are never given out
        if getattr(loaded.config, "relative_attention", False):
            positions = 1 << 30
        self.length = min(positions, self.tokenizer.model_max_length, max_tokens or 1 << 30)
        self.special = self.tokenizer.num_special_tokens_to_add()
        if self.length <= self.special:
            raise CuratorError(f"max_tokens must be more than {self.special}, the special tokens of "
                               f"{model!r}")
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token or self.tokenizer.unk_token

    def load(self, loader: str) -> Any:
        return load_model(loader, self.name, self.place)[0]

    def windows(self, texts: Sequence[str], whole: bool) -> tuple[list[list[int]], np.ndarray]:
        """Tokens of each text, cut to what the model takes; with `whole` all of a text, as several windows.
        And whose each is."""
        if not texts:
            return [], np.zeros(0, np.int64)
        found = self.tokenizer(list(texts), truncation=True, max_length=self.length,
                               return_overflowing_tokens=whole, verbose=False)
        of = found["overflow_to_sample_mapping"] if whole else range(len(texts))
        return found["input_ids"], np.array(of, np.int64)

    def batches(self, windows: Sequence[Sequence[int]], **others: Sequence[Sequence[int]]) -> Iterator[
            tuple[np.ndarray, dict[str, torch.Tensor]]]:
        """The numbers of the windows of each batch, and what the model is given. `others`: what it is given
        beside tokens and mask, a list for each window."""
        lengths = np.array([len(window) for window in windows])
        given = {"input_ids": windows, "attention_mask": [np.ones(length) for length in lengths], **others}
        device = self.place.device.type
        for rows in batches_of(lengths, TOKENS_AT_ONCE[device], BEGIN_TOKENS[device]):
            shape = len(rows), max(1, int(lengths[rows].max()))
            inputs = {name: np.zeros(shape, np.int64) for name in given}
            inputs["input_ids"][:] = self.tokenizer.pad_token_id or 0
            for name, values in inputs.items():
                for at, row in enumerate(rows):
                    values[at, :lengths[row]] = given[name][row]
            yield rows, {name: torch.from_numpy(values).to(self.place.device)
                         for name, values in inputs.items()}


def batches_of(lengths: np.ndarray, most: int, begin: int) -> Iterator[np.ndarray]:
    """Numbers of texts of nearly the same length, so many together that they have up to `most` tokens,
    padding included. Where one ends is chosen so that all cost the least, if to begin a batch costs as much
    as `begin` tokens."""
    order = np.argsort(-lengths, kind="stable")
    longest = np.maximum(1, lengths[order])
    least, ends = np.zeros(len(order) + 1), np.zeros(len(order), np.int64)  # cost of all from here on
    for at in range(len(order) - 1, -1, -1):
        sizes = np.arange(1, min(len(order) - at, max(1, most // int(longest[at]))) + 1)
        costs = sizes * longest[at] + least[at + 1:at + 1 + len(sizes)]
        best = int(costs.argmin())
        least[at], ends[at] = costs[best] + begin, at + 1 + best
    at = 0
    while at < len(order):
        yield order[at:ends[at]]
        at = ends[at]


# -- classes -------------------------------------------------------------------------------------------------


class TextClassifier(Reader):
    """`labels`: the names of the classes; one and `regression` where the model gives a number."""

    def __init__(self, model: str, ctx: Context, max_tokens: int | None) -> None:
        super().__init__("AutoModelForSequenceClassification", model, ctx, max_tokens)
        config = self.model.config
        self.labels = [config.id2label[k] for k in range(config.num_labels)]
        self.regression = config.num_labels == 1
        self._each = config.problem_type == "multi_label_classification"

    def load(self, loader: str) -> Any:
        head = _mixin_config(self.name)
        return super().load(loader) if head is None else _FirstToken.read(self.name, head, self.place)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], whole: bool) -> np.ndarray:
        """float32 [texts, classes]: probabilities, or the number of a regression; with `whole` the mean over
        the windows of a text, by their lengths."""
        windows, of = self.windows(texts, whole)
        found = np.zeros((len(windows), len(self.labels)), np.float32)
        for rows, inputs in self.batches(windows):
            logits = self.model(**inputs).logits.float()
            if not self.regression:
                logits = logits.sigmoid() if self._each else logits.softmax(dim=-1)
            found[rows] = finite(logits, self.name)
        if len(windows) == len(texts):
            return found
        weights = np.array([max(1, len(window) - self.special) for window in windows], np.float64)
        sums = np.zeros((len(texts), len(self.labels)))
        np.add.at(sums, of, found * weights[:, None])
        return (sums / np.bincount(of, weights)[:, None]).astype(np.float32)


def _mixin_config(model: str) -> dict[str, Any] | None:
    """The configuration of a model that was saved without its type, as NVIDIA's quality and domain
    classifiers are."""
    path = fetch(f"{model}:config.json")
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CuratorError(f"{model!r} has no config.json that can be read: {error}") from error
    return config if "model_type" not in config and "base_model" in config and "id2label" in config else None


class _FirstToken(torch.nn.Module):
    """A backbone, and a linear layer on its first token."""

    def __init__(self, backbone: Any, labels: dict[int, str]) -> None:
        super().__init__()
        self.model, self.fc = backbone, torch.nn.Linear(backbone.config.hidden_size, len(labels))
        self.config = backbone.config
        self.config.id2label, self.config.num_labels = labels, len(labels)

    def forward(self, **inputs: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.fc(self.model(**inputs).last_hidden_state[:, 0]))

    @staticmethod
    def read(model: str, config: dict[str, Any], place: Any) -> _FirstToken:
        transformers = library("transformers")
        backbone = transformers.AutoModel.from_config(load("AutoConfig", config["base_model"]))
        labels = {int(number): name for number, name in config["id2label"].items()}
        made = _FirstToken(backbone, labels)
        weights = library("safetensors.torch").load_file(str(fetch(f"{model}:model.safetensors")))
        missing, other = made.load_state_dict(weights, strict=False)
        if missing or other:
            raise CuratorError(f"the weights of {model!r} do not fit {config['base_model']!r}: "
                               f"{', '.join([*missing, *other][:3])}")
        return made.to(place.dtype).eval().requires_grad_(False)


# -- embeddings ----------------------------------------------------------------------------------------------


class TextEmbedder(Reader):
    """`pooling`: `mean`, `cls` or `last`; None: as the model's card says by its folder `1_Pooling`, else
    `mean`."""

    def __init__(self, model: str, ctx: Context, max_tokens: int | None, pooling: str | None) -> None:
        super().__init__("AutoModel", model, ctx, max_tokens)
        self.pooling = pooling or _pooling_of(model)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [texts, width], of the first window of each text."""
        windows, _ = self.windows(texts, whole=False)
        made: np.ndarray | None = None
        for rows, inputs in self.batches(windows):
            hidden, mask = self.model(**inputs).last_hidden_state.float(), inputs["attention_mask"]
            if self.pooling == "cls":
                found = hidden[:, 0]
            elif self.pooling == "last":
                found = hidden[torch.arange(len(rows), device=hidden.device),
                               mask.sum(dim=1).clamp(min=1) - 1]
            else:
                found = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
            if made is None:
                made = np.zeros((len(texts), found.shape[1]), np.float32)
            made[rows] = finite(found, self.name)
        return np.zeros((0, 0), np.float32) if made is None else made


def _pooling_of(model: str) -> str:
    """By the configuration that sentence-transformers saves beside a model."""
    try:
        config = json.loads(fetch(f"{model}:1_Pooling/config.json").read_text("utf-8"))
    except (OSError, ValueError, CuratorError):
        return "mean"
    return ("cls" if config.get("pooling_mode_cls_token") else "last" if config.get("pooling_mode_lasttoken")
            else "mean")


# -- language models -----------------------------------------------------------------------------------------


class LanguageModelReader(Reader):
    """A causal language model, asked how likely texts are."""

    def __init__(self, model: str, ctx: Context, max_tokens: int | None) -> None:
        super().__init__("AutoModelForCausalLM", model, ctx, max_tokens)
        marks = [getattr(told, name, None) for name in ("bos_token_id", "eos_token_id")
                 for told in (self.tokenizer, self.model.config)]
        self._first = next((mark for mark in marks if isinstance(mark, int)), None)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], stride: int) -> tuple[np.ndarray, np.ndarray]:
        """The sum of the logarithms of the probabilities of each text's tokens (float64), and their number.
        Longer texts are read in windows that overlap by `stride` tokens, which are not counted again."""
        windows, of, fresh = [], [], []
        for number, ids in enumerate(self.tokenizer(list(texts), add_special_tokens=False,
                                                    verbose=False)["input_ids"]):
            whole = ([] if self._first is None else [self._first]) + ids
            at = 0
            while len(whole) > 1:
                windows.append(whole[at:at + self.length])
                of.append(number)
                fresh.append(len(windows[-1]) - (1 if at == 0 else min(stride, self.length - 1)))
                if at + self.length >= len(whole):
                    break
                at += self.length - min(stride, self.length - 1)
        sums, counts = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
        for rows, inputs in self.batches(windows):
            told = self.model(**inputs).logits[:, :-1].float().log_softmax(dim=-1)
            each = finite(told.gather(2, inputs["input_ids"][:, 1:, None])[..., 0], self.name)
            for at, row in enumerate(rows):
                end = len(windows[row]) - 1
                sums[of[row]] += each[at, end - fresh[row]:end].astype(np.float64).sum()
                counts[of[row]] += fresh[row]
        return sums, counts
