"""From YAML to typed parameters: what a stage's fields want, checked, and converted only where nothing is
lost.

Ours, since msgspec and pydantic take plain values: a text must be what the user typed (`8`, `no`, `1e3`), and
every problem of a recipe is reported at once, with its line and the nearest name.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import difflib
import enum
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from curator.api.errors import CuratorError
from curator.api.names import suggestion
from curator.api.stage import Stage
from curator.io.yaml import Item, Problems, scalar
from curator.recipe.parameters import LISTS, MAPPINGS, REQUIRED, UNIONS, Parameter, parameters, spoken
from curator.registry.packs import Factory

BAD = object()  # in place of a value that could not be made; the problem is noted
_TRUTH = {"yes": True, "on": True, "no": False, "off": False}


def arguments(factory: Factory | type, given: Item, path: str, problems: Problems) -> dict[str, Any]:
    """The keyword arguments that a mapping of parameters gives; BAD ones are left out and noted."""
    known = {p.written: p for p in parameters(factory)}
    given = _shorthand(known, given, path, problems)
    values = {}
    for name, item in given.value.items():
        at = below(path, name)
        if name not in known:
            problems.add(item, at, _unknown_parameter(factory, name, known))
            continue
        value = coerce(item, known[name].hint, at, problems)
        if value is not BAD:
            values[known[name].name] = value
    for name, parameter in known.items():
        if parameter.default is REQUIRED and name not in given.value:
            problems.add(given, path, f"the parameter {name!r} is missing; it is {spoken(parameter.hint)}")
    return values


def below(path: str, name: str) -> str:
    """The path of a name; that of a whole recipe, or of a step in Python, is empty."""
    return f"{path}.{name}" if path else name


def make(factory: Factory, given: Item, path: str, problems: Problems,
         seed: int | None = None) -> Stage | None:
    """The stage with these parameters, None if something is wrong with them, which is noted.

    `seed` is for a stage that has such a parameter and is not given one.
    """
    before = len(problems.found)
    values = arguments(factory, given, path, problems)
    if seed is not None and any(p.name == "seed" for p in parameters(factory)):
        values.setdefault("seed", seed)
    if len(problems.found) > before:
        return None
    return attempt(lambda: factory(**values), given, path, problems)


def attempt(build: abc.Callable[[], Any], item: Item, path: str, problems: Problems) -> Any:
    """What `build` makes; None, and a note, if it raises: a stage's own check of its parameters."""
    try:
        return build()
    except Exception as error:
        meant = isinstance(error, (ValueError, CuratorError)) and str(error)
        problems.add(item, path, str(error) if meant else f"{type(error).__name__}: {error}")
        return None


def coerce(item: Item, hint: Any, path: str, problems: Problems) -> Any:
    """The value that a field of this type takes; BAD, and a note, if the YAML does not say one."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint in (Any, object):
        return item.plain()
    if origin in UNIONS:
        return _union(item, hint, args, path, problems)
    if origin is typing.Annotated:
        return coerce(item, args[0], path, problems)
    if origin is Literal:
        return _choice(item, args, path, problems)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        value = _choice(item, tuple(m.value for m in hint), path, problems)
        return value if value is BAD else hint(value)
    if origin in MAPPINGS and item.is_map:
        return _mapping(item, args or (str, Any), path, problems)
    if origin in LISTS and item.is_list:
        return _list(item, origin, args, path, problems)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and item.is_map:
        before = len(problems.found)
        values = arguments(hint, item, path, problems)
        made = attempt(lambda: hint(**values), item, path,
                       problems) if len(problems.found) == before else None
        return BAD if made is None else made
    value = _scalar(item, hint)
    if value is BAD:
        problems.add(item, path, f"expected {spoken(hint)}, got {_shown(item, hint)}")
    return value


def _scalar(item: Item, hint: Any) -> Any:
    value = item.value
    if hint is type(None) or hint is None:
        return None if value is None and not item.quoted else BAD
    if hint in (str, Path):
        written = value is not None and (item.text or item.quoted)  # as the user typed it: `no`, `007`, `1e3`
        return hint(item.text) if written else BAD
    if hint is Stage:
        return value if isinstance(value, Stage) else BAD
    if hint is bool:
        word = BAD if item.quoted else _TRUTH.get(item.text.lower(), BAD)
        return value if isinstance(value, bool) else word
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return BAD
    if hint is int:
        return value if isinstance(value, int) else BAD
    if hint is float:
        exact = isinstance(value, float) or (abs(value) < 2**1000 and int(float(value)) == value)
        return float(value) if exact else BAD
    return BAD


def _union(item: Item, hint: Any, members: tuple, path: str, problems: Problems) -> Any:
    """The member whose type the value has; else the first that takes it without loss."""
    shaped = [m for m in members if _fits(m, item)]
    if len(shaped) == 1:
        return coerce(item, shaped[0], path, problems)
    for member in sorted(shaped, key=lambda m: m is not type(item.value)):
        trial = Problems()
        value = coerce(item, member, path, trial)
        if not trial.found:
            return value
    scalars = [m for m in members if m in (str, Path)]
    if scalars and (item.is_map or item.is_list) and item.text:
        return coerce(item, scalars[0], path, problems)
    problems.add(item, path, f"expected {spoken(hint)}, got {_shown(item, hint)}")
    return BAD


def _fits(member: Any, item: Item) -> bool:
    origin = typing.get_origin(member) or member
    if member in (Any, object) or origin in (*UNIONS, typing.Annotated):
        return True
    if origin in LISTS:
        return item.is_list
    if origin in MAPPINGS or dataclasses.is_dataclass(member):
        return item.is_map
    nothing = item.value is None and not item.quoted
    return not item.is_map and not item.is_list and nothing == (member in (None, type(None)))


def _choice(item: Item, choices: tuple, path: str, problems: Problems) -> Any:
    for choice in choices:
        same = type(item.value) is type(choice) and item.value == choice
        if same or (isinstance(choice, str) and not (item.is_map or item.is_list) and item.text == choice):
            return choice
    hint = suggestion(item.text, map(str, choices), "") if item.text else ""
    say = f"expected one of {', '.join(map(str, choices))}, got {_shown(item, str)}"
    problems.add(item, path, f"{say}; {hint}" if hint else say)
    return BAD


def _mapping(item: Item, args: tuple, path: str, problems: Problems) -> Any:
    made = {}
    for name, child in item.value.items():
        at = f"{path}.{name}"
        key = name
        if args[0] not in (str, Any):
            key = coerce(Item(scalar(name), child.file, child.line, name), args[0], at, problems)
        value = coerce(child, args[1], at, problems)
        if key is not BAD and value is not BAD:
            made[key] = value
    return made if len(made) == len(item.value) else BAD


def _list(item: Item, origin: Any, args: tuple, path: str, problems: Problems) -> Any:
    fixed = origin is tuple and args and args[-1] is not Ellipsis
    if fixed and len(args) != len(item.value):
        problems.add(item, path, f"expected {len(args)} values, got {len(item.value)}")
        return BAD
    hints = args if fixed else (args[0] if args else Any,) * len(item.value)
    made = [coerce(child, hint, f"{path}[{i}]", problems)
            for i, (child, hint) in enumerate(zip(item.value, hints, strict=True))]
    if any(value is BAD for value in made):
        return BAD
    try:
        return origin(made) if origin in (tuple, set, frozenset) else made
    except TypeError:  # a list or mapping in a set
        problems.add(item, path, "a value of a set must be a text or a number")
        return BAD


def _shorthand(known: Mapping[str, Parameter], given: Item, path: str, problems: Problems) -> Item:
    """As a mapping of parameters: `limit: 100` is the first; unknown keys are entries of a first one that is
    a dict."""
    first = next(iter(known.values()), None)
    if not given.is_map:
        empty = given.value is None and not given.quoted
        if first is None and not empty:
            problems.add(given, path, f"there are no parameters here, got {_shown(given, Any)}")
        return given.beside({} if empty or first is None else {first.name: given})
    free = {k: v for k, v in given.value.items()
            if k not in known and not difflib.get_close_matches(k, known, n=1, cutoff=0.85)}
    if first is None or not free or not _is_mapping(first.hint):
        return given
    named = given.value.get(first.name)
    if named is not None and not named.is_map:
        return given
    entries = given.beside({**(named.value if named else {}), **free})
    return given.beside({first.name: entries} | {k: v for k, v in given.value.items()
                                                 if k not in free and k != first.name})


def _is_mapping(hint: Any) -> bool:
    members = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
    return any((typing.get_origin(m) or m) in MAPPINGS for m in members)


def _unknown_parameter(factory: Any, name: str, known: Mapping[str, Parameter]) -> str:
    what = getattr(factory, "name", None) or getattr(factory, "__name__", "it")
    hint = suggestion(name, known, f"{what} has {', '.join(known) or 'none'}", quoted=True)
    # meant as one by the stage's author
    if isinstance(factory, type) and hasattr(factory, name) and not hasattr(Stage, name):
        is_one = "__dataclass_params__" in vars(factory)
        hint = (f"{factory.__name__} names it without a type: write {name}: int = …, or what it is"
                if is_one else
                f"{factory.__name__} is no dataclass: write @dataclass(kw_only=True) above the class")
    return f"unknown parameter {name!r}; {hint}"


def _shown(item: Item, hint: Any) -> str:
    if item.is_map or item.is_list:
        return "a mapping" if item.is_map else "a list"
    if item.value is None and not item.quoted:
        return "nothing"
    text = item.text if len(item.text) <= 60 else item.text[:57] + "..."
    if item.quoted and isinstance(scalar(item.text), (int, float)) and hint is not str:
        return f"the text {text!r}; write it without quotes"
    return f"the text {text!r}" if isinstance(item.value, str) else text
