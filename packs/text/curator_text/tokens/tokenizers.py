"""Tokenizers of three libraries behind one call: many texts to lists of numbers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from curator.api.errors import CuratorError
from curator.models.loading import fetch

EXTRA = "pip install 'curator-text[tokens]'"
CHARS_AT_ONCE = 8 << 20  # a call of the library: its tokens take some 40 times as much as Python's


class Tokenizer:
    """`starts`: at which character each token of a text begins. `number_of`: that of a token by its name.
    `size`: of the vocabulary."""

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], starts: Callable[[str], list[int]],
                 number_of: Callable[[str], int | None], size: int) -> None:
        self._encode, self.starts, self.number_of, self.size = encode, starts, number_of, size

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """The tokens of each text, and none put around it."""
        found: list[list[int]] = []
        waiting: list[str] = []
        chars = 0
        for text in texts:
            waiting.append(text)
            chars += len(text)
            if chars >= CHARS_AT_ONCE:
                found += self._encode(waiting)
                waiting, chars = [], 0
        return found + self._encode(waiting) if waiting else found


def open_tokenizer(name: str, threads: int, special_in_text: bool = False) -> Tokenizer:
    """By `tokenizer.json` (a path, `organisation/name` on the hub, `organisation/name@revision`), by a
    sentencepiece `.model`, or `tiktoken:` and the name of an encoding. `special_in_text`: special tokens that
    are written in a text are such, and not text; sentencepiece has no writing for them.

    Raises:
        CuratorError: it cannot be found or read, or its library is missing; says what to do.
    """
    if name.startswith("tiktoken:"):
        return _tiktoken(name.removeprefix("tiktoken:"), threads, special_in_text)
    if name.endswith(".model"):
        return _sentencepiece(name, threads)
    return _tokenizers(name, threads, special_in_text)


def required(name: str | None) -> dict[str, str]:
    """The library of a tokenizer, as a stage `requires` it; without one, none."""
    if not name:
        return {}
    sort = "tiktoken" if name.startswith("tiktoken:") else "sentencepiece" if name.endswith(".model") else "tokenizers"
    return {sort: EXTRA}


def _tokenizers(name: str, threads: int, special_in_text: bool) -> Tokenizer:
    library = _library("tokenizers")
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        repository = name.partition("@")[0]
        if repository.startswith((".", "/", "~")) or repository.count("/") > 1 or name.endswith(".json"):
            raise CuratorError(f"there is no tokenizer {name!r}: neither a file nor a folder with "
                               f"tokenizer.json (from {Path.cwd()}); "
                               "one on the Hugging Face hub is written organisation/name")
        path = fetch(f"{name}:tokenizer.json")
    try:
        opened = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CuratorError(f"{str(path)!r} is no tokenizer that can be read: {error}") from error
    opened.no_truncation()
    opened.no_padding()
    opened.encode_special_tokens = not special_in_text
    return Tokenizer(lambda texts: [found.ids
                                    for found in opened.encode_batch_fast(texts, add_special_tokens=False)],
                     lambda text: [begin for begin, _ in opened.encode(text, add_special_tokens=False).offsets],
                     opened.token_to_id, opened.get_vocab_size(with_added_tokens=True))


def _sentencepiece(name: str, threads: int) -> Tokenizer:
    opened = open_sentencepiece(name)

    def number_of(token: str) -> int | None:
        number = opened.piece_to_id(token)
        return number if opened.id_to_piece(number) == token else None

    def starts(text: str) -> list[int]:
        return [begin for begin, _ in opened.encode(text, out_type="offset_mapping")["offsets"]]

    return Tokenizer(lambda texts: opened.encode(texts, num_threads=threads), starts, number_of,
                     opened.vocab_size())


def open_sentencepiece(name: str) -> Any:
    """The library's processor of a model: a path, or `repository:file` on the hub.

    Raises:
        CuratorError: it cannot be found or read, or the library is missing.
    """
    library = _library("sentencepiece")
    try:
        return library.SentencePieceProcessor(model_file=str(fetch(name)))
    except (OSError, RuntimeError) as error:
        raise CuratorError(f"{name!r} is no sentencepiece model that can be read: {error}") from error


def _tiktoken(name: str, threads: int, special_in_text: bool) -> Tokenizer:
    library = _library("tiktoken")
    try:
        opened = library.get_encoding(name)
    except ValueError as error:
        raise CuratorError(f"there is no encoding {name!r}; tiktoken has "
                           f"{', '.join(library.list_encoding_names())}") from error
    encode = partial(opened.encode_batch, allowed_special="all") if special_in_text \
        else opened.encode_ordinary_batch
    return Tokenizer(lambda texts: encode(texts, num_threads=threads),
                     lambda text: opened.decode_with_offsets(opened.encode_ordinary(text))[1],
                     lambda token: opened._special_tokens.get(token), opened.n_vocab)


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CuratorError(f"{name} is wanted and cannot be imported ({error}): {EXTRA}") from error
