"""Text with headings, lists, code and links as Markdown. Signs in the text itself are not escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_HEADING = re.compile(r"h([1-6])")
_MANY_LINES = re.compile(r"\n{3,}")


def of_minimal_html(text: str) -> str:
    """Of what resiliparse gives as `minimal_html`: headings, paragraphs, lists, `pre`, `br` and links."""
    from resiliparse.parse.html import HTMLTree

    body = HTMLTree.parse(text).body
    return tidy(_blocks(body, 0)) if body is not None else ""


def of_paragraphs(paragraphs: Iterable[tuple[str, list[str]]]) -> str:
    """Of texts, each with the names of the elements that it stands in, the outermost first."""
    blocks = []
    for text, path in paragraphs:
        level = next((found[1] for name in reversed(path) if (found := _HEADING.fullmatch(name))), None)
        lists = [name for name in path if name in ("ul", "ol")]
        if "pre" in path:
            blocks.append(fence(text))
        elif level:
            blocks.append("#" * int(level) + " " + " ".join(text.split()))
        elif lists and "li" in path:
            sign = "1. " if lists[-1] == "ol" else "- "
            blocks.append("  " * (len(lists) - 1) + sign + text.replace("\n", " "))
        else:
            blocks.append(text)
    joined = ""
    for before, block in zip(["", *blocks], blocks, strict=False):
        close = _is_item(before) and _is_item(block)
        joined += block if not joined else ("\n" if close else "\n\n") + block
    return joined


def fence(code: str) -> str:
    """As a block of code, between as many ticks as it needs."""
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}\n{code.strip(chr(10))}\n{ticks}"


def table(rows: list[list[str]]) -> list[str]:
    """The lines of a table: the first row is the head, and all are as wide as the widest."""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*(" ".join(cell.split()).replace("|", "\\|") for cell in row),
                                *[""] * (width - len(row))]) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * width, *lines[1:]]


def _is_item(block: str) -> bool:
    return block.lstrip().startswith(("- ", "1. "))


def tidy(text: str) -> str:
    """Without empty lines at its ends and more than one between others."""
    return _MANY_LINES.sub("\n\n", text).strip("\n")


def _blocks(node: Any, depth: int) -> str:
    made = ""
    for child in node.child_nodes:
        if heading := _HEADING.fullmatch(child.tag):
            made += "\n\n" + "#" * int(heading[1]) + " " + _inline(child).replace("\n", " ").strip() + "\n\n"
        elif child.tag in ("ul", "ol"):
            apart = "\n\n" if depth == 0 else "\n"
            made = made.rstrip() + apart + _list(child, depth) + apart
        elif child.tag == "pre":
            made += "\n\n" + fence(child.text) + "\n\n"
        elif child.tag == "p":
            made += "\n\n" + _blocks(child, depth).strip() + "\n\n"
        else:
            made += _piece(child)
    return made


def _list(node: Any, depth: int) -> str:
    lines, number = [], 0
    for item in node.child_nodes:
        if item.tag != "li":
            continue
        number += 1
        sign = f"{number}. " if node.tag == "ol" else "- "
        text = tidy(_blocks(item, depth + 1)).strip()
        first, *rest = text.split("\n")
        indent = " " * len(sign)
        lines.append("\n".join([sign + first, *(indent + line if line else "" for line in rest)]))
    return "\n".join(lines)


def _inline(node: Any) -> str:
    return "".join(_piece(child) for child in node.child_nodes)


def _piece(child: Any) -> str:
    if child.tag == "#text":
        return child.text
    if child.tag == "br":
        return ""  # the line's end stands behind it
    if child.tag == "a" and child.getattr("href"):
        return f"[{_inline(child)}]({child.getattr('href')})"
    return _inline(child)
