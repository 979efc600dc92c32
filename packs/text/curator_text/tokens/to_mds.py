"""The shards of MosaicML's streaming data sets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.io.files.folder import Output
from curator.io.sink import Encoder, FileWriter
from curator_text.tokens.sinks import TokenSink

_SHAPES = ((np.uint8, 0), (np.uint16, 1), (np.uint32, 2), (np.uint64, 3))  # MDS's numbers for them
_LARGEST = (1 << 32) - 1  # a place in a shard is a number of 32 bits


@dataclass(kw_only=True)
class ToMds(TokenSink):
    """Write tokens as MosaicML's streaming (`StreamingDataset`, LLM Foundry, Composer) reads them: folders, each
    with a `shard.00000.mds` and its `index.json`.

    A document is a sample of one column, `key`, an array of numbers. Each folder is a data set;
    `streaming.base.util.merge_index("out/data")` makes one of them all. `dtype`: of the numbers. `target_bytes`:
    the most that a shard has, head included; a longer document has one to itself.

    Source: mosaicml-streaming, streaming/base/format/mds/{writer,encodings}.py
    """

    dtype: Literal["uint16", "uint32", "int32"] = "int32"
    key: str = "tokens"
    target_bytes: int = 1 << 26

    name = "to_mds"
    ending: ClassVar[str] = "/shard.00000.mds"
    dtypes = ("uint16", "uint32", "int32")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.key:
            raise ValueError("key must be the name of a column")
        if self.target_bytes > _LARGEST:
            raise ValueError(f"target_bytes must be up to {_LARGEST:,}, got {self.target_bytes}")

    def config(self) -> dict[str, object]:
        """What the head of a shard and the index say of it."""
        return {"column_encodings": [f"ndarray:{self.dtype}"], "column_names": [self.key], "column_sizes": [None],
                "compression": None, "format": "mds", "hashes": [], "size_limit": self.target_bytes, "version": 2}

    def head_bytes(self) -> int:
        """Of a shard without samples."""
        return 8 + len(json.dumps(self.config(), sort_keys=True))

    def room(self, rows: pa.Table, written: int, written_bytes: int) -> int:
        tokens = rows.column(0)
        if pa.types.is_null(tokens.type):  # no record has any
            return rows.num_rows
        lengths = pc.fill_null(pc.list_value_length(tokens), 0).to_numpy().astype(np.int64)
        wide = np.array([np.dtype(kind).itemsize for kind, _ in _SHAPES])[
            np.searchsorted([np.iinfo(kind).max for kind, _ in _SHAPES[:-1]], lengths)]
        # its place, its size, the kind of its shape, and that
        each = np.where(lengths > 0, lengths * np.dtype(self.dtype).itemsize + 4 + 4 + 1 + wide, 0)
        ends = self.head_bytes() + written_bytes + np.cumsum(each)
        return max(1 if written == 0 else 0, int(np.searchsorted(ends, self.target_bytes, "right")))

    def is_full(self, written: int, written_bytes: int) -> bool:
        return self.head_bytes() + written_bytes >= self.target_bytes

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        shard = files.add(self.output(files.folder, stem + self.ending))
        return _Files(self, shard, files.add(self.output(files.folder, stem + "/index.json")))


class _Files(Encoder):
    def __init__(self, sink: ToMds, shard: Output, index: Output) -> None:
        self._sink, self._shard, self._index = sink, shard, index
        self._samples: list[bytes] = []

    def write(self, rows: pa.Table) -> int:
        flat, lengths = self._sink.numbers(rows)
        made = [_sample(tokens) for tokens in np.split(flat, np.cumsum(lengths)[:-1])] if len(lengths) else []
        self._samples += made
        return sum(map(len, made)) + 4 * len(made)

    def finish(self) -> None:
        config = self._sink.config()
        head = json.dumps(config, sort_keys=True).encode()
        count = len(self._samples)
        sizes = np.fromiter(map(len, self._samples), np.int64, count)
        places = 4 + 4 * (count + 1) + len(head) + np.concatenate([[0], np.cumsum(sizes)])
        self._shard.write(np.array([count, *places], "<u4").tobytes() + head)
        for sample in self._samples:
            self._shard.write(sample)
        shard = config | {"raw_data": {"basename": "shard.00000.mds", "bytes": int(places[-1]), "hashes": {}},
                          "samples": count, "zip_data": None}
        self._index.write(json.dumps({"shards": [shard], "version": 2}, sort_keys=True).encode())


def _sample(tokens: np.ndarray) -> bytes:
    """The size of the column, its shape, its numbers."""
    kind, code = next((kind, code) for kind, code in _SHAPES if len(tokens) <= np.iinfo(kind).max)
    value = bytes([1 << 2 | code]) + np.array([len(tokens)], kind).tobytes() + tokens.tobytes()
    return len(value).to_bytes(4, "little") + value
