"""Prompts with columns in them: `{name}` stands for the column of that name, `{{` for a brace."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any


class _Nothing:
    """A null in a prompt: no text, however it is to be written."""

    def __format__(self, how: str) -> str:
        return ""


_NOTHING = _Nothing()


def columns_of(prompt: str) -> tuple[str, ...]:
    """The columns that a prompt names, each once.

    Raises:
        ValueError: something else stands in its braces.
    """
    try:
        fields = [(name, how or "", kind) for _, name, how, kind in string.Formatter().parse(prompt)
                  if name is not None]
    except ValueError as error:
        raise ValueError(f"prompt: {error}; write {{{{ and }}}} for braces that are meant as such") from error
    wrong = [f"{name}:{how}" if how else name for name, how, kind in fields if not name.isidentifier()
             or "{" in how or kind]
    if wrong:
        raise ValueError(f"prompt: {{{wrong[0]}}} is no column; write {{{{ and }}}} for braces that are "
                         f"meant as such")
    return tuple(dict.fromkeys(name for name, _, _ in fields))


def filled(prompt: str, columns: Mapping[str, Any]) -> str:
    """The prompt with the values of a row in it; nothing where one is null."""
    return prompt.format_map({name: _NOTHING if value is None else value for name, value in columns.items()})
