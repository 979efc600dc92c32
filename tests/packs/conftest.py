"""Packs as strangers make them: real files and metadata in a folder on the path, as pip leaves them."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

from curator.api import own_code
from curator.registry import packs

STAGE = '''
from dataclasses import dataclass
import pyarrow as pa
from curator import Contract, Stage

@dataclass(kw_only=True)
class Shout(Stage):
    """The text in capitals."""
    mark: str = "!"

    def contract(self):
        return Contract(needs={"text"}, adds={"shout": pa.string()})

    def process(self, batch):
        return batch.with_columns({"shout": pa.array([(t or "").upper() + self.mark for t in batch.column("text")], pa.string())})

STAGES = (Shout,)
'''


class Site:
    """A folder of installed packs."""

    def __init__(self, folder, warm=None) -> None:
        self.folder = folder
        self.warm = warm
        self.stage = STAGE

    def install(self, name, code=STAGE, *, files=None, distribution=None, module=None, requires=()):
        """Install the pack `name`: the code of its module, and files beside it by their paths."""
        module = module or f"stranger_{name}"
        distribution = distribution or f"curator-{name}"
        place = self.folder.joinpath(*module.split("."))
        if module.isidentifier() or "." in module:
            place.mkdir(parents=True)
            (place / "__init__.py").write_text(code)
        for file, text in (files or {}).items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
        metadata = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n" + "".join(
            f"Requires-Dist: {requirement}\n" for requirement in requires))
        (metadata / "entry_points.txt").write_text(f"[curator.packs]\n{name} = {module}\n")
        packs.claims.cache_clear()
        own_code._cared_for.cache_clear()
        importlib.invalidate_caches()
        return place

    def curator(self, *words, code=0):
        """What `curator` prints in a process that sees these packs."""
        path = os.pathsep.join([str(self.folder), *(p for p in sys.path if p)])
        done = self.warm.run([sys.executable, "-m", "curator", *words], cwd=self.folder,
                             env={**os.environ, "PYTHONPATH": path, "COLUMNS": "80"})
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def site_of_others(tmp_path_factory, warm_start):
    """A site that only other processes see."""
    return Site(tmp_path_factory.mktemp("site"), warm_start)


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Site(folder)
    packs.claims.cache_clear()
    own_code._cared_for.cache_clear()
    for name in [name for name in sys.modules if name.startswith("stranger_")]:
        del sys.modules[name]
