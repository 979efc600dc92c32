"""Translations: what is sent, what stays, and what is taken for a translation."""

import re

import pyarrow as pa
import pytest
from curator_text import Translate
from curator_text.llm.segments import joined, numbered, problem_of, read_numbered, segments_of
from hypothesis import given
from hypothesis import strategies as st

from curator.api.tasks import TextBatch
from curator.testing import run_stage
from packs.image.tests.chat_server import Model, completion

PAGE = """# The old harbour

The museum shows how sailors lived with the sea, and that their work was hard. Call `open(door)` or see https://x.org/a?b=1.

- [ ] Tickets cost {price} at the door
  1. Children pay <b>nothing</b> for it

| Name of the ship | Year |
| --- | --- |
| The grey whale and her crew | 1954 |

```python
print("do not translate this line")
```
$$
E = mc^2
$$
> Where $a^2 + b^2$ is known, [the guide](http://x/y) explains it."""
GERMAN = {
    "The old harbour": "Der alte Hafen", "Name of the ship": "Name des Schiffes", "Year": "Jahr",
    "The museum shows how sailors lived with the sea, and that their work was hard. Call":
        "Das Museum zeigt, wie die Seeleute mit dem Meer lebten und dass ihre Arbeit schwer war. Rufe", "or see": "oder siehe",
    "Tickets cost": "Karten kosten", "at the door": "an der Kasse", "Children pay": "Kinder zahlen", "nothing": "nichts",
    "for it": "dafür", "The grey whale and her crew": "Der graue Wal und seine Mannschaft", "Where": "Wo", "is known": "bekannt ist",
    "the guide": "der Führer", "explains it": "erklärt es"}


def german(line):
    for english in sorted(GERMAN, key=len, reverse=True):
        line = line.replace(english, GERMAN[english])
    return line


def lines_of(question):
    return re.findall(r"^\[(\d+)\] (.*)$", question["messages"][-1]["content"], re.MULTILINE)


def translated(question):
    return completion("\n".join(f"[{number}] {german(line)}" for number, line in lines_of(question)))


@pytest.fixture
def model():
    made = Model()
    made.answer = translated
    yield made
    made.close()


def batch(*texts):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(ids), "text": pa.array(texts, pa.string())}))


def stage(model, **parameters):
    return Translate(url=model.url, model="m", backoff_s=0, **({"to": "de"} | parameters))


def test_structure_stays_and_words_change(model):
    row = run_stage(stage(model), batch(PAGE))["out"].rows.to_pylist()[0]
    assert row["translation"] == german(PAGE)
    assert (row["translation_segments"], row["translation_left"], row["translation_problem"]) == (7, [], None)
    assert row["translation_tokens"] == 7
    [question] = model.questions
    sent = question["messages"][-1]["content"]
    assert "into German" in sent
    for stays in ("print", "mc^2", "https", "{price}", "<b>", "a^2", "---", "open(door)"):
        assert stays not in sent


def test_what_is_no_translation_is_asked_for_again_by_itself_and_then_marked(model):
    lines = ["Tickets cost nothing at the door", "Children pay nothing for it, see `a` and `b`", "The old harbour is known to the guide",
             "The museum shows how sailors lived with the sea, and that their work was hard. Call"]
    wrong = {"Tickets": "Tickets cost nothing at the door", "Children": "Kinder ⟦1⟧", "The old": "Ja. " * 40,
             "The museum": "Le musée montre comment les marins vivaient avec la mer, et que leur travail était très dur."}

    def answer(question):
        asked = lines_of(question)
        again = question["temperature"] > 0
        return completion("\n".join(
            f"[{number}] {wrong[next(w for w in wrong if line.startswith(w))] if not again or line.startswith('The old') else german(line)}"
            for number, line in asked))

    model.answer = answer
    row = run_stage(stage(model, attempts=2), batch("\n".join(lines)))["out"].rows.to_pylist()[0]
    assert row["translation"].split("\n") == [german(line) if not line.startswith("The old") else line for line in lines]
    assert row["translation_left"] == [2]
    assert row["translation_problem"].endswith("can be no translation")
    assert [len(lines_of(question)) for question in model.questions] == [4, 1, 1, 1, 1]


def test_lines_that_are_missing_are_asked_for_and_a_record_without_any_fails(model):
    model.answer = lambda question: completion("[1] Der alte Hafen\n[1] Der alte Hafen") if "harbour" in str(question) else (
        completion("[2] Jahr") if len(lines_of(question)) == 2 else completion("Der Führer"))
    ports = run_stage(stage(model, attempts=2), batch("the guide\nYear", "The old harbour\nYear"))
    assert ports["out"].column("translation") == ["Der Führer\nJahr", "The old harbour\nDer Führer"]
    assert ports["out"].column("translation_left") == [[], [0]]
    failed = run_stage(stage(model, attempts=2), batch("The old harbour"))["failed"]
    assert failed.column("error") == ["the line is missing from the answer"]


def test_long_texts_go_in_several_questions_and_nothing_is_asked_of_no_words(model):
    text = "\n".join("Tickets cost nothing at the door" for _ in range(40))
    out = run_stage(stage(model, segment_tokens=100), batch(text, None, "```\ncode\n```", "1, 2, 3"))["out"]
    assert out.column("translation") == [german(text), None, "```\ncode\n```", "1, 2, 3"]
    assert out.column("translation_segments") == [40, None, 0, 0]
    assert len(model.questions) == 4


@given(st.text(st.sampled_from("ab |`$*-> \n#{}<>⟦1⟧[]()"), max_size=80))
def test_lines_come_back_as_they_were_where_nothing_is_changed(text):
    segments = segments_of(text)
    told = read_numbered(numbered([one.text for one in segments]), len(segments))
    assert joined(text, segments, {number: one.text for number, one in enumerate(segments)}) == text
    assert all(line is None or problem_of(one.text, line) != "what must stay as it is was lost or made up"
               for one, line in zip(segments, told, strict=True) if one.text.strip() == line)


@pytest.mark.parametrize(("options", "told"), [
    ({"to": "xx"}, "to"), ({"to": "und"}, "is none"),
    ({"prompt": "rephrase"}, "target_language"), ({"into": "text"}, "another one")], ids=["xx", "und", "prompt", "into"])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Translate(**({"url": "http://localhost/v1", "model": "m", "to": "de"} | options))
