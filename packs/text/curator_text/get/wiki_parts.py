"""What wikitext and HTML of a wiki have in common once they are taken apart: lines, headings and lists, and
how they are put together.

Both give one text in which headings and list items are marked by characters that are in no text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from curator_text.extract.markdown import table as table_lines

HEADING, ITEM, RAW = "\ufdd1", "\ufdd2", "\ufdd3"  # code points that are no characters (Unicode 23.7)
NO_MARKS = dict.fromkeys(map(ord, (HEADING, ITEM, RAW)))
TEMPLATES = {"lang": "{2}", "transl": "{3}{2}", "nowrap": "{1}", "nobr": "{1}", "abbr": "{1}", "em": "{1}",
             "strong": "{1}", "mvar": "{1}", "math": "{1}", "sup": "{1}", "sub": "{1}", "quote": "{1}",
             "blockquote": "{1}", "convert": "{1} {2}", "cvt": "{1} {2}", "circa": "c. {1}", "val": "{1}"}
_EMPTY_PARENTHESES = re.compile(r"[ \t]?\([\s,;:\u2013-]*\)|[ \t]?（[\s，；、]*）")
_SPACES = re.compile(r"[ \t\u00a0]+")
_BEFORE_MARK = re.compile(r"[ \t]+([,.;:!?)](?=\s|$))")
_MARKED = re.compile(rf"^{HEADING}([1-6])(.*?){HEADING}$")
_ITEMS = re.compile(rf"^(?:{ITEM}[*#:;]\s*)+")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What of a page is kept; the fields are parameters of `ExtractWiki`."""

    markup: str = "text"
    tables: bool = False
    references: bool = False
    captions: bool = False
    drop_sections: frozenset[str] = frozenset()  # lower case
    templates: dict[str, str] = field(default_factory=lambda: dict(TEMPLATES))

    @property
    def is_markdown(self) -> bool:
        return self.markup == "markdown"


def heading(level: int, title: str) -> str:
    """A heading, marked, on a line of its own."""
    return f"\n{HEADING}{min(max(level, 1), 6)}{' '.join(title.split())}{HEADING}\n"


def item(kind: str) -> str:
    """What stands before an item of a list; `kind`: `*`, `#`, `:`, `;`."""
    return f"{ITEM}{kind}"


def raw(text: str, markdown: bool, block: bool = True) -> str:
    """Code and the like, whose lines stay as they are."""
    if not block:
        return f"`{text}`" if markdown else text
    kept = "\n".join(f"{RAW}{line}" for line in text.strip("\n").split("\n"))
    return f"\n{RAW}```\n{kept}\n{RAW}```\n" if markdown else f"\n{kept}\n"


def table(rows: list[list[str]], markdown: bool) -> str:
    """A table with the cells' texts, a row a line; in Markdown the first row is the head."""
    rows = [[" ".join(cell.split()) for cell in row] for row in rows]
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    if not markdown:
        return "\n" + "\n".join(RAW + " | ".join(row) for row in rows) + "\n"
    return "\n" + "\n".join(RAW + line for line in table_lines(rows)) + "\n"


def put_together(marked: str, notes: list[str], wishes: Wishes) -> str:
    """The text of a page: sections that are not wanted and headings without text left out, spaces tidied."""
    lines: list[str] = []
    waiting: list[tuple[int, str]] = []  # headings that nothing stands below yet
    in_list = False  # whether the last line with something on it is an item
    hidden = 0  # level of the section that is left out
    for line in marked.split("\n"):
        found = _MARKED.match(line.strip())
        if found:
            level, title = int(found[1]), _tidy(found[2])
            if hidden and level > hidden:
                continue
            hidden = level if title.lower() in wishes.drop_sections else 0
            waiting = [one for one in waiting if one[0] < level]
            if not hidden and title:
                waiting.append((level, title))
            continue
        is_item, line = line.startswith(ITEM), _line(line, wishes.is_markdown)
        if hidden or (not line and (not lines or not lines[-1])):
            continue
        if is_item and line and not waiting and in_list and not lines[-1]:
            lines.pop()  # a list within a list stands on lines of its own in HTML
        in_list = is_item if line else in_list
        if line:
            for level, title in waiting:
                lines += ["", f"{'#' * level} {title}" if wishes.is_markdown else title, ""]
            waiting = []
        lines.append(line)
    if notes:
        lines += ["", *(f"[^{n}]: {' '.join(note.split())}" for n, note in enumerate(notes, 1))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _line(line: str, markdown: bool) -> str:
    if line.startswith(RAW):
        return line[1:]
    items = _ITEMS.match(line)
    if not items:
        return _tidy(line)
    kinds = re.findall(rf"{ITEM}(.)", items[0])
    content = _tidy(line[items.end():])
    if not content:
        return ""
    if kinds[-1] in ":;":
        return content
    return "  " * (len(kinds) - 1) * markdown + ("1. " if kinds[-1] == "#" else "- ") + content


def _tidy(line: str) -> str:
    """A line without what templates and references leave behind: empty parentheses, double spaces."""
    line = line.replace(ITEM, "").replace(HEADING, "").replace(RAW, "")
    line = _EMPTY_PARENTHESES.sub("", line)
    return _BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", line)).strip()
