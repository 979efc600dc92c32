"""Characters, words, marks and hashes: what a word is."""

from __future__ import annotations

import numpy as np
import pytest
from curator_text.measures import characters as ch
from curator_text.measures.joined import GROUP_CHARS, groups, join
from curator_text.measures.spans import Spans, hash_text, later_equal, order_of
from curator_text.measures.words import split
from hypothesis import given
from hypothesis import strategies as st


def words_of(text):
    joined = join([text])
    words = split(joined)
    return [joined.text[a:b] for a, b in zip(words.starts.tolist(), words.stops.tolist(), strict=True)]


# What spaCy 3.8's tokenizer for English makes of these, as datatrove uses it; tokens divided by a space.
@pytest.mark.parametrize(("text", "expected"), [
    ("Hello, world!", "Hello , world !"),
    ('He said: "(Go away)."', 'He said : " ( Go away ) . "'),
    ("don't I'm he'll they've it's John's", "do n't I 'm he 'll they 've it 's John 's"),
    ("e.g. this, i.e. that, U.S. law", "e.g. this , i.e. that , U.S. law"),
    ("the end. NATO. pH.", "the end . NATO . pH."),
    ("wait...what ... so…", "wait ... what ... so …"),
    ("well-known state--of --option -x", "well - known state -- of --option -x"),
    ("a/b and/x 1/2 key=value a:b 12:30", "a / b and / x 1/2 key = value a : b 12:30"),
    ("one,two 1,000 end.Start 3.14 1+1 2-1 2*3", "one , two 1,000 end . Start 3.14 1 + 1 2 - 1 2 * 3"),
    ("see https://example.org/a-b?c=d, or foo-bar.py", "see https://example.org/a-b?c=d , or foo-bar.py"),
    ("$100 100% 5€ C++ #tag @you", "$ 100 100 % 5 € C++ # tag @you"),
    ("foo_bar _x_ foo() a[0] <b>", "foo_bar _ x _ foo ( ) a[0 ] < b >"),
    ("“quoted” ‘single’ «guillemets»", "“ quoted ” ‘ single ’ « guillemets »"),
])
def test_english_is_divided_as_spacy_does(text, expected):
    assert words_of(text) == expected.split(" ")


def test_words_hold_every_character_but_white_space():
    text = "A line.\n\n\tTwo — with\u3000odd\xa0spaces…\r\nthree\x85four 中文 ไทย"
    assert "".join(words_of(text)) == "".join(text.split())


def test_equal_stretches_without_spaces_are_divided_equally_wherever_they_stand():
    stretch = "数据质量很重要"
    first, second = "".join(["在这里", stretch, "。"]), "".join(["我们说", stretch, "，"])
    inner = lambda text: [w for w in words_of(text) if w in stretch][-3:]  # noqa: E731
    assert inner(first) == inner(second)


@pytest.mark.parametrize(("text", "low", "high"), [
    ("自然语言处理是计算机科学领域与人工智能领域中的一个重要方向它研究能实现人与计算机之间用自然语言进行有", 1.4, 2.2),
    ("กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทยเป็นศูนย์กลางการปกครองการศึกษา", 3.5, 7),
])
def test_words_of_scripts_without_spaces_are_as_long_as_words_on_average(text, low, high):
    assert low < len(text) / len(words_of(text)) < high


def test_scripts_without_spaces_are_divided_from_what_is_beside_them():
    assert [w for w in words_of("使用Python3吧。") if w.isascii()] == ["Python3"]
    assert words_of("好。")[-1] == "。"


KINDS = {
    ch.LOWER: "aßªя", ch.UPPER: "ÉЯ", ch.LETTER: "אक가", ch.CJK: "中ーア𠀀", ch.MAINLAND: "ไກက", ch.DIGIT: "7٣", ch.OTHER: "²Ⅷ",
    ch.MARK: "\u0301\U000e0100", ch.NEWLINE: "\n", ch.BREAK: "\r\x85\u2028", ch.SPACE: " \t\xa0\u3000", ch.DOT: ".",
    ch.WIDE_END: "。？", ch.WIDE: "、「…😀©", ch.END: "!?؟।၊", ch.LEAD: "$€%§", ch.APOSTROPHE: "'’", ch.QUOTE: "\"“«",
    ch.PUNCT: "([{;_#&", ch.SYMBOL: "•@|\\\x00\u200b\ue000",
}


@pytest.mark.parametrize(("char", "kind"), [(char, kind) for kind, chars in KINDS.items() for char in chars])
def test_the_kind_of_a_character(char, kind):
    assert ch.kind_table()[ord(char)] == kind


def test_white_space_and_letters_are_those_of_python():
    table = ch.kind_table()
    chars = [chr(code) for code in range(0x20000)]
    assert [c for c in chars if (table[ord(c)] <= ch.SPACE) != c.isspace()] == []
    assert [c for c in chars if ch.ALPHA[table[ord(c)]] != c.isalpha()] == []


def test_groups_hold_all_texts_in_order_and_are_bounded():
    texts = ["x" * (GROUP_CHARS // 2)] * 5 + [None, "", "y" * GROUP_CHARS]
    made = list(groups(texts))
    assert [text for group in made for text in group] == [text or "" for text in texts]
    assert all(sum(map(len, group[:-1])) < GROUP_CHARS for group in made)
    assert list(groups([])) == []


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20), st.integers(0, 200_000))
def test_equal_spans_have_equal_hashes_wherever_they_stand(texts, ahead):
    before = "x" * ahead  # more than one piece of the sums
    text = before + "".join(texts)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    stops = np.cumsum([len(before), *map(len, texts)])
    hashes = Spans(codes).hash(stops[:-1], stops[1:])
    assert hashes.tolist() == [hash_text(own) for own in texts]
    assert len(set(hashes.tolist())) == len(set(texts))


@given(st.lists(st.integers(0, 2**48 - 1)), st.sampled_from([np.uint64, np.int64]))
def test_keys_are_sorted_stably(keys, kind):
    keys = np.array(keys, kind)
    assert order_of(keys, 48).tolist() == np.argsort(keys, kind="stable").tolist()


def test_later_equal_compares_within_a_document():
    hashes = np.array([5, 7, 5, 5, 5, 7, 7], np.uint64)
    assert later_equal(hashes, np.array([0, 4, 4, 7])).tolist() == [False, False, True, True, False, False, True]
