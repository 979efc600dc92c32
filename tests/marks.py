"""What several tests say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def soaked_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test, of which `make test` takes the first `count` and `make soak` the others."""
    return [value if number < count else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
            for number, value in enumerate(values)]
