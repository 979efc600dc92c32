"""What can be set on a stage: its parameters and their types, as recipes check them and `curator stages`
shows them."""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import enum
import inspect
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from curator.api.errors import PackError
from curator.api.stage import FunctionStage, Stage
from curator.registry.packs import Factory

REQUIRED = inspect.Parameter.empty  # in place of a default, where there is none
MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
LISTS = (list, tuple, set, frozenset, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable,
         abc.Set)
UNIONS = (typing.Union, types.UnionType)
_SPOKEN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path",
           type(None): "nothing", Stage: "a step"}
_MANY = {str: "texts", int: "whole numbers", float: "numbers", Path: "paths", Stage: "steps"}


@dataclass(frozen=True)
class Parameter:
    """A field of a stage, or an argument of a function. `default` is REQUIRED where there is none."""

    name: str
    hint: Any = Any
    default: Any = REQUIRED

    @property
    def written(self) -> str:
        """Its name in recipes: `as`, where Python needs `as_`."""
        return self.name.removesuffix("_")

    @property
    def type_name(self) -> str:
        """The type as Python writes it, without the names of modules."""
        text = inspect.formatannotation(self.hint)
        return text.replace("collections.abc.", "").replace("typing.", "").replace("pathlib.", "")


def parameters(factory: Factory | type) -> list[Parameter]:
    """The parameters of a stage, or of any dataclass, in the order of its fields.

    Raises:
        PackError: the annotations name something that does not exist at run time.
    """
    if isinstance(factory, FunctionStage):
        return _arguments(factory)
    if not dataclasses.is_dataclass(factory):
        return []
    hints = _hints(factory)
    return [Parameter(f.name, hints.get(f.name, Any), usual(f)) for f in dataclasses.fields(factory)
            if f.init]


def spoken(hint: Any) -> str:
    """A type in words: `a text or a list of texts`."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if isinstance(hint, type) and hint in _SPOKEN:
        return _SPOKEN[hint]
    if origin in UNIONS:
        return " or ".join(spoken(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(str(m.value) for m in hint)
    if origin in MAPPINGS:
        return (f"a mapping from names to {_many(args[1])}" if len(args) > 1 and args[1] is not Any
                else "a mapping")
    if origin in LISTS:
        inner = list(dict.fromkeys(_many(a) for a in args if a not in (Ellipsis, Any)))
        return f"a list of {' and '.join(inner)}" if inner else "a list"
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return "a mapping with " + ", ".join(p.name for p in parameters(hint))
    if origin is typing.Annotated:
        return spoken(args[0])
    return "any value" if hint in (Any, object) else inspect.formatannotation(hint)


def sayable(hint: Any) -> bool:
    """Whether YAML can give a value of this type."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return sayable(args[0])
    if origin in (*UNIONS, *MAPPINGS, *LISTS):
        return all(sayable(arg) for arg in args if arg is not Ellipsis)
    return (hint in (Any, object, *_SPOKEN) or origin is Literal or dataclasses.is_dataclass(hint)
            or (isinstance(hint, type) and issubclass(hint, enum.Enum)))


def _many(hint: Any) -> str:
    return _MANY.get(hint) or f"values, each {spoken(hint)}"


def _arguments(factory: FunctionStage) -> list[Parameter]:
    """What the function takes after the batch; values bound already are defaults."""
    hints = _hints(factory.function)
    given = list(inspect.signature(factory.function).parameters.values())[1:]
    return [Parameter(p.name, hints.get(p.name, Any), factory.arguments.get(p.name, p.default))
            for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def usual(field: dataclasses.Field) -> Any:
    """Its default, REQUIRED where there is none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner, include_extras=True)
    # evaluating annotations runs a stranger's code; mostly a name only type checkers see
    except Exception as error:
        name = f"{owner.__module__}.{owner.__qualname__}"
        raise PackError(f"the types of the parameters of {name} cannot be read: {type(error).__name__}: "
                        f"{error}; import the names that its annotations use") from error
