"""Pages of Common Crawl: whole archives, or single pages that an index names."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa

from curator import sql
from curator.api.errors import InputError
from curator.api.resources import Resources
from curator.api.stage import Contract, Outputs, SourceRange, Unit, setting
from curator_text.get import crawl_index
from curator_text.get.crawl_index import Place, Unreadable
from curator_text.get.digests import verified
from curator_text.get.snapshots import FILE_BYTES, check_name, file_paths, named, spread
from curator_text.get.web import Web, WebSource, joined
from curator_text.read.rows import Rows, read_parts
from curator_text.read.warc_pages import DOCUMENTS, SCHEMA, TYPES, Pages, is_document
from curator_text.read.warc_records import Broken, Headers, Record, records
from curator_text.read.warc_tape import Tape

CRAWL_SCHEMA = pa.schema([*SCHEMA, ("snapshot", pa.string()), ("languages", pa.string())])
_INDEX_BYTES = 100_000  # about how much of the index a page of its answer is
_TABLE_BYTES = 1_000_000_000  # about; a share of the row groups is a share of these
_SHARES = 8
_ABOUT = re.compile(rb'"WARC-Type"\s*:\s*"(\w+)"')


@dataclass(kw_only=True)
class CommonCrawl(WebSource):
    """Read pages of Common Crawl from its servers or a mirror: whole archives, or those pages that its index
    has of some hosts or languages.

    Columns: those of `text.warc` (`source` is the archive's address), `snapshot` (the crawl), `languages`
    (codes as the crawler detected them, `deu,eng`; from the index, and in WET files; else null). What cannot
    be read, is cut off, or has not the digest that its header or the index states, is on `failed` with its
    place; so is an archive that the server does not have. Servers that are busy or away are asked again; in
    the end that fails too.

    `snapshots`: crawls, such as `CC-MAIN-2024-10` (also `2024-10`), `CC-NEWS-2024-03`, ranges
    (`CC-MAIN-2023-50..CC-MAIN-2024-10`), or `latest`, which is another one next month. `kind` of archives:
    `warc` (pages), `wet` (their text), `wat` (what is known of each page, as JSON in `html`), `robotstxt` (the
    robots.txt of hosts, whatever the status), `non200responses`. `files`: so many of each crawl, evenly spread over its list; null for all.

    `urls`: only pages like these, as the index knows them: `*.example.org` a domain with all below it,
    `example.org/news/*` what begins so, `example.org/a` one page. Patterns must not overlap, or pages come
    twice. `languages`: only pages whose first language is one of these (`deu`: ISO 639-3). `index`: which one
    is asked: `api`, the index server, page by page; or `table`, Parquet files, which know `languages` without
    `urls`, and `where`, a condition in SQL over its columns (`content_mime_detected = 'text/html'`).
    `filters`: of the server's own, `=mime-detected:text/html`. Either is asked where one of these is given.
    Pages are then read one by one.

    `statuses`, `content_types`, `max_record_bytes`: as in `text.warc`. `base_url`, `index_url`: where crawls
    and index lie, a mirror, a folder, or `s3://commoncrawl` (which wants credentials). `contact`,
    `connections`, `delay_s`, `retries`, `backoff_s`, `private`, `storage_options`: see docs/text-get.md.

    A unit, what is done again after a crash, is an archive, a page of the server's answer, or an eighth of the
    row groups of a Parquet file (with `urls`, which few of them have, the file).

    Source: https://commoncrawl.org/get-started.
    """

    snapshots: str | list[str] = setting()
    kind: str = "warc"
    files: int | None = setting(default=None)
    urls: list[str] | None = setting(default=None)
    languages: list[str] | None = setting(default=None)
    index: str = setting(default="api")
    where: str | None = setting(default=None)
    filters: list[str] = setting(default_factory=list)
    statuses: list[int] | None = field(default_factory=lambda: [200])
    content_types: list[str] | None = field(default_factory=lambda: list(TYPES))
    max_record_bytes: int = 1 << 25
    base_url: str = setting(default="https://data.commoncrawl.org")
    index_url: str = setting(default="https://index.commoncrawl.org")

    # It waits more than it computes: a few readers share a core.
    resources = Resources(cpus=0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.snapshots = [self.snapshots] if isinstance(self.snapshots, str) else self.snapshots
        for name in ("urls", "languages", "filters", "snapshots"):
            given = getattr(self, name)
            is_list = isinstance(given, list) and all(isinstance(one, str) for one in given)
            if given is not None and not is_list:
                raise ValueError(f"{name} must be a list of texts, got {given!r}")
        if not self.snapshots or self.urls == []:
            raise ValueError("snapshots and urls, where they are given, must name something")
        for snapshot in self.snapshots:
            check_name(snapshot)
        if self.kind not in FILE_BYTES:
            raise ValueError(f"kind must be one of {', '.join(FILE_BYTES)}, got {self.kind!r}")
        self.at_least(1, "max_record_bytes", "files")
        self._check_index()

    def _check_index(self) -> None:
        crawl_index.check_languages(self.languages or [])
        if self.index not in ("api", "table"):
            raise ValueError(f"index must be api or table, got {self.index!r}")
        if self.where is not None and self.index == "api":
            raise ValueError("where is a condition over the Parquet index: add index: table")
        if self.filters and self.index == "table":
            raise ValueError("filters are the index server's: with index: table write a condition as where")
        if self.index == "api" and not self.urls and (self.languages or self.filters):
            raise ValueError("the index server wants urls; for a language alone add index: table")
        if self.where is not None:
            sql.columns_of(self.where)
        if self._asks_index and (self.kind != "warc" or any("CC-NEWS" in one for one in self.snapshots)):
            raise ValueError("there is an index of kind: warc of the main crawls (CC-MAIN) only")

    @property
    def _asks_index(self) -> bool:
        return bool(self.urls or self.languages or self.filters or self.where)

    def contract(self) -> Contract:
        return Contract(adds={column.name: column.type for column in CRAWL_SCHEMA})

    def units(self) -> list[Unit]:
        with self.web() as web:
            found = [unit for snapshot in named(self.snapshots, web, self.index_url)
                     for unit in self._units_of(web, snapshot)]
        if not found:
            raise InputError(f"the index has nothing of {', '.join(self.urls or ['what is wanted'])} in "
                             f"{', '.join(self.snapshots)}")
        return found

    def _units_of(self, web: Web, snapshot: str) -> list[Unit]:
        if not self._asks_index:
            paths = spread(file_paths(web, self.base_url, snapshot, self.kind), self.files)
            return [_unit(joined(self.base_url, path), FILE_BYTES[self.kind]) for path in paths]
        if self.index == "api":
            asked = [crawl_index.query(url, self.statuses, self.languages, self.filters)
                     for url in self.urls or []]
            return [_unit(page, _INDEX_BYTES) for one in asked
                    for page in crawl_index.page_urls(web, self.index_url, snapshot, one)]
        listed = file_paths(web, self.base_url, snapshot, "cc-index-table")
        paths = spread([path for path in listed if "/subset=warc/" in path], self.files)
        asked_for = repr((sorted(self.urls or []), self._condition())).encode()
        wanted = hashlib.blake2b(asked_for, digest_size=8).hexdigest()
        shares = pairwise(_TABLE_BYTES * at // _SHARES for at in range(_SHARES + 1))
        cuts: list[tuple[int, int | None]] = [(0, None)] if self.urls else list(shares)
        return [Unit((SourceRange(uri=joined(self.base_url, path), size_bytes=_TABLE_BYTES, version=wanted,
                                  start=start, stop=stop),))
                for path in paths for start, stop in cuts]

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(CRAWL_SCHEMA)
        types = ["application/json"] if self.kind == "wat" else self.content_types
        pages = Pages(statuses=self.statuses if self.kind in ("warc", "wet") else None, content_types=types,
                      max_record_bytes=self.max_record_bytes,
                      kinds=frozenset(("metadata",)) if self.kind == "wat" else DOCUMENTS)
        reading = self._read_places if self._asks_index else self._read_archive
        with self.web() as web:
            yield from read_parts(unit, rows, lambda part: reading(web, part, rows, pages))

    def _read_archive(self, web: Web, part: SourceRange, rows: Rows, pages: Pages) -> Iterator[None]:
        """Add the pages of a whole archive, one at a time."""
        wanted = _is_known if self.kind == "wat" else is_document
        with web.open(part.uri) as file:
            for record in records(Tape(file), wanted, self.max_record_bytes):
                if self.kind == "wat" and isinstance(record, Record) and not _is_of_page(record):
                    continue
                more = {"snapshot": _snapshot_of(part.uri),
                        "languages": record.headers.get("warc-identified-content-language")}
                pages.add(rows, part.uri, verified(record), more)
                yield

    def _read_places(self, web: Web, part: SourceRange, rows: Rows, pages: Pages) -> Iterator[None]:
        """Add the pages that a piece of the index names, one at a time."""
        if self.index == "api":
            found: Iterator[Place | Unreadable] = crawl_index.places_of_page(web, part.uri)
        else:
            share = (part.start / _TABLE_BYTES, (part.stop or _TABLE_BYTES) / _TABLE_BYTES)
            found = crawl_index.places_of_table(web, part.uri, self.urls or [], self._condition(), share)
        for place in found:
            if isinstance(place, Unreadable):
                rows.fail({"id": f"{part.uri}@{place.at}", "source": part.uri}, ValueError(place.why))
            else:
                self._add_page(web, place, rows, pages)
            yield

    def _add_page(self, web: Web, place: Place, rows: Rows, pages: Pages) -> None:
        """The page that lies at a place of an archive."""
        archive = joined(self.base_url, place.filename)
        more = {"snapshot": _snapshot_of(archive), "languages": place.languages}
        try:
            if not 0 < place.length <= self.max_record_bytes:
                raise ValueError(f"a record of {place.length} bytes is not read (max_record_bytes)")
            data = web.part(archive, place.offset, place.offset + place.length)
            if len(data) < place.length:
                raise ValueError(f"the archive has {len(data)} of the record's {place.length} bytes")
            found = list(records(Tape(io.BytesIO(data)), is_document, self.max_record_bytes))
            if len(found) != 1:
                raise ValueError(f"{len(found)} pages lie where the index names one")
            stated = found[0].headers.get("warc-target-uri", "").strip("<>")
            if stated and stated != place.url:
                raise ValueError(f"another page lies there: {stated}")
        except (InputError, ValueError) as error:  # the others may be had
            rows.fail({"id": f"{archive}@{place.offset}", "source": archive, "url": place.url, **more,
                       "offset": place.offset}, error)
            return
        record = verified(found[0], place.digest)
        pages.add(rows, archive, _moved(record, place.offset), more)

    def _condition(self) -> str | None:
        return crawl_index.condition(self.statuses, self.languages, self.where)


def _unit(uri: str, size_bytes: int) -> Unit:
    return Unit((SourceRange(uri=uri, size_bytes=size_bytes),))


def _moved(record: Record | Broken, offset: int) -> Record | Broken:
    """The record with its place in the archive, of which a part was read."""
    place, plus, inside = record.place.partition("+")
    return replace(record, place=f"{int(place) + offset}{plus}{inside}")


def _is_known(headers: Headers) -> bool:
    """Whether a record of a WAT file is about a record of an archive."""
    return headers.get("warc-type", "").lower() == "metadata"


def _is_of_page(record: Record) -> bool:
    """Whether a record of a WAT file is about a response. There is one as well about each request, about what
    the crawler noted, and about the archive. Quotes within JSON's texts have a backslash, so this is a key."""
    told = _ABOUT.search(record.block or b"")
    return told is None or told[1] in (b"response", b"resource", b"revisit")


def _snapshot_of(path: str) -> str | None:
    """The crawl in the path of an archive: `…/crawl-data/CC-MAIN-2024-10/segments/…`, `…/CC-NEWS/2024/03/…`.
    """
    parts = path.rpartition("crawl-data/")[2].split("/")
    if parts[0] == "CC-NEWS":
        return "-".join(parts[:3])
    return parts[0] if parts[0].startswith("CC-MAIN-") else None
