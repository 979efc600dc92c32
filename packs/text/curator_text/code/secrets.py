"""Keys, tokens and passwords in source code counted, marked, masked or replaced."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.privacy.finders import put_in
from curator_text.privacy.secrets import NAMES, find_secrets, kept_length

_MARKED_LINE = re.compile(r"-----[A-Z ]+-----")


@dataclass(kw_only=True)
class CodeSecrets(Stage):
    """Find secrets in source code: keys and tokens of 43 services, private keys, passwords. Count, mark, mask
    or replace them.

    Adds `secret_count` (int32) and `secret_kinds` (list of string: which, each once, in order of the
    alphabet; empty where there is none); null where there is no text. Changes the text unless `action` is
    `count`.

    `kinds`: what is looked for, by default all: the services (`aws`, `github`, `openai`, …), `private_key`,
    `jwt`; `assigned`, values in quotes that are given to a name such as `password` or `api_key`; `url`,
    passwords in addresses. What has too little entropy, or words such as EXAMPLE in it, is one of a manual.
    `action`: `count` leaves the text; `mark` puts `<SECRET>` there, or what `marks` says of the kind; `mask`
    as many `*` as there are characters; `replace` leaves the letters that say whose key it is and fills the
    rest with EXAMPLE, as long as it was, so that code is still code.

    Known limits: a password that is a word is not told from a word, and a secret without quotes, or without a
    name that tells it, is not found. Source: gitleaks (config/gitleaks.toml) for what matters and for
    bounds of entropy; shapes as the services publish them. In prose `text.pii` finds the same keys beside
    other data.
    """

    column: str = "text"
    kinds: list[str] = field(default_factory=list)
    action: Literal["count", "mark", "mask", "replace"] = "replace"
    marks: dict[str, str] = field(default_factory=dict)

    sparse = ("secret_count", "secret_kinds")

    def __post_init__(self) -> None:
        for name in [*self.kinds, *self.marks]:
            if name not in NAMES:
                raise ValueError(f"there is no kind {name!r} of secrets; there are {', '.join(NAMES)}")
        if self.action not in ("count", "mark", "mask", "replace"):
            raise ValueError(f"action must be count, mark, mask or replace, got {self.action!r}")

    def contract(self) -> Contract:
        changed = {} if self.action == "count" else {self.column: pa.string()}
        return Contract(needs={self.column: pa.string()},
                        adds=changed | {"secret_count": pa.int32(), "secret_kinds": pa.list_(pa.string())})

    def example_columns(self) -> dict[str, Shown]:
        return {"secret_count": "number"}

    def process(self, batch: TextBatch) -> TextBatch:
        names = tuple(self.kinds) or NAMES
        texts = batch.column(self.column)
        found = [None if text is None else find_secrets(text, names) for text in texts]
        columns = {
            "secret_count": pa.array([None if spans is None else len(spans) for spans in found], pa.int32()),
            "secret_kinds": pa.array([None if spans is None else sorted({name for *_, name in spans})
                                      for spans in found], pa.list_(pa.string()))}
        if self.action != "count":
            columns[self.column] = pa.array([put_in(text, spans, self._instead) if spans else text
                                             for text, spans in zip(texts, found, strict=True)], pa.string())
        return batch.with_columns(columns)

    def _instead(self, kind: str, value: str) -> str:
        if self.action == "mark" or kind in self.marks:
            return self.marks.get(kind, "<SECRET>")
        if self.action == "mask":
            return "".join(char if char == "\n" else "*" for char in value)
        return filled(value)


def filled(value: str) -> str:
    """EXAMPLE over and over in place of letters and digits; the beginning that tells the service, punctuation
    and the marked lines of a private key stay."""
    letters = cycle("EXAMPLE")
    kept = [range(kept_length(value)), *(range(*match.span()) for match in _MARKED_LINE.finditer(value))]
    return "".join(char if any(at in span for span in kept) or not char.isalnum() else next(letters)
                   for at, char in enumerate(value))
