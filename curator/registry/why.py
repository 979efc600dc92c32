"""Why a pack cannot be imported, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import re
import traceback
from pathlib import Path

NO_FEATURE = ("dev", "test", "tests", "doc", "docs")  # extras for those who work on a pack


def why(error: BaseException, module: str, distribution: str) -> str:
    """What went wrong when a pack's module was imported, and the remedy."""
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if missing and (module + ".").startswith(missing + "."):
        remedy = f"its entry point names the module {module!r}; reinstall {distribution}, or uninstall it"
    elif missing and missing.partition(".")[0] != module.partition(".")[0]:
        remedy = _get(missing.partition(".")[0], distribution)
    elif isinstance(error, ImportError):
        remedy = f"reinstall it with pip install --force-reinstall {distribution}, or uninstall it"
    else:
        remedy = f"the error is in the pack's own code{_place(error, module)}; tell its author, or uninstall {distribution}"
    return f"{type(error).__name__}: {error}; {remedy}"


def _place(error: BaseException, module: str) -> str:
    """Where in the pack it was raised, not where in a library that the pack calls."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if module.partition(".")[0] in (*Path(f.filename).parts, Path(f.filename).stem)]
    return "".join(f" at {f.filename}:{f.lineno}" for f in (own or frames)[-1:])


def unmet(distribution: str) -> dict[str, list[str]]:
    """The distributions that one requires and that are not installed, by the extra that wants them; "" for no extra.

    Requirements for some systems or versions of Python only are not looked at, nor are extras for those who work on it.
    """
    missing: dict[str, list[str]] = {}
    for requirement in _requirements(distribution):
        found = re.fullmatch(r"([\w.-]+)[^;]*(?:;\s*extra\s*==\s*['\"]([\w.-]+)['\"]\s*)?", requirement)
        if found and found[2] not in NO_FEATURE and not _is_installed(found[1]):
            missing.setdefault(found[2] or "", []).append(found[1])
    return missing


def _get(library: str, distribution: str) -> str:
    """How to get a library that a pack imports and that is not there."""
    lacks = unmet(distribution)
    needs = f"it needs {library!r}, which is not installed"
    if "" in lacks:
        return f"{needs}: pip install {' '.join(lacks[''])}"
    if lacks:
        return f"{needs}: pip install '{distribution}[{','.join(lacks)}]'"
    return f"{needs}: pip install --upgrade {distribution}; if that does not bring it, its author forgot to require it"


def _requirements(distribution: str) -> list[str]:
    try:
        return importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
