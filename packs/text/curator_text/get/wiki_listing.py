"""Which files a dump of a wiki has.

Source: https://meta.wikimedia.org/wiki/Data_dumps; https://dumps.wikimedia.org/other/enterprise_html/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo
from curator_text.get.web import Web, joined

JOB = "articlesmultistreamdump"
RUNS = "other/enterprise_html/runs"
_DATES = re.compile(r'href="(\d{8})/"')
_XML = re.compile(r"-pages-articles-multistream\d*\.xml(-p\d+p\d+)?\.bz2$")
_HTML_BYTES = 2 << 30  # about; their sizes stand nowhere but in a page for people
# Where the pages of a wiki are, by the end of its name
_SITES = (("wiktionary", "wiktionary.org"), ("wikibooks", "wikibooks.org"), ("wikiquote", "wikiquote.org"),
          ("wikisource", "wikisource.org"), ("wikinews", "wikinews.org"), ("wikiversity", "wikiversity.org"),
          ("wikivoyage", "wikivoyage.org"), ("wiki", "wikipedia.org"))
_NO_LANGUAGES = frozenset((
    "commons", "wikidata", "species", "meta", "mediawiki", "incubator", "outreach", "foundation"))


def full_name(wiki: str) -> str:
    """`de` -> `dewiki`; a name with `wik` in it stays."""
    return wiki if "wik" in wiki else f"{wiki.replace('-', '_')}wiki"


def multistream_files(web: Web, base_url: str, wiki: str, date: str) -> list[FileInfo]:
    """The files of a multistream dump, with their sizes.

    Raises:
        InputError: there is none of that date, or it is not finished.
    """
    if date != "latest":
        return _finished(web, base_url, wiki, date)
    refused = ""
    for found in _dates(web, joined(base_url, f"{wiki}/")):
        try:
            return _finished(web, base_url, wiki, found)
        except InputError as error:  # the newest one is often under way
            refused = f"; the last one looked at: {error}"
    raise InputError(f"{joined(base_url, wiki)}/ has no finished dump{refused}")


def html_files(web: Web, base_url: str, wiki: str, date: str, namespaces: Sequence[int]) -> list[FileInfo]:
    """The files of the HTML dumps, one a namespace."""
    runs = joined(base_url, RUNS)
    if date == "latest":
        dates = _dates(web, f"{runs}/")
        if not dates:
            raise InputError(f"{runs}/ lists no run")
        date = dates[0]
    names = [f"{date}/{wiki}-NS{number}-{date}-ENTERPRISE-HTML.json.tar.gz" for number in namespaces]
    return [FileInfo(joined(runs, name), _HTML_BYTES, date) for name in names]


def wiki_of(path: str) -> str:
    """The wiki that a dump is of, by the name of its file."""
    return path.rpartition("/")[2].partition("-")[0].partition(".")[0]


def address(wiki: str, title: str) -> str | None:
    """Where a page can be read; None for wikis whose address does not follow from their name."""
    for ending, site in _SITES:
        language = wiki.removesuffix(ending)
        if language != wiki:
            if not language or language in _NO_LANGUAGES:
                return None
            return f"https://{language.replace('_', '-')}.{site}/wiki/{title.replace(' ', '_')}"
    return None


def _finished(web: Web, base_url: str, wiki: str, date: str) -> list[FileInfo]:
    url = joined(base_url, f"{wiki}/{date}/dumpstatus.json")
    try:
        job = json.loads(web.content(url))["jobs"][JOB]
        if job["status"] != "done":
            raise InputError(f"{url}: the job {JOB} is not done but {job['status']!r}; take an earlier date")
        files = [FileInfo(joined(base_url, entry.get("url") or f"{wiki}/{date}/{name}"), int(entry["size"]),
                          entry.get("sha1") or entry.get("md5") or "")
                 for name, entry in sorted(job["files"].items()) if _XML.search(name)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{url} does not tell the files of the job {JOB}: {type(error).__name__}: "
                         f"{error}") from error
    if not files:
        raise InputError(f"{url}: the job {JOB} has no file of pages")
    return files


def _dates(web: Web, url: str) -> list[str]:
    """The dates that a folder's page links to, the newest first."""
    return sorted(set(_DATES.findall(web.content(url).decode("utf-8", "replace"))), reverse=True)
