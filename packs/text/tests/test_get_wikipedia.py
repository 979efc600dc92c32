"""Pages of wikis from dumps of the same layout as Wikimedia's: wikitext in bz2 streams, HTML in a tar of lines."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
from html import escape

import pyarrow as pa
import pytest
from curator_text.get.extract_wiki import ExtractWiki
from curator_text.get.wiki_html import PageHtml
from curator_text.get.wiki_parts import Wishes
from curator_text.get.wikipedia import SCHEMA, Wikipedia
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.stage import Context
from curator.api.tasks import TextBatch
from curator.testing import check_source, run_stage
from packs.text.tests.archive_server import Archives

HEAD = ('<mediawiki xml:lang="de"><siteinfo><dbname>dewiki</dbname><namespaces><namespace key="6" case="first-letter">Datei</namespace>'
        '<namespace key="14" case="first-letter">Kategorie</namespace></namespaces></siteinfo>\n')
ARTICLE = """{{Infobox|name=Niue}}
'''Niue''' ({{lang-niu|Niuē}}) is an [[island country]] in the [[Pacific Ocean|South Pacific]].<ref>See [http://x.y Z].</ref> It has
{{convert|261|km2}}.
[[Datei:Niue.jpg|mini|250px|A map of [[Niue]]]]
== History ==
=== Early ===
* one
** two ''three''
{| class="wikitable"
! a !! b
|-
| 1 || 2
|}
Where <math>x^2</math> holds.
== See also ==
* [[Other]]
== References ==
<references/>
[[Kategorie:Islands]]
"""
PLAIN = """Niue is an island country in the South Pacific. It has
261 km2.

History

Early

- one
- two three

Where $x^2$ holds.

See also

- Other"""
MARKDOWN = """**Niue** is an island country in the South Pacific.[^1] It has
261 km2.

A map of Niue

## History

### Early

- one
  - two *three*

| a | b |
| --- | --- |
| 1 | 2 |

Where $x^2$ holds.

[^1]: See Z."""
KEPT = {"markup": "markdown", "tables": True, "references": True, "captions": True, "drop_sections": ["See also"]}


def page(number: int, text: str = "", title: str = "", ns: int = 0, redirect: str = "", model: str = "wikitext") -> str:
    return (f"  <page>\n    <title>{escape(title or f'Page {number}')}</title>\n    <ns>{ns}</ns>\n    <id>{number}</id>\n"
            + (f'    <redirect title="{redirect}" />\n' if redirect else "") +
            f"    <revision>\n      <id>{number + 1000}</id>\n      <timestamp>2024-05-01T00:00:00Z</timestamp>\n"
            f"      <contributor><username>a</username><id>7</id></contributor>\n      <model>{model}</model>\n"
            f'      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n')


PAGES = [page(n, f"Text of {n}.") for n in range(30)]


def multistream(pages: list[str], size: int = 3) -> bytes:
    blocks = ["".join(pages[at:at + size]) for at in range(0, len(pages), size)]
    return b"".join(bz2.compress(block.encode()) for block in [HEAD, *blocks, "</mediawiki>\n"])


def read(source: Wikipedia) -> dict[str, list[dict]]:
    ports: dict[str, list[dict]] = {}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports.setdefault(port, []).extend(batch.rows.to_pylist())
    return ports


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wiki")


def dump(folder, data: bytes, name: str = "dewiki-20240601-pages-articles-multistream.xml.bz2", **parameters) -> Wikipedia:
    (folder / name).write_bytes(data)
    return Wikipedia(path=str(folder / name), **parameters)


def text(rows: list[dict], **parameters) -> list[str]:
    """What `ExtractWiki` makes of rows of the source."""
    out = run_stage(ExtractWiki(**parameters), TextBatch(pa.Table.from_pylist(rows, schema=SCHEMA)))["out"]
    assert "wikitext" not in out.columns
    return out.column("text")


def test_a_page_becomes_text(folder):
    [row] = read(dump(folder, multistream([page(12, ARTICLE, "Niue & more")])))["out"]
    assert (row["wikitext"], row["prefixes"]) == (ARTICLE, ["Datei", "Kategorie"])
    assert (row["id"], row["page_id"], row["title"], row["revision"]) == ("dewiki-12", 12, "Niue & more", 1012)
    assert (row["url"], row["date"]) == ("https://de.wikipedia.org/wiki/Niue_&_more", "2024-05-01T00:00:00Z")
    assert text([row, row | {"wikitext": None}]) == [PLAIN, ""]
    assert text([row], **KEPT) == [MARKDOWN]


def test_what_is_no_article_is_dropped_with_its_reason(folder):
    pages = [page(1, "a"), page(2, "#REDIRECT [[Page 1]]", redirect="Page 1"), page(3, "b", ns=10), page(4, "{}", model="json")]
    found = read(dump(folder, multistream(pages)))
    assert {row["title"]: row["reason"] for row in found["dropped"]} == {"Page 2": "redirect", "Page 3": "namespace", "Page 4": "model"}
    found = read(dump(folder, multistream(pages), redirects=True, namespaces=[0, 10]))
    assert {row["title"]: row["redirect"] for row in found["out"]} == {"Page 1": None, "Page 2": "Page 1", "Page 3": None}


@settings(max_examples=12)
@given(unit_bytes=st.integers(40, 4000), size=st.integers(1, 9), pack=st.sampled_from(["multistream", "one", "cut"]))
def test_ranges_of_any_size_give_each_page_once(folder, unit_bytes, size, pack):
    whole = (HEAD + "".join(PAGES) + "</mediawiki>").encode()
    data = {"multistream": multistream(PAGES, size), "one": bz2.compress(whole),
            # as parallel packers cut: in the middle of pages and marks
            "cut": b"".join(bz2.compress(whole[at:at + 97 * size]) for at in range(0, len(whole), 97 * size))}[pack]
    found = read(dump(folder, data, unit_bytes=unit_bytes))
    assert sorted(row["page_id"] for row in found["out"]) == list(range(30))
    assert list(found) == ["out"]


def test_damage_costs_the_stream_that_it_is_in(folder):
    data = multistream(PAGES)
    third = [at for at in range(len(data)) if data.startswith(b"BZh91AY&SY", at)][3]
    broken = bytearray(data)
    broken[third + 60] ^= 255
    found = read(dump(folder, bytes(broken)))
    assert [row["page_id"] for row in found["out"]] == [n for n in range(30) if n not in (6, 7, 8)]
    [failed] = found["failed"]
    assert failed["offset"] == third
    assert "damaged" in failed["error"]
    found = read(dump(folder, data[:-70]))
    assert "cut off" in found["failed"][-1]["error"]
    found = read(dump(folder, multistream([*PAGES[:2], PAGES[2].replace("</page>", ""), PAGES[3].replace("<id>", "<id", 1)])))
    assert [row["page_id"] for row in found["out"]] == [0, 1]
    assert all(row["offset"] for row in found["failed"])


def test_a_dump_is_found_by_its_status_and_its_length_is_checked(folder):
    name = "dewiki-20240601-pages-articles-multistream1.xml-p1p30.bz2"
    data = multistream(PAGES)
    index = name.replace("multistream1.xml", "multistream-index1.txt")
    files = {name: {"size": len(data), "url": f"/dewiki/20240601/{name}", "sha1": "x"},
             index: {"size": 9, "url": f"/dewiki/20240601/{index}"}}
    server = Archives({f"dewiki/20240601/{name}": data, "dewiki/": b'<a href="20240601/"> <a href="20240620/">',
                       "dewiki/20240620/dumpstatus.json": b'{"jobs": {"articlesmultistreamdump": {"status": "in-progress"}}}'})
    status = {"jobs": {"articlesmultistreamdump": {"status": "done", "files": files}}}
    try:
        server.put("dewiki/20240601/dumpstatus.json", json.dumps(status).encode())
        source = Wikipedia(wikis="de", date="latest", base_url=server.url, private=True, unit_bytes=1000)
        assert len(source.units()) > 1
        assert len(read(source)["out"]) == 30
        check_source(source)
        server.put(f"dewiki/20240601/{name}", data[:-100])
        found = read(source)
        assert "out" not in found
        assert all(f"not {len(data)}" in row["error"] for row in found["failed"])
        with pytest.raises(InputError, match="in-progress"):
            Wikipedia(wikis="de", date="20240620", base_url=server.url, private=True).units()
    finally:
        server.close()


HTML = """<!DOCTYPE html><html><head><title>Niue</title></head><body><section><table class="infobox"><tr><td>Box</td></tr></table>
<div class="hatnote">For others, see X.</div>
<p><b>Niue</b> (<span typeof="mw:Transclusion">Niuean: <i lang="niu">Niuē</i></span>) is an <a href="./Island">island</a>.<sup
 class="mw-ref reference"><a href="./Niue#cite_note-1"><span>[1]</span></a></sup></p></section>
<section><h2>History</h2><figure><img/><figcaption>A map</figcaption></figure><ul><li>one<ul><li>two</li></ul></li></ul>
<table class="wikitable"><tbody><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></tbody></table>
<p>where <span class="mwe-math-element"><math alttext="{\\displaystyle x^{2}}"></math><img alt="x"/></span> holds</p></section>
<section><h2>References</h2><ol class="mw-references references"><li id="cite_note-1"><span class="mw-reference-text">See Z.</span>
</li></ol></section></body></html>"""


def test_html_keeps_what_readers_read():
    assert PageHtml(Wishes()).text(HTML) == "Niue (Niuean: Niuē) is an island.\n\nHistory\n\n- one\n- two\n\nwhere $x^{2}$ holds"
    assert PageHtml(Wishes(markup="markdown", tables=True, references=True, captions=True)).text(HTML) == (
        "**Niue** (Niuean: *Niuē*) is an island.[^1]\n\n## History\n\nA map\n\n- one\n  - two\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
        "where $x^{2}$ holds\n\n[^1]: See Z.")


def html_dump(*members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, data in enumerate(members):
            info = tarfile.TarInfo(f"dewiki_namespace_0_{number}.ndjson")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def line(number: int, **more) -> bytes:
    return json.dumps({"name": f"Page {number}", "identifier": number, "namespace": {"identifier": 0}, "version": {"identifier": 9},
                       "url": f"https://de.wikipedia.org/wiki/Page_{number}", "is_part_of": {"identifier": "dewiki"},
                       "in_language": {"identifier": "de"}, "redirects": [{"name": f"Old {number}"}], "date_modified": "2024-05-01",
                       "article_body": {"html": f"<p>Text of {number}.</p>"}, **more}).encode() + b"\n"


def test_an_html_dump_comes_page_by_page_and_what_it_has_twice_is_told(folder):
    data = html_dump(line(1, name="P \ud83d") + line(2) + b"{broken\n", line(2) + line(3, namespace={"identifier": 10}) + line(4))
    name = "dewiki-NS0-20240601-ENTERPRISE-HTML.json.tar.gz"
    found = read(dump(folder, data, name, format="html"))
    assert [row["id"] for row in found["out"]] == ["dewiki-1", "dewiki-2", "dewiki-4"]
    assert text(found["out"]) == ["Text of 1.", "Text of 2.", "Text of 4."]
    assert found["out"][0]["title"] == "P ?"
    assert (found["out"][0]["redirects"], found["out"][0]["revision"]) == (["Old 1"], 9)
    assert [row["duplicate_of"] for row in found["duplicate"]] == ["dewiki-2"]
    assert [row["reason"] for row in found["dropped"]] == ["namespace"]
    assert found["failed"][0]["id"].endswith("dewiki_namespace_0_0.ndjson@3")
    check_source(Wikipedia(path=str(folder / name), format="html"))
    found = read(dump(folder, data[:-40], name, format="html"))
    assert len(found["out"]) + len(found.get("failed", [])) >= 2
    assert any("cut off" in row["error"] or "compressed" in row["error"] for row in found["failed"])


def test_mistakes_are_told_before_a_run():
    for wrong, message in [({}, "name wikis"), ({"wikis": "de"}, "date is wanted"), ({"path": "x", "format": "pdf"}, "format must be"),
                           ({"path": "x", "namespaces": []}, "nothing would be kept"), ({"path": "x", "unit_bytes": 0}, "1 or more")]:
        with pytest.raises(ValueError, match=message):
            Wikipedia(**wrong)
    with pytest.raises(ValueError, match="markup must be"):
        ExtractWiki(markup="rst")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["[[", "]]", "{{", "}}", "{|", "|}", "|-", "|", "==", "\n", "<ref>", "</ref>", "<math>",
                                 chr(39) * 3, chr(39) * 2,
                                 "*", "#", "File:a.jpg", "lang", "text", "\ufdd1", "<!--", "-->", "http://a.b ", "[", "]"]), max_size=25))
def test_no_wikitext_is_too_strange(pieces):
    for parameters in ({}, KEPT):
        stage = ExtractWiki(**parameters)
        stage.setup(Context())
        rows = [{"wikitext": "".join(pieces), "prefixes": []}]
        [found] = stage.process(TextBatch(pa.Table.from_pylist(rows, schema=SCHEMA)))["out"].column("text")
        assert not set(found) & {"\ufdd1", "\ufdd2", "\ufdd3"}
