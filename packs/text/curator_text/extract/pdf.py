"""The text of PDFs."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import TextBatch
from curator.io.files.folder import open_input
from curator_text.extract.apart import Apart, CallFailed
from curator_text.extract.extract_html import EXTRA, Failure
from curator_text.extract.pdf_text import PdfText

_NUMBERS = {"pages": pa.int32(), "page_starts": pa.list_(pa.int64()), "pages_without_text": pa.int32(),
            "pages_scanned": pa.int32()}
_TEXTS = {name: pa.string() for name in ("text", "title", "author", "published")}


@dataclass(kw_only=True)
class Pdf(Stage):
    """Take the text out of PDFs: `read: {files: {path: pdfs/, suffixes: [.pdf]}}`, then this.

    Adds `text` (the pages in order, `page_break` between them), `pages` (how many), `page_starts` (list: where in
    the text each page begins, in characters), `pages_without_text`, `pages_scanned` (those of them that have a
    picture: they want OCR), and `title`, `author`, `published` (`2024-02-03`) as the file tells them, null where
    it does not. All are null where there is no PDF. A file of pictures alone is not dropped: `drop: {scanned:
    pages_without_text = pages}` does that.

    What is no PDF, is broken or wants a password leaves on `failed`, as does what takes too long or crashes the
    library, which works in a process beside the worker; what is too large leaves on `dropped`, reason
    `too_large`.

    `column`: PDFs (binary; removed unless `keep_bytes`), or their paths or URLs (string; kept). `password`: for
    files that are encrypted. `document_seconds`: CPU time that a document may take. Wants
    `pip install 'curator-text[extract]'`.

    Known differences: lines are those of the page, in the order of the file, which in odd layouts is not that of
    reading; a word that a hyphen cuts at the end of a line is joined. Tables are their words, formulas are
    characters.

    Source: pdfium, by https://github.com/pypdfium2-team/pypdfium2 (Apache-2.0 or BSD-3-Clause).
    """

    column: str = "bytes"
    page_break: str = "\f"
    keep_bytes: bool = False
    max_pdf_bytes: int = 256 << 20
    document_seconds: float = 60.0
    password: str | None = setting(default=None)

    sparse = ("author", "published", "pages_without_text", "pages_scanned")
    requires = {"pypdfium2": EXTRA}

    def __post_init__(self) -> None:
        self.at_least(1, "max_pdf_bytes")
        if not self.document_seconds > 0:
            raise ValueError(f"document_seconds must be above 0, got {self.document_seconds}")
        self.timeout_s = 10 * self.document_seconds + 120  # of a document; the stage's own limit comes first

    def contract(self) -> Contract:
        return Contract(needs={self.column: None}, adds=_TEXTS | _NUMBERS)

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        after = dict(super().columns_after(columns))
        if self._removes(columns.get(self.column)):
            after.pop(self.column, None)
        return after

    def _removes(self, kind: pa.DataType | None) -> bool:
        return not self.keep_bytes and kind is not None and (pa.types.is_binary(kind)
                                                             or pa.types.is_large_binary(kind))

    def setup(self, ctx: Context) -> None:
        self._progress = ctx.progress
        self._apart = Apart.shared("curator_text.extract.pdf_text:read_pdf", self.document_seconds, "the PDF",
                                   f"text.pdf wants its library: {EXTRA}", ("pypdfium2",))
        self._apart.start()

    def process(self, batch: TextBatch) -> Outputs:
        found = [self._read(value) for value in batch.column(self.column)]
        ports = batch.split(["failed" if isinstance(one, Failure) else one if one == "dropped" else "out"
                             for one in found])
        read = [one for one in found if one is None or isinstance(one, PdfText)]
        outputs = Outputs(out=self._with_texts(ports.get("out", batch.slice(0, 0)), read))
        if "dropped" in ports:
            outputs["dropped"] = ports["dropped"].with_reason("too_large")
        if "failed" in ports:
            failures = [one for one in found if isinstance(one, Failure)]
            outputs["failed"] = ports["failed"].with_error([one.error for one in failures]).with_columns(
                {"traceback": [one.traceback for one in failures]})
        return outputs

    def _read(self, value: bytes | str | None) -> PdfText | Failure | str | None:
        """What a row holds; None where there is nothing, `dropped` where it is too much."""
        if value is None:
            return None
        try:
            if isinstance(value, str):
                with open_input(value, compression=None) as file:
                    value = file.read(self.max_pdf_bytes + 1)
            if len(value) > self.max_pdf_bytes:
                return "dropped"
            self._progress()
            return self._apart.call(value, self.password)
        except CallFailed as failed:
            return Failure(failed.error, failed.traceback)
        except (InputError, OSError) as error:
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _with_texts(self, batch: TextBatch, found: list[PdfText | None]) -> TextBatch:
        columns: dict[str, list] = {name: [] for name in (*_TEXTS, *_NUMBERS)}
        for one in found:
            values = dict.fromkeys(columns) if one is None else self._values(one)
            for name, value in values.items():
                columns[name].append(value)
        removes = self._removes(batch.rows.schema.field(self.column).type)
        batch = batch.with_columns({name: pa.array(columns[name], kind)
                                    for name, kind in (_TEXTS | _NUMBERS).items()})
        return batch.without([self.column]) if removes else batch

    def _values(self, one: PdfText) -> dict[str, object]:
        starts = accumulate((len(page) + len(self.page_break) for page in one.pages[:-1]), initial=0)
        return {"text": self.page_break.join(one.pages), "title": one.title, "author": one.author,
                "published": one.published, "pages": len(one.pages), "pages_scanned": one.scanned,
                "page_starts": list(starts) if one.pages else [],
                "pages_without_text": sum(not page.strip() for page in one.pages)}
