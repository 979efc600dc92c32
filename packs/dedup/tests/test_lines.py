"""Lines and paragraphs that stand elsewhere are cut out, as plain Python would, and nothing is lost."""

import json
import random
import re
import unicodedata
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from curator_dedup import DedupLines
from curator_dedup.passages import repeated
from curator_dedup.passages.pieces import Texts
from curator_dedup.shared import store
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import ContractError, RecipeError
from curator.front import from_source, load
from curator.pipeline.plan import make_plan
from curator.stages import Jsonl, ToJsonl
from packs.dedup.tests.pieces_run import batch, run, split_at, texts

SPACE = " \t\n\r\v\f"
LINES = st.sampled_from(["", " ", "a", "A", "b", "é", "É", "e\u0301", "ﬁn", "fin", "a  b", " A b ", "日本語", "\u3000",
                         "long line here", "Long  line\there", "\u2028", "\x85x", "b\r"])
TEXTS = st.one_of(st.none(), st.lists(st.tuples(LINES, st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\n \n"])), max_size=6).map(
    lambda some: "".join(line + end for line, end in some)).flatmap(lambda t: st.sampled_from([t, t.rstrip("\n"), t.rstrip()])))
STAGES = st.builds(DedupLines, unit=st.sampled_from(["line", "paragraph"]), copies=st.integers(1, 3), normalize=st.booleans(),
                   min_chars=st.integers(1, 4), min_words=st.integers(0, 3), min_left=st.integers(1, 5), shards=st.integers(1, 4))


def pieces_of(text, unit):
    """What stands before the first piece, and each piece with what follows it."""
    lines = re.findall(r"[^\n]*?(?:\r?\n|$)", text)
    lines = [re.fullmatch(r"(.*?)(\r?\n|)", line, re.DOTALL).groups() for line in lines if line]
    if unit == "line":
        return "", lines
    before, pieces, inside = "", [], False
    for line, end in lines:
        if not line.strip(SPACE):
            if pieces:
                pieces[-1] = pieces[-1][0], pieces[-1][1] + line + end
            else:
                before += line + end
            inside = False
        elif inside:
            pieces[-1] = "".join(pieces[-1]) + line, end
        else:
            pieces.append((line, end))
            inside = True
    return before, pieces


def form(piece, normalize):
    if not normalize:
        return piece
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", piece).casefold())
    return " ".join(w for w in re.split(f"[{SPACE}]+", text) if w)


def counts(stage, form):
    words = [w for w in re.split(f"[{SPACE}]+", form) if w]
    return len(form) >= stage.min_chars and len(words) >= max(1, stage.min_words)


def expected(stage, records):
    """By port, (id, text) and what else is told of it; records are (id, source, text)."""
    order = sorted(range(len(records)), key=lambda i: (*records[i][:2], xxhash.xxh3_64_intdigest((records[i][2] or "").encode())))
    seen, told = {}, {"out": [], "duplicate": []}
    for i in order:
        name, _, text = records[i]
        before, pieces = pieces_of(text or "", stage.unit)
        forms = [form(piece, stage.normalize) for piece, _ in pieces]
        cut, stays = [], 0
        for place, some in enumerate(forms):
            holders = seen.setdefault(some, [])
            if not counts(stage, some):
                continue
            if len(holders) >= stage.copies:
                cut.append(place)
            else:
                holders.append(name)
                stays += 1
        if not cut:
            told["out"].append((name, text, 0, 0))
            continue
        kept = [piece + end for place, (piece, end) in enumerate(pieces) if place not in cut]
        rest = [place for place in range(len(pieces)) if place not in cut]
        left = before + "".join(kept[:-1]) + (pieces[rest[-1]][0] if rest else "") + pieces[-1][1]
        if not stays and len(re.sub(f"[{SPACE}]", "", left)) < stage.min_left:
            best = max(cut, key=lambda place: (len(forms[place]), -place))
            told["duplicate"].append((name, text, seen[forms[best]][0], pytest.approx(1 - len(left) / len(text), abs=1e-6)))
        else:
            told["out"].append((name, left, len(cut), len(text) - len(left)))
    return {port: sorted(some, key=lambda r: (r[0], str(r[1]))) for port, some in told.items()}


def told(answer):
    return {"out": [(r["id"], r["text"], r["removed_lines"], r["removed_chars"]) for r in answer["out"]],
            "duplicate": [(r["id"], r["text"], r["duplicate_of"], r["similarity"]) for r in answer["duplicate"]]}


@given(st.lists(TEXTS, min_size=1, max_size=7), STAGES, st.integers(1, 3), st.integers(0, 99))
def test_it_cuts_what_plain_python_would_in_any_order_and_number_of_shards(some, stage, parts, seed):
    whole = batch(some)
    records = [(f"r{i:03}", "s", text) for i, text in enumerate(some)]
    assert told(run(stage, *split_at(whole, parts, seed))) == expected(stage, records)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("st"), TEXTS), min_size=1, max_size=7), STAGES,
       st.integers(0, 99))
def test_records_that_share_an_id_are_told_apart(some, stage, seed):
    records = [(name, source, text) for name, source, text in some]
    whole = batch([text for *_, text in some], [name for name, *_ in some], [source for _, source, _ in some])
    assert told(run(stage, *split_at(whole, 2, seed))) == expected(stage, records)


@given(st.lists(TEXTS, min_size=1, max_size=7), STAGES)
def test_each_line_stays_as_often_as_it_may_and_who_lost_all_names_a_record_that_has_it(some, stage):
    answer = run(stage, batch(some))

    def often(texts):
        found = {}
        for text in texts:
            for piece, _ in pieces_of(text or "", stage.unit)[1]:
                found[form(piece, stage.normalize)] = found.get(form(piece, stage.normalize), 0) + 1
        return {f: n for f, n in found.items() if counts(stage, f)}

    before = often(some)
    if stage.unit == "line":
        assert often(texts(answer)) == {f: min(n, stage.copies) for f, n in before.items()}
    written = {r["id"]: r["text"] for r in answer["out"]}
    for record in answer["duplicate"]:
        mine = often([record["text"]])
        assert set(mine) & set(often([written[record["duplicate_of"]]]))
        assert set(mine) <= set(often(written.values()))


def test_what_is_not_cut_keeps_every_byte():
    odd = ["\n\n x \r\n\ty\n", "\ufeffz", "a\r", "\r\n", "", None, "tail \n\n"]
    answer = run(DedupLines(min_chars=1), batch(odd))
    assert sorted(map(str, texts(answer))) == sorted(map(str, odd))
    assert {r["removed_lines"] for r in answer["out"]} == {0}


def test_short_lines_are_left_alone():
    same = "}\nHome\nThis line is long enough to be compared\n"
    assert texts(run(DedupLines(), batch([same, same + "more of it, and long enough to stay\n"]))) == [
        same, "}\nHome\nmore of it, and long enough to stay\n"]
    assert texts(run(DedupLines(min_words=10), batch([same, "of " * 10, same, "OF " * 10 + "\ny"]))) == [
        same, "of " * 10, same, "y"]


def test_a_record_that_keeps_a_line_of_its_own_is_no_duplicate_however_little_is_left():
    assert texts(run(DedupLines(min_chars=1, min_left=3), batch(["a", "a\nb"]))) == ["a", "b"]


def test_of_records_with_one_id_the_first_source_keeps_the_line():
    for some in (["x\none", "x\ntwo"], ["x\ntwo", "x\none"]):  # whichever text has the smaller hash
        answer = run(DedupLines(min_chars=1), batch(some, ["a", "a"], ["s", "t"]))
        assert {r["source"]: r["text"] for r in answer["out"]} == {"s": some[0], "t": some[1][2:]}


def test_the_longest_cut_line_says_of_whom_it_is_a_duplicate():
    answer = run(DedupLines(min_chars=1), batch(["short", "much longer", "short\nmuch longer"]))
    assert [r["duplicate_of"] for r in answer["duplicate"]] == ["r001"]


def test_a_line_ends_as_it_did_when_the_last_is_cut():
    answer = run(DedupLines(min_chars=1), batch(["x\n", "a\nx", "b\nx\n", "c\r\nx", "x\nd", "x\r\ne\r\n"]))
    assert texts(answer) == ["x\n", "a", "b\n", "c", "d", "e\r\n"]


def test_a_scope_keeps_groups_apart():
    whole = batch(["one line", "one line", "one line", "one line"], site=["p", "q", "p", None])
    answer = run(DedupLines(scope="site", min_chars=1), whole)
    assert [r["id"] for r in answer["out"]] == ["r000", "r001", "r003"]
    assert [(r["id"], r["duplicate_of"]) for r in answer["duplicate"]] == [("r002", "r000")]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_column_keeps_its_type(kind):
    values = pa.array(["one line", "one line\ntwo", None]).cast(pa.string())
    values = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    for given_texts in (values, pa.chunked_array([values.slice(0, 1), values.slice(1)])):
        assert texts(run(DedupLines(min_chars=1), batch(given_texts))) == ["one line", "two", None]


def test_more_pieces_than_memory_may_hold_and_than_are_sorted_at_a_time(monkeypatch):
    chooser = random.Random(3)
    some = ["\n".join(f"line {chooser.randrange(300)}" for _ in range(20)) for _ in range(50)]
    records = [(f"r{i:03}", "s", text) for i, text in enumerate(some)]
    monkeypatch.setattr(store, "RUN", 64)
    monkeypatch.setattr(repeated, "SEND_ROWS", 7)
    for memory_bytes in (1, 2000, 1 << 30):
        stage = DedupLines(min_chars=1, shards=2, memory_bytes=memory_bytes)
        assert told(run(stage, *split_at(batch(some), 6, 1))) == expected(stage, records)


def test_what_agrees_in_64_bits_but_not_in_96_is_not_equal():
    hashes, keys, sizes = np.array([7, 7, 7], np.uint64), np.array([0, 1, 2]), np.array([5, 5, 5], np.uint32)
    cut, *_ = repeated.chosen(hashes, np.array([1, 2, 1], np.uint32), keys, sizes, copies=1, span=1)
    assert cut.tolist() == [2]


ONE, TWO, THREE, FOUR, FIVE = (f"{word} is a sentence." for word in ("One", "Two", "Three", "Four", "Five"))
SPANS = [  # the texts, and what is left of each
    ([f"{ONE} {TWO} {THREE} {FOUR}", f"So it begins! {ONE.upper()}\n{TWO}  {THREE} It ends? Yes.",
      f"{TWO} {THREE} {FOUR} Rest."],
     [f"{ONE} {TWO} {THREE} {FOUR}", "So it begins! It ends? Yes.", "Rest."]),
    ([f"{ONE} {TWO}", f"{ONE} {TWO}"], [f"{ONE} {TWO}"] * 2),  # fewer than three
    # what stays for the last one is whole
    ([f"{ONE} {TWO} {THREE}", f"{ONE} {TWO} {THREE} {FOUR} {FIVE}", f"Oh. {THREE} {FOUR} {FIVE}"],
     [f"{ONE} {TWO} {THREE}", f"{THREE} {FOUR} {FIVE}", "Oh."]),
    (["\n 我们在这里。你好！真的吗？好。", "我们在这里。你好！真的吗？不好。", None, ""],
     ["\n 我们在这里。你好！真的吗？好。", "不好。", None, ""]),
    (['He said "so." Then (he left.) And came… back. x', 'He said "so." Then (he left.) And came… back. y'],
     ['He said "so." Then (he left.) And came… back. x', "y"])]


@pytest.mark.parametrize(("given", "left"), SPANS, ids=range(len(SPANS)))
def test_all_but_one_of_equal_spans_of_sentences_are_cut(given, left):
    stage = DedupLines(unit="sentence", span=3, min_chars=1, shards=2)
    assert [r["text"] for r in sorted(run(stage, batch(given))["out"], key=lambda r: r["id"])] == left
    whole = run(stage, batch([*given, given[0]]))["duplicate"]
    assert [r["duplicate_of"] for r in whole] == (["r000"] if left[1] != given[1] else [])


@given(st.lists(st.lists(st.sampled_from(["a. ", "b. ", "c.\n", "d! "]), max_size=8).map("".join), min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_span_that_several_records_have_stays_whole_in_one(some):
    answer = run(DedupLines(unit="sentence", span=3, min_chars=1, shards=2), batch(some))

    def spans(text):
        words = text.split()
        return {tuple(words[at:at + 3]) for at in range(len(words) - 2)}

    shared = {span for one, other in combinations(some, 2) for span in spans(one) & spans(other)}
    assert shared <= set().union(*(spans(r["text"]) for r in answer["out"]))
    for record in answer["out"]:
        assert record["removed_lines"] or record["text"] == some[int(record["id"][1:])]
        assert len(record["text"].split()) + record["removed_lines"] == len(some[int(record["id"][1:])].split())


def test_a_slice_of_a_column_is_read_from_its_own_place():
    sliced = pa.array(["zzz", "é\n", None, "b"], pa.large_string()).slice(1)
    read = Texts.of_array(sliced)
    assert read.array().to_pylist() == ["é\n", "", "b"]


@pytest.mark.parametrize(("options", "told"), [({"unit": "word"}, "unit must be"), ({"copies": 0}, "copies must be"),
                                               ({"span": 0}, "span must be"),
                                               ({"min_chars": 0}, "min_chars must be"), ({"min_left": 0}, "min_left must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        DedupLines(**options)


def test_the_plan_knows_the_columns(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "body": "x", "n": 1}\n')
    start = from_source(Jsonl(path=str(tmp_path / "in.jsonl")))
    with pytest.raises(ContractError, match=r"'dedup.lines' needs 'text'"):
        make_plan(start >> DedupLines() >> ToJsonl(path=str(tmp_path / "out")))


RECIPE = """
name: lines
read: {{jsonl: {{path: {source}}}}}
steps:
  - dedup.lines: {{min_chars: 1, copies: 1}}
  - dedup.substring: {{tokens: 3}}
write: {{jsonl: {{path: {out}, compression: none}}}}
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_recipe(tmp_path, workers):
    chooser = random.Random(5)
    rows = [{"id": f"r{i:02}", "text": "\n".join(f"{chooser.randrange(60)}th line" for _ in range(4)), "n": i} for i in range(40)]
    rows += [{"id": "s0", "text": "nine ten one two three four\nzz"}, {"id": "s1", "text": "five one two three six\nzz"}]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "r.yaml").write_text(RECIPE.format(source=source, out=tmp_path / "out"))
    result = load(str(tmp_path / "r.yaml"), {}).run(workers=workers)
    written = [json.loads(line) for path in (tmp_path / "out/data").glob("*.jsonl") for line in path.read_text().splitlines()]
    plain = expected(DedupLines(min_chars=1), [(r["id"], "s", r["text"]) for r in rows])
    want = {name: text for name, text, *_ in plain["out"]} | {"s1": "five six"}
    assert {r["id"]: r["text"] for r in written} == want
    stages = {s["name"]: s for s in result.stats["stages"]}
    assert stages["dedup.lines"]["duplicate"] == len(plain["duplicate"]) > 0
    assert (stages["dedup.lines"]["in"], stages["dedup.lines"]["absorbed"]) == (len(rows), 0)
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]
    duplicates = [p for p in (tmp_path / "out" / "duplicate").rglob("*") if p.is_file()]
    assert duplicates
