"""All families of columns, and which of them somebody asks for."""

from __future__ import annotations

import difflib

import pyarrow as pa

from curator import RecipeError, sql
from curator.stages.rules import load_rules
from curator_text.measures.columns import dolma, madlad, nemo, plain, rpv2, signs, standard
from curator_text.measures.columns.group import Family

FAMILIES: tuple[Family, ...] = tuple(family for module in (standard, plain, nemo, dolma, rpv2, madlad, signs)
                                    for family in module.FAMILIES)
ALL_COLUMNS: dict[str, pa.DataType] = {name: kind for family in FAMILIES
                                       for name, kind in family.columns.items()}
COLUMNS: dict[str, pa.DataType] = {name: kind for family in standard.FAMILIES
                                   for name, kind in family.columns.items()}


def wanted(names: str | list[str]) -> dict[str, pa.DataType]:
    """The columns of these names: of columns, of rule sets (those that they read), or `standard`.

    Raises:
        ValueError: there is no column of a name, and no rule set that reads any.
    """
    names = [names] if isinstance(names, str) else names
    if not names:
        raise ValueError("only names no column, so that nothing would be measured; leave it out for the "
                         "standard ones")
    found: set[str] = set()
    for name in names:
        found |= {name} if name in ALL_COLUMNS else COLUMNS.keys() if name == "standard" else _read_by(name)
    return {name: kind for name, kind in ALL_COLUMNS.items() if name in found}


def _read_by(rule_set: str) -> set[str]:
    near = difflib.get_close_matches(rule_set, ALL_COLUMNS, n=1, cutoff=0.8)
    if near:
        raise ValueError(f"only: no column is called {rule_set!r}; did you mean {near[0]!r}?")
    try:
        rules = load_rules(rule_set).rules
    except RecipeError as error:
        raise ValueError(f"only: {rule_set!r} is neither a column of text.signals nor a rule set: "
                         f"{error}") from None
    columns = sql.needs({rule.reason: rule.when for rule in rules}) & ALL_COLUMNS.keys()
    if not columns:
        raise ValueError(f"only: the rule set {rule_set!r} reads no column of text.signals")
    return columns
