"""Which code is the user's own, and which is installed (Python's, a distribution's, ours, a pack's)."""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made by code, not by C


@functools.cache
def _cared_for() -> frozenset[str]:
    """Packages whose authors say by `version` that a stage answers differently: the core and the packs. Not a
    pack that is installed to be edited: who works on one would get old results. Ours lie beside the core."""
    points = importlib.metadata.entry_points(group="curator.packs")
    tops = {point.value.partition(":")[0].partition(".")[0] for point in points}
    ours = Path(__file__).resolve().parents[2]
    found = {top: spec and spec.origin for top in tops for spec in [spec_of(top)]}
    return frozenset({"curator", *(top for top, file in found.items() if not file or _is_installed_path(file)
                                   or Path(file).resolve().is_relative_to(ours))})


def installed(module: str) -> bool:
    """Whether a module belongs to Python, a distribution, the core or a pack, and is not the user's own.

    A distribution that is installed to be edited is the user's own.
    """
    if module == "__main__":
        return False
    if module.partition(".")[0] in _cared_for():
        return True
    found = sys.modules.get(module)
    if found is None:
        return False
    spec = getattr(found, "__spec__", None)
    if getattr(spec, "origin", None) in ("built-in", "frozen"):
        return True
    places = [getattr(found, "__file__", None) or "", *(getattr(found, "__path__", None) or ())]
    return any(map(_is_installed_path, filter(None, places)))


@functools.lru_cache(maxsize=4096)
def _is_installed_path(path: str) -> bool:
    library, packages = Path(os.__file__).resolve().parent, {"site-packages", "dist-packages"}
    return not packages.isdisjoint(Path(path).parts) or Path(path).resolve().is_relative_to(library)


def installed_class(cls: type) -> bool:
    if not cls.__flags__ & HEAP_TYPE:
        return True
    module = cls.__module__  # that of the builtins is also said by what has no name of a module
    return module != "builtins" and module in sys.modules and installed(module)


@functools.cache
def version_of(module: str) -> str:
    """The version of the distribution that a module is from; of the core, packs and Python, which look after
    it, none."""
    top = module.partition(".")[0]
    if top in _cared_for() or top in sys.stdlib_module_names:
        return ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
        return importlib.metadata.version(top)
    # the distribution is called otherwise: looking it up takes long
    found = getattr(sys.modules.get(top), "__version__", "")
    return found if isinstance(found, str) else ""


def own_files(code: types.CodeType, package: str) -> list[Path]:
    """The user's own files behind what this code and those import when they run; none is imported.

    `package`: the one that the code is in.
    """
    found: set[Path] = set()
    todo = [(code, package)]
    while todo:
        code, package = todo.pop()
        for path, inside in (found_at for name in _imported(code) for found_at in _files_of(name, package)):
            if path not in found:
                found.add(path)
                with contextlib.suppress(SyntaxError, ValueError):
                    todo.append((compile(path.read_bytes(), path, "exec"), inside))
    return sorted(found)


@functools.lru_cache(maxsize=4096)
def _imported(code: types.CodeType) -> frozenset[str]:
    """What code imports, as it spells it, and what it takes from that, as may be modules too; a function
    takes what it names."""
    found: set[str] = set()
    names = {name for part in codes(code) for name in part.co_names} if code.co_name != "<module>" else ()
    for part in codes(code):
        module = ""
        for one in dis.get_instructions(part):
            if one.opname == "IMPORT_NAME":
                module = one.argval
                found |= {module, *(f"{module}.{name}".strip(".") for name in names)}
            elif one.opname == "IMPORT_FROM":
                found.add(f"{module}.{one.argval}".strip("."))
    return frozenset(found - {""})


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object, and those of all functions and classes in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def _files_of(name: str, package: str) -> Iterator[tuple[Path, str]]:
    """The user's own file of a module, by its name or from a package around the code; with the package that
    it is in."""
    parents = package.split(".") if package else []
    for above in ("", *(".".join(parents[:n]) for n in range(len(parents), 0, -1))):
        full = f"{above}.{name}" if above else name
        top = full.partition(".")[0]
        spec = None if top in sys.stdlib_module_names or top in _cared_for() else spec_of(full)
        if spec and spec.origin and spec.origin.endswith(".py") and not _is_installed_path(spec.origin):
            yield Path(spec.origin), full if spec.submodule_search_locations else full.rpartition(".")[0]


def spec_of(module: str) -> ModuleSpec | None:
    """Where a module would be imported from, None if nowhere. Imports nothing, not even its package."""
    top, *inner = [module] if module in sys.modules else module.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for name in inner:
            places = spec and spec.submodule_search_locations
            spec = PathFinder.find_spec(f"{spec.name}.{name}", places) if spec and places else None
    except (ImportError, ValueError, AttributeError):  # `__main__` has no spec
        return None
    return spec
