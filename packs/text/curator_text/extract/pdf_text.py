"""The text of a PDF, page by page, by pdfium."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any, NamedTuple

_CUT_WORD = re.compile("[\x02\ufffe]\n?")  # what pdfium puts for a hyphen that cuts a word at the end of a line
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")


class PdfText(NamedTuple):
    """`scanned`: how many pages have a picture and no text."""

    pages: list[str]
    scanned: int
    title: str | None
    author: str | None
    published: str | None


def read_pdf(data: bytes, password: str | None = None) -> PdfText:
    """The text of each page in the order of the file, lines as they stand on the page.

    Raises:
        ValueError: it is no PDF, is broken, or wants a password.
    """
    import pypdfium2 as pdfium
    from pypdfium2 import raw

    try:
        opened = pdfium.PdfDocument(data, password=password)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            raise ValueError("it is encrypted and wants " + ("another" if password else "a")
                             + " password") from error
        raise ValueError(f"it is no PDF that can be read: {error}") from error
    with closing(opened):
        pages, scanned = [], 0
        for number in range(len(opened)):
            with closing(_page(opened, number)) as page:
                text = _text(page)
                scanned += not text.strip() and _has_picture(page, raw)
            pages.append(text)
        told = opened.get_metadata_dict(skip_empty=True)
    return PdfText(pages, scanned, _line(told.get("Title")), _line(told.get("Author")),
                   _date(told.get("CreationDate")))


def _page(opened: Any, number: int) -> Any:
    import pypdfium2 as pdfium

    try:
        return opened.get_page(number)
    except pdfium.PdfiumError as error:
        raise ValueError(f"its page {number + 1} of {len(opened)} cannot be read: {error}") from error


def _text(page: Any) -> str:
    with closing(page.get_textpage()) as text:
        said = text.get_text_range()
    said = _CUT_WORD.sub("", said.replace("\r\n", "\n").replace("\r", "\n"))
    return said.replace("\x00", "").replace("\f", "\n")


def _has_picture(page: Any, raw: Any) -> bool:
    return next(iter(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=4)), None) is not None


def _line(text: str | None) -> str | None:
    return " ".join((text or "").split()) or None


def _date(text: str | None) -> str | None:
    found = _DATE.match(text or "")
    return "-".join(part for part in found.groups() if part) if found else None
