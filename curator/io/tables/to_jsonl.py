"""Write JSON Lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from curator.io.files.folder import Output
from curator.io.sink import TextSink
from curator.io.tables.plain import json_lines

_PIECE_ROWS = 10_000  # encoded at once


@dataclass(kw_only=True)
class ToJsonl(TextSink):
    """Write JSON Lines: one object a line, in UTF-8, `.jsonl.zst` unless `compression` says `gz` or `none`.

    Numbers, text, lists and objects come back as they were. Dates and times become ISO 8601 text, binary values base64
    text, decimals text (whole numbers if they have no places). A float that is no number becomes `NaN` or `Infinity`: strict
    readers refuse that, so replace it before if yours is one.
    """

    compression: str | None = "zst"  # zst, gz or none

    name = "to_jsonl"
    fixed_columns: ClassVar[bool] = False

    def plain_suffix(self) -> str:
        return ".jsonl"

    def start(self, output: Output, schema: pa.Schema) -> JsonlFile:
        return JsonlFile(output)


class JsonlFile:
    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, rows: pa.Table) -> int:
        written = 0
        for start in range(0, rows.num_rows, _PIECE_ROWS):
            written += self._output.write(json_lines(rows.slice(start, _PIECE_ROWS)))
        return written

    def abandon(self) -> None:
        """Nothing: the output is gone."""

    def finish(self) -> None:
        """Nothing: a file of lines ends anywhere."""
