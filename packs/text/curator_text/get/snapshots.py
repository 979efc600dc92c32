"""What Common Crawl has: crawls by name, and the files of each.

Source: https://commoncrawl.org/get-started; https://index.commoncrawl.org/collinfo.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from curator.api.errors import InputError
from curator_text.get.web import Web, joined

# Kinds of files that a crawl lists, and about how large one is, for the share of a run that is done.
FILE_BYTES = {"warc": 1_100_000_000, "wet": 100_000_000, "wat": 350_000_000, "robotstxt": 2_000_000,
              "non200responses": 30_000_000}
_MAIN = re.compile(r"CC-MAIN-\d{4}(-[\w-]+)?$")
_NEWS = re.compile(r"CC-NEWS-(\d{4})-(0[1-9]|1[0-2])$")
_SHORT = re.compile(r"\d{4}-\d{2}$")


def check_name(given: str) -> None:
    """Refuse what names no crawl.

    Raises:
        ValueError: it is none of the names that `named` knows.
    """
    first, dots, last = given.partition("..")
    ends = [_full(end) for end in ((first, last) if dots else (first,))]
    news = [bool(_NEWS.match(end)) for end in ends]
    if given != "latest" and not all(_MAIN.match(end) or _NEWS.match(end) for end in ends):
        raise ValueError(f"{given!r} names no crawl: write CC-MAIN-2024-10, CC-NEWS-2024-03, a range such as "
                         "CC-MAIN-2023-50..CC-MAIN-2024-10, or latest")
    if any(news) != all(news) or ends != sorted(ends):
        raise ValueError(f"{given!r} is no range: both ends are of one kind, the earlier one first")


def named(given: Sequence[str], web: Web, index_url: str) -> list[str]:
    """The crawls that names, ranges and `latest` mean, each once, in the order given.

    Raises:
        InputError: a range has none, or the list of crawls cannot be read.
    """
    found: dict[str, None] = {}
    known: list[str] = []
    for one in given:
        first, dots, last = one.partition("..")
        if _NEWS.match(first):
            found.update(dict.fromkeys(_months(first, last) if dots else [first]))
            continue
        if (dots or one == "latest") and not known:
            known = _collections(web, index_url)
        some = known[-1:] if one == "latest" else [_full(first)]
        if dots:
            some = [name for name in known if _full(first) <= name <= _full(last)]
            if not some:
                raise InputError(f"there is no crawl in {one}: the list at {index_url} goes from {known[0]} "
                                 f"to {known[-1]}")
        found.update(dict.fromkeys(some))
    return list(found)


def file_paths(web: Web, base_url: str, snapshot: str, kind: str) -> list[str]:
    """The paths of a crawl's files of a kind (`warc`, `wet`, `cc-index-table`, …), in the order of its list.

    Raises:
        InputError: the list cannot be read or is empty.
    """
    news = _NEWS.match(snapshot)
    folder = f"CC-NEWS/{news[1]}/{news[2]}" if news else snapshot
    url = joined(base_url, f"crawl-data/{folder}/{kind}.paths.gz")
    found = [line.strip() for line in web.lines(url) if line.strip()]
    if not found:
        raise InputError(f"{url} lists no file")
    return found


def spread(paths: list[str], count: int | None) -> list[str]:
    """So many of the paths, at equal distances: lists are in the order of the crawl's segments, which are
    alike."""
    if count is None or count >= len(paths):
        return paths
    return [paths[at * len(paths) // count] for at in range(count)]


def _collections(web: Web, index_url: str) -> list[str]:
    """The main crawls that there are, the oldest first."""
    url = joined(index_url, "collinfo.json")
    try:
        found = [entry["id"] for entry in json.loads(web.content(url))]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{url} is no list of crawls: {error}") from error
    if not found:
        raise InputError(f"{url} lists no crawl")
    return sorted(found)


def _full(name: str) -> str:
    return f"CC-MAIN-{name}" if _SHORT.match(name) else name


def _months(first: str, last: str) -> list[str]:
    begin, end = (int(year) * 12 + int(month) - 1 for year, month in
                  (found.groups() for found in map(_NEWS.match, (first, last)) if found is not None))
    return [f"CC-NEWS-{at // 12}-{at % 12 + 1:02}" for at in range(begin, end + 1)]
