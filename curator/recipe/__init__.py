"""Recipes: pipelines as YAML.

    read: {jsonl: {path: docs/*.jsonl}}
    steps:
      - text.signals
      - drop: {too_short: word_count < 50}
    write: parquet
    out: out/

Whatever is wrong with a recipe is one RecipeError, a line a problem: `file:line: path.in.recipe: what to do`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from curator.api.errors import InputError, RecipeError
from curator.api.names import suggestion
from curator.api.stage import Stage
from curator.io.files.folder import open_input
from curator.io.yaml import Item, Problems, parse, scalar
from curator.pipeline.graph import Graph, Settings
from curator.pipeline.layout import moved
from curator.recipe.dump import dump, without_secrets
from curator.recipe.graph import Line, Merge, RecipeGraph, give_names
from curator.recipe.overrides import override
from curator.recipe.steps import check_keys, read_step
from curator.recipe.values import BAD, arguments, coerce
from curator.registry import packs

__all__ = ["dump", "load", "recipe_text", "without_secrets"]

KEYS = ("name", "description", "license", "read", "steps", "write", "branches", "max_failed", "discard",
        "seed", "out", "storage_options")
PLAIN_SETTINGS = ("out", "storage_options", "description", "license")  # as `Settings` has them
OUT = "out"  # the override that moves all that a recipe writes
BRANCH_KEYS = ("from", "read", "steps", "write")


def load(recipe: str | PathLike[str], overrides: Mapping[str, str] | None = None) -> Graph:
    """The pipeline of a recipe: a file, a packaged recipe (`text/web`) or the YAML itself.

    `overrides` are values of `--set`, `{"read.path": "docs/", "steps.drop.too_short": "word_count < 9"}`;
    that of `out` moves all that the recipe writes.

    Raises:
        RecipeError: everything that is wrong with it.
    """
    text, file = _read(recipe)
    problems = Problems()
    root = parse(text, file, problems)
    if not root.is_map:
        raise RecipeError(f"{root.place}: a recipe is a mapping with read, steps and write")
    for key, value in (overrides or {}).items():
        if key != OUT:
            override(root, key, value, KEYS, problems)
    pipeline = _Reader(root, problems).pipeline(Path(file).stem)
    problems.check()
    return moved(pipeline, overrides[OUT]) if overrides and OUT in overrides else pipeline


def stage_of(step: str | Mapping[str, Any]) -> Stage:
    """The stage that a step of a recipe says: `"text.signals"`, `{"drop": {"rules": "gopher_quality"}}`, with
    `with` beside its name if need be.

    Raises:
        RecipeError: naming what is wrong with it.
    """
    problems = Problems()
    try:
        text = json.dumps(step)
    except TypeError as error:
        raise RecipeError(f"a step in Python is as in a recipe: texts, numbers, lists and mappings; {error}. "
                          "Make a stage of it yourself, and add that") from None
    made = read_step("stage", parse(text, "step", problems, numbered=False), "", None, problems)
    problems.check()
    assert made.stage is not None
    return made.stage


def recipe_text(name: str | Path) -> str:
    """The YAML of a packaged recipe, or of a file.

    Raises:
        RecipeError: there is no such recipe, or it cannot be read.
    """
    return _read(name)[0]


def _read(recipe: str | PathLike[str]) -> tuple[str, str]:
    """The text of a recipe, and what to call it in messages."""
    if isinstance(recipe, str) and ("\n" in recipe or ": " in recipe or not recipe.strip()):
        return recipe, "recipe"
    path = Path(recipe)
    try:
        if isinstance(recipe, str) and "://" in recipe:
            with open_input(recipe) as file:
                return file.read().decode("utf-8-sig"), recipe
        if path.is_fifo():
            raise RecipeError(f"{path} is a pipe, and a recipe is read more than once: write it into a file")
        if isinstance(recipe, str) and path.suffix not in (".yaml", ".yml") and not path.is_file():
            path = packs.resource("recipes", recipe)
        return path.read_text(encoding="utf-8-sig"), str(path)
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: byte {error.start} is not UTF-8; save the recipe as UTF-8 text") from None
    except FileNotFoundError:
        hint = suggestion(path.name, [p.name for p in path.parent.glob("*.y*ml")],
                          "`curator recipes` lists the packaged ones")
        raise RecipeError(f"{path}: there is no such file; {hint}") from None
    except InputError as error:
        raise RecipeError(f"the recipe cannot be read: {error}") from None
    except (OSError, ValueError) as error:
        raise RecipeError(f"{path}: the recipe cannot be read: {error}") from None


class _Reader:
    """One recipe while it is read."""

    def __init__(self, root: Item, problems: Problems) -> None:
        self.root, self.problems = root, problems
        self.seed = self._typed("seed", int | None)

    def pipeline(self, default_name: str) -> Graph:
        check_keys(self.root, "", KEYS, self.problems)
        lines = [self._line("", "", self.root)]
        branches = self.root.value.get("branches", self.root.beside({}))
        if not branches.is_map:
            self.problems.add(branches, "branches", "expected a mapping from labels to branches")
            branches = self.root.beside({})
        for name, item in branches.value.items():
            check_keys(item, f"branches.{name}", BRANCH_KEYS, self.problems)
            lines.append(self._line(name, f"branches.{name}", item))
        self._check_ends(lines)
        give_names(lines, self.problems)
        graph = RecipeGraph(lines, self._discard(), self.problems)
        sinks = graph.join()
        plain = self.root.beside({key: item for key, item in self.root.value.items()
                                  if key in PLAIN_SETTINGS})
        settings = Settings(max_failed=self._max_failed(), discard=graph.discard,
                            **arguments(Settings, plain, "", self.problems))
        return Graph(sinks=sinks, name=self._typed("name", str) or default_name, settings=settings)

    def _check_ends(self, lines: list[Line]) -> None:
        if not lines[0].sources:
            self.problems.add(self.root, "",
                              "nothing is read; add, for example, read: {jsonl: {path: docs/}}")
        if not any(line.sinks for line in lines):
            self.problems.add(self.root, "",
                              "nothing is written; add, for example, write: parquet and out: out/")

    def _line(self, name: str, path: str, item: Item) -> Line:
        line = Line(name, path, item)
        parts = item.value if item.is_map else {}
        dot = f"{path}." if path else ""
        line.sources = [read_step("source", entry, at, self.seed, self.problems)
                        for at, entry in _entries(parts.get("read"), f"{dot}read")]
        line.sinks = [read_step("sink", entry, at, self.seed, self.problems)
                      for at, entry in _entries(parts.get("write"), f"{dot}write")]
        steps = parts.get("steps", item.beside([]))
        if steps.is_list:
            line.steps = [self._merge(entry, f"{dot}steps[{i}]") or
                          read_step("stage", entry, f"{dot}steps[{i}]", self.seed, self.problems)
                          for i, entry in enumerate(steps.value)]
        elif steps.value is not None:
            self.problems.add(steps, f"{dot}steps", "expected a list: one step a line, beginning with -")
        if name and "from" in parts:
            line.takes = dict.fromkeys(self._names(parts["from"], f"{path}.from"), parts["from"])
        return line

    def _merge(self, entry: Item, path: str) -> Merge | None:
        """The step `merge: [label, …]`; without labels it is a stage like any other."""
        item = entry.value.get("merge") if entry.is_map and list(entry.value) == ["merge"] else None
        if item is None or item.value is None:
            return None
        labels = self._names(item, f"{path}.merge")
        return Merge(f"{path}.merge", item, dict.fromkeys(labels, item))

    def _names(self, item: Item, path: str) -> list[str]:
        """One name or a list of names."""
        value = coerce(item, str | list[str], path, self.problems)
        return [] if value is BAD else [value] if isinstance(value, str) else value

    def _typed(self, key: str, hint: Any) -> Any:
        value = coerce(self.root.value[key], hint, key, self.problems) if key in self.root.value else None
        return None if value is BAD else value

    def _max_failed(self) -> float:
        item = self.root.value.get("max_failed")
        if item is None:
            return Settings.max_failed
        percent = item.text.endswith("%")
        value = scalar(item.text.removesuffix("%").strip())
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1
        if percent and 0 <= number <= 100:
            return number / 100
        if not percent and number >= 0 and (number < 1 or number == float("inf") or number == int(number)):
            return number
        self.problems.add(item, "max_failed",
                          "expected a count (1 is one record), a share (0.05; 1.0 is all) or a percentage, "
                          f"got {item.text!r}")
        return Settings.max_failed

    def _discard(self) -> dict[str, Item]:
        item = self.root.value.get("discard")
        if item is None:
            return {}
        if isinstance(item.value, bool):
            return dict.fromkeys(("dropped", "duplicate") if item.value else (), item)
        return dict.fromkeys(self._names(item, "discard"), item)


def _entries(item: Item | None, path: str) -> list[tuple[str, Item]]:
    """The one or several sources or sinks under a key, with their paths."""
    if item is None or item.value is None:
        return []
    return [(f"{path}[{i}]", child) for i, child in enumerate(item.value)] if item.is_list else [(path, item)]
