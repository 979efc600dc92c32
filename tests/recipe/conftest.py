"""The fake packs of recipe_stages.py stand in for the installed ones."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from curator.registry import packs
from tests.recipe import recipe_stages


@pytest.fixture(autouse=True)
def fake_packs(monkeypatch, tmp_path):
    claims = []
    for name, stages in (("core", recipe_stages.CORE), ("text", recipe_stages.TEXT)):
        module = ModuleType(f"{recipe_stages.__name__}.fake_{name}")
        module.STAGES = stages
        module.__spec__ = SimpleNamespace(submodule_search_locations=[str(tmp_path / name)], origin=None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        claims.append(packs.Pack(name, module.__name__, f"curator-{name}", "1"))
    monkeypatch.setattr(packs, "claims", lambda: tuple(claims))
