"""Texts in pieces, with exact places, and documents of pieces again."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
import zstandard
from curator_text import Chunk, Join, Split
from curator_text.pieces.bounds import starts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import read, write
from curator.api.tasks import TextBatch
from curator.stages.drop import Drop
from curator.testing import check_stage, run_stage

TEXT = ("Dr. Smith met J. Doe at 3.5 km. He asked: \"Why?\" Nobody knew!\n\nA second paragraph stands here. It has "
        "two sentences, e.g. this one.\n \nThe third is short.")


def batch(*texts, **columns):
    return TextBatch(rows=pa.table({"id": [f"d{n}" for n in range(len(texts))], "source": ["s"] * len(texts),
                                    "text": pa.array(texts, pa.string()), **columns}))


def pieces(stage, *texts):
    return run_stage(stage, batch(*texts))["out"].rows.to_pylist()


def parts(text, level):
    starts = [*starts_of(text, level), len(text)]
    return [text[a:b].strip() for a, b in pairwise(starts)]


def test_sentences_and_paragraphs():
    assert parts(TEXT, "sentences") == [
        "Dr. Smith met J. Doe at 3.5 km.", 'He asked: "Why?"', "Nobody knew!", "A second paragraph stands here.",
        "It has two sentences, e.g. this one.", "The third is short."]
    assert parts("敏捷的狐狸。它跳！「好吗？」他说。", "sentences") == ["敏捷的狐狸。", "它跳！", "「好吗？」", "他说。"]
    assert parts("यह है। वह था।", "sentences") == ["यह है।", "वह था।"]
    assert [len(part) for part in parts(TEXT, "paragraphs")] == [61, 68, 19]
    assert parts("Don't (ever) stop, ok?", "words") == ["Don't", "(ever)", "stop,", "ok?"]


def test_pieces_are_cut_where_they_may_be():
    assert [row["text"] for row in pieces(Chunk(size=12), "One two three four five")] == ["One two ", "three four ", "five"]
    assert [row["text"] for row in pieces(Chunk(size=3, cut="anywhere"), "abcdefgh")] == ["abc", "def", "gh"]
    assert [row["text"] for row in pieces(Chunk(size=3, by="words", overlap=1), "a b c d e")] == ["a b c ", "c d e"]
    made = pieces(Chunk(size=2, by="sentences"), TEXT)
    assert [row["text"].strip()[-5:] for row in made] == ["Why?\"", "here.", "hort."]
    made = pieces(Chunk(size=80, cut="sentences"), TEXT)
    assert all(len(row["text"]) <= 80 for row in made)
    assert made[0]["text"].strip().endswith("Nobody knew!")
    assert [row["text"] for row in pieces(Chunk(size=4, by="words", size_min=2), "a b c d e")] == ["a b c d e"]
    assert len(pieces(Chunk(size=1, by="paragraphs"), TEXT)) == 3
    long = pieces(Chunk(size=10, cut="paragraphs"), "x" * 25)  # one word, larger than a piece
    assert [row["text"] for row in long] == ["x" * 10, "x" * 10, "x" * 5]


def test_children_say_where_they_stand():
    out = run_stage(Chunk(size=10), batch("One two three", None, " \n", "x", kept=pa.array([1, 2, 3, 4])))
    rows = out["out"].rows.to_pylist()
    assert [row["id"] for row in rows] == ["d0#0", "d0#1", "d3#0"]
    assert [(row["parent"], row["piece"], row["pieces"], row["kept"]) for row in rows] == [
        ("d0", 0, 2, 1), ("d0", 1, 2, 1), ("d3", 0, 1, 4)]
    assert [(row["start"], row["end"]) for row in rows] == [(0, 8), (8, 13), (0, 1)]
    assert out["dropped"].column("reason") == ["no_text", "no_text"]


@given(st.text(alphabet="ab.! \n“狐。é", max_size=60), st.integers(1, 9), st.integers(0, 8),
       st.sampled_from(["characters", "words", "sentences", "paragraphs"]),
       st.sampled_from([None, "anywhere", "words", "sentences", "paragraphs"]))
@settings(max_examples=30, deadline=None)
def test_pieces_cover_the_text_and_join_to_it(text, size, overlap, by, cut):
    stage = Chunk(size=size, by=by, cut=cut, overlap=min(overlap, size - 1))
    answered = run_stage(stage, batch(text))
    if not text.strip():
        assert set(answered) == {"dropped"}
        return
    out = answered["out"]
    rows = out.rows.to_pylist()
    assert all(row["text"] == text[row["start"]:row["end"]] and row["text"] for row in rows)
    assert rows[0]["start"] == 0
    assert rows[-1]["end"] == len(text)
    for before, after in pairwise(rows):
        assert before["start"] < after["start"] <= before["end"] < after["end"]
        assert after["start"] == before["end"] or stage.overlap
        assert by != "characters" or after["end"] - after["start"] <= size
    again = run_stage(Join(), out)["out"].rows.to_pylist()
    assert [(row["id"], row["text"], row["pieces"], row["pieces_missing"]) for row in again] == [("d0", text, len(rows), 0)]


def test_tokens_are_those_of_the_tokenizer(tmp_path):
    import sentencepiece
    from curator_text.tokens import tokenizers as opened

    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"the": 0, "?": 1}, "unk_token": "?"},
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None, "post_processor": None, "decoder": None}))
    made = pieces(Chunk(size=3, by="tokens", tokenizer=str(tmp_path)), "größe (the fox) jumps over")
    assert [row["text"] for row in made] == ["größe (the ", "fox) jumps ", "over"]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["the größe jumps over the dog", "a fox"] * 20), vocab_size=23,
                                             model_prefix=str(tmp_path / "tiny"), minloglevel=2)
    starts = opened.open_tokenizer(str(tmp_path / "tiny.model"), 1).starts("größe fox")
    assert len(starts) == len(opened.open_tokenizer(str(tmp_path / "tiny.model"), 1).encode(["größe fox"])[0])
    assert starts == sorted(starts)
    assert starts[-1] < len("größe fox")


def test_split_at_separators_and_sections():
    made = pieces(Split(separator="---"), "one---two--- ---three", None, "---")
    assert [(row["id"], row["text"], row["start"], row["end"]) for row in made] == [
        ("d0#0", "one", 0, 3), ("d0#1", "two", 6, 9), ("d0#2", "three", 16, 21)]
    assert [row["text"] for row in pieces(Split(pattern=r"\n={3,}\n"), "a\n===\nb\n=====\nc")] == ["a", "b", "c"]
    text = "Before.\n# One #\ntext\n```\n# no heading\n```\n### deep\nmore\n## Two\nend\n"
    made = pieces(Split(sections=2), text)
    assert [(row["section"], row["section_level"]) for row in made] == [(None, None), ("One", 1), ("Two", 2)]
    assert "".join(row["text"] for row in made) == text
    assert "### deep" in made[1]["text"]


def test_join_puts_what_is_left_in_order():
    out = run_stage(Chunk(size=10), batch("One two three four five", "alone", kept=pa.array([1, 2])))["out"]
    edited = out.take([2, 0, 3]).with_columns({"text": pa.array(["FIVE!", "Eins zwei ", "alone"])})
    assert edited.column("piece") == [2, 0, 0]
    rows = run_stage(Join(separator=" | "), edited)["out"].rows.to_pylist()
    assert {row["id"]: (row["text"], row["pieces"], row["pieces_missing"], row["kept"]) for row in rows} == {
        "d0": ("Eins zwei  | FIVE!", 2, 1, 1), "d1": ("alone", 1, 0, 2)}
    assert not {"parent", "piece", "start", "end"} & set(rows[0])


def test_the_stages_keep_the_rules():
    given = batch(TEXT, "", None, "One two three four five six", "敏捷的狐狸。它跳！")
    check_stage(Chunk(size=3, by="words", overlap=1), given)
    check_stage(Chunk(size=2, by="sentences"), given)
    check_stage(Split(pattern=r"\s"), given)
    check_stage(Split(sections=1), given)
    made = run_stage(Chunk(size=3, by="words"), given)["out"]
    loose = made.slice(0, 1).with_columns({name: pa.nulls(1, made.rows.column(name).type) for name in (
        "parent", "piece", "pieces", "start", "end")} | {"id": ["loose"]})
    check_stage(Join(), TextBatch.concat([made, loose]))


@pytest.mark.slow
def test_a_run_conserves_documents_and_their_texts(tmp_path):
    texts = {f"d{n}": f"Word {n} of text. " * n for n in range(6)}
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in texts.items()))
    steps = [Chunk(size=2, by="sentences"), Drop(conditions={"first": "id = 'd5#0'"}), Join(separator="\n")]
    made = read(str(tmp_path / "in.jsonl"))
    for one in steps:
        made = made >> one
    assert (made >> write(str(tmp_path / "out"), format="jsonl")).run(workers=1).ok
    rows = [json.loads(line) for file in (tmp_path / "out/data").glob("*.jsonl*") for line in zstandard.open(file, "rt")]
    texts["d5"] = "Word 5 of text. " * 3
    assert {row["id"]: row["text"] for row in rows} == {i: t for i, t in texts.items() if t}
    assert {row["id"]: row["pieces_missing"] for row in rows if row["pieces_missing"]} == {"d5": 1}


@pytest.mark.parametrize(("parameters", "said"), [
    ({"size": 0}, "size must be 1 or more"), ({"size": 5, "overlap": 5}, "overlap must be from 0 to size - 1"),
    ({"size": 5, "by": "tokens"}, "by: tokens wants a tokenizer"), ({"size": 5, "size_min": 6}, "size_min must be")])
def test_mistakes_are_told(parameters, said):
    with pytest.raises(ValueError, match=said):
        Chunk(**parameters)


def test_mistakes_of_split_are_told():
    with pytest.raises(ValueError, match="one of separator, pattern and sections"):
        Split(separator="x", sections=1)
    with pytest.raises(ValueError, match="no regular expression"):
        Split(pattern="(")
    with pytest.raises(ValueError, match="finds nothing at all"):
        Split(pattern="x*")
