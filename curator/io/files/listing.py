"""From a path, a folder or a glob to the files it names.

Not by fsspec's `glob`: that looks into folders that cannot match, and takes hidden files and the by-products
of a run.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from curator.api.errors import InputError
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.compression import without_codec
from curator.io.files.faults import BUCKETS, no_bucket, path_text, unseen
from curator.io.files.local import FileInfo, LocalFiles
from curator.io.files.remote import RemoteFiles

# In the folder of a run:
DATA = "data"  # what was written
CLUSTERS = "clusters"  # what its reductions found out
CARD = "README.md"  # what it says of itself
RUN = "_run"  # what the run knows of itself, so a folder that has it is one of a run
BESIDE = (*SIDE_OUTPUTS, CLUSTERS, CARD)  # what is no data

Files = LocalFiles | RemoteFiles


SUFFIXES_SHOWN = 6
HIDDEN = "._"  # names that begin with one of these do not count


def expand(files: Files, path: str, given: str, suffixes: tuple[str, ...],
           hidden: str = HIDDEN, passed: list[FileInfo] | None = None) -> list[FileInfo]:
    """The files that `path` names; `given` is how the user wrote it. `passed`: is given those in a folder
    that end in none of `suffixes`.

    A name that exists is taken as it stands, even if it looks like a glob. A glob names files, whatever their
    ending; one that ends in `**` names a folder and all below it, of which files with these `suffixes` count.

    Raises:
        InputError: it names no file.
    """
    entry = files.info(path)
    if entry is not None:
        return [entry] if not entry.is_folder else _in_folder(files, path, given, suffixes, hidden, passed)
    if not is_glob(given):
        raise InputError(f"{given} does not exist{_nearby(files, path)}{unseen(given)}")
    base, pattern = _split(path)
    found: list[FileInfo] = []
    for match in _matches(files, base, pattern, hidden):
        found += [match] if not match.is_folder else _visible(files.walk(match.uri), match.uri, suffixes,
                                                              hidden)
    if pattern[-1] == "**" and suffixes:
        found = [file for file in found if file.name.lower().endswith(suffixes)]
    if not found:
        of_kind = f" that ends in {_some(suffixes)}" if pattern[-1] == "**" and suffixes else ""
        raise InputError(f"{given} matches no file{of_kind}{_nearby(files, path)}")
    return found


def is_glob(path: str) -> bool:
    """Whether a path has wildcards. In a web address `?` begins a query."""
    return bool(re.search(r"[*\[]" if path.startswith(("http://", "https://")) else r"[*?\[]", path))


def _in_folder(files: Files, path: str, given: str, suffixes: tuple[str, ...],
               hidden: str, passed: list[FileInfo] | None) -> list[FileInfo]:
    everything = _visible(files.walk(path), path, (), hidden)
    found = [e for e in everything if not suffixes or e.name.lower().endswith(suffixes)]
    if passed is not None and len(found) < len(everything):
        passed += [e for e in everything if not e.name.lower().endswith(suffixes)]
    if found:
        return found
    if not everything:
        raise InputError(f"the folder {given} has no files (names that begin with {' or '.join(hidden)} do "
                         "not count)")
    kinds = Counter(sorted(ending(e.name) or "no ending" for e in everything))
    there = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4))
    raise InputError(f"the folder {given} has no {_some(suffixes)} file: there are {there}. "
                     "Take the reader of that format, or a glob if this one is to read them")


def _some(suffixes: tuple[str, ...]) -> str:
    more = len(suffixes) - SUFFIXES_SHOWN
    return " or ".join(suffixes[:SUFFIXES_SHOWN]) + (f" (or of {more} more endings)" if more > 0 else "")


def ending(name: str) -> str:
    """`.jsonl.gz` for `a.b.jsonl.gz`, "" where there is none."""
    name = name.rpartition("/")[2]
    bare = without_codec(name)
    return os.path.splitext(bare)[1] + name[len(bare):]


def _visible(entries: Iterable[FileInfo], folder: str, suffixes: tuple[str, ...],
             hidden: str) -> list[FileInfo]:
    """Those that count below a folder. Where a run wrote (`_run/`), what it keeps beside the data does
    not."""
    begin = _begin(folder)
    named = [(e.uri[begin:], e) for e in entries]
    outputs = {name[:at] for name, _ in named if (at := ("/" + name).find(f"/{RUN}/")) >= 0}
    aside = {f"{output}{name}" for output in outputs for name in (*BESIDE, RUN)}
    aside_folders = tuple(f"{name}/" for name in aside)
    return [e for name, e in named if not any(part[0] in hidden for part in name.split("/") if part)
            and name not in aside and not name.startswith(aside_folders)
            and (not suffixes or name.lower().endswith(suffixes))]


def _begin(folder: str) -> int:
    """Where in the URIs below a folder the relative names begin."""
    return len(path_text(folder)) + (not folder.endswith("/"))


# -- globs --------------------------------------------------------------------------------------------------


def _split(path: str) -> tuple[str, list[str]]:
    """The folder before the first wildcard, and the components from there."""
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if is_glob(part))
    base = "/".join(parts[:first])
    return base + "/" if not base or base.endswith(":/") else base, parts[first:]


def _matches(files: Files, base: str, pattern: list[str], hidden: str) -> Iterator[FileInfo]:
    """Files and folders below `base` that fit the components, descending only where they can fit."""
    if "**" in pattern:
        begin = _begin(base)
        yield from (e for e in _visible(files.walk(base), base, (), hidden)
                    if fits(e.uri[begin:].split("/"), pattern, hidden))
        return
    first, *rest = pattern
    there = files.ls(base)
    aside = BESIDE if is_glob(first) and any(e.name == RUN for e in there) else ()
    for entry in there:
        if fits([entry.name], [first], hidden) and entry.name not in aside:
            if not rest:
                yield entry
            elif entry.is_folder:
                yield from _matches(files, entry.uri, rest, hidden)


def fits(names: list[str], pattern: list[str], hidden: str = "") -> bool:
    """Whether names fit components one by one. `**` stands for any number of folders; no wildcard for a
    leading character of `hidden`."""
    if not names or not pattern:
        return names == pattern
    first, *rest = pattern
    if first == "**":
        return not rest or any(fits(names[at:], rest, hidden) for at in range(len(names)))
    passed_over = names[0].startswith(tuple(hidden)) and is_glob(first[:1])
    return not passed_over and fnmatchcase(names[0], first) and fits(names[1:], rest, hidden)


# -- help for a path that is not there -----------------------------------------------------------------------


def _nearby(files: Files, path: str) -> str:
    """What there is instead: the nearest folder that exists, and names in it, the most similar ones first."""
    parts = path.rstrip("/").split("/")
    # above the repository nothing is listed
    top = 4 if path.startswith("hf://") else 2 if "://" in path else 0
    for depth in range(len(parts) - 1, top, -1):
        folder, wanted = "/".join(parts[:depth]) or "/", parts[depth]
        if is_glob(folder) or not (there := files.ls(folder)):
            continue
        names = sorted(e.name + ("/" if e.is_folder else "") for e in there)
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
        shown = ", ".join((near + [n for n in names if n not in near])[:5])
        return f". The nearest folder that exists is {folder} with {len(names)} names: {shown}" \
               + (", …" if len(names) > 5 else "")
    in_bucket = path.partition("://")[0] in BUCKETS
    return f": {no_bucket(path)}" if in_bucket and files.info("/".join(parts[:3])) is None else ""
