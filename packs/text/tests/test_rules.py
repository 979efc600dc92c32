"""The packaged rule sets: each rule drops a document made for it, and nothing on its threshold."""

from __future__ import annotations

import itertools
from pathlib import Path

import curator_text
import pyarrow as pa
import pytest
from curator_text.measures.columns.families import ALL_COLUMNS, COLUMNS
from curator_text.measures.signals import Signals

from curator.api.tasks import TextBatch
from curator.registry import packs
from curator.stages.drop import Drop
from curator.stages.rules import load_rules

FOLDER = Path(curator_text.__file__).parent / "rules"
SETS = ("gopher_quality", "gopher_repetition", "c4", "fineweb", "refinedweb", "nemo_en", "nemo_other", "dolma", "dolma3", "rpv2")

# Running text that no rule objects to: eight paragraphs of different words.
PROSE = """The river had been rising for three days when the old ferryman decided that nobody should cross it any more.
He tied the boat to the stone landing, walked up to the village, and told the people what he had seen that morning.

Most of them believed him, because he had lived beside the water for sixty years and never raised a false alarm.
A few laughed, of course, and one of the young men wanted to borrow the boat and try his luck before the evening.
The ferryman refused with a smile, and they talked about other floods until the rain began to fall once more.

In the night a sound like distant thunder woke the whole valley, and lanterns were lit in every single window.
When daylight came, the landing was gone, the road was gone, and a brown lake lay quietly where the fields had been.
Nobody was hurt! Would it have ended so well without his warning? They thanked the old man, and fed him for a month.
"""


def reasons(names, *texts, languages=None):
    """Why each text is dropped by these rule sets, None if it stays."""
    names = [names] if isinstance(names, str) else names
    paths = [str(FOLDER / f"{name}.yaml") for name in names]
    ids = [str(i) for i in range(len(texts))]
    rows = pa.table({"id": ids, "source": ["a"] * len(texts), "text": texts,
                     "language": pa.array(languages or ["en"] * len(texts), pa.string())})
    dropped = Drop(rules=paths).process(Signals(only=paths).process(TextBatch(rows=rows)))
    found = dict(zip(dropped["dropped"].column("id"), dropped["dropped"].column("reason"), strict=True))
    return [found.get(i) for i in ids]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_rule_names_its_source(path):
    rules = load_rules(str(path))
    assert rules.name == path.stem
    assert rules.source
    assert rules.description
    assert all(rule.source for rule in rules.rules)


@pytest.mark.parametrize("name", SETS)
def test_rules_for_text_read_signals_only(name):
    assert set(Drop(rules=str(FOLDER / f"{name}.yaml")).contract().needs) <= set(ALL_COLUMNS)


def test_the_page_on_rules_names_the_rule_sets_and_every_column():
    page = (Path(__file__).parents[3] / "docs" / "text-rules.md").read_text(encoding="utf-8")
    assert [name for name in SETS if f"`{name}`" not in page] == []
    single = [name for name in ALL_COLUMNS.keys() - COLUMNS.keys() if "_gram_" not in name]
    assert [name for name in single if f"`{name}`" not in page] == []


def test_rule_sets_are_found_by_name_where_the_pack_is_installed():
    assert Path(packs.resource("rules", "fineweb")).name == "fineweb.yaml"


def test_running_text_passes_all_rule_sets():
    assert reasons(SETS, PROSE) == [None]


def sentences(count):
    """That many different sentences, a line each."""
    return "\n".join(f"The {noun} of the {place} gave {number} reasons to {verb} with it and that was number {i}."
                     for i, (noun, place, number, verb) in enumerate(zip(
                         ["mayor", "baker", "teacher", "captain", "doctor", "lawyer", "singer", "farmer"] * 9,
                         ["town", "ship", "school", "mill", "castle", "harbour", "island"] * 11,
                         ["two", "three", "four", "five", "six", "seven", "nine", "ten", "twelve", "twenty"] * 8,
                         ["work", "play", "fight", "agree", "stay", "leave"] * 12, strict=False)) if i < count)


QUALITY = {
    "too_few_words": "Only a handful of words, and that is too few to be of use to anybody with a model to train.",
    "too_many_words": PROSE * 600,
    "short_words": "I am at it to be or so we go up to it as he is of us and I do. " * 5,
    "long_words": "internationalization characteristically the incomprehensibility of and misunderstandings " * 20,
    "hash_signs": PROSE + " #" * 40,
    "ellipses": PROSE.replace(" the ", " ... the ") + "... " * 20 + "end",
    "bullet_lines": "\n".join("- " + line for line in PROSE.splitlines() if line),
    "ellipsis_lines": PROSE.replace(".\n", "...\n"),
    "words_without_letters": PROSE + " 1 2 3 4 5 6 7 8 9 10" * 10,
    "stop_words_missing": "Brown foxes jump over lazy dogs while seven quick wizards quietly mix strong purple ink. " * 5,
}


@pytest.mark.parametrize("reason", QUALITY)
def test_each_rule_of_gopher_quality_drops_what_it_is_for(reason):
    assert reasons("gopher_quality", QUALITY[reason]) == [reason]


def new_words():
    """Words of five letters, each another one."""
    for letters in itertools.product("bdfgklmn", "aeiou", "prstvz", "aeiou", "cxwj"):
        yield "".join(letters)


def filled(text, words, chars, ratio):
    """The text with as many new words behind it as leave `chars` just above this share of all."""
    while chars > ratio * (len(text) + 6):
        text += f" {next(words)}"
    return text


def top_gram(n, ratio):
    """One n-gram ten times, a new word behind each."""
    words = new_words()
    gram = " ".join(next(words) for _ in range(n))
    return filled(" ".join(f"{gram} {next(words)}" for _ in range(10)), words, 10 * len(gram), ratio)


def duplicate_grams(n, ratio):
    """Ten different n-grams, each twice, a new word behind each."""
    words = new_words()
    grams = [" ".join(next(words) for _ in range(n)) for _ in range(10)]
    return filled(" ".join(f"{gram} {next(words)}" for gram in grams * 2), words, 10 * 5 * n, ratio)


def pieces(apart, short, long):
    """So many short pieces twice, and long ones of new words, divided by `apart`."""
    words = new_words()
    own = [" ".join(next(words) for _ in range(short[1])) for _ in range(short[0])]
    return apart.join(own * 2 + [" ".join(next(words) for _ in range(long[1])) for _ in range(long[0])])


REPETITION = {
    "duplicate_paragraphs": pieces("\n\n", (4, 1), (5, 60)),
    "duplicate_paragraph_characters": pieces("\n\n", (1, 40), (8, 12)),
    "duplicate_lines": pieces("\n", (4, 1), (5, 60)),
    "duplicate_line_characters": pieces("\n", (1, 40), (8, 12)),
    "top_2_gram": top_gram(2, 0.2), "top_3_gram": top_gram(3, 0.18), "top_4_gram": top_gram(4, 0.16),
    "duplicate_5_grams": duplicate_grams(5, 0.15), "duplicate_6_grams": duplicate_grams(6, 0.14),
    "duplicate_7_grams": duplicate_grams(7, 0.13), "duplicate_8_grams": duplicate_grams(8, 0.12),
    "duplicate_9_grams": duplicate_grams(9, 0.11), "duplicate_10_grams": duplicate_grams(10, 0.1),
}


@pytest.mark.parametrize("reason", REPETITION)
def test_each_rule_of_gopher_repetition_drops_what_it_is_for(reason):
    assert reasons("gopher_repetition", REPETITION[reason]) == [reason]


@pytest.mark.parametrize("reason", [name for name in REPETITION if name.endswith(("_gram", "_grams"))])
def test_a_little_less_repetition_stays(reason):
    assert reasons("gopher_repetition", REPETITION[reason] + " of more words that are new to it") == [None]


C4 = {
    "lorem_ipsum": PROSE + "And then some lorem ipsum follows.\n",
    "curly_bracket": PROSE + "Here a { bracket } slipped in.\n",
    "too_few_sentences": "\n".join(sentences(4).splitlines() + ["a line without an end"] * 20),
}


@pytest.mark.parametrize("reason", C4)
def test_each_rule_of_c4_drops_what_it_is_for(reason):
    assert reasons("c4", C4[reason], sentences(5)) == [reason, None]


FINEWEB = {
    "lines_without_punctuation": "\n".join(line.rstrip(".") for line in sentences(30).splitlines()),
    "short_lines": "\n".join(f"An item of the list, {number}." for number in range(30)),
    "duplicate_line_characters_1": sentences(30) + "\n" + sentences(1),
    "list_like": ("\n" * 9).join(sentences(30).splitlines()),
}


@pytest.mark.parametrize("reason", FINEWEB)
def test_each_rule_of_fineweb_drops_what_it_is_for(reason):
    assert reasons("fineweb", FINEWEB[reason], sentences(30)) == [reason, None]


def test_refinedweb_drops_pages_of_menus_and_counters():
    noise = "\n".join(["HOME", "LOG IN NOW", "3 likes", "12", "Share"] * 3)
    assert reasons("refinedweb", sentences(6) + "\n" + noise, sentences(6)) == ["noise_lines", None]


def test_other_languages_are_not_measured_by_english():
    german = ("Der Fluss war drei Tage lang gestiegen, als der alte Fährmann beschloss, dass niemand mehr übersetzen sollte. "
              "Er band das Boot an den Steg, ging ins Dorf hinauf und erzählte den Leuten, was er am Morgen gesehen hatte. "
              "Die meisten glaubten ihm, denn er lebte seit sechzig Jahren am Wasser und hatte nie ohne Grund gewarnt.")
    chinese = ("那条河已经涨了三天，老船夫决定任何人都不应该再过河。他把船系在石头码头上，走到村子里，告诉人们他早上看到的情况。"
               "大多数人都相信他，因为他在水边住了六十年，从来没有发出过错误的警报。当然也有几个人笑了，一个年轻人想借船试试运气。")
    assert reasons("gopher_quality", german, chinese, languages=["de", "zh"]) == [None, None]


def test_a_value_on_a_threshold_stays():
    words = " ".join(["the", "and", *itertools.islice(new_words(), 48)])
    assert reasons("gopher_quality", words, words.rsplit(" ", 1)[0]) == [None, "too_few_words"]
    assert reasons("gopher_quality", words + " ." * 12, words + " ." * 13) == [None, "words_without_letters"]
    assert reasons("gopher_repetition", pieces("\n", (3, 1), (4, 60)), REPETITION["duplicate_lines"]) == [None, "duplicate_lines"]
