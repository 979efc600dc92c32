"""Texts brought to one form, and the hashes of their words and n-grams."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.ngrams.folding import END, fold
from curator.ngrams.hashing import char_grams, grams, hash_words, rolling, split_words, word_grams

TEXTS = st.lists(st.text(max_size=60) | st.text("ab .\n\té中文กา가\u0301\u3099か\u1100\u1161ﬁ", max_size=60), max_size=6)


def words(text, normalize=True):
    found = split_words(fold([text], normalize))
    return [found.text(word, 1) for word in range(found.of[0], found.of[1])]


def rows(found):
    return [found.hashes[start:stop].tolist() for start, stop in zip(found.of[:-1], found.of[1:], strict=True)]


@pytest.mark.parametrize(("text", "expected"), [
    ("Hello,  World!\n", ["hello", "world"]),
    ("don't stop—now", ["don", "t", "stop", "now"]),
    ("C++ and C#, 3.14", ["c", "and", "c", "3", "14"]),
    ("Café CAFÉ cafe\u0301", ["cafe"] * 3),
    ("Straße STRASSE", ["strasse"] * 2),
    ("ﬁne ½", ["fine", "1", "2"]),
    ("ＦＵＬＬ　ｗｉｄｔｈ", ["full", "width"]),
    ("İstanbul ΟΔΟΣ οδος", ["istanbul", "οδοσ", "οδοσ"]),
    ("soft\u00adhyphen zero\u200bwidth", ["softhyphen", "zerowidth"]),
    ("привет ПРИВЕТ", ["привет"] * 2),
    ("שָׁלוֹם شُكْراً", ["שלום", "شكرا"]),
    ("한국어", ["한국어"]),
    ("हिन्दी", ["हिन्दी"]),
    ("", []), ("  \n", []), ("…!?", []), ("\x00\x1f\x7f", []), ("😀👍🏽", []),
])
def test_words_are_what_a_reader_calls_equal(text, expected):
    assert words(text) == expected
    assert words("é " + text) == ["e", *expected]


def test_what_is_written_in_parts_equals_what_is_composed():
    for text in ("がぎぐ か ガ", "한국어 말", "Ăn phở", "ﾎﾟﾝﾄﾞ", "क़लम"):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            assert words(unicodedata.normalize(form, text)) == words(text)
    assert words("が") != words("か")


def test_without_normalisation_words_are_what_white_space_divides():
    assert words("Don't  STOP.\n café\u3000x", normalize=False) == ["Don't", "STOP.", "café", "x"]


def test_scripts_without_spaces_are_cut_into_words_of_the_usual_length():
    chinese = "近年来随着人工智能技术的快速发展大规模语言模型在自然语言处理领域取得了显著的进展并且被广泛应用于各种任务"
    thai = "ประเทศไทยมีประชากรประมาณหกสิบหกล้านคนและกรุงเทพมหานครเป็นเมืองหลวงของประเทศ"
    assert "".join(words(chinese)) == chinese
    assert 1.4 < len(chinese) / len(words(chinese)) < 2.8
    assert 3 < len(thai) / len(words(thai)) < 9
    assert words("用Python编程")[0:2] in (["用", "python"], ["用", "python编"])
    inner = words("前言。" + chinese + "。后记")
    assert inner[-len(words(chinese)) - len(words("后记")):-len(words("后记"))] == words(chinese)


@given(TEXTS, st.booleans())
def test_a_text_has_the_same_words_and_hashes_alone_and_among_others(texts, normalize):
    together = split_words(fold(texts, normalize))
    hashes = hash_words(together)
    for text, start, stop in zip(texts, together.of[:-1], together.of[1:], strict=True):
        assert [together.text(word, 1) for word in range(start, stop)] == words(text, normalize)
        assert hashes[start:stop].tolist() == hash_words(split_words(fold([text], normalize))).tolist()
    for make in (word_grams, char_grams):
        assert rows(make(texts, 3, normalize)) == [rows(make([text], 3, normalize))[0] for text in texts]


@given(st.text(max_size=80))
def test_what_is_folded_stays_as_it_is(text):
    once = words(text)
    assert words(" ".join(once)) == once
    assert not any(char.isspace() or char == chr(END) for word in once for char in word)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=90), max_size=40))
def test_equal_words_have_equal_hashes_and_others_others(some):
    found = split_words(fold([" ".join(some)]))
    hashes = hash_words(found).tolist()
    assert len(hashes) == len(some)
    assert len({*zip(some, hashes, strict=True)}) == len(set(some)) == len(set(hashes))


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 20), st.randoms(use_true_random=False))
def test_grams_are_n_consecutive_words_of_one_text(sizes, n, random):
    texts = [[random.choice("abc") for _ in range(size)] for size in sizes]
    got = rows(word_grams([" ".join(text) for text in texts], n))
    expected = [[tuple(text[i:i + n]) for i in range(max(1, len(text) - n + 1))] if text else [] for text in texts]
    assert [len(row) for row in got] == [len(row) for row in expected]
    pairs = {pair for g, e in zip(got, expected, strict=True) for pair in zip(g, e, strict=True)}
    assert len(pairs) == len({hashed for hashed, _ in pairs}) == len({gram for _, gram in pairs})


@given(st.text("ab .é中", max_size=50), st.integers(1, 30))
def test_grams_of_characters_are_of_words_with_one_space_between(text, n):
    plain = " ".join(words(text))
    got = rows(char_grams([text], n))[0]
    expected = [plain[i:i + n] for i in range(max(1, len(plain) - n + 1))] if plain else []
    assert len(got) == len(expected)
    assert len({*zip(got, expected, strict=True)}) == len(set(got)) == len(set(expected))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30), st.integers(1, 40))
def test_the_rolling_polynomial_is_that_of_its_words(values, n):
    base = 0x9E3779B97F4A7C15
    padded = values + [0] * n
    expected = [sum(padded[i + j] * pow(base, n - 1 - j, 2**64) for j in range(n) if i + j < len(padded)) % 2**64
                for i in range(len(values))]
    assert rolling(np.array(values, np.uint64), n).tolist() == expected


def test_no_text_and_no_word_give_no_gram():
    assert rows(word_grams([], 5)) == []
    assert rows(word_grams(["", "?", ""], 5)) == [[], [], []]
    assert rows(char_grams(["", "?", ""], 5)) == [[], [], []]
    assert len(grams(np.empty(0, np.uint64), np.zeros(4, np.int64), 5).hashes) == 0


def test_a_word_of_megabytes_is_one_word():
    found = word_grams(["x" * 10_000_000 + " y", "x" * 10_000_000], 1)
    assert len(found.hashes) == 3
    assert found.hashes[0] == found.hashes[2]
