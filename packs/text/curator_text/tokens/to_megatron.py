"""Megatron-LM's indexed data sets."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from curator.io.files.folder import Output
from curator.io.sink import Encoder, FileWriter
from curator_text.tokens.sinks import TokenSink

_KINDS = {"uint16": 8, "int32": 4}  # Megatron's numbers for them


@dataclass(kw_only=True)
class ToMegatron(TokenSink):
    """Write tokens as Megatron-LM and NeMo read them: `<name>.bin`, and beside it `<name>.idx` with where
    each document lies.

    A document is a sequence. Give the names without `.bin` to `--data-path`; `tools/merge_datasets.py` of
    Megatron-LM makes one of them all. `dtype`: `uint16` for vocabularies of up to 65,499 tokens, as
    Megatron-LM itself chooses, else `int32`. Put a token for the end of a text behind each by `text.tokenize:
    {end: <|endoftext|>}`.

    Source: NVIDIA Megatron-LM, megatron/core/datasets/indexed_dataset.py
    """

    dtype: Literal["uint16", "int32"] = "int32"

    name = "to_megatron"
    ending: ClassVar[str] = ".bin"
    dtypes = tuple(_KINDS)

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        tokens = files.add(self.output(files.folder, stem + ".bin"))
        return _Files(self, tokens, files.add(self.output(files.folder, stem + ".idx")))


class _Files(Encoder):
    def __init__(self, sink: ToMegatron, tokens: Output, index: Output) -> None:
        self._sink, self._tokens, self._index = sink, tokens, index
        self._lengths: list[np.ndarray] = []

    def write(self, rows: pa.Table) -> int:
        flat, lengths = self._sink.numbers(rows)
        self._lengths.append(lengths)
        return self._tokens.write(flat.tobytes())

    def finish(self) -> None:
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        places = (np.cumsum(lengths) - lengths) * np.dtype(self._sink.dtype).itemsize
        self._index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, _KINDS[self._sink.dtype], len(lengths),
                                                       len(lengths) + 1))
        for numbers, kind in ((lengths, "<i4"), (places, "<i8"), (np.arange(len(lengths) + 1), "<i8")):
            self._index.write(numbers.astype(kind).tobytes())
