"""What stages share that ask a model behind an OpenAI-compatible server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from curator.api.errors import CuratorError, StageError
from curator.api.resources import Resources
from curator.api.stage import Context, Stage, setting
from curator.models.answers import Answers
from curator.models.chat import Chat, Rejected, Reply, Spent, Unavailable
from curator.models.pace import Pace


@dataclass(kw_only=True)
class RemoteStage(Stage):
    """Asks a server, many requests at a time. A subclass says in its docstring what these parameters are:

    `url`: the server's, up to and with `/v1`. `model`: as the server calls it. `api_key_env`: the environment
    variable that holds the key, in the workers too; null for none. `concurrency`: questions at a time, in
    each worker. `answer_timeout_s`: for one answer. `retries`: further tries, with `backoff_s` seconds before
    the first, twice as long before each next one and a minute at most, or longer if the server says so.
    `requests_per_minute`: of all workers of a machine, to this URL and model; null for no limit.
    """

    url: str = setting()
    model: str
    api_key_env: str | None = setting(default=None)
    concurrency: int = setting(default=16)
    answer_timeout_s: float = setting(default=300.0)
    retries: int = setting(default=8)
    backoff_s: float = setting(default=1.0)
    requests_per_minute: float | None = setting(default=None)

    # It waits more than it computes. A call has rows for 16 questions at a time to be asked four times; where
    # more go at a time, it has more.
    resources = Resources(cpus=0.25)
    batch_size = 64

    def __post_init__(self) -> None:
        self.batch_size = type(self).batch_size * max(16, self.concurrency) // 16
        self.want_texts("model")
        self.check_url()
        self.at_least(1, "concurrency")
        self.at_least(0, "retries", "backoff_s")
        if self.answer_timeout_s <= 0:
            raise ValueError(f"answer_timeout_s is seconds, more than 0, got {self.answer_timeout_s}")
        self.want_positive("requests_per_minute")

    def check_url(self) -> None:
        """Raises ValueError where the URL is none that could be asked."""
        self.want_texts("url")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url wants http:// or https:// and a host, such as http://localhost:8000/v1, "
                             f"got {self.url!r}")
        if parts.username or parts.password:
            raise ValueError("url holds a password, which would be written down; name an environment "
                             "variable in api_key_env")

    def want_positive(self, *names: str) -> None:
        """Raises ValueError where one of these parameters is neither null nor more than 0."""
        for name in names:
            if (value := getattr(self, name)) is not None and value <= 0:
                raise ValueError(f"{name} must be more than 0, or null for no limit; got {value}")

    def limits(self) -> tuple[float | None, float | None]:
        """Requests and tokens a minute."""
        return self.requests_per_minute, None

    def want_texts(self, *names: str) -> None:
        """Raises ValueError where one of these parameters is empty."""
        for name in names:
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; {self.name} wants a text there")

    def setup(self, ctx: Context) -> None:
        key = os.environ.get(self.api_key_env) if self.api_key_env else None
        if self.api_key_env and not key:
            raise CuratorError(f"the environment variable {self.api_key_env}, where {self.name} looks for "
                               "the API key, is not set on this machine")
        pace = Pace(f"{self.url} {self.model}", self.limits()) if any(self.limits()) else None
        self._chat = Chat(self.url, key=key, connections=self.concurrency,
                          answer_timeout_s=self.answer_timeout_s,
                          retries=self.retries, backoff_s=self.backoff_s, pace=pace)
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
        with self.out_is_nobodys_fault(asked):
            return [future.result() for future in asked]

    @contextmanager
    def out_is_nobodys_fault(self, asked: Sequence[Future[Any]]) -> Iterator[None]:
        """Where a question finds the server out, the others give up, and the run is to stop. What is under
        way is waited for: it is paid for, and an answer may be kept."""
        try:
            yield
        except Unavailable as error:
            self._chat.stop()
            for future in asked:
                future.cancel()
            wait(asked)
            raise StageError(self.name,
                             f"{error}. {error.then}, the same command goes on from here") from error
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
    no later run. `tokens_per_minute`: as `requests_per_minute`. `price_in`, `price_out`: of a million tokens,
    in any currency. `max_cost`, `budget_tokens`: when the answers in `cache` took so much of this URL and
    model, the run stops; what is under way then is still paid for.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = 0
    options: dict[str, Any] = field(default_factory=dict)
    cache: str | None = setting(default=None)
    tokens_per_minute: float | None = setting(default=None)
    price_in: float = setting(default=0.0)
    price_out: float = setting(default=0.0)
    max_cost: float | None = setting(default=None)
    budget_tokens: int | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_tokens")
        self.want_positive("tokens_per_minute", "max_cost", "budget_tokens")
        if (self.max_cost or self.budget_tokens) and not self.cache:
            raise ValueError("a budget wants cache, a folder where answers and what they took are written "
                             "down")
        if self.max_cost and not (self.price_in or self.price_out):
            raise ValueError("max_cost wants price_in and price_out, of a million tokens")

    def limits(self) -> tuple[float | None, float | None]:
        return self.requests_per_minute, self.tokens_per_minute

    def cost(self, tokens_in: float, tokens: float) -> float:
        """Of tokens that were read and made, in the currency of the prices."""
        return (tokens_in * self.price_in + tokens * self.price_out) / 1e6

    def setup(self, ctx: Context) -> None:
        super().setup(ctx)
        self._answers = Answers(self.cache, self.url) if self.cache else None

    def close(self) -> None:
        super().close()
        if self._answers is not None:
            self._answers.close()

    def question(self, content: str | list[dict[str, Any]], system: str | None = None,
                 **more: Any) -> dict[str, Any]:
        """A text, or texts and pictures as the protocol has them, as the body of a request. `more`: fields of
        this question alone."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})
        fields = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens,
                  "temperature": self.temperature, "seed": self.seed, **more, **self.options}
        return {name: value for name, value in fields.items() if value is not None}

    def ask(self, content: str | list[dict[str, Any]], system: str | None = None, **more: Any) -> Reply | str:
        """The answer to a question of `question`; a text: why there is none."""
        return self.ask_question(self.question(content, system, **more))

    def ask_question(self, question: dict[str, Any]) -> Reply | str:
        if self._answers is not None and (known := self._answers.get(question)) is not None:
            return known
        self._check_budget()
        try:
            reply = self._chat.ask(question)
        except Rejected as error:
            return str(error)
        if self._answers is not None:
            self._answers.put(question, reply)
        if reply.tokens is None and (self.max_cost or self.budget_tokens):
            raise Unavailable("the server does not say how many tokens an answer took, so that no budget can "
                              "be kept")
        return reply

    def _check_budget(self) -> None:
        if self._answers is None or not (self.max_cost or self.budget_tokens):  # a budget has a cache
            return
        answers, read, made = self._answers.paid(self.model)
        cost = self.cost(read, made)
        for name, most, used in (("max_cost", self.max_cost, cost),
                                 ("budget_tokens", self.budget_tokens, read + made)):
            if most and used >= most:
                raise Spent(f"{name} of {most:,} is used up: {answers:,} answers took {read:,} tokens read "
                            f"and {made:,} made" + (f", {cost:,.2f} in all" if cost else "")
                            + "; what has no answer yet was not asked")
