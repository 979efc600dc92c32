"""Records to look at: a few of those that were written and of each reason for a loss, from the files of a
run."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.format import number, short_path, shorten
from curator.io.files.folder import Folder, open_input
from curator.io.media.types import HEAD_BYTES, media_type
from curator.io.tables.parquet import BUFFER_BYTES
from curator.observe.report.near import Near
from curator.observe.report.sample import files_by_end, spread
from curator.sql.thresholds import thresholds

EXAMPLES_MAX = 6  # of one reason
GROUPS_MAX = 24  # reasons that have examples
FILES_MAX = 4  # that are read for a stage and port, from all over them,
ROWS_MAX = 200  # rows that are looked at in a file,
PLACES_MAX = 4  # from so many places in it,
AT_ONCE = 16  # of Parquet,
LIGHT_BYTES = 1 << 20  # and together as Python's objects while they are no more than this
SURVIVORS_FILES = 32  # in which the records are looked for that copies are copies of
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
_PLAYED = {"audio": SOUND_BYTES, "video": FILM_BYTES}


@dataclass
class Group:
    """Examples of one reason. `port`: written, dropped, duplicate, failed or near: written, and nearly
    dropped. Each: id, source, excerpt, about; audio and video, to be played; picture, and more, a second one,
    which stands for what is not yet played; of a copy also `stays`, an excerpt of the record that stays.
    `condition`: the rule's."""

    port: str
    stage: str
    reason: str
    condition: str = ""
    examples: list[dict[str, str]] = field(default_factory=list)


def find_examples(stats: Mapping[str, Any], out: Folder) -> list[Group]:
    """Groups of examples from all over the run: the written ones first, then by ending in pipeline order;
    after the dropped ones of a rule those that it nearly dropped.

    Files that cannot be read any more give none.
    """
    groups: dict[tuple[str, str, str], Group] = {}
    conditions = {(stage["name"], reason): text for stage in stats["stages"]
                  for reason, text in stage.get("conditions", {}).items()}
    looked = Near(stats)
    shown = stats.get("example_columns", {})
    media = _Media(shown)
    played = [kind for kind in _PLAYED if kind in shown.values()]
    archives = {file["path"] for file in stats["files"] if played and file["path"].endswith(".tar")}
    wanted = {*shown, *looked.columns}
    for (port, stage), paths in files_by_end(stats):
        chosen = spread(paths, FILES_MAX)
        for row in (row for path in chosen for row in _rows(out, path, wanted, archives, len(chosen))):
            reason = str(row.get("reason") or row.get("error") or "")
            if port == "written":
                looked.look(row)
            if len(groups) == GROUPS_MAX and (port, stage, reason) not in groups:
                continue
            condition = conditions.get((stage, reason), "")
            group = groups.setdefault((port, stage, reason),
                                      Group(port, stage, shorten(reason, 100), condition))
            if len(group.examples) < EXAMPLES_MAX:
                group.examples.append(_example(row, shown, condition) | media.of(row))
    _name_survivors(stats, out, [one for group in groups.values() for one in group.examples if one["stays"]])
    found = []
    for (_, stage, reason), group in groups.items():
        near = looked.near.get((stage, reason), ())
        found.append(group)
        if group.port == "dropped" and near:
            examples = [_example(row, shown, group.condition) | media.of(row) for _, _, row in near]
            found.append(Group("near", stage, reason, group.condition, examples))
    return found


class _Media:
    """What is seen and heard of records, as long as there is room for it in the report."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        self.shown, self.pictures_left, self.played_left = shown, PICTURES_BYTES, PLAYED_BYTES

    def of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """`picture`, `more`, `audio`, `video` of an example, "" where there is none."""
        found = {}
        for kind, most in _PLAYED.items():
            found[kind] = _shown(row, self.shown, kind, min(most, self.played_left))[0]
            self.played_left -= len(found[kind])
        pictures = _shown(row, self.shown, "image", min(PICTURE_BYTES, self.pictures_left // 2))
        self.pictures_left -= sum(map(len, pictures))
        return found | {"picture": pictures[0], "more": "".join(pictures[1:2])}


def _name_survivors(stats: Mapping[str, Any], out: Folder, copies: list[dict[str, str]]) -> None:
    """Puts an excerpt of the record that stays in place of its id, where it is found."""
    wanted = {one["stays"] for one in copies}
    paths = [path for (port, _), paths in files_by_end(stats) if port == "written" for path in paths]
    found: dict[str, str] = {}
    for path in spread([p for p in paths if p.endswith(".parquet")], SURVIVORS_FILES) if wanted else ():
        found |= _excerpts(out, path, wanted - set(found), stats.get("example_columns", {}))
        if len(found) == len(wanted):
            break
    for one in copies:
        one["stays"] = found.get(one["stays"], "")


def _excerpts(out: Folder, path: str, ids: Collection[str], shown: Mapping[str, str]) -> dict[str, str]:
    """Excerpts of the records of a file that have these ids, by id. Their texts are read for these only."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, str] = {}
    try:
        with open_input(out.full_path(path), out.storage_options) as file:
            opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
            for group in range(opened.num_row_groups if "id" in opened.schema_arrow.names else 0):
                held = opened.read_row_group(group, ["id"], use_threads=False).column("id")
                at = pc.indices_nonzero(pc.is_in(held, pa.array(sorted(ids), held.type)))
                if len(at):
                    names = _texts(opened, shown)
                    for row in opened.read_row_group(group, names, use_threads=False).take(at).to_pylist():
                        found[str(row["id"])] = _example(row, shown)["excerpt"]
    except (InputError, OSError, ValueError, pa.ArrowException):
        return found
    return found


def _rows(out: Folder, path: str, shown: Collection[str], archives: Collection[str],
          files: int = 1) -> Iterator[dict[str, Any]]:
    """Rows from all over a file, one at a time, of Parquet without large columns; of JSON and archives the
    first ones. With the media of the first ones, where they lie in an archive beside it. The fewer the files,
    the more of each."""
    uri = out.full_path(path)
    archive = path.removesuffix(".parquet") + ".tar"
    most = ROWS_MAX * FILES_MAX // max(1, files)
    try:
        media = _media(uri.removesuffix(".parquet") + ".tar", out) if archive in archives else {}
        with open_input(uri, out.storage_options) as file:
            left = FILE_BYTES * FILES_MAX // max(1, files)
            places = 1 if archive in archives else PLACES_MAX
            rows = _parquet(file, shown, places) if path.endswith(".parquet") else _lines(file)
            for row, nbytes in islice(rows, most):
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


def _parquet(file: BinaryIO, shown: Collection[str], places: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows in turn from the beginnings of several row groups."""
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    names = _texts(opened, shown)
    begun = [_group(opened, group, names) for group in spread(range(opened.num_row_groups), places)]
    while begun:
        for rows in list(begun):
            if (row := next(rows, None)) is None:
                begun.remove(rows)
            else:
                yield row


def _group(opened: Any, group: int, names: list[str]) -> Iterator[tuple[dict[str, Any], int]]:
    for batch in opened.iter_batches(AT_ONCE, row_groups=[group], columns=names, use_threads=False):
        parts = [batch] if batch.nbytes <= LIGHT_BYTES else (batch.slice(n, 1) for n in range(len(batch)))
        for part in parts:
            each = part.nbytes // len(part)
            yield from ((row, each) for row in part.to_pylist())


def _texts(opened: Any, shown: Iterable[str]) -> list[str]:
    """The columns of a Parquet file that examples are made of."""
    texts = (pa.string(), pa.large_string())
    return [f.name for f in opened.schema_arrow
            if (f.name in shown and not _is_large(opened.metadata, f.name)) or f.type in texts
            or f.name in ABOUT]


def _is_large(file: Any, column: str) -> bool:
    """Whether a column has far more than would be shown, in the first rows of a Parquet file."""
    if not file.num_row_groups:
        return False
    group = file.row_group(0)
    sizes = [group.column(at).total_uncompressed_size for at in range(group.num_columns)
             if group.column(at).path_in_schema == column]
    return sum(sizes) > 4 * FILM_BYTES * max(1, group.num_rows)


def _example(row: dict[str, Any], shown: Mapping[str, str], condition: str = "") -> dict[str, str]:
    declared = [row[c] for c, kind in shown.items() if kind == "text" and isinstance(row.get(c), str)]
    asked = [c for one in (thresholds(condition) if condition else ()) if (c := one.column)]
    asked += [c for c, kind in shown.items() if kind == "number"]
    numbers = {c: row[c] for c in asked if isinstance(row.get(c), (int, float))}
    # no hash
    texts = [v for k, v in row.items() if isinstance(v, str) and k not in _NOT_CONTENT
             and (" " in v or not v.isascii())]
    about = [f"of {row['duplicate_of']}"] if row.get("duplicate_of") else []
    about += [f"{row['similarity']:.2f} alike"] if isinstance(row.get("similarity"), float) else []
    about += [f"{name} {number(value)}" for name, value in numbers.items()]
    source = str(row.get("source") or "")
    content = max(texts, key=len, default="")
    if declared:
        excerpt = shorten(declared[0], EXCERPT)
    else:
        seen = any(isinstance(row.get(c), bytes) for c, kind in shown.items() if kind == "image")
        excerpt = short_path(source, SHORT) if seen or len(content) < SHORT else shorten(content, EXCERPT)
    return {"id": str(row.get("id") or ""), "source": source, "about": ", ".join(about), "excerpt": excerpt,
            "stays": str(row.get("duplicate_of") or "")}


def _shown(row: Mapping[str, Any], shown: Mapping[str, str], kind: str, most: int) -> list[str]:
    """The columns of a kind as data URIs, of what a browser shows and there is room for; one "" where there
    is none."""
    found = []
    kinds = set(_PLAYED) if kind in _PLAYED else {kind}  # a column of films may be one of sound in a branch
    for column in (column for column, as_kind in shown.items() if as_kind in kinds):
        data = row.get(column)
        if (isinstance(data, bytes) and len(data) <= most
                and (media := media_type(data[:HEAD_BYTES])).startswith(f"{kind}/")):
            found.append(f"data:{media};base64,{base64.b64encode(data).decode()}")
    return found or [""]
