"""The pack of docs/packs.md, as a stranger has it: copied from the page, installed with pip, listed, run and tested."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from curator.registry import packs

PAGE = Path(__file__).parents[2] / "docs" / "packs.md"
FILE = re.compile(r"^`([\w./-]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # a path alone on its line, and its content


class Stranger:
    """A virtual environment that sees what is installed in ours, without a network, and has packages of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.python = folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        site = self.ask("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        Path(site, "ours.pth").write_text("\n".join(map(str, places())) + "\n", encoding="utf-8")

    def ask(self, code: str) -> str:
        return subprocess.run([self.python, "-c", code], check=True, env=self.environment, capture_output=True, text=True).stdout

    def call(self, *words: object, code: int = 0) -> str:
        """What `python -m …` prints there."""
        done = subprocess.run([self.python, "-m", *map(str, words)], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def places() -> list[Path]:
    """Where curator, its packs and all that they need lie: sources first, as in an editable installation."""
    tops = [importlib.util.find_spec(pack.module.partition(".")[0]) for pack in packs.installed()]
    sources = [Path(spec.origin).parents[1] for spec in tops if spec is not None]
    return [*dict.fromkeys([*sources, *(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))])]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger")
    for name, content in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    made = Stranger(folder)
    made.call("pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "./curator-geo")
    return made


def test_the_page_has_all_files():
    names = [name for name, _ in FILE.findall(PAGE.read_text(encoding="utf-8"))]
    wanted = ("pyproject.toml", "curator_geo/__init__.py", "curator_geo/tile.py", "curator_geo/recipes/even.yaml",
              "tests/test_pack.py")
    assert names == [f"curator-geo/{name}" for name in wanted]


def test_it_is_installed_and_not_where_it_was_written(stranger):
    place = stranger.ask("import curator_geo; print(curator_geo.__file__)")
    assert "site-packages" in place
    assert "curator-geo" not in place


def test_it_is_listed(stranger):
    listed = stranger.call("curator", "stages", "geo")
    assert "geo.tile" in listed
    assert "The square of the map that a record lies in" in listed
    about = " ".join(stranger.call("curator", "stages", "geo.tile").split())
    for said in ("zoom: int = 8 digits of the key", "latitude: str = 'latitude' column, in degrees", "adds tile (string)"):
        assert said in about
    assert "geo/even" in stranger.call("curator", "recipes")


def test_its_recipe_runs(stranger):
    folder = stranger.folder / "places"
    folder.mkdir()
    berlin = [{"id": f"b{n}", "latitude": 52.5 + n / 1e4, "longitude": 13.4} for n in range(130)]
    others = [{"id": "sydney", "latitude": -33.87, "longitude": 151.21}, {"id": "nowhere", "latitude": None, "longitude": 0.0}]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in berlin + others))
    stranger.call("curator", "run", "geo/even", "--out", "out", "--quiet")
    stats = json.loads((stranger.folder / "out/_run/stats.json").read_text())
    assert stats["records"]["written"] == 101
    assert {reason: n for stage in stats["stages"] for reason, n in stage["dropped"].items()} == {"nowhere": 1, "crowded": 30}


def test_its_own_test_passes(stranger):
    assert "2 passed" in stranger.call("pytest", "-q", "-p", "no:cacheprovider", "curator-geo/tests")
