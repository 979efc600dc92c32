"""The errors a user of Curator can meet, split by whose fault they are.

A record that is bad is never an exception: it is a row on a port, with a reason.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# of a `FirstError`, which goes from process to process and into `stats.json`
ERROR_CHARS, TRACEBACK_CHARS = 1000, 8000


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


@dataclass(frozen=True, slots=True)
class FirstError:
    """The first error of a stage, for people. `file`, `line`: of the code of the stage's author; "" and 0
    where no code raised.

    `record`: the id of the row that failed, "" where none is to blame.
    """

    stage: str
    error: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    record: str = ""

    def __str__(self) -> str:
        of = f", record {self.record}" if self.record else ""
        at = f", {self.file} line {self.line}" if self.file else ""
        return f"first error in stage {self.stage}{of}{at}: {self.error}"


def in_words(error: BaseException) -> str:
    """What it says; of one that was not raised on purpose, its kind too."""
    return str(error) if isinstance(error, CuratorError) else f"{type(error).__name__}: {error}"


def first_error(stage: str, error: BaseException) -> FirstError:
    """What an exception that was caught tells. `stage`: where the error itself names none."""
    stage = error.stage if isinstance(error, StageError) else stage
    text = "".join(traceback.format_exception(error))
    return FirstError(stage, in_words(error)[:ERROR_CHARS], text[-TRACEBACK_CHARS:], *_raised_at(error))


def _raised_at(error: BaseException) -> tuple[str, int]:
    """Where it was raised; see `innermost`."""
    frames = [(f.filename, f.lineno or 0) for one in _causes(error)
              for f in reversed(traceback.extract_tb(one.__traceback__))]
    at = innermost([file for file, _ in frames])
    return ("", 0) if at is None else frames[at]


def innermost(files: Sequence[str]) -> int | None:
    """Of the files of a traceback, the innermost first: the first that is in nobody's library; where there is
    none, in none of Python's or ours; or None."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    paths = sysconfig.get_paths()
    libraries = tuple(paths[name] + os.sep for name in ("purelib", "platlib"))
    python = (paths["stdlib"] + os.sep, paths["platstdlib"] + os.sep)
    # compiled modules name their own source, which no user has
    foreign = [at for at, file in enumerate(files)
               if not file.startswith((ours, "<frozen")) and not file.endswith((".pyx", ".pxi"))
               and (file.startswith(libraries) or not file.startswith(python))]
    own = [at for at in foreign if not files[at].startswith(libraries)]
    return next(iter(own or foreign), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What raised it comes first."""
    if error.__cause__ is not None:
        yield from _causes(error.__cause__)
    yield error
