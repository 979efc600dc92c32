"""What stages share that ask a model behind an OpenAI-compatible server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from curator.api.errors import CuratorError, StageError
from curator.api.resources import Resources
from curator.api.stage import Context, Stage, setting
from curator.models.answers import Answers
from curator.models.chat import Chat, Rejected, Reply, Unavailable


@dataclass(kw_only=True)
class RemoteStage(Stage):
    """Asks a server, many requests at a time. A subclass says in its docstring what these parameters are:

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `api_key_env`: the environment
    variable that holds the key, in the workers too; null for none. `concurrency`: questions at a time, in
    each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before
    the first, twice as long before each next one and a minute at most, or longer if the server says so.
    """

    url: str = setting()
    model: str
    api_key_env: str | None = setting(default=None)
    concurrency: int = setting(default=16)
    answer_timeout_s: float = setting(default=300.0)
    retries: int = setting(default=8)
    backoff_s: float = setting(default=1.0)

    # It waits more than it computes. A call has rows for each question at a time to be asked four times.
    resources = Resources(cpus=0.25)
    batch_size = 64

    def __post_init__(self) -> None:
        self.want_texts("url", "model")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url wants http:// or https:// and a host, such as http://localhost:8000/v1, "
                             f"got {self.url!r}")
        if parts.username or parts.password:
            raise ValueError("url holds a password, which would be written down; name an environment "
                             "variable in api_key_env")
        for name, least in (("concurrency", 1), ("retries", 0), ("backoff_s", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.answer_timeout_s <= 0:
            raise ValueError(f"answer_timeout_s is seconds, more than 0, got {self.answer_timeout_s}")

    def want_texts(self, *names: str) -> None:
        """Raises ValueError where one of these parameters is empty."""
        for name in names:
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; {self.name} wants a text there")

    def setup(self, ctx: Context) -> None:
        key = os.environ.get(self.api_key_env) if self.api_key_env else None
        if self.api_key_env and not key:
            raise CuratorError(f"the environment variable {self.api_key_env}, where {self.name} looks for "
                               "the API key, is not set "
                               "on this machine")
        self._chat = Chat(self.url, key=key, connections=self.concurrency,
                          answer_timeout_s=self.answer_timeout_s,
                          retries=self.retries, backoff_s=self.backoff_s)
        self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="ask")

    def close(self) -> None:
        self._chat.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def each(self, work: Callable[..., Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """What `work` answers, which asks the server, for the arguments in each row, in threads.

        Raises:
            StageError: the server is out, which is no fault of any row.
        """
        asked = [self._pool.submit(work, *row) for row in rows]
        try:
            return [future.result() for future in asked]
        except Unavailable as error:
            self._chat.stop()  # the others wait for the same
            raise StageError(self.name, f"{error}. When the server answers, the same command goes on from "
                                        "here") from error
        finally:
            for future in asked:
                future.cancel()  # what is done already stays so


@dataclass(kw_only=True)
class ServerStage(RemoteStage):
    """Asks chat completions. A subclass says what these parameters are, beside those of every server:

    `temperature`: 0 takes the likeliest token. `seed`: null for none; whether the same question is answered
    the same again is up to the server. `options`: further fields of the request (`response_format`,
    `chat_template_kwargs`); null takes one out: `{max_tokens: null, max_completion_tokens: 256}`. `cache`: a
    folder of this machine where answers are kept; the same question is then not asked again, by no worker and
    no later run.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = 0
    options: dict[str, Any] = field(default_factory=dict)
    cache: str | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more, got {self.max_tokens}")

    def setup(self, ctx: Context) -> None:
        super().setup(ctx)
        self._answers = Answers(self.cache, self.url) if self.cache else None

    def close(self) -> None:
        super().close()
        if self._answers is not None:
            self._answers.close()

    def ask(self, content: str | list[dict[str, Any]], system: str | None = None, **more: Any) -> Reply | str:
        """The answer to a text, or to texts and pictures as the protocol has them; a text: why there is none.
        `more`: fields of this question alone."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})
        fields = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens,
                  "temperature": self.temperature,
                  "seed": self.seed, **more, **self.options}
        question = {name: value for name, value in fields.items() if value is not None}
        if self._answers is not None and (known := self._answers.get(question)) is not None:
            return known
        try:
            reply = self._chat.ask(question)
        except Rejected as error:
            return str(error)
        if self._answers is not None:
            self._answers.put(question, reply)
        return reply
