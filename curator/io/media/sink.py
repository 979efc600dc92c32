"""What the writers of media share: keys that are good names, how much goes into a file, the Parquet file
beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.sink import Encoder, FileSink, own
from curator.io.tables.parquet import ParquetFile, is_row_group, storable

SCAFFOLD_BYTES = 2048  # counted for each record beside its values: headers and padding of its members
_NAME_BYTES = 120  # of a name; filesystems take 255 with the ending and what goes before it
_UNSAFE = re.compile(r"[^\w\-+=@#,~]")


@dataclass(kw_only=True)
class MediaSink(FileSink):
    """Records of which one column is a file: `media`, by default `bytes`.

    `media`, `id`, `key` and `extension` are written also if `select` does not name them. A file of records is
    closed, and the next one begun, after `records` of them (None for any number), or when their data reaches
    `target_bytes`; where it is closed depends on the records alone.
    """

    media: str = "bytes"
    records: int | None = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "records")

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys([self.media, *(self.select or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.media)
        if kind is not None and not is_bytes(kind):
            raise RecipeError(f"the column {self.media!r}, which `media` names, is {kind}, not binary: name "
                              "the column with the encoded files")

    def chosen(self, rows: pa.Table) -> pa.Table:
        if self.select is None:
            return rows
        wanted = [*self.select, *(name for name in self.unasked() if name in rows.column_names)]
        return rows.select(list(dict.fromkeys(wanted)))

    def unasked(self) -> tuple[str, ...]:
        """The columns that are written also if `select` does not name them."""
        return self.media, "id", "key", "extension"

    def room(self, rows: pa.Table, written: int, written_bytes: int) -> int:
        full = int(np.searchsorted(written_bytes + np.cumsum(sizes(rows)), self.target_bytes)) + 1
        return min(full, rows.num_rows, (self.records or rows.num_rows + written) - written)

    def is_full(self, written: int, written_bytes: int) -> bool:
        return super().is_full(written, written_bytes) or written == self.records


def is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def sizes(rows: pa.Table) -> np.ndarray:
    """The bytes of each row as a file is measured: its texts and binary values, and something for the
    rest."""
    total = np.full(rows.num_rows, SCAFFOLD_BYTES, np.int64)
    for column in rows.columns:
        if is_bytes(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return total


class Names:
    """Names of the records of one file, none twice."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, or the name with a number if somebody has it; upper and lower case do not make a
        difference."""
        candidate = name
        while (folded := candidate.casefold()) in self._uses:
            self._uses[name.casefold()] = count = self._uses.get(name.casefold(), 1) + 1
            candidate = f"{name}-{count}"
        self._uses[folded] = 1
        return candidate


def safe(text: str) -> str:
    """The text as a name in a folder or archive: letters, digits and some signs, the rest as `_`, not too
    long."""
    name = _UNSAFE.sub("_", text).lstrip("_") or "record"
    if len(name.encode()) <= _NAME_BYTES:
        return name
    head = name.encode()[:_NAME_BYTES - 17].decode("utf-8", "ignore")
    return f"{head}-{xxhash.xxh3_64_hexdigest(text.encode())}"


class MediaFiles(Encoder):
    """The media of one file of records, which is Parquet and has all but them, in row groups as `ToParquet`
    makes them."""

    def __init__(self, described: Output | None) -> None:
        self._described = described
        self._parquet: ParquetFile | None = None
        self._gathered: list[pa.Table] = []
        self._gathered_rows = self._gathered_bytes = 0
        self.names = Names()

    def put(self, rows: pa.Table) -> pa.Table:
        """Write the media of the rows; answers what the Parquet file says of them."""
        raise TypeError(f"{type(self).__name__} has no put method")

    def write(self, rows: pa.Table) -> int:
        about = self.put(rows)
        if self._described is not None:
            self._gathered.append(own(storable(about)))
            self._gathered_rows += rows.num_rows
            self._gathered_bytes += self._gathered[-1].nbytes
            if is_row_group(self._gathered_rows, self._gathered_bytes):
                self._describe()
        return int(sizes(rows).sum())

    def finish(self) -> None:
        self._describe()
        if self._parquet is not None:
            self._parquet.finish()

    def abandon(self) -> None:
        self._gathered = []
        if self._parquet is not None:
            self._parquet.abandon()

    def _describe(self) -> None:
        if self._gathered and self._described is not None:
            rows = pa.concat_tables(self._gathered)
            self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
            self._parquet = self._parquet or ParquetFile(self._described, rows.schema, "zstd")
            self._parquet.write(rows)
