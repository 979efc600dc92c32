"""Captions of images by a model behind a server."""

from __future__ import annotations

import base64
import os
import string
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from curator.api.errors import CuratorError, StageError
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import ImageBatch
from curator.models.chat import Chat, Rejected, Reply, Unavailable

SIGNATURES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF8", "image/gif"))


@dataclass(kw_only=True)
class CaptionServer(Stage):
    """Describe an image, or answer any question about it, by a model behind an OpenAI-compatible server.

    vLLM, SGLang, llama.cpp, Ollama and the services that speak the same. Adds `caption` (string), `caption_tokens` (int32, how
    many tokens the model made; null if the server does not say) and `caption_finish_reason` (`stop`, or `length` where it was
    cut off at `max_tokens`). All are null for a row without bytes.

    The file is sent as it is: JPEG, PNG, WebP or GIF, of at most `max_bytes`; others leave on `failed`. `image.encode`
    behind `image.decode` makes any image one of these, upright and as small as the model needs. Rows whose question the
    server refuses, breaks off or does not answer in time leave on `failed` with its message. A server that cannot be
    reached, has no time (HTTP 429, 502, 503, 504 after all tries, by default two minutes) or does not let us in (401, 402,
    404; 403 before it answered anything) is no fault of any row: the run stops, no row is lost or failed for it, and the
    same command goes on from there.

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `prompt`: the question; `{name}` stands for
    the column of that name (nothing where it is null), `{{` for a brace. `system`: a system message before it. `column`: the
    encoded images. `into`: the name of the column, and how those of the others begin. `temperature`: 0 takes the likeliest token.
    `seed`: null for none; whether an image gets the same caption again is up to the server. `options`: further fields of the
    request (`response_format`, `chat_template_kwargs`); null takes one out:
    `{max_tokens: null, max_completion_tokens: 256}`.

    `api_key_env`: the environment variable that holds the key, in the workers too; null for none. `concurrency`: questions at a
    time, in each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before the first,
    twice as long before each next one and a minute at most, or longer if the server says so.
    """

    url: str = setting()
    model: str
    prompt: str = "Describe this image in one paragraph. Say only what can be seen."
    system: str | None = None
    column: str = "bytes"
    into: str = "caption"
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = 0
    options: dict[str, Any] = field(default_factory=dict)
    max_bytes: int = 20_000_000
    api_key_env: str | None = setting(default=None)
    concurrency: int = setting(default=16)
    answer_timeout_s: float = setting(default=300.0)
    retries: int = setting(default=8)
    backoff_s: float = setting(default=1.0)

    # It waits more than it computes. A call has rows for each question at a time to be asked four times.
    resources = Resources(cpus=0.25)
    batch_size = 64

    def __post_init__(self) -> None:
        for name in ("url", "model", "prompt", "into"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; image.caption_server wants a text there")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url wants http:// or https:// and a host, such as http://localhost:8000/v1, got {self.url!r}")
        if parts.username or parts.password:
            raise ValueError("url holds a password, which would be written down; name an environment variable in api_key_env")
        for name, least in (("max_tokens", 1), ("concurrency", 1), ("retries", 0), ("max_bytes", 1), ("backoff_s", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.answer_timeout_s <= 0:
            raise ValueError(f"answer_timeout_s is seconds, more than 0, got {self.answer_timeout_s}")
        if self.into in ("id", "source", self.column):
            raise ValueError(f"into names the new column of the captions, and {self.into!r} is another one; choose another name")
        columns_of(self.prompt)

    def contract(self) -> Contract:
        return Contract(needs={**dict.fromkeys(columns_of(self.prompt)), self.column: pa.binary()}, adds={
            self.into: pa.string(), f"{self.into}_tokens": pa.int32(), f"{self.into}_finish_reason": pa.string()})

    def setup(self, ctx: Context) -> None:
        key = os.environ.get(self.api_key_env) if self.api_key_env else None
        if self.api_key_env and not key:
            raise CuratorError(f"the environment variable {self.api_key_env}, where image.caption_server looks for the API key, "
                               "is not set on this machine")
        self._chat = Chat(self.url, key=key, connections=self.concurrency, answer_timeout_s=self.answer_timeout_s,
                          retries=self.retries, backoff_s=self.backoff_s)
        self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="caption")

    def close(self) -> None:
        self._chat.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def process(self, batch: ImageBatch) -> Outputs:
        texts = {name: batch.column(name) for name in columns_of(self.prompt)}
        asked = [self._pool.submit(self._describe, image, {name: values[row] for name, values in texts.items()})
                 for row, image in enumerate(batch.column(self.column))]
        try:
            replies = [future.result() for future in asked]
        except Unavailable as error:
            self._chat.stop()  # the others wait for the same
            raise StageError(self.name, f"{error}. When the server answers, the same command goes on from here") from error
        finally:
            for future in asked:
                future.cancel()  # what is done already stays so
        outputs = Outputs()
        good = [i for i, one in enumerate(replies) if not isinstance(one, str)]
        bad = [i for i, one in enumerate(replies) if isinstance(one, str)]
        if good or not bad:
            outputs["out"] = self._with(batch.take(good), [replies[i] for i in good])
        if bad:
            outputs["failed"] = batch.take(bad).with_error([replies[i] for i in bad])
        return outputs

    def _describe(self, image: bytes | None, columns: Mapping[str, Any]) -> Reply | str | None:
        """The answer for an image, or why there is none; None without an image. Called in a thread of the pool."""
        if image is None:
            return None
        kind = media_type(image)
        if kind is None:
            return "no JPEG, PNG, WebP or GIF, which servers take; put image.decode and image.encode before image.caption_server"
        if len(image) > self.max_bytes:
            return f"{len(image):,} bytes are more than max_bytes; put image.decode and image.encode before image.caption_server"
        try:
            return self._chat.ask(self._question(f"data:{kind};base64,{base64.b64encode(image).decode('ascii')}", columns))
        except Rejected as error:
            return str(error)

    def _question(self, image_url: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The body of the request."""
        text = self.prompt.format_map({name: _NOTHING if value is None else value for name, value in columns.items()})
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": image_url}},
                                                     {"type": "text", "text": text}]})
        fields = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens, "temperature": self.temperature,
                  "seed": self.seed, **self.options}
        return {name: value for name, value in fields.items() if value is not None}

    def _with(self, batch: ImageBatch, replies: list[Reply | None]) -> ImageBatch:
        return batch.with_columns({
            self.into: pa.array([reply and reply.text.strip() for reply in replies], pa.string()),
            f"{self.into}_tokens": pa.array([reply and reply.tokens for reply in replies], pa.int32()),
            f"{self.into}_finish_reason": pa.array([reply and reply.finish_reason for reply in replies], pa.string())})


class _Nothing:
    """A null in a prompt: no text, however it is to be written."""

    def __format__(self, how: str) -> str:
        return ""


_NOTHING = _Nothing()


def columns_of(prompt: str) -> tuple[str, ...]:
    """The columns that a prompt names, each once.

    Raises:
        ValueError: something else stands in its braces.
    """
    try:
        fields = [(name, how or "", kind) for _, name, how, kind in string.Formatter().parse(prompt) if name is not None]
    except ValueError as error:
        raise ValueError(f"prompt: {error}; write {{{{ and }}}} for braces that are meant as such") from error
    wrong = [f"{name}:{how}" if how else name for name, how, kind in fields if not name.isidentifier() or "{" in how or kind]
    if wrong:
        raise ValueError(f"prompt: {{{wrong[0]}}} is no column; write {{{{ and }}}} for braces that are meant as such")
    return tuple(dict.fromkeys(name for name, _, _ in fields))


def media_type(image: bytes) -> str | None:
    """The type of an image file by its first bytes, None if servers would not take it."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in SIGNATURES if image.startswith(start)), None)
