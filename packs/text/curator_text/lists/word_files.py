"""Lists of words by language, read from files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo
from curator_text.language.language_codes import is_code, short_code
from curator_text.lists.terms import Terms
from curator_text.lists.url_files import find_lists, read_words

WITHOUT_SPACES = frozenset({"zh", "yue", "wuu", "ja", "th", "lo", "km", "my", "bo", "dz"})
_NO_LISTS = ("readme", "license", "licence", "users", "contributing", "copying")


def read_word_lists(paths: str | Sequence[str] | None) -> dict[str, list[str]]:
    """The words of each language: of a file `en`, `en.txt`, `eng_Latn.txt.gz` or `english.txt`, a word or
    phrase a line.

    Raises:
        InputError: a path names no file, or a file's name is no language.
    """
    lists: dict[str, list[str]] = {}
    for file in find_lists(paths) if paths else ():
        if file.name.split(".")[0].lower() not in _NO_LISTS:
            lists.setdefault(language_of(file, "a list of words"), []).extend(read_words(file.uri))
    return lists


def language_of(file: FileInfo, what: str) -> str:
    """The language that a file is called by.

    Raises:
        InputError: its name is no language; `what` is what the message calls it.
    """
    stem = file.name.split(".")[0]
    language = short_code(stem.lower() if len(stem) > 3 and stem.isalpha() else stem)
    if not is_code(language):
        raise InputError(f"{file.uri}: {what} is called by its language, such as en or de.txt; {stem!r} is "
                         "none")
    return language


def digest(lists: Mapping[str, object]) -> str:
    """A hash of what lists say, for the fingerprint of a stage: an edited list is another stage."""
    return hashlib.blake2b(repr(sorted(lists.items())).encode(), digest_size=12).hexdigest()


def as_terms(lists: Mapping[str, Sequence[str]], *, lower: bool) -> dict[str, Terms]:
    """The lists, to look for in texts."""
    return {language: Terms(list(dict.fromkeys(word.lower() if lower else word for word in listed)))
            for language, listed in lists.items() if listed}

