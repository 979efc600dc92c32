"""What an answer must look like, and what is taken of it.

Each form is a function of the answer and of the case it belongs to; it gives the text to keep, and maybe a
number. A model that does not keep to the form gave no answer: `Unfit` says why.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from curator_text.llm.pieces import tokens_of

_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,3}[.)])\s+")
_ASKS, _SAYS = (rf"^[\s\-*•]*(?:{word}|{word[0]})[\s*]*:[\s*]*" for word in ("question", "answer"))
_PAIR = re.compile(rf"{_ASKS}(?P<question>.+?)\s*{_SAYS}(?P<answer>.+?)\s*(?={_ASKS}|\Z)",
                   re.IGNORECASE | re.MULTILINE | re.DOTALL)
_SCORE = re.compile(r"score\W{0,5}(?P<score>\d+(?:\.\d+)?)\s*(?:/\s*\d+)?", re.IGNORECASE)
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_STRONG = re.compile(r"(\*{1,3})(?=\S)(.+?)(?<=\S)\1")
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "'": "'"}


class Unfit(Exception):
    """An answer that is not what was asked for."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """How many of the pairs are kept: a random number from 1 to `most` for each `of_tokens` tokens of the
    text, in random order. `after_text`: they stand behind the text itself."""

    most: int
    of_tokens: int
    after_text: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """`announced`: the words that an answer begins with. `text`: what was asked about. `pairs`: what is kept
    of the pairs; None: all. `chance`: the same for the same record in each run."""

    announced: str | None = None
    text: str = ""
    pairs: Pairs | None = None
    chance: random.Random = field(default_factory=lambda: random.Random(0))


def text(answer: str, case: Case) -> tuple[str, float | None]:
    """All of it."""
    if not answer.strip():
        raise Unfit("the answer is empty")
    return answer.strip(), None


def announced(answer: str, case: Case) -> tuple[str, float | None]:
    """What comes after the words that it was to begin with."""
    words = case.announced or ""
    marked = rf"[\s*#]*{re.escape(words.rstrip(':'))}\**:?\**\s*"  # **Words:** and # Words as well
    found = re.match(marked, answer, re.IGNORECASE)
    if not found:
        raise Unfit(f"the answer does not begin with {words!r}: {answer.strip()[:80]!r}")
    return text(answer[found.end():], case)


def bullets(answer: str, case: Case) -> tuple[str, float | None]:
    """The items of a list, a line each, without their marks; what stands before the first one goes."""
    lines = answer.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if _BULLET.match(line)), None)
    if first is None:
        raise Unfit(f"the answer is no list: {answer.strip()[:80]!r}")
    return "\n".join(_BULLET.sub("", line).strip() for line in lines[first:] if line.strip()), None


def pairs(answer: str, case: Case) -> tuple[str, float | None]:
    """Questions with their answers, `Question: …` and `Answer: …` in turn, an empty line between pairs."""
    found = [match.group("question", "answer") for match in _PAIR.finditer(answer.strip())]
    if not found:
        raise Unfit(f"the answer has no questions with answers: {answer.strip()[:80]!r}")
    before = ""
    if case.pairs is not None:
        most = case.pairs.most * tokens_of(case.text) // case.pairs.of_tokens
        case.chance.shuffle(found)
        found = found[:case.chance.randint(1, max(1, most))]
        before = f"{case.text}\n\n" if case.pairs.after_text else ""
    return before + "\n\n".join(f"Question: {q.strip()}\nAnswer: {a.strip()}" for q, a in found), None


def score(answer: str, case: Case) -> tuple[str, float | None]:
    """A number: the last one that is called a score."""
    found = _SCORE.findall(answer)
    if not found:
        raise Unfit(f"the answer tells no score: {answer.strip()[-80:]!r}")
    return answer.strip(), float(found[-1])


FORMS: dict[str, Callable[[str, Case], tuple[str, float | None]]] = {
    "text": text, "announced": announced, "bullets": bullets, "pairs": pairs, "score": score}


def without_markdown(answer: str) -> str:
    """Without the marks of headings, of words that stand out, and of links, whose words stay."""
    return _STRONG.sub(r"\2", _LINK.sub(r"\1", _HEADING.sub(r"\1", answer))).strip()


def without_quotes(answer: str) -> str:
    """Without quotation marks around all of it."""
    answer = answer.strip()
    whole = len(answer) > 1 and _QUOTES.get(answer[0]) == answer[-1]
    return answer[1:-1].strip() if whole and answer[-1] not in answer[1:-1] else answer


CLEAN: dict[str, Callable[[str], str]] = {"markdown": without_markdown, "quotes": without_quotes}
