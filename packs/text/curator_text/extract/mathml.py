"""MathML to LaTeX."""

from __future__ import annotations

import unicodedata
from typing import Any

FUNCTIONS = frozenset({
    "arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "coth", "csc", "deg", "det", "dim", "exp",
    "gcd", "hom", "inf", "ker", "lg", "lim", "liminf", "limsup", "ln", "log", "max", "min", "Pr", "sec",
    "sin", "sinh", "sup", "tan", "tanh"})
_LIMITS = frozenset("∑∏∐⋃⋂⋁⋀⨁⨂⨀") | {"lim", "max", "min", "sup", "inf", "limsup", "liminf", "det", "gcd", "Pr"}
_BIG = {"∑": "sum", "∏": "prod", "∐": "coprod", "∫": "int", "∬": "iint", "∭": "iiint", "∮": "oint", "⋃": "bigcup",
        "⋂": "bigcap", "⋁": "bigvee", "⋀": "bigwedge", "⨁": "bigoplus", "⨂": "bigotimes", "⨀": "bigodot"}
_SIGNS = {
    "±": "pm", "∓": "mp", "×": "times", "÷": "div", "⋅": "cdot", "·": "cdot", "∗": "ast", "⋆": "star", "∘": "circ",
    "∙": "bullet", "⊕": "oplus", "⊗": "otimes", "⊖": "ominus", "⊙": "odot", "∩": "cap", "∪": "cup", "∧": "wedge",
    "∨": "vee", "¬": "neg", "∀": "forall", "∃": "exists", "∄": "nexists", "∈": "in", "∉": "notin", "∋": "ni",
    "⊂": "subset", "⊃": "supset", "⊆": "subseteq", "⊇": "supseteq", "⊊": "subsetneq", "∅": "emptyset",
    "≤": "leq", "≥": "geq", "≠": "neq", "≈": "approx", "≡": "equiv", "∼": "sim", "≃": "simeq", "≅": "cong",
    "∝": "propto", "≪": "ll", "≫": "gg", "≺": "prec", "≻": "succ", "⊥": "perp", "∥": "parallel", "∣": "mid",
    "⊢": "vdash", "⊨": "models", "→": "to", "←": "leftarrow", "↔": "leftrightarrow", "⇒": "Rightarrow",
    "⇐": "Leftarrow", "⇔": "Leftrightarrow", "↦": "mapsto", "↑": "uparrow", "↓": "downarrow",
    "⟶": "longrightarrow", "⟹": "Longrightarrow", "⟺": "iff", "∂": "partial", "∇": "nabla", "∞": "infty",
    "…": "ldots", "⋯": "cdots", "⋮": "vdots", "⋱": "ddots", "ℏ": "hbar", "ℓ": "ell", "ℜ": "Re", "ℑ": "Im",
    "ℵ": "aleph", "′": "prime", "∖": "setminus", "⟨": "langle", "⟩": "rangle", "⌊": "lfloor", "⌋": "rfloor",
    "⌈": "lceil", "⌉": "rceil", "‖": "|", "√": "surd", "∠": "angle", "△": "triangle", "□": "square",
    "°": "circ", "†": "dagger", "‡": "ddagger", "ϵ": "epsilon", "ϑ": "vartheta", "ϕ": "phi", "ϖ": "varpi",
    "ϱ": "varrho", "ς": "varsigma", "ε": "varepsilon", "φ": "varphi"}
_PLAIN = {"−": "-", "–": "-", "⁢": "", "⁡": "", "⁣": "", "⁤": "", "\u200b": "", "\xa0": " ", "′": "'"}
_ACCENTS = {"^": "hat", "ˆ": "hat", "̂": "hat", "¯": "bar", "‾": "overline", "̄": "bar", "_": "underline", "~": "tilde",
            "˜": "tilde", "∼": "tilde", "→": "vec", "⃗": "vec", "˙": "dot", ".": "dot", "¨": "ddot", "ˇ": "check",
            "⏞": "overbrace", "⏟": "underbrace", "̲": "underline"}
_STYLES = {"bold": "mathbf", "double-struck": "mathbb", "script": "mathcal", "fraktur": "mathfrak",
           "sans-serif": "mathsf", "monospace": "mathtt", "bold-italic": "boldsymbol"}
_TEXT = str.maketrans({sign: "\\" + sign for sign in "%#&_{}$"} | {"\\": r"\backslash "})


def latex(node: Any) -> str:
    """A `math` element of a page, as LaTeX. What MathML says of look alone (sizes, spaces) is left out; an
    element that is unknown counts as a row of what it holds.

    Source: MathML Core, https://www.w3.org/TR/mathml-core/
    """
    return _row(node).strip()


def _row(node: Any) -> str:
    return _joined([_element(child) for child in node.child_nodes])


def _joined(parts: list[str]) -> str:
    """With a space where a command would swallow the letter behind it."""
    text = ""
    for part in filter(None, parts):
        command = text.rpartition("\\")[2] if "\\" in text else ""
        text += " " + part if command and command.isalpha() and part[0].isalpha() else part
    return text


def _element(node: Any) -> str:
    if node.tag == "#text":
        return _symbols("".join(node.text.split()))
    made = _MAKERS.get(node.tag)
    return made(node) if made else _row(node)


def _parts(node: Any) -> list[str]:
    return [_element(child) for child in node.child_nodes if child.tag not in ("#text", "#comment")]


def _arguments(node: Any, count: int) -> list[str]:
    return (_parts(node) + [""] * count)[:count]


def _symbols(text: str) -> str:
    return _joined([_symbol(sign) for sign in text])


def _symbol(sign: str) -> str:
    if sign in _PLAIN:
        return _PLAIN[sign]
    if name := _SIGNS.get(sign) or _BIG.get(sign):
        return "\\" + name
    if sign in "%#&_{}$":
        return "\\" + sign
    words = unicodedata.name(sign, "").split()
    if words[:1] == ["GREEK"] and len(words) == 4 and words[2] == "LETTER" and words[3] != "OMICRON":
        name = words[3].lower().replace("lamda", "lambda")
        return "\\" + (name.capitalize() if words[1] == "CAPITAL" else name)
    return unicodedata.normalize("NFKC", sign) if words[:1] == ["MATHEMATICAL"] else sign


def _identifier(node: Any) -> str:
    text = "".join((node.text or "").split())
    style = _STYLES.get(node.getattr("mathvariant") or "")
    if text in FUNCTIONS:
        return "\\" + text
    if len(text) > 1 and text.isascii() and text.isalpha():
        return f"\\{style or 'mathrm'}{{{text}}}"
    return f"\\{style}{{{_symbols(text)}}}" if style else _symbols(text)


def _operator(node: Any) -> str:
    text = " ".join((node.text or "").split())
    if text in FUNCTIONS:
        return "\\" + text
    return f"\\operatorname{{{text}}}" if len(text) > 1 and text.isalpha() else _symbols(text)


def _words(node: Any) -> str:
    text = " ".join((node.text or "").replace("\xa0", " ").split())
    return f"\\text{{{text.translate(_TEXT)}}}" if text else ""


def _fraction(node: Any) -> str:
    above, below = _arguments(node, 2)
    if (node.getattr("linethickness") or "").rstrip("ptxem%") in ("0", "0.0"):
        return f"{{{above} \\atop {below}}}"
    return f"\\frac{{{above}}}{{{below}}}"


def _base(text: str) -> str:
    """What an index stands at: as it is where that is one thing."""
    simple = len(text) == 1 or (text.startswith("\\") and text[1:].isalpha())
    return text if simple else f"{{{text}}}"


def _scripts(node: Any) -> str:
    base, first, second = _arguments(node, 3)
    if node.tag == "msup":
        return _base(base) + ("'" * len(first.split("'")[1:]) if first.strip("'") == "" else f"^{{{first}}}")
    return _base(base) + f"_{{{first}}}" + (f"^{{{second}}}" if node.tag == "msubsup" else "")


def _over_and_under(node: Any) -> str:
    children = [child for child in node.child_nodes if child.tag not in ("#text", "#comment")]
    parts = _arguments(node, 3)
    signs = ["".join((child.text or "").split()) for child in children] + [""] * 3
    base = parts[0]
    below, above = {"munder": (1, 0), "mover": (0, 1), "munderover": (1, 2)}[node.tag]
    if signs[0] in _LIMITS:
        return base + (f"_{{{parts[below]}}}" if below else "") + (f"^{{{parts[above]}}}" if above else "")
    for at, command in ((below, "underset"), (above, "overset")):
        if at:
            accent = _ACCENTS.get(signs[at])
            if accent in ("bar", "tilde", "hat", "vec") and at == below:
                accent = "underline"
            base = f"\\{accent}{{{base}}}" if accent else f"\\{command}{{{parts[at]}}}{{{base}}}"
    return base


def _fenced(node: Any) -> str:
    signs = [node.getattr(name) for name in ("open", "close", "separators")]
    before, after, between = (sign if sign is not None else usual
                              for sign, usual in zip(signs, ("(", ")", ","), strict=True))
    return _symbols(before) + (between[:1] or "").join(_parts(node)) + _symbols(after)


def _table(node: Any) -> str:
    rows = [" & ".join(_element(cell) for cell in row.child_nodes if cell.tag == "mtd")
            for row in node.child_nodes if row.tag in ("mtr", "mlabeledtr")]
    return "\\begin{matrix}" + " \\\\ ".join(rows) + "\\end{matrix}"


def _before_and_behind(node: Any) -> str:
    children = [child for child in node.child_nodes if child.tag not in ("#text", "#comment")]
    at = next((n for n, child in enumerate(children) if child.tag == "mprescripts"), len(children))
    parts = ["" if child.tag in ("none", "mprescripts") else _element(child) for child in children]

    def indices(found: list[str]) -> str:
        below, above = "".join(found[::2]), "".join(found[1::2])
        return (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")

    behind = parts[at + 1:]
    return ("{}" + indices(behind) if behind else "") + _base(parts[0] if parts else "") + indices(parts[1:at])


def _annotated(node: Any) -> str:
    return next(iter(_parts(node)), "")


_MAKERS = {
    "mi": _identifier, "mn": lambda node: _symbols("".join((node.text or "").split())), "mo": _operator,
    "mtext": _words, "ms": _words, "mfrac": _fraction, "msup": _scripts, "msub": _scripts, "msubsup": _scripts,
    "munder": _over_and_under, "mover": _over_and_under, "munderover": _over_and_under,
    "msqrt": lambda node: f"\\sqrt{{{_row(node)}}}", "mfenced": _fenced, "mtable": _table,
    "mroot": lambda node: "\\sqrt[{1}]{{{0}}}".format(*_arguments(node, 2)),
    "mmultiscripts": _before_and_behind, "semantics": _annotated, "maction": _annotated,
    "mphantom": lambda node: "", "mspace": lambda node: " ", "annotation": lambda node: "",
    "annotation-xml": lambda node: "", "#comment": lambda node: ""}
