"""Parquet as datasets of the Hugging Face hub have it: audio that players and loaders know for audio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.media.sink import is_bytes, safe
from curator.io.tables.parquet import ParquetFile, ToParquet
from curator_audio.write.members import ending_of

AUDIO = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@dataclass(kw_only=True)
class ToHf(ToParquet):
    """Write Parquet files whose audio `datasets.load_dataset` and the hub's viewer take for audio.

    The column that `media` names becomes `column`, an object of `bytes` and `path`, a name made of the column
    `key`, else the `id`, and of `extension`; null where there are no bytes. The schema says that it is an
    Audio feature, so that a player is shown and the sound is decoded when a row is asked for. All else is as
    `parquet` writes it.

    `media`: the column with the encoded files, as `audio.encode` and readers give it.
    `column`: what it is called in the file.
    `rate`: the rate in Hz that loaders are to bring all sound to; None leaves each as it is.

    Source: Hugging Face datasets, features/audio.py
    """

    media: str = "bytes"
    column: str = "audio"
    rate: int | None = None

    name = "to_hf"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.column or self.column.startswith("_"):
            raise ValueError(f"column must be a name that does not begin with _, got {self.column!r}")
        if self.rate is not None and self.rate < 1:
            raise ValueError(f"rate is in Hz, 1 or more, got {self.rate}")

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys([self.media, *(self.select or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.media)
        if kind is not None and not is_bytes(kind) and not pa.types.is_null(kind):
            raise RecipeError(f"the column {self.media!r}, which `media` names, is {kind}, not binary: name the "
                              "column with the encoded files")

    def chosen(self, rows: pa.Table) -> pa.Table:
        """The columns that are written, the audio first."""
        other = [name for name in rows.column_names if name not in (self.column, self.media)]
        if self.select is not None:
            other = [name for name in self.select if name not in (self.column, self.media)]
        return rows.select(other).add_column(0, self.column, self._audio(rows))

    def start(self, output: Output, schema: pa.Schema) -> ParquetFile:
        rate = {} if self.rate is None else {"sampling_rate": self.rate}
        feature: dict[str, Any] = {**rate, "_type": "Audio"}
        about = {"huggingface": json.dumps({"info": {"features": {self.column: feature}}})}
        return ParquetFile(output, schema.with_metadata(about), self.compression or "none")

    def _audio(self, rows: pa.Table) -> pa.Array:
        contents = rows.column(self.media).cast(pa.binary()).combine_chunks()
        given = [name for name in ("id", "key", "extension") if name in rows.column_names]
        paths = pa.array([_path(**record) for record in rows.select(given).to_pylist()], pa.string())
        return pa.StructArray.from_arrays([contents, paths], fields=list(AUDIO), mask=contents.is_null())


def _path(id: Any, key: Any = None, extension: Any = None) -> str:
    ending = ending_of(extension)
    name = safe(str(id if key is None else key))
    return f"{name}.{ending}" if ending else name
