"""Records to look at: a few of those that were written and of each reason for a loss, from the files of a
run."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.format import short_path, shorten
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.folder import Folder, open_input
from curator.io.tables.parquet import BUFFER_BYTES

EXAMPLES_MAX = 6  # of one reason
GROUPS_MAX = 24  # reasons that have examples
FILES_MAX = 4  # that are read for a stage and port
ROWS_MAX = 200  # that are looked at in a file,
AT_ONCE = 16  # of Parquet
FILE_BYTES = 8 << 20  # or so many bytes of them: a text may be a book
PICTURE_BYTES = 48 << 10
PICTURES_BYTES = 3 << 20  # of all pictures: the report is to open fast, and to be sent around
SOUND_BYTES = 512 << 10
FILM_BYTES = 1 << 20
PLAYED_BYTES = 8 << 20  # of all sounds and films
EXCERPT = 280  # characters
SHORT = 24  # characters: a text below is a label, and tells less than where the record comes from
ABOUT = ("reason", "error", "duplicate_of", "similarity")
_NOT_CONTENT = frozenset({"id", "source", "key", "traceback", "parent", *ABOUT})
# By how a file begins.
_PICTURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif",
             b"RIFF": "image/webp"}
_SOUNDS = {b"fLaC": "audio/flac", b"RIFF": "audio/wav", b"OggS": "audio/ogg", b"ID3": "audio/mpeg",
           b"\xff\xfb": "audio/mpeg",
           b"\xff\xf3": "audio/mpeg"}
_FILMS = {b"\x1aE\xdf\xa3": "video/webm",
          **{bytes([0, 0, 0, size]) + b"ftyp": "video/mp4" for size in range(16, 64, 4)}}
_PLAYED = {"audio": (_SOUNDS, SOUND_BYTES), "video": (_FILMS, FILM_BYTES)}


@dataclass
class Group:
    """Examples of one reason. `port`: written, dropped, duplicate or failed. Each: id, source, excerpt,
    about; audio and video, to be played; picture, and more, a second one, which stands for what is not yet
    played."""

    port: str
    stage: str
    reason: str
    examples: list[dict[str, str]] = field(default_factory=list)


def find_examples(stats: Mapping[str, Any], out: Folder) -> list[Group]:
    """Groups of examples, the written ones first, then by ending in pipeline order, from the first rows of a
    few files.

    Files that cannot be read any more give none.
    """
    groups: dict[tuple[str, str, str], Group] = {}
    left, unplayed, shown = PICTURES_BYTES, PLAYED_BYTES, stats.get("example_columns", {})
    played = [kind for kind in _PLAYED if kind in shown.values()]
    archives = {file["path"] for file in stats["files"] if played and file["path"].endswith(".tar")}
    for (port, stage), paths in _files(stats):
        for row in (row for path in paths[:FILES_MAX] for row in _rows(out, path, shown, archives)):
            reason = str(row.get("reason") or row.get("error") or "")
            if len(groups) == GROUPS_MAX and (port, stage, reason) not in groups:
                continue
            group = groups.setdefault((port, stage, reason), Group(port, stage, shorten(reason, 100)))
            if len(group.examples) < EXAMPLES_MAX:
                players = {}
                for kind, (types, most) in _PLAYED.items():
                    players[kind] = _shown(row, shown, kind, types, min(most, unplayed))[0]
                    unplayed -= len(players[kind])
                pictures = _shown(row, shown, "image", _PICTURES, min(PICTURE_BYTES, left // 2))
                left -= sum(map(len, pictures))
                group.examples.append(_example(row, pictures[0],
                                               shown) | players | {"more": "".join(pictures[1:2])})
    return list(groups.values())


def _files(stats: Mapping[str, Any]) -> list[tuple[tuple[str, str], list[str]]]:
    """The files that can be read here, of each port and stage: the written first, then by ending in pipeline
    order."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in stats["files"]:
        if (file["path"].endswith(".parquet")
            or ".jsonl" in file["path"]) and file["port"] in ("written", *SIDE_OUTPUTS):
            found.setdefault((file["port"], file["stage"]), []).append(file["path"])
    order = {stage["name"]: at for at, stage in enumerate(stats["stages"])}
    return sorted(found.items(), key=lambda item: (("written", *SIDE_OUTPUTS).index(item[0][0]),
                                                   order.get(item[0][1], len(order))))


def _rows(out: Folder, path: str, shown: Collection[str],
          archives: Collection[str]) -> Iterator[dict[str, Any]]:
    """The first rows of a file, one at a time, of Parquet without large columns. With the media of the first
    ones, where they lie in an archive beside it."""
    uri = path if "://" in path or path.startswith("/") else out.path_of(path)
    archive = path.removesuffix(".parquet") + ".tar"
    try:
        media = _media(uri.removesuffix(".parquet") + ".tar", out) if archive in archives else {}
        with open_input(uri, out.storage_options) as file:
            left = FILE_BYTES
            for row, nbytes in islice(_parquet(file, shown) if path.endswith(".parquet") else _lines(file),
                                      ROWS_MAX):
                if row.get("key") in media:
                    row["bytes"] = media[row["key"]]
                yield row
                del row
                left -= nbytes
                if left <= 0:
                    return
    except (InputError, OSError, ValueError, pa.ArrowException, tarfile.TarError):
        return


def _media(archive: str, out: Folder) -> dict[str, bytes]:
    """The first member of each of the first samples of an archive, if it is not too large to be shown, by the
    name before the dot."""
    found: dict[str, bytes] = {}
    with open_input(archive, out.storage_options) as file, tarfile.open(fileobj=file, mode="r|") as members:
        for member in members:
            key = member.name.partition(".")[0]
            if key not in found:
                if len(found) == EXAMPLES_MAX:
                    break
                content = members.extractfile(member) if member.size <= FILM_BYTES else None
                found[key] = content.read() if content is not None else b""
    return found


def _lines(file: BinaryIO) -> Iterator[tuple[dict[str, Any], int]]:
    return ((json.loads(line), len(line)) for line in file)


def _parquet(file: BinaryIO, shown: Collection[str]) -> Iterator[tuple[dict[str, Any], int]]:
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    texts = (pa.string(), pa.large_string())
    names = [f.name for f in opened.schema_arrow
             if (f.name in shown and not _is_large(opened.metadata, f.name)) or f.type in texts
             or f.name in ABOUT]
    for batch in opened.iter_batches(AT_ONCE, columns=names, use_threads=False):
        for at in range(len(batch)):
            row = batch.slice(at, 1)
            yield row.to_pylist()[0], row.nbytes


def _is_large(file: Any, column: str) -> bool:
    """Whether a column has far more than would be shown, in the first rows of a Parquet file."""
    if not file.num_row_groups:
        return False
    group = file.row_group(0)
    sizes = [group.column(at).total_uncompressed_size for at in range(group.num_columns)
             if group.column(at).path_in_schema == column]
    return sum(sizes) > 4 * FILM_BYTES * max(1, group.num_rows)


def _example(row: dict[str, Any], picture: str, shown: Mapping[str, str]) -> dict[str, str]:
    declared = [row[c] for c, kind in shown.items() if kind == "text" and isinstance(row.get(c), str)]
    numbers = {c: row[c] for c, kind in shown.items() if kind == "number"
               and isinstance(row.get(c), (int, float))}
    # no hash
    texts = [v for k, v in row.items() if isinstance(v, str) and k not in _NOT_CONTENT
             and (" " in v or not v.isascii())]
    about = [f"of {row['duplicate_of']}"] if row.get("duplicate_of") else []
    about += [f"{row['similarity']:.2f} alike"] if isinstance(row.get("similarity"), float) else []
    about += [f"{name} {value:.4g}" for name, value in numbers.items()]
    source = str(row.get("source") or "")
    content = max(texts, key=len, default="")
    if declared:
        excerpt = shorten(declared[0], EXCERPT)
    else:
        excerpt = short_path(source, SHORT) if picture or len(content) < SHORT else shorten(content, EXCERPT)
    return {"id": str(row.get("id") or ""), "source": source, "picture": picture, "about": ", ".join(about),
            "excerpt": excerpt}


def _shown(row: Mapping[str, Any], shown: Mapping[str, str], kind: str, types: Mapping[bytes, str],
           most: int) -> list[str]:
    """The columns of a kind as data URIs, of what a browser shows and there is room for; one "" where there
    is none."""
    found = []
    for column in (column for column, as_kind in shown.items() if as_kind == kind):
        data = row.get(column)
        media = next((media for start, media in types.items() if data.startswith(start)),
                     None) if isinstance(data, bytes) else None
        if media is not None and len(data) <= most:
            found.append(f"data:{media};base64,{base64.b64encode(data).decode()}")
    return found or [""]
