"""When a request to a server is worth another try, and how long to wait before it.

Not urllib3's `Retry`, but for reading its header: that sleeps where nobody can wake it, and knows no deadline
for all tries.
"""

from __future__ import annotations

import random

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

# Statuses that may be another one next time: request timeout, too early, too many requests, and the server's
# own troubles.
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
PAUSE_MAX_S = 60.0


def pause_s(attempt: int, backoff_s: float, retry_after: str | None = None) -> float:
    """Seconds to wait after the try number `attempt` (from 0): what the server asks for, else `backoff_s`,
    doubled each time.

    Without a word of the server it is at most a minute, and cut by chance to between a half and the whole, so
    that requests that failed together do not come back together. Source:
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("equal jitter").
    """
    asked = retry_after_s(retry_after)
    if asked is not None:
        return asked
    return min(PAUSE_MAX_S, backoff_s * 2.0 ** attempt) * random.uniform(0.5, 1.0)


def retry_after_s(value: str | None) -> float | None:
    """The header Retry-After in seconds from now: a number, or a date. None if there is none, or none that
    can be read."""
    try:
        return float(Retry().parse_retry_after(value or ""))
    except (InvalidHeader, ValueError, OverflowError):
        return None


def innermost(error: BaseException) -> BaseException:
    """The error at the bottom of it; urllib3's own name its objects."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
