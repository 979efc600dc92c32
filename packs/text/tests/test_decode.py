"""Bytes of unknown encoding become text; what is no text is told."""

from __future__ import annotations

import pytest
from curator_text.extract.decode import decode, decode_text, is_binary
from hypothesis import given
from hypothesis import strategies as st

TEXTS = {
    "de": "Die Straße ist für Fußgänger geöffnet. Schöne Grüße aus Österreich!",
    "ru": "Привет, как дела? Это обычный русский текст для проверки кодировки.",
    "ja": "日本語のテキストです。これは長い文章であり、文字コードを判別します。",
    "zh": "这是一个用来测试字符编码检测的中文句子，它的长度足够让检测器作出判断。",
}


@pytest.mark.parametrize(("text", "encoding"), [
    ("de", "utf-8"), ("de", "cp1252"), ("de", "utf-16"), ("ru", "cp1251"), ("ru", "koi8-r"), ("ru", "utf-8-sig"),
    ("ja", "shift_jis"), ("ja", "euc_jp"), ("ja", "iso2022_jp"), ("zh", "gb18030"), ("zh", "utf-32")])
def test_encoding_is_detected(text, encoding):
    assert decode(TEXTS[text].encode(encoding))[0] == TEXTS[text]


@pytest.mark.parametrize("stated", [None, "utf-8", "iso-8859-1", "klingon"])
def test_what_is_stated_may_be_wrong(stated):
    assert decode(TEXTS["ru"].encode(), stated) == (TEXTS["ru"], "utf-8")
    assert decode(TEXTS["ja"].encode("euc_jp"), stated)[0] == TEXTS["ja"] or stated == "iso-8859-1"


def test_what_is_stated_decides_where_bytes_do_not():
    assert decode("жизнь".encode("cp1251"), "windows-1251")[0] == "жизнь"
    assert decode("жизнь".encode("koi8-r"), "KOI8-R")[0] == "жизнь"
    assert decode("abc".encode("utf-16-le"), "utf-16le")[0] == "abc"


def test_meta_element_is_read_in_html_only():
    page = '<meta charset="iso-8859-2"><p>žluť'.encode("iso-8859-2")
    assert "žluť" in decode(page, html=True)[0]


def test_labels_mean_what_browsers_take_them_for():
    assert decode("“quoted”".encode("cp1252"), "iso-8859-1") == ("“quoted”", "cp1252")


def test_a_few_broken_bytes_do_not_change_the_encoding():
    text, encoding = decode((TEXTS["ru"] * 5).encode()[:-2], "utf-8")
    assert encoding == "utf-8"
    assert text.count("\ufffd") == 1


@given(st.binary(max_size=300))
def test_decode_never_fails(data):
    text, encoding = decode(data)
    assert isinstance(text, str)
    assert encoding


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0", bytes(range(256)) * 20, b"\0" * 50])
def test_binary_content_is_told(data):
    with pytest.raises(ValueError, match="no text"):
        decode_text(data)


def test_text_is_not_taken_for_binary():
    assert not any(is_binary(text) for text in [*TEXTS.values(), "", "a\tb\r\n\x0c", "\x1b[31mred\x1b[0m"])
