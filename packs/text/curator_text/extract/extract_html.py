"""The main text of web pages."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.extract.apart import Apart, CallFailed
from curator_text.extract.decode import decode_text
from curator_text.extract.page import Options, Page, read_page

EXTRA = "pip install 'curator-text[extract]'"
# What an engine has no notion of, and the only value that it therefore takes.
_FIXED: dict[str, dict[str, object]] = {
    "resiliparse": {"favour": "balance", "language": None},
    "trafilatura": {"main_content": True, "preserve_formatting": True, "alt_texts": False, "language": None},
    "justext": {"favour": "balance", "main_content": True, "preserve_formatting": True, "comments": False,
                "alt_texts": False, "links": False}}


class Failure(NamedTuple):
    error: str
    traceback: str


def extract_page(html: bytes) -> Page:
    """The text of a page and its title, as `ExtractHtml` gives it by default.

    Raises:
        ValueError: the bytes are no text.
    """
    markup, charset = decode_text(html, html=True)
    return read_page(markup, Options())._replace(charset=charset)


@dataclass(kw_only=True)
class ExtractHtml(Stage):
    """Extract the main text of HTML pages: without menus, headers, footers, adverts, scripts.

    Reads `html` (bytes) and, where they are there, `charset` (as the server states it) and `content_type`
    (plain text is only decoded). Adds `text` ("" where a page has none), `title` (null where it has none),
    `charset` (the encoding it was read in) and `html_bytes`; with trafilatura also `author` and `published`
    (`2024-02-03`), null where it finds none; removes `html` unless `keep_html`. A row without `html` keeps the
    `text` that it has.

    Bytes that are no text (an image, a PDF) leave on `failed`, pages that are too large on `dropped`, reason
    `too_large`, pages that take an engine too long, or crash it, on `failed`.

    `engine`: `resiliparse` is the fastest. `trafilatura` (FineWeb, RefinedWeb) and `justext` (Nemotron-CC) want
    `pip install 'curator-text[extract]'`, and work in a process beside the worker, which is killed when a page
    takes over `page_seconds` of CPU time. `output`: `markdown` keeps headings, lists, code blocks, tables (not
    with jusText), with trafilatura also emphasis, with `links` the links. `maths`: formulas (MathML, KaTeX, MathJax,
    Wikipedia's pictures) become LaTeX, `$x^2$`, or `$$x^2$$` where they have lines of their own. `tables`: take
    their text. `comments`: also what readers wrote below an article. `keep_html`: leave the column `html` in
    place. `max_html_bytes`: largest page.

    Of resiliparse alone: `main_content`: False takes all text of the page. `preserve_formatting`: paragraphs,
    lists and table cells keep their line breaks; False gives one line. `alt_texts`: the descriptions of images
    too. Of resiliparse and trafilatura: `links`: the addresses of links too. Of trafilatura: `favour`:
    `precision` takes less, and what it takes is rather text, `recall` more. Of jusText: `language`: the code of
    the language whose stop words tell text from the rest; None takes the column `language` where it is there,
    else what the page says of itself, else what its words tell. For a language without a list jusText goes by
    length and links alone.

    Known differences: FineWeb has trafilatura leave out what it saw on earlier pages, which would make a page's
    text depend on those before it. jusText takes a block of code where what stands around it is text.

    Source: resiliparse, https://resiliparse.chatnoir.eu/en/latest/man/extract/html2text.html; compared with
    others in Bevendorff et al. 2023, https://doi.org/10.1145/3539618.3591920. Barbaresi 2021, Trafilatura,
    https://aclanthology.org/2021.acl-demo.15. Pomikálek 2011, Removing boilerplate and duplicate content from
    web corpora (jusText), with its own defaults.
    """

    engine: Literal["resiliparse", "trafilatura", "justext"] = "resiliparse"
    output: Literal["text", "markdown"] = "text"
    favour: Literal["balance", "precision", "recall"] = "balance"
    main_content: bool = True
    preserve_formatting: bool = True
    comments: bool = False
    tables: bool = True
    alt_texts: bool = False
    links: bool = False
    maths: bool = True
    language: str | None = None
    keep_html: bool = False
    max_html_bytes: int = 1 << 23
    page_seconds: float = 5.0

    version = 2  # Markdown has tables by resiliparse
    timeout_s = 10.0
    batch_size = 64
    sparse = ("author", "published")

    def __post_init__(self) -> None:
        if self.engine not in _FIXED:
            raise ValueError(f"engine must be one of {', '.join(_FIXED)}, got {self.engine!r}")
        if self.output not in ("text", "markdown"):
            raise ValueError(f"output must be text or markdown, got {self.output!r}")
        if self.favour not in ("balance", "precision", "recall"):
            raise ValueError(f"favour must be balance, precision or recall, got {self.favour!r}")
        for name, value in _FIXED[self.engine].items():
            if getattr(self, name) != value:
                able = [engine for engine, fixed in _FIXED.items() if name not in fixed]
                raise ValueError(f"{name} is nothing that {self.engine} knows: leave it out, or take the engine "
                                 f"{' or '.join(able)}")
        if self.output == "markdown" and not self.preserve_formatting:
            raise ValueError("output: markdown and preserve_formatting: false exclude each other")
        self.at_least(1, "max_html_bytes")
        if not self.page_seconds > 0:
            raise ValueError(f"page_seconds must be above 0, got {self.page_seconds}")
        if self.engine != "resiliparse":
            self.timeout_s = 10 * self.page_seconds + 120  # of a page; the stage's own limit comes first
            self.requires = {self.engine: EXTRA}

    def contract(self) -> Contract:
        adds = {"text": pa.string(), "title": pa.string(), "charset": pa.string(), "html_bytes": pa.int64()}
        if self.engine == "trafilatura":
            adds |= {"author": pa.string(), "published": pa.string()}
        return Contract(needs={"html": pa.binary()}, adds=adds, removes=() if self.keep_html else ("html",))

    def setup(self, ctx: Context) -> None:
        self._progress = ctx.progress
        self._options = Options(markdown=self.output == "markdown", **{
            field.name: getattr(self, field.name) for field in fields(Options) if field.name != "markdown"})
        self._apart = None
        if self.engine != "resiliparse":
            self._apart = Apart.shared("curator_text.extract.page:read_page", self.page_seconds, "the page",
                                       f"engine {self.engine} wants its libraries: {EXTRA}", (self.engine,))
            self._apart.start()

    def process(self, batch: TextBatch) -> Outputs:
        columns = [batch.column(name) if name in batch.columns else [None] * len(batch)
                   for name in ("html", "charset", "content_type", "text", "language")]
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

    def _page(self, html: bytes | None, charset: str | None, kind: str | None, text: str | None,
              language: str | None) -> Page | Failure | None:
        """What a row holds, None if it is too large."""
        if html is None:
            return Page(text or "", charset=charset)
        if len(html) > self.max_html_bytes:
            return None
        try:
            if kind == "text/plain":
                text, charset = decode_text(html, charset)
                return Page(text, charset=charset)
            markup, charset = decode_text(html, charset, html=True)
            if self._apart is None:
                return read_page(markup, self._options)._replace(charset=charset)
            self._progress()
            page = self._apart.call(markup, self._options, self.language or language)
            return page._replace(charset=charset)
        except CallFailed as failed:
            return Failure(failed.error, failed.traceback)
        except Exception as error:  # whatever the libraries raise is the row's fault, and the row says so
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _with_pages(self, batch: TextBatch, pages: list[Page]) -> TextBatch:
        sizes = [len(html or b"") for html in batch.column("html")]
        names = [name for name in Page._fields if name in self.contract().adds]
        batch = batch.with_columns({name: pa.array([getattr(page, name) for page in pages], pa.string())
                                    for name in names} | {"html_bytes": pa.array(sizes, pa.int64())})
        return batch if self.keep_html else batch.without(["html"])
