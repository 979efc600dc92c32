"""The text of papers in LaTeX, cleaned as the makers of training sets do it.

Source: RedPajama-Data, branch rp_v1, data_prep/arxiv (arxiv_cleaner.py): what stands before the first
section, comments, bibliography and appendix go, and macros without arguments are expanded. Known differences:
title and abstract are kept; a percent sign inside verbatim is no comment; macros are expanded where they
stand in one another; of several documents in a submission one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MACRO_CHARS = 1000  # a longer macro is a part of the layout
_GROWTH, _ROUNDS = 4, 5  # macros in macros: so many times as long, so many deep
_VERBATIM = re.compile(r"\\begin\s*\{(verbatim\*?|Verbatim|lstlisting|minted|alltt)\}.*?"
                       r"\\end\s*\{\1\}", re.DOTALL)
_COMMENT_ENV = re.compile(r"\\begin\s*\{comment\}.*?\\end\s*\{comment\}", re.DOTALL)
_IF_FALSE = re.compile(r"\\iffalse\b.*?\\fi\b", re.DOTALL)
COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
_DEFINITION = re.compile(r"\\(?:newcommand|renewcommand|providecommand|DeclareRobustCommand)\*?\s*(?:"
                         r"\{\s*\\([A-Za-z]+)\s*\}|\\([A-Za-z]+))\s*(?=[\[{])"
                         r"|\\[egx]?def\s*\\([A-Za-z]+)\s*(?=[^{\n]*\{)")
_BEGIN, _END = re.compile(r"\\begin\s*\{document\}"), re.compile(r"\\end\s*\{document\}|\\endinput\b")
_SECTION = re.compile(r"\\(?:part|chapter|section|subsection|paragraph)\*?\s*[\[{]")
_ABSTRACT = re.compile(r"\\begin\s*\{abstract\}(.*?)\\end\s*\{abstract\}", re.DOTALL)
_BIBLIOGRAPHY = re.compile(r"\\begin\s*\{(thebibliography|references|REFERENCES)\}.*?(?:\\end\s*\{\1\}|\Z)"
                           r"|\\(?:bibliography|bibliographystyle)\s*\{[^{}]*\}"
                           r"|\\printbibliography\b(?:\[[^\]]*\])?"
                           r"|\\nocite\s*\{[^{}]*\}", re.DOTALL)
_BIBLIOGRAPHY_BEGINS = re.compile(r"\\begin\s*\{(?:thebibliography|references|REFERENCES)\}|"
                                  r"\\bibliography\s*\{|\\printbibliography\b")
_APPENDIX = re.compile(r"\\appendix\b|\\begin\s*\{appendi(?:x|ces)\}")


@dataclass(frozen=True)
class Cleaned:
    """`text` is LaTeX; `title` and `abstract` are None where there is none."""

    text: str
    title: str | None
    abstract: str | None


def cleaned(latex: str, *, macros: bool, bibliography: bool, appendix: bool) -> Cleaned:
    """The paper from its abstract, or first section, on. `bibliography`, `appendix`: keep them."""
    latex = without_comments(latex)
    begin = _BEGIN.search(latex)
    before, body = (latex[:begin.start()], latex[begin.end():]) if begin else ("", latex)
    end = _END.search(body)
    body = body[:end.start()] if end else body
    if macros:
        known, before, body = _macros(before, body)
        before, body = _expanded(before, known), _expanded(body, known)
    title = _argument(before + body, "title")
    found = _ABSTRACT.search(before + body)
    abstract = found[1] if found else _argument(before + body, "abstract")
    body = _from_start(body)
    body = _to_end(body, bibliography=bibliography, appendix=appendix)
    text = re.sub(r"[ \t]+\n", "\n", body)
    return Cleaned(re.sub(r"\n{3,}", "\n\n", text).strip(), _line(title), _line(abstract))


def without_comments(latex: str) -> str:
    """LaTeX as TeX sees it: comments go with the end of their line, not so in verbatim."""
    parts, at = [], 0
    # one that begins behind a percent sign is none
    for found in _VERBATIM.finditer(latex):
        line = latex[latex.rfind("\n", 0, found.start()) + 1:found.start()]
        if COMMENT.search(line) or found.start() < at:
            continue
        parts += [_uncommented(latex[at:found.start()]), found[0]]
        at = found.end()
    parts.append(_uncommented(latex[at:]))
    return _IF_FALSE.sub("", _COMMENT_ENV.sub("", "".join(parts)))


def _uncommented(latex: str) -> str:
    lines: list[str] = []
    joins = False  # the line before ended in a comment, which took its end with it: no space is left
    for line in latex.split("\n"):
        code = COMMENT.sub(r"\1", line)
        cut = code != line
        if cut and not code.strip():
            continue
        if joins and code.strip():
            lines[-1] += code.lstrip()
        else:
            lines.append(code)
        joins = cut and code == code.rstrip()
    return "\n".join(lines)


def _macros(before: str, body: str) -> tuple[dict[str, str], str, str]:
    """The macros without arguments that are defined, and both texts without these definitions."""
    known: dict[str, str] = {}
    texts = []
    for text in (before, body):
        parts, at = [], 0
        for start, stop, name, replacement in _definitions(text):
            if start < at:
                continue
            known[name] = replacement
            parts.append(text[at:start])
            at = stop
        texts.append("".join(parts) + text[at:])
    return known, texts[0], texts[1]


def _definitions(text: str) -> Iterator[tuple[int, int, str, str]]:
    for found in _DEFINITION.finditer(text):
        name = found[1] or found[2] or found[3]
        if text[found.end():found.end() + 1] != "{":  # it has arguments
            continue
        stop = _closing(text, found.end())
        content = text[found.end() + 1:stop - 1] if stop else ""
        recursive = re.search(rf"\\{name}(?![A-Za-z])", content)
        if stop and len(content) <= MACRO_CHARS and "#" not in content and not recursive:
            yield found.start(), stop, name, content.replace("\\xspace", "").strip()


def _expanded(text: str, known: dict[str, str]) -> str:
    if not known:
        return text
    pattern = re.compile(rf"\\({'|'.join(known)})(?![A-Za-z])")
    most = _GROWTH * len(text) + MACRO_CHARS
    for _ in range(_ROUNDS):
        changed = pattern.sub(lambda found: known[found[1]], text)
        if changed == text or len(changed) > most:
            break
        text = changed
    return text


def _from_start(body: str) -> str:
    """From the abstract on, where there is one before the first section; else from that."""
    section, abstract = _SECTION.search(body), _ABSTRACT.search(body)
    if abstract and not (section and section.start() < abstract.start()):
        return body[abstract.start():]
    return body[section.start():] if section else body


def _to_end(body: str, *, bibliography: bool, appendix: bool) -> str:
    if not appendix:
        # what comes behind the bibliography is one too
        marks = (_APPENDIX,) if bibliography else (_APPENDIX, _BIBLIOGRAPHY_BEGINS)
        ends = [found.start() for mark in marks if (found := mark.search(body))]
        body = body[:min(ends)] if ends else body
    return body if bibliography else _BIBLIOGRAPHY.sub("", body)


def _argument(text: str, command: str) -> str | None:
    """What a command is given in braces, behind what stands in brackets."""
    found = re.search(rf"\\{command}\s*(?:\[[^\]]*\]\s*)?(?=\{{)", text)
    stop = _closing(text, found.end()) if found else 0
    return text[found.end() + 1:stop - 1] if found and stop else None


def _closing(text: str, at: int) -> int:
    """The place behind the brace that closes the one at `at`; 0 if none does."""
    depth = 0
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, at):
        if found[0] in "{}":
            depth += 1 if found[0] == "{" else -1
            if not depth:
                return found.end()
    return 0


def _line(text: str | None) -> str | None:
    """A title or an abstract on one line; None where nothing is left."""
    if text is None:
        return None
    text = re.sub(r"\\(?:thanks|footnote)\s*\{[^{}]*\}|\\label\s*\{[^{}]*\}", "", text)
    return " ".join(text.replace("\\\\", " ").split()) or None
