"""Pages of Wikipedia and its sisters, from their dumps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator.api.stage import Contract, Outputs, SourceRange, Unit, setting
from curator.io.files.compression import decompressed
from curator.io.files.folder import FileInfo, list_files
from curator.io.media.tar import Damage, Member, TarReader
from curator.io.units import TARGET_BYTES, plan_units
from curator_text.get.lines import Line, lines
from curator_text.get.web import Web, WebSource
from curator_text.get.wiki_dump import CHUNK_BYTES, RawPage, namespaces, pages, parse_page
from curator_text.get.wiki_html import parse_line
from curator_text.get.wiki_listing import address, full_name, html_files, multistream_files, wiki_of
from curator_text.read.rows import Rows, read_parts

SUFFIXES = (".bz2", ".tar.gz")
SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("wiki", pa.string()),
                    ("page_id", pa.int64()), ("title", pa.string()), ("namespace", pa.int32()),
                    ("revision", pa.int64()), ("date", pa.string()), ("url", pa.string()),
                    ("redirect", pa.string()), ("redirects", pa.list_(pa.string())),
                    ("wikitext", pa.string()), ("html", pa.binary()), ("prefixes", pa.list_(pa.string()))])
LINE_BYTES_MAX = 1 << 27


@dataclass(kw_only=True)
class Wikipedia(WebSource):
    """Read the pages of a wiki from its dumps, in wikitext (multistream bz2) or as HTML (the Enterprise
    dumps).

    Columns: `id` (`dewiki-12`), `source` (the file), `wiki`, `page_id`, `title`, `namespace` (0 are
    articles), `revision`, `date` (of it), `url`, `redirect` (the title that the page leads to; else null),
    `redirects` (titles that lead here; HTML dumps only, else null), `wikitext` or `html` (the page, as
    `text.extract_wiki` makes text of it; null for redirects), `prefixes` (what links to files and categories
    begin with in this wiki; with `wikitext`).

    Pages of another namespace, redirects, and pages that are no wikitext leave on `dropped`, reasons
    `namespace`, `redirect`, `model`; a page that an HTML dump has again on `duplicate`. What cannot be read
    is on `failed` with its place (byte of the file, `+n` for n bytes into its bz2 stream; line of a member),
    and reading goes on behind it.

    `wikis`: `de` or `dewiki`, `enwiktionary`, one or several, and `date`, `20240601`, or `latest` (which is
    another one next month); or `path`, files at hand instead. `format`: `wikitext`, or `html`, in which
    templates are worked out. `namespaces`, `redirects`: what is kept.

    `base_url`: a mirror, or a folder of the same layout. `unit_bytes`: about how much of a bz2 file is read,
    and done again after a crash, as one; a file of HTML is one. `contact`, `connections`, `delay_s`,
    `retries`, `backoff_s`, `private`, `storage_options`: see docs/text-get.md.

    Source: https://meta.wikimedia.org/wiki/Data_dumps.
    """

    wikis: str | list[str] | None = setting(default=None)
    date: str | None = setting(default=None)
    path: str | list[str] | None = setting(default=None)
    format: str = "wikitext"
    namespaces: list[int] = field(default_factory=lambda: [0])
    redirects: bool = False
    base_url: str = setting(default="https://dumps.wikimedia.org")
    unit_bytes: int = setting(default=TARGET_BYTES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.path is None) == (self.wikis is None):
            raise ValueError("name wikis and date, or a path of files at hand")
        if self.wikis is not None and not self.date:
            raise ValueError("date is wanted: 20240601, or latest")
        if self.format not in ("wikitext", "html"):
            raise ValueError(f"format must be wikitext or html, got {self.format!r}")
        if not self.namespaces:
            raise ValueError("namespaces names none, so that nothing would be kept")
        self.at_least(1, "unit_bytes")

    def contract(self) -> Contract:
        return Contract(adds={column.name: column.type for column in SCHEMA})

    def units(self) -> list[Unit]:
        if self.path is not None:
            return self._planned(list_files(self.path, self.storage_options, SUFFIXES))
        files: list[FileInfo] = []
        with self.web() as web:
            for wiki in map(full_name, [self.wikis] if isinstance(self.wikis, str) else self.wikis or []):
                if self.format == "html":
                    files += html_files(web, self.base_url, wiki, self.date or "", self.namespaces)
                else:
                    files += multistream_files(web, self.base_url, wiki, self.date or "")
        return self._planned(files)

    def _planned(self, files: list[FileInfo]) -> list[Unit]:
        return plan_units(files, self.unit_bytes, lambda file: self.format == "wikitext")

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(SCHEMA)
        reading = self._read_html if self.format == "html" else self._read_wikitext
        with self.web() as web:
            yield from read_parts(unit, rows, lambda part: reading(web, part, rows))

    def _read_wikitext(self, web: Web, part: SourceRange, rows: Rows) -> Iterator[None]:
        """Add the pages of a range of a bz2 file, one at a time."""
        wiki = wiki_of(part.uri)
        size = part.size_bytes if self.path is None else None
        with web.open(part.uri, size, CHUNK_BYTES) as head:
            names = namespaces(head)
        prefixes = [names[number] for number in (6, 14, -2) if number in names]
        with web.open(part.uri, size) as file:
            for found in pages(file, part.start, part.stop):
                row: dict[str, Any] = {"id": f"{part.uri}@{found.place}", "source": part.uri, "wiki": wiki}
                try:
                    if not isinstance(found, RawPage):
                        raise ValueError(found.why)
                    self._add_page(rows, row, found.xml, prefixes)
                except ValueError as error:
                    rows.fail({**row, "id": f"{part.uri}@{found.place}",
                               "offset": int(found.place.partition("+")[0])}, error)
                yield

    def _add_page(self, rows: Rows, row: dict[str, Any], xml: bytes, prefixes: list[str]) -> None:
        page = parse_page(xml)
        row |= {"id": f"{row['wiki']}-{page.page_id}", "page_id": page.page_id, "title": page.title,
                "namespace": page.namespace, "revision": page.revision, "date": page.date,
                "redirect": page.redirect, "url": address(row["wiki"], page.title)}
        if page.namespace not in self.namespaces:
            rows.add("dropped", row | {"reason": "namespace"})
        elif page.redirect is not None and not self.redirects:
            rows.add("dropped", row | {"reason": "redirect"})
        elif page.model != "wikitext":
            rows.add("dropped", row | {"reason": "model"})
        else:
            text = None if page.redirect is not None else page.text
            rows.add("out", row | {"wikitext": text, "prefixes": prefixes})

    def _read_html(self, web: Web, part: SourceRange, rows: Rows) -> Iterator[None]:
        """Add the pages of a tar of lines of JSON, one at a time."""
        seen = Seen()
        with web.open(part.uri) as file, decompressed(file, "gz", part.uri) as content:
            tar = TarReader(content)
            for member in tar.members():
                if isinstance(member, Damage):
                    rows.fail({"id": f"{part.uri}@{member.offset}", "source": part.uri,
                               "offset": member.offset}, member.error)
                    yield
                elif member.kind == "file":
                    yield from self._read_member(tar, member, part.uri, rows, seen)

    def _read_member(self, tar: TarReader, member: Member, uri: str, rows: Rows,
                     seen: Seen) -> Iterator[None]:
        for line in lines(tar, LINE_BYTES_MAX):
            place = f"{uri}/{member.name}@{line.number}"
            row: dict[str, Any] = {"id": place, "source": uri, "wiki": wiki_of(uri)}
            try:
                self._add_line(rows, row, line, seen)
            except ValueError as error:
                rows.fail({**row, "id": place, "offset": member.offset}, error)
            yield

    def _add_line(self, rows: Rows, row: dict[str, Any], line: Line, seen: Seen) -> None:
        if line.why:
            raise ValueError(line.why)
        page = parse_line(line.content)
        place, wiki = row["id"], page.wiki or row["wiki"]
        row |= {"id": f"{wiki}-{page.page_id}", "wiki": wiki, "page_id": page.page_id, "title": page.title,
                "namespace": page.namespace, "revision": page.revision, "date": page.date, "url": page.url,
                "redirects": page.redirects}
        if seen.add(page.page_id):
            rows.add("duplicate", row | {"id": place, "duplicate_of": row["id"]})
        elif page.namespace not in self.namespaces:
            rows.add("dropped", row | {"reason": "namespace"})
        else:
            rows.add("out", row | {"html": page.html.encode("utf-8", "surrogatepass")})


class Seen:
    """Numbers of pages that were there, a bit each: a set of them would take half a gigabyte for the largest
    wiki."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> bool:
        """Whether the number was there before; it is from now on."""
        if not 0 <= number < 1 << 40:
            raise ValueError(f"{number} is no number of a page")
        byte, bit = number >> 3, 1 << (number & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        known = bool(self._bits[byte] & bit)
        self._bits[byte] |= bit
        return known
