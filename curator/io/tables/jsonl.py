"""JSON Lines, plain or compressed: one object a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange
from curator.io.files.compression import SUFFIXES
from curator.io.files.faults import explained
from curator.io.files.folder import FileInfo, Output, open_input
from curator.io.sink import Encoder, TextSink
from curator.io.source import LineSource, failures
from curator.io.tables.columns import Seen, UnfitColumn
from curator.io.tables.json_rows import JsonParser, Parsed
from curator.io.tables.json_types import wanted_lines
from curator.io.tables.lines import Block, Unreadable, read_blocks
from curator.io.tables.plain import json_lines
from curator.io.tables.records import Failure, as_records, excerpt, pieces

HEAD_BYTES = 256 << 10
_ENCODED_ROWS = 10_000  # at once
# of a file's first records: fewer are stray records that fail, more a mistake to tell at once
MIXED_FRACTION_MAX = 0.1
_PLAIN = (".jsonl", ".ndjson", ".json")
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz",
          b"PAR1": "Parquet", b"PK\x03\x04": "zip", b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"}


@dataclass(kw_only=True)
class Jsonl(LineSource):
    """Read JSON Lines: one record a line, in `.jsonl`, `.ndjson` or `.json`, plain, `.gz`, `.zst`, `.bz2` or
    `.xz`.

    Types are kept: "007" and dates stay strings, nested values stay nested, integers stay exact (beyond 64
    bits as decimals). Where records differ, whole numbers become floats if that changes no value, and a
    missing key is null. A line that is no JSON object, is longer than `max_record_bytes`, or has a type that
    the other records do not have, leaves on `failed` with its place and its first 1,000 characters as `raw`.
    Types that differ between files, or in more than a tenth of a file's first records, are an InputError
    before anything runs. A column whose name begins with `_` gets that at its end: `_id` becomes `id_`.
    """

    name = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = _PLAIN + tuple(p + c for p in _PLAIN for c in SUFFIXES)

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        parser = JsonParser(part.uri, self.seen, self.max_record_bytes, self.wanted(),
                            0 if part.start == 0 else None)
        with self.opened(part) as file:
            for block in read_blocks(file, part.start, part.stop, max_line_bytes=self.max_record_bytes):
                if isinstance(block, Unreadable):
                    place = f"{part.uri}:byte={block.offset}"
                    yield failures(part, [Failure(place, block.offset, block.error, excerpt(block.raw))])
                    continue
                parsed = parser.parse(block.data, block.offset)
                yield from pieces(as_records(parsed.rows, part.uri, parsed.positions, self.id_column))
                if parsed.failures:
                    yield failures(part, parsed.failures)

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        data = self._beginning(file)
        for magic, kind in _MAGIC.items():
            if data.startswith(magic):
                raise InputError(f"{file.uri} is not JSON Lines but {kind}. Give it the name that belongs to "
                                 "its content (for example .jsonl.gz), or convert it")
        if data.lstrip()[:1] == b"[":
            raise InputError(f"{file.uri} is a JSON array, not JSON Lines. Write one object a line, for "
                             f"example with: jq -c '.[]' {file.uri}")
        data = b"\n".join(wanted_lines(file.uri, data.split(b"\n"), self.wanted()))
        parsed = JsonParser(file.uri, {}, self.max_record_bytes, self.wanted()).parse(data, 0)
        count = len(parsed.positions) + len(parsed.failures)
        if parsed.mixed > MIXED_FRACTION_MAX * count:
            first = next(f for f in parsed.failures if isinstance(f.error, TypeError))
            raise UnfitColumn(f"{first.error}. Convert one of them, or leave the column out with `select`")
        if parsed.failures and not len(parsed.positions):
            raise InputError(f"{file.uri} is not JSON Lines: none of its first {count} lines is a record. "
                             f"{parsed.failures[0].error}")
        return _places(parsed, data, file.uri)

    def _beginning(self, file: FileInfo) -> bytes:
        """The first lines of a file, whole ones only."""
        data = b""
        with open_input(file.uri, self.storage_options) as opened, explained("read", file.uri):
            for block in read_blocks(opened, max_line_bytes=self.max_record_bytes, block_bytes=HEAD_BYTES):
                if isinstance(block, Block):
                    data += block.data
                if len(data) >= HEAD_BYTES // 2:
                    break
        return data


def _places(parsed: Parsed, data: bytes, uri: str) -> list[tuple[str, Seen]]:
    """Each column with the line of its first value."""
    found = []
    for column in parsed.rows.schema:
        valid = pc.index(parsed.rows.column(column.name).is_valid(), pa.scalar(True)).as_py()
        line = data.count(b"\n", 0, int(parsed.positions[valid])) + 1 if valid >= 0 else 1
        found.append((column.name, Seen(column.type, f"{uri}:{line}")))
    return found


@dataclass(kw_only=True)
class ToJsonl(TextSink):
    """Write JSON Lines: one object a line, in UTF-8, `.jsonl.zst` unless `compression` says `gz` or `none`.

    Numbers, text, lists and objects come back as they were. Dates and times become ISO 8601 text, binary
    values base64 text, decimals text (whole numbers if they have no places). A float that is no number
    becomes `NaN` or `Infinity`: strict readers refuse that, so replace it before if yours is one.
    """

    compression: str | None = "zst"  # zst, gz or none

    name = "to_jsonl"
    ending: ClassVar[str] = ".jsonl"
    fixed_columns: ClassVar[bool] = False

    def start(self, output: Output, schema: pa.Schema) -> JsonlFile:
        return JsonlFile(output)


class JsonlFile(Encoder):
    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, rows: pa.Table) -> int:
        written = 0
        for start in range(0, rows.num_rows, _ENCODED_ROWS):
            written += self._output.write(json_lines(rows.slice(start, _ENCODED_ROWS)))
        return written
