"""The language of texts: as py3langid tells it, in batches, by ISO codes that are checked before a run."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from curator_text.language.language import Language, by_script, sample
from curator_text.language.language_codes import CODES, VARIETIES, is_code
from curator_text.language.language_model import LanguageModel
from hypothesis import given
from hypothesis import strategies as st

from curator.api.tasks import TextBatch

TEXTS = {
    "en": "The quick brown fox jumps over the lazy dog, and then it goes home to sleep.",
    "de": "Der schnelle braune Fuchs springt über den faulen Hund und geht dann nach Hause.",
    "fr": "Le renard brun saute par-dessus le chien paresseux, puis il rentre chez lui.",
    "es": "El zorro marrón salta sobre el perro perezoso y luego se va a su casa a dormir.",
    "ru": "Быстрая коричневая лиса прыгает через ленивую собаку и идёт домой спать.",
    "ar": "الثعلب البني السريع يقفز فوق الكلب الكسول ثم يعود إلى بيته لينام في الليل.",
    "zh": "敏捷的棕色狐狸跳过了懒狗，然后回家睡觉去了，第二天早上它又出来了。",
    "ja": "すばやい茶色の狐はのろまな犬を飛び越えて、それから家に帰って眠りました。",
    "ko": "빠른 갈색 여우가 게으른 개를 뛰어넘고 나서 집으로 돌아가 잠을 잤습니다.",
    "hi": "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है और फिर सोने के लिए घर चली जाती है।",
    "th": "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจแล้วกลับบ้านไปนอน",
}


@pytest.fixture(scope="module")
def model():
    return LanguageModel(merge=VARIETIES)


def batch(*texts, column="text"):
    ids, sources = [str(i) for i in range(len(texts))], ["a"] * len(texts)
    return TextBatch(rows=pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(sources, pa.string()),
                                    column: pa.array(texts, pa.string())}))


@pytest.fixture
def run(model):
    def with_parameters(*texts, **parameters):
        stage = Language(**parameters)
        stage._model = model
        return stage.process(batch(*texts))

    return with_parameters


def test_languages_are_told(run):
    rows = run(*TEXTS.values())["out"].rows
    assert rows.column("language").to_pylist() == list(TEXTS)
    assert all(0.5 < score <= 1 for score in rows.column("language_score").to_pylist())
    assert rows.schema.field("language_score").type == pa.float32()


@pytest.mark.parametrize("other", ["ru", "ar", "zh", "ja", "ko", "hi", "th"])
@pytest.mark.parametrize("english", [0.25, 0.75])
def test_a_page_in_two_scripts_gets_the_language_of_most_of_it_and_its_share_for_a_score(run, other, english):
    lines, had = [], {"en": 0.0, other: 0.0}
    while len(lines) < 40:
        code = "en" if had["en"] <= english * sum(had.values()) else other
        lines.append(TEXTS[code])
        had[code] += sum(map(str.isalpha, TEXTS[code])) * {"zh": 3, "ja": 2.4, "ko": 2}.get(code, 1)
    rows = run("\n".join(lines))["out"].rows.to_pylist()
    assert rows[0]["language"] == ("en" if english > 0.5 else other)
    assert rows[0]["language_score"] == pytest.approx(0.75, abs=0.06)


def test_a_few_words_of_another_script_change_little(run):
    rows = run(TEXTS["ru"] + " (Linux, PDF)", TEXTS["en"] + " лиса", TEXTS["en"] + " 💡 → ½ µm")["out"].rows
    assert rows["language"].to_pylist() == ["ru", "en", "en"]
    assert min(rows["language_score"].to_pylist()) > 0.8


LETTERS = st.sampled_from("aZéßḂ0 .,-\n") | st.sampled_from("яЖαع狐カ빠ขลोμ") | st.characters(exclude_categories=["Cs"])


@given(st.text(LETTERS, max_size=40))
def test_the_parts_of_a_text_have_all_its_letters_and_their_shares_make_a_whole(text):
    parts = by_script(text)
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert all(0 < share <= 1 for _, share in parts)
    assert len(parts) <= 2
    if len(parts) == 1:
        assert parts[0][0] == text
    else:
        assert sorted(c for part, _ in parts for c in part if c.isalpha()) == sorted(c for c in text if c.isalpha())


def test_answers_are_the_librarys_own():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    texts = [*TEXTS.values(), *(t[:20] for t in TEXTS.values()), TEXTS["en"].upper(), " ".join(TEXTS.values()) * 9]
    codes, scores = LanguageModel().identify(texts)
    for text, code, score in zip(texts, codes, scores, strict=True):
        expected, probability = library.classify(text)
        assert code == expected
        assert score == pytest.approx(probability, abs=1e-4)


def test_nothing_to_go_by_is_undetermined(run):
    rows = run("", None, " ", "x")["out"].rows
    assert rows.column("language").to_pylist() == ["und"] * 4
    assert rows.column("language_score").to_pylist() == [0.0] * 4


def test_keep_drops_other_languages(run):
    outputs = run(*TEXTS.values(), "", keep=["de", "ja"])
    assert outputs["out"].column("language") == ["de", "ja"]
    assert set(outputs["dropped"].column("reason")) == {"language"}
    assert len(outputs["dropped"]) == len(TEXTS) - 1
    assert run("", keep=["und"])["out"].column("language") == ["und"]


def test_low_scores_are_dropped_as_uncertain(run):
    mixed = " ".join(text[:12] for text in TEXTS.values())
    outputs = run(TEXTS["en"], mixed, "", score_min=0.9)
    assert outputs["out"].column("id") == ["0"]
    assert set(outputs["dropped"].column("reason")) == {"language_uncertain"}
    assert set(run(mixed, keep=["vo"], score_min=0.9)["dropped"].column("reason")) == {"language"}


def test_varieties_share_a_code_unless_told_apart():
    moroccan = "واش كتعرف شنو كاين فهاد البلاصة؟ بغيت نمشي لدار دابا حيت عييت بزاف"
    assert LanguageModel(merge=VARIETIES).identify([moroccan])[0] == ["ar"]
    assert LanguageModel().identify([moroccan])[0] == ["ary"]
    assert Language(keep=["ary"], varieties=True)


@pytest.mark.parametrize(("code", "message"), [
    ("eng", "did you mean en?"), ("EN", "did you mean en?"), ("german", "did you mean de?"), ("jp", "did you mean ja?"),
    ("pt-BR", "did you mean pt?"), ("xq9", "ISO 639-1"), ("ary", "reported as 'ar'"), (False, "Norwegian")])
def test_unknown_codes_are_told_with_the_nearest(code, message):
    with pytest.raises(ValueError, match="keep") as error:
        Language(keep=["de", code])
    assert message in str(error.value)


def test_mistakes_are_told_without_the_model():
    for parameters in ({"keep": []}, {"score_min": 2}, {"max_chars": 0}):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            Language(**parameters)
    assert "curator_text.language.language_model" in sys.modules  # by this file; the stage itself imports it in setup only
    assert len(CODES) > 130


def test_codes_are_those_of_the_model(model):
    assert {*model.codes, "und"} == set(CODES)


def test_a_long_text_is_sampled_from_beginning_to_end(run):
    text = "".join(str(i % 10) for i in range(10_000))
    taken = sample(text, 400)
    assert len(taken) == 403
    assert taken.startswith(text[:100])
    assert taken.endswith(text[-100:])
    assert sample(text[:400], 400) == text[:400]
    page = "Menu Home About Contact " * 20 + TEXTS["de"] * 200
    assert run(page)["out"].column("language") == ["de"]


def test_what_has_the_shape_of_a_code():
    assert all(map(is_code, (*CODES, *VARIETIES)))
    assert all(is_code(code) for code in ("en", "deu", "zh-Hant", "deu_Latn", "pt-BR", "und"))
    assert not any(is_code(code) for code in ("", "xx", "EN", "english", "e", "en_latin", "unknown"))
