"""Texts of PDFs, and what is said of those that have none."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_text import Pdf

from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage

pytest.importorskip("pypdfium2")

PICTURE = b"q 100 0 0 100 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"


def pdf(*contents, trailer=b""):
    """A file of pages with these drawings."""
    kids = b" ".join(b"%d 0 R" % (5 + 2 * n) for n in range(len(contents)))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
               b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
               b"<< /Title (The  title) /Author (J. Doe) /CreationDate (D:20240203101500Z) >>"]
    for number, content in enumerate(contents):
        objects += [b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Resources << /Font << /F1 3 0 R >> >> "
                    b"/Contents %d 0 R >>" % (6 + 2 * number),
                    b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)]
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (data + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R /Info 4 0 R %s >>\nstartxref\n%d\n%%%%EOF"
            % (len(objects) + 1, table, len(objects) + 1, trailer, len(data)))


def words(*lines):
    return b"BT /F1 12 Tf 20 250 Td 14 TL " + b" T* ".join(b"(%s) Tj" % line for line in lines) + b" ET"


def batch(*values, kind=None):
    return TextBatch(rows=pa.table({"id": [f"p{n}" for n in range(len(values))], "source": ["s"] * len(values),
                                    "bytes": pa.array(values, kind or pa.binary())}))


BOOK = pdf(words(b"First page", b"of a book"), PICTURE, words(b"Third"), b"")


def test_pages_as_text_and_what_is_known_of_them():
    [row] = run_stage(Pdf(), batch(BOOK))["out"].rows.to_pylist()
    pages = row["text"].split("\f")
    assert [page.strip() for page in pages] == ["First page\nof a book", "", "Third", ""]
    assert (row["pages"], row["pages_without_text"], row["pages_scanned"]) == (4, 2, 1)
    assert [row["text"][start:].split("\f")[0] for start in row["page_starts"]] == pages
    assert (row["title"], row["author"], row["published"]) == ("The title", "J. Doe", "2024-02-03")
    assert "bytes" not in row
    assert "bytes" in run_stage(Pdf(keep_bytes=True), batch(BOOK))["out"].columns


def test_what_cannot_be_read_fails_and_says_why(tmp_path):
    locked = pdf(words(b"x"), trailer=b"/Encrypt << /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >> /ID [(a) (a)]"
                 % (b"o" * 32, b"u" * 32))
    given = batch(BOOK, None, locked, b"no pdf", BOOK[:300], BOOK + b" " * 5000)
    out = run_stage(Pdf(max_pdf_bytes=5000), given)
    assert out["out"].column("id") == ["p0", "p1"]
    assert out["out"].column("text")[1] is None
    assert out["failed"].column("id") == ["p2", "p3", "p4"]
    said = out["failed"].column("error")
    assert "encrypted and wants a password" in said[0]
    assert "no PDF that can be read" in said[1]
    assert out["dropped"].column("reason") == ["too_large"]
    check_stage(Pdf(max_pdf_bytes=5000), given)
    (tmp_path / "a.pdf").write_bytes(BOOK)
    paths = batch(str(tmp_path / "a.pdf"), str(tmp_path / "none.pdf"), None, kind=pa.string())
    out = run_stage(Pdf(), paths)
    assert out["out"].column("bytes") == [str(tmp_path / "a.pdf"), None]
    assert out["out"].column("pages") == [4, None]
    assert "none.pdf" in out["failed"].column("error")[0]
    check_stage(Pdf(), paths)
