"""Manifests: tables that say where recordings lie, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.findings import Summed
from curator.io.media import manifest


@dataclass(kw_only=True)
class Manifest(manifest.Manifest):
    """Read manifests: NeMo's JSON Lines, CSV, TSV or Parquet, a record a line, for `audio.decode`.

    Columns: `id` (the manifest's own, else made from its name and the line), `source` (the manifest), `path`
    (string: where the recording lies), `extension` (its ending in lower case, without the dot), `bytes`
    (binary; null but where Parquet has them inside, as datasets of the Hugging Face hub do), and all others
    as they are. `offset` and `duration` are seconds (float64, where the manifest has them; `1:02:03.5` is a
    number, too; a duration of 0 or less, as NeMo writes it where it is not known, is null): `audio.decode` reads that part only.

    The recording is in `path`, `audio_filepath` (NeMo) or `audio` (a text, or an object of `bytes` and
    `path`), or in `bytes`; another column becomes one of them by `names`. A path that is not absolute counts
    from the manifest's folder. A line that cannot be read, has no path, or whose seconds are no number leaves
    on `failed`; one with `_skipme` leaves on `dropped`, reason `skipme`.

    `path`: files, folders, globs or URLs, one or several. `root`: the folder from which paths count, if not
    the manifest's. `names`: other names for columns, old to new: `{wav: path, sentence: text}`.
    `exists`: look whether there is a file at each path; a line whose file is missing leaves on `failed`.
    `storage_options`: what the filesystem wants (keys, endpoint). `unit_bytes`: about how much is read, and
    done again after a crash, as one.

    Source: NVIDIA NeMo,
    https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html.
    """

    name = "manifest"
    media: ClassVar[str] = "recordings"
    example: ClassVar[str] = "{wav: path}"
    holders: ClassVar[tuple[str, ...]] = ("path", "audio_filepath", "audio")
    numbers: ClassVar[tuple[str, ...]] = ("offset", "duration")
    skip: ClassVar[str] = "skipme_"  # what readers make of NeMo's `_skipme`

    def checked(self, batch: Batch) -> tuple[Batch, list[str | None]]:
        made, faults = super().checked(batch)
        if "duration" in made.columns:  # NeMo writes -1 where it is not known
            known = made.rows.column("duration")
            made = made.with_columns({"duration": pc.if_else(pc.greater(known, 0), known, None)})
        return made, faults

    def amounts(self) -> dict[str, Summed]:
        return {"duration": "seconds"}
