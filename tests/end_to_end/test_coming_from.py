"""What the pages for those who come from elsewhere name is there: stages with these parameters, commands, columns, files as shown."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

import curator
from curator.api.errors import RecipeError
from curator.cli.main import main as command_line
from curator.front import load
from curator.pipeline.plan import make_plan
from curator.recipe import stage_of
from curator.recipe.parameters import parameters
from curator.registry import packs

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
RECIPES = sorted((ROOT / "benchmarks" / "coming_from_peers").glob("ours_*.yaml"))
SPAN = re.compile(r"`([^`]+)`")
SHOWN = re.compile(r"<!-- (benchmarks/\S+) -->\n+```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCES = {"files", "hub", "arrow", "jsonl", "parquet", "csv", "webdataset"}
KEYS = {"read", "write", "steps", "with", "out", "discard", "max_failed", "branches", "resources", "on", "gather", "name"}


def tables(text: str) -> list[tuple[str, str]]:
    """Both cells of each row, of all tables of two columns."""
    found = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in found if len(row) == 2 and not row[1].strip().startswith("---")]


def sayable(step: dict, known: set[str]) -> bool:
    """A step with its parameters, or what stands in a recipe or a step: a source, a key, a parameter."""
    (name,) = step
    try:
        return name in {*KEYS, *SOURCES} or name in known - set(packs.all_stages()) or stage_of(step) is not None
    except RecipeError:
        return False


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Names that may stand alone: stages, rule sets, recipes, parameters, and what docstrings say of columns and ports."""
    found = {*packs.all_stages(), *(one.name for kind in ("recipes", "rules") for one in packs.resources(kind)), *KEYS}
    found |= {name.rpartition("/")[2] for name in found} | {f"@{name}" for name in curator.__all__}
    found |= {*curator.__all__, *dir(curator.Pipeline)}
    for factory in packs.all_stages().values():
        found |= {parameter.name for parameter in parameters(factory)}
    words = [path.read_text(encoding="utf-8") for path in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("packs/*/curator_*/**/*.py")]]
    rules = [packs.resource("rules", one.name).read_text(encoding="utf-8") for one in packs.resources("rules")]
    return found | set(re.findall(r"`([\w./*]+)`", "\n".join(words))) | set(re.findall(r"\w+_\w+", "\n".join(rules)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_stands_beside_a_peers_operators_is_there(page, known):
    gone, options = [], {option for one in command_line.commands["run"].params for option in one.opts}
    for theirs, ours in tables(page.read_text(encoding="utf-8")):
        for span in SPAN.findall(ours):
            word, _, rest = span.partition(" ")
            if word == "curator":
                there = rest.split()[0] in command_line.commands
            elif span.startswith("--"):
                there = span in options
            elif ": " in span:
                there = sayable(yaml.safe_load(span), known)
            else:
                there = span in known or span.startswith(("out/", "_run/", "read("))
            gone += [] if there else [(theirs, span)]
    assert not gone, "\n".join(f"{name}: {span}" for name, span in gone)
    assert all(ours.strip() for _, ours in tables(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_operator_of_a_peer_stands_in_one_row(page):
    behind = page.read_text(encoding="utf-8").partition("## Concepts")[2].partition("\n## ")[2]
    names = Counter(span for theirs, _ in tables(behind) for span in SPAN.findall(theirs))
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_both_jobs_are_shown_as_they_are_run(page):
    shown = SHOWN.findall(page.read_text(encoding="utf-8"))
    assert len(shown) == 2
    for path, code in shown:
        assert code.strip() in (ROOT / path).read_text(encoding="utf-8"), path


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_our_jobs_plan(recipe, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "word", "kind": "note"}\n')
    model = {"steps.text.fasttext.model": str(tmp_path / "lid.176.ftz")} if "datatrove" in recipe.stem else {}
    plan = make_plan(load(recipe, {"read.path": str(tmp_path), "out": str(tmp_path / "out"), **model}))
    assert len(plan.steps) > 3
