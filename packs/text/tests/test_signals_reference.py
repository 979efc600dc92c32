"""The signals of many documents at once are those that a slow reading of each one gives, character by character."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from curator_text.measures import characters as ch
from curator_text.measures.joined import join
from curator_text.measures.marks import ADDRESS, AROUND_ADDRESS
from curator_text.measures.signals import COLUMNS, measure
from curator_text.measures.stopwords import STOP_WORDS
from curator_text.measures.words import split
from hypothesis import given
from hypothesis import strategies as st

LINE_END = "(?>\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029])"
OPENING = {ch.COMMA, ch.DASH, ch.EQUALS, ch.COLON, ch.STAR, ch.LEAD, ch.APOSTROPHE, ch.QUOTE, ch.PUNCT, ch.END, ch.WIDE,
           ch.WIDE_END}
CLOSING = OPENING - {ch.EQUALS, ch.LEAD}
ALPHA = {ch.LOWER, ch.UPPER, ch.LETTER, ch.CJK, ch.MAINLAND}
SPACELESS = {ch.CJK, ch.MAINLAND}
RATE = {ch.CJK: 128, ch.MAINLAND: 72}


def kind(char: str) -> int:
    return int(ch.kind_table()[ord(char)]) if char else ch.NEWLINE


def words_of(text: str) -> list[str]:
    found = []
    for chunk in "".join(c if kind(c) > ch.SPACE else " " for c in text).split(" "):
        cuts = sorted({0, len(chunk), *mark_cuts(chunk), *spaceless_cuts(chunk)})
        found += [chunk[a:b] for a, b in pairwise(cuts)]
    return found


def mark_cuts(chunk: str) -> set[int]:
    """Where marks divide a stretch without white space."""
    at = lambda i: kind(chunk[i]) if 0 <= i < len(chunk) else ch.NEWLINE  # noqa: E731
    marks = []
    i = 0
    while i < len(chunk):
        stop = i + 1
        while at(i) in (ch.DOT, ch.HYPHEN, ch.DASH) and at(stop) == at(i):
            stop += 1
        if at(i) >= ch.DOT:
            marks.append((i, stop))
        i = stop

    def opens(start, stop):
        return (at(start) in OPENING or (at(start) == ch.DOT and stop - start > 1)
                or (at(start) == ch.PLUS and at(stop) != ch.DIGIT))

    def closes(start, stop):
        own, before, earlier = at(start), at(start - 1), at(start - 2)
        if own in (ch.PLUS, ch.LEAD):
            return before == ch.DIGIT
        if own != ch.DOT or stop - start > 1:
            return own in CLOSING or own == ch.DOT
        if before in ALPHA and (earlier <= ch.SPACE or earlier in OPENING or earlier == ch.DOT):
            return False  # a single letter
        if before == ch.UPPER:
            return earlier in ALPHA - {ch.LOWER}
        return before in CLOSING | ALPHA | {ch.DIGIT, ch.MARK, ch.OTHER, ch.HYPHEN, ch.PLUS, ch.LEAD}

    def divides(start, stop):
        own, before, after = at(start), at(start - 1), at(stop)
        alnum = ALPHA | {ch.DIGIT}
        if own == ch.DOT:
            return before in ALPHA - {ch.UPPER} and after in ALPHA - {ch.LOWER}
        if own in (ch.PLUS, ch.HYPHEN, ch.STAR, ch.CARET) and stop - start == 1 and before == ch.DIGIT \
                and after in (ch.DIGIT, ch.HYPHEN):
            return True
        return (own in (ch.COMMA, ch.COLON, ch.EQUALS, ch.SLASH, ch.HYPHEN, ch.DASH, ch.TILDE) and before in alnum
                and after in ALPHA and stop - start <= 3)

    outer = {m for m in marks if at(m[0]) in (ch.WIDE, ch.WIDE_END) or (at(m[0]) == ch.DOT and m[1] - m[0] > 1)}
    expected = 0
    for start, stop in marks:
        if start != expected or not opens(start, stop):
            break
        outer.add((start, stop))
        expected = stop
    expected = len(chunk)
    for start, stop in reversed(marks):
        if stop != expected or not closes(start, stop):
            break
        outer.add((start, stop))
        expected = start
    inner = {m for m in marks if m not in outer and divides(*m)}
    if ADDRESS.fullmatch(chunk.strip(AROUND_ADDRESS)) and re.search(r"[^\W_]\.[a-z]", chunk):
        inner = set()
    cuts = {i for mark in outer | inner for i in mark}
    for found in re.finditer("['’]", chunk):
        rest = re.match(r"(?:[sdmt]|ll|re|ve)", chunk[found.end():], re.IGNORECASE | re.ASCII)
        if rest and found.start() > 0 and at(found.end() + rest.end()) not in ALPHA | {ch.DIGIT}:
            if rest[0] not in "tT":
                cuts.add(found.start())
            elif chunk[found.start() - 1] in "nN" and at(found.start() - 2) in ALPHA | {ch.DIGIT}:
                cuts.add(found.start() - 1)
    return cuts


def spaceless_cuts(chunk: str) -> set[int]:
    cuts = set()
    for i in range(1, len(chunk)):
        before, own = kind(chunk[i - 1]), kind(chunk[i])
        if own in SPACELESS and (before in SPACELESS or before == ch.MARK):
            mixed = ((ord(chunk[i - 1]) * 0x9E3779B1 % 2**32) ^ ord(chunk[i])) * 0x85EBCA6B % 2**32
            if mixed >> 24 < RATE[own]:
                cuts.add(i)
        elif (own in SPACELESS) != (before in SPACELESS) and own != ch.MARK:
            cuts.add(i)
    return cuts


def is_wordy(word: str) -> bool:
    return any(kind(c) < ch.SYMBOL for c in word)


def has_letter(word: str) -> bool:
    return any(kind(c) in ALPHA for c in word)


def repeats(pieces: list[str]) -> list[str]:
    """The pieces that are equal to an earlier one."""
    return [piece for i, piece in enumerate(pieces) if piece in pieces[:i]]


def top(words: list[str], n: int) -> int:
    grams = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    return max((len(gram) * count for gram, count in grams.most_common(1)), default=0)


def read_before(words: list[str], n: int) -> int:
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    def read(again):
        found, i = [], 0
        while i < len(grams):
            if again[i]:
                found.append(i)
                i += n
            else:
                i += 1
        return found

    first = read([gram in grams[:i] for i, gram in enumerate(grams)])
    passed = {p for i in first for p in range(i + 1, i + n)}
    again = [any(grams[j] == gram for j in range(i) if j not in passed) for i, gram in enumerate(grams)]
    return sum(len(word) for i in read(again) for word in words[i : i + n])


def c4_line(line: str) -> dict[str, bool]:
    line = line.strip()
    lowered = line.encode("ascii", "replace").decode().lower()
    rest = re.sub(r"(?<=.)(?:\[(?:\d*|edit|citation needed)\])+$", "", line)
    end = kind(rest[-1:])
    terminal = (rest[-1:] in tuple(".?!\"'") or (end in (ch.END, ch.WIDE_END) and not rest.isascii() and ord(rest[-1]) > 127))
    terminal = terminal and not rest.endswith("...")
    long_word = any(len(word) > 1000 for word in line.split())
    spaceless = any(kind(c) in SPACELESS for c in line)
    few = len(line.split()) < 3 and not (spaceless and sum(map(is_wordy, words_of(line))) >= 3)
    candidate = terminal and not long_word and not few
    javascript = "javascript" in lowered
    policy = re.search("terms of use|privacy policy|cookie policy|(?:uses|use of|use) cookies", lowered) is not None
    return {"terminal": terminal, "javascript": javascript, "policy": policy,
            "lorem": candidate and "lorem ipsum" in lowered, "curly": candidate and not javascript and "{" in line,
            "kept": candidate and not javascript and not policy}


def sentences(line: str) -> int:
    count, ended = 1, False
    for word in words_of(line):
        if len(word) == 1 and kind(word) in (ch.DOT, ch.END, ch.WIDE_END):
            ended = True
        elif is_wordy(word) and ended:
            count, ended = count + 1, False
    return count


def is_noise(line: str) -> bool:
    words = [word for word in words_of(line) if is_wordy(word)]
    lettered = sum(map(has_letter, words))
    line = line.strip()
    return (sum(kind(c) == ch.UPPER for c in line) * 2 > len(line) or lettered == 0 or len(words) <= 1
            or (len(words) == 2 and lettered == 1 and kind(line[0]) == ch.DIGIT))


def reference(text: str, language: str | None) -> dict:
    """The signals of one text."""
    share = lambda part, whole: part / whole if whole else 0.0  # noqa: E731
    words, lines = words_of(text), text.splitlines()
    wordy = [word for word in words if is_wordy(word)]
    full = [line for line in lines if line.strip()]
    not_empty = [line for line in lines if line]
    breaks = len(re.findall(LINE_END, text))
    paragraphs = [p for p in re.split(f"{LINE_END}{{2,}}", text.strip()) if p]
    letters = [c for c in text if kind(c) in ALPHA]
    count = lambda *kinds: sum(kind(c) in kinds for c in text)  # noqa: E731
    c4 = [c4_line(line) for line in full]
    noise = [line for line in full if is_noise(line)]
    ellipses = sum(len(run) // 3 for run in re.findall(r"\.+", text)) + text.count("…")
    stop_words = STOP_WORDS.get(language)
    return {
        "char_count": len(text),
        "token_count": len(words),
        "word_count": len(wordy),
        "mean_word_length": share(sum(map(len, wordy)), len(wordy)),
        "longest_word": max(map(len, text.split()), default=0),
        "alphabetic_word_ratio": share(sum(map(has_letter, words)), len(words)),
        "hash_ratio": share(text.count("#"), len(words)),
        "ellipsis_ratio": share(ellipses, len(words)),
        "stop_word_count": None if stop_words is None else len(set(stop_words) & set(words)),
        "bullet_line_ratio": share(sum(line.lstrip()[0] in "-•" for line in full), len(lines)),
        "ellipsis_line_ratio": share(sum(line.rstrip().endswith(("...", "…")) for line in full), len(lines)),
        "duplicate_line_ratio": share(len(repeats(not_empty)), len(not_empty)),
        "duplicate_line_char_ratio": share(sum(map(len, repeats(not_empty))), len(text)),
        "duplicate_paragraph_ratio": share(len(repeats(paragraphs)), len(paragraphs)),
        "duplicate_paragraph_char_ratio": share(sum(map(len, repeats(paragraphs))), len(text)),
        **{f"top_{n}_gram_char_ratio": share(top(words, n), len(text)) for n in (2, 3, 4)},
        **{f"duplicate_{n}_gram_char_ratio": share(read_before(words, n), len(text)) for n in range(5, 11)},
        "c4_sentence_count": sum(sentences(line) for line, rules in zip(full, c4, strict=True) if rules["kept"]),
        "c4_line_ratio": share(sum(rules["kept"] for rules in c4), len(full)),
        "c4_lorem_ipsum": any(rules["lorem"] for rules in c4),
        "c4_curly_bracket": any(rules["curly"] for rules in c4),
        "terminal_line_ratio": share(sum(rules["terminal"] for rules in c4), len(full)),
        "javascript_line_ratio": share(sum(rules["javascript"] for rules in c4), len(full)),
        "policy_line_ratio": share(sum(rules["policy"] for rules in c4), len(full)),
        "line_count": len(full),
        "line_punct_ratio": share(sum(kind(line[-1]) in (ch.DOT, ch.END, ch.WIDE_END) for line in full), len(full)),
        "short_line_ratio": share(sum(len(line) <= 30 for line in full), len(full)),
        "line_char_duplicate_ratio": share(sum(map(len, repeats(full))), len(text) - breaks),
        "newline_ratio": share(breaks, len(words)),
        "noise_word_ratio": share(sum(map(is_wordy, (w for line in noise for w in words_of(line)))), len(wordy)),
        "alpha_ratio": share(len(letters), len(text)),
        "digit_ratio": share(count(ch.DIGIT), len(text)),
        "space_ratio": share(count(ch.NEWLINE, ch.BREAK, ch.SPACE), len(text)),
        "symbol_ratio": share(count(*range(ch.SYMBOL, ch.KINDS)), len(text)),
        "upper_ratio": share(count(ch.UPPER), len(letters)),
        "spaceless_ratio": share(count(*SPACELESS), len(letters)),
        "url_ratio": share(sum(map(len, re.findall(r'https?://[^\s<>"]+', text))), len(text)),
    }


def measured(texts: list[str], languages: list[str | None]) -> list[dict]:
    columns = measure(texts, languages)
    return [{name: columns[name][i] for name in COLUMNS} for i in range(len(texts))]


TRICKY = st.lists(st.sampled_from([
    *"aabBn1.,-'’\"()!:/=+*^~%$@#{}[]_|\\…。、中文字の、ไทก้é•–٣", " ", " ", " ", "\n", "\n", "\r\n", "\r", "\x0b", "\t", "\u3000",
    "...", "--", "n't", "it's", "e.g.", "U.S.", "the ", "and ", "to be ", "http://a.b-c.de/f-g ", "x.y-z ", "[1]", "[edit]",
    "JavaScript ", "lorem ipsum ", "uses cookies ", "cookie policy ", "Terms of Use", "a b c d e. ", "One. Two! ", "3 likes\n",
    "ab cd ef gh ij ", "ab cd ef gh ij kl\n", "same line here.\n", "same line here.\n\n"]), max_size=40).map("".join)
TEXT = TRICKY | st.text(max_size=60)


@given(st.lists(st.tuples(TEXT, st.sampled_from(["en", "de", "xx", None])), min_size=1, max_size=4))
def test_the_signals_are_those_of_a_slow_reading(documents):
    texts, languages = [text for text, _ in documents], [language for _, language in documents]
    for (text, language), found in zip(documents, measured(texts, languages), strict=True):
        assert found == reference(text, language)


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_words_are_those_of_a_slow_reading(texts):
    joined = join(texts)
    words = split(joined)
    found = [joined.text[a:b] for a, b in zip(words.starts.tolist(), words.stops.tolist(), strict=True)]
    assert [found[a:b] for a, b in zip(words.of[:-1], words.of[1:], strict=True)] == [words_of(text) for text in texts]


@given(st.lists(st.text("ab", min_size=1, max_size=1) | st.sampled_from(["c", "a b c d e f", "b a b a b"]), max_size=60))
def test_repetition_is_that_of_a_slow_reading(words):
    text = " ".join(words)
    found, expected = measured([text], ["en"])[0], reference(text, "en")
    assert {n: v for n, v in found.items() if "gram" in n} == {n: v for n, v in expected.items() if "gram" in n}


@given(st.lists(TEXT, min_size=2, max_size=6), st.randoms())
def test_a_document_measures_the_same_in_any_company(texts, random):
    alone = [measured([text], ["en"])[0] for text in texts]
    order = list(range(len(texts)))
    random.shuffle(order)
    together = measured([texts[i] for i in order], ["en"] * len(texts))
    assert together == [alone[i] for i in order]
