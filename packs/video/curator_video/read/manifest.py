"""Manifests: tables that say where films lie, which parts of them count, and what is known of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.findings import Summed
from curator.io.media import manifest
from curator.io.media.manifest import second

SPANS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64())]))


@dataclass(kw_only=True)
class Manifest(manifest.Manifest):
    """Read manifests of films: JSON Lines, CSV, TSV or Parquet, a record a line. No film is opened.

    Columns: `id` (the manifest's own, else made from its name and the line), `source` (the manifest), `path`
    (string: where the film lies), `extension` (its ending in lower case, without the dot), `bytes` (binary;
    null but where Parquet has them inside, as datasets of the Hugging Face hub do), and all others as they are.

    `start_s` and `end_s` (seconds from the first picture, float64; numbers, or texts such as `1:02:03.5`) are
    the part that counts: every stage reads that part only. A column `spans` (a list of `start` and `end`,
    or of pairs of them; or such a list as text) becomes a list that `video.spans: {by: spans}` makes records of.
    Let lines of one film follow each other: then it is opened once for all of them.

    The film is in `path` or `video` (a text, or an object of `bytes` and `path`), or in `bytes`; another column
    becomes one of them by `names`. A path that is not absolute counts from the manifest's folder. A line that
    cannot be read, has no path, or whose seconds or spans are none leaves on `failed`. URLs are opened as they
    are; `fetch` asks before, and keeps to what servers wish.

    `path`: files, folders, globs or URLs, one or several. `root`: the folder from which paths count, if not
    the manifest's. `names`: other names for columns, old to new: `{video_file: path, start: start_s}`.
    `exists`: look whether there is a file at each path; a line whose file is missing leaves on `failed`.
    `storage_options`: what the filesystem wants (keys, endpoint). `unit_bytes`: about how much is read, and
    done again after a crash, as one.
    """

    name = "manifest"
    media: ClassVar[str] = "films"
    example: ClassVar[str] = "{file: path}"
    holders: ClassVar[tuple[str, ...]] = ("path", "video")
    numbers: ClassVar[tuple[str, ...]] = ("start_s", "end_s", "duration")

    def amounts(self) -> dict[str, Summed]:
        return {"duration": "seconds"}

    def columns(self) -> dict[str, pa.DataType | None]:
        have = super().columns()
        return have | {"spans": SPANS} if "spans" in have else have

    def checked(self, batch: Batch) -> tuple[Batch, list[str | None]]:
        batch, faults = super().checked(batch)
        if "spans" not in batch.columns:
            return batch, faults
        lists: list[list[dict[str, float]] | None] = []
        for row, value in enumerate(batch.column("spans")):
            try:
                lists.append(spans_of(value))
            except (TypeError, ValueError, KeyError, SyntaxError):
                lists.append(None)
                faults[row] = faults[row] or f"no spans: {value!r:.80}"
        return batch.with_columns({"spans": pa.array(lists, SPANS)}), faults


def spans_of(value: Any) -> list[dict[str, float]] | None:
    """Spans in seconds, of objects or pairs, or of a text that has them.

    Raises:
        TypeError, ValueError, KeyError, SyntaxError: they are none.
    """
    if value in (None, ""):
        return None
    given = ast.literal_eval(value) if isinstance(value, str) else value
    pairs = [(one["start"], one["end"]) if isinstance(one, dict) else tuple(one) for one in given]
    return [{"start": second(start), "end": second(end)} for start, end in pairs]
