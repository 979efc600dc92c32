"""Captions of clips by a model behind a server."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator.api.resources import Resources
from curator.api.stage import Context, Outputs
from curator.api.tasks import VideoBatch
from curator.models.chat import Reply
from curator.models.server import ServerStage
from curator_video.models.captions import Window, Windowed


@dataclass(kw_only=True)
class CaptionServer(Windowed, ServerStage):
    """Describe clips, or answer any question about them, by a model behind an OpenAI-compatible server.

    vLLM, SGLang, llama.cpp, Ollama and the services that speak the same. Reads `frames`, `timestamps`, `start_s`, `end_s`; the
    frames of a window are sent as so many JPEG images in one question. Adds `captions`, `caption`, `caption_tokens` (null if the
    server does not say) and `caption_finish_reason` as `video.caption` does.

    A clip with a question that the server refuses, breaks off or does not answer in time leaves on `failed` with its message.
    A server that cannot be reached, has no time (HTTP 429, 502, 503, 504 after all tries, by default two minutes) or does
    not let us in (401, 402, 404; 403 before it answered anything) is no fault of any clip: the run stops, no record is lost or
    failed for it, and the same command goes on from there.

    `prompt`, `system`, `window`, `remainder`, `frames`, `into`: as of `video.caption`. `quality`: of the JPEG images, 1 to 100;
    their size is that of `frames`.

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `temperature`: 0 takes the likeliest token.
    `seed`: null for none; whether a clip gets the same caption again is up to the server. `options`: further fields of the request
    (`response_format`, `chat_template_kwargs`); null takes one out: `{max_tokens: null, max_completion_tokens: 512}`.

    `api_key_env`: the environment variable that holds the key, in the workers too; null for none. `concurrency`: questions at a
    time, in each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before the first,
    twice as long before each next one and a minute at most, or longer if the server says so. `requests_per_minute`,
    `tokens_per_minute`: of all workers of a machine, to this URL and model. `price_in`, `price_out`: of a million tokens; `max_cost`,
    `budget_tokens`: when the answers in `cache` took so much of this URL and model, the run stops; a larger budget goes on.
    """

    max_tokens: int = 512
    quality: int = 85

    resources = Resources(cpus=0.5)  # frames are made JPEG
    batch_size = 32

    def __post_init__(self) -> None:
        ServerStage.__post_init__(self)
        Windowed.__post_init__(self)
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality is 1 to 100, got {self.quality}")

    def setup(self, ctx: Context) -> None:
        import cv2

        super().setup(ctx)
        self._cv2 = cv2

    def process(self, batch: VideoBatch) -> Outputs:
        asked = self.windows(batch)
        replies = self.each(self._describe, ((window,) for window in asked))
        wrong = {window.row: reply for window, reply in zip(reversed(asked), reversed(replies), strict=True) if isinstance(reply, str)}
        told = self.told(batch, asked, [Reply("", None, None) if isinstance(one, str) else one for one in replies])
        outputs = Outputs(out=told.take([row for row in range(len(batch)) if row not in wrong]))
        if wrong:
            outputs["failed"] = batch.take(sorted(wrong)).with_error([wrong[row] for row in sorted(wrong)])
        return outputs

    def _describe(self, window: Window) -> Reply | str:
        """The answer about a window, or why there is none. Called in a thread of the pool."""
        content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": self._url(frame)}} for frame in window.frames]
        return self.ask([*content, {"type": "text", "text": window.text}], self.system)

    def _url(self, frame: np.ndarray) -> str:
        cv2 = self._cv2
        _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, self.quality])
        return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"
