"""Hashes of values, and the one spelling that the addresses of a page have."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from curator_dedup.shared.urls import normalized_url
from curator_dedup.shared.values import hash_values
from hypothesis import given
from hypothesis import strategies as st

from curator.api.tasks import TextBatch


def hashes(*names, normalize=False, **columns):
    rows = len(next(iter(columns.values())))
    table = pa.table({"id": [str(i) for i in range(rows)], "source": ["s"] * rows, **columns})
    return hash_values(TextBatch(table), names or list(columns), normalize=normalize)


@given(st.lists(st.none() | st.text(max_size=20), max_size=8))
def test_a_text_has_the_hash_of_its_bytes_and_a_null_has_none(texts):
    expected = [np.frombuffer(bytes(16) if text is None else xxhash.xxh3_128_digest(text.encode()), np.uint64) for text in texts]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        found, present = hashes(text=pa.array(texts, kind))
        assert found.shape == (len(texts), 2)
        assert present.tolist() == [text is not None for text in texts]
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_are_compared_by_their_bytes(kind):
    found, present = hashes(data=pa.array([b"a", None, b"", b"a"], kind))
    assert present.tolist() == [True, False, True, True]
    assert np.array_equal(found[0], found[3])
    assert len(np.unique(found, axis=0)) == 3


def test_columns_are_joined_so_that_their_order_and_their_bounds_count():
    found, present = hashes(a=["ab", "a", "c", None, None], b=["c", "bc", "ab", "c", None])
    assert len(np.unique(found, axis=0)) == 5
    assert present.tolist() == [True] * 4 + [False]


def test_texts_are_compared_in_the_form_that_is_asked_for():
    texts = ["HTTP://a.com/X ", "http://a.com/X", "http://a.com/x"]

    def classes(how):
        return len(np.unique(hashes(text=texts, normalize=how)[0], axis=0))

    assert [classes(how) for how in (False, "url", "text", True)] == [3, 2, 1, 1]


@pytest.mark.parametrize("same", [
    ["http://example.com", "HTTP://Example.COM/", "https://www.example.com:443", "http://example.com:80/#top",
     " http://example.com. ", "//example.com", "http://example.com:/", "http://example.com/./a/..", "http://example.com/?", "http://example.com/?utm_source=x"],
    ["http://a.org/a/b?x=1&y=2", "https://a.org/a/b/?y=2&x=1", "http://a.org/a/./c/../b?x=1&&y=2&gclid=abc&UTM_Medium=m",
     "http://a.org/a/b;jsessionid=1F?y=2&x=1&PHPSESSID=7"],
    ["http://a.org/~x/%C3%A9%20b", "http://a.org/%7Ex/é b", "http://a.org/%7ex/%c3%a9%20b"],
    ["http://a.org/?q=a+b", "http://a.org/?q=a%20b"],
    ["http://bücher.example/", "http://xn--bcher-kva.example", "http://BÜCHER.example"],
    ["http://a.org:8080/x", "https://A.org:08080/x/"],
    ["http://[2001:DB8::1]/", "http://[2001:db8::1]:80"],
    ["http://me@a.org/x", "http://me@A.ORG/x"],
    ["ftp://Example.com/A", "FTP://example.com/A"],
    ["mailto:A@b.c", " mailto:A@b.c\n"],
])
def test_spellings_of_one_page_are_one(same):
    assert {normalized_url(url) for url in same} == {normalized_url(same[0])}


@pytest.mark.parametrize(("one", "other"), [
    ("http://a.org/a", "http://a.org/A"), ("http://a.org/a", "http://b.a.org/a"), ("http://a.org/?a=1", "http://a.org/?a=2"),
    ("http://a.org/?id=1", "http://a.org"), ("http://a.org/a%2Fb", "http://a.org/a/b"), ("http://a.org:8080", "http://a.org"),
    ("http://a.org/#!/one", "http://a.org/#!/two"), ("http://a.org/?ref=1", "http://a.org/"), ("http://www.com", "http://com"),
    ("http://a.org/?a=1%262", "http://a.org/?a=1&2"), ("http://me@a.org", "http://Me@a.org"), ("A", "a"),
])
def test_different_pages_stay_different(one, other):
    assert normalized_url(one) != normalized_url(other)


def test_the_form_is_an_address_that_can_be_read():
    assert normalized_url("HTTPS://www.Example.com:443/a/../b/?z=1&utm_campaign=q&a=%7e#top") == "http://example.com/b?a=~&z=1"
    assert normalized_url("http://a.org/100%/x") == "http://a.org/100%25/x"
    assert normalized_url("no address") == "no address"
    assert normalized_url("") == ""


ADDRESS = st.text("ahtps:/?#%.@&=+;w2fFé[] -1!", max_size=30)


@given(ADDRESS | st.text(max_size=30), st.booleans())
def test_the_form_of_a_form_is_itself(text, prefix):
    once = normalized_url("http://" + text if prefix else text)
    assert normalized_url(once) == once
