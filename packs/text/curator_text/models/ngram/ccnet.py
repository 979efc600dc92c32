"""Texts as CCNet writes them before it asks its language models.

Source: facebookresearch/cc_net, cc_net/text_normalizer.py (Wenzek et al. 2020, arXiv 1911.00359, section
4.3).
"""

from __future__ import annotations

import re
import unicodedata

_MARKS = str.maketrans(
    dict.fromkeys("„”“«»」「《》", '"') | dict.fromkeys("，、", ",") | dict.fromkeys("´’", "'")
    | dict.fromkeys("∶：", ":") | dict.fromkeys("–━►", "-")
    | {"。": ".", "？": "?", "！": "!", "（": "(", "）": ")", "；": ";", "—": " - ", "．": ". ", "～": "~",
       "…": "...", "〈": "<", "〉": ">", "【": "[", "】": "]", "％": "%"})
_DIGIT, _CONTROL = re.compile(r"\d"), re.compile(r"[\x00-\x1f\x7f-\x9f]")


def normalised(text: str) -> str:
    """Lower case without accents, all digits 0, marks of ASCII, and no control characters, among which are
    the ends of lines."""
    text = text.strip().lower()
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    text = _DIGIT.sub("0", text)
    return _CONTROL.sub("", text if text.isascii() else text.translate(_MARKS))
