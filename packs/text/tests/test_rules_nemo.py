"""NeMo Curator's heuristics: the answers that its own tests and its own code give, and those of a slow reading."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import curator_text
import numpy as np
import pyarrow as pa
import pytest
from curator_text.measures.columns import nemo
from curator_text.measures.columns.families import ALL_COLUMNS, wanted
from curator_text.measures.signals import measure
from hypothesis import example, given
from hypothesis import strategies as st

from curator import sql
from curator.stages.rules import load_rules
from packs.text.tests.test_signals import LETTERS, MIXED, PARAGRAPH
from packs.text.tests.test_signals_reference import TEXT

RULES = {rule.reason: rule.when for rule
         in load_rules(str(Path(curator_text.__file__).parent / "rules" / "nemo_en.yaml")).rules}


def signal(text, name, language="en"):
    return measure([text], [language], [name])[name][0]


# What its filters gave when they were run on these three texts.
@pytest.mark.parametrize(("name", "scores"), {
    "english_char_ratio": (1 - 0.210526, 1 - 0.478261, 1 - 0.475410), "plain_symbol_word_ratio": (0, 0, 0.166667),
    "digit_ratio": (0.024291, 0, 0.081967), "url_ratio": (0.101215, 0, 0),
    "bullet_sign_line_ratio": (0.333333, 0, 0), "space_ratio": (0.194332, 0.478261, 0.180328),
    "bracket_ratio": (0.016194, 0, 0), "longest_word": (25, 1, 8),
    "plain_word_count": (47, 12, 12), "plain_mean_word_length": (4.234043, 1, 4.166667),
    "policy_paragraph_ratio": (0.333333, 0, 0), "unpunctuated_line_ratio": (0.5, 1, 0), "cut_line_ratio": (0.333333, 0, 0),
    "plain_stop_word_count": (5, 0, 0), "plain_alphabetic_word_ratio": (0.914894, 1, 0.666667),
    "duplicate_line_ratio": (0, 0, 0), "duplicate_paragraph_ratio": (0, 0, 0),
    "line_char_duplicate_ratio": (0, 0, 0), "duplicate_paragraph_char_ratio": (0, 0, 0),
    "nemo_top_2_gram_char_ratio": (None, 0.521739, None), "nemo_top_3_gram_char_ratio": (None, 0.869565, None),
    "nemo_top_4_gram_char_ratio": (None, 0.608696, None), "nemo_duplicate_5_gram_char_ratio": (0.178138, 0.739130, 0),
}.items())
def test_scores_are_those_of_its_filters(name, scores):
    for text, score in zip((PARAGRAPH, LETTERS, MIXED), scores, strict=True):
        if score is not None:  # of several as frequent it takes any
            assert signal(text, name) == pytest.approx(score, abs=1e-6)


URL = "http://www.example.com/a/long/path/to/some/page?with=query&and=more#fragment"
# The texts of its own tests, in words of ours: those that stay, and those that go, by each rule.
KEPT_AND_DROPPED = {
    "non_alphanumeric": (["This is a test case.", "$aaa"], ["%$^%$^%$&^$()))))"]),
    "symbol_words": (["full of words", "barely ok 3 4 5 6 7 8 9 #"], ["mixed bag ... #", "... # ... # #"]),
    "digit_ratio > 0.1": (["purely letters", "$!@$@!$!@", "abcdefghi1"], ["34134543"]),
    "urls": (["no addresses here!", "a long text with one address " * 20 + URL], [URL, "words with an address " + URL]),
    "bullet_lines": (["good", "50 \n ⦾ 50", "⁌ not so bad\n" * 9 + "done!"], ["• not good"]),
    "white_space": (["good", "123\b"], ["\t\n\r", "50%\n\n\n"]),
    "brackets": (["this is completely absolutely fine", "123456789("], ["()", "(not good)"]),
    "longest_word > 4": (["tiny"], ["large"]),
    "plain_word_count NOT BETWEEN 2 AND 4": (["two words", "$#@$ %$@$#@ !#@!"], ["", "one", "these are five whole words"]),
    "boilerplate": (["nothing of that kind", "\n\n".join(["Terms of use"] * 4 + ["text"] * 6)],
                    ["PRIVACY POLICY\n\ntext", "a\n\nb\n\nc and Lorem ipsum"]),
    "plain_mean_word_length NOT BETWEEN 3 AND 10": (["superlongword short", "evenly balanced"],
                                                    ["a", "aa", "waytoolongforasinglewords"]),
    "repeated_lines": (["totally unique"], ["half.\nhalf."]),
    "repeated_paragraphs": (["totally unique"], ["half.\n\nhalf."]),
    "repeated_line_characters": (["a.\na.\nvery very very short duplicate."], ["a long line.\na long line.\nshort"]),
    "top_2_gram": (["these are thirteen words and each of them is another one here now", "totally fine small dupe a b a b"],
                   ["a b . a b", "a a a a a a"]),
    "nemo_duplicate_5_gram_char_ratio > 0.2": (["totally fine"], ["a b c d e a b c d e"]),
    "unpunctuated_line_ratio > 0.8": (["good.", "one\ntwo\nthree\nfour\nfive."], ["not good"]),
    "cut_line_ratio > 0.8": (["good.", "one...\ntwo…\nREAD MORE\nfour [...]\nfive."], ["not good...", "-»", "read more.."]),
    "stop_words_missing": (["the and", "the the"], ["uncommon", "The And"]),
    "words_without_letters": (["totally fine", "good good good good !"], ["@"]),
}


@pytest.mark.parametrize("rule", KEPT_AND_DROPPED)
def test_each_rule_keeps_and_drops_what_it_does(rule):
    kept, dropped = KEPT_AND_DROPPED[rule]
    condition = RULES.get(rule, rule)
    texts = [*kept, *dropped]
    names = list(sql.needs({rule: condition}))
    measured = measure(texts, ["en"] * len(texts), names)
    rows = pa.table({name: pa.array(measured[name], ALL_COLUMNS[name]) for name in names})
    gone = sql.evaluate({"rule": condition}, rows).is_valid().to_pylist()
    assert gone == [False] * len(kept) + [True] * len(dropped)


def test_porn_is_told_by_the_addresses():
    assert signal("See http://a.example/porn/x and http://b.example", "porn_url")
    assert not signal("Some porn, and http://a.example too", "porn_url")


# -- a slow reading ---------------------------------------------------------------------------------------------------


def again(words, n):
    """Characters of n-grams that came before, with spaces, none twice."""
    seen, counted, total = set(), -1, 0
    for at in range(len(words) - n + 1):
        gram = tuple(words[at : at + n])
        if gram in seen:
            fresh = words[max(at, counted) : at + n]
            total += sum(map(len, fresh)) + min(len(fresh), n - 1)
            counted = at + n
        seen.add(gram)
    return total


def taken_out(text, words, n):
    """How much shorter the text is without its most frequent n-gram."""
    grams = Counter(" ".join(words[at : at + n]) for at in range(len(words) - n + 1))
    return len(text) - len(text.replace(grams.most_common(1)[0][0], "")) if grams else 0


def slow(text):
    share = lambda part, whole: part / whole if whole else 0.0  # noqa: E731
    words = text.split()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ends = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
    sizes = sorted(map(len, words))
    return {
        "plain_word_count": len(words), "plain_mean_word_length": share(sum(sizes), len(words)),
        "plain_median_word_length": float(np.median(sizes)) if sizes else 0.0,
        "plain_alphabetic_word_ratio": share(sum(any(c.isalpha() for c in word) for word in words), len(words)),
        "plain_symbol_word_ratio": share(sum(word in ("#", *ends) for word in words), len(words)),
        "plain_stop_word_count": sum(word in ["the", "be", "to", "of", "and", "that", "have", "with"] for word in words),
        "english_char_ratio": share(sum((c.isascii() and c.isalnum()) or c in "\n?!,." for c in text), len(text)),
        "bracket_ratio": share(sum(c in "(){}[]⟨⟩" for c in text), len(text)),
        "bullet_sign_line_ratio": share(sum(line[0] in "•‣⁃⁌⁍∙○●◘◦⦾⦿" for line in lines), len(lines)),
        "unpunctuated_line_ratio": share(sum(line[-1] not in ".?!\"'" for line in lines), len(lines)),
        "cut_line_ratio": share(sum(line.lower().endswith(ends) for line in lines), len(lines)),
        "policy_paragraph_ratio": nemo.policy_paragraphs(text),
        **{f"nemo_top_{n}_gram_char_ratio": share(taken_out(text, words, n), len(text)) for n in (2, 3, 4)},
        **{f"nemo_duplicate_{n}_gram_char_ratio": share(again(words, n), len(text)) for n in range(5, 11)},
    }


SIGNS = st.lists(st.sampled_from(["a b c d e ", "a b", " the ", "read more\n", "Read More..\n", "x [...]\n", "…\n", "(...)", " # ",
                                  "⦾ ", "• a\n", "⟨}", "-»\n", "\n\n", "We use cookies.", "privacy  policy", "Privacy & cookies policy",
                                  "lorem ipsum", "ABC Q1 ", "don't ", "é", " "]), max_size=30).map("".join)


@example(["one two three four five six", "a bb c d e f g h i j k l, a bb c d e f g h i j k m? a bb c d e f g h i j k l\n" * 2])
@given(st.lists(SIGNS | TEXT, min_size=1, max_size=4))
def test_the_signals_are_those_of_a_slow_reading(texts):
    found = measure(texts, ["en"] * len(texts), slow("").keys())
    assert [{name: found[name][i] for name in found} for i in range(len(texts))] == [slow(text) for text in texts]


# -- what is asked for ------------------------------------------------------------------------------------------------


def test_a_rule_set_names_the_columns_that_it_reads():
    assert wanted("nemo_en").keys() == sql.needs(RULES)
    assert wanted(["standard", "porn_url"]).keys() > wanted("porn_url").keys() == {"porn_url"}


@pytest.mark.parametrize(("only", "told"), [
    ([], "names no column"), ("plain_word_counts", "did you mean 'plain_word_count'"),
    ("gophr_quality", "neither a column of text.signals nor a rule set")])
def test_what_only_names_is_checked(only, told):
    with pytest.raises(ValueError, match=told):
        wanted(only)
