"""A causal language model of transformers that answers chat completions. Imported in workers only.

Questions are sorted by their length and put together so that a batch has up to `TOKENS_AT_ONCE` tokens, with
padding and with what may be answered. What chance decides is drawn for each question by itself, so that an
answer does not depend on which others are in its batch, but for rounding.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.captioner import greedy
from curator.models.chat import Reply
from curator.models.loading import Place, load, load_model, place_of
from curator_text.models.encoders import batches_of

TOKENS_AT_ONCE = 65_536  # 8 GB of keys and values with 8 billion weights; out of memory halves the batch


class Speaker:
    """A loaded model. `length`: the most tokens of a question and its answer together."""

    def __init__(self, model: str, ctx: Context) -> None:
        self.tokenizer = load("AutoTokenizer", model)
        if not self.tokenizer.chat_template:
            raise CuratorError(f"{model!r} has no chat template, so that nobody knows how to ask it: name a "
                               "model that was trained to answer (often called -Instruct or -it)")
        place = place_of(ctx)
        if ctx.gpus:
            place = Place(place.device, torch.bfloat16)  # several of these models leave the range of float16
        loaded, _ = load_model("AutoModelForCausalLM", model, place)
        self.model, self.length = loaded.to(place.device), int(
            getattr(loaded.config, "max_position_embeddings", None) or 1 << 30)
        self.tokenizer.padding_side = "left"  # what is made begins right after the question
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token or self.tokenizer.unk_token
        self._settings = loaded.generation_config
        ends = self._settings.eos_token_id
        if ends is None:
            ends = self.tokenizer.eos_token_id
        self._ends = set(ends) if isinstance(ends, Sequence) else {ends}

    def answers(self, questions: Sequence[dict[str, Any]]) -> Iterator[tuple[int, Reply | str]]:
        """The number of each question and its answer, or why there is none, as they come."""
        ids = [self._ids(question) for question in questions]
        groups: dict[str, list[int]] = {}  # questions that want the same of the model, but for the seed
        for number, question in enumerate(questions):
            if len(ids[number]) + question["max_tokens"] > self.length:
                yield number, (f"the question has {len(ids[number]):,} tokens and the answer may have "
                               f"{question['max_tokens']:,}, which are more than the {self.length:,} that "
                               "the model takes")
                continue
            how = {name: value for name, value in question.items() if name not in ("messages", "seed")}
            groups.setdefault(json.dumps(how, sort_keys=True), []).append(number)
        for group in groups.values():
            lengths = np.array([len(ids[number]) + questions[number]["max_tokens"] for number in group])
            for rows in batches_of(lengths, TOKENS_AT_ONCE, begin=TOKENS_AT_ONCE):
                numbers = [group[row] for row in rows]
                made = self._made([ids[number] for number in numbers],
                                  [questions[number] for number in numbers])
                yield from zip(numbers, made, strict=True)

    def _ids(self, question: dict[str, Any]) -> list[int]:
        messages = question["messages"]
        wanted = question.get("response_format")
        if wanted:  # a server would hold the model to it; here it is asked, and the answer looked at
            schema = json.dumps(wanted["json_schema"]["schema"], ensure_ascii=False)
            told = (f"{messages[-1]['content']}\n\nAnswer with nothing but a JSON object of this schema:\n"
                    f"{schema}")
            messages = [*messages[:-1], {**messages[-1], "content": told}]
        try:
            return self._templated(messages, question)
        except Exception as error:  # Jinja's; some models know no system message
            if messages[0]["role"] != "system" or "role" not in str(error).lower():
                raise CuratorError(f"the model's chat template cannot be filled in: {error}") from error
        told = f"{messages[0]['content']}\n\n{messages[1]['content']}"
        return self._templated([{"role": "user", "content": told}], question)

    def _templated(self, messages: list[dict[str, str]], question: dict[str, Any]) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False,
                                                  **question.get("chat_template_kwargs", {}))
        return self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    @torch.inference_mode()
    def _made(self, ids: Sequence[list[int]], questions: Sequence[dict[str, Any]]) -> list[Reply]:
        longest, how = max(map(len, ids)), questions[0]
        pad = self.tokenizer.pad_token_id or 0
        given = torch.tensor([[pad] * (longest - len(one)) + one for one in ids])
        mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in ids])
        settings = greedy(self._settings, how["max_tokens"], pad)
        settings.eos_token_id = [end for end in self._ends if end is not None] or None
        processors = transformers.LogitsProcessorList()
        penalty = how.get("repetition_penalty", settings.repetition_penalty)
        settings.repetition_penalty = None
        if penalty not in (None, 1.0):  # of what was made only: the padding depends on the other questions
            processors.append(transformers.RepetitionPenaltyLogitsProcessor(float(penalty),
                                                                            prompt_ignore_length=longest))
        if how.get("temperature"):
            processors.append(Draw(questions, longest))
        self.model.generation_config = settings
        device = self.model.device
        made = self.model.generate(input_ids=given.to(device), attention_mask=mask.to(device),
                                   logits_processor=processors)[:, longest:].tolist()
        return [self._reply(one, len(asked)) for one, asked in zip(made, ids, strict=True)]

    def _reply(self, made: list[int], asked: int) -> Reply:
        end = next((at for at, token in enumerate(made) if token in self._ends), None)
        tokens = made if end is None else made[:end + 1]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return Reply(text, "length" if end is None else "stop", len(tokens), asked)


class Draw(transformers.LogitsProcessor):
    """Takes a token by chance, among those that `top_k`, `top_p` and `min_p` leave, with numbers that each
    question brings: the likeliest token is then the one that was drawn."""

    def __init__(self, questions: Sequence[dict[str, Any]], asked: int) -> None:
        how = questions[0]
        self._temperature, self._asked = float(how["temperature"]), asked
        self._top_k, self._top_p = int(how.get("top_k") or 0), float(how.get("top_p") or 1.0)
        self._min_p = float(how.get("min_p") or 0.0)
        self._numbers = torch.from_numpy(np.stack([
            np.random.default_rng(_seed(question)).random(question["max_tokens"]) for question in questions]))

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        at = input_ids.shape[1] - self._asked
        drawn = self._numbers[:, at:at + 1].to(scores.device, torch.float32)
        shares, order = (scores.float() / self._temperature).softmax(dim=-1).sort(dim=-1, descending=True,
                                                                                  stable=True)
        sums = shares.cumsum(dim=-1)
        kept = (sums - shares < self._top_p) & (shares >= self._min_p * shares[:, :1])
        if self._top_k > 0:
            kept[:, self._top_k:] = False
        shares = shares * kept
        sums = shares.cumsum(dim=-1)
        place = (sums <= drawn * sums[:, -1:]).sum(dim=-1, keepdim=True)
        place = torch.minimum(place, kept.sum(dim=-1, keepdim=True).clamp(min=1) - 1)
        return torch.full_like(scores, -torch.inf).scatter(1, order.gather(1, place), 0.0)


def _seed(question: dict[str, Any]) -> int:
    """What is drawn follows from the seed and the words of a question; without a seed from nothing."""
    if question.get("seed") is None:
        return int.from_bytes(os.urandom(16))
    words = json.dumps([question["seed"], question["messages"]], sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=16).digest())
