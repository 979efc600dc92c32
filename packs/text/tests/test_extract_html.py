"""The main text of pages, whatever their encoding; what is no page is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_text.extract.extract_html import ExtractHtml, extract_page

from curator.api.stage import Context
from curator.api.tasks import TextBatch

PAGE = """<html><head><title>The &amp; title</title><meta charset="{charset}"><script>var x = 1;</script></head><body>
<nav><ul><li><a href="/">Home</a><li><a href="/b">About us</a></ul></nav>
<main><h1>Heading</h1><p>The first paragraph: größer, with <a href="/x">a link</a>.</p><ul><li>one<li>two</ul>
<img alt="a picture" src="x.png"><pre>code
    indented</pre></main><footer>All rights reserved</footer></body></html>"""


def page(charset="utf-8"):
    return PAGE.replace("{charset}", charset).encode(charset)


def batch(*html, **columns):
    ids, sources = [str(i) for i in range(len(html))], ["a"] * len(html)
    return TextBatch(rows=pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(sources, pa.string()),
                                    "html": pa.array(html, pa.binary()), **columns}))


def run(*html, columns=None, **parameters):
    stage = ExtractHtml(**parameters)
    stage.setup(Context())
    return stage.process(batch(*html, **(columns or {})))


def test_main_text_and_title():
    found = extract_page(page())
    assert found.title == "The & title"
    assert found.text.startswith("Heading\n\nThe first paragraph: größer, with a link.")
    assert "code\n    indented" in found.text
    for left_out in ("Home", "rights reserved", "var x", "a picture", "/x"):
        assert left_out not in found.text


def test_parameters_change_what_is_taken():
    def text(**parameters):
        return run(page(), **parameters)["out"].column("text")[0]

    assert "rights reserved" in text(main_content=False)
    assert "a picture" in text(alt_texts=True)
    assert "/x" in text(links=True)
    assert "\n" not in text(preserve_formatting=False)


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "utf-16"])
def test_charset_is_found(charset):
    assert "größer" in extract_page(page(charset)).text


@pytest.mark.parametrize("lone", ["。", "、", "।", "日", "“", "…", "&hellip;", "ไ"])
def test_a_single_character_between_elements_is_kept(lone):
    text = extract_page(f"<p>我们用 <code>aptitude</code>{lone}<b>x</b></p>".encode()).text
    assert text in ("我们用 aptitude" + lone + "x", "我们用 aptitude…x")


def test_columns():
    outputs = run(page(), b"<p>No title</p>", columns={"charset": pa.array(["utf-8", None])})
    assert set(outputs) == {"out"}
    rows = outputs["out"].rows.to_pylist()
    assert [row["title"] for row in rows] == ["The & title", None]
    assert [row["html_bytes"] for row in rows] == [len(page()), 15]
    assert [row["charset"] for row in rows] == ["utf-8", "utf-8"]
    assert "html" not in rows[0]
    assert "html" in run(page(), keep_html=True)["out"].columns


def test_a_page_without_text_has_an_empty_text():
    assert run(b"", b"<html></html>", b"<script>x</script>")["out"].column("text") == ["", "", ""]


def test_a_row_without_html_keeps_its_text():
    outputs = run(None, None, page(), columns={"text": pa.array(["Mine.", None, "Old."])})
    texts = outputs["out"].column("text")
    assert texts[:2] == ["Mine.", ""]
    assert texts[2].startswith("Heading")


def test_plain_text_is_only_decoded():
    kinds = pa.array(["text/plain", "text/html"])
    outputs = run(b"1 < 2 and <b>so on", b"<p>1 &lt; 2", columns={"content_type": kinds})
    assert outputs["out"].column("text") == ["1 < 2 and <b>so on", "1 < 2"]


def test_what_is_no_text_fails_and_what_is_too_large_is_dropped():
    outputs = run(page(), b"%PDF-1.4\n" + bytes(range(256)) * 4, b"<p>" + b"x" * 5000, max_html_bytes=4000)
    assert outputs["out"].column("id") == ["0"]
    [failed] = outputs["failed"].rows.to_pylist()
    assert failed["id"] == "1"
    assert "no text" in failed["error"]
    assert "Traceback" in failed["traceback"]
    assert outputs["dropped"].column("reason") == ["too_large"]


def test_deep_and_broken_markup():
    zeros = b"<p>\x00zero and more words than zeros</p>" * 30
    outputs = run(b"<div>" * 2000 + b"deep", b"<p>a<table><p>b</b></i><td>", zeros)
    assert len(outputs["out"]) == 3


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="max_html_bytes must be 1 or more, got 0"):
        ExtractHtml(max_html_bytes=0)
