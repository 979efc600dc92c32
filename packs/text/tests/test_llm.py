"""Language models behind a server: what is asked, what is taken of an answer, and what each record gets."""

import json
import threading

import pyarrow as pa
import pytest
from curator_text import Llm
from curator_text.llm.forms import FORMS, Unfit
from curator_text.llm.prompts import packaged, read_prompt
from curator_text.llm.structure import parsed
from hypothesis import given
from hypothesis import strategies as st

from curator.api.counts import Counts
from curator.api.errors import StageError
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage
from packs.image.tests.chat_server import Model, completion


@pytest.fixture
def model():
    made = Model()
    made.answer = lambda question: completion("echo: " + question["messages"][-1]["content"])
    yield made
    made.close()


def batch(*texts, **columns):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(ids), "text": pa.array(texts, pa.string()), **columns}))


def stage(model, **parameters):
    return Llm(url=model.url, model="tiny", backoff_s=0, **({"prompt": "Say {text}"} | parameters))


def test_the_answer_its_tokens_and_how_it_ended_are_columns(model):
    model.answer = lambda question: (200, completion("yes")[1] | {"usage": {"completion_tokens": 3, "prompt_tokens": 11}})
    out = run_stage(stage(model, system="Be short.", max_chars=4), batch("abcdef", None))["out"]
    assert out.column("answer") == ["yes", None]
    assert (out.column("answer_tokens_in"), out.column("answer_tokens")) == ([11, None], [3, None])
    assert model.questions[0]["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Say abcd"}]
    assert len(model.questions) == 1


def test_fields_become_typed_columns_and_an_answer_without_them_fails(model):
    answers = {"a": '{"topic": "sea", "stars": 4, "kind": "good"}', "b": 'Sure!\n```json\n{"topic": "x", "stars": 5.0, "kind": "bad"}\n```',
               "c": '{"topic": "x", "stars": "many", "kind": "good"}', "d": "no idea", "e": '{"topic": "x", "stars": 1, "kind": "odd"}'}
    model.answer = lambda question: completion(answers[question["messages"][-1]["content"][-1]])
    asked = stage(model, fields={"topic": "string", "stars": "integer", "kind": ["good", "bad"]})
    ports = run_stage(asked, batch(*answers))
    assert [ports["out"].column(name) for name in ("topic", "stars", "kind")] == [["sea", "x"], [4, 5], ["good", "bad"]]
    assert ports["failed"].column("id") == ["r2", "r3", "r4"]
    assert [error.split(":")[0] for error in ports["failed"].column("error")] == [
        "stars is 'many' and no integer", "the answer is no JSON (Expecting value", "kind is 'odd', which is none of good, bad"]
    schema = model.questions[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["kind"] == {"type": "string", "enum": ["good", "bad"]}


@pytest.mark.parametrize(("form", "answer", "kept", "score"), [
    ("announced", "**Rewritten text:**\n The sea.", "The sea.", None),
    ("bullets", "Here they are:\n- One fact.\n* Two.\n3. Three.\n", "One fact.\nTwo.\nThree.", None),
    ("pairs", "- Question: Is it wet?\n- Answer: Yes.\n\nQuestion: Why?\nAnswer: It is\nthe sea.",
     "Question: Is it wet?\nAnswer: Yes.\n\nQuestion: Why?\nAnswer: It is\nthe sea.", None),
    ("score", "It has a score of its own. Because.\nEducational score: 4", None, 4.0), ("score", "**Score:** 3.5 / 5", None, 3.5),
], ids=["announced", "bullets", "pairs", "score", "score of five"])
def test_what_is_taken_of_an_answer(form, answer, kept, score):
    text, number = FORMS[form](answer, "Rewritten text:")
    assert number == score
    assert kept is None or text == kept


@pytest.mark.parametrize("form", [form for form in FORMS if form != "text"])
def test_an_answer_in_another_form_is_none(form):
    with pytest.raises(Unfit):
        FORMS[form]("I am sorry.", "Rewritten text:")


@given(st.text(max_size=60), st.sampled_from(list(FORMS)))
def test_no_answer_is_a_crash(answer, form):
    for take in (lambda: FORMS[form](answer, "x"), lambda: parsed(answer, {"a": "string"}),
                 lambda: parsed('{"a": ' + answer + "}", {"a": "integer"})):
        try:
            take()
        except Unfit as error:
            assert str(error)  # noqa: PT017


def test_packaged_tasks_ask_what_they_say_and_a_score_is_a_number(model):
    model.answer = lambda question: completion("Useful.\nScore: 4")
    out = run_stage(stage(model, task="edu_score", prompt=None, into="edu"), batch("The sea is salt water."))["out"]
    assert (out.column("edu_score"), out.column("edu")) == ([4.0], ["Useful.\nScore: 4"])
    question = model.questions[0]
    assert (question["temperature"], question["max_tokens"]) == (0, 256)
    assert question["messages"][1]["content"].endswith("Text:\nThe sea is salt water.\n")
    for name in packaged():
        prompt = read_prompt(name)
        assert prompt.description
        assert prompt.source


def test_a_prompt_of_ones_own_is_a_file_and_its_text_is_part_of_the_step(model, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("prompt: 'List {text}'\nform: bullets\n")
    model.answer = lambda question: completion("- a\n- b")
    mine = stage(model, task=str(path), prompt=None)
    assert run_stage(mine, batch("x"))["out"].column("answer") == ["a\nb"]
    path.write_text("prompt: 'List all of {text}'\nform: bullets\n")
    assert stage(model, task=str(path), prompt=None).fingerprint() != mine.fingerprint()
    path.write_text("question: x")
    with pytest.raises(ValueError, match="a prompt is a mapping with `prompt`"):
        stage(model, task=str(path), prompt=None)


def test_several_samples_are_children_with_seeds_of_their_own(model):
    model.answer = lambda question: completion(str(question["seed"]))
    out = run_stage(stage(model, samples=3, temperature=1.0, seed=5), batch("a", "b"))["out"]
    assert out.column("id") == ["r0#0", "r0#1", "r0#2", "r1#0", "r1#1", "r1#2"]
    assert (out.column("sample"), out.column("answer")) == ([0, 1, 2] * 2, ["5", "6", "7"] * 2)
    with pytest.raises(ValueError, match="temperature above 0"):
        stage(model, samples=2)


def test_no_question_is_asked_twice_where_answers_are_kept_even_by_another_worker(model, tmp_path):
    lock, asked = threading.Lock(), []

    def answer(question):
        with lock:
            asked.append(question["messages"][-1]["content"])
            return completion("ok") if len(asked) != 7 else (400, {"error": "no"})

    model.answer = answer
    texts = [f"t{n}" for n in range(12)]
    first = run_stage(stage(model, cache=str(tmp_path / "answers"), concurrency=1), batch(*texts))
    assert len(first["failed"]) == 1
    again = run_stage(stage(model, cache=str(tmp_path / "answers")), batch(*texts))
    assert "failed" not in again
    assert len(asked) == 13
    run_stage(stage(model, cache=str(tmp_path / "answers"), temperature=0.5), batch(*texts))
    assert len(asked) == 25


def test_a_server_that_is_out_stops_the_run_and_blames_nobody(model):
    model.answer = lambda question: (401, {"error": "no key"})
    with pytest.raises(StageError, match="no key"):
        run_stage(stage(model), batch("a"))


def test_tokens_and_their_cost_are_told(model):
    asked = stage(model, price_in=2.0, price_out=10.0)
    told = [finding.text for finding in asked.findings("llm", Counts(extra={"tokens_in": 1_500_000, "tokens_out": 200_000}))]
    assert told == ["1,500,000 tokens asked, 200,000 answered, costs 5.00"]


@pytest.mark.parametrize(("options", "told"), [
    ({"prompt": None}, "either `task`"), ({"task": "nothing", "prompt": None}, "no task 'nothing'; there are distil"),
    ({"into": "text"}, "into names the new column"), ({"fields": {"a b": "string"}}, "cannot be the name"),
    ({"fields": {"a": "date"}}, "the type of a"), ({"max_chars": 0}, "max_chars must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Llm(**({"url": "http://localhost/v1", "model": "m", "prompt": "{text}"} | options))


def test_it_keeps_the_rules_of_stages(model):
    model.answer = lambda question: completion(json.dumps({"n": len(question["messages"][-1]["content"])}))
    check_stage(stage(model), batch("a", "bb", None, ""))
    check_stage(stage(model, fields={"n": "integer"}), batch("a", "bb", None))
