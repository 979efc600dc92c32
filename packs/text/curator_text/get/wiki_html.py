"""The text of pages in the HTML that MediaWiki makes of them (Parsoid), templates and modules worked out.

Source: https://www.mediawiki.org/wiki/Specs/HTML; the dumps:
https://dumps.wikimedia.org/other/enterprise_html/.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from curator_text.get.wiki_parts import NO_MARKS, Wishes, heading, item, put_together, raw, table

_LEFT_OUT = frozenset((
    "head", "style", "script", "link", "meta", "figure", "figure-inline", "audio", "video", "map", "img",
    "noscript", "template", "svg"))
_BLOCKS = frozenset((
    "p", "div", "section", "blockquote", "center", "dl", "ul", "ol", "body", "article", "details",
    "summary", "aside", "address"))
# Boxes, notices and navigation: what stands on a page and is none of its text.
_NO_TEXT = frozenset((
    "infobox", "navbox", "navbox-styles", "vertical-navbox", "sidebar", "metadata", "ambox", "hatnote",
    "noprint", "mw-editsection", "reflist", "mw-references-wrap", "references", "toc", "toccolours",
    "gallery", "sistersitebox", "mbox-small", "stub", "catlinks", "mw-empty-elt", "shortdescription",
    "nomobile", "dablink", "succession-box", "authority-control", "portal", "geo-nondefault",
    "mw-indicators", "mw-kartographer-map"))
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_HEADING = re.compile(r"h([1-6])$")
_ELEMENT, _TEXT = 1, 3


@dataclass(frozen=True, kw_only=True)
class HtmlPage:
    """A line of a dump: a page, and what is known of it."""

    page_id: int
    title: str
    namespace: int
    revision: int | None
    date: str | None
    url: str | None
    wiki: str | None
    redirects: list[str]
    html: str


def parse_line(line: bytes) -> HtmlPage:
    """What a line of a dump says.

    Raises:
        ValueError: it is no page.
    """
    try:
        # JSON can hold half of a surrogate pair, which is no character
        entry = json.loads(line) if b"\\ud" not in line.lower() else json.loads(
            json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))
        return HtmlPage(page_id=int(entry["identifier"]), title=entry["name"],
                        namespace=int((entry.get("namespace") or {}).get("identifier") or 0),
                        revision=(entry.get("version") or {}).get("identifier"),
                        date=entry.get("date_modified"), url=entry.get("url"),
                        wiki=(entry.get("is_part_of") or {}).get("identifier"),
                        redirects=[one["name"] for one in entry.get("redirects") or [] if one.get("name")],
                        html=entry["article_body"]["html"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no page of a dump: {type(error).__name__}: {error}") from error


class PageHtml:
    """Turns a page's HTML into text."""

    def __init__(self, wishes: Wishes) -> None:
        from resiliparse.parse.html import HTMLTree

        self._tree: Any = HTMLTree
        self._wishes = wishes
        self._references: dict[str, str] = {}  # texts of the page's references by id
        self._notes: list[str] = []

    def text(self, html: str) -> str:
        """The text of a page."""
        tree = self._tree.parse(html.translate(NO_MARKS))
        self._notes, self._references = [], {}
        if self._wishes.references and tree.body is not None:
            for note in tree.body.query_selector_all("ol.mw-references > li, ol.references > li"):
                found = note.query_selector(".mw-reference-text") or note
                self._references[note.getattr("id") or ""] = found.text
        marked = self._all(tree.body, []) if tree.body is not None else ""
        return put_together(marked, self._notes, self._wishes)

    def _all(self, node: Any, lists: list[str]) -> str:
        return "".join(self._one(child, lists) for child in node.child_nodes)

    def _one(self, node: Any, lists: list[str]) -> str:
        if node.type == _TEXT:
            return re.sub(r"\s+", " ", node.text)
        if node.type != _ELEMENT:
            return ""
        tag, classes = node.tag, set((node.getattr("class") or "").split())
        if tag in ("sup", "span") and classes & {"mw-ref", "reference"}:
            return self._note(node)
        if "mwe-math-element" in classes or tag == "math":
            return self._formula(node)
        if tag in ("figure", "figure-inline") and self._wishes.captions:
            caption = node.query_selector("figcaption")
            return f"\n{self._all(caption, [])}\n" if caption is not None else ""
        if tag in _LEFT_OUT or classes & _NO_TEXT or _HIDDEN.search(node.getattr("style") or ""):
            return ""
        return self._shown(node, tag, lists)

    def _shown(self, node: Any, tag: str, lists: list[str]) -> str:
        """An element that is text of the page."""
        markdown = self._wishes.is_markdown
        found = _HEADING.match(tag)
        if found:
            return heading(int(found[1]), self._all(node, []))
        if tag == "table":
            return self._table(node) if self._wishes.tables else "\n"
        if tag == "br":
            return "\n"
        if tag == "pre":
            return raw(node.text, markdown)
        if tag in ("code", "tt"):
            return raw(node.text, markdown, block=False)
        if tag in ("ul", "ol", "dl"):
            return "\n" + self._all(node, [*lists, {"ul": "*", "ol": "#", "dl": ":"}[tag]]) + "\n"
        if tag in ("li", "dt", "dd"):
            return "\n" + "".join(map(item, lists or ["*"])) + self._all(node, lists).strip() + "\n"
        content = self._all(node, lists)
        if tag in ("b", "strong", "i", "em") and markdown and content.strip():
            mark = "**" if tag in ("b", "strong") else "*"
            return f"{mark}{content}{mark}" if content == content.strip() else content
        return f"\n{content}\n" + "\n" * (tag == "p") if tag in _BLOCKS else content

    def _note(self, node: Any) -> str:
        link = node.query_selector("a")
        target = (link.getattr("href") or "").rpartition("#")[2] if link is not None else ""
        if target not in self._references:
            return ""
        self._notes.append(self._references[target])
        return f"[^{len(self._notes)}]"

    def _formula(self, node: Any) -> str:
        """A formula in the TeX that its writer wrote."""
        found = node.query_selector('annotation[encoding="application/x-tex"]')
        tex = found.text if found is not None else None
        for name in ("math", "img"):
            one = node if node.tag == name else node.query_selector(name)
            tex = tex or (one is not None and (one.getattr("alttext") or one.getattr("alt"))) or None
        tex = (tex or "").strip()
        inner = re.fullmatch(r"\{\\(?:displaystyle|textstyle)\s*(.*)\}", tex, re.DOTALL)
        return f"${(inner[1] if inner else tex).strip()}$" if tex else ""

    def _table(self, node: Any) -> str:
        rows = [[self._all(cell, []) for cell in row.child_nodes
                 if cell.type == _ELEMENT and cell.tag in ("td", "th")]
                for row in node.query_selector_all("tr")]
        return table(rows, self._wishes.is_markdown)
