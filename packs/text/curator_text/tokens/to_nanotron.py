"""The token files of nanotron and datatrove."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from curator.io.files.folder import Output
from curator.io.sink import Encoder, FileWriter
from curator_text.tokens.sinks import TokenSink


@dataclass(kw_only=True)
class ToNanotron(TokenSink):
    """Write tokens as nanotron and datatrove read them: `<name>.ds`, with `.ds.index` (where each document
    ends) and `.ds.metadata`.

    `dtype`: `uint16` for vocabularies of up to 65,536 tokens, else `uint32`. `tokenizer`: the name that
    `.ds.metadata` tells.

    Source: Hugging Face datatrove, src/datatrove/pipeline/tokens/tokenizer.py
    """

    dtype: Literal["uint16", "uint32"] = "uint32"
    tokenizer: str = "unknown"

    name = "to_nanotron"
    ending: ClassVar[str] = ".ds"
    dtypes = ("uint16", "uint32")

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        outputs = [files.add(self.output(files.folder, stem + ending))
                   for ending in (".ds", ".ds.index", ".ds.metadata")]
        return _Files(self, *outputs)


class _Files(Encoder):
    def __init__(self, sink: ToNanotron, tokens: Output, index: Output, metadata: Output) -> None:
        self._sink, self._tokens, self._index, self._metadata = sink, tokens, index, metadata
        self._count = 0

    def write(self, rows: pa.Table) -> int:
        flat, lengths = self._sink.numbers(rows)
        self._index.write((self._count + np.cumsum(lengths)).astype("<u8").tobytes())
        self._count += len(flat)
        return self._tokens.write(flat.tobytes())

    def finish(self) -> None:
        sizes = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
        short = next((f"{self._count / size:.2f}".rstrip("0").rstrip(".") + unit for size, unit in sizes
                      if self._count >= size),
                     str(self._count))
        width = struct.calcsize("H" if self._sink.dtype == "uint16" else "I")
        self._metadata.write(f"{self._sink.tokenizer}|{width}\n{self._count}\n{short}".encode())
