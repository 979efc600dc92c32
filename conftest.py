"""For all tests: how hypothesis judges them, and where random tests begin."""

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is not a fault of what is tested, nor is a folder that all examples of a test share.
common = {"deadline": None, "print_blob": True,
          "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("curator", **common, derandomize=True, max_examples=20)  # `make test`: the same everywhere
settings.register_profile("soak", **common, derandomize=True, max_examples=400)  # `make soak`
settings.register_profile("fuzz", **common, max_examples=1000)  # `make fuzz`: those of a seed
settings.load_profile("curator")


@pytest.fixture
def first_seed(request) -> int:
    """Where tests that draw from seeds begin to count; `make fuzz` gives another one each time."""
    return int(request.config.getoption("--hypothesis-seed") or 0)
