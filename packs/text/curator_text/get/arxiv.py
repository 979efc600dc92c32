"""Papers of arXiv, from its archives of what their authors sent."""

from __future__ import annotations

import hashlib
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Contract, Outputs, SourceRange, Unit, setting
from curator.io.files.folder import FileInfo, list_files
from curator.io.media.tar import Damage, Member, TarReader
from curator.io.units import TARGET_BYTES, plan_units
from curator_text.get.tex_sources import NoPaper, paper
from curator_text.get.web import Web, WebSource, joined
from curator_text.read.rows import Rows, read_parts

MANIFEST = "arXiv_src_manifest.xml"
SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("month", pa.string()),
                    ("url", pa.string()), ("main_file", pa.string()),
                    ("missing_files", pa.list_(pa.string())), ("latex", pa.string())])
_MONTHS = re.compile(r"(\d{2})(0[1-9]|1[0-2])(?:\.\.(\d{2})(0[1-9]|1[0-2]))?$")
_NEW = re.compile(r"(\d{2})(\d{2})\.\d{4,5}(?:v\d+)?$")
_OLD = re.compile(r"([a-z][a-z-]*(?:\.[A-Z]{2})?)((\d{2})(\d{2})\d{3})$")


@dataclass(kw_only=True)
class Arxiv(WebSource):
    """Read papers of arXiv as LaTeX, from its archives of sources (`arXiv_src_2403_001.tar`).

    Columns: `id` (`2403.01234`, `astro-ph/0001001`), `source` (the archive), `month` (`2024-03`, by the id),
    `url` (its page), `main_file` (the file that is compiled), `missing_files` (what it includes and nobody
    sent), `latex` (the main file with all that it includes), of which `text.extract_latex` makes text.

    What is no TeX leaves on `dropped`, reasons `pdf`, `postscript`, `withdrawn`, `no_tex`, `too_large`. What
    is damaged is on `failed` with its place (archive@byte); so is an archive with another MD5 sum than its
    manifest says.

    `months`: `2403` or ranges such as `2401..2403`, looked up in the manifest at `base_url`; or `path`:
    archives at hand. arXiv's own bucket is paid for by who reads it: it wants credentials and
    `storage_options: {requester_pays: true}`. `max_paper_bytes`: largest paper, unpacked and joined.
    `unit_bytes`: about how much is read, and done again after a crash, as one; an archive is never split.
    `contact`, `connections`, `delay_s`, `retries`, `backoff_s`, `private`: see docs/text-get.md.

    Source: https://info.arxiv.org/help/bulk_data_s3.html.
    """

    months: str | list[str] | None = setting(default=None)
    path: str | list[str] | None = setting(default=None)
    base_url: str = setting(default="s3://arxiv/src")
    max_paper_bytes: int = 1 << 26
    unit_bytes: int = setting(default=TARGET_BYTES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.path is None) == (self.months is None):
            raise ValueError("name months, or a path of archives at hand")
        for month in self._months():
            if not _MONTHS.match(month):
                raise ValueError(f"months are 2403 or 2401..2403 (year and month), got {month!r}")
        self.at_least(1, "max_paper_bytes", "unit_bytes")

    def contract(self) -> Contract:
        return Contract(adds={column.name: column.type for column in SCHEMA})

    def units(self) -> list[Unit]:
        if self.path is not None:
            return plan_units(list_files(self.path, self.storage_options, (".tar",)), self.unit_bytes)
        with self.web() as web:
            return plan_units(self._listed(web), self.unit_bytes)

    def _months(self) -> list[str]:
        return [self.months] if isinstance(self.months, str) else self.months or []

    def _listed(self, web: Web) -> list[FileInfo]:
        """The archives of the months, by the manifest."""
        url = joined(self.base_url, MANIFEST)
        wanted = [_range(month) for month in self._months()]
        try:
            entries = [{child.tag: (child.text or "").strip() for child in entry}
                       for entry in ElementTree.fromstring(web.content(url)).iter("file")]
            found = [FileInfo(joined(self.base_url, entry["filename"].rpartition("/")[2]), int(entry["size"]),
                              entry["md5sum"])
                     for entry in entries if any(a <= _year_and_month(entry["yymm"]) <= b for a, b in wanted)]
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise InputError(f"{url} is no manifest of arXiv: {type(error).__name__}: {error}") from error
        if not found:
            raise InputError(f"{url} has no archive of {', '.join(self._months())}")
        return sorted(found, key=lambda file: file.uri)

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(SCHEMA)
        with self.web() as web:
            yield from read_parts(unit, rows, lambda part: self._read_archive(web, part, rows))

    def _read_archive(self, web: Web, part: SourceRange, rows: Rows) -> Iterator[None]:
        """Add the papers of an archive, one at a time."""
        md5 = part.version if self.path is None else None
        with web.open(part.uri, part.size_bytes if self.path is None else None) as file:
            hashed = _Hashed(file)
            tar = TarReader(hashed)
            for member in tar.members():
                if isinstance(member, Damage):
                    rows.fail({"id": f"{part.uri}@{member.offset}", "source": part.uri,
                               "offset": member.offset}, member.error)
                elif member.kind == "file":
                    self._add_paper(rows, part.uri, tar, member)
                yield
            if md5 and md5 != (found := hashed.to_the_end()):
                rows.fail({"id": part.uri, "source": part.uri},
                          ValueError(f"its MD5 sum is {found}, and the manifest says {md5}"))
                yield

    def _add_paper(self, rows: Rows, uri: str, tar: TarReader, member: Member) -> None:
        name, month = named(member.name)
        place = f"{uri}@{member.offset}"
        row: dict[str, Any] = {"id": name or place, "source": uri, "month": month,
                               "url": f"https://arxiv.org/abs/{name}" if name else None}
        try:
            if member.size > self.max_paper_bytes:
                raise NoPaper("too_large")
            data = tar.content()
            if data is None:
                raise ValueError("the archive ends in the middle of it")
            found = paper(member.name, data, self.max_paper_bytes)
            rows.add("out", row | {"main_file": found.main, "missing_files": found.missing,
                                   "latex": found.latex})
        except NoPaper as reason:
            rows.add("dropped", row | {"reason": str(reason)})
        except (ValueError, InputError) as error:
            rows.fail(row | {"id": place, "offset": member.offset}, error)


def named(member: str) -> tuple[str | None, str | None]:
    """The id and the month of a paper, by the name of a member (`2403/2403.01234.gz`,
    `0001/astro-ph0001001.gz`); None where the name is another one."""
    stem = re.sub(r"(?:\.tar)?\.(?:gz|pdf|tex)$", "", member.rpartition("/")[2])
    if found := _NEW.match(stem):
        return stem, "-".join(_year_and_month(found[1] + found[2]))
    if found := _OLD.match(stem):
        return f"{found[1]}/{found[2]}", "-".join(_year_and_month(found[3] + found[4]))
    return None, None


def _year_and_month(yymm: str) -> tuple[str, str]:
    """`9107` -> 1991, 07; arXiv began in 1991."""
    year, month = int(yymm[:2]), yymm[2:4]
    return str(1900 + year if year >= 91 else 2000 + year), month


def _range(months: str) -> tuple[tuple[str, str], tuple[str, str]]:
    first, _, last = months.partition("..")
    return _year_and_month(first), _year_and_month(last or first)


class _Hashed(io.RawIOBase):
    """A file that is read forwards, and the MD5 sum of all of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum = file, hashlib.md5(usedforsecurity=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[:len(data)] = data
        self._sum.update(data)
        return len(data)

    def to_the_end(self) -> str:
        """The sum, with what nobody has read."""
        while data := self._file.read(1 << 20):
            self._sum.update(data)
        return self._sum.hexdigest()
