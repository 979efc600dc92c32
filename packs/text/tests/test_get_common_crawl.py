"""Common Crawl from a server of the same layout: lists, archives, its two indexes, and a server that is busy, wrong or cut off."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_text.get.common_crawl import CommonCrawl
from curator_text.get.crawl_index import surt_ranges
from curator_text.get.snapshots import named

from curator.api.errors import InputError
from curator.testing import check_source
from packs.text.tests.archive_server import Archives, paths_gz

CRAWL = "CC-MAIN-2024-10"
WARC = f"crawl-data/{CRAWL}/segments/1.1/warc/CC-MAIN-1-0000{{}}.warc.gz"


def sha1(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def record(kind: str, url: str, block: bytes, payload: bytes = b"", **headers: str) -> bytes:
    """A gzip member with a record, as Common Crawl writes them."""
    fields = {"WARC-Type": kind, "WARC-Record-ID": f"<urn:uuid:{kind}-{url}>", "WARC-Target-URI": url, "WARC-Date": "2024-03-01T00:00:00Z",
              "WARC-Block-Digest": sha1(block), "Content-Length": str(len(block)),
              **({"WARC-Payload-Digest": sha1(payload)} if payload else {}), **{k.replace("_", "-"): v for k, v in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return gzip.compress(b"WARC/1.0\r\n" + head.encode() + b"\r\n" + block + b"\r\n\r\n", mtime=0)


def response(url: str, body: bytes, status: int = 200) -> bytes:
    block = b"HTTP/1.1 %d OK\r\nContent-Type: text/html\r\n\r\n%s" % (status, body)
    return record("response", url, block, body, Content_Type="application/http; msgtype=response")


def body(n: int) -> bytes:
    return f"<html><body><p>Page {n} says something.</p></body></html>".encode()


URLS = [f"https://{host}/{n}" for n, host in enumerate(["www.one.example", "sub.one.example", "two.example", "one.example"])]
LANGUAGES = ["deu,eng", "deu", "eng", "eng"]


class Crawl:
    """Two archives of two pages each, with all lists and indexes."""

    def __init__(self) -> None:
        self.server = server = Archives()
        self.members = [response(url, body(n)) for n, url in enumerate(URLS)]
        info = record("warcinfo", "", b"software: test\r\n")
        self.archives = [info + self.members[0] + self.members[1], info + self.members[2] + self.members[3]]
        self.entries = []
        for n, url in enumerate(URLS):
            data = self.archives[n // 2]
            self.entries.append({"urlkey": "", "timestamp": "20240301000000", "url": url, "status": "200", "mime": "text/html",
                                 "digest": sha1(body(n))[5:], "length": str(len(self.members[n])), "languages": LANGUAGES[n],
                                 "offset": str(data.index(self.members[n])), "filename": WARC.format(n // 2)})
        for n, data in enumerate(self.archives):
            server.put(WARC.format(n), data)
        server.put(f"crawl-data/{CRAWL}/warc.paths.gz", paths_gz(*(WARC.format(n) for n in range(2))))
        server.index(CRAWL, self.entries)
        wet = WARC.format(0).replace("/warc/", "/wet/").replace(".warc.gz", ".warc.wet.gz")
        server.put(wet, info + record("conversion", URLS[0], b"Plain words.", Content_Type="text/plain",
                                      WARC_Identified_Content_Language="deu"))
        server.put(f"crawl-data/{CRAWL}/wet.paths.gz", paths_gz(wet))
        server.put("collinfo.json", json.dumps([{"id": f"CC-MAIN-20{year}-10"} for year in (24, 23, 22)]).encode())

    def source(self, **parameters) -> CommonCrawl:
        return CommonCrawl(**{"snapshots": [CRAWL], "base_url": self.server.url, "index_url": self.server.url, "private": True,
                              "backoff_s": 0.0, **parameters})


@pytest.fixture
def crawl():
    made = Crawl()
    yield made
    made.server.close()


def read(source: CommonCrawl) -> dict[str, list[dict]]:
    ports: dict[str, list[dict]] = {"out": [], "dropped": [], "failed": []}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports[port] += batch.rows.to_pylist()
    return ports


def test_whole_archives_come_as_pages(crawl):
    found = read(crawl.source())
    assert [(row["url"], row["html"]) for row in found["out"]] == [(url, body(n)) for n, url in enumerate(URLS)]
    row = found["out"][0]
    assert (row["source"], row["snapshot"], row["status"]) == (f"{crawl.server.url}/{WARC.format(0)}", CRAWL, 200)
    assert not found["failed"]
    assert crawl.server.agents[0].startswith("curator-text/")
    assert len(crawl.source(files=1).units()) == 1
    check_source(crawl.source())


def test_a_server_knows_whom_to_write_to(crawl):
    crawl.source(contact="mailto:crawl@lab.example").units()
    assert crawl.server.agents[-1].endswith("mailto:crawl@lab.example)")


def test_wet_files_are_text_with_its_language(crawl):
    [row] = read(crawl.source(kind="wet"))["out"]
    assert (row["html"], row["content_type"], row["languages"], row["snapshot"]) == (b"Plain words.", "text/plain", "deu", CRAWL)


def test_wat_files_tell_of_each_page_once(crawl):
    def known(kind: str, url: str) -> bytes:
        """What the file says of a record of the archive, be it a request, a response or what the crawler noted."""
        told = {"Container": {"Filename": "a.warc.gz", "Offset": "300"}, "Envelope": {
            "WARC-Header-Metadata": {"WARC-Type": kind, "WARC-Target-URI": url},
            "Payload-Metadata": {"HTTP-Response-Metadata": {"HTML-Metadata": {"Head": {"Title": 'a "WARC-Type":"request" b'}}}}}}
        return record("metadata", url, json.dumps(told).encode(), Content_Type="application/json", WARC_Record_ID=f"<urn:uuid:{kind}{url}>")

    wat = WARC.format(0).replace("/warc/", "/wat/").replace(".warc.gz", ".warc.wat.gz")
    cut = known("response", URLS[1])[:-30]
    crawl.server.put(wat, record("warcinfo", "", b"software: test\r\n") + known("warcinfo", "a.warc.gz") + known("request", URLS[0])
                     + known("response", URLS[0]) + known("metadata", URLS[0]) + known("request", URLS[1]) + cut)
    crawl.server.put(f"crawl-data/{CRAWL}/wat.paths.gz", paths_gz(wat))
    found = read(crawl.source(kind="wat"))
    assert [(row["url"], row["content_type"], row["snapshot"]) for row in found["out"]] == [(URLS[0], "application/json", CRAWL)]
    assert json.loads(found["out"][0]["html"])["Envelope"]["WARC-Header-Metadata"]["WARC-Type"] == "response"
    assert [(row["url"], bool(row["offset"])) for row in found["failed"]] == [(URLS[1], True)]


def test_robots_txt_of_hosts_come_whatever_the_status(crawl):
    def robots(url: str, status: int, text: bytes, kind: bytes = b"text/plain") -> bytes:
        block = b"HTTP/1.1 %d OK\r\nContent-Type: %s\r\n\r\n%s" % (status, kind, text)
        return record("response", url, block, text, Content_Type="application/http; msgtype=response")

    path = WARC.format(0).replace("/warc/", "/robotstxt/")
    rules = b"User-agent: *\nDisallow: /private/\n"
    crawl.server.put(path, robots("https://one.example/robots.txt", 200, rules) + robots("https://two.example/robots.txt", 404, b"none")
                     + robots("https://three.example/robots.txt", 200, b"PNG", b"image/png"))
    crawl.server.put(f"crawl-data/{CRAWL}/robotstxt.paths.gz", paths_gz(path))
    found = read(crawl.source(kind="robotstxt"))
    assert [(row["url"], row["status"], row["html"]) for row in found["out"]] == [
        ("https://one.example/robots.txt", 200, rules), ("https://two.example/robots.txt", 404, b"none")]
    assert [row["reason"] for row in found["dropped"]] == ["content_type"]


def test_news_lies_by_year_and_month(crawl):
    """As its crawler writes it: the headers of a body that was compressed, and the body as it was unpacked."""
    path = "crawl-data/CC-NEWS/2024/03/CC-NEWS-20240301005656-02345.warc.gz"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Encoding: gzip\r\n\r\n"
    crawl.server.put(path, record("request", URLS[0], b"GET / HTTP/1.1\r\n\r\n", Content_Type="application/http; msgtype=request")
                     + record("response", URLS[0], head + body(0), body(0), Content_Type="application/http; msgtype=response"))
    for month in ("02", "03"):
        crawl.server.put(f"crawl-data/CC-NEWS/2024/{month}/warc.paths.gz", paths_gz(path.replace("/03/", f"/{month}/")))
    [row] = read(crawl.source(snapshots=["CC-NEWS-2024-03"]))["out"]
    assert (row["url"], row["html"], row["snapshot"], row["charset"]) == (URLS[0], body(0), "CC-NEWS-2024-03", "utf-8")
    assert len(crawl.source(snapshots=["CC-NEWS-2024-02..CC-NEWS-2024-03"]).units()) == 2


def test_the_index_server_names_single_pages(crawl):
    found = read(crawl.source(urls=["*.one.example"], languages=["deu"]))
    assert [(row["url"], row["languages"], row["html"]) for row in found["out"]] == [
        (URLS[0], "deu,eng", body(0)), (URLS[1], "deu", body(1))]
    whole = {row["url"]: row["id"] for row in read(crawl.source())["out"]}
    assert all(row["id"] == whole[row["url"]] for row in found["out"])
    asked = crawl.server.parts[WARC.format(0)]
    assert (int(crawl.entries[0]["offset"]), int(crawl.entries[0]["offset"]) + len(crawl.members[0])) in asked
    assert len(crawl.source(urls=["*.one.example"]).units()) == 2
    with pytest.raises(InputError, match="has nothing of"):
        crawl.source(urls=["nowhere.example/*"]).units()


def test_the_parquet_index_knows_languages_alone_and_reads_what_it_must(crawl):
    keys = ["example,one)/0", "example,one)/3", "example,one,sub)/1", "example,two)/2"]
    order = [0, 3, 1, 2]
    rows = [{"url_surtkey": key, "url": URLS[n], "fetch_status": 200, "content_languages": LANGUAGES[n],
             "content_digest": crawl.entries[n]["digest"], "warc_filename": crawl.entries[n]["filename"],
             "warc_record_offset": int(crawl.entries[n]["offset"]), "warc_record_length": len(crawl.members[n])}
            for key, n in zip(keys, order, strict=True)]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=2)
    path = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-0.gz.parquet"
    crawl.server.put(path, out.getvalue())
    crawl.server.put(f"crawl-data/{CRAWL}/cc-index-table.paths.gz", paths_gz(path, path.replace("=warc/", "=robotstxt/")))
    urls = [row["url"] for row in read(crawl.source(index="table", languages=["eng"]))["out"]]
    assert urls == [URLS[3], URLS[2]]
    source = crawl.source(index="table", urls=["*.one.example"], where="content_languages LIKE 'deu%'")
    assert [row["url"] for row in read(source)["out"]] == [URLS[0], URLS[1]]
    assert source.units()[0].key != crawl.source(index="table", urls=["two.example/*"]).units()[0].key
    check_source(source)
    check_source(crawl.source(index="table", languages=["deu", "eng"]))


def test_each_row_group_of_the_parquet_index_is_in_one_unit(crawl):
    rows = [{"url_surtkey": f"example)/{n:02}", "url": URLS[0], "fetch_status": 200, "content_languages": "deu", "content_digest": None,
             "warc_filename": f"{n}", "warc_record_offset": n, "warc_record_length": 1} for n in range(23)]
    for groups, busy in ((1, 1), (5, 5), (23, 8)):
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=-(-23 // groups))
        crawl.server.put("cc-index/subset=warc/part-0.parquet", out.getvalue())
        crawl.server.put(f"crawl-data/{CRAWL}/cc-index-table.paths.gz", paths_gz("cc-index/subset=warc/part-0.parquet"))
        source = crawl.source(index="table", languages=["deu"])
        units = source.units()
        named = [[row["offset"] for outputs in source.read(unit) for row in outputs["failed"].rows.to_pylist()] for unit in units]
        assert (len({unit.key for unit in units}), sum(map(bool, named))) == (8, busy)
        assert [offset for some in named for offset in some] == list(range(23))


@pytest.mark.parametrize(("pattern", "key", "meant"), [
    ("*.example.org", "org,example)/a", True), ("*.example.org", "org,example,sub)/a", True),
    ("*.example.org", "org,examples)/", False),
    ("www.example.org/News/*", "org,example)/news/1", True), ("example.org/news/*", "org,example)/new", False),
    ("http://example.org/a?B=1", "org,example)/a?b=1", True), ("example.org", "org,example)/", True),
    ("example.org", "org,example)/a", False)])
def test_patterns_are_ranges_of_keys(pattern, key, meant):
    assert any(start <= key < stop for start, stop in surt_ranges(pattern)) == meant


def test_a_busy_server_is_asked_again_and_a_file_that_is_not_there_fails(crawl):
    crawl.server.busy[WARC.format(0)] = 2
    assert len(read(crawl.source(retries=2))["out"]) == 4
    assert crawl.server.asked[f"/{WARC.format(0)}"] == 3
    crawl.server.busy[WARC.format(0)] = 9
    with pytest.raises(InputError, match="HTTP 503"):
        read(crawl.source(retries=1))  # the engine tries the unit again
    crawl.server.busy.clear()
    del crawl.server.pages[f"/{WARC.format(0)}"]
    found = read(crawl.source())
    assert len(found["out"]) == 2
    [failed] = found["failed"]
    assert failed["id"].endswith(WARC.format(0))
    assert "HTTP 404" in failed["error"]


def test_archives_that_are_cut_off_or_changed_are_told_with_their_place(crawl):
    cut = crawl.archives[0][:-9]
    crawl.server.put(WARC.format(0), cut)
    found = read(crawl.source())
    assert [row["url"] for row in found["out"]] == [URLS[0], URLS[2], URLS[3]]
    [failed] = found["failed"]
    assert failed["offset"] == crawl.archives[0].index(crawl.members[1])
    forged = gzip.compress(gzip.decompress(crawl.members[1]).replace(b"something", b"anything!"), mtime=0)
    crawl.server.put(WARC.format(0), crawl.archives[0].replace(crawl.members[1], forged))
    assert "has not the digest" in read(crawl.source())["failed"][0]["error"]


def test_what_the_index_names_wrongly_fails_by_itself(crawl):
    first, second, third, fourth = (dict(entry) for entry in crawl.entries)
    first["digest"] = "A" * 32
    second["length"] = str(int(second["length"]) - 5)
    third["url"] = "https://two.example/other"
    fourth["filename"] = "crawl-data/none.warc.gz"
    crawl.server.index(CRAWL, [first, second, third, fourth])
    found = read(crawl.source(urls=["*.example"]))
    assert not found["out"]
    assert [row["url"] for row in found["failed"]] == [URLS[0], URLS[1], third["url"], URLS[3]]
    for row, what in zip(found["failed"], ["the index says", "ends", "another page lies there", "HTTP 404"], strict=True):
        assert what in row["error"]
        assert row["offset"] is not None


def test_a_server_without_ranges_is_told(crawl):
    crawl.server.without_ranges.add(WARC.format(0))
    source = crawl.source(urls=["*.one.example"])
    found = read(source)
    assert [row["url"] for row in found["out"]] == [URLS[3]]
    assert all("no parts of files" in row["error"] for row in found["failed"])


def test_crawls_are_named_by_range_and_what_is_no_crawl_is_refused(crawl):
    with crawl.source().web() as web:
        assert named(["2022-10..2023-10", "latest"], web, crawl.server.url) == [f"CC-MAIN-20{year}-10" for year in (22, 23, 24)]
        assert named(["CC-NEWS-2023-12..CC-NEWS-2024-01"], web, "") == ["CC-NEWS-2023-12", "CC-NEWS-2024-01"]
    for wrong, message in [({"snapshots": ["march"]}, "names no crawl"), ({"snapshots": ["2024-10..2023-10"]}, "is no range"),
                           ({"languages": ["de"], "index": "table"}, "three letters"), ({"languages": ["deu"]}, "wants urls"),
                           ({"where": "x = 1"}, "index: table"), ({"kind": "pdf"}, "kind must be"), ({"connections": 0}, "1 or more"),
                           ({"kind": "wet", "urls": ["a.example"]}, "kind: warc")]:
        with pytest.raises(ValueError, match=message):
            crawl.source(**wrong)


def test_a_mirror_may_be_a_folder(crawl, tmp_path):
    for name, data in {WARC.format(0): crawl.archives[0], f"crawl-data/{CRAWL}/warc.paths.gz": paths_gz(WARC.format(0))}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert [row["url"] for row in read(crawl.source(base_url=str(tmp_path)))["out"]] == URLS[:2]
