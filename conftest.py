"""For all tests: how hypothesis judges them, where random tests begin, and what they do not wait for."""

import atexit
import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from curator.testing import elsewhere
from curator.worker import processes
from tests.warm import Warm

# A slow machine is not a fault of what is tested, nor is a folder that all examples of a test share.
common = {"deadline": None, "print_blob": True,
          "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("curator", **common, derandomize=True, max_examples=12)  # `make test`: the same everywhere
settings.register_profile("soak", **common, derandomize=True, max_examples=400)  # `make soak`
settings.register_profile("fuzz", **common, max_examples=1000)  # `make fuzz`: those of a seed
settings.load_profile("curator")


def pytest_configure(config: pytest.Config) -> None:
    """Each of the processes that share the suite collects all of it. They begin at other files, so that what one has compiled the
    others find: in a fresh clone that is two thirds of the work."""
    gc.disable()  # all that is collected stays: to look through it again and again takes a sixth of the time
    shares = getattr(config, "workerinput", None)
    if shares and all(os.path.isdir(path) for path in config.args):
        files = sorted({str(file) for path in config.args for file in Path(path).rglob("test_*.py")})
        at = len(files) * int(shares["workerid"].removeprefix("gw")) // shares["workercount"]
        config.args[:] = files[at:] + files[:at]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests on Ray wait longest, so they come first: the processes that share the suite end together. Those of the core come
    before those of the packs, whatever was collected first."""
    packs = config.rootpath / "packs"
    items.sort(key=lambda item: (item.get_closest_marker("ray") is None, item.path.is_relative_to(packs), item.path.parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # nor do tests look through it: each of their full collections would take most of a second
    atexit.register(gc.unfreeze)  # or DuckDB reports as leaked what stays
    gc.enable()


@pytest.fixture
def first_seed(request) -> int:
    """Where tests that draw from seeds begin to count; `make fuzz` gives another one each time."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


@pytest.fixture(scope="session", autouse=True)
def warm_start():
    """Runs of tests take fork servers that are warm, `check_pack` another process that is. No file is waited for until it is on the
    disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        warm = Warm()
        patch.setattr(processes, "subprocess", warm.module())
        patch.setattr(elsewhere, "subprocess", warm)
        patch.setattr(os, "fsync", lambda fd: None)
        yield warm
        warm.close()


@pytest.fixture
def cold_start(monkeypatch):
    """A fork server is started as users start it."""
    import subprocess

    monkeypatch.setattr(processes, "subprocess", subprocess)
