"""The language of a source file, by its name and, where that does not tell, by what stands in it."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator.api.errors import InputError, RecipeError
from curator.io.files.folder import open_input
from curator.io.media import types

PACKAGED = Path(__file__).with_name("languages.yaml")
LOOKED_AT_CHARS = 100_000  # of a file whose ending stands for several languages
_LANGUAGE_FIELDS = {"extensions", "names", "interpreters", "comments", "grammar"}
_STYLE_FIELDS = {"line", "block", "strings", "long", "chars", "spaced", "docstrings", "column"}
_INTERPRETER = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?([A-Za-z][\w+-]*?)[\d.]*(?:\s|$)")


@dataclass(frozen=True)
class Languages:
    """Names are in lower case. `ambiguous`: by ending the languages in question, each with the pattern that
    tells it, None for the last. `styles`: how a language writes comments, as the table has it."""

    by_extension: Mapping[str, str]
    by_name: Mapping[str, str]
    by_interpreter: Mapping[str, str]
    ambiguous: Mapping[str, tuple[tuple[str, re.Pattern[str] | None], ...]]
    styles: Mapping[str, Mapping[str, Any]]
    grammars: Mapping[str, str]

    def of(self, path: str | None, text: str | None) -> str | None:
        """The language of a file; None if nothing tells it."""
        name = file_name(path)
        if name in self.by_name:
            return self.by_name[name]
        extension = extension_of(path)
        if extension in self.ambiguous:
            head = (text or "")[:LOOKED_AT_CHARS]
            return next(language for language, pattern in self.ambiguous[extension]
                        if pattern is None or pattern.search(head))
        if extension in self.by_extension:
            return self.by_extension[extension]
        if text and text.startswith("#!") and (found := _INTERPRETER.match(text[:200])):
            return self.by_interpreter.get(found[1].lower())
        return None

    def suffixes(self, languages: Iterable[str] | None = None) -> tuple[str, ...]:
        """The endings, with the dot, and the whole names that stand for these languages, by default all."""
        wanted = None if languages is None else set(languages)
        found = {f".{ending}" for ending, language in self.by_extension.items()
                 if wanted is None or language in wanted}
        found |= {f".{ending}" for ending, choices in self.ambiguous.items()
                  if wanted is None or wanted & {language for language, _ in choices}}
        return tuple(sorted(found | {name for name, language in self.by_name.items()
                                     if wanted is None or language in wanted}))


def file_name(path: str | None) -> str:
    """The last part of a path, in lower case."""
    return (path or "").replace("\\", "/").rpartition("/")[2].lower()


def extension_of(path: str | None) -> str:
    """What stands behind the last dot of a file's name, in lower case; "" if there is none."""
    return types.extension_of(file_name(path))


def load_languages(table: str | None) -> Languages:
    """The packaged table, or the one at a path or URL.

    Raises:
        RecipeError: it cannot be read, or something in it is wrong; says what.
    """
    where = "the table of languages" + ("" if table is None else f" {table}")
    return _parsed(read_table(table, PACKAGED, where), where)


@functools.lru_cache(maxsize=8)
def _parsed(content: bytes, where: str) -> Languages:
    given = parse_yaml(content, where)
    if unknown := given.keys() - {"languages", "ambiguous", "styles"}:
        raise RecipeError(f"{where}: there are languages, ambiguous and styles, but no "
                          f"{sorted(unknown)[0]!r}")
    languages, styles = _mapping(given, "languages", where), _mapping(given, "styles", where)
    for kind, entries, known in (("language", languages, _LANGUAGE_FIELDS), ("style", styles, _STYLE_FIELDS)):
        for name, entry in entries.items():
            if not isinstance(entry, Mapping) or entry.keys() - known:
                raise RecipeError(f"{where}, {kind} {name!r}: expected a mapping of "
                                  f"{', '.join(sorted(known))}, got {entry!r}")
    for name, entry in languages.items():
        if "comments" in entry and entry["comments"] not in styles:
            raise RecipeError(f"{where}, language {name!r}: there is no style {entry['comments']!r}")
    ambiguous = {str(ending).lower(): _choices(ending, choices, languages, where)
                 for ending, choices in _mapping(given, "ambiguous", where).items()}
    return Languages(
        by_extension=_inverted(languages, "extensions", where), by_name=_inverted(languages, "names", where),
        by_interpreter=_inverted(languages, "interpreters", where), ambiguous=ambiguous,
        styles={name: styles[entry["comments"]] for name, entry in languages.items() if "comments" in entry},
        grammars={name: entry["grammar"] for name, entry in languages.items() if "grammar" in entry})


def read_table(table: str | None, packaged: Path, where: str) -> bytes:
    """The packaged file, or the one at a path or URL.

    Raises:
        RecipeError: it cannot be read.
    """
    try:
        with open_input(str(packaged if table is None else table)) as file:
            return file.read()
    except InputError as error:
        raise RecipeError(f"{where}: {error}") from None


def table_digest(table: str | None) -> str | None:
    """A hash of what a table of one's own says, for the fingerprint of a stage: an edited table is another
    stage."""
    if table is None:
        return None
    return hashlib.blake2b(read_table(table, PACKAGED, f"the table {table}"), digest_size=12).hexdigest()


def parse_yaml(content: bytes, where: str) -> Mapping[str, Any]:
    """The mapping in a text of YAML.

    Raises:
        RecipeError: there is none.
    """
    import yaml

    try:
        given = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where} is no YAML: {error}") from None
    if not isinstance(given, Mapping):
        raise RecipeError(f"{where}: expected a mapping, got {type(given).__name__}")
    return given


def _mapping(given: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, Mapping):
        raise RecipeError(f"{where}, {name}: expected a mapping, got {found!r}")
    return found


def _inverted(languages: Mapping[str, Mapping[str, Any]], field: str, where: str) -> dict[str, str]:
    """The language by each name that stands in this field.

    Raises:
        RecipeError: two languages have one name.
    """
    made: dict[str, str] = {}
    for language, entry in languages.items():
        for name in entry.get(field, ()):
            if made.setdefault(str(name).lower(), language) != language:
                raise RecipeError(f"{where}: {name!r} stands for {made[str(name).lower()]} and {language}; "
                                  "name it below ambiguous, with patterns that tell them apart")
    return made


def _choices(ending: str, choices: Any, languages: Mapping[str, Any],
             where: str) -> tuple[tuple[str, re.Pattern[str] | None], ...]:
    if not isinstance(choices, list) or not choices or "pattern" in choices[-1]:
        raise RecipeError(f"{where}, ending {ending!r}: expected a list of languages with patterns, and a "
                          "last one without")
    made = []
    for choice in choices:
        if choice.get("language") not in languages:
            raise RecipeError(f"{where}, ending {ending!r}: there is no language {choice.get('language')!r}")
        try:
            made.append((choice["language"],
                         re.compile(choice["pattern"], re.MULTILINE) if "pattern" in choice else None))
        except re.error as error:
            raise RecipeError(f"{where}, ending {ending!r}: no pattern: {error}") from None
    return tuple(made)
