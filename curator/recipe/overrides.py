"""`--set key=value`: a value put into a recipe before it is checked.

A key is a path: `max_failed`, `read.path` (the name of a single source may be left out),
`steps.language.keep` or `steps[1].keep`, `steps.language.with.batch_size`, `write.path`,
`branches.low.write.path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from curator.api.names import suggestion, unknown
from curator.io.yaml import Item, Problems, from_text

LINE_KEYS = ("read", "steps", "write")


def override(root: Item, key: str, text: str, keys: tuple[str, ...], problems: Problems) -> None:
    """Set a value in the tree of a recipe whose top-level keys are `keys`; a path that leads nowhere is
    noted."""
    new = from_text(text, f"--set {key}")
    path = re.sub(r"\[(\d+)\]", r".\1", key.strip())
    head, _, rest = path.partition(".")
    try:
        if head == "branches" and rest:
            branches = _child(root, "branches")
            if not branches.is_map:
                raise LookupError("branches is not a mapping from labels to branches")
            name, inner = _longest(rest, branches.value)
            if name is None:
                raise LookupError(unknown("branch", rest.partition(".")[0], branches.value))
            if not inner or not branches.value[name].is_map:
                raise LookupError(f"branches.{name} is not a value; set something in it: "
                                  f"{', '.join(LINE_KEYS)}")
            _set_in_line(branches.value[name], inner, new)
        elif head in keys:
            _set_in_line(root, path, new)
        elif _longest(path, (name for entry in _entries(root, "steps") for name in _names(entry)))[0]:
            raise LookupError(f"there is no key {head!r}; did you mean steps.{key}?")
        else:
            raise LookupError(unknown("key", head, keys))
    except LookupError as error:
        problems.add(new, "", error.args[0])


def _set_in_line(line: Item, path: str, new: Item) -> None:
    """Set what belongs to the main line or to a branch."""
    head, _, rest = path.partition(".")
    if head not in LINE_KEYS or not rest:
        _set(line, path, new)
        return
    entry, inner = _choose(_entries(line, head), rest, head)
    if not entry.is_map:  # a bare name; its parameters come below it
        if not entry.text:
            raise LookupError(f"{path} leads to something that has no name")
        entry.value, entry.text = {entry.text: entry.beside(None)}, ""
    name = next((key for key in entry.value if key != "with"), "with")
    if inner.startswith("steps.") and entry.value[name].is_map and _entries(entry.value[name], "steps"):
        _set_in_line(entry.value[name], inner, new)
        return
    is_extra = inner == "with" or inner.startswith("with.")
    _set(entry, inner if is_extra else f"{name}.{inner}".rstrip("."), new, known=(name, "with"))


def _set(item: Item, path: str, new: Item, known: Iterable[str] = ()) -> None:
    """Set a value deep in a tree. A part of the path that is `known`, or a key already, may have dots in
    it."""
    if item.value is None:
        item.value = {}
    if item.is_list:
        head, _, rest = path.partition(".")
        if not head.isdigit() or int(head) >= len(item.value):
            raise LookupError(f"{head!r} is not a place in a list of {len(item.value)}, counted from 0")
        if rest:
            _set(item.value[int(head)], rest, new)
        else:
            item.value[int(head)] = new
        return
    if not item.is_map:
        raise LookupError(f"there is a plain value before {path!r}; leave that part of the key out, to set "
                          "it whole")
    name, rest = _longest(path, known)
    if name is None:
        name, _, rest = (path, "", "") if path in item.value else path.partition(".")
    if rest:
        _set(_child(item, name), rest, new)
    else:
        item.value[name] = new


def _choose(entries: list[Item], path: str, key: str) -> tuple[Item, str]:
    """The step, source or sink that a path begins with, and the rest of the path."""
    head, _, rest = path.partition(".")
    if head.isdigit():
        if int(head) >= len(entries):
            raise LookupError(f"there is no {key}[{head}]; there are {len(entries)}, counted from 0")
        return entries[int(head)], rest
    names, seen = [], list[str]()
    for entry in entries:  # the second `drop` is also `drop-2`, as the funnel shows it
        own = _names(entry)
        names.append([*own, *(f"{name}-{seen.count(name) + 1}" for name in own if name in seen)])
        seen += own
    name, inner = _longest(path, (name for own in names for name in own))
    found = [at for at, own in enumerate(names) if name in own]
    if len(found) == 1:
        return entries[found[0]], inner
    if found:
        raise LookupError(f"{len(found)} are named {name!r}; say which: "
                          + " or ".join(f"{key}[{at}]" for at in found))
    if key != "steps" and len(entries) == 1:
        return entries[0], path
    written = [_given(entry) or own[0] for entry, own in zip(entries, names, strict=True) if own]
    hint = suggestion(head, written, f"there are {', '.join(written)}" if written else "there is none")
    raise LookupError(f"nothing under {key} is named {head!r}; {hint}")


def _child(parent: Item, key: str) -> Item:
    """The child of this key, an empty mapping if there is none."""
    child = parent.value.setdefault(key, parent.beside({}))
    if child.value is None:
        child.value = {}
    return child


def _entries(line: Item, key: str) -> list[Item]:
    item = line.value.get(key)
    if item is None or item.value is None:
        return []
    return item.value if item.is_list else [item]


def _names(entry: Item) -> list[str]:
    """What a path may call a step: as it is written, without its pack, by the name it is given."""
    written = [key for key in entry.value
               if key != "with"][:1] if entry.is_map else [entry.text] if entry.text else []
    return [*written, *(name.partition(".")[2] for name in written if "." in name),
            *([given] if (given := _given(entry)) else [])]


def _given(entry: Item) -> str:
    """The name that a step is given, if it is."""
    extra = entry.value.get("with") if entry.is_map else None
    given = extra.value.get("name") if extra is not None and extra.is_map else None
    return given.text if given else ""


def _longest(path: str, names: Iterable[str]) -> tuple[str | None, str]:
    """The longest of the names that a path begins with, and the rest of the path."""
    best = max((n for n in names if n and (path == n or path.startswith(n + "."))), key=len, default=None)
    return best, path[len(best) + 1:] if best else path
