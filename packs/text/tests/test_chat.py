"""Conversations of every layout in one column, what is wrong with them, their text by a template, and their turns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from curator_text import Chat, ChatTemplate, ChatTurns, Join

from curator.api.errors import CuratorError
from curator.api.tasks import TextBatch
from curator.stages.drop import Drop
from curator.testing import check_stage, run_stage

TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message.role not in ('system', 'user', 'assistant', 'tool') %}
{{ raise_exception('no role ' + message.role) }}
{% endif %}
{% if loop.first and tools %}[{{ tools | tojson }}]{% endif %}
<|{{ message.role }}|>{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}{% else %}
{{ message.content | trim }}{% endif %}
{% if message.tool_calls %}{{ message.tool_calls | tojson(sort_keys=true) }}{% continue %}{% endif %}
<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}{% if style is defined %}{{ style }}{% endif %}"""
GOOD = [{"role": "user", "content": "Größe? "}, {"role": "assistant", "content": "12 <b>"}]


def batch(**columns):
    count = len(next(iter(columns.values())))
    return TextBatch(rows=pa.table({"id": [f"c{n}" for n in range(count)], "source": ["s"] * count, **columns}))


def told(stage, **columns):
    return run_stage(stage, batch(**columns))["out"].rows.to_pylist()


def pairs(row):
    return [(one["role"], one["content"]) for one in row["messages"]]


def test_all_layouts_become_one():
    asked = [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello")]
    [row] = told(Chat(), messages=[json.dumps([{"role": "developer", "content": "Be kind."}, {"role": "User", "content": "Hi"},
                                               {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}])])
    assert pairs(row) == asked
    [row] = told(Chat(layout="sharegpt"), system=["Be kind."],
                 conversations=[[{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]])
    assert pairs(row) == asked
    rows = told(Chat(layout="alpaca"), instruction=["Hi", "Add", None], input=["", "1 2", None], output=["Hello", None, None],
                system=["Be kind.", None, None], history=[None, [["a", "b"]], None])
    assert pairs(rows[0]) == asked
    assert pairs(rows[1]) == [("user", "a"), ("assistant", "b"), ("user", "Add\n\n1 2")]
    assert (rows[1]["answered"], rows[1]["turns"]) == (False, 3)
    assert rows[2]["messages"] is rows[2]["turns"] is rows[2]["answered"] is None
    stage = Chat(layout="prompt_response", columns={"prompt": "question", "response": "answer"})
    [row] = told(stage, question=["Hi"], answer=["Hello"], system=["Be kind."])
    assert pairs(row) == asked
    [row] = told(Chat(layout="prompt_response"), prompt=[GOOD[:1]], response=[GOOD[1:]])
    assert row["messages"] == GOOD


CASES = {  # what is wrong, by the rule that drops it
    None: GOOD,
    "no_messages": [{"role": "system", "content": "x"}],
    "unknown_role": [*GOOD, {"role": "narrator", "content": "x"}],
    "roles_do_not_alternate": [GOOD[0], GOOD[0], GOOD[1]],
    "no_answer": GOOD[:1],
    "empty_turn": [{"role": "user", "content": " "}, GOOD[1]]}


def test_the_rules_find_what_is_wrong():
    texts = [json.dumps(chat) for chat in CASES.values()]
    out = run_stage(Chat(), batch(messages=texts))["out"]
    rows = out.rows.to_pylist()
    assert rows[0]["chat_chars"] == 7 + 6
    assert (rows[0]["answer_chars"], rows[0]["first_role"], rows[0]["roles_alternate"]) == (6, "user", True)
    dropped = run_stage(Drop(rules="chat"), out)["dropped"]
    assert dropped.column("reason") == list(CASES)[1:]


def test_tools_and_parts_that_are_no_text():
    chat = [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "look", "arguments": {"at": "u"}}]},
            {"role": "tool", "content": "a cat"}, {"role": "assistant", "content": "A cat."}]
    [row] = told(Chat(tools=True), messages=[json.dumps(chat)])
    assert (row["tool_calls"], row["other_parts"], row["empty_turns"], row["roles_alternate"], row["answered"]) == (1, 1, 0, True, True)
    assert json.loads(row["messages"][1]["tool_calls"]) == chat[1]["tool_calls"]
    assert row["messages"][3] == {"role": "assistant", "content": "A cat.", "tool_calls": None}


@pytest.mark.parametrize(("value", "said"), [
    ("no json", "is no JSON"), ("{}", "not dict"), ("[1]", "message 0 is int"), ('[{"role": "user", "content": "\\ud83d"}]', "surrogate"),
    ('[{"content": "x"}]', "message 0 has no role"),
    ('[{"role": "user", "content": 3}]', "content of message 0 is int")])
def test_what_is_no_conversation_fails(value, said):
    out = run_stage(Chat(), batch(messages=[value, None, "[]"]))
    assert said in out["failed"].column("error")[0]
    assert out["out"].column("turns") == [None, 0]


def test_a_system_or_a_history_that_is_no_text_fails_alone():
    out = run_stage(Chat(layout="sharegpt"), batch(conversations=[GOOD, GOOD], system=[3, None]))
    assert out["failed"].column("error") == ["ValueError: system is int and no text"]
    out = run_stage(Chat(layout="alpaca"), batch(instruction=["a"] * 3, output=["b"] * 3, history=['[["c", "d"]]', "[[1, 2]]", "c"]))
    assert pairs(out["out"].rows.to_pylist()[0])[:2] == [("user", "c"), ("assistant", "d")]
    assert ["no JSON" in error or "pairs of question" in error for error in out["failed"].column("error")] == [True, True]


def test_templates_write_texts(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": {"content": "<s>"}, "chat_template": [{"name": "default", "template": TEMPLATE}, {"name": "x", "template": "X"}]}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"the": 0, "?": 1}, "unk_token": "?"},
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None, "post_processor": None, "decoder": None}))
    chats = [GOOD, None, [{"role": "poet", "content": "x"}]]
    given = batch(messages=pa.array(chats), tools=pa.array(['[{"name": "löök"}]', None, None], pa.string()))
    stage = ChatTemplate(tokenizer=str(tmp_path), tokens_by=str(tmp_path), tools="tools", variables={"style": "!"})
    out = run_stage(stage, given)
    [row, nothing] = out["out"].rows.to_pylist()
    assert row["text"] == '<s>[[{"name": "löök"}]]<|user|>Größe?<|end|>\n<|assistant|>12 <b><|end|>\n!'
    assert (row["chars"], row["tokens"] > 5) == (len(row["text"]), True)
    assert nothing["text"] is nothing["chars"] is nothing["tokens"] is None
    assert out["failed"].column("error") == ["TemplateError: no role poet"]
    check_stage(stage, given)
    [row] = told(ChatTemplate(tokenizer=str(tmp_path), generation_prompt=True), messages=[GOOD[:1]])
    assert row["text"].endswith("<|end|>\n<|assistant|>")
    [row] = told(ChatTemplate(tokenizer=str(tmp_path / "tokenizer_config.json"), variant="x"), messages=[GOOD])
    assert row["text"] == "X"
    calls = told(Chat(tools=True), messages=[json.dumps([GOOD[0], {"role": "assistant", "tool_calls": [{"name": "a"}]}])])
    [row] = told(ChatTemplate(tokenizer=str(tmp_path)), messages=[calls[0]["messages"]])
    assert row["text"].endswith('<|assistant|>[{"name": "a"}]')
    with pytest.raises(CuratorError, match="no chat template 'y'"):
        run_stage(ChatTemplate(tokenizer=str(tmp_path), variant="y"), given)


def test_templates_are_run_in_a_sandbox_and_know_no_clock(tmp_path):
    def written(source, **parameters):
        (tmp_path / "t.jinja").write_text(source)
        out = run_stage(ChatTemplate(template=str(tmp_path / "t.jinja"), **parameters), batch(messages=[GOOD]))
        return out["out"].column("text")[0] if "failed" not in out else out["failed"].column("error")[0]

    assert "SecurityError" in written("{{ messages.__class__.__mro__ }}")
    assert "SecurityError" in written("{{ messages.append(1) }}")
    assert "say one by `date`" in written("{{ strftime_now('%d %b %Y') }}")
    assert written("{{ strftime_now('%d %b %Y') }}", date="2024-02-03") == "03 Feb 2024"
    with pytest.raises(CuratorError, match="cannot be read"):
        written("{% for %}")
    with pytest.raises(CuratorError, match=r"cannot be read: .*none.jinja"):
        run_stage(ChatTemplate(template=str(tmp_path / "none.jinja")), batch(messages=[GOOD]))
    with pytest.raises(ValueError, match="a tokenizer with a template, or a template"):
        ChatTemplate()


@pytest.mark.slow
def test_texts_are_those_of_transformers(tmp_path):
    from transformers.utils.chat_template_utils import render_jinja_template

    (tmp_path / "t.jinja").write_text(TEMPLATE)
    for chat in (GOOD, [{"role": "system", "content": " a\n"}, *GOOD]):
        for begin in (False, True):
            stage = ChatTemplate(template=str(tmp_path / "t.jinja"), generation_prompt=begin, variables={"bos_token": "<s>"})
            theirs, _ = render_jinja_template([chat], chat_template=TEMPLATE, add_generation_prompt=begin, bos_token="<s>")
            assert told(stage, messages=[chat])[0]["text"] == theirs[0]


def test_turns_are_records_and_become_conversations_again():
    given = batch(messages=pa.array([GOOD, None, [], [*GOOD, *GOOD]]), kept=[1, 2, 3, 4])
    out = run_stage(ChatTurns(), given)
    rows = out["out"].rows.to_pylist()
    assert [(row["id"], row["role"], row["text"], row["kept"]) for row in rows[:3]] == [
        ("c0#0", "user", "Größe? ", 1), ("c0#1", "assistant", "12 <b>", 1), ("c3#0", "user", "Größe? ", 4)]
    assert out["dropped"].column("reason") == ["no_turns"] * 2
    loud = out["out"].with_columns({"text": [text.upper() for text in out["out"].column("text")]})
    again = run_stage(Join(messages=True), loud)["out"].rows.to_pylist()
    assert [(row["id"], row["kept"], row["pieces_missing"]) for row in again] == [("c0", 1, 0), ("c3", 4, 0)]
    assert pairs(again[0]) == [("user", "GRÖSSE? "), ("assistant", "12 <B>")]
    assert len(again[1]["messages"]) == 4
    assert not {"role", "calls_tools", "parent"} & set(again[0])
    check_stage(ChatTurns(), given)
    check_stage(Join(messages=True), out["out"])


def test_the_stage_keeps_the_rules():
    texts = [*(json.dumps(chat) for chat in CASES.values()), None, "x"]
    check_stage(Chat(), batch(messages=texts))
    check_stage(Chat(layout="alpaca"), batch(instruction=["a", None, "c"], output=["x", None, ""]))
    with pytest.raises(ValueError, match="'question' is none of the columns of prompt_response"):
        Chat(layout="prompt_response", columns={"question": "prompt"})
