"""Millions of entries of lists as sorted hashes, in a file that the workers of a node share."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo
from curator_text.lists.addresses import plain
from curator_text.lists.url_files import read_lists
from curator_text.measures.joined import join
from curator_text.measures.spans import Spans

FORMAT = 1  # raised when hashes or form of the files change
LISTS_MAX = 1 << 16


class Index:
    """Which list an entry is in, by its hash. 10 bytes an entry; of an entry in several lists the first one
    counts. That an address which is in no list shares its hash with an entry is unlikely: 1 in 4 trillion for
    4.6 million entries."""

    def __init__(self, hashes: np.ndarray, of: np.ndarray, names: Sequence[str]) -> None:
        self.hashes, self.of, self.names = hashes, of, list(names)  # uint64, ascending; uint16

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The number of the list for each hash, -1 for none."""
        found = np.full(len(hashes), -1, np.int32)
        if len(self.hashes):
            order = np.argsort(hashes)  # neighbours are looked up one behind the other
            at = np.searchsorted(self.hashes, hashes[order])
            at[at == len(self.hashes)] = 0
            same = self.hashes[at] == hashes[order]
            found[order[same]] = self.of[at[same]]
        return found


def build(files: Sequence[FileInfo], categories: Sequence[str] | None) -> Index:
    """Read the lists. Takes about 40 bytes an entry while it works."""
    numbers: dict[str, int] = {}
    hashes, of = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint16)]
    for name, entries in read_lists(files, categories):
        number = numbers.setdefault(name, len(numbers))
        if number >= LISTS_MAX:
            raise InputError(f"there are more than {LISTS_MAX:,} lists; put entries of one sort into one "
                             "file")
        joined = join(plain(entries).to_pylist())
        some = joined.stops > joined.starts
        hashes.append(Spans(joined.codes).hash(joined.starts[some], joined.stops[some]))
        of.append(np.full(len(hashes[-1]), number, np.uint16))
    together, lists = np.concatenate(hashes), np.concatenate(of)
    order = np.argsort(together, kind="stable")
    together, lists = together[order], lists[order]
    first = np.append(True, together[1:] != together[:-1])[: len(together)]
    return Index(together[first], lists[first], list(numbers))


def shared(files: Sequence[FileInfo], categories: Sequence[str] | None) -> Index:
    """The lists, in files below the user's cache folder that all workers map into memory, made at the first
    call for these versions of them; in this process alone where nothing can be written there."""
    if not files:
        return build(files, categories)
    told = json.dumps([FORMAT, categories, [[f.uri, f.size_bytes, f.version] for f in files]])
    key = hashlib.blake2b(told.encode(), digest_size=12).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "curator" / "url_lists"
    names, of, hashes = (folder / f"{key}.{ending}" for ending in ("json", "lists.npy", "hashes.npy"))
    if not hashes.exists():
        made = build(files, categories)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _put(names, lambda file: file.write(json.dumps(made.names).encode()))
            _put(of, lambda file: np.save(file, made.of))
            _put(hashes, lambda file: np.save(file, made.hashes))  # last: where it is, the others are
        except OSError:
            return made
    return Index(np.load(hashes, mmap_mode="r"), np.load(of, mmap_mode="r"), json.loads(names.read_text()))


def _put(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        write(file)
    os.replace(file.name, path)
