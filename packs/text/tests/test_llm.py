"""Language models behind a server: what is asked, what is taken of an answer, and what each record gets."""

import json
import threading

import pyarrow as pa
import pytest
from curator_text import Llm
from curator_text.llm.forms import FORMS, Case, Unfit
from curator_text.llm.pieces import Pieces, cut, tokens_of
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
    text, number = FORMS[form](answer, Case(announced="Rewritten text:"))
    assert number == score
    assert kept is None or text == kept


@pytest.mark.parametrize("form", [form for form in FORMS if form != "text"])
def test_an_answer_in_another_form_is_none(form):
    with pytest.raises(Unfit):
        FORMS[form]("I am sorry.", Case(announced="Rewritten text:"))


@given(st.text(max_size=60), st.sampled_from(list(FORMS)))
def test_no_answer_is_a_crash(answer, form):
    for take in (lambda: FORMS[form](answer, Case(announced="x")), lambda: parsed(answer, {"a": "string"}),
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


def test_half_of_a_surrogate_pair_is_no_character_and_costs_no_other_record(model):
    model.answer = lambda question: completion("a\ud83d" if "plain" in str(question) else '{"n": "\\ud83d"}')
    assert run_stage(stage(model), batch("plain"))["out"].column("answer") == ["a?"]
    ports = run_stage(stage(model, fields={"n": "string"}), batch("x"))
    assert "half of a surrogate pair" in ports["failed"].column("error")[0]


def test_a_server_that_is_out_stops_the_run_and_blames_nobody(model):
    model.answer = lambda question: (401, {"error": "no key"})
    with pytest.raises(StageError, match="no key"):
        run_stage(stage(model), batch("a"))


def test_tokens_and_their_cost_are_told(model):
    asked = stage(model, price_in=2.0, price_out=10.0)
    told = [finding.text for finding in asked.findings("llm", Counts(extra={"tokens_in": 1_500_000, "tokens_out": 200_000}))]
    assert told == ["1,500,000 tokens asked, 200,000 answered, costs 5.00"]
    more = Counts(extra={"kept_tokens_in": 30, "kept_tokens_out": 4, "unfit": 2, "pieces_lost": 1, "lines_left": 5})
    assert [finding.text.split(",")[0] for finding in asked.findings("llm", more)] == [
        "30 tokens asked and 4 answered before", "2 answers that were not what was asked for", "1 pieces of texts left out",
        "5 lines left as they were"]


@pytest.mark.parametrize(("options", "told"), [
    ({"prompt": None}, "either `task`"), ({"task": "nothing", "prompt": None}, "no task 'nothing'; there are distil"),
    ({"into": "text"}, "into names the new column"), ({"fields": {"a b": "string"}}, "cannot be the name"),
    ({"fields": {"a": "date"}}, "the type of a"), ({"attempts": 2, "seed": None, "cache": "x"}, "attempts want a seed"),
    ({"max_chars": 0}, "max_chars must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Llm(**({"url": "http://localhost/v1", "model": "m", "prompt": "{text}"} | options))


def test_it_keeps_the_rules_of_stages(model):
    model.answer = lambda question: completion(json.dumps({"n": len(question["messages"][-1]["content"])}))
    check_stage(stage(model), batch("a", "bb", None, ""))
    check_stage(stage(model, fields={"n": "integer"}), batch("a", "bb", None))


TASKS = {"rephrase": "Rewritten text:\n", "distil": "Condensed text:\n", "extract_knowledge": "", "knowledge_list": "Facts:\n- ",
         "diverse_qa": "Question: Is it wet?\nAnswer: Yes.\n\nQuestion: "}


@pytest.mark.parametrize("task", TASKS)
def test_tasks_of_nemotron_cc_ask_about_pieces_and_clean_what_comes(model, task):
    lines = [f"Line {n} says that the sea is wide and deep and full of salt, as all know." for n in range(150)]
    sizes = read_prompt(task).pieces
    prose = "**The sea** is [salt water](http://x/y). " + "It is wide and deep. " * 20
    model.answer = lambda question: completion(TASKS[task] + (prose if task != "diverse_qa" else "Why?\nAnswer: " + prose))
    ports = run_stage(stage(model, task=task, prompt=None), batch("\n".join(lines), "too short", None))
    row = ports["out"].rows.to_pylist()[0]
    asked = [question["messages"][1]["content"].split("\nText:\n")[1].rstrip("\n") for question in model.questions]
    assert "\n".join(sorted(asked, key=lambda piece: lines.index(piece.split("\n")[0]))) == "\n".join(lines)
    assert all(len(piece) <= 4 * sizes.most for piece in asked)
    assert (row["answer_pieces"], row["answer_pieces_lost"]) == (len(asked), 0)
    assert len(asked) > 1
    assert ports["out"].column("answer")[2] is None
    if task != "diverse_qa":
        assert not TASKS[task] or TASKS[task].strip() not in row["answer"]
        assert "The sea is salt water. It is" in row["answer"]
        assert row["answer"].count("The sea is salt water") == len(asked)
    else:
        assert row["answer"].startswith(lines[0])
        assert row["answer"].count("Answer: ") >= len(asked)


def test_a_piece_without_a_fitting_answer_is_left_out_and_counted(model):
    def answer(question):
        text = question["messages"][1]["content"]
        return completion("Rewritten text: " + "It is a sea. " * 20 if "uno " in text else "No.", "length" if "dos " in text else "stop")

    model.answer = answer
    text = "\n".join(f"{word} " * 400 for word in ("uno", "dos", "tres", "uno"))
    ports = run_stage(stage(model, task="rephrase", prompt=None), batch(text, "tres " * 30))
    row = ports["out"].rows.to_pylist()[0]
    assert (row["answer_pieces"], row["answer_pieces_lost"], row["answer"].count("It is a sea. It")) == (4, 2, 20)
    assert ports["failed"].column("id") == ["r1"]


def test_which_pairs_are_kept_is_chance_and_the_same_each_time(model):
    model.answer = lambda question: completion("\n".join(f"Question: Q{n}?\nAnswer: A{n} {'x' * 60}." for n in range(9)))
    texts = batch(*["The sea is wide. " * 30] * 12)
    first, again = (run_stage(stage(model, task="diverse_qa", prompt=None), texts)["out"].column("answer") for _ in range(2))
    assert first == again
    assert len({text.count("Question:") for text in first if text}) > 3
    assert any(text.index("Q1?") < text.index("Q0?") for text in first if "Q1?" in text and "Q0?" in text)


@given(st.text(st.sampled_from("ab \nä世"), max_size=400), st.integers(1, 40))
def test_pieces_are_whole_lines_and_nothing_is_lost(text, most):
    pieces = cut(text, Pieces(most=most))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(tokens_of(piece) <= most or len(piece) == 1 for piece in pieces)


@pytest.mark.parametrize(("text", "told"), [
    ("pieces: {least: 3}", "pieces is a mapping with `most` and maybe least"), ("clean: [html]", "no 'html'"),
    ("form: score\npieces: {most: 5}", "so no score"), ("pairs: {most: 1, of_tokens: 2}", "belongs to the form")],
    ids=["pieces", "clean", "score", "pairs"])
def test_a_prompt_that_makes_no_sense_is_refused(tmp_path, text, told):
    (tmp_path / "mine.yaml").write_text("prompt: '{text}'\n" + text)
    with pytest.raises(ValueError, match=told):
        read_prompt(str(tmp_path / "mine.yaml"))


def test_an_unfit_answer_is_asked_for_again_with_another_seed(model):
    model.answer = lambda question: completion('{"n": 1}' if question["seed"] else "well", tokens=2)
    asked = stage(model, fields={"n": "integer"}, attempts=2)
    assert run_stage(asked, batch("a"))["out"].column("n") == [1]
    assert [(question["seed"], question["temperature"]) for question in model.questions] == [(0, 0.0), (1000, 0.5)]
    run_stage(stage(model, fields={"n": "integer"}, attempts=2, options={"temperature": None}), batch("a"))
    assert "temperature" not in model.questions[-1]
