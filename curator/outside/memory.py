"""Tables in memory as input: an Arrow table, a data frame, a list of dicts, a dataset.

A worker is another process, so what is read lies in a Parquet file in a folder of this user below the
system's temporary one, named by its content: the same rows have the same ids and are not done again by a run
that continues. The file goes when the last process that reads it ends; what a process left that was killed
goes when the next one begins.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import getpass
import hashlib
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError
from curator.io.tables.parquet import Parquet

GROUP_BYTES = 32 << 20  # of a row group: units are made of them
_used: dict[Path, int] = {}  # files of this process, each with a lock that says so
SOURCE = "memory"  # what `source` says where the rows do not say it


def from_memory(data: Any, **options: Any) -> Parquet:
    """A source of these rows. `options`: parameters of the Parquet source.

    Raises:
        InputError: it is nothing that has rows, or has no column.
    """
    table = as_table(data)
    if not table.num_columns:
        raise InputError(f"a {type(data).__name__} with no column cannot be read")
    return Parquet(path=str(_file(table, options.get("id_column", "id"))), **options)


def is_memory(source: Any) -> bool:
    """Whether a source reads rows that were in memory."""
    return isinstance(source, Parquet) and isinstance(source.path, str) and Path(source.path) in _used


def as_table(data: Any) -> pa.Table:
    """Rows of any library as an Arrow table: Arrow, pandas, Polars, DuckDB, `datasets`, a list of dicts, a
    dict of columns.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        other = next((row for row in data if not isinstance(row, Mapping)), None)
        if other is not None:
            raise InputError(f"a list with a {type(other).__name__} in it cannot be read: give dicts, one a "
                             "record, or paths")
        return pa.Table.from_pylist([dict(row) for row in data])
    if hasattr(data, "with_format") and hasattr(data, "features"):  # datasets.Dataset
        return pa.table(data.with_format("arrow")[:])
    if hasattr(data, "__arrow_c_stream__"):  # pandas, Polars, DuckDB, RecordBatchReader
        return _without_views(pa.RecordBatchReader.from_stream(data).read_all())
    if hasattr(data, "to_arrow"):
        return pa.table(data.to_arrow())
    raise InputError(f"a {type(data).__name__} cannot be read: give paths, an Arrow table, a data frame, a "
                     "dataset of Hugging Face, or a list of dicts")


def _without_views(table: pa.Table) -> pa.Table:
    """With texts and bytes as all of Arrow's functions take them; Polars gives views of them."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):  # categories
            column = [pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(
                _without_view(chunk.dictionary.type))) for chunk in table.column(at).chunks]
            table = table.set_column(at, field.name, pa.chunked_array(column)) if column else table
    fields = [field.with_type(_without_view(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        whole = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return whole(kind.value_field.with_type(_without_view(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    return (pa.large_string() if pa.types.is_string_view(kind)
            else pa.large_binary() if pa.types.is_binary_view(kind) else kind)


def _file(table: pa.Table, id_column: str) -> Path:
    import pyarrow.parquet as pq

    folder = Path(tempfile.gettempdir()) / f"curator-tables-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise InputError(f"{folder} belongs to another user: set TMPDIR to a folder of your own")
    digest = _digest(table, id_column)
    if id_column not in table.column_names:
        ids = [f"{digest[:12]}-{row}" for row in range(table.num_rows)]
        table = table.append_column(id_column, pa.array(ids, pa.string()))
    if "source" not in table.column_names:
        table = table.append_column("source", pa.array(np.full(table.num_rows, SOURCE)))
    path = folder / f"{digest}.parquet"
    if path not in _used:
        _used[path] = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(_used[path], fcntl.LOCK_SH)
        atexit.register(_remove, path, os.getpid())
        _remove_left(folder)
    if not path.exists():
        rows = max(1, table.num_rows * GROUP_BYTES // max(1, table.nbytes))
        partial = path.with_suffix(f".{os.getpid()}")
        pq.write_table(table, partial, row_group_size=rows, compression="zstd", compression_level=1)
        os.utime(partial, (0, 0))  # the same content is the same input, whenever it was written
        partial.rename(path)
    return path


def _digest(table: pa.Table, id_column: str) -> str:
    """Of the rows and types, however they lie in memory, and the name of the column for ids."""
    hashed = hashlib.blake2b(f"{id_column}\n{table.schema.remove_metadata()}".encode(), digest_size=16)
    with pa.ipc.new_stream(_Hash(hashed), table.schema.remove_metadata()) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return hashed.hexdigest()


class _Hash(io.RawIOBase):
    """A file that only hashes what is written to it."""

    def __init__(self, hashed: Any) -> None:
        self.hashed = hashed

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hashed.update(data)
        return len(data)


def _remove_left(folder: Path) -> None:
    """Remove the files that no process has a lock on any more. The locks themselves stay: another process may
    wait for one."""
    for path in folder.iterdir():
        if path.suffix != ".lock":
            with contextlib.suppress(OSError), path.with_suffix(".lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _remove(path: Path, pid: int) -> None:
    if os.getpid() != pid:  # in a forked worker
        return
    with contextlib.suppress(OSError):  # another process reads it
        fcntl.flock(_used[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
