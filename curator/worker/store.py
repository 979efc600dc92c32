"""Batches outside a process: Arrow IPC for the rows, out-of-band buffers for the payloads, in shared memory.

A batch of up to `INLINE_BYTES` travels inside the message that names it. A larger one is a file in the run's
shared-memory folder: its maker writes it once, its readers map it, and nobody copies it. The driver never
opens one. Where shared memory is full (others use it too), the file goes to the temporary folder: slower, and
nothing is lost.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.io.files.faults import fault
from curator.worker.pickling import dump_class, dumps, load_class

INLINE_BYTES = 16 << 10  # below this a message costs less than a file
FOOTER = struct.Struct("<QQQ")  # bytes of the rows, where the header begins, its bytes
ALIGN = 64

Data = bytes | str  # a small batch itself, or the path of its file


class Store:
    """Puts batches where other processes of this machine find them.

    `folders`: where, the next one when one is full. `owner` makes file names unique.
    """

    def __init__(self, folders: Sequence[str], owner: str) -> None:
        self.folders, self.owner = folders, owner
        self._numbers = itertools.count()

    def put(self, batch: Batch) -> Data:
        """Write a batch; gives what `get` takes.

        Raises:
            CuratorError: every folder is full.
        """
        if batch.nbytes <= INLINE_BYTES:
            return self.encode(batch).to_pybytes()
        return self._file(lambda file: _write(batch, file), batch.nbytes)

    def copy(self, buffer: Any) -> str:
        """Write a batch that came from another node, as `read` gave it there; gives its path.

        Raises:
            CuratorError: every folder is full.
        """
        return self._file(lambda file: file.write(buffer), memoryview(buffer).nbytes)

    def _file(self, write: Callable[[pa.NativeFile], Any], nbytes: int) -> str:
        for folder in self.folders:
            path = f"{folder}/{self.owner}-{next(self._numbers)}"
            try:
                with pa.OSFile(path, "wb") as file:
                    write(file)
                return path
            except OSError as error:
                Path(path).unlink(missing_ok=True)
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise fault(error, "write", path) from error
        raise CuratorError(f"no room for a batch of {nbytes >> 20} MB on its way between stages: "
                           f"{' and '.join(map(os.path.dirname, self.folders))} are full. Free space there "
                           "(or set TMPDIR to a folder with more), then run the same command again")

    @staticmethod
    def read(path: str) -> pa.Buffer:
        """The bytes of a batch's file, mapped."""
        return pa.memory_map(path).read_buffer()

    @staticmethod
    def get(data: Data) -> Batch:
        """Read a batch; one in a file is mapped, not copied, and its arrays cannot be written to."""
        return Store.decode(pa.py_buffer(data) if isinstance(data, bytes) else Store.read(data))

    @staticmethod
    def encode(batch: Batch) -> pa.Buffer:
        """A batch as bytes."""
        sink = pa.BufferOutputStream()
        _write(batch, sink)
        return sink.getvalue()

    @staticmethod
    def decode(buffer: pa.Buffer) -> Batch:
        """The batch that these bytes are; nothing is copied."""
        end = len(buffer) - FOOTER.size
        rows_bytes, at, length = FOOTER.unpack(buffer.slice(end).to_pybytes())
        rows = pa.ipc.open_stream(buffer.slice(0, rows_bytes)).read_all()
        kind, spans, pickled = pickle.loads(buffer.slice(at, length))
        payloads = pickle.loads(pickled, buffers=[buffer.slice(start, size) for start, size in spans])
        return load_class(kind)(rows=rows, **payloads)

    @staticmethod
    def release(data: Data) -> None:
        """Remove a batch; those who have mapped it keep it until they let go."""
        if isinstance(data, str):
            Path(data).unlink(missing_ok=True)


def _write(batch: Batch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.rows.schema) as writer:
        writer.write_table(batch.rows)
    rows_bytes = sink.tell()
    buffers: list[pickle.PickleBuffer] = []
    pickled = dumps(batch.payloads(), buffers)
    spans = []
    for buffer in buffers:
        raw = buffer.raw()
        sink.write(b"\0" * (-sink.tell() % ALIGN))
        spans.append((sink.tell(), raw.nbytes))
        sink.write(raw)
    kind = dump_class(type(batch))  # type: ignore[arg-type]  # a class has a hash, its objects none
    header = pickle.dumps((kind, spans, pickled), protocol=5)
    at = sink.tell()
    sink.write(header)
    sink.write(FOOTER.pack(rows_bytes, at, len(header)))
