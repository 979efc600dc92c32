"""What an answer must look like, and what is taken of it.

Each form is a function of the answer and of what its prompt says; it gives the text to keep, and maybe a
number. A model that does not keep to the form gave no answer: `Unfit` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,3}[.)])\s+")
_ASKS, _SAYS = (rf"^[\s\-*•]*(?:{word}|{word[0]})\s*:\s*" for word in ("question", "answer"))
_PAIR = re.compile(rf"{_ASKS}(?P<question>.+?)\s*{_SAYS}(?P<answer>.+?)\s*(?={_ASKS}|\Z)",
                   re.IGNORECASE | re.MULTILINE | re.DOTALL)
_SCORE = re.compile(r"score\W{0,5}(?P<score>\d+(?:\.\d+)?)\s*(?:/\s*\d+)?", re.IGNORECASE)


class Unfit(Exception):
    """An answer that is not what was asked for."""


def text(answer: str, announced: str | None) -> tuple[str, float | None]:
    """All of it."""
    if not answer.strip():
        raise Unfit("the answer is empty")
    return answer.strip(), None


def announced(answer: str, words: str | None) -> tuple[str, float | None]:
    """What comes after the words that it was to begin with."""
    found = answer.strip().strip("*# \n")
    if not found.lower().startswith((words or "").lower()):
        raise Unfit(f"the answer does not begin with {words!r}: {found[:80]!r}")
    return text(found[len(words or ""):].lstrip("*:# \n"), None)


def bullets(answer: str, announced: str | None) -> tuple[str, float | None]:
    """The items of a list, a line each, without their marks; what stands before the first one goes."""
    lines = answer.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if _BULLET.match(line)), None)
    if first is None:
        raise Unfit(f"the answer is no list: {answer.strip()[:80]!r}")
    return "\n".join(_BULLET.sub("", line).strip() for line in lines[first:] if line.strip()), None


def pairs(answer: str, announced: str | None) -> tuple[str, float | None]:
    """Questions with their answers, `Question: …` and `Answer: …` in turn, an empty line between pairs."""
    found = [match.group("question", "answer") for match in _PAIR.finditer(answer.strip())]
    if not found:
        raise Unfit(f"the answer has no questions with answers: {answer.strip()[:80]!r}")
    return "\n\n".join(f"Question: {q.strip()}\nAnswer: {a.strip()}" for q, a in found), None


def score(answer: str, announced: str | None) -> tuple[str, float | None]:
    """A number: the last one that is called a score."""
    found = _SCORE.findall(answer)
    if not found:
        raise Unfit(f"the answer tells no score: {answer.strip()[-80:]!r}")
    return answer.strip(), float(found[-1])


FORMS: dict[str, Callable[[str, str | None], tuple[str, float | None]]] = {
    "text": text, "announced": announced, "bullets": bullets, "pairs": pairs, "score": score}
