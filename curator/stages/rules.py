"""Rule sets: YAML files, read as recipes are, that say which records to drop, and why.

    name: short_texts
    description: What is too short to be of use.
    source: "Doe et al. 2024, arXiv:0000.00000"
    rules:
      - {reason: too_short, when: word_count < 50, source: table 1}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from curator import sql
from curator.api.errors import InputError, RecipeError
from curator.io.files.folder import open_input
from curator.registry import packs


@dataclass(frozen=True)
class Rule:
    """A record is dropped when `when`, an SQL condition, is true. `reason`: what is counted; `source`: who
    says so."""

    reason: str
    when: str
    source: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.reason):
            raise RecipeError(f"the reason {self.reason!r} is not in snake_case (small letters, digits, _)")
        for name in ("when", "source"):  # a folded text ends in a line break
            object.__setattr__(self, name, getattr(self, name).strip())
        try:
            sql.columns_of(self.when)
        except RecipeError as error:
            raise RecipeError(f"{self.reason}: {error}") from None


@dataclass(frozen=True)
class RuleSet:
    """Rules in order: the first that is true gives the reason."""

    rules: tuple[Rule, ...]
    name: str = ""
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("description", "source"):
            object.__setattr__(self, name, getattr(self, name).strip())
        if not self.rules:
            raise RecipeError("there is no rule: list some under `rules`, each with reason and when")
        reasons = [rule.reason for rule in self.rules]
        for at, reason in enumerate(reasons):
            if reason in reasons[:at]:
                raise RecipeError(f"rules[{at}]: the reason {reason!r} is taken by a rule before it; join "
                                  "the two with OR, or rename one")


def load_rules(name_or_path: str) -> RuleSet:
    """The rule set of this name in an installed pack, or in a YAML file (a path or URL that ends in .yaml or
    .yml).

    Raises:
        RecipeError: there is none, or something in the file is wrong; names file, line, rule and field.
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
        RecipeError: everything that is wrong with it, each with line, rule and field.
    """
    from curator.io.yaml import Item, Problems, parse  # brings YAML along
    from curator.recipe.values import coerce

    where, problems = f"rule set {path}", Problems()
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where} is not valid UTF-8: {error}") from None
    has_more = re.search(r"^\s*[^#\s]", text, re.MULTILINE)  # than comments
    root = parse(text, where, problems) if has_more else Item(None, where)
    if root.is_map and "name" not in root.value:
        root.value["name"] = Item(PurePosixPath(path).stem, where, text=PurePosixPath(path).stem)
    made = coerce(root, RuleSet, "", problems)
    problems.check()
    return made
