"""What the writers of token files share: the column of tokens, and numbers that fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.sink import FileSink


@dataclass(kw_only=True)
class TokenSink(FileSink):
    """A document a record: its column `tokens_from`, as `text.tokenize` adds it. A record without tokens is
    not written into the file.

    `dtype`: the numbers of the file. A token that does not fit is an error: nothing wraps around in silence.
    """

    tokens_from: str = "token_ids"
    dtype: Literal["uint16", "uint32", "int32"] = "int32"

    dtypes: ClassVar[tuple[str, ...]]  # those that the format has

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in self.dtypes:
            raise ValueError(f"dtype must be one of {', '.join(self.dtypes)}, got {self.dtype!r}")
        if self.select is not None:
            raise RecipeError(f"{self.name} writes tokens and nothing else: leave select out, and write the "
                              "columns by another sink")

    def contract(self) -> Contract:
        return Contract(needs={self.tokens_from: None})

    def chosen(self, rows: pa.Table) -> pa.Table:
        return rows.select([self.tokens_from])

    def numbers(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """All tokens, one document after the other, and the length of each document that has any.

        Raises:
            ValueError: a token does not fit `dtype`.
        """
        column = rows.column(0).cast(pa.list_(pa.int64())).combine_chunks()
        column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
        flat = column.flatten().to_numpy(zero_copy_only=False)
        lengths = np.nan_to_num(column.value_lengths().to_numpy(zero_copy_only=False)).astype(np.int64)
        limits = np.iinfo(self.dtype)
        if len(flat) and (flat.min() < limits.min or flat.max() > limits.max):
            wrong = flat[(flat < limits.min) | (flat > limits.max)][0]
            raise ValueError(f"{self.name}: token {wrong} does not fit {self.dtype}; take the other dtype, "
                             "of 32 bits")
        return flat.astype(self.dtype), lengths[lengths > 0]
