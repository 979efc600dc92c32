"""From the records of web archives to rows: what is a page, what is not wanted, what cannot be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import pyarrow as pa
import xxhash

from curator_text.read.http_payload import TooLarge, decode_body, looks_like_html, parse_response
from curator_text.read.rows import Rows
from curator_text.read.warc_records import Broken, Headers, Record

TYPES = ["text/html", "application/xhtml+xml", "text/plain"]
SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("url", pa.string()), ("date", pa.string()),
                    ("status", pa.int32()), ("content_type", pa.string()), ("charset", pa.string()),
                    ("html", pa.binary()), ("salvaged", pa.string())])
DOCUMENTS = frozenset(("response", "resource", "conversion"))
_ABOUT_DOCUMENTS = frozenset(("request", "metadata", "warcinfo", "revisit"))
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';]+)""", re.IGNORECASE)


@dataclass(kw_only=True)
class Pages:
    """Makes rows of the records of a unit; the parameters are those of `Warc`. `kinds`: the types of records
    that can be read."""

    statuses: Sequence[int] | None
    content_types: Sequence[str] | None
    max_record_bytes: int
    kinds: frozenset[str] = DOCUMENTS
    seen: set[str] = field(default_factory=set)  # ids of records that were rows

    def add(self, rows: Rows, uri: str, record: Record | Broken, more: dict[str, Any] | None = None) -> None:
        """The row of a record, on the port where it belongs. `more`: further columns."""
        headers = record.headers
        row = {"id": f"{uri}@{record.place}", "source": uri, "date": headers.get("warc-date"),
               "url": headers.get("warc-target-uri", "").strip("<>") or None, **(more or {})}
        try:
            if isinstance(record, Broken):
                raise ValueError(record.why)
            reason = self._read_page(record, row)
        except ValueError as error:
            rows.fail(row | {"offset": int(record.place.partition("+")[0])}, error)
            return
        row["id"] = self._record_id(headers, row["id"])
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
        if kind not in self.kinds or "warc-segment-number" in headers:
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

    def _record_id(self, headers: Headers, place: str) -> str:
        """The archive's own id, or a hash of the place where there is none or the unit has it already."""
        found = headers.get("warc-record-id", "").strip("<> ")
        if not found or found in self.seen:
            found = xxhash.xxh3_64_hexdigest(place.encode())
        self.seen.add(found)
        return found


def is_document(headers: Headers) -> bool:
    """Whether a record is one that `Pages` makes a row of."""
    return headers.get("warc-type", "").lower() not in _ABOUT_DOCUMENTS
