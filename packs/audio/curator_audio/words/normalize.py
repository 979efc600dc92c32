"""Transcripts made comparable: what counts as the same word.

`basic` is Unicode NFKC, case folding, and no punctuation or symbols; apostrophes inside words stay. `whisper` is the normaliser by which
published word error rates of Whisper and its successors are measured: transformers has it (`curator-audio[models]`).

Source: Radford et al. 2022 (arXiv:2212.04356), appendix C, for `whisper`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Literal

from curator.api.errors import InputError

Normalize = Literal["none", "basic", "whisper", "whisper_en"]
KINDS = ("none", "basic", "whisper", "whisper_en")

_APOSTROPHES = str.maketrans("’‘ʼ＇`", "'''''")
_NOT_IN_WORDS = re.compile(r"(?<!\w)'|'(?!\w)|[^\w\s']|_")
_SPACES = re.compile(r"\s+")
# Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without spaces between words.
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f]")
_LETTERS = re.compile(r"[^\W\d_]")


def check_kind(kind: str) -> None:
    """Raise ValueError for a normaliser that there is not."""
    if kind not in KINDS:
        raise ValueError(f"normalize is one of {', '.join(KINDS)}, got {kind!r}")


def normalizer(kind: Normalize, drop: Collection[str] = ()) -> Callable[[str], str]:
    """The function that makes a transcript comparable; `drop`: words that do not count, as they are after it.

    Raises:
        InputError: it is transformers', which is not installed.
    """
    change = {"none": _plain, "basic": basic}.get(kind) or _whisper(kind)
    if not drop:
        return change
    unwanted = frozenset(drop)
    return lambda text: " ".join(word for word in change(text).split() if word not in unwanted)


def basic(text: str) -> str:
    """Without case, punctuation and symbols; one space between words."""
    folded = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).casefold()
    return _plain(_NOT_IN_WORDS.sub(" ", folded))


def _plain(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _whisper(kind: str) -> Callable[[str], str]:
    try:
        from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer
    except ImportError as error:
        raise InputError(f"normalize: {kind} is transformers': pip install 'curator-audio[models]', or take basic") from error
    return EnglishTextNormalizer({}) if kind == "whisper_en" else BasicTextNormalizer()


def is_spaced(text: str) -> bool:
    """Whether words stand apart: not where at least half of the letters are of scripts that have no spaces."""
    return 2 * len(_NO_SPACES.findall(text)) < max(1, len(_LETTERS.findall(text)))


def words_of(text: str) -> list[str]:
    """The words; characters where the script has no spaces."""
    return text.split() if is_spaced(text) else [c for c in text if not c.isspace()]
