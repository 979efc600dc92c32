"""Signs of pages that were made by machines: navigation, notes of translators, characters that were escaped
twice, words of mixed scripts.

The lists are our own and there are no published thresholds. Phrases are those of English and a few other
large languages; a text in another language has none of them and is no better for it.
"""

from __future__ import annotations

import re

import numpy as np

from curator_text.measures.columns.group import INT, RATIO, Family, Group, Measured, share
from curator_text.measures.joined import sums_before

NAVIGATION = (
    b"read more", b"sign in", b"sign-in", b"sign up", b"log in", b"login", b"register", b"click here",
    b"all rights reserved", b"copyright", b"share this", b"share on", b"follow us", b"subscribe",
    b"skip to ", b"leave a comment", b"add to cart", b"items in cart", b"powered by", b"contact us",
    b"back to top", b"terms of ", b"privacy policy", b"cookie", b"javascript", "©",
    "alle rechte vorbehalten", "weiterlesen", "impressum", "tous droits réservés", "lire la suite",
    "mentions légales", "todos los derechos reservados", "leer más", "tutti i diritti riservati",
    "leggi tutto", "todos os direitos reservados", "leia mais", "все права защищены", "читать далее",
    "版权所有", "阅读更多")
# Of such a line. Source: RefinedWeb (arXiv 2306.01116), appendix G.2, of its short lines.
NAVIGATION_WORDS_MAX = 10
TRANSLATION = (
    b"translated by google", b"google translate", b"bing translator", b"microsoft translator",
    b"deepl translat", b"yandex.translate", b"machine translat", b"machine-translat",
    b"automatic translation", b"automatically translated", b"translated automatically",
    b"translate this page", "maschinelle übersetzung", "maschinell übersetzt", "automatisch übersetzt",
    "automatische übersetzung", "traduction automatique", "traduit automatiquement",
    "traducción automática", "traducido automáticamente", "traducido por google", "traduit par google",
    "traduzione automatica", "tradotto automaticamente", "tradução automática",
    "traduzido automaticamente", "автоматический перевод", "машинный перевод", "переведено автоматически",
    "机器翻译", "自动翻译", "機械翻訳", "自動翻訳", "기계 번역", "자동 번역")
_ENTITY = re.compile(r"&(?:#\d{2,5}|#x[0-9a-f]{2,4}|amp|quot|nbsp|lt|gt|apos|[lr][sd]quo|[mn]dash|hellip);")


def _navigation(group: Group) -> Measured:
    lines = group.lines
    short = ~lines.blank & (np.diff(lines.chunk) <= NAVIGATION_WORDS_MAX)
    found = lines.holding(group.places(*NAVIGATION))
    return {"navigation_line_ratio": share(lines.sum(short & found), lines.sum(~lines.blank))}


def _translation(group: Group) -> Measured:
    return {"translation_note_count": group.starting_in(group.places(*TRANSLATION))}


def _escaped(group: Group) -> Measured:
    at = [match.start() for match in _ENTITY.finditer(group.small)] if "&" in group.joined.text else []
    return {"escaped_ratio": share(group.starting_in(np.array(at, np.int64)), group.counts)}


def _mixed(group: Group) -> Measured:
    """Plain words with Latin letters beside Greek or Cyrillic ones."""
    codes = group.joined.codes
    if codes.dtype == np.uint8:
        return {"mixed_script_word_ratio": np.zeros(len(group.texts))}
    latin = sums_before(((codes | 32) - np.uint32(ord("a")) < 26) | (codes - np.uint32(0xC0) < 0x190))
    other = sums_before(codes - np.uint32(0x370) < 0x1C0)
    starts, stops = group.words.chunks
    mixed = (latin[stops] > latin[starts]) & (other[stops] > other[starts])
    return {"mixed_script_word_ratio": share(np.diff(sums_before(mixed)[group.words.chunk_of]), group.counts)}


FAMILIES = (
    Family(_navigation, {"navigation_line_ratio": RATIO}),
    Family(_translation, {"translation_note_count": INT}),
    Family(_escaped, {"escaped_ratio": RATIO}),
    Family(_mixed, {"mixed_script_word_ratio": RATIO}),
)
