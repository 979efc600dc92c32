"""Texts to tokens, or their number alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.findings import Summed
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.tokens.tokenizers import open_tokenizer, required


@dataclass(kw_only=True)
class Tokenize(Stage):
    """Turn a text into tokens, or count them. The funnel and the report then count tokens beside records.

    Adds `tokens` (int32), how many there are, and with `ids` also `token_ids` (list of int32). Null where
    there is no text.

    `tokenizer`: a `tokenizer.json` or a folder with one, `organisation/name` on the hub
    (`openai-community/gpt2`), the path of a sentencepiece `.model`, or `tiktoken:o200k_base`. `ids`: whether
    the tokens themselves are wanted; without them a text is only counted. `begin`, `end`: names of special
    tokens put before and behind each text (`<|endoftext|>`), which count. `special_in_text`: special tokens
    that are written in a text are such (as `text.chat_template` writes them); else they are text, so that no
    text ends itself. With sentencepiece they always are text.
    """

    tokenizer: str
    column: str = "text"
    ids: bool = False
    begin: str | None = None
    end: str | None = None
    special_in_text: bool = False

    def __post_init__(self) -> None:
        self.requires = required(self.tokenizer)

    def contract(self) -> Contract:
        ids = {"token_ids": pa.list_(pa.int32())} if self.ids else {}
        return Contract(needs={self.column: pa.string()}, adds={"tokens": pa.int32()} | ids)

    def amounts(self) -> dict[str, Summed]:
        return {"tokens": "number"}

    def setup(self, ctx: Context) -> None:
        self._tokenizer = open_tokenizer(self.tokenizer, max(1, int(ctx.cpus)), self.special_in_text)
        self._before, self._behind = self._special(self.begin), self._special(self.end)

    def _special(self, token: str | None) -> list[int]:
        if token is None:
            return []
        number = self._tokenizer.number_of(token)
        if number is None:
            raise CuratorError(f"the tokenizer {self.tokenizer!r} has no token {token!r}")
        return [number]

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        found = iter(self._tokenizer.encode(text for text in texts if text is not None))
        values = [None if text is None else self._before + next(found) + self._behind for text in texts]
        lengths = np.array([0 if ids is None else len(ids) for ids in values], np.int32)
        missing = np.array([ids is None for ids in values], bool)
        columns: dict[str, pa.Array] = {"tokens": pa.array(lengths, mask=missing)}
        if self.ids:
            flat = np.fromiter(chain.from_iterable(ids for ids in values if ids), np.int32,
                               int(lengths.sum()))
            ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
            columns["token_ids"] = pa.ListArray.from_arrays(ends, pa.array(flat), mask=pa.array(missing))
        return batch.with_columns(columns)
