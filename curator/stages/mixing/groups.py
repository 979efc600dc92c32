"""Values of a column as numbers, the same number for one value in all batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Groups:
    """Gives each value that it sees a number, null among them: 0, 1, 2, … in order of appearance."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, values: pa.ChunkedArray) -> np.ndarray:
        """int64, one a row."""
        if pa.types.is_null(values.type):
            return np.full(len(values), self._code(None), np.int64)
        coded = pc.dictionary_encode(values, null_encoding="encode").combine_chunks()
        coded = coded if isinstance(coded, pa.DictionaryArray) else coded.chunk(0)
        known = np.array([self._code(value) for value in coded.dictionary.to_pylist()], np.int64)
        return known[coded.indices.to_numpy(zero_copy_only=False)]

    def names(self) -> list[Any]:
        """The values, by number."""
        return list(self._codes)

    def _code(self, value: Any) -> int:
        return self._codes.setdefault(value, len(self._codes))
