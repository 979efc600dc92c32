"""`fetch` against a server in this process: what comes, what is dropped and why, what fails, and what nobody may reach."""

from __future__ import annotations

import datetime
import gzip
import socket
import ssl
import threading
import unicodedata
from collections import Counter
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.batch import Batch
from curator.front import load
from curator.io.files.confined import located
from curator.io.http import connections
from curator.io.http.addresses import host_of, is_public, normalised
from curator.io.http.retry import pause_s, retry_after_s
from curator.io.media.types import ending_of, settled
from curator.run.run import run
from curator.stages.fetch.fetch import Fetch
from curator.stages.fetch.hosts import RowsByHost
from curator.stages.fetch.opt_out import OPT_OUT, opts_out
from curator.testing import check_stage, run_stage
from tests.stages.web_server import JPEG, Web, page, redirect


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


def urls(*values) -> Batch:
    return Batch(rows=pa.table({"id": [f"r{i}" for i in range(len(values))], "source": ["m.csv"] * len(values),
                                "caption": [f"c{i}" for i in range(len(values))], "url": pa.array(values, pa.string())}))


def local(**parameters) -> Fetch:
    return Fetch(**{"private": True, "backoff_s": 0.0, **parameters})


def became(stage, *values) -> list[str]:
    """For each URL: `ok`, the reason of its drop, or `failed`."""
    found = {}
    for port, batch in run_stage(stage, urls(*values)).items():
        for row in batch.rows.to_pylist():
            found[row["id"]] = {"out": "ok", "failed": "failed"}.get(port) or row["reason"]
    return [found[f"r{i}"] for i in range(len(values))]


def error_of(stage, url) -> str:
    return run_stage(stage, urls(url))["failed"].rows["error"][0].as_py()


# -- what comes ---------------------------------------------------------------------------------------------------


def test_a_url_becomes_bytes_and_what_is_known_of_them(web):
    web.pages["/a"] = page(Content_Type="Image/JPEG; charset=binary")
    out = run_stage(local(), urls(web.url + "/a"))["out"]
    row = out.rows.to_pylist()[0]
    assert (row["bytes"], row["extension"], row["content_type"]) == (JPEG, "jpg", "image/jpeg")
    assert row["fetched_url"] == web.url + "/a"
    assert (row["id"], row["caption"]) == ("r0", "c0")
    assert web.agents == ["curator (collects data for training)"]


def test_it_keeps_the_rules_of_stages(web):
    web.pages |= {"/a": page(), "/b": page(b"B", Content_Type="image/png"), "/moved": redirect("/a"), "/busy": page(status=503)}
    check_stage(local(retries=0), urls(web.url + "/a", web.url + "/b", None, web.url + "/none", web.url + "/moved",
                                       web.url + "/busy", "ftp://x/y", "photos/1.jpg"))


def test_what_a_vague_server_leaves_out_the_url_tells(web):
    web.pages |= {"/a.PNG": page(Content_Type="application/octet-stream"), "/b.tar": page(Content_Type=None),
                  "/c": page(Content_Type=None)}
    rows = run_stage(local(), urls(web.url + "/a.PNG?size=1.5", web.url + "/b.tar", web.url + "/c"))["out"].rows
    assert rows["extension"].to_pylist() == ["png", "tar", None]
    assert rows["content_type"].to_pylist() == ["image/png", None, None]


@given(st.text(max_size=40) | st.from_regex(r"https?://[^/]{0,20}(/.{0,20})?", fullmatch=True))
def test_a_url_is_plain_ascii_on_the_wire(url):
    try:
        found = normalised(url)
    except ValueError:
        return
    assert found.startswith(("http://", "https://"))
    assert found.isascii()
    assert found.isprintable()
    assert " " not in found
    assert normalised(found) == found


@cache
def like_a_dot():
    return [chr(c) for c in range(0x110000) if "." in unicodedata.normalize("NFKC", chr(c))]


@pytest.mark.parametrize("form", ["http://{}", "http://a{}", "http://{}a", "http://a{0}{0}b", "http://é{}", "http://[{}]",
                                  "http://a.{}:80/x"])
def test_what_unicode_takes_for_a_dot_is_one_in_a_host_too(form):
    for dot in like_a_dot():
        test_a_url_is_plain_ascii_on_the_wire.hypothesis.inner_test(form.format(dot))
    assert normalised("http://a\N{ONE DOT LEADER}b/") == "http://a.b/"


@pytest.mark.parametrize("host", [".", "\N{ONE DOT LEADER}", "a\N{TWO DOT LEADER}b", "\N{IDEOGRAPHIC FULL STOP}"])
def test_a_host_of_empty_labels_is_none(host):
    with pytest.raises(ValueError, match="label empty"):
        normalised(f"http://{host}/")


def test_redirects_are_followed_and_told(web):
    in_utf8 = "/bild-ä.jpg".encode().decode("latin-1")
    web.pages |= {"/1": redirect("2", 301), "/2": redirect(web.url + "/3", 307), "/3": redirect(in_utf8, 308),
                  "/bild-%C3%A4.jpg": page()}
    rows = run_stage(local(), urls(web.url + "/1"))["out"].rows
    assert rows["fetched_url"][0].as_py() == web.url + "/bild-%C3%A4.jpg"


def test_names_and_paths_may_be_in_any_script(web):
    web.pages |= {"/%C3%BCml%C3%A4ut%20bild.jpg": page(), "/a%20b": page()}
    assert became(local(), web.url + "/ümläut bild.jpg?größe=ö#teil", web.url + "/a%20b", f"  {web.url}/a%20b\n") == ["ok"] * 3
    assert normalised("HTTP://Bücher.example:80/ä?ö=ü#x") == "http://xn--bcher-kva.example:80/%C3%A4?%C3%B6=%C3%BC"
    assert normalised("http://me:secret@host.example") == "http://host.example/"
    assert normalised("http://[2001:db8::1]:8080/x") == "http://[2001:db8::1]:8080/x"


@pytest.mark.parametrize("length", [True, False])
def test_a_compressed_answer_is_decompressed(web, length):
    web.pages["/a"] = page(gzip.compress(JPEG), length=length, Content_Encoding="gzip")
    assert run_stage(local(), urls(web.url + "/a"))["out"].rows["bytes"][0].as_py() == JPEG


def test_chunks_are_joined(web):
    def chunked(handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    web.pages["/a"] = chunked
    assert run_stage(local(), urls(web.url + "/a"))["out"].rows["bytes"][0].as_py() == b"abcde"


def test_an_empty_file_is_a_file(web):
    web.pages["/a"] = page(b"")
    assert run_stage(local(), urls(web.url + "/a"))["out"].rows["bytes"][0].as_py() == b""


def test_rows_keep_their_order_and_connections_are_used_again(web):
    web.pages |= {f"/{i}": page(bytes([i])) for i in range(60)}
    out = run_stage(local(threads=4), urls(*[f"{web.url}/{i}" for i in range(60)]))["out"]
    assert out.rows["id"].to_pylist() == [f"r{i}" for i in range(60)]
    assert out.rows["bytes"].to_pylist() == [bytes([i]) for i in range(60)]
    assert web.connections <= 4


def test_small_unwanted_answers_do_not_cost_a_connection(web):
    assert became(local(threads=1), *[f"{web.url}/none{i}" for i in range(9)]) == ["http_404"] * 9
    assert web.connections == 1


def test_parts_go_on_before_the_slow_rows(web):
    """A row that is held back until the others have gone on: a stage that waited for it would wait for ever."""
    web.pages |= {"/slow": lambda handler: (web.released.wait(), page()(handler)), "/big": page(bytes(9 << 20)), "/small": page()}
    stage = local(threads=2, read_timeout_s=200.0, deadline_s=300.0)
    stage.setup(None)
    parts = stage.process(urls(web.url + "/slow", web.url + "/big", web.url + "/big", web.url + "/small"))
    first = next(parts)["out"]
    assert first.rows["id"].to_pylist() == ["r1", "r2"]
    web.released.set()
    assert [row for part in parts for row in part["out"].rows["id"].to_pylist()] == ["r0", "r3"]
    stage.close()


# -- what is dropped ----------------------------------------------------------------------------------------------


def test_answers_for_good_are_dropped_and_asked_once(web):
    for status in (401, 403, 404, 410, 451, 204, 304):
        web.pages[f"/{status}"] = page(b"", status=status)
    every = [401, 403, 404, 410, 451, 204, 304]
    assert became(local(retries=3), *[f"{web.url}/{status}" for status in every]) == [f"http_{status}" for status in every]
    assert set(web.asked.values()) == {1}


@pytest.mark.parametrize(("value", "reason"), [
    (None, "no_url"), ("", "no_url"), ("  ", "no_url"), ("http://", "bad_url"), ("http://[::1", "bad_url"),
    ("http://host:port/", "bad_url"), ("http://a..b/", "bad_url"), (f"http://{'a' * 64}.example/", "bad_url"),
    ("ftp://host/x", "no_root"), ("gopher://host/", "no_root"), ("data:image/png;base64,AAAA", "bad_url"),
    ("javascript:alert(1)", "bad_url"), ("file:///etc/passwd", "no_root"), ("/etc/passwd", "no_root"),
    ("s3://b/x", "no_root")])
def test_what_is_no_url_is_dropped(value, reason):
    assert became(local(), value) == [reason]


def test_a_redirect_that_leads_in_a_circle_or_nowhere_is_dropped(web):
    web.pages |= {"/loop": redirect("/loop"), "/ftp": redirect("ftp://host/"), "/file": redirect("file:///etc/passwd"),
                  "/bad": redirect("http://[")}
    web.pages |= {f"/{i}": redirect(f"/{i + 1}") for i in range(5)} | {"/5": page()}
    assert became(local(), web.url + "/loop", web.url + "/ftp", web.url + "/file", web.url + "/bad", web.url + "/0") == [
        "redirects", "bad_url", "bad_url", "bad_url", "ok"]


def test_what_is_too_large_is_not_read_to_its_end(web):
    body = bytes(300_000)
    endless = threading.Event()

    def stream(handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not web.released.is_set():
                handler.wfile.write(body)
        except OSError:
            endless.set()

    def said(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000000000")
        handler.end_headers()
        web.released.wait()

    web.pages |= {"/said": said, "/unsaid": page(body, length=False), "/fits": page(bytes(200_000)), "/endless": stream,
                  "/bomb": page(gzip.compress(bytes(50_000_000)), Content_Encoding="gzip"),
                  "/bombs": page(gzip.compress(gzip.compress(bytes(50_000_000))), Content_Encoding="gzip, gzip")}
    names = ["/said", "/unsaid", "/fits", "/endless", "/bomb", "/bombs"]
    assert became(local(max_bytes=200_000), *[web.url + name for name in names]) == [
        "too_large", "too_large", "ok", "too_large", "too_large", "too_large"]
    assert endless.wait(30), "the connection was not closed"


def test_only_wanted_types_are_read(web):
    web.pages |= {"/a": page(Content_Type="image/png"), "/b": page(Content_Type="text/html"), "/c": page(Content_Type=None),
                  "/d.jpg": page(Content_Type="binary/octet-stream")}
    assert became(local(content_types=["image/*"]), *[web.url + n for n in ("/a", "/b", "/c", "/d.jpg")]) == [
        "ok", "content_type", "content_type", "ok"]


# -- who does not want it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("headers", "out"), [
    ({"X_Robots_Tag": "noai"}, True), ({"X_Robots_Tag": "NoImageAI"}, True), ({"x_robots_tag": "nofollow, noindex"}, True),
    ({"X_Robots_Tag": "nofollow"}, False), ({"X_Robots_Tag": "none-of-it"}, False), ({"X_Robots_Tag": ""}, False),
    ({"X_Robots_Tag": "otherbot: noai"}, False), ({"X_Robots_Tag": "otherbot: nofollow, noai"}, False),
    ({"X_Robots_Tag": "Lab-Curator: noai"}, True), ({"X_Robots_Tag": "*: noai"}, True),
    ({"X_Robots_Tag": ["otherbot: nofollow", "noai"]}, True),
    ({"X_Robots_Tag": "otherbot: noai, lab-curator: noimageindex"}, True),
    ({"X_Robots_Tag": "unavailable_after: 25 Jun 2010 15:00:00 PST, noai"}, True),
    ({"X_Robots_Tag": "unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, noai"}, True), ({"X_Robots_Tag": "none"}, True),
    ({"X_Robots_Tag": "max-image-preview: large"}, False),
    ({"TDM_Reservation": "1"}, True), ({"tdm_reservation": "0"}, False)])
def test_opt_out_headers(web, headers, out):
    web.pages |= {"/a": page(**headers), "/moved": redirect("/b", **headers), "/b": page()}
    stage = local(user_agent="Lab-Curator/1.0 (+https://lab.example)")
    assert became(stage, web.url + "/a", web.url + "/moved") == (["opt_out"] * 2 if out else ["ok"] * 2)
    assert became(local(opt_out=[]), web.url + "/a", web.url + "/moved") == ["ok"] * 2


def test_the_user_chooses_the_directives_and_an_error_page_is_an_error_page(web):
    web.pages |= {"/index": page(X_Robots_Tag="noindex"), "/ai": page(X_Robots_Tag="noai"),
                  "/404": page(status=404, X_Robots_Tag="noindex")}
    assert became(local(opt_out=["noai"]), *[web.url + n for n in ("/index", "/ai")]) == ["ok", "opt_out"]
    assert became(local(), web.url + "/404") == ["http_404"]


@given(st.text(max_size=40))
def test_any_header_can_be_read(value):
    opts_out({"x-robots-tag": value, "tdm-reservation": value}, OPT_OUT, "curator")


# -- what fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(web, status):
    web.pages["/a"] = lambda handler: page(status=status if web.asked["/a"] < 3 else 200)(handler)
    assert became(local(retries=2), web.url + "/a") == ["ok"]
    assert web.asked["/a"] == 3


def test_then_it_fails_and_the_error_says_why(web):
    web.pages |= {"/busy": page(status=503), "/never": page(status=501)}
    host = web.url.removeprefix("http://")
    assert error_of(local(retries=2), web.url + "/busy") == f"HTTP 503 from {host} (tries: 3)"
    assert error_of(local(retries=2), web.url + "/never") == f"HTTP 501 from {host} (tries: 1)"
    assert web.asked == {"/busy": 3, "/never": 1}


def test_the_server_says_when_to_come_again(web):
    web.pages |= {"/now": lambda handler: page(status=429 if web.asked["/now"] < 2 else 200, Retry_After="0")(handler),
                  "/tomorrow": page(status=503, Retry_After="86400")}
    assert became(local(backoff_s=1000.0), web.url + "/now", web.url + "/tomorrow") == ["ok", "failed"]
    assert web.asked == {"/now": 2, "/tomorrow": 1}, "a pause that ends behind the deadline is not begun"


def test_a_silent_server_fails(web):
    web.pages["/held"] = lambda handler: web.released.wait()
    assert "is silent for too long (tries: 2)" in error_of(local(read_timeout_s=0.1, retries=1), web.url + "/held")


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_fails_at_the_deadline(web, start):
    def drip(handler) -> None:
        handler.wfile.write(start)
        while not web.released.wait(0.02):
            handler.wfile.write(b"a")

    web.pages["/drip"] = drip
    assert "the deadline passed" in error_of(local(read_timeout_s=100.0, deadline_s=0.3), web.url + "/drip")


def test_an_answer_that_is_cut_off_fails(web):
    def cut(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    web.pages |= {"/cut": cut, "/old": page(Content_Encoding="gzip, compress"),
                  "/mistaken": page(Content_Encoding="utf-8"),
                  "/noise": lambda handler: handler.wfile.write(b"garbage\r\n\r\n") and None,
                  "/broken": page(b"no gzip at all", Content_Encoding="gzip"), "/close": lambda handler: None}
    host = web.url.removeprefix("http://")
    assert error_of(local(retries=1), web.url + "/cut") == f"{host} ended its answer too early (tries: 2)"
    assert web.asked["/cut"] == 2
    assert "cannot be decompressed" in error_of(local(), web.url + "/broken")
    assert "compressed as compress, which nobody here can read" in error_of(local(), web.url + "/old")
    assert became(local(), web.url + "/mistaken") == ["ok"]
    assert became(local(retries=0, read_timeout_s=0.2), web.url + "/noise", web.url + "/close") == ["failed", "failed"]


def test_nobody_there_fails():
    with socket.socket() as bound:  # bound, and not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert "Connection refused (tries: 3)" in error_of(local(), f"http://127.0.0.1:{port}/")
    assert error_of(local(), "http://no-such-name.invalid/") == "no address is known for the name no-such-name.invalid (tries: 1)"


def test_over_tls(web, tmp_path, monkeypatch):
    """A certificate is checked; and the deadline ends an answer there too."""
    certificate = self_signed(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    web.server.socket = context.wrap_socket(web.server.socket, server_side=True)
    secure = f"https://localhost:{web.server.server_port}"
    web.pages |= {"/a": page(), "/held": lambda handler: web.released.wait()}
    assert "no secure connection to localhost" in error_of(local(), secure + "/a")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert became(local(), secure + "/a", secure + "/a") == ["ok", "ok"]
    assert "the deadline passed" in error_of(local(deadline_s=0.3), secure + "/held")
    assert became(Fetch(), secure + "/a") == ["private_address"]


def self_signed(folder, name):
    """A file with a certificate that vouches for itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256()))
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "certificate.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


# -- whom it does not connect to ----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/a", "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://localhost/", "http://[::1]/",
                                 "http://2130706433/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/", "http://100.64.0.1/", "http://0.0.0.0/"])
def test_addresses_of_the_own_network_are_refused(web, url):
    web.pages["/a"] = page()
    url = web.url + url if url.startswith("/") else url
    assert became(Fetch(), url) == ["private_address"]
    assert not web.asked


def test_neither_a_redirect_nor_a_changed_name_gets_round_it(web, monkeypatch):
    """One address of this machine stands for the public internet, all others stay private; a name moves from one to the other."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1")
    lookup, asked = socket.getaddrinfo, Counter()

    def rebinding(host, *args, **kwargs):
        asked[host] += 1
        return lookup({"moves.example": f"127.0.0.{asked[host]}"}.get(host, host), *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    port = web.server.server_port
    web.pages |= {"/redirect": redirect(f"http://127.0.0.2:{port}/a"), "/a": page(Connection="close")}
    name = f"http://moves.example:{port}/a"
    assert became(Fetch(threads=1), web.url + "/redirect", name, name) == ["private_address", "ok", "private_address"]
    assert web.asked == {"/redirect": 1, "/a": 1}


@pytest.mark.parametrize(("address", "public"), [
    ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("127.0.0.1", False), ("192.168.1.1", False), ("224.0.0.1", False),
    ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:10.0.0.1", False), ("::ffff:93.184.216.34", True),
    ("64:ff9b::7f00:1", False), ("64:ff9b::5db8:d822", True), ("2002:7f00:1::", False)])
def test_which_addresses_are_public(address, public):
    assert is_public(address) == public


def test_a_proxy_is_used_only_where_it_is_named(web, monkeypatch):
    web.pages["http://far.example/a"] = page()
    monkeypatch.setenv("http_proxy", web.url)
    assert became(Fetch(retries=0), "http://far.invalid/a") == ["failed"]
    assert not web.asked
    assert became(Fetch(proxy=web.url), "http://far.example/a", "http://127.0.0.1/a") == ["ok", "private_address"]


# -- paths --------------------------------------------------------------------------------------------------------


def test_paths_are_read_below_the_root_only(tmp_path):
    root, secret = tmp_path / "root", tmp_path / "secret.jpg"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.jpg").write_bytes(JPEG)
    (root / "big.jpg").write_bytes(bytes(100))
    secret.write_bytes(b"secret")
    (root / "link.jpg").symlink_to(secret)
    stage = Fetch(root=str(root), max_bytes=50)
    inside = ["sub/a.jpg", "sub/../sub/a.jpg", str(root / "sub/a.jpg"), f"file://{root}/sub/a.jpg", f"file://localhost{root}/sub/%61.jpg"]
    assert became(stage, *inside) == ["ok"] * 5
    outside = ["../secret.jpg", str(secret), f"file://{secret}", "link.jpg", f"file://{root}/%2e%2e/secret.jpg", "s3://bucket/x"]
    assert became(stage, *outside) == ["outside_root"] * 6
    assert became(stage, "none.jpg", "sub", "big.jpg", "a\0b") == ["not_found", "not_found", "too_large", "bad_url"]
    assert became(Fetch(root="/"), str(secret)) == ["ok"]
    assert became(Fetch(root=str(root), content_types=["image/png"]), "sub/a.jpg") == ["content_type"]
    row = run_stage(stage, urls("sub/a.jpg"))["out"].rows.to_pylist()[0]
    assert (row["bytes"], row["extension"], row["content_type"]) == (JPEG, "jpg", "image/jpeg")


def test_a_root_may_be_a_bucket_or_a_server(web):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/bucket/photos/a.jpg", JPEG)
    stage = Fetch(root="memory://bucket/photos")
    assert became(stage, "a.jpg", "memory://bucket/photos/a.jpg", "memory://bucket/photos/../a.jpg", "memory://bucket/photos-2/a.jpg",
                  "/etc/passwd", "none.jpg") == ["ok", "ok", "outside_root", "outside_root", "outside_root", "not_found"]
    web.pages["/photos/a.jpg"] = page()
    assert became(local(root=web.url + "/photos"), "a.jpg") == ["ok"]


@given(st.text(max_size=30))
def test_no_path_leads_out(path):
    for root in ("/some/root", "s3://bucket/root"):
        try:
            place = located(path, root)
        except ValueError:
            continue
        assert place is None or place == root or place.startswith(root + "/")


# -- the pieces ---------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=40), st.integers(1, 4), st.integers(1, 8), st.randoms())
def test_every_row_has_its_turn_and_no_host_too_many(hosts, most, threads, chance):
    rows, running, taken = RowsByHost(hosts, most), [], []
    while rows or running:
        while len(running) < threads and (row := rows.take()) is not None:
            running.append(row)
            taken.append(row)
        at_work = Counter(hosts[row] for row in running)
        assert all(n <= most for host, n in at_work.items() if host)
        assert running, "nobody works and rows wait"
        rows.give_back(running.pop(chance.randrange(len(running))))
    assert sorted(taken) == list(range(len(hosts)))


def test_no_more_requests_to_a_host_at_once_than_allowed(web):
    gate = threading.Barrier(2, timeout=60)  # two requests must meet, or neither is answered
    web.pages |= {f"/{i}": lambda handler: (gate.wait(), page()(handler)) for i in range(12)}
    assert became(local(per_host=2, threads=8), *[f"{web.url}/{i}" for i in range(12)]) == ["ok"] * 12
    assert web.most_at_once == 2


def test_when_to_try_again():
    assert retry_after_s("7") == 7
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert [retry_after_s(v) for v in (None, "", "soon", "-1", "٣")] == [None] * 5
    assert pause_s(9, 0.5, "3") == 3
    assert all(1.0 <= pause_s(2, 0.5) <= 2.0 for _ in range(99))
    assert pause_s(1000, 0.5) <= 60


def test_endings():
    given = ("a/b.JPG", "http://h.example/x.tar.gz?y=.png", "http://h.example", "a.b/c", "x.verylongending", ".jpg")
    assert [ending_of(url) for url in given] == ["jpg", "gz", None, None, None, None]
    assert ending_of("memory://[x/a.jpg") == "jpg"
    assert settled("image/jpeg; q=1", "x.png") == ("image/jpeg", "jpg")
    assert settled("application/x-odd", "x.odd") == ("application/x-odd", "odd")
    assert host_of("http://u:p@Host.example:81/x") == "host.example:81"
    assert host_of("http://[::1") == ""


@pytest.mark.parametrize(("parameters", "said"), [
    ({"threads": 0}, "threads"), ({"max_bytes": 2 << 30}, "max_bytes"), ({"deadline_s": 0}, "deadline_s"),
    ({"into": "source"}, "into"), ({"content_types": []}, "content_types"), ({"opt_out": ["NoAI"]}, "opt_out"),
    ({"user_agent": "a\nb"}, "user_agent"), ({"retries": -1}, "retries"),
    ({"content_types": "image/*"}, "content_types is a list"), ({"opt_out": "noai"}, "opt_out is a list")])
def test_nonsense_is_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        Fetch(**parameters)


def test_each_thing_that_is_wrong_has_a_reason_of_its_own(web):
    web.pages |= {"/a": page(X_Robots_Tag="noai"), "/b": page(Content_Type="text/html"), "/c": page(bytes(99)),
                  "/d": redirect("/d")}
    stage = local(content_types=["image/*"], max_bytes=50, root="/nowhere")
    found = became(stage, None, "http://[", *[web.url + n for n in ("/a", "/b", "/c", "/d", "/none")], "x.jpg", "../x.jpg")
    assert found == ["no_url", "bad_url", "opt_out", "content_type", "too_large", "redirects", "http_404", "not_found",
                     "outside_root"]


RECIPE = """
name: from-a-manifest
read: {csv: {path: FOLDER/manifest.csv}}
steps:
  - fetch: {private: true, content_types: [image/*], backoff_s: 0}
  - drop: {small: octet_length(bytes) < 10}
write: {parquet: {path: FOLDER/out/}}
max_failed: 100%
"""


def test_a_manifest_becomes_a_dataset_and_every_record_is_accounted_for(web, tmp_path):
    web.pages |= {"/a": page(), "/b": page(b"tiny"), "/c": page(status=500), "/d": redirect("/a")}
    lines = [f"{web.url}{name},the caption of {name}" for name in ("/a", "/b", "/c", "/d", "/e")]
    (tmp_path / "manifest.csv").write_text("url,caption\n" + "\n".join(lines) + "\n")
    stats = run(load(RECIPE.replace("FOLDER", str(tmp_path))), workers=0).stats
    assert {name: n for name, n in stats["records"].items() if n} == {"in": 5, "written": 2, "dropped": 2, "failed": 1}
    rows = pa.concat_tables([pq.read_table(file) for file in (tmp_path / "out/data").glob("*.parquet")])
    assert sorted(rows["caption"].to_pylist()) == ["the caption of /a", "the caption of /d"]
    assert rows["bytes"].to_pylist() == [JPEG, JPEG]
