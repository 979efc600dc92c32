"""`--set key=value`: a value put into a recipe before it is checked.

A key is a path: `max_failed`, `read.path` (the name of a single source may be left out), `steps.language.keep` or
`steps[1].keep`, `steps.language.with.batch_size`, `write.path`, `branches.low.write.path`.
"""

from __future__ import annotations

import re

from curator.io.yaml import Item, Problems, from_text
from curator.registry.names import suggestion, unknown

LINE_KEYS = ("read", "steps", "write")


def override(root: Item, key: str, text: str, keys: tuple[str, ...], problems: Problems) -> None:
    """Set a value in the tree of a recipe whose top-level keys are `keys`; a path that leads nowhere is noted."""
    new = from_text(text, f"--set {key}")
    path = re.sub(r"\[(\d+)\]", r".\1", key.strip())
    head, _, rest = path.partition(".")
    try:
        if head == "branches" and rest:
            branches = _child(root, "branches")
            if not branches.is_map:
                raise LookupError("branches is not a mapping from labels to branches")
            name, inner = _longest(rest, list(branches.value))
            if name is None:
                raise LookupError(unknown("branch", rest.partition(".")[0], branches.value))
            _set_in_line(branches.value[name], f"branches.{name}", inner, new)
        elif head in keys:
            _set_in_line(root, "", path, new)
        elif _longest(path, [n for e in _list(root, "steps") for n in _names(e)])[0]:
            raise LookupError(f"there is no key {head!r}; did you mean steps.{key}?")
        else:
            raise LookupError(unknown("key", head, keys))
    except LookupError as error:
        problems.add(new, "", error.args[0])


def _set_in_line(line: Item, where: str, path: str, new: Item) -> None:
    """Set what belongs to the main line or to a branch."""
    head, _, rest = path.partition(".")
    if not head or not line.is_map:
        raise LookupError(f"{where} is not a value; set something in it: {', '.join(LINE_KEYS)}")
    if not rest:
        line.value[head] = new
    elif head in LINE_KEYS:
        entry, inner = _choose(_list(line, head), rest, head)
        _set_in_entry(entry, f"{head}.{rest}", inner, new)
    else:
        _set_deep(_child(line, head), rest, new)


def _choose(entries: list[Item], path: str, key: str) -> tuple[Item, str]:
    """The step, source or sink that a path begins with, and the rest of the path."""
    head, _, rest = path.partition(".")
    if head.isdigit():
        if int(head) >= len(entries):
            raise LookupError(f"there is no {key}[{head}]; there are {len(entries)}, counted from 0")
        return entries[int(head)], rest
    names = _numbered(entries)
    name, inner = _longest(path, [n for those in names for n in those])
    found = [i for i, those in enumerate(names) if name in those]
    if len(found) == 1:
        return entries[found[0]], inner
    if found:
        raise LookupError(f"{len(found)} are named {name!r}; say which: " + " or ".join(f"{key}[{i}]" for i in found))
    if key != "steps" and len(entries) == 1:
        return entries[0], path
    written = [those[0] for those in names if those]
    hint = suggestion(head, written, f"there are {', '.join(written)}" if written else "there is none")
    raise LookupError(f"nothing under {key} is named {head!r}; {hint}")


def _set_in_entry(entry: Item, path: str, inner: str, new: Item) -> None:
    """Set a parameter of a step, source or sink, what stands under `with`, or all parameters."""
    if not entry.is_map:
        if not entry.text:
            raise LookupError(f"{path} leads to something that has no name")
        entry.value, entry.text = {entry.text: entry.beside(None)}, ""
    name = next((key for key in entry.value if key != "with"), "with")
    head, _, rest = inner.partition(".")
    if head == "with" and rest:
        _set_deep(_child(entry, "with"), rest, new)
    elif not inner or head == "with":
        entry.value[head or name] = new
    else:
        _set_deep(entry.value[name], inner, new)


def _set_deep(item: Item, path: str, new: Item) -> None:
    head, _, rest = path.partition(".")
    if item.value is None:
        item.value = {}
    if item.is_list:
        if not head.isdigit() or int(head) >= len(item.value):
            raise LookupError(f"{head!r} is not a place in a list of {len(item.value)}, counted from 0")
        if rest:
            _set_deep(item.value[int(head)], rest, new)
        else:
            item.value[int(head)] = new
    elif not item.is_map:
        raise LookupError(f"there is a plain value before {path!r}; leave that part of the key out, to set it whole")
    elif not rest or path in item.value:
        item.value[path] = new
    else:
        _set_deep(_child(item, head), rest, new)


def _child(parent: Item, key: str) -> Item:
    """The child of this key, an empty mapping if there is none."""
    child = parent.value.setdefault(key, parent.beside({}))
    if child.value is None:
        child.value = {}
    return child


def _list(line: Item, key: str) -> list[Item]:
    item = line.value.get(key)
    if item is None or item.value is None:
        return []
    return item.value if item.is_list else [item]


def _names(entry: Item) -> list[str]:
    """What a path may call a step: as it is written, without its pack, by the name it is given."""
    if not entry.is_map:
        return [entry.text, entry.text.partition(".")[2] or entry.text] if entry.text else []
    names = [key for key in entry.value if key != "with"][:1]
    given = entry.value["with"].value.get("name") if "with" in entry.value and entry.value["with"].is_map else None
    return [*names, *(n.partition(".")[2] for n in names if "." in n), *([given.text] if given else [])]


def _numbered(entries: list[Item]) -> list[list[str]]:
    """The names of each entry, and for the second `drop` also `drop-2`, as the funnel shows it."""
    seen: dict[str, int] = {}
    numbered = []
    for names in map(_names, entries):
        for name in names:
            seen[name] = seen.get(name, 0) + 1
        numbered.append([*names, *(f"{name}-{seen[name]}" for name in names if seen[name] > 1)])
    return numbered


def _longest(path: str, names: list[str]) -> tuple[str | None, str]:
    """The longest of the names that a path begins with, and the rest of the path."""
    fitting = [n for n in names if n and (path == n or path.startswith(n + "."))]
    best = max(fitting, key=len, default=None)
    return best, path[len(best) + 1:] if best else path
