"""Pages from web archives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from curator.api.stage import Contract, Outputs, SourceRange, Unit
from curator.io.files.folder import open_input
from curator.io.source import PathSource
from curator.io.units import plan_units
from curator_text.read.rows import Rows, read_parts
from curator_text.read.warc_pages import SCHEMA, TYPES, Pages, is_document
from curator_text.read.warc_records import records
from curator_text.read.warc_tape import Tape

SUFFIXES = tuple(f"{kind}{packed}" for kind in (".warc", ".wet") for packed in ("", ".gz", ".zst"))


@dataclass(kw_only=True)
class Warc(PathSource):
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

    statuses: list[int] | None = field(default_factory=lambda: [200])
    content_types: list[str] | None = field(default_factory=lambda: list(TYPES))
    max_record_bytes: int = 1 << 25

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_record_bytes")

    def contract(self) -> Contract:
        return Contract(adds={column.name: column.type for column in SCHEMA})

    def units(self) -> list[Unit]:
        return plan_units(self.found(SUFFIXES), self.unit_bytes)

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(SCHEMA)
        pages = Pages(statuses=self.statuses, content_types=self.content_types,
                      max_record_bytes=self.max_record_bytes)

        def archive(part: SourceRange) -> Iterator[None]:
            with open_input(part.uri, self.storage_options, compression=None) as file:
                for record in records(Tape(file), is_document, self.max_record_bytes):
                    pages.add(rows, part.uri, record)
                    yield

        yield from read_parts(unit, rows, archive)
