"""Documents from text, Markdown and HTML files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from curator.api.errors import InputError
from curator.api.stage import Contract, Outputs, SourceRange, Unit
from curator.io.files.folder import ahead, open_input
from curator.io.source import PathSource
from curator.io.units import plan_units
from curator_text.extract.decode import decode_text
from curator_text.extract.extract_html import extract_page
from curator_text.read.rows import Rows, is_lasting

TYPES = {".txt": "text/plain", ".text": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown",
         ".rst": "text/x-rst", ".html": "text/html", ".htm": "text/html", ".xhtml": "application/xhtml+xml"}
HTML = frozenset(("text/html", "application/xhtml+xml"))
COLUMNS = {name: pa.string() for name in ("id", "source", "content_type", "charset", "text", "title")}


@dataclass(kw_only=True)
class TextFiles(PathSource):
    """Read text, Markdown and HTML files, one document a file.

    Columns: `id` (a hash of the file's path), `source` (its path), `content_type` (by its suffix; plain text if that
    is unknown), `charset` (the encoding it was read in, detected), `text`, `title` (an HTML page's, else null). In a
    folder, files that end in .txt, .md, .rst, .html and the like are read; a glob reads what it names,
    one that ends in `**` what its folder would. HTML files
    come as their main text, as `text.extract_html` gives it by default.

    Files that are no text leave on `failed`, files that are too large on `dropped`, reason `too_large`.

    `path`: files, folders, globs or URLs, one or several. `storage_options`: what the filesystem wants (keys,
    endpoint). `extract`: False gives HTML files as bytes in the column `html`, and a null text, for a
    `text.extract_html` with other parameters or with its time limit. `max_file_bytes`: largest file that is read.
    `unit_bytes`: about how much is read, and done again after a crash, as one.
    """

    extract: bool = True
    max_file_bytes: int = 1 << 25

    name = "files"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_file_bytes")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS if self.extract else {**COLUMNS, "html": pa.binary()})

    def units(self) -> list[Unit]:
        return plan_units(self.found(tuple(TYPES)), self.unit_bytes)

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(pa.schema(list(self.contract().adds.items())))
        for part in ahead(unit.parts, self.storage_options, self._opens):
            self._add(rows, part)
            if rows.full():
                yield rows.take()
        if rows:
            yield rows.take()

    def _add(self, rows: Rows, part: SourceRange) -> None:
        """The row of a file, on the port where it belongs."""
        kind = TYPES.get("." + part.uri.rpartition(".")[2].lower(), "text/plain")
        row = {"id": xxhash.xxh3_64_hexdigest(part.uri.encode()), "source": part.uri,
               "content_type": kind}
        try:
            data = self._content(part)
            if data is None:
                rows.add("dropped", row | {"reason": "too_large"})
            else:
                rows.add("out", row | self._document(data, kind))
        except InputError as error:
            if not is_lasting(error):
                raise
            rows.fail(row | {"id": part.uri}, error)
        except ValueError as error:
            rows.fail(row | {"id": part.uri}, error)

    def _content(self, part: SourceRange) -> bytes | None:
        """The file's bytes, None if they are too many."""
        if not self._opens(part):
            return None
        with open_input(part.uri, self.storage_options, compression=None) as file:
            data = file.read(self.max_file_bytes + 1)  # a server may not tell how large it is
        return data if len(data) <= self.max_file_bytes else None

    def _opens(self, part: SourceRange) -> bool:
        return part.size_bytes <= self.max_file_bytes

    def _document(self, data: bytes, kind: str) -> dict[str, Any]:
        if kind not in HTML:
            text, charset = decode_text(data)
            return {"text": text, "charset": charset}
        return extract_page(data)._asdict() if self.extract else {"html": data}
