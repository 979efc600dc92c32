"""`check_pack`: prove a whole installed pack right in one call."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from curator.api.batch import Batch
from curator.api.errors import PackError
from curator.api.stage import Sink, Source, Stage
from curator.recipe.describe import doc_of
from curator.recipe.parameters import parameters, sayable, spoken
from curator.registry import packs
from curator.registry.packs import Factory, Pack
from curator.testing.elsewhere import check_elsewhere
from curator.testing.installed import faults
from curator.testing.io import check_sink, check_source
from curator.testing.run import named, short
from curator.testing.stage import check_stage

Example = (Source | tuple[Source, Mapping[str, Any]] | tuple[Stage, Batch]
           | tuple[Stage, Batch, Mapping[str, Any]])


@dataclass(frozen=True)
class _Given:
    """An example taken apart. `batch` is None for a source; `options` are for `check_stage` and its like."""

    stage: Stage
    batch: Batch | None
    options: Mapping[str, Any]


def check_pack(name: str, examples: Iterable[Example], without: Collection[str] = ()) -> None:
    """Check an installed pack: each of its stages, sources and sinks by examples, its recipes and its rule
    sets.

    `name`: the pack's, as recipes write it before the dot. `examples`: one or more for each name in STAGES:
    `(stage, batch)` as for `check_stage`; `(sink, batch)` as for `check_sink`, its path an empty folder; or a
    source that finds something to read. `without`: names whose libraries, of an extra, are not installed
    here, and which need no example. A mapping at the end has further arguments of the check: `(stage,
    batch, {"tolerance": 1e-3})`, `(source, {"unique_ids": False})`.

    What is checked beside that: each stage says in its docstring what one gets, and has parameters that YAML
    can give; recipes and rule sets load; importing the pack imports nothing heavy and breaks no other pack;
    and in another process each example has the same fingerprint and answers the same, so that a run can be
    continued.

    Raises:
        AssertionError: what is wrong, and what to do.
    """
    pack = _installed(name)
    given = [_given(example) for example in examples]
    _check_complete(pack, given, without)
    for full, factory in pack.stages().items():
        _check_shown(full, factory)
    wrong = faults(pack)
    assert not wrong, "\n".join(wrong)
    for one in given:
        if isinstance(one.stage, Source):
            check_source(one.stage, **one.options)
        elif one.batch is not None and isinstance(one.stage, Sink):
            check_sink(one.stage, one.batch, **one.options)
        elif one.batch is not None:  # as `_given` has seen
            check_stage(one.stage, one.batch, **one.options)
    check_elsewhere(pack.module, [(one.stage, one.batch, one.options.get("tolerance", 0.0)) for one in given])


def _installed(name: str) -> Pack:
    found = {pack.name: pack for pack in packs.installed()}
    assert name in found, (f"no pack {name!r} is installed, there are {', '.join(found)}: name it under "
        "[project.entry-points.\"curator.packs\"] in "
        "its pyproject.toml, and run pip install -e . in its folder, again after each change of that file")
    assert found[name].error is None, found[name].error
    return found[name]


def _given(example: Any) -> _Given:
    parts = list(example) if isinstance(example, tuple) else [example]
    options = parts.pop() if parts and isinstance(parts[-1], Mapping) else {}
    stage, batch, *more = parts + [None] * (2 - len(parts))
    fits = not more and isinstance(stage, Stage) and isinstance(batch, Batch) != isinstance(stage, Source)
    assert fits, (f"check_pack cannot use the example {short(example, 200)}: give (stage, batch), (sink, "
                  "batch) or a source, each made with its parameters")
    return _Given(stage, batch, options)


def _check_complete(pack: Pack, given: list[_Given], without: Collection[str]) -> None:
    """There is an example for each name, and none for anything else."""
    name_of = {packs.code_of(factory): name for name, factory in pack.stages().items()}
    made_by = [packs.code_of(one.stage) for one in given]
    strange = [named(one.stage) for one, code in zip(given, made_by, strict=True) if code not in name_of]
    assert not strange, (
        f"{strange[0]} is not in STAGES of {pack}: name it there, or check it alone by check_stage or its "
        "like")
    missing = [name for code, name in name_of.items() if code not in made_by and name not in without]
    assert not missing, (
        f"check_pack has no example of {', '.join(missing)}: each stage of the pack wants one or more")
    for name in name_of.values():
        try:
            packs.stage_class(name)
        except PackError as error:  # another pack has a stage of this name
            raise AssertionError(str(error)) from error


def _check_shown(name: str, factory: Factory) -> None:
    """What `curator stages` shows: a sentence on what one gets, and parameters that a recipe can give."""
    assert doc_of(factory).strip(), (f"{name} ({packs.described(factory)}) has no docstring: its first line "
                                     "says what one gets, and `curator stages` shows it")
    own = inspect.get_annotations(factory) if isinstance(factory, type) else {}
    fields = [field for field, hint in own.items() if "ClassVar" not in str(hint)]
    assert not fields or "__dataclass_params__" in vars(factory), (
        f"{name}: {', '.join(fields)} cannot be set, because {packs.described(factory)} is no dataclass: "
        "write @dataclass(kw_only=True) above the class")
    try:
        known = parameters(factory)
    except PackError as error:
        raise AssertionError(f"{name}: {error}") from error
    for parameter in known:
        assert sayable(parameter.hint), (
            f"{name}: no recipe can give the parameter {parameter.name!r}, which is "
            f"{spoken(parameter.hint)}; take texts, numbers, "
            "lists, mappings, Literal, or a dataclass of these")
