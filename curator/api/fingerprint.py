"""What decides an answer, told by its content: 16 hex digits that are the same in every process.

Values are told by what is in them, whatever the order of a set. Functions and classes are told by their code
and by all that it uses: what it names in its module, closes over, has for defaults, calls, inherits.
Installed code is told by its name and the version of its distribution; the core and the packs by their name,
as their stages have a `version`.

Not seen: what is looked up by a computed name (`getattr`, `globals()`), the environment, files, and what a
server answers. Code of another minor version of Python counts as changed.
"""

from __future__ import annotations

import copyreg
import dataclasses
import dis
import enum
import functools
import hashlib
import os
import re
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curator.api.own_code import codes, installed, installed_class, own_files, version_of

PLAIN = frozenset({str, int, float, bool, bytes, complex, type(None)})  # whose `ascii` is short for nothing
DEPTH = 60  # of values in values
NO_VALUE = ("_thread", "_weakref", "_weakrefset", "threading", "weakref")  # locks and caches decide nothing
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # how code takes a name from its module


@dataclass(frozen=True)
class Unknown:
    """A value that has no stable description. `name`: how it is called; `file`, `line`: of the code that uses
    it, if any does."""

    name: str
    type: str
    file: str = ""
    line: int = 0


@dataclass
class Fingerprint:
    """One walk over values. `unknown`: what could not be told, in the order it was met; it has made the
    answer a new one.

    `own`: a module whose functions are told by their code wherever it is installed. The order of a mapping
    counts in what code uses, where it can decide, and not in parameters.
    """

    own: str = ""
    unknown: list[Unknown] = field(default_factory=list)
    # functions and classes that were met, by id, in that order
    _numbers: dict[int, int] = field(default_factory=dict)
    # the same, described one after the other: code goes in circles
    _met: list[Any] = field(default_factory=list)
    _open: list[int] = field(default_factory=list)  # ids of containers that are being described
    # file and line of the code that uses what is described
    _using: list[tuple[str, int]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def of(self, value: Any) -> str:
        """16 hex digits."""
        return self._whole(value).hex()[:16]

    def _whole(self, value: Any) -> bytes:
        parts = [self._digest(value)]
        for thing in self._met:  # it grows meanwhile
            parts.append(self._class_code(thing) if isinstance(thing, type) else self._function_code(thing))
        return _hash(*parts)

    # -- values ----------------------------------------------------------------------------------------------

    def _digest(self, value: Any) -> bytes:
        kind = type(value)
        if kind in PLAIN:
            return _hash(kind.__name__, _ascii(value))
        if isinstance(value, (types.FunctionType, functools._lru_cache_wrapper)):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.ModuleType):
            return self._module(value, ())
        if isinstance(value, types.CodeType):
            return self._code(value)
        if kind.__module__ in NO_VALUE:
            return _hash("no value", kind.__name__)
        return self._inside(value)

    def _inside(self, value: Any) -> bytes:
        """What has parts, which may have it for a part in turn."""
        if id(value) in self._open:
            return _hash("around", str(len(self._open) - self._open.index(id(value))))
        if len(self._open) > DEPTH:
            return self._cannot(value, "something nested too deeply")
        self._open.append(id(value))  # what raises ends the walk, so nothing is put right after it
        parts = self._parts(value)
        self._open.pop()
        return parts

    def _parts(self, value: Any) -> bytes:
        kind = type(value)
        if kind in (list, tuple):
            return self._sequence(kind.__name__, value)
        if kind in (dict, types.MappingProxyType):
            return self._mapping(value)
        if isinstance(value, (set, frozenset)):
            return _hash("set", self._class(kind) if kind not in (set, frozenset) else "", self._set(value))
        if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
            return _hash("array", str(value.dtype.descr), str(value.shape), value.tobytes())
        if hasattr(kind, "_decides_nothing"):
            return self._stage(value)
        own = getattr(kind, "fingerprint", None)
        if callable(own):
            return _hash("told", kind.__qualname__, str(own(value)))
        if dataclasses.is_dataclass(value):
            fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            return _hash("dataclass", self._class(kind), self._attributes(fields))
        return self._object(value)

    def _sequence(self, tag: str, values: Iterable[Any]) -> bytes:
        values = list(values)
        if set(map(type, values)) <= PLAIN:
            return _hash(tag, "plain", _ascii(values))
        return _hash(tag, *map(self._digest, values))

    def _set(self, values: Iterable[Any]) -> bytes:
        if set(map(type, values)) <= PLAIN:
            return _hash("plain", "\n".join(sorted(map(_ascii, values))))
        return _hash(*sorted(map(self._apart, values)))

    def _apart(self, value: Any) -> bytes:
        """Told as if nothing had been met before: for what comes in no order."""
        return Fingerprint(self.own, self.unknown, _open=list(self._open), _using=list(self._using),
                           _names=list(self._names))._whole(value)

    def _mapping(self, values: Mapping[Any, Any]) -> bytes:
        keys = list(values)
        if not self._using:
            plain = set(map(type, keys)) <= PLAIN
            keys.sort(key=_ascii if plain else self._apart)
        return _hash("mapping", self._sequence("keys", keys),
                     self._sequence("values", [values[key] for key in keys]))

    def _stage(self, stage: Any) -> bytes:
        """An installed class has a `version`, which its author raises; one of the user's has its code."""
        kind = type(stage)
        code = "" if installed_class(kind) else self._class(kind)
        return _hash("stage", kind.__name__, str(stage.version), code, self._attributes(stage.parameters()))

    def _object(self, value: Any) -> bytes:
        """By what would be pickled."""
        try:
            special = copyreg.dispatch_table.get(type(value))
            reduced = special(value) if special else value.__reduce_ex__(4)
        except Exception:  # it says itself that it cannot be taken elsewhere, in an exception of its choice
            return self._cannot(value, _type_name(value))
        if isinstance(reduced, str):
            module = str(getattr(value, "__module__", None) or "")
            return _hash("global", module, reduced, version_of(module))
        make, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        # of attributes and of slots
        states = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        parts = [self._attributes(s) if isinstance(s, dict) else self._digest(s) for s in states]
        return _hash("object", self._digest(make), self._digest(arguments), *parts,
                     self._sequence("items", items or ()), self._mapping(dict(pairs or ())))

    def _attributes(self, values: dict[Any, Any]) -> bytes:
        """In the order of their names: which was set first depends on what happened, and decides nothing."""
        names = sorted(values, key=str)
        return _hash("attributes", *(part for name in names
                                     for part in (str(name), self._attribute(str(name), values[name]))))

    def _attribute(self, name: str, value: Any) -> bytes:
        self._names.append(f".{name}" if self._names else name)
        made = self._digest(value)
        self._names.pop()
        return made

    def _cannot(self, value: Any, kind: str) -> bytes:
        self.unknown.append(Unknown("".join(self._names) or "a value", kind,
                                    *(self._using[-1:] or [("", 0)])[0]))
        return os.urandom(16)

    # -- code ------------------------------------------------------------------------------------------------

    def _function(self, value: Any) -> bytes:
        while not isinstance(value, types.FunctionType):
            value = value.__wrapped__  # lru_cache
            if not isinstance(value, (types.FunctionType, functools._lru_cache_wrapper)):
                return self._digest(value)
        module = value.__module__ or ""
        here = sys.modules.get(module)
        if module != self.own and here is not None and value.__globals__ is vars(here) and installed(module):
            return _hash("function", module, value.__qualname__, version_of(module))
        return self._number(value)

    def _number(self, value: Any) -> bytes:
        """Described when its turn comes."""
        number = self._numbers.setdefault(id(value), len(self._met))
        if number == len(self._met):
            self._met.append(value)
        return _hash("number", str(number))

    def _function_code(self, function: types.FunctionType) -> bytes:
        names, self._names = self._names, []
        self._using.append((function.__code__.co_filename, function.__code__.co_firstlineno))
        closed = [_content(cell) for cell in function.__closure__ or ()]
        attributes = {k: v for k, v in vars(function).items() if k != "__wrapped__"}
        made = _hash("function", self._digest(function.__code__), self._digest(function.__defaults__),
                     self._digest(function.__kwdefaults__), self._attributes(attributes),
                     *(self._attribute(name, v)
                       for name, v in zip(function.__code__.co_freevars, closed, strict=True)),
                     *self._used(function))
        self._using.pop()
        self._names = names
        return made

    def _code(self, code: types.CodeType) -> bytes:
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        arguments = code.co_varnames[:count]
        return _hash("code", code.co_code, code.co_exceptiontable, *map(str, (
            code.co_names, arguments, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
            code.co_flags, code.co_freevars, code.co_cellvars)), *map(self._digest, code.co_consts))

    def _used(self, function: types.FunctionType) -> Iterator[bytes]:
        """What the code takes from its module, and what it imports when it runs."""
        loaded: set[str] = set()
        names: set[str] = set()
        for code in codes(function.__code__):
            loaded |= _loaded(code)
            names |= set(code.co_names)
        for name in sorted(loaded & set(function.__globals__)):
            yield _hash(name, self._global(name, function.__globals__[name], names))
        for path in own_files(function.__code__, function.__globals__.get("__package__") or ""):
            yield _hash("file", path.read_bytes())

    def _module(self, module: types.ModuleType, names: Iterable[str]) -> bytes:
        """Of a module, what is used: all that has one of these names."""
        name = module.__name__
        if installed(name):
            return _hash("module", name, version_of(name))
        if id(module) in self._open:
            return _hash("module", name)
        self._open.append(id(module))
        self._names.append(name)
        there = vars(module)
        made = _hash("module", *(part for n in sorted(set(names) & set(there))
                                 for part in (n, self._global(n, there[n], names))))
        self._names.pop()
        self._open.pop()
        return made

    def _global(self, name: str, value: Any, names: Iterable[str]) -> bytes:
        is_module = isinstance(value, types.ModuleType)
        return self._module(value, names) if is_module else self._attribute(name, value)

    def _class(self, cls: type) -> bytes:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if installed_class(cls):
            return _hash("class", name, version_of(cls.__module__))
        return self._number(cls)

    def _class_code(self, cls: type) -> bytes:
        """Its methods and values; of fields their defaults. How a stage is called and run decides nothing."""
        fields = getattr(cls, "__dataclass_fields__", {})
        left_out = {"_abc_impl", *fields, *getattr(cls, "_decides_nothing", ())}
        there = {name: _unwrapped(value) for name, value in vars(cls).items()
                 if name not in left_out and not _is_made(cls, name, value)}
        if issubclass(cls, enum.Enum):
            there = {n: v for n, v in there.items()
                     if not re.fullmatch("_[^_].*_", n)} | {"members": list(cls.__members__)}
        if not hasattr(cls, "_decides_nothing"):  # a stage's fields are its parameters
            there |= {f"{name} by default": [one.default, one.default_factory, one.init]
                      for name, one in fields.items()}
        names, self._names = self._names, [cls.__qualname__]
        self._using.append((getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__,
                            vars(cls).get("__firstlineno__", 0)))
        made = _hash("class", cls.__qualname__, *map(self._digest, cls.__bases__), self._digest(type(cls)),
                     self._attributes(there))
        self._using.pop()
        self._names = names
        return made


def _hash(*parts: str | bytes) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.digest()


def _ascii(value: Any) -> str:
    """Of plain values, or a list of them: `repr`, but not of what this version of Unicode can print."""
    try:
        return ascii(value)
    except ValueError:  # an int of more than 4,300 digits
        return "\n".join(hex(v) if type(v) is int else ascii(v)
                         for v in (value if isinstance(value, list) else [value]))


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a name that has no value yet
        return None


def _unwrapped(value: Any) -> Any:
    """The functions in what a decorator of the language or of `functools` makes of a method."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, functools.cached_property):
        return value.func
    return value


def _is_made(cls: type, name: str, value: Any) -> bool:
    """Whether Python keeps its books there, maybe later, or `dataclass` made it, and it says no more than the
    fields do."""
    if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return True
    if re.fullmatch("__.*__", name) and (name.startswith("__annot")
                                         or (not callable(value) and not hasattr(value, "__get__"))):
        return True
    return (dataclasses.is_dataclass(cls) and isinstance(value, types.FunctionType)
            and getattr(value, "__wrapped__", value).__code__.co_filename == "<string>")


@functools.lru_cache(maxsize=4096)
def _loaded(code: types.CodeType) -> frozenset[str]:
    """The names that a code object takes from its module."""
    return frozenset(str(one.argval) for one in dis.get_instructions(code) if one.opname in LOADS)


# -- of a stage ----------------------------------------------------------------------------------------------

_warned: set[Unknown] = set()


def fingerprint(stage: Any, own: str = "") -> str:
    """Of a stage; see `Fingerprint` for `own`. It warns once a process of what cannot be told.

    Raises:
        TypeError: a parameter cannot be told.
    """
    walk = Fingerprint(own)
    made = walk.of(stage)
    for unknown in walk.unknown:
        if not unknown.file:
            raise TypeError(f"stage {stage.name!r}, parameter {unknown.name!r}: a stage parameter of type "
                            f"{unknown.type} has no stable fingerprint; give plain values, and make of them "
                            "in `setup` what is needed")
        if unknown not in _warned:
            _warned.add(unknown)
            warnings.warn_explicit(
                f"stage {stage.name!r} uses {unknown.name!r}, and nothing tells whether it ({unknown.type}) "
                "is still what it was: every run does this stage and what follows again. Make it where it is "
                "used, or in `setup` of a stage class, from parameters; or give its class a method "
                "`fingerprint`", UserWarning, unknown.file, unknown.line)
    return made
