"""Conversations as the text that a model is trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.findings import Summed
from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.chat.jinja import EXTRA, compiled, of_tokenizer
from curator_text.tokens.tokenizers import open_tokenizer, required


@dataclass(kw_only=True)
class ChatTemplate(Stage):
    """Write each conversation as one text, by the chat template of a model.

    Reads `messages` as `text.chat` makes them. Adds `text`, `chars` (its characters) and with `tokens_by` also
    `tokens`. Null where there is no conversation. What a template refuses (roles that do not alternate) leaves on
    `failed`, with the template's words.

    `tokenizer`: a folder or `organisation/name` on the hub, whose template and special tokens are taken.
    `template`: a file in Jinja, which comes before that of the tokenizer. `variant`: which template, where
    a tokenizer has several. `tokens_by`: a tokenizer, as `text.tokenize` takes it, to count tokens by; the
    special tokens that the template writes are such. `generation_prompt`: end with what begins an answer.
    `variables`: further values that the template knows (`{enable_thinking: false}`). `tools`: a column with
    the tools that a conversation may call (a list as JSON). `date`: what templates are told of today, as
    `2024-02-03`: a text must be the same each time it is made.

    Templates are run in Jinja's sandbox, with the filters and functions that transformers gives them. Wants
    `pip install 'curator-text[chat]'`, and for tokens `[tokens]`.

    Source: Hugging Face transformers, src/transformers/utils/chat_template_utils.py
    """

    tokenizer: str | None = None
    template: str | None = None
    variant: str = "default"
    tokens_by: str | None = None
    generation_prompt: bool = False
    variables: dict[str, Any] = field(default_factory=dict)
    tools: str | None = None
    date: str | None = None
    column: str = "messages"

    def __post_init__(self) -> None:
        if self.tokenizer is None and self.template is None:
            raise ValueError("chat_template wants a tokenizer with a template, or a template")
        self.requires = {"jinja2": EXTRA} | required(self.tokens_by)
        if self.date is not None:
            try:
                date.fromisoformat(self.date)
            except ValueError as error:
                raise ValueError(f"date must be a day such as 2024-02-03, got {self.date!r}") from error

    def contract(self) -> Contract:
        needs = {self.column: None} | ({self.tools: pa.string()} if self.tools else {})
        tokens = {"tokens": pa.int32()} if self.tokens_by else {}
        return Contract(needs=needs, adds={"text": pa.string(), "chars": pa.int64(), **tokens})

    def amounts(self) -> dict[str, Summed]:
        return {"tokens": "number"} if self.tokens_by else {}

    def setup(self, ctx: Context) -> None:
        source, self._known, self._counter = "", dict[str, str](), None
        if self.template is not None:
            try:
                source = Path(self.template).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise CuratorError(f"the template {self.template!r} cannot be read: {error}") from error
        if self.tokenizer is not None:
            found, self._known = of_tokenizer(self.tokenizer, self.variant)
            source = source or found
        self._template = compiled(source, repr(self.template or self.tokenizer), self.date)
        if self.tokens_by is not None:
            self._counter = open_tokenizer(self.tokens_by, max(1, int(ctx.cpus)), special_in_text=True)

    def process(self, batch: TextBatch) -> Outputs:
        tools = batch.column(self.tools) if self.tools else [None] * len(batch)
        said = [self._text(chat, wanted) for chat, wanted in zip(batch.column(self.column), tools, strict=True)]
        failed = [isinstance(one, Exception) for one in said]
        texts = [one for one in said if not isinstance(one, Exception)]
        columns: dict[str, pa.Array] = {
            "text": pa.array(texts, pa.string()),
            "chars": pa.array([None if text is None else len(text) for text in texts], pa.int64())}
        if self._counter is not None:
            counted = iter(self._counter.encode(text for text in texts if text is not None))
            columns["tokens"] = pa.array([None if text is None else len(next(counted)) for text in texts],
                                         pa.int32())
        outputs = Outputs(out=batch.filter([not one for one in failed]).with_columns(columns))
        if any(failed):
            errors = [f"{type(one).__name__}: {one}" for one in said if isinstance(one, Exception)]
            outputs["failed"] = batch.filter(failed).with_error(errors)
        return outputs

    def _text(self, chat: list[dict[str, Any]] | None, tools: str | None) -> str | Exception | None:
        """What the template makes of a conversation, or what it raised."""
        if chat is None:
            return None
        try:
            messages = [{key: json.loads(value) if key == "tool_calls" else value
                         for key, value in message.items() if value is not None} for message in chat]
            return self._template.render(
                messages=messages, tools=json.loads(tools) if tools else None, documents=None,
                add_generation_prompt=self.generation_prompt, **{**self._known, **self.variables})
        except Exception as error:  # a template may raise anything, and says by it what is wrong with the row
            return error
