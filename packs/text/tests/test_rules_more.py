"""Dolma's, RedPajama-v2's and MADLAD's statistics are those of a slow reading; their rules, and signs of machines."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import islice

import pytest
from curator_text.measures.columns.families import ALL_COLUMNS
from curator_text.measures.columns.madlad import CURSED
from curator_text.measures.signals import measure
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packs.text.tests.test_rules import PROSE, duplicate_grams, new_words, reasons, sentences
from packs.text.tests.test_rules import top_gram as one_gram_often
from packs.text.tests.test_signals_reference import TEXT, words_of

LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


def share(part, whole):
    return part / whole if whole else 0.0


def grams(words, n):
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def size(gram):
    return sum(map(len, gram))


def dolma(text):
    words, lines = text.split(), text.splitlines()
    chars, times = size(words), Counter(lines)
    found = {
        "dolma_bullet_line_ratio": share(sum(line[:1] in ("*", "-") for line in lines), len(lines)),
        "dolma_ellipsis_line_ratio": share(sum(line.endswith("…") for line in lines), len(lines)),
        "dolma_duplicate_line_ratio": share(sum(k for k in times.values() if k > 1), len(lines)),
        "dolma_duplicate_line_char_ratio": share(sum(len(line) * k for line, k in times.items() if k > 1), chars),
        "dolma_symbol_word_ratio": share(sum("#" in word or "…" in word for word in words), len(words)),
    }
    for n in range(2, 11):
        counts = Counter(grams(words, n))
        if n < 5:
            gram, k = counts.most_common(1)[0] if counts else ((), 0)
            found[f"dolma_top_{n}_gram_char_ratio"] = share(size(gram) * k, chars)
        else:
            repeated = sum(size(gram) * k for gram, k in counts.items() if k > 1)
            found[f"dolma_duplicate_{n}_gram_char_ratio"] = share(repeated, sum(size(gram) * k for gram, k in counts.items()))
    return found


def small(text):
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def rpv2(text):
    words = small(re.sub(r"[!-/:-@\[-`{-~]", "", text)).split()
    chars, times = size(words), Counter(words)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = {
        "folded_word_count": len(words), "folded_mean_word_length": share(chars, len(words)),
        "unique_word_ratio": share(len(times), len(words)),
        "word_entropy": pytest.approx(sum(-k / len(words) * math.log(k / len(words)) for k in times.values()), abs=1e-9),
        "sentence_count": len(re.findall(r"\b[^.!?]+[.!?]*", text)),
        "curly_bracket_ratio": share(text.count("{") + text.count("}"), len(text)),
        "rpv2_bullet_line_ratio": share(sum(line[0] in "•‣▶◀◦■□▪▫–" for line in lines), len(lines)),
        "rpv2_terminal_line_ratio": share(sum(line[-1] in ".!?”" for line in lines), len(lines)),
        "line_word_counts": [len(line.split()) for line in lines],
    }
    for n in range(2, 11):
        counts = Counter(grams(words, n))
        if n < 5:
            gram, k = counts.most_common(1)[0] if counts else ((), 0)
            found[f"rpv2_top_{n}_gram_char_ratio"] = share(size(gram) * k if k > 1 else 0, chars)
        else:
            inside = {at + i for at, gram in enumerate(grams(words, n)) if counts[gram] > 1 for i in range(n)}
            found[f"rpv2_duplicate_{n}_gram_char_ratio"] = share(sum(len(words[at]) for at in inside), chars)
    return found


def madlad(text):
    found = [sentence.strip() for sentence in re.split(r"[.!?]+\s+", text) if sentence.strip()]
    return {"madlad_sentence_count": len(found),
            "madlad_length_ratio": share(sum(not 20 <= len(s) <= 500 for s in found), len(found)),
            "madlad_technical_ratio": share(sum(len(re.findall(r"[0-9{}+/()>]", s)) > 0.2 * len(s) for s in found), len(found)),
            "madlad_cursed_ratio": share(sum(any(c in s for c in CURSED) or re.search(r" [^ ](?: [^ ]){8}|\|$", s) is not None
                                             for s in found), len(found))}


def in_a_row(text):
    words = words_of(text)
    most = 1 if words else 0
    for period in range(1, 14):
        for at in range(len(words)):
            times = 1
            while words[at : at + period] == words[at + times * period : at + (times + 1) * period] != []:
                times += 1
            most = max(most, times)
    return {"in_a_row_max": most}


SIGNS = st.lists(st.sampled_from(["a b c d e f ", "a a a ", "Word ", "word, ", "…\n", "* x\n", "- y\n", "\n", "\n\n", "#", "▶ z\n", "”\n",
                                  "mp3 ", "Episode. ", " x y z v w a b c d", "9+1/(2) ", "{x} ", "|. ", "... ", "! ", "? ", "É é "]),
                 max_size=40).map("".join)


REPEATED = ["one two three four five six seven", "a bb c d e f g h i j k l, a bb c d e f g h i j k m? a bb c d e f g h i j k l\n" * 2,
            "x yy zz x yy zz x yy zz x yy zz x\n*\n*\n…\n\n", "what else is there to say of it. And now\nit is over, said he."]


@example(REPEATED)
@given(st.lists(SIGNS | TEXT, min_size=1, max_size=4))
def test_the_signals_are_those_of_a_slow_reading(texts):
    for slow in (dolma, rpv2, madlad, in_a_row):
        expected = [slow(text) for text in texts]
        found = measure(texts, ["en"] * len(texts), expected[0].keys())
        for at, one in enumerate(expected):
            got = {name: list(found[name][at]) if name == "line_word_counts" else found[name][at] for name in one}
            assert got == one


@settings(max_examples=15)
@given(st.lists(SIGNS | TEXT, min_size=2, max_size=4))
def test_a_document_measures_the_same_in_any_company(texts):
    """All columns, also those whose definition is no more than the code."""
    plain = lambda value: value.tolist() if hasattr(value, "tolist") else value  # noqa: E731
    together = measure(texts, ["en"] * len(texts), ALL_COLUMNS)
    for at, text in enumerate(texts):
        alone = measure([text], ["en"], ALL_COLUMNS)
        assert {name: plain(alone[name][0]) for name in ALL_COLUMNS} == {name: plain(together[name][at]) for name in ALL_COLUMNS}


@pytest.mark.parametrize(("text", "name", "expected"), [
    ("Seven of These Twelve Words Begin With A Capital Letter and so. Not this one.", "madlad_list_ratio", 1 / 2),
    ("Eleven Words Are Not So Many That They Are a List. Not this one.", "madlad_list_ratio", 0),
    ("A page | with | columns |. And what is nr.", "madlad_cursed_ratio", 1),
    ("He watched an Episode. Then none.", "madlad_cursed_ratio", 1 / 2),
    ("very very very good", "in_a_row_char_ratio", 12 / 16), ("so\nso\nso\nso", "in_a_row_char_ratio", 0),
    ("ha ho ha ho ha ho hi", "in_a_row_max", 3), ("so\nso\nso\nso", "in_a_row_max", 4),
    ("Home\nSign in\nThis is a long line of text in which somebody may log in\nTodos los derechos reservados",
     "navigation_line_ratio", 1 / 2),
    ("This was automatically translated.\nPar Google Translate; traduit automatiquement", "translation_note_count", 3),
    ("Dieser Text wurde MASCHINELL ÜBERSETZT.", "translation_note_count", 1),
    ("it&#39;s &quot;so&quot; & so", "escaped_ratio", 3 / 4), ("Мосkва und Москва", "mixed_script_word_ratio", 1 / 3),
    ("NASA and ESA said no", "plain_capital_word_ratio", 2 / 5), ("The dog and the cat", "plain_stop_word_ratio", 2 / 5),
    ("Lorem, Ipsum? lorem ipsum", "lorem_ipsum_ratio", 1 / 23), ("AB c1\n\n22", "line_upper_ratios", [2 / 5, 0]),
    ("AB c1\n\n22", "line_digit_ratios", [1 / 5, 1]), ("• a.\nb", "line_bullets", [True, False]),
    ("• a.\nb", "line_terminals", [True, False]),
])
def test_what_a_signal_counts(text, name, expected):
    found = measure([text], ["en"], [name])[name][0]
    assert (list(found) if isinstance(expected, list) else found) == pytest.approx(expected)


TITLES = sentences(12).title() + " It was the end and so on."
DROPPED = {
    ("dolma", "too_few_words"): "Only a handful of words.", ("dolma", "short_words"): PROSE + " a b" * 400,
    ("dolma", "symbol_words"): PROSE.replace("e ", "e# "),
    ("dolma", "in_a_row"): " ".join(["the", *islice(new_words(), 2000), *["to"] * 100]),
    ("dolma", "duplicate_lines"): PROSE.replace("\n", "\n\n\n"), ("dolma", "bullet_lines"): "*" + sentences(30).replace("\n", "\n*"),
    ("dolma", "top_3_gram"): one_gram_often(3, 0.2) + " the the", ("dolma", "duplicate_5_grams"): duplicate_grams(5, 0.6) + " the the",
    ("dolma3", "too_short"): "Only a handful of words.", ("dolma3", "questionable_sentences"): TITLES,
    ("dolma3", "too_few_sentences"): sentences(4), ("dolma3", "symbols"): PROSE.replace("e ", "e # "),
    ("rpv2", "too_few_words"): "Only a handful of words.", ("rpv2", "symbols"): PROSE.replace("e ", "e # "),
    ("rpv2", "bullet_lines"): "▪" + sentences(30).replace("\n", "\n▪"), ("rpv2", "top_2_gram"): one_gram_often(2, 0.21),
}


@pytest.mark.parametrize(("rules", "reason"), DROPPED)
def test_each_rule_set_drops_what_it_is_for(rules, reason):
    assert reason in reasons(rules, DROPPED[rules, reason])
