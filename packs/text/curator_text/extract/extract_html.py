"""The main text of web pages."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.extract.decode import decode_text

# In main-content mode resiliparse 2.0 takes a piece of text of one character of three bytes for an icon and
# drops it: the full stop behind a link in Chinese, a Thai or Hindi letter in bold. Characters for private use
# are icons indeed.
_LONE = re.compile(r">(\s*(?:[\u0800-\ud7ff\uf900-\uffff]|&#?\w+;)\s*)(?=<)")
_FILLER = "\ufdd0"  # a code point that is no character (Unicode 23.7), so in no text


class Page(NamedTuple):
    """What a page says. `title` is None where it has none; `charset` is the encoding that it was read in."""

    text: str
    title: str | None
    charset: str | None


class Failure(NamedTuple):
    error: str
    traceback: str


def extract_page(html: bytes, charset: str | None = None, *, main_content: bool = True,
                 preserve_formatting: bool = True, comments: bool = False, alt_texts: bool = False,
                 links: bool = False) -> Page:
    """The text of a page and its title. `charset`: what the server states; the options are those of
    `ExtractHtml`.

    Raises:
        ValueError: the bytes are no text.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    markup, charset = decode_text(html, charset, html=True)
    if main_content:
        markup = _LONE.sub(rf">\1{_FILLER}", markup)
    tree = HTMLTree.parse(markup)
    text = extract_plain_text(tree, main_content=main_content, preserve_formatting=preserve_formatting,
                              comments=comments, alt_texts=alt_texts, links=links)
    title = " ".join((tree.title or "").replace(_FILLER, "").split())
    return Page(text.replace(_FILLER, ""), title or None, charset)


@dataclass(kw_only=True)
class ExtractHtml(Stage):
    """Extract the main text of HTML pages: without menus, headers, footers, adverts, scripts.

    Reads `html` (bytes) and, where they are there, `charset` (as the server states it) and `content_type`
    (plain text is only decoded). Adds `text` ("" where a page has none), `title` (null where it has none),
    `charset` (the encoding it was read in) and `html_bytes`; removes `html` unless `keep_html`. A row without
    `html` keeps the `text` that it has.

    Bytes that are no text (an image, a PDF) leave on `failed`, pages that are too large on `dropped`, reason
    `too_large`. A call of 64 pages, a fraction of a second as a rule, may take 10 s: a page that hangs is
    found and fails.

    `main_content`: False takes all text of the page. `preserve_formatting`: paragraphs, lists and table cells
    keep their line breaks; False gives one line. `comments`: also what readers wrote below an article.
    `alt_texts`: the descriptions of images too. `links`: the addresses of links too. `keep_html`: leave the
    column `html` in place. `max_html_bytes`: largest page.

    Source: resiliparse, https://resiliparse.chatnoir.eu/en/latest/man/extract/html2text.html; compared with
    others in Bevendorff et al. 2023, https://doi.org/10.1145/3539618.3591920.
    """

    main_content: bool = True
    preserve_formatting: bool = True
    comments: bool = False
    alt_texts: bool = False
    links: bool = False
    keep_html: bool = False
    max_html_bytes: int = 1 << 23

    timeout_s = 10.0
    batch_size = 64

    def __post_init__(self) -> None:
        if self.max_html_bytes < 1:
            raise ValueError(f"max_html_bytes must be 1 or more, got {self.max_html_bytes}")

    def contract(self) -> Contract:
        adds = {"text": pa.string(), "title": pa.string(), "charset": pa.string(), "html_bytes": pa.int64()}
        return Contract(needs={"html": pa.binary()}, adds=adds, removes=() if self.keep_html else ("html",))

    def process(self, batch: TextBatch) -> Outputs:
        columns = [batch.column(name) if name in batch.columns else [None] * len(batch)
                   for name in ("html", "charset", "content_type", "text")]
        pages = [self._page(*row) for row in zip(*columns, strict=True)]
        ports = batch.split(["failed" if isinstance(p, Failure) else "out" if p else "dropped"
                             for p in pages])
        read = [page for page in pages if isinstance(page, Page)]
        outputs = Outputs(out=self._with_pages(ports.get("out", batch.slice(0, 0)), read))
        if "dropped" in ports:
            outputs["dropped"] = ports["dropped"].with_reason("too_large")
        if "failed" in ports:
            failures = [p for p in pages if isinstance(p, Failure)]
            outputs["failed"] = ports["failed"].with_error([f.error for f in failures]).with_columns(
                {"traceback": [f.traceback for f in failures]})
        return outputs

    def _page(self, html: bytes | None, charset: str | None, kind: str | None,
              text: str | None) -> Page | Failure | None:
        """What a row holds, None if it is too large."""
        if html is None:
            return Page(text or "", None, charset)
        if len(html) > self.max_html_bytes:
            return None
        try:
            if kind == "text/plain":
                text, charset = decode_text(html, charset)
                return Page(text, None, charset)
            return extract_page(html, charset, main_content=self.main_content, alt_texts=self.alt_texts,
                                preserve_formatting=self.preserve_formatting, comments=self.comments,
                                links=self.links)
        except Exception as error:  # whatever the libraries raise is the row's fault, and the row says so
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _with_pages(self, batch: TextBatch, pages: list[Page]) -> TextBatch:
        sizes = [len(html or b"") for html in batch.column("html")]
        batch = batch.with_columns({name: pa.array([getattr(page, name) for page in pages], pa.string())
                                    for name in Page._fields} | {"html_bytes": pa.array(sizes, pa.int64())})
        return batch if self.keep_html else batch.without(["html"])
