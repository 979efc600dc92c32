"""Rule sets: YAML files, read as recipes are, that say which records to drop, and why.

    name: short_texts
    description: What is too short to be of use.
    source: "Doe et al. 2024, arXiv:0000.00000"
    rules:
      - {reason: too_short, when: word_count < 50, source: table 1}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from curator import sql
from curator.api.errors import InputError, RecipeError
from curator.api.names import suggestion
from curator.io.files.folder import open_input
from curator.registry import packs

SET_FIELDS = ("name", "description", "source", "rules")
RULE_FIELDS = ("reason", "when", "source")


@dataclass(frozen=True)
class Rule:
    """A record is dropped when `when`, an SQL condition, is true. `reason`: what is counted; `source`: who
    says so."""

    reason: str
    when: str
    source: str = ""


@dataclass(frozen=True)
class RuleSet:
    """Rules in order: the first that is true gives the reason."""

    name: str
    description: str
    source: str
    rules: tuple[Rule, ...]


def load_rules(name_or_path: str) -> RuleSet:
    """The rule set of this name in an installed pack, or in a YAML file (a path or URL that ends in .yaml or
    .yml).

    Raises:
        RecipeError: there is none, or something in the file is wrong; names file, rule and field.
    """
    is_path = name_or_path.endswith((".yaml", ".yml"))
    path = name_or_path if is_path else str(packs.resource("rules", name_or_path))
    try:
        with open_input(path) as file:
            content = file.read()
    except InputError as error:
        raise RecipeError(f"rule set {name_or_path!r}: {error}") from None
    return parse_rules(content, path)


def parse_rules(content: bytes | str, path: str) -> RuleSet:
    """The rule set in a YAML text; `path` is what messages call it, and its name if it has none.

    Raises:
        RecipeError: naming line, or rule and field.
    """
    from curator.io.yaml import Problems, parse  # brings YAML along

    where, problems = f"rule set {path}", Problems()
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        given: Any = parse(text, where, problems).plain() if text.strip() else None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where} is not valid UTF-8: {error}") from None
    problems.check()
    _check_fields(given, SET_FIELDS, ("rules",), where)
    rules = given["rules"]
    if not isinstance(rules, list) or not rules:
        raise RecipeError(f"{where}, field 'rules': expected a list of rules, got {_shown(rules)}")
    made: dict[str, Rule] = {}
    for number, entry in enumerate(rules, 1):
        rule = _rule(entry, f"{where}, rule {number}")
        if rule.reason in made:
            raise RecipeError(f"{where}, rule {number}: the reason {rule.reason!r} is taken by a rule before "
                              "it; join the two with OR, or rename one")
        made[rule.reason] = rule
    name = _text(given, "name", where) or PurePosixPath(path).stem
    return RuleSet(name, _text(given, "description", where), _text(given, "source", where),
                   tuple(made.values()))


def _rule(entry: Any, where: str) -> Rule:
    _check_fields(entry, RULE_FIELDS, ("reason", "when"), where)
    reason, when = _text(entry, "reason", where), _text(entry, "when", where)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", reason):
        raise RecipeError(f"{where}, field 'reason': {reason!r} is not in snake_case (small letters, digits, "
                          "_)")
    try:
        sql.columns_of(when)
    except RecipeError as error:
        raise RecipeError(f"{where} ({reason}), field 'when': {error}") from None
    return Rule(reason, when, _text(entry, "source", where))


def _check_fields(given: Any, known: tuple[str, ...], required: tuple[str, ...], where: str) -> None:
    if not isinstance(given, Mapping):
        raise RecipeError(f"{where}: expected a mapping with {', '.join(known)}, got {_shown(given)}")
    for name in given:
        if name not in known:
            hint = suggestion(str(name), known, f"there are {', '.join(known)}", quoted=True)
            raise RecipeError(f"{where}: unknown field {name!r}; {hint}")
    for name in required:
        if name not in given:
            raise RecipeError(f"{where}: the field {name!r} is missing")


def _text(given: Mapping, name: str, where: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise RecipeError(f"{where}, field {name!r}: expected a text, got {_shown(value)}; put it in quotes")
    return value.strip()


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
