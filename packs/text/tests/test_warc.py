"""Reading of archives: what is good comes through, what is damaged is named, nothing is silent."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from curator_text.read.warc import Warc
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from curator.api.errors import InputError

PAGE = b"<html><head><title>A page</title></head><body><p>Some words about nothing in particular.</p></body></html>"


def http(body: bytes = PAGE, status: str = "200 OK", **headers: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """A response; `content_type="text/html"` becomes the header `Content-Type: text/html`."""
    named = {"content_type": "text/html; charset=utf-8", **headers}
    return status, [(name.replace("_", "-").title(), value) for name, value in named.items() if value], body


def archive(*responses: tuple, gzip: bool = True, info: bool = True) -> bytes:
    """A WARC file with these responses at http://x/0, http://x/1, ..., each followed by its request."""
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=gzip)
    if info:
        writer.write_record(writer.create_warcinfo_record("test.warc", {"software": "test"}))
    for number, (status, headers, body) in enumerate(responses):
        head = StatusAndHeaders(status, headers, protocol="HTTP/1.1")
        record = writer.create_warc_record(f"http://x/{number}", "response", payload=io.BytesIO(body),
                                           http_headers=head)
        writer.write_request_response_pair(writer.create_warc_record(
            f"http://x/{number}", "request", http_headers=StatusAndHeaders("GET / HTTP/1.1", [])), record)
    return out.getvalue()


def plain(headers: dict[str, object], block: bytes) -> bytes:
    """One record as it stands in an uncompressed WARC file."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Content-Length": len(block), **headers}.items())
    return b"WARC/1.1\r\n" + lines.encode() + b"\r\n" + block + b"\r\n\r\n"


def response(number: int, body: bytes = PAGE, **changed: object) -> bytes:
    """A plain response record with this record id."""
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    return plain({"WARC-Type": "response", "WARC-Record-ID": f"<urn:uuid:{number}>",
                  "WARC-Target-URI": f"http://x/{number}", "Content-Type": "application/http; msgtype=response",
                  **changed}, block)


def read(folder: Path, data: bytes, name: str = "a.warc.gz", **parameters: object) -> dict[str, list[dict]]:
    """The rows that `Warc` gives for an archive, by port."""
    (folder / name).write_bytes(data)
    return read_all(Warc(path=str(folder / name), **parameters))


def read_all(source: Warc) -> dict[str, list[dict]]:
    ports: dict[str, list[dict]] = {"out": [], "dropped": [], "failed": []}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports[port] += batch.rows.to_pylist()
    return ports

THREE = [http(PAGE.replace(b"nothing", word)) for word in (b"one", b"two", b"three")]


def urls(rows):
    return [row["url"] for row in rows]


def by_warcio(data):
    """Url and body of each response as warcio reads them."""
    return [(r.rec_headers["WARC-Target-URI"], r.content_stream().read())
            for r in ArchiveIterator(io.BytesIO(data), arc2warc=False) if r.rec_type == "response"]


def chunked(body, size=16):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_reads_what_warcio_reads(tmp_path, packed):
    data = archive(*THREE, http(chunked(PAGE), transfer_encoding="chunked"),
                   http(gzip.compress(PAGE, mtime=0), content_encoding="gzip"),
                   http(zlib.compress(PAGE), content_encoding="deflate"),
                   http(chunked(gzip.compress(PAGE, mtime=0)), transfer_encoding="chunked", content_encoding="gzip"),
                   gzip=packed)
    found = read(tmp_path, data, "a.warc.gz" if packed else "a.warc")
    assert [(row["url"], row["html"]) for row in found["out"]] == by_warcio(data)
    assert not found["dropped"]
    assert not found["failed"]
    assert {row["salvaged"] for row in found["out"]} == {None}


def test_files_of_other_kinds_are_told(tmp_path):
    for name in ("a.warc.gz", "b.wet", "index.cdxj"):
        (tmp_path / name).write_bytes(b"")
    source = Warc(path=str(tmp_path))
    source.units()
    assert "files of other kinds are not read: 1 .cdxj." in source.remarks()[0]


def test_row_says_where_a_page_is_from(tmp_path):
    row = read(tmp_path, archive(http()))["out"][0]
    assert row["id"].startswith("urn:uuid:")
    assert row["source"] == str(tmp_path / "a.warc.gz")
    assert (row["url"], row["status"], row["content_type"], row["charset"]) == ("http://x/0", 200, "text/html", "utf-8")
    assert row["date"].endswith("Z")


def test_kind_of_compression_is_seen_from_the_content(tmp_path):
    assert len(read(tmp_path, archive(http(), gzip=True), "a.warc")["out"]) == 1
    assert len(read(tmp_path, archive(http(), gzip=False), "a.warc.gz")["out"]) == 1


def test_gzip_members_need_not_be_records(tmp_path):
    data = archive(*THREE, gzip=False)
    assert len(read(tmp_path, gzip.compress(data))["out"]) == 3
    [failed] = read(tmp_path, gzip.compress(data[:-1000] + b"?" * 9))["failed"]
    assert failed["offset"] == 0
    assert "@0+" in failed["id"]
    members = b"".join(gzip.compress(data[i:i + 100]) for i in range(0, len(data), 100))
    found = read(tmp_path, members)
    assert len(found["out"]) == 3
    assert not found["failed"]


def test_zstandard(tmp_path):
    frames = [pa.compress(response(i), "zstd", asbytes=True) for i in range(3)]
    assert len(read(tmp_path, b"".join(frames), "a.warc.zst")["out"]) == 3
    found = read(tmp_path, b"".join(frames)[:-20], "a.warc.zst")
    assert urls(found["out"]) == ["http://x/0", "http://x/1"]
    assert "zstd stream is damaged" in found["failed"][0]["error"]


def test_wet_files_hold_text(tmp_path):
    record = plain({"WARC-Type": "conversion", "WARC-Target-URI": "http://x/", "Content-Type": "text/plain"}, b"Words.")
    row = read(tmp_path, gzip.compress(record), "a.warc.wet.gz")["out"][0]
    assert (row["html"], row["content_type"], row["status"]) == (b"Words.", "text/plain", None)


# -- what is not wanted ---------------------------------------------------------------------------------------


def test_other_status_and_type_are_dropped_with_a_reason(tmp_path):
    data = archive(http(status="404 Not Found"), http(b"{}", content_type="application/json"), http())
    found = read(tmp_path, data)
    assert [(row["url"], row["reason"], row["html"]) for row in found["dropped"]] == [
        ("http://x/0", "status", None), ("http://x/1", "content_type", None)]
    assert urls(found["out"]) == ["http://x/2"]
    everything = read(tmp_path, data, statuses=None, content_types=None)
    assert len(everything["out"]) == 3
    assert len(read(tmp_path, data, content_types=["application/*"])["out"]) == 1


def test_type_is_seen_from_the_content_where_it_is_not_stated(tmp_path):
    found = read(tmp_path, archive(http(content_type=""), http(b"\x89PNG....", content_type="")))
    assert [row["content_type"] for row in found["out"]] == ["text/html"]
    assert [row["reason"] for row in found["dropped"]] == ["content_type"]


@pytest.mark.parametrize("body", [PAGE + b"x" * 5000, gzip.compress(b"<p>" + b"x" * 5000, mtime=0)], ids=["stored", "bomb"])
def test_too_large_records_are_dropped(tmp_path, body):
    coding = {"content_encoding": "gzip"} if body[:1] == b"\x1f" else {}
    found = read(tmp_path, archive(http(body, **coding), http()), max_record_bytes=1000)
    assert [row["reason"] for row in found["dropped"]] == ["too_large"]
    assert urls(found["out"]) == ["http://x/1"]


# -- damage -----------------------------------------------------------------------------------------------------


def test_truncated_gzip_fails_the_last_record_only(tmp_path):
    whole = archive(*THREE)
    last = whole.rindex(b"\x1f\x8b\x08", 0, whole.rindex(b"\x1f\x8b\x08"))  # the last response, before its request
    for end in (len(whole) - 4, last + 100, last + 20):
        found = read(tmp_path, whole[:end])
        good = 3 if end == len(whole) - 4 else 2
        assert urls(found["out"]) == [f"http://x/{i}" for i in range(good)]
        [failed] = found["failed"]
        assert "ends in the middle" in failed["error"]
        assert failed["id"].rpartition("@")[0] == failed["source"]
        assert failed["traceback"]


@pytest.mark.parametrize("cut", [30, 200])
def test_truncated_plain_file_fails_the_last_record_only(tmp_path, cut):
    data = response(0) + response(1)
    found = read(tmp_path, data[:-cut], "a.warc")
    assert urls(found["out"]) == ["http://x/0"]
    [failed] = found["failed"]
    assert failed["id"].endswith(f"a.warc@{len(response(0))}")
    assert failed["offset"] == len(response(0))
    assert failed["url"] == ("http://x/1" if cut == 30 else None) or "no end" in failed["error"]


def test_garbage_between_records_fails_and_both_neighbours_are_read(tmp_path):
    first, second = response(0), response(1)
    found = read(tmp_path, first + b"garbage\r\n" * 9 + second, "a.warc")
    assert urls(found["out"]) == ["http://x/0", "http://x/1"]
    [failed] = found["failed"]
    assert failed["id"].endswith(f"@{len(first)}")
    assert "81 bytes" in failed["error"]

    first, second = gzip.compress(first), gzip.compress(second)
    found = read(tmp_path, first + b"garbage" + second)
    assert urls(found["out"]) == ["http://x/0", "http://x/1"]
    [failed] = found["failed"]
    assert failed["id"].endswith(f"@{len(first)}")


@pytest.mark.parametrize("wrong", [-20, 20, 5000, 500_000])
def test_wrong_length_fails_that_record_and_the_next_is_read(tmp_path, wrong):
    length = response(1).split(b"Content-Length: ")[1].split(b"\r\n")[0]
    data = response(0) + response(1, **{"Content-Length": int(length) + wrong}) + response(2) + response(3)
    found = read(tmp_path, data, "a.warc")
    assert urls(found["out"]) == ["http://x/0", "http://x/2", "http://x/3"]
    assert [(row["url"], row["id"].rpartition("@")[2]) for row in found["failed"]] == [
        ("http://x/1", str(len(response(0))))]


def test_missing_length_fails_that_record_and_the_next_is_read(tmp_path):
    found = read(tmp_path, response(0).replace(b"Content-Length", b"Content-Lenth") + response(1), "a.warc")
    assert urls(found["out"]) == ["http://x/1"]
    assert "no valid Content-Length" in found["failed"][0]["error"]


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n\r\n", b"\n\n"])
def test_separators_may_be_missing(tmp_path, end):
    stripped = response(0).removesuffix(b"\r\n\r\n")
    found = read(tmp_path, stripped + end + response(1).removesuffix(b"\r\n\r\n"), "a.warc")
    assert urls(found["out"]) == ["http://x/0", "http://x/1"]
    assert not found["failed"]


def test_damaged_member_is_left_out_and_reading_goes_on(tmp_path):
    members = [gzip.compress(response(i)) for i in range(3)]
    broken = bytearray(members[1])
    broken[len(broken) // 2] ^= 0xFF
    found = read(tmp_path, members[0] + bytes(broken) + members[2])
    assert urls(found["out"]) == ["http://x/0", "http://x/2"]
    [failed] = found["failed"]
    assert failed["id"].endswith(f"@{len(members[0])}")
    assert f"goes on at byte {len(members[0]) + len(broken)}" in failed["error"]


def test_zeros_behind_the_last_member_are_padding(tmp_path):
    assert not read(tmp_path, gzip.compress(response(0)) + b"\0" * 512)["failed"]


def test_a_file_that_is_no_archive_is_one_failed_record(tmp_path):
    [failed] = read(tmp_path, b"Hello, world!\n" * 99, "a.warc")["failed"]
    assert f"{14 * 99} bytes that belong to no record" in failed["error"]
    assert read(tmp_path, b"", "b.warc") == {"out": [], "dropped": [], "failed": []}


@given(at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans(), packed=st.booleans())
def test_whatever_the_damage_other_records_come_through(tmp_path, at, value, cut, packed):
    records = [response(i, b"<p>" + b"word " * 20) for i in range(5)]
    members = [gzip.compress(r, mtime=0) for r in records] if packed else records
    data = b"".join(members)
    at %= len(data)
    broken = data[:at] if cut else data[:at] + bytes([value]) + data[at + 1:]
    found = read(tmp_path, broken)
    hit = next(i for i in range(5) if at < sum(map(len, members[:i + 1])))
    whole = {f"http://x/{i}" for i in range(hit if cut else 5) if i != hit}
    assert whole <= set(urls(found["out"]))
    if packed and broken != data and not (cut and at == sum(map(len, members[:hit]))):
        touched = set(urls(found["out"])) & {f"http://x/{hit}"}
        assert found["failed"] or touched  # a byte of the gzip header that means nothing may change


def test_a_type_that_is_unknown_or_in_segments_fails(tmp_path):
    data = response(0, **{"WARC-Type": "answer"}) + response(1, **{"WARC-Segment-Number": 1}) + response(2)
    found = read(tmp_path, data, "a.warc")
    assert urls(found["out"]) == ["http://x/2"]
    assert urls(found["failed"]) == ["http://x/0", "http://x/1"]


# -- labels that are wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "body", "note"), [
    ({"transfer_encoding": "chunked"}, PAGE, "labelled chunked, but is not"),
    ({"content_encoding": "gzip"}, PAGE, "labelled gzip, but is not"),
    ({"content_encoding": "br"}, PAGE, "labelled br, but is not"),
    ({"content_encoding": "sdch"}, PAGE, "labelled sdch, but is not"),
    ({"transfer_encoding": "chunked"}, chunked(PAGE)[:-5], "the last chunk is missing"),
    ({"content_length": "5000"}, PAGE, f"{len(PAGE)} bytes long, not 5000 as its Content-Length says"),
])
def test_wrong_labels_are_noted(tmp_path, labels, body, note):
    [row] = read(tmp_path, archive(http(body, **labels)))["out"]
    assert (row["html"], row["salvaged"]) == (PAGE, note)


@pytest.mark.parametrize(("labels", "body", "why"), [
    ({"transfer_encoding": "chunked"}, b"20\r\n" + PAGE + b"\r\n0\r\n\r\n", "wrong chunk size"),
    ({"transfer_encoding": "chunked"}, b"5\r\n<html\r\nzz\r\n", "wrong chunk size"),
    ({"transfer_encoding": "chunked"}, b"fff\r\n" + PAGE, "has 106 of 4095 bytes"),
    ({"content_encoding": "gzip"}, gzip.compress(PAGE, mtime=0)[:-20], "cut off"),
    ({"content_encoding": "sdch"}, b"\xff\x00\x01", "'sdch' is unknown"),
    ({"content_encoding": "br"}, b"\x8b\x00\x01\xff", "br body is broken"),
])
def test_bodies_that_cannot_be_read_fail(tmp_path, labels, body, why):
    found = read(tmp_path, archive(http(body, **labels), http()))
    assert urls(found["out"]) == ["http://x/1"]
    [failed] = found["failed"]
    assert why in failed["error"]
    assert failed["url"] == "http://x/0"
    assert "Traceback" in failed["traceback"]


def test_what_the_crawler_cut_is_kept_and_noted(tmp_path):
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE, mtime=0)[:-20]
    record = plain({"WARC-Type": "response", "WARC-Truncated": "length", "Content-Type": "application/http"}, block)
    [row] = read(tmp_path, record, "a.warc")["out"]
    assert PAGE.startswith(row["html"])
    assert row["html"]
    assert row["salvaged"] == "cut off by the crawler (length)"


def test_a_response_that_is_no_http_fails(tmp_path):
    record = plain({"WARC-Type": "response", "Content-Type": "application/http"}, b"GET / HTTP/1.1\r\n\r\n")
    assert "no HTTP response" in read(tmp_path, record, "a.warc")["failed"][0]["error"]


# -- ids, units, files ------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_stable(tmp_path):
    anonymous = response(3).replace(b"WARC-Record-ID: <urn:uuid:3>\r\n", b"")
    data = response(1) + response(1) + anonymous
    ids = [row["id"] for row in read(tmp_path, data, "a.warc")["out"]]
    assert ids[0] == "urn:uuid:1"
    assert len(set(ids)) == 3
    assert [len(i) for i in ids[1:]] == [16, 16]
    assert ids == [row["id"] for row in read(tmp_path, data, "a.warc")["out"]]


def test_units_cover_a_folder_and_batches_stay_small(tmp_path):
    for name in ("a.warc.gz", "b.wet.gz", "notes.txt"):
        (tmp_path / name).write_bytes(archive(*[http()] * 600))
    source = Warc(path=str(tmp_path), unit_bytes=1)
    units = source.units()
    assert [u.label for u in units] == [str(tmp_path / "a.warc.gz"), str(tmp_path / "b.wet.gz")]
    sizes = [len(batch) for outputs in source.read(units[0]) for batch in outputs.values()]
    assert sum(sizes) == 600
    assert max(sizes) <= 500
    assert len(read_all(Warc(path=[str(tmp_path / "a.*"), str(tmp_path / "b.wet.gz")]))["out"]) == 1200


def test_a_file_that_went_away_is_a_failed_record(tmp_path):
    for name in ("a.warc", "b.warc"):
        (tmp_path / name).write_bytes(response(0))
    source = Warc(path=str(tmp_path))
    units = source.units()
    (tmp_path / "a.warc").unlink()
    outputs = [o for unit in units for o in source.read(unit)]
    assert [row for o in outputs for row in o["failed"].column("id")] == [str(tmp_path / "a.warc")]
    assert sum(len(o["out"]) for o in outputs if "out" in o) == 1


def test_mistakes_are_told_before_a_run(tmp_path):
    with pytest.raises(InputError, match="nothing"):
        Warc(path=str(tmp_path / "nothing*")).units()
    with pytest.raises(ValueError, match="max_record_bytes must be 1 or more"):
        Warc(path="x", max_record_bytes=0)
    assert set(Warc(path="x").columns()) >= {"id", "source", "url", "html"}
