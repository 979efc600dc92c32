"""Tables of pages as Markdown, for an engine that knows none."""

from __future__ import annotations

from typing import Any

from curator_text.extract import markdown
from curator_text.extract.markup import Marks

_CELLS_MAX = 10_000  # with what spans several; a larger one stays text
_SPAN_MAX = 1_000  # HTML's own limit of colspan
_LAYOUT = "table, h1, h2, h3, h4, h5, h6, pre, p + p, form, input"  # a cell with these is a part of a page
_NO_TEXT = ("script", "style", "noscript", "template")


def put_tables_in_order(tree: Any, marks: Marks, links: bool) -> None:
    """Put a mark that stands for a Markdown table into each table of data, in the place of what is in it. The
    element stays, so that the engine decides as before whether it is a part of the text. Tables that lay out a
    page stay as they are: of one row or column, with tables, headings, forms, code or paragraphs in them.

    The first row is the head, as Markdown wants one. What spans several cells stands in the first of them. A
    caption stands above.
    """
    for table in list(tree.body.query_selector_all("table")) if tree.body is not None else ():
        if (table.getattr("role") or "").lower() in ("presentation", "none") \
                or table.query_selector(_LAYOUT) is not None:
            continue
        rows = _rows(table, links)
        if rows is None or len(rows) < 2 or max(map(len, rows)) < 2:
            continue
        caption = table.query_selector("caption")
        said = [] if caption is None else [" ".join(_inline(caption, links).split()), ""]
        meaning = marks.restore("\n".join([*said, *markdown.table(rows)]))
        for child in list(table.child_nodes):
            table.remove_child(child)
        row, cell = tree.create_element("tr"), tree.create_element("td")
        cell.append_child(tree.create_text_node(marks.add(f"\n\n{meaning}\n\n")))
        row.append_child(cell)
        table.append_child(row)


def _rows(table: Any, links: bool) -> list[list[str]] | None:
    """The texts of the cells, with those that stand for spans; None if they are too many."""
    found: list[list[str]] = []
    taken: dict[int, int] = {}  # by column, how many further rows a cell above reaches into
    count = 0
    for row in table.query_selector_all("tr"):
        cells: list[str] = []
        further: dict[int, int] = {}
        for cell in [child for child in row.child_nodes if child.tag in ("td", "th")]:
            while taken.get(len(cells)):
                cells.append("")
            wide, high = _span(cell, "colspan"), _span(cell, "rowspan")
            further |= {len(cells) + at: high - 1 for at in range(wide)}
            cells += [_inline(cell, links), *[""] * (wide - 1)]
            count += wide
            if count > _CELLS_MAX:
                return None
        taken = {at: left - 1 for at, left in taken.items() if left > 1} | further
        if any(cell.strip() for cell in cells):
            found.append(cells)
    return found


def _span(cell: Any, name: str) -> int:
    said = (cell.getattr(name) or "").strip()
    return min(max(1, int(said)), _SPAN_MAX) if said.isascii() and said.isdigit() else 1


def _inline(node: Any, links: bool) -> str:
    made = ""
    for child in node.child_nodes:
        if child.tag == "#text":
            made += child.text
        elif child.tag == "a" and links and child.getattr("href"):
            made += f"[{_inline(child, links).strip()}]({child.getattr('href')})"
        elif child.tag not in _NO_TEXT and not child.tag.startswith("#"):
            apart = " " if child.tag in ("br", "p", "div", "li") else ""
            made += apart + _inline(child, links) + apart
    return made
