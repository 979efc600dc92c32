"""Addresses on lists: what is found and what only looks alike, however lists and addresses are written."""

from __future__ import annotations

import gzip
import io
import tarfile

import pyarrow as pa
import pytest
from curator_text import UrlLists
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pages(*urls):
    ids = [f"r{n}" for n in range(len(urls))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(urls), "url": pa.array(urls, pa.string())}))


def told(stage, *urls):
    out = run_stage(stage, pages(*urls))["out"]
    return list(zip(*(out.column(name) for name in ("url_match", "url_list", "url_entry")), strict=True))


def lists(tmp_path, **files):
    for name, lines in files.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return {name: str(tmp_path / f"{name}.txt") for name in files}


def archive(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return str(path)


def test_verdicts_of_lists_like_fineweb(tmp_path):
    """Those of datatrove 0.10.1 with its own lists, but for upper case, which it passes."""
    stage = UrlLists(**lists(tmp_path, lists=["hub.com"], words=["porn", "xxx"], soft_words=["webcam", "escort", "casino"],
                             subwords=["pornhub"]))
    found = {url: match for url, (match, _, _) in zip(URLS, told(stage, *URLS), strict=True)}
    assert found == URLS


URLS = {
    "http://example.com/free-porn-videos": "word", "http://example.com/FREE-PORN-VIDEOS": "word",
    "http://example.com/p.o.r.n.h.u.b": "subword", "http://example.com/webcam-escort": "soft_words",
    "http://example.com/webcam": None, "http://example.com/WEBCAM_ESCORT": "soft_words", "http://example.com/webcam-webcam": None,
    "http://example.com/a?q=xxx": "word", "http://example.com/a?q=%78xx": "word", "http://hub.com/x": "domain",
    "http://de.hub.com/x": "domain", "http://www.hub.com:8080/x": "domain", "https://HUB.com./x": "domain", "hub.com": "domain",
    "http://github.com/x": None, "http://essex.ac.uk/sexual-health": None, "http://example.com/bet365-casino": None,
    "http://example.com/hub.com": None, "http://hub.com.example.org/": None, "http://a@hub.com/porn": "domain",
}


def test_an_archive_in_the_layout_of_ut1_has_a_list_a_folder(tmp_path):
    path = archive(tmp_path / "blacklists.tar.gz", {
        "blacklists/adult/domains": "bad.example\n", "blacklists/adult/urls": "mixed.example/adult\n",
        "blacklists/adult/expressions": "(sex|x)\n", "blacklists/malware/domains": "# a note\n\nvirus.example\r\nbad.example\n",
        "blacklists/README": "nonsense.example\n"})
    urls = ("http://bad.example/", "http://mixed.example/adult/1?a", "http://mixed.example/adults", "http://nonsense.example",
            "http://very.virus.example/x")
    assert told(UrlLists(lists=path), *urls) == [
        ("domain", "adult", "bad.example"), ("url", "adult", "mixed.example/adult"), (None,) * 3, (None,) * 3,
        ("domain", "malware", "virus.example")]
    only = told(UrlLists(lists=path, categories=["malware"]), *urls)
    assert [row[1] for row in only] == ["malware", None, None, None, "malware"]
    with pytest.raises(InputError, match="no list is called 'porn'; those that were read are called adult, malware"):
        told(UrlLists(lists=path, categories=["porn"]), *urls)
    folder = tmp_path / "unpacked" / "adult"
    folder.mkdir(parents=True)
    (folder / "domains.gz").write_bytes(gzip.compress(b"bad.example\n"))
    assert told(UrlLists(lists=str(tmp_path / "unpacked")), urls[0]) == [("domain", "adult", "bad.example")]


def test_what_is_allowed_meets_nothing(tmp_path):
    stage = UrlLists(**lists(tmp_path, lists=["a.example"], allow=["good.a.example", "a.example/about"], words=["casino"]))
    batch = pages("http://a.example/casino", "http://good.a.example/casino", "http://a.example/about/us", None, "")
    out = run_stage(stage, batch)["out"]
    assert out.column("url_match") == ["domain", None, None, None, None]
    assert out.column("url_allowed") == [False, True, True, None, False]


def test_an_edited_list_is_read_again_and_an_old_one_is_not(tmp_path, cache):
    path = lists(tmp_path, lists=["a.example"])
    first = UrlLists(**path)
    before = first.parameters()
    assert told(first, "http://a.example", "http://bb.example")[0][0] == "domain"
    made = sorted(cache.rglob("*.npy"))
    assert len(made) == 2
    told(UrlLists(**path), "http://a.example")
    assert sorted(cache.rglob("*.npy")) == made
    lists(tmp_path, lists=["bb.example"])
    assert [row[0] for row in told(UrlLists(**path), "http://a.example", "http://bb.example")] == [None, "domain"]
    assert UrlLists(**path).parameters() != before


LABEL = st.sampled_from(["a", "b", "www", "co", "xn", "é"])
HOST = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PATH = st.lists(st.sampled_from(["/a", "/B", "/", "?q=1", "?", "/c&d"]), max_size=4).map("".join)


@given(st.lists(st.tuples(HOST, PATH), min_size=1, max_size=6), st.lists(st.tuples(HOST, PATH), max_size=5))
@settings(max_examples=40)
def test_domains_and_addresses_as_a_slow_reading_finds_them(tmp_path_factory, asked, listed):
    folder = tmp_path_factory.mktemp("lists")
    (folder / "own.txt").write_text("".join(f"{host}{path}\n" for host, path in listed) + "\n")
    entries = {entry for host, path in listed if (entry := slowly(host, path)[0])}
    found = told(UrlLists(lists=str(folder / "own.txt")), *(f"HTTPS://{host.upper()}:80{path}#x" for host, path in asked))
    for (host, path), (match, _, entry) in zip(asked, found, strict=True):
        address, of_host = slowly(host, path)
        labels = of_host.split(".")
        domains = [of_host] + [".".join(labels[n:]) for n in range(1, len(labels) - 1)]
        above = [address] + [address[:n] for n in range(len(address), len(of_host), -1) if address[n:n + 1] in ("/", "?")]
        expected = next((("domain", d) for d in domains if d in entries),
                        next((("url", a) for a in above if a != of_host and a in entries), (None, None)))
        assert (match, entry) == expected, (host, path, entries)


def slowly(host, path):
    """Address and host in plain form, label by label."""
    labels = host.lower().encode("idna").decode().split(".")
    while len(labels) > 2 and labels[0] == "www":
        labels.pop(0)
    host = ".".join(labels)
    path = f"/{path}" if path.startswith("?") else path
    return (host + path.lower()).rstrip("/"), host


@pytest.mark.parametrize(("options", "error", "told"), [
    ({"soft_words_min": 0}, ValueError, "soft_words_min must be 1"), ({"categories": ["adult"]}, ValueError, "and `lists`"),
    ({"lists": "nowhere/"}, InputError, "nowhere/ does not exist")])
def test_mistakes_are_told_before_a_run(options, error, told):
    with pytest.raises(error, match=told):
        UrlLists(**options).check({"url": pa.string()})


def test_damage_is_told(tmp_path):
    (tmp_path / "lists.tar.gz").write_bytes(gzip.compress(b"nothing of the sort " * 99))
    with pytest.raises(InputError, match="no archive that can be read"):
        told(UrlLists(lists=str(tmp_path / "lists.tar.gz")), "x")


def test_it_keeps_the_rules_of_stages(tmp_path):
    check_stage(UrlLists(**lists(tmp_path, lists=["hub.com"], words=["porn"], allow=["ok.com"])), pages(*URLS, None, "", "http://ok.com"))
    assert told(UrlLists(), *URLS) == [(None,) * 3] * len(URLS)
