"""Lists of addresses read from files, folders and archives, such as those of the UT1 blacklists."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from curator.api.errors import InputError
from curator.io.files.compression import without_codec
from curator.io.files.folder import FileInfo, list_files, open_input

READ_BYTES = 8 << 20
_ENTRIES = ("domains", "urls")  # files of UT1 with one entry a line; the others there are patterns and notes
_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz")


def find_lists(paths: str | Sequence[str]) -> list[FileInfo]:
    """The files that the paths name.

    Raises:
        InputError: a path names no file.
    """
    return list_files(paths if isinstance(paths, str) else list(paths))


def read_lists(files: Sequence[FileInfo], categories: Sequence[str] | None) -> Iterator[tuple[str, pa.Array]]:
    """The entries of each list by its name, some at a time: blank lines and comments (`#`) left out.

    A file called `domains` or `urls` belongs to the list that its folder is called; any other file is a list
    of its own, called like the file without its ending. In an archive only `domains` and `urls` count; at its
    top they belong to a list that is called like the archive. `categories`: the lists that are wanted.

    Raises:
        InputError: a file or archive that cannot be read; none of the lists is of a wanted category.
    """
    found: set[str] = set()
    for file in files:
        for name, stream in _streams(file):
            found.add(name)
            if categories is None or name in categories:
                yield from ((name, entries) for entries in _entries(stream, file.uri))
    missing = sorted(set(categories or ()) - found)
    if missing:
        there = ", ".join(sorted(found)[:20])
        raise InputError(f"no list is called {missing[0]!r}; those that were read are called {there}")


def _streams(file: FileInfo) -> Iterator[tuple[str, IO[bytes]]]:
    if not file.name.lower().endswith(_ARCHIVES):
        with open_input(file.uri) as stream:
            yield _named(file.uri), stream
        return
    compression = "gzip" if file.name.lower().endswith(".tgz") else "infer"
    stem = file.name.lower().removesuffix(".tgz")
    try:
        with (open_input(file.uri, compression=compression) as stream,
              tarfile.open(fileobj=stream, mode="r|") as archive):
            for member in archive:
                name = member.name.rpartition("/")[2]
                content = archive.extractfile(member) if member.isfile() and name in _ENTRIES else None
                if content is not None:
                    above = "/" in member.name.removeprefix("./")
                    yield (_named(member.name) if above else _stem(stem)), content
    except tarfile.TarError as error:
        raise InputError(f"{file.uri} is no archive that can be read: {error}; fetch it again") from error


def _named(uri: str) -> str:
    folder, _, name = uri.rpartition("/")
    stem = _stem(name)
    return folder.rpartition("/")[2] if stem in _ENTRIES and folder.strip("./") else stem


def _stem(name: str) -> str:
    return without_codec(name).removesuffix(".tar").removesuffix(".txt").removesuffix(".csv")


def _entries(stream: IO[bytes], uri: str) -> Iterator[pa.Array]:
    rest = b""
    while True:
        piece = stream.read(READ_BYTES)
        whole, newline, rest_now = (rest + piece).rpartition(b"\n") if piece else (rest, b"", b"")
        text = (whole + newline).decode("utf-8", "replace").removeprefix("\ufeff")
        lines = pa.array(text.splitlines(), pa.large_string())
        lines = pc.utf8_trim_whitespace(lines)
        wanted = pc.and_(pc.greater(pc.binary_length(lines), 0), pc.invert(pc.starts_with(lines, "#")))
        yield lines.filter(wanted)
        if not piece:
            return
        rest = rest_now
        if len(rest) > READ_BYTES:
            raise InputError(f"{uri} has a line of over {READ_BYTES:,} bytes: it is no list of addresses")


def read_words(paths: str | Sequence[str] | None) -> list[str]:
    """The lines of some files, without blank ones and comments, each once.

    Raises:
        InputError: a path names no file, or one that is no text.
    """
    words: dict[str, None] = {}
    for file in find_lists(paths) if paths else ():
        with open_input(file.uri) as stream:
            try:
                text = io.TextIOWrapper(stream, "utf-8-sig").read()
            except UnicodeDecodeError as error:
                raise InputError(f"{file.uri} is no list of words in UTF-8: {error}; save it so") from None
        words |= dict.fromkeys(line.strip() for line in text.splitlines()
                               if line.strip() and not line.startswith("#"))
    return list(words)
