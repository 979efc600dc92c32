"""Thresholds and stop words by language: tables in CSV, and the layout in which FineWeb-2 publishes its
own."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from curator.api.errors import InputError
from curator.io.files.folder import list_files, open_input
from curator_text.language.language_codes import is_code, short_code
from curator_text.lists.word_files import read_word_lists

PACKAGED = "fineweb2"
LANGUAGE, STOP_WORDS = "language", "stop_words"
_YAML = (".yml", ".yaml")
# The keys of FineWeb-2's configs, and what is called so here: our statistic, and which side of it is bound.
_KEYS = {"language_score": "language_score_min", "dup_line_frac": "duplicate_line_ratio_max",
         "line_punct_thr": "line_punct_ratio_min", "min_avg_word_length": "mean_word_length_min",
         "max_avg_word_length": "mean_word_length_max",
         "max_non_alpha_words_ratio": "alphabetic_word_ratio_min", "new_line_ratio": "newline_ratio_max"}
_GRAMS = {"top_n_grams": "top_{}_gram_char_ratio_max", "dup_n_grams": "duplicate_{}_gram_char_ratio_max"}
_NAME = re.compile(r"[a-z][a-z0-9_]*")

Table = dict[str, dict[str, float | None]]


def read_thresholds(path: str) -> Table:
    """Language to name to threshold; None where the table has none.

    `path`: `fineweb2`, a CSV file with a column `language`, or a folder or glob of FineWeb-2's configs.

    Raises:
        InputError: no such file; naming file, row (comments are none) and value of what is wrong.
    """
    if path == PACKAGED or path.lower().endswith(".csv"):
        return {language: {name: value for name, value in row.items() if name != STOP_WORDS}
                for language, row in _read_csv(path).items()}
    table: Table = {}
    for language, config in _configs(path).items():
        try:
            row: dict[str, float | None] = {ours: float(config[theirs]) for theirs, ours in _KEYS.items() if theirs in config}
            for theirs, ours in _GRAMS.items():
                row |= {ours.format(n): float(share) for n, share in config.get(theirs) or ()}
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}, {language}: a threshold is a number, and the n-grams are pairs of "
                             f"numbers: {error}") from None
        table[language] = row
    names = dict.fromkeys(name for row in table.values() for name in row)
    return {language: {name: row.get(name) for name in names} for language, row in table.items()}


def read_stop_words(path: str | Sequence[str]) -> dict[str, list[str]]:
    """Language, by its short code, to stop words: of a table or configs as above, or of word lists.

    Raises:
        InputError: as `read_thresholds`.
    """
    if isinstance(path, str) and (path == PACKAGED or path.lower().endswith(".csv")):
        return {short_code(language): row[STOP_WORDS].split()
                for language, row in _read_csv(path).items() if row.get(STOP_WORDS)}
    if isinstance(path, str) and any(file.uri.lower().endswith(_YAML) for file in list_files(path)):
        return {short_code(language): [str(word) for word in config.get("stopwords") or ()]
                for language, config in _configs(path).items()}
    return read_word_lists(path)


def _read_csv(path: str) -> dict[str, dict[str, Any]]:
    if path == PACKAGED:
        text = resources.files("curator_text").joinpath("lists", "fineweb2.csv").read_text("utf-8")
    else:
        with open_input(path) as stream:
            try:
                text = io.TextIOWrapper(stream, "utf-8-sig", newline="").read()
            except UnicodeDecodeError as error:
                raise InputError(f"{path} is no CSV in UTF-8: {error}; save it so") from None
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    reader = csv.DictReader(lines, strict=True)
    names = reader.fieldnames or []
    wrong = [name for name in names if not _NAME.fullmatch(name or "")]
    if LANGUAGE not in names or wrong or len(set(names)) < len(names):
        raise InputError(f"{path}: its first line names the columns, each once and in small letters, digits "
                         f"and _, one of them {LANGUAGE}; it has {', '.join(map(repr, names))}")
    rows: dict[str, dict[str, Any]] = {}
    try:
        found = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}, row {reader.reader.line_num}: {error}") from None
    for number, row in enumerate(found, 2):
        language = _language((row.pop(LANGUAGE) or "").strip(), f"{path}, row {number}")
        if None in row or None in row.values() or language in rows:
            raise InputError(f"{path}, row {number} ({language}): it has other columns than the first line, "
                             "or the language is there twice")
        rows[language] = {name: value if name == STOP_WORDS else _number(value, name, f"{path}, row {number}")
                          for name, value in row.items()}
    return rows


def _number(value: str, name: str, where: str) -> float | None:
    try:
        return float(value) if value.strip() else None
    except ValueError:
        raise InputError(f"{where}, {name}: {value!r} is no number; leave it empty for no "
                         "threshold") from None


def _language(code: str, where: str) -> str:
    if not is_code(code):
        raise InputError(f"{where}: {code!r} is no code of a language, such as fr or fra_Latn")
    return code


def _configs(path: str) -> dict[str, Mapping[str, Any]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Mapping[str, Any]] = {}
    for file in list_files(path, suffixes=_YAML):
        with open_input(file.uri) as stream:
            try:
                config = yaml.load(stream.read(), loader)
            except yaml.YAMLError as error:
                raise InputError(f"{file.uri} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(config, dict):
            raise InputError(f"{file.uri} has no thresholds: a mapping such as language_score: 0.8 is "
                             "expected")
        found[_language(file.name.rpartition(".")[0], file.uri)] = config
    return found
