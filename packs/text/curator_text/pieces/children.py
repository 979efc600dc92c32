"""What the stages share that make records of the pieces of a text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from curator.api.stage import Outputs
from curator.api.tasks import TextBatch

COLUMNS = {"id": pa.string(), "parent": pa.string(), "piece": pa.int32(), "pieces": pa.int32(),
           "start": pa.int64(), "end": pa.int64()}
Piece = tuple[int, int]  # begin and end, in characters


def children(batch: TextBatch, column: str, pieces: list[list[Piece]]) -> Outputs:
    """A record a piece, `column` its text; texts without a piece on `dropped`, reason `no_text`."""
    counts = [len(found) for found in pieces]
    some = [count > 0 for count in counts]
    kept = batch.filter(some)
    texts = kept.column(column)
    pieces = [found for found in pieces if found]
    out = kept.explode([len(found) for found in pieces])
    flat: list[tuple[Any, ...]] = [
        (text[start:end], number, len(found), start, end) for text, found in zip(texts, pieces, strict=True)
        for number, (start, end) in enumerate(found)]
    made = list(zip(*flat, strict=True)) if flat else [()] * 5
    types = {column: pa.string(), **{name: COLUMNS[name] for name in ("piece", "pieces", "start", "end")}}
    out = out.with_columns({name: pa.array(values, kind)
                            for (name, kind), values in zip(types.items(), made, strict=True)})
    outputs = Outputs(out=out)
    if not all(some):
        outputs["dropped"] = batch.filter([not one for one in some]).with_reason("no_text")
    return outputs
