"""The licence of a text: by an SPDX identifier in it, or by phrases of well-known licences and headers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator.api.errors import RecipeError
from curator_text.code.languages import parse_yaml, read_table

PACKAGED = Path(__file__).with_name("licenses.yaml")
HEADER_CHARS = 6_000  # a header stands at the beginning of a file; the longest, of four clauses, has 2,500
FILE_CHARS = 60_000  # of a LICENSE file
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]{2,120})")
_WORD = re.compile(r"[^a-z0-9]+")
# Names that LICENSE files have: LICENSE, LICENCE.md, COPYING.LESSER, LICENSE-MIT, UNLICENSE.txt.
_FILE_NAME = re.compile(r"(?:un)?licen[sc]es?(?:[-_.][\w.-]{1,30})?|copying(?:[-_.][\w.-]{1,30})?"
                        r"|mit-licen[sc]e(?:\.\w+)?")
_NO_LICENSE_FILE = re.compile(r"\.(?:py|js|ts|c|h|cc|cpp|java|go|rs|rb|php|html|css|json|ya?ml|toml|xml|sh)$")
_OLD = {"GPL-2.0": "GPL-2.0-only", "GPL-2.0+": "GPL-2.0-or-later", "GPL-3.0": "GPL-3.0-only",
        "GPL-3.0+": "GPL-3.0-or-later", "LGPL-2.1": "LGPL-2.1-only", "LGPL-2.1+": "LGPL-2.1-or-later",
        "LGPL-3.0": "LGPL-3.0-only", "LGPL-3.0+": "LGPL-3.0-or-later", "AGPL-3.0": "AGPL-3.0-only",
        "AGPL-3.0+": "AGPL-3.0-or-later", "LGPL-2.0": "LGPL-2.0-only", "LGPL-2.0+": "LGPL-2.0-or-later"}


@dataclass(frozen=True)
class License:
    """`phrases`: lists of which one must occur whole. `unless`: phrases that must not."""

    name: str
    permissive: bool
    phrases: tuple[tuple[str, ...], ...]
    unless: tuple[str, ...] = ()

    def place(self, words: str) -> int | None:
        """Where the first phrase stands of the list that occurs whole, None if none does."""
        if any(phrase in words for phrase in self.unless):
            return None
        return min((words.find(phrases[0]) for phrases in self.phrases
                    if all(phrase in words for phrase in phrases)), default=None)


class Licenses:
    """The licences of a table."""

    def __init__(self, licenses: Sequence[License], permissive: Sequence[str]) -> None:
        self._licenses = licenses
        self._permissive = {name.lower() for name in permissive}
        self._permissive |= {one.name.lower() for one in licenses if one.permissive}

    def in_header(self, text: str) -> tuple[str, str] | None:
        """What the head of a source file says, and by what: `spdx` or `header`; None if nothing."""
        head = text[:HEADER_CHARS]
        if found := _SPDX.search(head):
            expression = " ".join(_OLD.get(word, word) for word in re.findall(r"[()]|[^\s()]+", found[1]))
            return expression.replace("( ", "(").replace(" )", ")"), "spdx"
        if "licen" not in (lowered := head.lower()) and "public domain" not in lowered \
                and "permission" not in lowered and "redistribution" not in lowered:
            return None
        name = self._by_phrases(head)
        return None if name is None else (name, "header")

    def in_file(self, text: str) -> str | None:
        """What a LICENSE file is the text of."""
        return self._by_phrases(text[:FILE_CHARS])

    def is_permissive(self, expression: str) -> bool:
        """Whether one may choose a permissive licence: any of OR, all of AND."""
        inner = expression.strip()
        while (found := re.search(r"\(([^()]*)\)", inner)) is not None:
            stands_for = "MIT" if self.is_permissive(found[1]) else "none"
            inner = inner[:found.start()] + stands_for + inner[found.end():]
        return any(all(self._is_listed(part) for part in choice.split(" AND "))
                   for choice in inner.split(" OR "))

    def _is_listed(self, name: str) -> bool:
        name = name.strip().lower()
        return name in self._permissive or name.partition(" with ")[0] in self._permissive

    def _by_phrases(self, text: str) -> str | None:
        words = _words(text)
        found = [(place, order) for order, one in enumerate(self._licenses)
                 if (place := one.place(words)) is not None]
        return self._licenses[min(found)[1]].name if found else None


def _words(text: str) -> str:
    return _WORD.sub(" ", text.lower()).replace("licence", "license").strip()


def is_license_file(name: str) -> bool:
    """Whether a file's name, without folders, is one that licences have."""
    lowered = name.lower()
    return bool(_FILE_NAME.fullmatch(lowered)) and not _NO_LICENSE_FILE.search(lowered)


def together(found: Mapping[str, str]) -> tuple[str, str] | None:
    """Of the LICENSE files of one folder, name to licence: the licences, of which one may choose (LICENSE-MIT
    and LICENSE-APACHE), and the names."""
    if not found:
        return None
    return " OR ".join(sorted(set(found.values()))), ", ".join(sorted(found))


def load_licenses(table: str | None) -> Licenses:
    """The packaged table, or the one at a path or URL.

    Raises:
        RecipeError: it cannot be read, or something in it is wrong; says what.
    """
    where = "the table of licences" + ("" if table is None else f" {table}")
    return _parsed(read_table(table, PACKAGED, where), where)


@functools.lru_cache(maxsize=8)
def _parsed(content: bytes, where: str) -> Licenses:
    given = parse_yaml(content, where)
    entries = given.get("licenses")
    if not isinstance(entries, Mapping) or given.keys() - {"licenses", "permissive"}:
        raise RecipeError(f"{where}: expected `licenses`, and `permissive` if you like, got "
                          f"{', '.join(given)}")
    return Licenses([_license(name, entry, where) for name, entry in entries.items()],
                    given.get("permissive", ()))


def _license(name: str, entry: Any, where: str) -> License:
    if not isinstance(entry, Mapping) or entry.keys() - {"permissive", "phrases", "unless"}:
        raise RecipeError(f"{where}, {name}: expected permissive, phrases and unless, got {entry!r}")
    phrases = entry.get("phrases")
    if not isinstance(phrases, list) or not phrases or not all(isinstance(some, list) and some
                                                               for some in phrases):
        raise RecipeError(f"{where}, {name}: phrases is a list of lists of phrases, got {phrases!r}")
    plain = tuple(tuple(map(_words, some)) for some in phrases)
    return License(name, bool(entry.get("permissive")), plain, tuple(map(_words, entry.get("unless", ()))))
