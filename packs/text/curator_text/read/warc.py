"""Pages from web archives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import pyarrow as pa
import xxhash

from curator.api.errors import InputError
from curator.api.stage import Contract, Outputs, Source, Unit, setting
from curator.io.files.folder import list_files, open_input
from curator.io.units import TARGET_BYTES, plan_units
from curator_text.read.http_payload import TooLarge, decode_body, looks_like_html, parse_response
from curator_text.read.rows import Rows, is_lasting
from curator_text.read.warc_records import Broken, Headers, Record, records
from curator_text.read.warc_tape import Tape

SUFFIXES = tuple(f"{kind}{packed}" for kind in (".warc", ".wet") for packed in ("", ".gz", ".zst"))
TYPES = ["text/html", "application/xhtml+xml", "text/plain"]
SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("url", pa.string()), ("date", pa.string()),
                    ("status", pa.int32()), ("content_type", pa.string()), ("charset", pa.string()),
                    ("html", pa.binary()), ("salvaged", pa.string())])
_DOCUMENTS = frozenset(("response", "resource", "conversion"))
_ABOUT_DOCUMENTS = frozenset(("request", "metadata", "warcinfo", "revisit"))
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';]+)""", re.IGNORECASE)


@dataclass(kw_only=True)
class Warc(Source):
    """Read the pages of web archives: `.warc` and `.wet` files, plain, `.gz` or `.zst`.

    A row is a response, a `resource`, or a `conversion` (which WET files hold); records of other types
    (request, metadata, warcinfo, revisit) are about these and are not rows. Columns: `id` (WARC-Record-ID,
    else a hash of file and place), `source` (the archive), `url`, `date` (as in the archive), `status` (null
    if not HTTP), `content_type`, `charset` (as the server says, null if it does not), `html` (the bytes of
    the body, its codings undone; of plain text too), `salvaged` (how the body was read although it is
    labelled wrongly or cut off by the crawler, else null).

    Records with another status or type leave on `dropped` without their body, reason `status`, `content_type`
    or `too_large`. What cannot be read is on `failed` with the id `file@place` (a byte of the file, which is
    also in the column `offset`, and `+n` for n bytes into the uncompressed gzip member). Whatever the damage,
    reading goes on at the next record. A record that is cut off is failed, unless the crawler says that it
    cut it (WARC-Truncated).

    `path`: files, folders, globs or URLs, one or several. `storage_options`: what the filesystem wants (keys,
    endpoint). `statuses`: HTTP codes to keep, None for all. `content_types`: types to keep, where `*` stands
    for anything (`text/*`), None for all; where the server says none, HTML is known by its first tag.
    `max_record_bytes`: largest record, as it stands and decompressed. `unit_bytes`: about how much is read,
    and done again after a crash, as one; an archive is never split.
    """

    path: str | list[str] = setting()
    storage_options: dict[str, Any] | None = setting(default=None)
    statuses: list[int] | None = field(default_factory=lambda: [200])
    content_types: list[str] | None = field(default_factory=lambda: list(TYPES))
    max_record_bytes: int = 1 << 25
    unit_bytes: int = setting(default=TARGET_BYTES)

    def __post_init__(self) -> None:
        for name in ("max_record_bytes", "unit_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    def contract(self) -> Contract:
        return Contract(adds={column.name: column.type for column in SCHEMA})

    def units(self) -> list[Unit]:
        return plan_units(list_files(self.path, self.storage_options, SUFFIXES), self.unit_bytes)

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows, seen = Rows(SCHEMA), set()
        for part in unit.parts:
            try:
                with open_input(part.uri, self.storage_options, compression=None) as file:
                    for record in records(Tape(file), _is_document, self.max_record_bytes):
                        self._add(rows, part.uri, record, seen)
                        if rows.full():
                            yield rows.take()
            except InputError as error:
                if not is_lasting(error):
                    raise
                rows.fail({"id": part.uri, "source": part.uri}, error)
        if rows:
            yield rows.take()

    def _add(self, rows: Rows, uri: str, record: Record | Broken, seen: set[str]) -> None:
        """The row of a record, on the port where it belongs."""
        headers = record.headers
        row = {"id": f"{uri}@{record.place}", "source": uri, "date": headers.get("warc-date"),
               "url": headers.get("warc-target-uri", "").strip("<>") or None}
        try:
            if isinstance(record, Broken):
                raise ValueError(record.why)
            reason = self._read_page(record, row)
        except ValueError as error:
            rows.fail(row | {"offset": int(record.place.partition("+")[0])}, error)
            return
        row["id"] = _record_id(headers, row["id"], seen)
        if reason:
            rows.add("dropped", row | {"reason": reason})
        else:
            rows.add("out", row)

    def _read_page(self, record: Record, row: dict[str, Any]) -> str:
        """Fill in what the record holds; why it is not wanted, "" if it is."""
        if record.block is None:
            return "too_large"
        headers, body = record.headers, record.block
        kind = headers.get("warc-type", "").lower()
        if kind not in _DOCUMENTS or "warc-segment-number" in headers:
            raise ValueError(f"a record of the type {kind!r}, or in several segments, cannot be read")
        page = headers
        if "application/http" in headers.get("content-type", "").lower() or body.startswith(b"HTTP/"):
            row["status"], page, body = parse_response(body)
            if self.statuses is not None and row["status"] not in self.statuses:
                return "status"
        stated = page.get("content-type", "")
        if stated and not self._wants(row, stated):
            return "content_type"
        if page is not headers:
            try:
                body, flaw = decode_body(page, body, self.max_record_bytes, "warc-truncated" in headers)
            except TooLarge:
                return "too_large"
            cut = headers.get("warc-truncated")
            row["salvaged"] = "; ".join(filter(None,
                                               (cut and f"cut off by the crawler ({cut})", flaw))) or None
        if not stated and not self._wants(row, "text/html" if looks_like_html(body) else ""):
            return "content_type"
        row["html"] = body
        return ""

    def _wants(self, row: dict[str, Any], stated: str) -> bool:
        kind = stated.partition(";")[0].strip().lower()
        charset = _CHARSET.search(stated)
        row |= {"content_type": kind or None, "charset": charset[1].lower() if charset else None}
        return self.content_types is None or any(fnmatch(kind, wanted.lower())
                                                 for wanted in self.content_types)


def _is_document(headers: Headers) -> bool:
    return headers.get("warc-type", "").lower() not in _ABOUT_DOCUMENTS


def _record_id(headers: Headers, place: str, seen: set[str]) -> str:
    """The archive's own id, or a hash of the place where there is none or the unit has it already."""
    found = headers.get("warc-record-id", "").strip("<> ")
    if not found or found in seen:
        found = xxhash.xxh3_64_hexdigest(place.encode())
    seen.add(found)
    return found
