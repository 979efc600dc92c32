"""Captions of images by a model behind a server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.stage import Contract, Outputs
from curator.api.tasks import ImageBatch
from curator.models.chat import Reply
from curator.models.prompts import columns_of, filled
from curator.models.server import ServerStage

SIGNATURES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF8", "image/gif"))


@dataclass(kw_only=True)
class CaptionServer(ServerStage):
    """Describe an image, or answer any question about it, by a model behind an OpenAI-compatible server.

    vLLM, SGLang, llama.cpp, Ollama and the services that speak the same. Adds `caption` (string),
    `caption_tokens` (int32, how many tokens the model made; null if the server does not say) and
    `caption_finish_reason` (`stop`, or `length` where it was cut off at `max_tokens`). All are null for a row
    without bytes.

    The file is sent as it is: JPEG, PNG, WebP or GIF, of at most `max_bytes`; others leave on `failed`.
    `image.encode` behind `image.decode` makes any image one of these, upright and as small as the model
    needs. Rows whose question the server refuses, breaks off or does not answer in time leave on `failed`
    with its message. A server that cannot be reached, has no time (HTTP 429, 502, 503, 504 after all tries,
    by default two minutes) or does not let us in (401, 402, 404; 403 before it answered anything) is no fault
    of any row: the run stops, no row is lost or failed for it, and the same command goes on from there.

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `prompt`: the question;
    `{name}` stands for the column of that name (nothing where it is null), `{{` for a brace. `system`: a
    system message before it. `column`: the encoded images. `into`: the name of the column, and how those of
    the others begin. `temperature`: 0 takes the likeliest token. `seed`: null for none; whether an image gets
    the same caption again is up to the server. `options`: further fields of the request (`response_format`,
    `chat_template_kwargs`); null takes one out: `{max_tokens: null, max_completion_tokens: 256}`.

    `api_key_env`: the environment variable that holds the key, in the workers too; null for none.
    `concurrency`: questions at a time, in each worker. `answer_timeout_s`: for one answer. `retries`: further
    tries, with `backoff_s` seconds before the first, twice as long before each next one and a minute at most,
    or longer if the server says so. `requests_per_minute`, `tokens_per_minute`: of all workers of a machine,
    to this URL and model. `cache`: a folder of this machine where answers are kept; the same question is then
    not asked again. `price_in`, `price_out`: of a million tokens; `max_cost`, `budget_tokens`: when the
    answers in `cache` took so much of this URL and model, the run stops, and with a larger budget goes on.
    """

    prompt: str = "Describe this image in one paragraph. Say only what can be seen."
    system: str | None = None
    column: str = "bytes"
    into: str = "caption"
    max_bytes: int = 20_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.want_texts("prompt", "into")
        self.at_least(1, "max_bytes")
        if self.into in ("id", "source", self.column):
            raise ValueError(f"into names the new column of the captions, and {self.into!r} is another one; "
                             "choose another name")
        columns_of(self.prompt)

    def contract(self) -> Contract:
        return Contract(needs={**dict.fromkeys(columns_of(self.prompt)), self.column: pa.binary()}, adds={
            self.into: pa.string(), f"{self.into}_tokens": pa.int32(),
            f"{self.into}_finish_reason": pa.string()})

    def process(self, batch: ImageBatch) -> Outputs:
        texts = {name: batch.column(name) for name in columns_of(self.prompt)}
        replies = self.each(self._describe, ((image, {name: values[row] for name, values in texts.items()})
                                             for row, image in enumerate(batch.column(self.column))))
        outputs = Outputs()
        good = [i for i, one in enumerate(replies) if not isinstance(one, str)]
        bad = [i for i, one in enumerate(replies) if isinstance(one, str)]
        if good or not bad:
            outputs["out"] = self._with(batch.take(good), [replies[i] for i in good])
        if bad:
            outputs["failed"] = batch.take(bad).with_error([replies[i] for i in bad])
        return outputs

    def _describe(self, image: bytes | None, columns: Mapping[str, Any]) -> Reply | str | None:
        """The answer for an image, or why there is none; None without an image. Called in a thread of the
        pool."""
        if image is None:
            return None
        kind = media_type(image)
        if kind is None:
            return ("no JPEG, PNG, WebP or GIF, which servers take; put image.decode and image.encode before "
                    "image.caption_server")
        if len(image) > self.max_bytes:
            return (f"{len(image):,} bytes are more than max_bytes; put image.decode and image.encode before "
                    "image.caption_server")
        url = f"data:{kind};base64,{base64.b64encode(image).decode('ascii')}"
        return self.ask([{"type": "image_url", "image_url": {"url": url}},
                         {"type": "text", "text": filled(self.prompt, columns)}],
                        self.system)

    def _with(self, batch: ImageBatch, replies: list[Reply | None]) -> ImageBatch:
        return batch.with_columns({
            self.into: pa.array([reply and reply.text.strip() for reply in replies], pa.string()),
            f"{self.into}_tokens": pa.array([reply and reply.tokens for reply in replies], pa.int32()),
            f"{self.into}_finish_reason": pa.array([reply and reply.finish_reason for reply in replies],
                                                   pa.string())})


def media_type(image: bytes) -> str | None:
    """The type of an image file by its first bytes, None if servers would not take it."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in SIGNATURES if image.startswith(start)), None)
