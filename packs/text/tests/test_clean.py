"""Repaired characters and tidy whitespace, and nothing else."""

from __future__ import annotations

import ftfy
import pyarrow as pa
import pytest
from curator_text.clean.clean import Clean, repair_encoding, tidy_whitespace
from hypothesis import given
from hypothesis import strategies as st

from curator.api.stage import Context
from curator.api.tasks import Batch, TextBatch


def batch(*texts, column="text"):
    ids, sources = [str(i) for i in range(len(texts))], ["a"] * len(texts)
    return TextBatch(rows=pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(sources, pa.string()),
                                    column: pa.array(texts, pa.string())}))


def clean(text, **parameters):
    stage = Clean(**parameters)
    stage.setup(Context())
    return stage.process(batch(text)).column("text")[0]


@pytest.mark.parametrize(("broken", "repaired"), [
    ("L&G â€“ cafÃ© rÃ©sumÃ©", "L&G – café résumé"),
    ("Ð\x9fÑ\x80Ð¸Ð²ÐµÑ‚ Ð²Ñ\x81ÐµÐ¼", "Привет всем"),
    ("voilÃ  la ville", "voilà la ville"),
    ("he said \x93hi\x94", "he said “hi”"),
    ("one\nâ€œtwoâ€\x9d\nthrÃ©e", "one\n“two”\nthrée"),
])
def test_mojibake_is_repaired(broken, repaired):
    assert repair_encoding(broken) == repaired


@pytest.mark.parametrize("text", [
    "« Voilà » : déjà vu, à côté de l’été…", "ÃÅ, Ñandú; IRMÃ E IRMÃO", "Её – «Жёлтый» её!", "“Quoted” — …", "日本語。", "plain"])
def test_good_text_is_left_alone(text):
    assert repair_encoding(text) == text


@pytest.mark.parametrize("encoding", ["latin-1", "sloppy-windows-1252", "sloppy-windows-1251", "macroman", "cp437"])
def test_the_short_cut_finds_what_ftfy_finds(encoding):
    texts = ["Große Straße, schöne Grüße", "déjà vu — l’été", "“quoted” – text…", "Привет, как дела?", "naïve café"]
    for text in texts:
        broken = text.encode().decode(encoding, "replace")
        assert repair_encoding(broken) == ftfy.fix_encoding(broken)


@pytest.mark.parametrize(("text", "tidy"), [
    ("a  \nb\t\n\n\n\n c\n\n", "a\nb\n\n c"),
    ("a\xa0b\u3000c\u2009d", "a b c d"),
    ("x = 1\n    y", "x = 1\n    y"),
    ("", ""),
    (" \n\n", ""),
])
def test_whitespace(text, tidy):
    assert tidy_whitespace(text) == tidy
    assert clean(text) == tidy


@pytest.mark.parametrize(("text", "cleaned"), [
    ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
    ("a\x00b\x07c\x7f", "abc"),
    ("\x1b[1;31mred\x1b[0m", "red"),
    ("zero\u200bwidth\ufeff, soft\xadhyphen", "zerowidth, softhyphen"),
    ("می\u200cخواهم", "می\u200cخواهم"),
    ("👩\u200d💻", "👩\u200d💻"),
    ("cafe\u0301", "café"),
    ("tab\there", "tab\there"),
])
def test_characters(text, cleaned):
    assert clean(text) == cleaned


@pytest.mark.parametrize(("text", "off"), [
    ("cafÃ© Ã©", {"encoding": False}), ("cafe\u0301", {"normal_form": False}), ("a\x07b", {"control": False}),
    ("a\xa0b  \n\n\n\n", {"whitespace": False})])
def test_each_step_can_be_switched_off(text, off):
    assert clean(text, **off) == text
    assert clean(text) != text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_cleaning_again_changes_nothing_more(text):
    once = clean(text, encoding=False)
    assert clean(once, encoding=False) == once


def test_null_stays_null_and_other_columns_can_be_cleaned():
    stage = Clean(column="caption")
    stage.setup(Context())
    done = stage.process(Batch(rows=batch("a \n", None, column="caption").rows))
    assert done.column("caption") == ["a", None]
    assert set(stage.contract().needs) == {"caption"}
