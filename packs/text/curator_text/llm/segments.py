"""A text as lines of which some are to be translated: what must stay as it is, and whether a translation can
be right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curator_text.language.language import weight

_FENCE = re.compile(r"^\s*(```+|~~~+|\$\$)")
# quotation, heading, item of a list, and the box of a task
_START = re.compile(r"^\s*(?:>\s*)*(?:#{1,6}\s+|[-*+•–]\s+|\(?\d{1,3}[.)]\s+)?(?:\[[ xX]\]\s+)?")
_STAYS = re.compile("|".join((
    r"⟦[^⟦⟧]*⟧",                                    # a mark such as ours
    r"(`+).+?\1",                                   # code
    r"\$(?=\S)[^$\n]+?(?<=\S)\$(?!\d)",             # a formula
    r"(?:https?|ftp)://[^\s<>()\[\]\"'`]+|www\.[^\s<>()\[\]\"'`]+", r"[\w.+-]+@[\w-]+\.[\w.-]*\w",
    r"</?[A-Za-z][^<>\n]*>", r"&(?:\w+|#\d+);",     # markup
    r"\{\{[^{}\n]*\}\}|\{[\w.!:]*\}|\$\{\w+\}", r"%\(\w+\)[sdf]|%[sdif](?!\w)|%\d*\.\d+f",  # what a program fills in
    r"(?<=\])\([^()\s]*\)", r"\|")))                # where a link leads, and the walls of a table
_MARK = re.compile(r"⟦(\d+)⟧")
_LINE = re.compile(r"^\s*\[(\d+)\]\s?(.*)$")
LEAST_RATIO, MOST_RATIO, SLACK = 0.4, 2.5, 20  # of letters; so many more or fewer are always fine
NAMES = 3  # so many words may be the same in both languages


@dataclass(frozen=True)
class Segment:
    """What is to be translated of line number `line`. `before`, `after`: what stands around it. `stays`: what
    its marks ⟦1⟧, ⟦2⟧, … stand for."""

    line: int
    before: str
    text: str
    after: str
    stays: tuple[str, ...]

    def filled(self, translation: str) -> str:
        """The line with a translation in place of the text."""
        return self.before + _MARK.sub(lambda mark: self.stays[int(mark[1]) - 1], translation) + self.after


def segments_of(text: str) -> list[Segment]:
    """Each line that has words, but for those of code and formulas that stand by themselves."""
    made, fence = [], None
    for number, line in enumerate(text.split("\n")):
        found = _FENCE.match(line)
        if fence or found:
            if fence and found and line.strip().startswith(fence):
                fence = None
            elif not fence and found and not (found[1] == "$$" and line.strip().endswith("$$") and len(line.strip()) > 4):
                fence = found[1]
            continue
        start = begin.end() if (begin := _START.match(line)) else 0
        body = line[start:].rstrip()
        stays: list[str] = []

        def put_away(found: re.Match[str], stays: list[str] = stays) -> str:
            stays.append(found[0])
            return f"⟦{len(stays)}⟧"

        marked = _STAYS.sub(put_away, body)
        if any(letter.isalpha() for letter in _MARK.sub("", marked)):
            made.append(Segment(number, line[:start], marked, line[start + len(body):], tuple(stays)))
    return made


def joined(text: str, segments: Sequence[Segment], translations: Mapping[int, str]) -> str:
    """The text with the translations of segments, by their numbers, in their lines."""
    lines = text.split("\n")
    for number, translation in translations.items():
        lines[segments[number].line] = segments[number].filled(translation)
    return "\n".join(lines)


def numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))


def read_numbered(answer: str, count: int) -> list[str | None]:
    """The lines of an answer by their numbers from 1; None for one that is not there or there twice."""
    found: dict[int, list[str]] = {}
    at = None
    for line in answer.strip().split("\n"):
        if told := _LINE.match(line):
            at = int(told[1])
            found.setdefault(at, []).append(told[2].strip())
        elif at is not None and line.strip():
            found[at][-1] += " " + line.strip()
    return [found[k][0] if len(found.get(k, ())) == 1 else None for k in range(1, count + 1)]


def problem_of(source: str, translation: str | None) -> str | None:
    """What shows that a translation of a marked line is none; None if nothing does. The language is not asked
    here."""
    if not translation:
        return "the line is missing from the answer"
    if Counter(_MARK.findall(source)) != Counter(_MARK.findall(translation)):
        return "what must stay as it is was lost or made up"
    if translation.casefold() == source.casefold() and len(_MARK.sub(" ", source).split()) > NAMES:
        return "the line was left as it was"
    before, after = weight(_MARK.sub("", source)), weight(_MARK.sub("", translation))
    if not LEAST_RATIO * before - SLACK <= after <= MOST_RATIO * before + SLACK:
        return f"{after} letters for {before} can be no translation"
    return None
