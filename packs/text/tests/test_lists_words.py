"""Words of lists in texts, and thresholds by language."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from curator_text import BadWords, OwnWords, Rehydrate, StopWords, Thresholds
from curator_text.lists.bad_words import found_in
from curator_text.lists.terms import Terms
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage


def batch(texts, languages=None):
    table = {"id": [f"r{n}" for n in range(len(texts))], "source": ["s"] * len(texts), "text": pa.array(texts, pa.string())}
    if languages is not None:
        table["language"] = pa.array(languages, pa.string())
    return TextBatch(pa.table(table))


@pytest.fixture
def lists(tmp_path):
    """In the layout of LDNOOBW."""
    folder = tmp_path / "words"
    folder.mkdir()
    for name, words in {"en": ["darn", "two girls", "f*ck", "a$$", "🖕"], "de.txt": ["Mist", "blöd"], "ja": ["馬鹿", "sm", "グロ"],
                        "hi": ["बद"], "README.md": ["# Words"]}.items():
        (folder / name).write_text("".join(f"{word}\n" for word in words))
    return str(folder)


CASES = [  # text, language, how often, the first
    ("Darn it, DARN!", "en", 2, "darn"), ("darnation, darns, undarn, darn_it", "en", 0, None), ("f*ck, f*cking", "en", 1, "f*ck"),
    ("Two girls and two\ngirls", "en", 1, "two girls"), ("an a$$ 🖕🖕", "en", 3, "a$$"), ("", "en", 0, None), (None, "en", None, None),
    ("So ein Mist.", "de", 1, "mist"), ("Mistgabel und blöde", "deu_Latn", 0, None), ("Mist", "en", 0, None), ("darn", "fr", None, None),
    ("darn", None, 1, "darn"),
    ("お前は馬鹿だ", "ja", 1, "馬鹿"), ("smとグロ", "jpn", 0, None), ("बद", "hi", 1, "बद"), ("बदी बदन", "hi", 0, None),
]


def test_words_of_the_list_of_a_language(lists):
    texts, languages, counts, first = zip(*CASES, strict=True)
    stage = BadWords(lists=lists)
    out = run_stage(stage, batch(list(texts), list(languages)))["out"]
    assert out.column("bad_words") == list(counts)
    assert out.column("bad_word") == list(first)
    check_stage(stage, batch(list(texts), list(languages)), skip={"needs"})
    assert run_stage(BadWords(), batch(["darn"]))["out"].column("bad_words") == [None]
    assert run_stage(BadWords(lists=f"{lists}/de.txt", language="de"), batch(["Mist"]))["out"].column("bad_words") == [1]


def test_a_share_of_the_pages_is_spared_and_it_is_the_same_one_each_time(lists):
    texts = ["darn", "fine"] * 1000
    first, again, other = (run_stage(BadWords(lists=lists, keep_fraction=0.2, seed=seed), batch(texts))["out"].column(
        "bad_words_spared") for seed in (1, 1, 2))
    assert first == again != other
    assert not any(first[1::2])
    assert 150 < sum(first[::2]) < 250


TERMS = st.lists(st.text("ab_ '$é", min_size=1, max_size=4).map(str.strip).filter(bool), min_size=1, max_size=5, unique=True)


@given(TERMS, st.lists(st.text("ab_ '$é\n", max_size=12), max_size=4))
@settings(max_examples=60)
def test_terms_are_those_that_a_slow_reading_finds(terms, texts):
    found = Terms(terms)
    for anywhere in (False, True):
        numbers = found_in(texts, found, anywhere)
        for text, got in zip(texts, numbers, strict=True):
            expected = []
            for number, term in enumerate(terms):
                before, behind = (r"(?<!\w)" if term[0].isalnum() or term[0] == "_" else "",
                                  r"(?!\w)" if term[-1].isalnum() or term[-1] == "_" else "")
                pattern = re.escape(term) if anywhere else before + re.escape(term) + behind
                expected += [(at.start(), number) for at in re.finditer(f"(?={pattern})", text)] if anywhere else [
                    (at, number) for at in range(len(text)) if re.compile(pattern).match(text, at)]
            assert sorted(got.tolist()) == sorted(number for _, number in expected), (text, anywhere)


def test_different_stop_words_are_counted_by_any_sort_of_list(tmp_path):
    texts = ["le chat de la maison et le chien", "l'ami d'un ami", "Le chat", "我的年在中国", "의사는 학교에", None, "the cat of"]
    languages = ["fr", "fra_Latn", "fr", "zh", "kor_Hang", "fr", "en"]
    given = batch(texts, languages)
    assert run_stage(StopWords(), given)["out"].column("stop_word_count") == [4, 3, 0, 4, 3, None, None]
    (tmp_path / "fra_Latn.yml").write_text("stopwords:\n- le\n- chat\nlanguage_score: 0.8\n")
    assert run_stage(StopWords(lists=str(tmp_path)), given)["out"].column("stop_word_count") == [2, 0, 1, *[None] * 4]
    (tmp_path / "en.txt").write_text("the\nof\n")
    assert run_stage(StopWords(lists=str(tmp_path / "en.txt")), given)["out"].column("stop_word_count") == [*[None] * 6, 2]
    check_stage(StopWords(), given, skip={"needs"})


def test_thresholds_stand_beside_the_records_of_their_language(tmp_path):
    given = batch(["x"] * 6, ["fr", "fra_Latn", "zh", "en", None, "tur_Latn"])
    out = run_stage(Thresholds(), given)["out"]
    assert out.column("language_score_min") == [0.824, 0.824, 0.692, None, None, 0.875]
    assert out.column("duplicate_10_gram_char_ratio_max") == [0.1, 0.1, 0.127, None, None, None]
    (tmp_path / "fra_Latn.yml").write_text("language_score: 0.5\ntop_n_grams:\n- - 2\n  - 0.2\nmax_avg_word_length: 11\nstopwords: [le]\n")
    (tmp_path / "own.csv").write_text("# ours\nlanguage,word_count_min,language_score_min\nfr,50,\nen,40,0.5\n")
    rows = run_stage(Thresholds(table=str(tmp_path)), given)["out"]
    assert rows.column("mean_word_length_max")[:3] == [11, 11, None]
    assert rows.column("top_2_gram_char_ratio_max")[0] == 0.2
    own = run_stage(Thresholds(table=str(tmp_path / "own.csv")), given)["out"]
    assert own.column("word_count_min") == [50, 50, None, 40, None, None]
    assert own.column("language_score_min") == [None] * 3 + [0.5] + [None] * 2
    check_stage(Thresholds(), given)
    before = Thresholds(table=str(tmp_path / "own.csv")).parameters()
    (tmp_path / "own.csv").write_text("language,word_count_min,language_score_min\nfr,51,\n")
    assert Thresholds(table=str(tmp_path / "own.csv")).parameters() != before


@pytest.mark.parametrize(("content", "told"), [
    ("lang,a\nfr,1\n", "one of them language"), ("language,a\nfr,much\n", "row 2, a: 'much' is no number"),
    ("language,a\nfr\n", "row 2 .fr.: it has other columns"), ("language,a\nfrench toast,1\n", "no code of a language"),
    ("language,a\nfr,1\nfr,2\n", "there twice"), ('language,a\nfr,"1\n', "row 2: unexpected end")])
def test_what_is_wrong_with_a_table_is_told(tmp_path, content, told):
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(InputError, match=told):
        Thresholds(table=str(tmp_path / "own.csv")).contract()


def test_mistakes_are_told_before_a_run(tmp_path):
    (tmp_path / "notes.txt").write_text("x\n")
    with pytest.raises(InputError, match="'notes' is none"):
        BadWords(lists=str(tmp_path)).check({"text": pa.string()})
    with pytest.raises(ValueError, match="keep_fraction"):
        BadWords(keep_fraction=2)
    (tmp_path / "fra_Latn.yml").write_text("a: [\n")
    with pytest.raises(InputError, match="is not YAML"):
        Thresholds(table=str(tmp_path)).contract()
    (tmp_path / "fra_Latn.yml").write_text("top_n_grams: 5\n")
    with pytest.raises(InputError, match="fra_Latn: a threshold is a number, and the n-grams are pairs"):
        Thresholds(table=str(tmp_path)).contract()


def test_words_and_addresses_of_small_languages(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    for name, words in {"nhk_Latn": ["tlakatl", "Sikana"], "fra_Latn": ["charpentier"], "jam_Latn": ["likkle"]}.items():
        (folder / f"{name}.txt").write_text("\n".join(words))
    (tmp_path / "names.json").write_text(json.dumps({"nhk": ["isthmus-nahuatl", ".mx", "istmo"], "fra": [".fr"]}))
    (tmp_path / "shares.json").write_text(json.dumps({"nhk_Latn": 0.4, "jam_Latn": 0.11, "fra_Latn": 0.1}))
    given = [("tlakatl, tlakatl Sikana", "nhk", None), ("tlakatlan sikana", "nhk_Latn", "https://a.example/x"), ("a", "nhk", "https://a.mx"),
             ("a", "nhk", "http://a.mx.example/"), ("a", "nhk", "https://a.example/Isthmus-Nahuatl"), ("a", "nhk", "https://a.example/x/nhk/1"),
             ("a", "nhk", "https://a.example/xnhk"), ("a", "nhk", "http://[x"), ("likkle", "jam", "https://a.example/"),
             ("charpentier", "fr", "https://a.fr/"), (None, "nhk", "https://a.mx"), ("a", None, None)]
    texts, languages, urls = zip(*given, strict=True)
    rows = batch(list(texts), list(languages)).with_columns({"url": pa.array(urls, pa.string())})
    stage = OwnWords(lists=str(folder), names=str(tmp_path / "names.json"), contamination=str(tmp_path / "shares.json"))
    out = run_stage(stage, rows)["out"]
    assert out.column("own_words") == [2, 0, 0, 0, 0, 0, 0, 0, 1, None, None, None]
    assert out.column("own_url") == [None, False, True, False, True, True, False, False, False, None, None, None]
    check_stage(stage, rows, skip={"needs"})
    assert run_stage(OwnWords(lists=str(folder)), rows)["out"].column("own_words")[9] == 1
    (tmp_path / "shares.json").write_text('{"nhk_Latn": "much"}')
    with pytest.raises(InputError, match=r"shares.json: an object is expected .* it has much"):
        stage.check({})


def test_pages_are_repeated_by_how_often_they_were_found(tmp_path):
    copies = [1, 2, 4, 5, 99, 100, 1000, None, 3]
    rows = batch(["a"] * 9, ["it"] * 8 + ["xx"]).with_columns({"copies": pa.array(copies, pa.int32())})
    assert run_stage(Rehydrate(), rows)["out"].column("weight") == [1, 2, 3, 5, 5, 8, 1, None, 3]
    # the beginning of FineWeb-2's own table for Italian
    (tmp_path / "w.json").write_text('{"ita_Latn": {"1": 1, "2": 3, "3": 4, "4": 5, "5": 6, "7": 7, "145": 1}, "fra_Latn": {"2": 9}}')
    stage = Rehydrate(weights=str(tmp_path / "w.json"))
    assert run_stage(stage, rows)["out"].column("weight") == [1, 3, 5, 6, 7, 7, 1, None, 1]
    check_stage(stage, rows)
    for wrong, told in [('{"ita_Latn": {"1": 1.5}}', "w.json, ita_Latn: numbers of copies"), ('{"a": []}', "w.json, a: numbers"),
                        ("[]", "has no weights"), ("{", "is not JSON")]:
        (tmp_path / "w.json").write_text(wrong)
        with pytest.raises(InputError, match=told):
            Rehydrate(weights=str(tmp_path / "w.json")).check({})
