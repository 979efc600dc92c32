"""The errors a user of Curator can meet, split by whose fault they are.

A record that is bad is never an exception: it is a row on a port, with a reason.
"""

from __future__ import annotations


class CuratorError(Exception):
    """Anything Curator raises on purpose. The message says what, where and what to do."""


class RecipeError(CuratorError):
    """The recipe is wrong: an unknown name, a parameter of the wrong type, a port that leads nowhere."""


class ContractError(RecipeError):
    """A stage needs a column or payload that nothing before it makes."""


class InputError(CuratorError):
    """The input or output is missing, unreadable or of the wrong shape; found before or while reading."""


class PackError(CuratorError):
    """An installed pack cannot be loaded, or two packs claim one name."""


class StageError(CuratorError):
    """A stage broke its own contract (lost a row, answered on an unknown port, failed in `setup`)."""

    def __init__(self, stage: str, message: str, ids: tuple[str, ...] = ()) -> None:
        shown = f" (records {', '.join(ids[:5])}{', …' if len(ids) > 5 else ''})" if ids else ""
        super().__init__(f"stage {stage!r}: {message}{shown}")
        self.stage, self.message, self.ids = stage, message, ids

    def __reduce__(self):
        return StageError, (self.stage, self.message, self.ids)


class RunStopped(CuratorError):
    """The run ended before its input did. What was committed stays; the same command continues it."""
