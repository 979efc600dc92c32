"""Passages that stand elsewhere are cut out, as plain Python would, and each stays whole somewhere."""

import itertools
import json
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from curator_dedup import DedupSubstring
from curator_dedup.passages import pieces as shared
from curator_dedup.passages.pieces import Texts
from curator_dedup.passages.substring import windows
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.front import from_source, load
from curator.pipeline.plan import make_plan
from curator.stages import Parquet, ToParquet
from packs.dedup.tests.pieces_run import batch, run, split_at, texts

SPACE = " \t\n\r\v\f"
UNITS = st.sampled_from(["words", "chars", "bytes"])
WORDS = st.lists(st.sampled_from(["a", "b", "é", "日", "ab"]), max_size=14).flatmap(
    lambda words: st.lists(st.sampled_from([" ", " ", "\n", "\r\n", "  "]), min_size=len(words), max_size=len(words)).map(
        lambda gaps: "".join(itertools.chain.from_iterable(zip(words, gaps, strict=True)))))
TEXTS = st.one_of(st.none(), WORDS, WORDS.map(str.rstrip), WORDS.map(lambda t: re.sub("[ \r]", "", t)),
                  st.text("aé日", max_size=12))
STAGES = st.builds(DedupSubstring, tokens=st.integers(2, 4), unit=UNITS, copies=st.integers(1, 3), min_left=st.integers(1, 4),
                   action=st.sampled_from(["cut", "cut", "drop"]), min_share=st.sampled_from([0.01, 0.5, 1.0]),
                   shards=st.integers(1, 4))


def tokens_of(text, unit):
    """(value, first byte, byte behind) of each token of the bytes of a text."""
    if unit == "words":
        return [(m.group(), m.start(), m.end()) for m in re.finditer(f"[^{SPACE}]+".encode(), text)]
    if unit == "bytes":
        return [(m.group(), m.start(), m.end()) for m in re.finditer(rb"(?s).", text)]
    found, at = [], 0
    for character in text.decode():
        found.append((character, at, at := at + len(character.encode())))
    return found


def expected(stage, records):
    order = sorted(range(len(records)), key=lambda i: (*records[i][:2], xxhash.xxh3_64_intdigest((records[i][2] or "").encode())))
    cut, kept = repeats(stage, [tokens_of((records[i][2] or "").encode(), stage.unit) for i in order])
    told = {"out": [], "duplicate": []}
    for rank, i in enumerate(order):
        name, _, text = records[i]
        data = (text or "").encode()
        tokens = tokens_of(data, stage.unit)
        inside = {p for place in cut.get(rank, {}) for p in range(place, place + stage.tokens)}
        stays = {p for place in kept.get(rank, ()) for p in range(place, place + stage.tokens)}
        gone = inside - stays if stage.action == "cut" else inside
        left = without(data, tokens, gone)
        if stage.unit == "bytes":
            left = rounded(data, gone)
        left = left.decode()
        share = (len(text or "") - len(left)) / max(1, len(text or ""))
        if stage.action == "cut":
            same = bool(gone) and not stays and len(re.sub(f"[{SPACE}]", "", left)) < stage.min_left
        else:
            same = bool(gone) and share >= stage.min_share
        if same:
            of = records[order[cut[rank][min(cut[rank])]]][0]
            told["duplicate"].append((name, text, of, pytest.approx(share, abs=1e-6)))
        elif stage.action == "cut" and gone:
            spans = sum(p - 1 not in gone for p in gone)
            told["out"].append((name, left, spans, len(text) - len(left)))
        else:
            told["out"].append((name, text, 0, 0))
    return {port: sorted(some, key=lambda r: (r[0], str(r[1]))) for port, some in told.items()}


def repeats(stage, records):
    """By record: the places of windows to cut, with the record of the first one, and the places of those that stay."""
    seen, cut, kept = {}, {}, {}
    for rank, tokens in enumerate(records):
        values = [value for value, _, _ in tokens]
        for place in range(len(values) - stage.tokens + 1):
            stays = seen.setdefault(tuple(values[place:place + stage.tokens]), [])
            if stays and stays[-1][0] == rank and place < stays[-1][1] + stage.tokens:
                continue
            if len(stays) < stage.copies:
                stays.append((rank, place))
            else:
                cut.setdefault(rank, {})[place] = stays[0][0]
                for one, at in stays:
                    kept.setdefault(one, set()).add(at)
    return cut, kept


def without(data, tokens, gone):
    """Runs of tokens go with the space behind them; at the end of a text with that before them."""
    left = b""
    rest = [p for p in range(len(tokens)) if p not in gone]
    if not gone:
        return data
    left = data[:tokens[0][1]]
    for p in rest:
        behind = tokens[p + 1][1] if p + 1 < len(tokens) else len(data)
        left += data[tokens[p][1]:tokens[p][2] if p == rest[-1] else behind]
    return left + data[tokens[-1][2]:]


def rounded(data, gone):
    left, at = b"", 0
    for character in data.decode():
        size = len(character.encode())
        left += b"" if all(p in gone for p in range(at, at + size)) else data[at:at + size]
        at += size
    return left


def told(answer):
    return {"out": [(r["id"], r["text"], r["removed_spans"], r["removed_span_chars"]) for r in answer["out"]],
            "duplicate": [(r["id"], r["text"], r["duplicate_of"], r["similarity"]) for r in answer["duplicate"]]}


@given(st.lists(TEXTS, min_size=1, max_size=6), STAGES, st.integers(1, 3), st.integers(0, 99))
def test_it_cuts_what_plain_python_would_in_any_order_and_number_of_shards(some, stage, parts, seed):
    records = [(f"r{i:03}", "s", text) for i, text in enumerate(some)]
    assert told(run(stage, *split_at(batch(some), parts, seed))) == expected(stage, records)


@given(st.lists(st.tuples(st.sampled_from("ab"), TEXTS), min_size=1, max_size=6), STAGES, st.integers(0, 99))
def test_records_that_share_an_id_are_told_apart(some, stage, seed):
    whole = batch([text for _, text in some], [name for name, _ in some])
    assert told(run(stage, *split_at(whole, 2, seed))) == expected(stage, [(name, "s", text) for name, text in some])


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(2, 4), UNITS)
def test_every_passage_stays_whole_somewhere_and_duplicates_name_records_that_are_written(some, width, unit):
    answer = run(DedupSubstring(tokens=width, unit=unit, shards=2), batch(some))

    def runs(texts):
        values = [[value for value, _, _ in tokens_of((text or "").encode(), unit)] for text in texts]
        return [(tuple(v[at:at + width]), row, at) for row, v in enumerate(values) for at in range(len(v) - width + 1)]

    first, replay = {}, set()
    for window, row, at in runs(some):
        if first.setdefault(window, (row, at)) < (row, at - width + 1):  # not one that only overlaps the first
            replay.add(window)
    assert replay <= {window for window, _, _ in runs(texts(answer))}
    assert {r["duplicate_of"] for r in answer["duplicate"]} <= {r["id"] for r in answer["out"]}


@pytest.mark.parametrize("unit", ["words", "chars", "bytes"])
def test_long_texts_in_small_parts(monkeypatch, unit):
    chooser = random.Random(1)
    passages = [" ".join(chooser.choice(["alpha", "bêta", "gamma", "δ", "x"]) for _ in range(60)) for _ in range(8)]
    some = ["\n".join(chooser.sample(passages, 2)) + f" end {i}" * 5 for i in range(30)]
    monkeypatch.setattr(shared, "CHUNK_BYTES", 1000)
    stage = DedupSubstring(tokens=20, unit=unit, shards=3)
    assert told(run(stage, batch(some))) == expected(stage, [(f"r{i:03}", "s", text) for i, text in enumerate(some)])


@pytest.mark.parametrize("unit", ["words", "chars", "bytes"])
def test_windows_have_one_hash_exactly_when_they_are_equal(unit):
    # Sequences of Thue and Morse are the ones that a polynomial modulo 2^64 tells apart worst.
    bits = [bin(i).count("1") % 2 for i in range(256)]
    some = ["".join("ab"[b] + (" " if unit == "words" else "") for b in row) for row in (bits, [1 - b for b in bits], bits[::-1])]
    width = 64
    values = [[v for v, _, _ in tokens_of(text.encode(), unit)] for text in some]
    plain = [tuple(v[at:at + width]) for v in values for at in range(len(v) - width + 1)]
    hashed = windows(Texts.of_array(batch(some).rows.column("text").combine_chunks().cast("large_string")), unit, width)
    assert len(hashed.hash) == len(plain)
    assert len(set(zip(plain, hashed.hash.tolist(), strict=True))) == len(set(plain)) == len(np.unique(hashed.hash))
    assert len(set(hashed.check.tolist())) == len(set(plain))


def test_a_scope_keeps_groups_apart():
    whole = batch(["a b c d", "a b c d", "a b c d"], site=["p", "q", "p"])
    answer = run(DedupSubstring(tokens=3, scope="site"), whole)
    assert [(r["id"], r["duplicate_of"]) for r in answer["duplicate"]] == [("r002", "r000")]


@pytest.mark.parametrize(("options", "told"), [({"unit": "tokens"}, "unit must be"), ({"tokens": 1}, "tokens must be"),
                                               ({"action": "keep"}, "action must be"), ({"min_share": 0}, "min_share must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        DedupSubstring(**options)


def test_only_texts_can_be_cut(tmp_path):
    pq.write_table(pa.table({"id": ["a"], "text": [1]}), tmp_path / "in.parquet")
    start = from_source(Parquet(path=str(tmp_path / "in.parquet")))
    pipeline = start >> DedupSubstring() >> ToParquet(path=str(tmp_path / "out"))
    with pytest.raises(RecipeError, match=r"stage 'dedup.substring': .* 'text' is int64"):
        make_plan(pipeline)


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_recipe(tmp_path, workers):
    chooser = random.Random(5)
    words = ["red", "green", "blue"]
    rows = [{"id": f"r{i:02}", "text": " ".join(chooser.choice(words) for _ in range(12))} for i in range(60)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "r.yaml").write_text(f"""
name: passages
read: {{jsonl: {{path: {source}}}}}
steps:
  - dedup.substring: {{tokens: 6}}
write: {{jsonl: {{path: {tmp_path / 'out'}, compression: none}}}}
""")
    result = load(str(tmp_path / "r.yaml"), {}).run(workers=workers)
    written = [json.loads(line) for path in (tmp_path / "out/data").glob("*.jsonl") for line in path.read_text().splitlines()]
    plain = expected(DedupSubstring(tokens=6), [(r["id"], "s", r["text"]) for r in rows])
    assert {r["id"]: (r["text"], r["removed_spans"]) for r in written} == {n: (t, spans) for n, t, spans, _ in plain["out"]}
    assert result.records["duplicate"] == len(plain["duplicate"]) > 0
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]
