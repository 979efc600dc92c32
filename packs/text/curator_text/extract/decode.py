"""From bytes to text when nobody can be trusted to say the encoding."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
          (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_UNTELLING = ("utf-16", "utf-32", "iso2022", "hz", "utf-7")  # their bytes may be valid UTF-8
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_SAMPLE = 1 << 14
# What browsers take for these labels (https://encoding.spec.whatwg.org/#names-and-labels) and Python has by
# another name.
_SUPERSETS = {"gbk": "gb18030", "gb2312": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932",
              "big5": "big5hkscs",
              "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874"}
# share of characters beyond ASCII that may be broken before the stated encoding is doubted
REPLACED_MAX = 0.02
BINARY_MIN = 0.05  # share of control and replacement characters; compressed data has over 0.1, text none


def decode(data: bytes, stated: str | None = None, html: bool = False) -> tuple[str, str]:
    """The text and the name of the encoding it was read in. Never fails: what fits nothing becomes U+FFFD.

    In this order: a byte order mark; UTF-8 if all bytes are valid in it (text in another encoding hardly ever
    is, while servers often state a wrong one); what is `stated`, or with `html` what a meta element says;
    what the statistics of the bytes tell.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace"), "utf-8" if encoding == "utf-8-sig" else encoding
    # these bytes are valid UTF-8 too
    if b"\x1b$" in data and (text := _strict(data, "iso2022_jp")) is not None:
        return text, "iso2022_jp"
    declared = _known(stated)
    if not (declared and declared.startswith(_UNTELLING)):
        text = _strict(data, "utf-8")
        if text is not None:
            return text, "utf-8"
    return _decode_legacy(data, declared, html)


def decode_text(data: bytes, stated: str | None = None, html: bool = False) -> tuple[str, str]:
    """As `decode`, for bytes that must be text.

    Raises:
        ValueError: they are not.
    """
    text, encoding = decode(data, stated, html)
    if is_binary(text):
        raise ValueError(f"these bytes are no text: they begin with {data[:12]!r}")
    return text, encoding


def is_binary(text: str) -> bool:
    """Whether decoded bytes were no text: too many control and replacement characters at the beginning or
    middle."""
    middle = max(_SAMPLE, len(text) // 2)
    sample = text[:_SAMPLE] + text[middle:middle + _SAMPLE]
    return len(_NO_TEXT.findall(sample)) > BINARY_MIN * len(sample)


def _decode_legacy(data: bytes, declared: str | None, html: bool) -> tuple[str, str]:
    from resiliparse.parse.encoding import detect_encoding

    detected = _known(detect_encoding(data)) or "cp1252"
    if not declared and html:
        declared = _known(detect_encoding(data, from_html_meta=True))
    for encoding in filter(None, (declared, "utf-8")):  # UTF-8 with a few broken bytes is still UTF-8
        text = data.decode(encoding, "replace")
        beyond = len(text) - len(text.encode("ascii", "ignore"))
        if text.count("\ufffd") <= REPLACED_MAX * beyond:
            return text, encoding
    return data.decode(detected, "replace"), detected


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _known(label: str | None) -> str | None:
    """Python's name for an encoding as web pages call it (`latin1` means windows-1252), None if it has
    none."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    if not label:
        return None
    name = map_encoding_to_html5(label, fallback_utf8=False)
    try:
        name = codecs.lookup(name).name if name else None
    except LookupError:
        return None
    return None if name is None else _SUPERSETS.get(name, name)
