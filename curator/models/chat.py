"""Asking a model behind an OpenAI-compatible server: one question, one answer, asked again where that helps.

A question is the body of a chat completion.
Source: https://platform.openai.com/docs/api-reference/chat/create, as vLLM, SGLang, llama.cpp and Ollama
serve it too.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3 import exceptions as faults

from curator.io.http.retry import TRANSIENT, innermost, pause_s, retry_after_s
from curator.models.pace import Pace

EXCERPT = 500  # characters of a server's message that are shown
# wrong URL, model or key: so it is for every question
NOT_HERE = frozenset({301, 302, 303, 307, 308, 401, 402, 404, 405})
BUSY = frozenset({429, 502, 503, 504})  # the server, or what stands before it, has no time for anybody
PATIENCE_S = 600.0  # the longest pause that a server may ask for


@dataclass(frozen=True)
class Reply:
    """An answer. `finish_reason`: `stop`, or `length` where it was cut off. `tokens`: how many were made,
    `tokens_in`: how many were read, None if not said. `kept`: it was paid for before."""

    text: str
    finish_reason: str | None
    tokens: int | None
    tokens_in: int | None = None
    kept: bool = False


class Rejected(Exception):
    """This question gets no answer; another one may."""


class Unavailable(Exception):
    """No question would be answered, so that none is to blame. `then`: when it can go on."""

    then = "When the server answers"


class Spent(Unavailable):
    """The budget is used up."""

    then = "With a larger one"


class Chat:
    """Asks questions, from several threads. `url`: up to and with `/v1`. `key`: the API key, None for
    none. `pace`: how fast, None for as fast as it goes."""

    def __init__(self, url: str, *, key: str | None, connections: int, answer_timeout_s: float, retries: int,
                 backoff_s: float, pace: Pace | None = None) -> None:
        self._url, self._key = url.rstrip("/"), key
        self._retries, self._backoff_s = retries, backoff_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._pools = urllib3.PoolManager(maxsize=connections, retries=False,
                                          timeout=urllib3.Timeout(connect=10.0, read=answer_timeout_s))
        self._let_in = False  # whether a question was answered
        self._stopped = threading.Event()
        self._pace, self._held_until = pace, 0.0  # the server asked for silence until then
        self._each, self._heard = 0.0, 0  # tokens that an answered question took in the mean, of how many

    def ask(self, question: Mapping[str, Any]) -> Reply:
        """The answer.

        Raises:
            Rejected: the server refuses this question, breaks off, is silent for too long, or answers
            nonsense. Unavailable: nobody is there, nobody has time, or we are not let in, and trying again
            did not help.
        """
        expected = self._each or float(question.get("max_tokens") or 0)
        reply = reply_of(self.post("/chat/completions", json.dumps(question).encode(), "application/json",
                                   tokens=expected))
        if self._pace and reply.tokens is not None:
            taken = reply.tokens + (reply.tokens_in or 0)
            self._pace.correct(taken - expected)
            self._heard += 1
            self._each += (taken - self._each) / self._heard
        return reply

    def post(self, path: str, body: bytes, content_type: str, tokens: float = 0.0) -> bytes:
        """The body of the answer of any other of the server's paths, such as `/audio/transcriptions`; raises
        as `ask` does. `tokens`: how many it will take, for the pace."""
        for attempt in range(self._retries + 1):
            self._wait_for_turn(tokens)
            try:
                return self._post(self._url + path, body, content_type)
            except _Retry as retry:
                pause = max(pause_s(attempt, self._backoff_s), retry.pause_s or 0.0)
                if attempt == self._retries or pause > PATIENCE_S or self._stopped.is_set():
                    raise retry.error from None
                if retry.pause_s:  # what it says to one question it means for all
                    self._held_until = max(self._held_until, time.monotonic() + retry.pause_s)
                if self._stopped.wait(pause):
                    raise retry.error from None
        raise AssertionError("a loop of one try or more has ended")

    def _wait_for_turn(self, tokens: float) -> None:
        while (pause := self._held_until - time.monotonic()) > 0 and not self._stopped.wait(pause):
            pass
        if self._stopped.is_set() or (self._pace and not self._pace.take(tokens, self._stopped)):
            raise Unavailable("the others got no answer either")

    def stop(self) -> None:
        """No further tries: whoever waits for one gives up."""
        self._stopped.set()

    def close(self) -> None:
        self.stop()
        self._pools.clear()
        if self._pace:
            self._pace.close()

    def _post(self, url: str, body: bytes, content_type: str) -> bytes:
        try:
            response = self._pools.request("POST", url, body=body, redirect=False,
                                           headers=self._headers | {"Content-Type": content_type})
        except faults.ReadTimeoutError:
            raise Rejected("the server is silent for too long") from None
        except (faults.NewConnectionError, faults.ConnectTimeoutError) as error:
            raise _Retry(Unavailable(f"no connection to {url}: {innermost(error)}")) from error
        except (faults.SSLError, faults.LocationValueError) as error:
            raise Unavailable(f"no connection to {url}: {innermost(error)}") from error
        except faults.HTTPError as error:
            raise _Retry(Rejected(f"the server broke off: {innermost(error)}")) from error
        if response.status == 200:
            self._let_in = True
            return response.data
        message = f"HTTP {response.status} from {url}: {self._without_key(message_of(response.data))}"
        # later it is about the question
        if response.status in NOT_HERE or (response.status == 403 and not self._let_in):
            raise Unavailable(message)
        if response.status not in TRANSIENT:
            raise Rejected(message)
        kind = Unavailable if response.status in BUSY else Rejected
        raise _Retry(kind(message), response.headers.get("Retry-After"))

    def _without_key(self, text: str) -> str:
        """Servers repeat what they were sent, and errors are written down."""
        return text.replace(self._key, "***") if self._key else text


class _Retry(Exception):
    """Worth another try; `error` is what to raise after the last one."""

    def __init__(self, error: Exception, retry_after: str | None = None) -> None:
        super().__init__(str(error))
        self.error, self.pause_s = error, retry_after_s(retry_after)


def reply_of(data: bytes) -> Reply:
    """The answer in the body of a chat completion.

    Raises:
        Rejected: there is none, or the model declined.
    """
    try:
        whole = json.loads(data)
        choice = whole["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        usage = whole.get("usage") or {}
        tokens, tokens_in = usage.get("completion_tokens"), usage.get("prompt_tokens")
        text, refusal = message.get("content"), message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Rejected(f"the server's answer is no chat completion: {_excerpt(data)}") from error
    if not isinstance(text, str):
        raise Rejected(f"the model declined: {refusal}" if refusal
                       else f"the answer has no text (finish_reason {reason})")
    made, read = (number if isinstance(number, int) else None for number in (tokens, tokens_in))
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half of a surrogate pair, Arrow cannot
    return Reply(text, reason if isinstance(reason, str) else None, made, read)


def message_of(data: bytes) -> str:
    """What a server says about an error: the message in it, else its beginning."""
    with suppress(ValueError, AttributeError):
        found = json.loads(data)
        # OpenAI's, vLLM's new form and llama.cpp's; else vLLM's old one and FastAPI's
        found = found.get("error", found)
        if isinstance(found, dict):
            found = found.get("message") or found.get("detail")
        if isinstance(found, str) and found:
            return found[:EXCERPT]
    return _excerpt(data)


def _excerpt(data: bytes) -> str:
    return data[:EXCERPT].decode("utf-8", "replace")
