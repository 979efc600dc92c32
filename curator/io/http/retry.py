"""When a request to a server is worth another try, and how long to wait before it."""

from __future__ import annotations

import email.utils
import random
import time

# Statuses that may be another one next time: request timeout, too early, too many requests, and the server's own troubles.
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
PAUSE_MAX_S = 60.0


def pause_s(attempt: int, backoff_s: float, retry_after: str | None = None) -> float:
    """Seconds to wait after the try number `attempt` (from 0): what the server asks for, else `backoff_s`, doubled each time.

    Without a word of the server it is at most a minute, and cut by chance to between a half and the whole, so that
    requests that failed together do not come back together.
    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("equal jitter").
    """
    asked = retry_after_s(retry_after)
    if asked is not None:
        return asked
    return min(PAUSE_MAX_S, backoff_s * 2.0 ** attempt) * random.uniform(0.5, 1.0)


def innermost(error: BaseException) -> BaseException:
    """The error at the bottom of it; urllib3's own name its objects."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def retry_after_s(value: str | None) -> float | None:
    """The header Retry-After in seconds from now: a number, or a date. None if there is none, or none that can be read.

    Source: RFC 9110, section 10.2.3.
    """
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
