"""Where single pages lie in the archives of Common Crawl: its index server, and its index as Parquet.

Source: https://index.commoncrawl.org (pywb's CDX server,
https://pywb.readthedocs.io/en/latest/manual/cdxserver_api.html); https://commoncrawl.org/columnar-index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curator import sql
from curator.api.errors import InputError
from curator_text.get.web import Web, joined

PIECE_BYTES = 1 << 20  # of the Parquet index in one request: columns are read here and there
_WANTED = ("url", "content_languages", "content_digest", "warc_filename", "warc_record_offset",
           "warc_record_length")
_LANGUAGE = re.compile(r"[a-z]{3}$")
_WWW = re.compile(r"www\d*\.")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a page lies. `digest`: of its content, as the crawler computed it; None where it is not told."""

    filename: str
    offset: int
    length: int
    url: str
    digest: str | None = None
    languages: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A line of the index that cannot be read. `at`: its number from 1."""

    at: int
    why: str


# -- the index server ----------------------------------------------------------------------------------------


def query(pattern: str, statuses: Sequence[int] | None, languages: Sequence[str] | None,
          filters: Sequence[str]) -> str:
    """The parameters by which the server is asked for a pattern, without a page.

    A filter is `field:text` (contains), `=field:text` (equals) or `~field:expression` (from the beginning),
    with `!` in front for the opposite.
    """
    words = [("url", pattern), ("output", "json")]
    if statuses is not None:
        words.append(("filter", f"~status:({'|'.join(map(str, statuses))})$"))
    if languages:
        words.append(("filter", f"~languages:({'|'.join(languages)})(,|$)"))
    return urlencode([*words, *(("filter", one) for one in filters)])


def page_urls(web: Web, index_url: str, snapshot: str, asked: str) -> list[str]:
    """A URL for each page of the answer; [] where the index has nothing of the pattern."""
    url = joined(index_url, f"{snapshot}-index?{asked}")
    try:
        said = json.loads(web.content(f"{url}&showNumPages=true"))
        pages = said["pages"] if isinstance(said, dict) else said
        return [f"{url}&page={page}" for page in range(int(pages))]
    except InputError as error:
        if _is_not_found(error):
            return []
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{url} does not say how many pages there are: {error}") from error


def places_of_page(web: Web, url: str) -> Iterator[Place | Unreadable]:
    """What a page of the server's answer names. The server says 404 where filters leave nothing of a page."""
    try:
        lines = web.content(url).decode("utf-8", "replace").splitlines()
    except InputError as error:
        if _is_not_found(error):
            return
        raise
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            # the server's own lines are bare JSON; those of an index file have key and time in front
            entry = json.loads(line[line.index("{"):])
            yield Place(filename=entry["filename"], offset=int(entry["offset"]), length=int(entry["length"]),
                        url=entry["url"], digest=entry.get("digest"), languages=entry.get("languages"))
        except (ValueError, KeyError, TypeError) as error:
            yield Unreadable(at=at, why=f"no line of an index: {type(error).__name__}: {error}")


def _is_not_found(error: InputError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


# -- the index as Parquet ------------------------------------------------------------------------------------


def places_of_table(web: Web, url: str, patterns: Sequence[str], where: str | None,
                    share: tuple[float, float]) -> Iterator[Place]:
    """What a file of the index has of these patterns and this condition; row groups whose statistics say that
    they have nothing are not read. `share`: from and up to which part of its row groups, 0 to 1.

    Raises: InputError: it is no such file. RecipeError: the condition does not fit its columns.
    """
    ranges = [surt_ranges(pattern) for pattern in patterns]
    with web.open(url, piece_bytes=PIECE_BYTES) as file:
        try:
            parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
            missing = {*_WANTED, "url_surtkey"} - set(parquet.schema_arrow.names)
            if missing:
                raise InputError(f"{url} is no index of a crawl: it has no column {min(missing)}")
            columns = sorted({"url_surtkey"} | (sql.columns_of(where) if where else set()))
            count = parquet.num_row_groups
            for group in (at for at in range(count) if share[0] <= at / count < share[1]):
                if not patterns or _may_have(parquet, group, ranges):
                    found = _rows(parquet, group, columns, ranges, where)
                    yield from (Place(filename=row["warc_filename"], offset=row["warc_record_offset"],
                                      length=row["warc_record_length"], url=row["url"],
                                      digest=row["content_digest"], languages=row["content_languages"])
                                for row in found)
        except pa.ArrowException as error:
            raise InputError(f"{url} cannot be read as Parquet: {error}") from error


def condition(statuses: Sequence[int] | None, languages: Sequence[str] | None,
              where: str | None) -> str | None:
    """One condition in SQL over the columns of the index."""
    parts = []
    if statuses is not None:
        parts.append(f"fetch_status IN ({', '.join(map(str, statuses))})")
    if languages:
        parts.append(f"split_part(content_languages, ',', 1) IN ({', '.join(map(repr, languages))})")
    if where:
        parts.append(f"({where})")
    return " AND ".join(parts) or None


def check_languages(languages: Sequence[str]) -> None:
    """Refuse what is no code as the index has it.

    Raises:
        ValueError: one is no three letters.
    """
    for code in languages:
        if not _LANGUAGE.match(code):
            raise ValueError("languages are codes of three letters as the index has them (deu, zho), got "
                             f"{code!r}")


def surt_ranges(pattern: str) -> list[tuple[str, str]]:
    """The keys of the index that a pattern means, as ranges from and up to: `*.host` a domain with all below
    it, what ends in `*` what begins so, else one page.

    Keys have the host's parts turned round, without www: `com,example)/path`. Source: pywb's and the index's
    SURT.
    """
    domain, prefix = pattern.startswith("*."), pattern.endswith("*")
    bare = pattern.removeprefix("*.").removesuffix("*")
    parts = urlsplit(bare if "://" in bare else f"http://{bare}")
    host = (parts.hostname or "").lower()
    host = host if domain else _WWW.sub("", host, count=1)
    key = ",".join(reversed(host.split(".")))
    if domain:
        return [(f"{key})", f"{key})\U0010ffff"), (f"{key},", f"{key},\U0010ffff")]
    query_part = f"?{parts.query}" if parts.query else ""
    key = f"{key}){(parts.path or '/')}{query_part}".lower()
    return [(key, f"{key}\U0010ffff")] if prefix else [(key, key + "\0")]


def _may_have(parquet: pq.ParquetFile, group: int, ranges: list[list[tuple[str, str]]]) -> bool:
    metadata = parquet.metadata.row_group(group)
    at = parquet.schema_arrow.names.index("url_surtkey")
    known = metadata.column(at).statistics
    if known is None or not known.has_min_max:
        return True
    return any(known.min < stop and known.max >= start for some in ranges for start, stop in some)


def _rows(parquet: pq.ParquetFile, group: int, columns: list[str], ranges: list[list[tuple[str, str]]],
          where: str | None) -> list[dict]:
    """The rows of a group that are wanted; the columns of places are read only where there are some."""
    table = parquet.read_row_group(group, columns=columns)
    mask = pa.array([True] * len(table))
    if ranges:
        key = table["url_surtkey"].combine_chunks()
        mask = pa.array([False] * len(table))
        for start, stop in (one for some in ranges for one in some):
            mask = pc.or_(mask, pc.and_(pc.greater_equal(key, start), pc.less(key, stop)))
    if where:
        wanted = sql.evaluate({"wanted": where}, table)
        mask = pc.and_(mask, pc.is_valid(wanted))
    if not pc.any(mask).as_py():
        return []
    return parquet.read_row_group(group, columns=list(_WANTED)).filter(mask).to_pylist()
