"""The text of pages in wikitext, as it can be had without the wiki's templates and modules.

Source: https://www.mediawiki.org/wiki/Help:Formatting; parsed by mwparserfromhell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from curator_text.get.wiki_parts import NO_MARKS, Wishes, heading, item, put_together, raw, table

# What a tag holds is no text of the page.
_LEFT_OUT = frozenset((
    "gallery", "timeline", "imagemap", "score", "references", "graph", "mapframe", "maplink",
    "templatestyles", "section", "indicator", "inputbox", "categorytree", "style", "script"))
_CODE = frozenset(("pre", "source", "syntaxhighlight"))
_MATH = frozenset(("math", "chem", "ce"))
_LINES = frozenset(("br", "p", "div", "blockquote", "center", "hr", "poem"))
_MAGIC_WORD = re.compile(r"__[A-ZÄÖÜ_]{3,}__")
_PICTURE = re.compile(r"\.(?:jpe?g|png|gif|svg|webp|tiff?|ogg|ogv|oga|webm|mp[34]|wav|pdf|djvu|mid|flac)$",
                      re.IGNORECASE)
_OTHER_WIKI = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,})*$")
_PROJECTS = frozenset((
    "wikt", "wiktionary", "commons", "c", "s", "wikisource", "b", "q", "n", "v", "d", "species", "wikidata",
    "m", "meta", "mw", "voy", "w", "wikipedia"))
_OPTION = re.compile(r"(?:thumb|thumbnail|mini|frame|framed|frameless|border|left|right|center|none|baseline|"
                     r"middle|sub|super|top|upright(?:=.*)?|\d+(?:x\d+)?px|x\d+px|"
                     r"(?:link|alt|lang|class|page|thumbtime|start|end)=.*)$", re.IGNORECASE)
_BOLD, _ITALIC = re.compile(r"'''(.+?)'''"), re.compile(r"''(.+?)''")


class Wikitext:
    """Turns wikitext into text. `prefixes`: what links to files and categories begin with in this wiki."""

    def __init__(self, wishes: Wishes, prefixes: Sequence[str]) -> None:
        import mwparserfromhell

        self._library: Any = mwparserfromhell
        self._nodes: Any = mwparserfromhell.nodes
        self._wishes = wishes
        self._prefixes = {"file", "image", "media", "category", *(prefix.lower() for prefix in prefixes)}
        self._notes: list[str] = []

    def text(self, wikitext: str) -> str:
        """The text of a page."""
        self._notes = []
        code = self._library.parse(_MAGIC_WORD.sub("", wikitext.translate(NO_MARKS)), skip_style_tags=True)
        marked = self._all(code)
        marked = _without_table_lines(marked) if not self._wishes.tables else marked
        return put_together(self._styled(marked), self._notes, self._wishes)

    def _all(self, code: Any) -> str:
        return "".join(map(self._one, code.nodes)) if code is not None else ""

    def _one(self, node: Any) -> str:
        nodes = self._nodes
        handlers: list[tuple[type, Callable[[Any], str]]] = [
            (nodes.Text, lambda node: str(node.value)), (nodes.Wikilink, self._link),
            (nodes.Template, self._template), (nodes.Tag, self._tag), (nodes.ExternalLink, self._external),
            (nodes.Heading, lambda node: heading(node.level, self._styled(self._all(node.title)))),
            (nodes.HTMLEntity, lambda node: node.normalize()),
            (nodes.Argument, lambda node: self._all(node.default))]
        # what is none of these is a comment
        return next((handle(node) for kind, handle in handlers if isinstance(node, kind)), "")

    def _link(self, node: Any) -> str:
        title, shown = str(node.title).strip(), node.text
        prefix, colon, name = title.partition(":")
        prefix = prefix.strip().lower()
        if colon and (prefix in self._prefixes or _PICTURE.search(name)):
            return self._caption(node) if self._wishes.captions and _PICTURE.search(name) else ""
        if colon and _OTHER_WIKI.match(prefix) and shown is None:
            return ""
        if shown is not None:
            return self._all(shown)
        title = title.removeprefix(":")
        if prefix in _PROJECTS:
            title = name
        return title.partition("#")[0] or title.lstrip("#")

    def _caption(self, node: Any) -> str:
        """The last part of a picture's link that is no option: they may hold links themselves."""
        parts, depth, current = [], 0, ""
        for piece in re.split(r"(\[\[|\]\]|\{\{|\}\}|\|)", str(node.text or "")):
            depth += (piece in ("[[", "{{")) - (piece in ("]]", "}}"))
            if piece == "|" and not depth:
                parts.append(current)
                current = ""
            else:
                current += piece
        every = [part.strip() for part in [*parts, current]]
        found = [part for part in every if part and not _OPTION.match(part)]
        return f"\n{self._all(self._library.parse(found[-1], skip_style_tags=True))}\n" if found else ""

    def _template(self, node: Any) -> str:
        pattern = self._wishes.templates.get(str(node.name).strip().lower())
        if not pattern:
            return ""

        def argument(found: re.Match) -> str:
            name = found[1]
            return self._all(node.get(name).value).strip() if node.has(name) else ""

        return re.sub(r"\{(\w+)\}", argument, pattern)

    def _external(self, node: Any) -> str:
        if node.title is not None:
            return self._all(node.title)
        return "" if node.brackets else str(node.url)

    def _tag(self, node: Any) -> str:
        name, markdown = str(node.tag).strip().lower(), self._wishes.is_markdown
        if node.wiki_markup and name in ("li", "dt", "dd"):
            return item(str(node.wiki_markup)[:1])
        if name == "ref":
            return self._note(node)
        if name in _LEFT_OUT:
            return ""
        if name == "table":
            return self._table(node) if self._wishes.tables else "\n"
        if name in _MATH:
            return f"${str(node.contents).strip()}$"
        if name in _CODE:
            return raw(str(node.contents), markdown)
        if name in ("code", "tt", "nowiki"):
            content = str(node.contents) if name == "nowiki" else self._all(node.contents)
            return raw(content, markdown and name != "nowiki", block=False)
        content = self._all(node.contents)
        return f"\n{content}\n" if name in _LINES else content

    def _note(self, node: Any) -> str:
        content = self._all(node.contents).strip() if self._wishes.references and node.contents else ""
        if not content:
            return ""
        self._notes.append(self._styled(content))
        return f"[^{len(self._notes)}]"

    def _table(self, node: Any) -> str:
        rows: list[list[str]] = [[]]
        for child in node.contents.nodes if node.contents is not None else []:
            if not isinstance(child, self._nodes.Tag):
                continue
            if child.tag == "tr":
                rows.append([self._cell(cell) for cell in child.contents.nodes
                             if isinstance(cell, self._nodes.Tag) and cell.tag in ("td", "th")])
            elif child.tag in ("td", "th"):  # before the first row's mark
                rows[0].append(self._cell(child))
        return table(rows, self._wishes.is_markdown)

    def _cell(self, cell: Any) -> str:
        return self._styled(self._all(cell.contents))

    def _styled(self, text: str) -> str:
        """Bold and italic, which are apostrophes."""
        bold, italic = (r"**\1**", r"*\1*") if self._wishes.is_markdown else (r"\1", r"\1")
        return _ITALIC.sub(italic, _BOLD.sub(bold, text)).replace("'''", "").replace("''", "")


def _without_table_lines(text: str) -> str:
    """The text without tables that the parser did not see as such, because templates are a part of them."""
    lines, depth = [], 0
    for line in text.split("\n"):
        bare = line.strip()
        depth += bare.startswith("{|")
        if not depth and not bare.startswith(("|-", "|}")):
            lines.append(line)
        depth -= depth > 0 and bare.startswith("|}")
    return "\n".join(lines) if not depth else text
