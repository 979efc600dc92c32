"""One entry of a recipe, `text.language: {keep: [en]}` with or without `with: {batch_size: 64}`, as a
stage."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from curator.api.errors import PackError, RecipeError
from curator.api.names import unknown
from curator.api.resources import Resources
from curator.api.stage import Stage
from curator.io.yaml import Item, Problems
from curator.recipe.graph import Step
from curator.recipe.parameters import parameters
from curator.recipe.values import BAD, arguments, attempt, below, coerce, make
from curator.registry import packs

_WITH = {"name": str, "batch_size": int, "timeout_s": float, "resources": Resources}
_PLACE = {"source": "read", "sink": "write", "stage": "steps"}


def read_step(kind: str, entry: Item, path: str, seed: int | None, problems: Problems) -> Step:
    """The step that an entry names; its `stage` is None if something is wrong with it, which is noted.

    `kind`: source, stage or sink. `seed` is for a stage that has such a parameter and is not given one.
    """
    name, given, extra = _named(entry, path, problems)
    item = given if name and entry.is_map else entry
    step = Step(name, below(path, name) if name else path, item, None,
                extra is not None and "name" in extra.value)
    try:
        factory = _factory(kind, name) if name else None
        whole = _with_inner(factory, given, step.path, seed, problems) if factory is not None else None
        if factory is not None and whole is not None:
            step.stage = make(factory, whole, step.path, problems, seed)
        if step.stage is not None and extra is not None:
            step.stage = _adjusted(step.stage, extra, below(path, "with"), problems)
    except (RecipeError, PackError) as error:
        problems.add(item, step.path, str(error))
    return step


def _with_inner(factory: packs.Factory, given: Item, path: str, seed: int | None,
                problems: Problems) -> Item | None:
    """The parameters with the steps in them made; None if something is wrong with one of these, which is
    noted."""
    before, made = len(problems.found), dict(given.value) if given.is_map else {}
    for name in (p.written for p in parameters(factory) if p.hint == list[Stage]):
        item = made.get(name)
        if item is not None and item.is_list:
            steps = [read_step("stage", entry, f"{path}.{name}[{i}]", seed, problems)
                     for i, entry in enumerate(item.value)]
            made[name] = item.beside([item.beside(step.stage) for step in steps])
    return None if len(problems.found) > before else given.beside(made) if given.is_map else given


def check_keys(item: Item, path: str, known: tuple[str, ...], problems: Problems) -> bool:
    """Note keys that are not known; False, and a note, if it is not a mapping at all."""
    if not item.is_map:
        problems.add(item, path, f"expected a mapping with {', '.join(known)}")
        return False
    for key, value in item.value.items():
        if key not in known:
            problems.add(value, below(path, key), unknown("key", key, known))
    return True


def _named(entry: Item, path: str, problems: Problems) -> tuple[str, Item, Item | None]:
    """The name in an entry, its parameters, and what stands under `with`; the name is empty if there is
    none."""
    if isinstance(entry.value, str) and entry.value:
        return entry.text, entry.beside(None), None
    parts = dict(entry.value) if entry.is_map else {}
    extra = parts.pop("with", None)
    if extra is not None and not check_keys(extra, below(path, "with"), tuple(_WITH), problems):
        extra = None
    names = list(parts)
    if len(parts) == 1 and names[0]:
        return names[0], parts[names[0]], extra
    if parts and parts[names[0]].value is None:
        say = f"if {', '.join(names[1:])} are parameters of {names[0]}, indent them below it"
    else:
        here = f"; here are {', '.join(parts)}" if parts else ""
        say = f"expected a name, or one name with its parameters{here}"
    problems.add(entry, path, say)
    return "", entry, None


def _factory(kind: str, name: str) -> packs.Factory:
    """What the name means in this place; under `write`, `parquet` is short for `to_parquet`."""
    pack, dot, short = name.rpartition(".")
    for candidate in ([f"{pack}{dot}to_{short}", name] if kind == "sink" else [name]):
        factory = packs.find_stage(candidate)
        if factory is None:
            continue
        found = packs.kind_of(factory)
        if found != kind:
            raise RecipeError(f"{name!r} is a {found}, not a {kind}; it belongs under {_PLACE[found]}")
        return factory
    known = [n for n, factory in packs.all_stages().items() if packs.kind_of(factory) == kind]
    if kind == "sink":
        known = [n.replace("to_", "", 1) for n in known]
    raise RecipeError(packs.unknown_stage(kind, name, known))


def _adjusted(stage: Stage, extra: Item, path: str, problems: Problems) -> Stage:
    """The stage with what stands under `with`."""
    changes: dict[str, Any] = {}
    for key, item in ((k, i) for k, i in extra.value.items() if k in _WITH):
        at = f"{path}.{key}"
        if key == "resources" and item.is_map:  # what is not given stays as the stage says
            given = arguments(Resources, item, at, problems)
            value = attempt(partial(dataclasses.replace, stage.resources, **given), item, at, problems)
        else:
            value = coerce(item, _WITH[key], at, problems)
        if value is BAD or value is None:
            continue
        if key in ("batch_size", "timeout_s") and value <= 0:
            problems.add(item, at, f"must be more than 0, got {item.text}")
        elif key == "name" and ("/" in value or not value.strip(". ")):
            problems.add(item, at, f"names a folder, and {value!r} cannot; use letters, digits, - and _")
        changes[key] = value
    return stage.with_(**changes)
