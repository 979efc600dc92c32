"""What is put in order in a page before its text is taken: formulas become LaTeX, code keeps its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from curator_text.extract.mathml import latex

# Where none of these stands there is nothing to look for. Plain strings are found far faster than a pattern.
_MATHS = ("<math", "<MATH", "math/tex", "mwe-math", 'class="tex"', 'latex"', "latex'", "class=latex")
_CODE = ("<pre", "<PRE")
_TEX_KINDS = ("application/x-tex", "text/x-tex", "tex", "latex", "application/x-latex")
_STYLE = re.compile(r"\{\\(?:display|text)style\s(.*)\}", re.DOTALL)
_DELIMITERS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"))
# What holds a formula together with other pictures of it: KaTeX, MediaWiki, MathJax 3 and 2.
_WHOLE = ".katex-display, .katex, .mwe-math-element, mjx-container, .MathJax_Display, .MathJax, .MathJax_SVG"
_PICTURES = "img.mwe-math-fallback-image-inline, img.mwe-math-fallback-image-display, img.tex, img.latex"
_SHOWN = ("MathJax", "MathJax_Preview", "MathJax_Display", "MathJax_SVG", "MathJax_SVG_Display", "MathJax_CHTML")
Code = Literal["lines", "whole"]


class Marks:
    """Words that stand in a page for what an extractor would spoil, and what they stand for."""

    def __init__(self, markup: str) -> None:
        self._stem = "qzmark"
        while self._stem in markup:
            self._stem += "z"
        self._meanings: list[str] = []
        self.blank = self._stem + "blankq"  # an empty line of code

    def add(self, meaning: str) -> str:
        self._meanings.append(meaning)
        return f"{self._stem}{len(self._meanings) - 1}q"

    def restore(self, text: str) -> str:
        if self.blank in text:
            text = re.sub(rf"[ \t]*{self.blank}[ \t]*", "", text)
        if not self._meanings or self._stem not in text:
            return text
        return re.sub(rf"{self._stem}(\d+)q", lambda found: self._meanings[int(found[1])], text)


def needs_order(markup: str, maths: bool, code: bool) -> bool:
    """Whether the page may have what `put_in_order` looks for."""
    return any(hint in markup for hint in (_MATHS if maths else ()) + (_CODE if code else ()))


def put_in_order(tree: Any, marks: Marks, maths: bool, code: Code | None) -> None:
    """Replace formulas by marks that stand for `$…$`, `$$…$$` where a formula has lines of its own; and make what
    stands in `pre` plain text, with its empty lines marked (`lines`) or behind a mark that stands for it (`whole`).

    A formula is taken from the LaTeX beside it (MathML's annotations, KaTeX, MathJax's scripts, the alternative
    text of pictures), else made of its MathML.
    """
    if tree.body is None:
        return
    if maths:
        for element, formula, display in list(_formulas(tree.body)):
            if element.parent is not None:
                sign = "$$" if display else "$"
                text = marks.add(f"{sign}{formula}{sign}") if formula else ""
                element.parent.replace_child(tree.create_text_node(text), element)
    if code:
        for block in list(tree.body.query_selector_all("pre")):
            _flatten(tree, block, marks, code)


def _formulas(body: Any) -> Iterator[tuple[Any, str, bool]]:
    """Elements that show a formula, the formula, and whether it has lines of its own."""
    for script in body.query_selector_all('script[type^="math/tex"]'):
        _remove_shown(script)
        yield script, _tidy(script.text), "display" in (script.getattr("type") or "")
    for element in body.query_selector_all("math"):
        if element.parent is None:
            continue  # it stood in what MathJax showed of a script
        whole, display = element, element.getattr("display") == "block" or element.getattr("mode") == "display"
        while (around := whole.parent.closest(_WHOLE) if whole.parent.tag != "body" else None) is not None:
            whole = around
        display |= whole.getattr("display") == "true" or "display" in (whole.class_name or "").lower()
        yield whole, _of_math(element), display
    for picture in body.query_selector_all(_PICTURES):
        if picture.getattr("alt") and picture.closest(".mwe-math-element:has(math)") is None:
            yield picture, _tidy(picture.getattr("alt")), "display" in (picture.class_name or "")


def _remove_shown(script: Any) -> None:
    """What MathJax 2 made of a script stands before it."""
    before = script.previous_sibling
    while before is not None and before.tag != "#text" and set((before.class_name or "").split()) & set(_SHOWN):
        before, shown = before.previous_sibling, before
        shown.parent.remove_child(shown)


def _of_math(element: Any) -> str:
    for annotation in element.query_selector_all("annotation"):
        if (annotation.getattr("encoding") or "").lower() in _TEX_KINDS and annotation.text.strip():
            return _tidy(annotation.text)
    return _tidy(element.getattr("alttext") or "") or latex(element)


def _tidy(formula: str) -> str:
    formula = " ".join(formula.split())
    for begin, end in _DELIMITERS:
        if formula.startswith(begin) and formula.endswith(end) and len(formula) > len(begin) + len(end):
            formula = formula[len(begin):-len(end)].strip()
    whole = _STYLE.fullmatch(formula)
    return whole[1].strip() if whole and _balanced(whole[1]) else formula


def _balanced(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\.|[{}]", text):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return False
    return depth == 0


def _flatten(tree: Any, block: Any, marks: Marks, code: Code) -> None:
    for line_break in list(block.query_selector_all("br")):
        line_break.parent.replace_child(tree.create_text_node("\n"), line_break)
    text = block.text.strip("\n")
    if code == "whole":
        text = f"{marks.add(text)}\n{text}"
    else:
        text = "\n".join(line if line.strip() else marks.blank for line in text.split("\n"))
    inner = block.query_selector("code")
    only = inner is not None and inner.text.strip() == block.text.strip()
    (inner if only else block).replace_children(tree.create_text_node("\n" + text))
