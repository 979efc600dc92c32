"""Lines, paragraphs and repetition as NeMo Curator counts them (`nemo_curator/stages/text/filters`, 1.4)."""

from __future__ import annotations

import re

import numpy as np

from curator_text.measures.columns.group import BOOL, RATIO, Family, Group, Measured, share, table_of
from curator_text.measures.lines import is_ellipsis
from curator_text.measures.repetition import DUPLICATE, TOP, Repeated, again, most_frequent, repeated_grams

_BULLETS = table_of("•‣⁃⁌⁍∙○●◘◦⦾⦿")
_END_MARKS = table_of(".?!\"'")
_CLOSING = table_of("])")
_PORN_URL = re.compile(r"https?://[^\s<>\"]*porn")


def _lines(group: Group) -> Measured:
    lines, codes = group.lines, group.joined.codes
    full = ~lines.blank
    count = lines.sum(full)
    last = codes[lines.last]
    return {
        "bullet_sign_line_ratio": share(lines.sum(full & _BULLETS.take(codes[lines.first], mode="clip")), count),
        "unpunctuated_line_ratio": share(lines.sum(full & ~_END_MARKS.take(last, mode="clip")), count),
        "cut_line_ratio": share(lines.sum(full & _cut(group)), count),
    }


def _cut(group: Group) -> np.ndarray:
    """Which lines end in an ellipsis, in brackets or not, in "-»" or in "read more"."""
    lines, codes, text = group.lines, group.joined.codes, group.joined.text
    last, before = codes[lines.last], codes[lines.last - 1]
    cut = is_ellipsis(codes, lines.last) | ((last == ord("»")) & (before == ord("-")))
    for line in np.flatnonzero(_CLOSING.take(last, mode="clip") & is_ellipsis(codes, lines.last - 1)).tolist():
        cut[line] = text.endswith(("[...]", "[…]", "(...)"), int(lines.first[line]), int(lines.last[line]) + 1)
    more = (last | 32 == ord("e")) & (before | 32 == ord("r")) | (last == ord(".")) & (before == ord("."))
    for line in np.flatnonzero(more & ~cut & ~lines.blank).tolist():
        start, stop = int(lines.first[line]), int(lines.last[line]) + 1
        cut[line] = text[max(start, stop - 11) : stop].lower().endswith(("read more", "read more.."))
    return cut


def _policy(group: Group) -> Measured:
    """Only documents with a phrase are read closely."""
    found = np.zeros(len(group.texts))
    at = [place for hint in (b"cookie", b"privacy ") for place in group.places(hint).tolist()
          if _POLICIES_ASCII.search(group.joined.lowered, max(0, place - 40), place + 50)]
    at += group.places(b"terms of use", b"lorem ipsum").tolist()
    for document in np.unique(group.joined.document(np.array(at, np.int64))).tolist():
        found[document] = policy_paragraphs(group.joined.text[group.slices[document]])
    return {"policy_paragraph_ratio": found}


# Of the cookie notices of plug-ins their beginnings.
POLICIES = re.compile(
    r"terms of use|(?:privacy|cookie) policy|privacy overview|uses? (?:of )?cookies|privacy (?:&|and) cookies policy"
    r"|necessary cookies are absolutely essential|any cookies that may not be particularly necessary"
    r"|browse this site without changing your cookie settings")
_POLICIES_ASCII = re.compile(POLICIES.pattern.encode())


def policy_paragraphs(text: str) -> float:
    """The share of paragraphs (between two line ends) with a phrase of POLICIES; 1 if one has "lorem ipsum"."""
    paragraphs = text.lower().split("\n\n")
    if any("lorem ipsum" in paragraph for paragraph in paragraphs):
        return 1.0
    return sum(POLICIES.search(paragraph) is not None for paragraph in paragraphs) / len(paragraphs)


def _porn(group: Group) -> Measured:
    found = np.zeros(len(group.texts), bool)
    if "porn" in group.joined.text:
        at = [match.start() for match in _PORN_URL.finditer(group.joined.text)]
        found[group.joined.document(np.array(at, np.int64))] = True
    return {"porn_url": found}


def _repetition(group: Group) -> Measured:
    return {_GRAMS[n]: share(_taken_out(group, repeated, n) if n in TOP else _again(group, repeated, n),
                             group.chars_all)
            for n, repeated in repeated_grams(group.hashes, group.corpus)}


def _taken_out(group: Group, repeated: Repeated, n: int) -> np.ndarray:
    """Characters that go when the most frequent n-gram is taken out wherever it stands, also inside words.

    Known difference: of several as frequent, the first in the text; the source takes any, not the same in
    each process.
    """
    where, _ = most_frequent(repeated, group.corpus)
    starts, stops = group.words.chunks
    text = group.joined.text
    found = np.zeros(len(where), np.int64)
    for document in np.flatnonzero(group.counts >= n).tolist():
        first = int(where[document])
        gram = " ".join(text[starts[first] : stops[first + n - 1]].split())
        own = group.slices[document]
        found[document] = text.count(gram, own.start, own.stop) * len(gram)
    return found


def _again(group: Group, repeated: Repeated, n: int) -> np.ndarray:
    """Characters in n-grams that came before, none twice, with the spaces between them."""
    at = np.flatnonzero(again(repeated, group.corpus))
    if not len(at):
        return np.zeros(len(group.counts), np.int64)
    fresh = np.maximum(at, np.append(0, at[:-1] + n))  # the first word that is not counted yet
    chars = group.corpus.chars_before[at + n] - group.corpus.chars_before[fresh]
    spaces = np.minimum(at + n - fresh, n - 1)
    return np.bincount(group.corpus.document[at], chars + spaces, len(group.counts)).astype(np.int64)


_GRAMS = {n: f"nemo_{'top' if n in TOP else 'duplicate'}_{n}_gram_char_ratio" for n in (*TOP, *DUPLICATE)}
FAMILIES = (
    Family(_lines, dict.fromkeys(("bullet_sign_line_ratio", "unpunctuated_line_ratio", "cut_line_ratio"), RATIO)),
    Family(_policy, {"policy_paragraph_ratio": RATIO}),
    Family(_porn, {"porn_url": BOOL}),
    Family(_repetition, dict.fromkeys(_GRAMS.values(), RATIO)),
)
