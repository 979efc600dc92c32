"""Which code is the user's own, and which is installed: it belongs to Python, a distribution, the core or a pack."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made by code, not by C


@functools.cache
def _cared_for() -> frozenset[str]:
    """Packages whose authors say by `version` that a stage answers differently: the core and the packs."""
    points = importlib.metadata.entry_points(group="curator.packs")
    return frozenset({"curator", *(point.value.partition(":")[0].partition(".")[0] for point in points)})


def installed(module: str) -> bool:
    """Whether a module belongs to Python, to a distribution, to the core or to a pack, and is not the user's own.

    A distribution that is installed to be edited is the user's own, unless it is a pack.
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
    library = Path(os.__file__).resolve().parent
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts) or Path(path).resolve().is_relative_to(library)


def installed_class(cls: type) -> bool:
    if not cls.__flags__ & HEAP_TYPE:
        return True
    module = sys.modules.get(cls.__module__)
    if module is None or not installed(cls.__module__):
        return False
    return cls.__module__ != "builtins"  # what has no name of a module says that


@functools.cache
def version_of(module: str) -> str:
    """The version of the distribution that a module is from; of the core, packs and Python, which look after it, none."""
    top = module.partition(".")[0]
    if top in _cared_for() or top in sys.stdlib_module_names:
        return ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
        return importlib.metadata.version(top)
    found = getattr(sys.modules.get(top), "__version__", "")  # the distribution is called otherwise: looking it up takes long
    return found if isinstance(found, str) else ""


def own_files(imported: Iterable[str], names: Iterable[str], package: str) -> list[Path]:
    """The user's own files behind what is imported when code runs, and behind what these import; without importing any.

    `imported`: modules as the code spells them; `names`: what may be taken from them, and may be a module too.
    """
    found: dict[Path, None] = {}
    todo = [(name, package) for name in _spelled(imported, names)]
    seen = set(todo)
    while todo:
        name, package = todo.pop()
        for path, inside in _files_of(name, package):
            if path in found:
                continue
            found[path] = None
            with contextlib.suppress(SyntaxError, ValueError):
                more = {(n, inside) for n in _imports_of(ast.parse(path.read_bytes()))} - seen
                seen |= more
                todo += sorted(more)
    return sorted(found)


def _spelled(imported: Iterable[str], names: Iterable[str]) -> set[str]:
    """The modules, and what may be modules in them."""
    return {f"{module}.{name}".strip(".") for module in imported for name in ("", *names)}


def _imports_of(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= _spelled({node.module or ""}, {alias.name for alias in node.names})
    return found - {""}


def _files_of(name: str, package: str) -> Iterator[tuple[Path, str]]:
    """The file of a module, by its name or from a package around the code; with the package that it is in."""
    parents = package.split(".") if package else []
    for above in ("", *(".".join(parents[:n]) for n in range(len(parents), 0, -1))):
        full = f"{above}.{name}" if above else name
        path = _path_of(full)
        if path is not None:
            yield path, full if path.name == "__init__.py" else full.rpartition(".")[0]


def _path_of(name: str) -> Path | None:
    """The file of a module that is the user's own, found without importing anything."""
    top, *below = name.split(".")
    if top in sys.stdlib_module_names or top in _cared_for():
        return None
    try:
        spec = importlib.util.find_spec(top)
        for number in range(len(below)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            full = ".".join([top, *below[:number + 1]])
            spec = importlib.machinery.PathFinder.find_spec(full, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):  # `__main__` has no spec
        return None
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") and not _is_installed_path(origin) else None
