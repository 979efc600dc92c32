"""What each signal counts, on texts counted by hand; what the stages do with languages, nulls and large texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_text.clean import c4
from curator_text.clean.c4 import C4Lines, remove_lines
from curator_text.measures import joined, signals
from curator_text.measures.patterns import PATTERNS
from curator_text.measures.signals import COLUMNS, Signals, measure
from curator_text.measures.stopwords import STOP_WORDS

from curator import read, write
from curator.api.counts import Counts
from curator.api.stage import Context
from curator.api.tasks import TextBatch
from curator.testing import run_stage


def batch(*texts, column="text", **columns):
    ids = [str(i) for i in range(len(texts))]
    return TextBatch(rows=pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(["a"] * len(texts), pa.string()),
                                    column: pa.array(texts, pa.string()), **columns}))


def signal(text, name, language="en"):
    return measure([text], [language])[name][0]


# Known answers: the same statistics of NeMo Curator 1.4 where it defines them alike.
PARAGRAPH = ("The quick brown fox jumps over the lazy dog. It was a sunny day, and the fox was happy.\n"
             "Visit https://example.com/a?b=1 for more...\n\n• Bullet one\n• Bullet two\n"
             "The quick brown fox jumps over the lazy dog.\n\nTerms of use apply (c) 2024 [1]. Read more")
LETTERS = "a b c a b c a b c a b c"
MIXED = "Ärger über 123 Straßen # ... «quoted» text… привет мир 你好 42!"


@pytest.mark.parametrize(("text", "name", "expected"), [
    (PARAGRAPH, "longest_word", 25), (LETTERS, "longest_word", 1), (MIXED, "longest_word", 8),
    (PARAGRAPH, "digit_ratio", 0.024291), (LETTERS, "digit_ratio", 0), (MIXED, "digit_ratio", 0.081967),
    (PARAGRAPH, "space_ratio", 0.194332), (LETTERS, "space_ratio", 0.478261), (MIXED, "space_ratio", 0.180328),
    (PARAGRAPH, "url_ratio", 0.101215), (LETTERS, "url_ratio", 0), (MIXED, "url_ratio", 0),
    (LETTERS, "top_2_gram_char_ratio", 0.521739), (LETTERS, "top_3_gram_char_ratio", 0.869565),
    (LETTERS, "mean_word_length", 1), (LETTERS, "word_count", 12),
])
def test_known_answers(text, name, expected):
    assert signal(text, name) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("text", "name", "expected"), [
    ("One, two.", "char_count", 9), ("One, two.", "token_count", 4), ("One, two.", "word_count", 2),
    ("One, two.", "mean_word_length", 3), ("One, 2!", "alphabetic_word_ratio", 1 / 4),
    ("# a b #", "hash_ratio", 2 / 4), ("a... b… c......", "ellipsis_ratio", 4 / 6),
    ("- a\n  • b\n\nc", "bullet_line_ratio", 2 / 4), ("a... \nb…\nc.\n", "ellipsis_line_ratio", 2 / 3),
    ("a\nbb\n\na\n", "duplicate_line_ratio", 1 / 3), ("a\nbb\n\na\n", "duplicate_line_char_ratio", 1 / 8),
    ("a b\nc\n\nd\n\n\na b\nc", "duplicate_paragraph_ratio", 1 / 3),
    ("a b\nc\n\nd\n\n\na b\nc", "duplicate_paragraph_char_ratio", 5 / 16),
    ("aa b aa b c", "top_2_gram_char_ratio", 2 * 4 / 11), ("one two", "top_2_gram_char_ratio", 1),
    ("one two", "top_3_gram_char_ratio", 0),
    ("a b c d e f g a b c d e x", "duplicate_5_gram_char_ratio", 5 / 25),
    ("a b c d e f g a b c d e f x", "duplicate_5_gram_char_ratio", 5 / 27),  # the 6th begins inside what was found
    ("a a a a a a a a a a a", "duplicate_5_gram_char_ratio", 10 / 21),
    ("a\nb.\nlong line that ends here!\n中。", "line_punct_ratio", 3 / 4), ("b. \nc.", "line_punct_ratio", 1 / 2),
    ("x" * 30 + "\n" + "y" * 31, "short_line_ratio", 1 / 2),
    ("ab\ncd\nab\n  \n  \n", "line_char_duplicate_ratio", 2 / 10), ("a b\nc\n", "newline_ratio", 2 / 3),
    ("THIS IS LOUD\nbut this is not\n3 likes\n17\nMenu\n", "noise_word_ratio", 7 / 11),
    ("aB1 .", "alpha_ratio", 2 / 5), ("aB1 .", "upper_ratio", 1 / 2), ("aB1 .", "symbol_ratio", 1 / 5),
    ("中文 ab", "spaceless_ratio", 1 / 2),
    ("the dog and the cat", "stop_word_count", 2), ("The dog And", "stop_word_count", 0),
])
def test_what_a_signal_counts(text, name, expected):
    assert signal(text, name) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("text", "name", "expected"), [
    ("This is a sentence. So is this! And 3.5 of that?", "c4_sentence_count", 3),
    ("He said (see below). \"Then\" he left.", "c4_sentence_count", 2),
    ("No end mark here\nToo short.\nA line that stays.\nAnother one ends here. And goes on.", "c4_sentence_count", 3),
    ("Please enable javascript to see it.\nWe use cookies on this site.\nA line that stays.", "c4_sentence_count", 1),
    (f"One word of {'x' * 1001} characters.\nA line that stays.", "c4_sentence_count", 1),
    ("A line with a note.[12][edit]\nA line with a note [1]\n[1]", "terminal_line_ratio", 1 / 3),
    ("A line that goes on...\nA line that ends.", "terminal_line_ratio", 1 / 2),
    ("一行没有空格的中文文字。", "c4_sentence_count", 1),
    ("Some lorem ipsum dolor text.", "c4_lorem_ipsum", True), ("lorem ipsum without an end mark", "c4_lorem_ipsum", False),
    ("if (a) { b } then it ends.", "c4_curly_bracket", True), ("function() { return 1 }", "c4_curly_bracket", False),
    ("JavaScript is { needed } here.", "c4_curly_bracket", False),
    ("Our Privacy Policy\nuses cookies\nuse of cookies\ncookie policy\nterms of use\na cookie", "policy_line_ratio", 5 / 6),
    ("JAVASCRIPT\nJava script", "javascript_line_ratio", 1 / 2), ("A line that stays.\nGone", "c4_line_ratio", 1 / 2),
])
def test_what_c4_counts(text, name, expected):
    assert signal(text, name) == expected


@pytest.mark.parametrize("text", ["", None, " ", "\n", "\r\n\n", "a", ".", "中", "\u0301", "\x00", "#", "\ufeff"])
def test_next_to_nothing_is_measured_too(text):
    columns = measure([text], ["en"])
    assert columns["char_count"][0] == len(text or "")
    for name, values in columns.items():
        assert values[0] is not None, name
        if name.endswith("_ratio"):
            assert 0 <= values[0] <= 1, name


def test_every_line_end_is_one():
    for end in ("\n", "\r\n", "\r", "\x0c", "\u2028"):
        text = end.join(["A line.", "A line.", "", "Other", ""])
        assert signal(text, "line_count") == 3
        assert signal(text, "newline_ratio") == 4 / 7
        assert signal(text, "duplicate_line_ratio") == 1 / 3


def test_a_value_on_a_threshold_is_the_fraction_that_it_is():
    text = "\n".join(["same"] * 4 + list("abcdef"))
    assert signal(text, "duplicate_line_ratio") == 0.3


def test_stop_words_are_those_of_the_language():
    texts = ["der Hund und die Katze", "the dog and the cat", "ಕನ್ನಡ ಭಾಷೆ", "the and"]
    languages = pa.array(["de", None, "kn", "de"], pa.string())
    stage = Signals(language="en")
    assert stage.process(batch(*texts, language=languages)).column("stop_word_count") == [3, 2, None, 0]
    assert stage.process(batch(*texts)).column("stop_word_count") == [0, 2, 0, 2]
    assert Signals(language=None).process(batch(*texts)).column("stop_word_count") == [None] * 4
    assert Signals(language_column="lang").process(batch(texts[0], lang=pa.array(["de"]))).column("stop_word_count") == [3]


def test_the_lists_of_stop_words_are_eight_different_words_each():
    assert {len(set(words)) for words in STOP_WORDS.values()} == {8}


def test_another_column_is_measured_where_it_is_named():
    measured = Signals(column="caption").process(batch("two words", column="caption"))
    assert measured.column("word_count") == [2]


def test_many_texts_are_measured_in_groups_and_stay_in_order(monkeypatch):
    texts = [f"text number {i} " * (i % 7) for i in range(50)]
    expected = measure(texts, ["en"] * 50)
    monkeypatch.setattr(joined, "GROUP_CHARS", 100)
    got = measure(texts, ["en"] * 50)
    assert {name: list(values) for name, values in got.items()} == {name: list(values) for name, values in expected.items()}


def test_of_a_huge_text_the_beginning_is_measured(monkeypatch):
    monkeypatch.setattr(signals, "MEASURED_CHARS_MAX", 100)
    text = "word " * 50
    assert signal(text, "char_count") == 250
    assert signal(text, "word_count") == 20


def test_lines_are_removed_as_c4_removes_them():
    text = ("Home | About | Contact\nThis line stays as it is. \n  This one [1] too.[2]\n\nShort one.\n"
            "Enable javascript to go on here.\nAs in our privacy policy.\nA quote that \"ends\"")
    stage = C4Lines()
    stage.setup(Context())
    cleaned = stage.process(batch(text, None, "Nothing stays", ""))
    assert cleaned.column("text") == ["This line stays as it is.\nThis one  too.\nA quote that \"ends\"", None, "", ""]
    assert cleaned.column("c4_lines_removed") == [4, 0, 1, 0]


def test_lines_without_an_end_mark_stay_where_that_is_asked_for_and_the_words_of_a_line_can_be_set():
    text = "Menu\nA line without an end\nTwo words.\nThis one has five words."
    stage = C4Lines(terminal=False)
    stage.setup(Context())
    assert stage.process(batch(text)).column("text") == ["A line without an end\nThis one has five words."]
    stage = C4Lines(words_min=2)
    stage.setup(Context())
    cleaned = stage.process(batch(text, None))
    assert cleaned.column("text") == ["Two words.\nThis one has five words.", None]
    assert cleaned.column("c4_sentences") == [2, None]
    text = "A line with a { and no end"
    for asked, found in ((False, True), (True, False)):
        stage = C4Lines(terminal=asked)
        stage.setup(Context())
        assert stage.process(batch(text)).column("c4_curly_bracket") == [found]


def test_what_is_cleaned_has_the_sentences_that_were_counted():
    text = "Menu\nA first line. It has two sentences.\nAnother line here!\n{ code }\nWe use { brackets } in prose.\n"
    (left,) = remove_lines([text])
    cleaned = left.text
    assert (left.curly_bracket, left.lorem_ipsum) == (True, False)
    assert signal(cleaned, "c4_sentence_count") == signal(text, "c4_sentence_count") == 4
    assert signal(cleaned, "c4_line_ratio") == 1


def test_lines_of_a_huge_text_are_removed_piece_by_piece(monkeypatch):
    text = "\n".join(["This line stays here.", "Gone", "x y z" * 30 + ".", "And this one stays.", "Gone", ""] * 3)
    small = "A small text before it."
    expected = [(small, 0, 1, False, False), ("This line stays here.\nAnd this one stays.\n" * 3).strip()]
    monkeypatch.setattr(c4, "LINE_CHARS_MAX", 60)
    got = list(remove_lines([small, text]))
    assert got[0] == expected[0]
    assert got[1] == (expected[1], 9, 6, False, False)


def test_the_table_of_signals_names_every_column():
    table = signals.__doc__
    for name in COLUMNS:
        shown = name.split("_gram_")[0].rsplit("_", 1)[0] if "_gram_" in name else name
        assert shown in table, f"{name} is not in the table at the head of curator_text.measures.signals"


@pytest.mark.parametrize("code", ["en", "eng", "eng_Latn", "en-US"])
def test_stop_words_are_found_by_any_code_of_the_language(code):
    rows = TextBatch(pa.table({"id": ["a"], "source": ["s"], "text": ["the end of that"], "language": [code]}))
    assert run_stage(Signals(), rows)["out"].column("stop_word_count") == [3]



def test_a_language_that_is_no_code_is_an_alarm():
    stage = Signals(language_column="lang")
    known = {"en": {"out": 90}, "deu_Latn": {"out": 3}}
    assert not list(stage.findings("signals", Counts(by_value={"lang": known})))
    alarm, = stage.findings("signals", Counts(by_value={"lang": known | {"xx": {"out": 10}, "english": {"out": 1}}}))
    assert alarm.level == "warning"
    assert "Column lang before stage signals holds 'xx', 'english', unknown as a language code" in alarm.text


def test_a_run_counts_by_language_and_raises_the_alarm(tmp_path):
    rows = pa.table({"id": ["a", "b", "c"], "text": ["one", "two", "drei"], "language": ["en", None, "german"]})
    pq.write_table(rows, tmp_path / "in.parquet")
    result = (read(str(tmp_path / "in.parquet")) >> Signals() >> write(str(tmp_path / "out"))).run(workers=0)
    assert result.stats["stages"][1]["by_value"] == {"language": {"en": {"out": 1}, "german": {"out": 1}}}
    assert any("'german'" in alarm["text"] for alarm in result.stats["alarms"])


def test_what_columns_count_can_be_marked_in_the_text():
    marks = Signals(only=["hash_ratio", "c4_curly_bracket", "char_count", "duplicate_5_gram_char_ratio"]).text_marks()
    assert marks == {"hash_ratio": "#", "c4_curly_bracket": "[{}]", "duplicate_5_gram_char_ratio": "repeated 5 words"}
    assert set(PATTERNS) <= set(COLUMNS)
