"""The recipes of published sets, run as a user runs them, with lists as files; and the rule sets that are theirs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import curator_text
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_text import StopWords, Thresholds
from curator_text.measures.signals import Signals

from curator.api.tasks import TextBatch
from curator.stages.drop import Drop
from curator.testing import run_stage
from packs.text.tests.test_text_recipes import ARTICLE, SENTENCES, archive, run

FRENCH = ("Le musée du vieux port a ouvert ses portes aux visiteurs de toute la région au printemps dernier. Il montre comment les "
          "marins vivaient avec la mer, et que leur travail était plus dur que la plupart des gens ne le pensent. Un guide explique les "
          "outils des charpentiers, qui ont peu changé au cours des siècles. Les enfants y font un petit bateau.")
NOISY = "".join(f"<p>{line}</p>" for line in ["TICKETS AND NEWS OF THE MUSEUM", "Home", "12 likes", *SENTENCES])
PAGES = (ARTICLE, ARTICLE, ARTICLE + "<p>Read more { about } it here today.</p>", NOISY, f"<p>{FRENCH}</p>",
         ARTICLE.replace("museum", "casino"))
# of the pages above the last one's address is listed, and the word on the list of bad words
EXPECTED = {
    "fineweb": {"written": 1, "duplicate": 2, "address": 1, "language": 1, "curly_bracket": 1},
    "c4": {"written": 1, "duplicate": 2, "bad_words": 1, "language": 1, "curly_bracket": 1},
    "refinedweb": {"written": 1, "duplicate": 2, "address": 1, "language": 1, "noise_lines": 1},
    "dclm": {"written": 1, "duplicate": 2, "address": 1, "language": 1, "noise_lines": 1},
    "multilingual": {"written": 1, "address": 1, "no_thresholds": 4},
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("dclm", "refinedweb") else [])
                                  for name in EXPECTED])
def test_pages_by_the_steps_of_a_published_set(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.warc.gz").write_bytes(archive(*PAGES))
    (tmp_path / "listed.txt").write_text("x/5\n")
    (tmp_path / "en").write_text("casino\n")
    lists = f"steps.bad_words.lists={tmp_path}/en" if name == "c4" else f"steps.url_lists.lists={tmp_path}/listed.txt"
    done, stats, out = run(tmp_path, f"text/{name}", "--set", f"read.path={tmp_path}/a.warc.gz", "--set", lists)
    assert done.exit_code == 0, done.output
    counts = {name: stats["records"][name] for name in ("written", "duplicate", "failed") if stats["records"][name]}
    reasons = Counter()
    for stage in stats["stages"]:
        reasons.update({reason: count for reason, count in stage["dropped"].items() if count})
    assert counts | reasons == EXPECTED[name]
    [row] = pq.read_table(out / "data").to_pylist()
    assert row["language"] == ("fr" if name == "multilingual" else "en")
    assert (SENTENCES[0] if name != "multilingual" else FRENCH[:60]) in row["text"]


def test_fineweb_2_repeats_what_was_found_often_and_drops_what_has_no_word_of_its_language(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    french = f"<p>{FRENCH}</p>"
    spanish = ("El museo del puerto viejo ha abierto sus puertas a los visitantes de toda la región esta primavera. Muestra cómo los "
               "marineros vivían con el mar, y que su trabajo era más duro de lo que la mayoría de la gente piensa. Un guía explica las "
               "herramientas de los carpinteros, que han cambiado poco a lo largo de los siglos. Los niños hacen allí un pequeño barco.")
    (tmp_path / "a.warc.gz").write_bytes(archive(french, french, french, f"<p>{spanish}</p>"))
    (tmp_path / "own").mkdir()
    for name, words in {"fra_Latn": "charpentiers", "spa_Latn": "zanahoria", "deu_Latn": "Schreiner"}.items():
        (tmp_path / "own" / f"{name}.txt").write_text(f"{words}\n")
    (tmp_path / "weights.json").write_text('{"fra_Latn": {"1": 1, "3": 4, "9": 1}}')
    done, stats, out = run(tmp_path, "text/multilingual", "--set", f"read.path={tmp_path}/a.warc.gz", "--set",
                           f"steps.own_words.lists={tmp_path}/own", "--set", f"steps.rehydrate.weights={tmp_path}/weights.json",
                           "--set", "steps.repeat.column=weight")
    assert done.exit_code == 0, done.output
    rows = pq.read_table(out / "data").to_pylist()
    assert [(row["language"], row["copies"], row["weight"], row["own_words"]) for row in rows] == [("fr", 3, 4, 1)] * 4
    assert sum(row["copy_of"] is None for row in rows) == 1
    assert sum(stage["dropped"].get("other_language", 0) for stage in stats["stages"]) == 1
    assert stats["records"]["duplicate"] == 2


def reason(rules, texts, language, **columns):
    given = TextBatch(pa.table({"id": [f"r{n}" for n in range(len(texts))], "source": ["s"] * len(texts), "text": texts,
                                "language": [language] * len(texts)} | {name: [value] * len(texts) for name, value in columns.items()}))
    path = str(Path(curator_text.__file__).parent / "rules" / f"{rules}.yaml")
    if rules == "fineweb2":
        for stage in (Signals(), StopWords(), Thresholds()):
            given = run_stage(stage, given)["out"]
    gone = run_stage(Drop(rules=path), given).get("dropped")
    found = dict(zip(gone.column("id"), gone.column("reason"), strict=True)) if gone is not None else {}
    return [found.get(f"r{n}") for n in range(len(texts))]


def test_mc4_wants_three_long_lines():
    long = "x" * 200
    assert reason("mc4", [f"{long}\nshort\n{long}\n{long}", f"{long}{long}{long}\n{long}", "é" * 199, f"{long}\n" * 3], "en") == [
        None, "too_few_long_lines", "too_few_long_lines", None]


def test_fineweb_2_measures_each_language_by_its_own_thresholds():
    words = [f"mot{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(80)]
    texts = [FRENCH, ".\n".join(words) + ".", " ".join(words) + ".", " ".join(words[:49]) + "."]
    assert reason("fineweb2", texts, "fr", language_score=0.9) == [None, "list_like", "stop_words_missing", "too_few_words"]
    assert reason("fineweb2", [FRENCH], "fr", language_score=0.8) == ["language_uncertain"]
    assert reason("fineweb2", [FRENCH], "xx", language_score=0.8) == [None]  # no thresholds
