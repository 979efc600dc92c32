"""Repeated lines cut out while records flow by: the first stay, whatever is shown again and wherever a run was cut."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup import DedupLines
from curator_dedup.passages.lines_stream import LinesStream
from curator_dedup.shared.arrays import turns
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError, TextBatch
from curator.api.stage import Context
from curator.front import from_source, load
from curator.stages import Jsonl
from curator.testing import check_stage


def stage(**parameters):
    made = part(**parameters)
    made.setup(Context())
    return made


def part(min_chars=1, **parameters):
    """The stage that `dedup.lines` becomes."""
    composite = DedupLines(mode="stream", min_chars=min_chars, **parameters)
    made = composite.expand(from_source(Jsonl(path="nothing")), "", None).nodes()[-1].stage
    assert isinstance(made, LinesStream)
    return made


def batch(texts, unit=0, ids=None, source="s", **columns):
    """A text is a string, of which each character is a line, or None."""
    texts = [None if text is None else "\n".join(text) for text in texts]
    return plain(texts, unit, ids, source, **columns)


def plain(texts, unit=0, ids=None, source="s", **columns):
    units = [unit] * len(texts) if isinstance(unit, int) else unit
    ids = ids or [f"u{unit}-{row}" for row, unit in enumerate(units)]
    return TextBatch(pa.table({"id": ids, "source": [source] * len(texts), "text": pa.array(texts, pa.string()), **columns,
                               "_unit": pa.array(units, pa.int32())}))


def answers(made, given_):
    """For each row the lines that are left; for a duplicate [what it is a duplicate of]."""
    given_ = given_.with_columns({"_row": pa.array(range(len(given_)), pa.int32())})
    outputs, told = made.process(given_), [None] * len(given_)
    for row, text in zip(*(outputs["out"].column(name) for name in ("_row", "text")), strict=True):
        told[row] = None if text is None else text.replace("\n", "")
    if "duplicate" in outputs:
        for row, of in zip(*(outputs["duplicate"].column(name) for name in ("_row", "duplicate_of")), strict=True):
            told[row] = [of]
    assert sum(map(len, outputs.values())) == len(given_)
    return told


def test_the_first_copies_stay():
    made = stage()
    assert answers(made, batch(["ab", None, "bc", "ca", "", "dd"])) == ["ab", None, "c", ["u0-2"], "", "d"]
    assert answers(made, batch(["ae", "e", "f"], unit=1)) == ["e", ["u1-0"], "f"]
    made = stage(copies=2)
    assert answers(made, batch(["aab", "ab", "a"])) == ["aab", "b", ["u0-0"]]
    assert answers(made, batch(["bc", "bd", "cc"], unit=1)) == ["c", "d", "c"]


def test_what_was_cut_is_told_as_in_mode_cluster():
    made = stage()
    outputs = made.process(plain(["one\ntwo three\n", "x\ntwo three", "Two  THREE\none", "q\nq"]))
    assert outputs["out"].rows.select(["text", "removed_lines", "removed_chars"]).to_pylist() == [
        {"text": "one\ntwo three\n", "removed_lines": 0, "removed_chars": 0},
        {"text": "x", "removed_lines": 1, "removed_chars": 10}, {"text": "q", "removed_lines": 1, "removed_chars": 2}]
    duplicate = outputs["duplicate"].rows.to_pylist()[0]
    assert (duplicate["text"], duplicate["duplicate_of"]) == ("Two  THREE\none", "u0-0")
    assert duplicate["similarity"] == 1
    replay = made.process(plain(["one"], unit=1))["duplicate"].rows.to_pylist()[0]
    assert replay["cluster"] == duplicate["cluster"]


def test_the_longest_cut_line_says_of_whom_it_is_a_duplicate():
    made = stage()
    assert answers(made, plain(["short", "much longer"])) == ["short", "much longer"]
    assert answers(made, plain(["short\nmuch longer", "new one", "short\nnew one"], unit=1)) == [["u0-1"], "new one", ["u1-1"]]


def test_short_lines_stay_and_paragraphs_are_compared_as_a_whole():
    text = "}\nThis line is long enough to be compared\n"
    assert answers(stage(min_chars=20), plain([text, text + "more of it, and long enough to stay"])) == [
        text.replace("\n", ""), "}more of it, and long enough to stay"]
    assert answers(stage(unit="paragraph"), plain(["a\nb\n\nc", "b\n\nc\n\nd", "A\nB"])) == ["abc", "bd", ["u0-0"]]
    assert answers(stage(normalize=False), plain(["a", "A", "a"])) == ["a", "A", ["u0-0"]]


def test_a_scope_keeps_records_apart():
    made = stage(scope="lang")
    assert answers(made, batch(["a", "a", "a"], lang=["de", "en", "de"])) == ["a", "a", ["u0-0"]]
    assert answers(made, batch(["ab", "a"], unit=1, lang=["en", None])) == ["b", "a"]


def test_a_unit_that_is_shown_again_is_answered_as_before():
    made = stage(copies=2)
    first, second = batch(["ab", "aab", "b", "bc"]), batch(["acc", "cd", "dd", "dd"], unit=1, ids=list("wxyy"))
    before = [answers(made, first), answers(made, second)]
    assert [[t if isinstance(t, str) else "" for t in told] for told in before] == [["ab", "ab", "", "c"], ["c", "d", "d", ""]]
    assert before[0][2][0] in ("u0-0", "u0-1")
    assert before[1][3][0] in "xy"
    for unit, given_ in ((1, second), (0, first), (1, second)):
        made.replay(unit)
        assert answers(made, given_) == before[unit]


def test_part_of_a_unit_may_be_shown_before_it_starts_again():
    made, whole = stage(), batch(["ab", "bc", "ca"])
    assert answers(made, whole.slice(0, 1)) == ["ab"]
    made.replay(0)
    assert answers(made, batch(["ac"], unit=1)) == ["c"]  # the claim stands until then
    assert answers(made, whole) == ["ab", ["u0-0"], ["u1-0"]]


def test_rows_that_are_shown_again_in_other_batches_are_answered_as_before():
    made, given_ = stage(), batch(["ab", "bbc", None, "ca", "d"])
    before = answers(made, given_)
    made.replay(0)
    assert answers(made, given_.slice(0, 2)) + answers(made, given_.slice(2, 5)) == before
    made.replay(0)
    order = (4, 3, 1, 2, 0)
    assert [answers(made, given_.take([at]))[0] for at in order] == [before[at] for at in order]


def test_a_call_that_raises_leaves_nothing_behind():
    class Failing(TextBatch):
        def with_columns(self, columns):
            raise MemoryError

    made, given_ = stage(), batch(["ab", "bc"])
    with pytest.raises(MemoryError):
        made.process(Failing(given_.rows))
    assert answers(made, given_) == ["ab", "c"]
    made.replay(0)
    with pytest.raises(MemoryError):
        made.process(Failing(given_.rows))
    assert answers(made, given_) == ["ab", "c"]


def test_a_record_that_is_there_twice_is_shown_again_as_two():
    made, twins = stage(copies=3), batch(["aa", "aa", "aa"], ids=list("xxx"))
    before = answers(made, twins)
    assert before == ["aa", "a", ["x"]]
    made.replay(0)
    assert [answers(made, twins.take([row]))[0] for row in range(3)] == before


def test_a_record_that_is_in_two_units_has_claims_of_its_own_in_each():
    made, both = stage(copies=3), batch(["aa", "aa", "aa"], unit=[0, 1, 2], ids=list("xxx"))
    before = answers(made, both)
    assert before == ["aa", "a", ["x"]]
    for order in ([2, 1, 0], [0, 1, 2], [1, 2, 0]):
        for unit in range(3):
            made.replay(unit)
        assert answers(made, both.take(order)) == [before[unit] for unit in order]
        for unit in range(3):
            made.replay(unit)
        assert [answers(made, both.take([unit]))[0] for unit in order] == [before[unit] for unit in order]


def test_records_that_share_an_id_are_told_apart():
    made, both = stage(), batch(["ab", "bc"], ids=["x", "x"])
    assert answers(made, both) == ["ab", "c"]
    made.replay(0)
    assert answers(made, both.take([1, 0])) == ["c", "ab"]


def test_another_one_takes_the_lines_of_a_forgotten_unit():
    made = stage(copies=2)
    answers(made, batch(["ab"]))
    answers(made, batch(["a"], unit=1))
    made.discard(0)
    assert answers(made, batch(["abb"], unit=2)) == ["abb"]
    assert answers(made, batch(["ab"], unit=3))[0][0] in ("u1-0", "u2-0")


def through_a_file(rows):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def test_a_resumed_run_knows_what_finished_units_brought():
    made = stage()
    answers(made, batch(["ab", "ac", "b"]))
    answers(made, batch(["bd", "de"], unit=1))
    assert made.snapshot(1).depends == {0}
    resumed = stage()
    for unit, of in ((3, 1), (2, 0), (5, 4)):
        resumed.restore(unit, through_a_file(made.snapshot(of).rows))
    assert answers(resumed, batch(["da", "cf", "ae"], unit=7)) == [["u1-0"], "f", ["u0-0"]]
    assert resumed.snapshot(2).rows.equals(made.snapshot(0).rows)
    assert resumed.snapshot(7).depends == {2, 3}
    resumed.replay(3)
    assert answers(resumed, batch(["bd", "de"], unit=3, ids=["u1-0", "u1-1"])) == ["d", "e"]


def test_a_unit_depends_on_all_that_hold_a_line_that_it_lost():
    made = stage(copies=3)
    answers(made, batch(["a"]))
    answers(made, batch(["a"], unit=1))
    answers(made, batch(["a", "ab", "b"], unit=[2, 3, 4]))
    assert [made.snapshot(unit).depends for unit in range(5)] == [set(), set(), set(), {0, 1, 2}, set()]


UNITS = st.lists(st.lists(st.one_of(st.none(), st.text("abc", max_size=5)), min_size=1, max_size=4), min_size=1, max_size=5)


def often(texts):
    return Counter(line for text in texts if text for line in text)


def left(told):
    return [text for texts in told for text in texts if isinstance(text, str)]


def first_copies(units, order, copies):
    """What plain Python would leave of each record, by unit."""
    seen, told = Counter(), {}
    for unit in order:
        told[unit] = []
        for text in units[unit]:
            stays = ""
            for line in text or "":
                stays += line if seen[line] < copies else ""
                seen[line] += 1
            told[unit].append(stays)
    return told


@given(UNITS, st.integers(1, 3), st.data())
def test_each_line_stays_as_often_as_it_may_whatever_is_shown_again_and_wherever_the_run_was_cut(units, copies, data):
    names = st.sampled_from(["x", None])
    batches = [batch(texts, unit=unit, ids=[data.draw(names) or f"u{unit}-{row}" for row in range(len(texts))])
               for unit, texts in enumerate(units)]
    first, last = stage(copies=copies), {}
    order = data.draw(st.permutations(range(len(units))))
    want = first_copies(units, order, copies)
    for unit in order:
        last[unit] = answers(first, batches[unit])
        assert ["" if not isinstance(text, str) else text for text in last[unit]] == want[unit]
        for replay in data.draw(st.lists(st.sampled_from(sorted(last)), max_size=2)):
            first.replay(replay)
            assert answers(first, batches[replay]) == last[replay]
    finished = data.draw(st.sets(st.integers(0, len(units) - 1)), label="units that the first run finished")
    whole = sorted(unit for unit in finished if first.snapshot(unit).depends <= finished)
    replay = data.draw(st.sets(st.sampled_from(whole))) if whole else set()
    second = stage(copies=copies)
    for unit in data.draw(st.permutations(sorted(finished))):
        second.restore(unit, first.snapshot(unit).rows)
        if unit in replay:
            second.replay(unit)
    for unit in set(range(len(units))) - finished:
        last[unit] = answers(second, batches[unit])
    for unit in replay:
        assert answers(second, batches[unit]) == last[unit]
    assert often(left(last.values())) == {
        line: min(copies, count) for line, count in often(text for texts in units for text in texts).items()}


@given(UNITS, st.integers(1, 3), st.data())
def test_each_line_stays_as_often_as_it_may_when_units_are_forgotten_or_fail_halfway(units, copies, data):
    made, void, told = stage(copies=copies), set(), {}
    for unit, texts in enumerate(units):
        whole = batch(texts, unit=unit)
        answers(made, whole.slice(0, data.draw(st.integers(0, len(whole)), label="rows before the unit fails")))
        for other in data.draw(st.sets(st.sampled_from(sorted({unit, *told} - void))), label="units given up"):
            made.discard(other)
            void.add(other)
            told.pop(other, None)
        if unit not in void:
            made.replay(unit)
            told[unit] = answers(made, whole)
    given_ = often(text for unit in told for text in units[unit])
    stays = often(left(told.values()))
    assert all(stays[line] <= min(copies, count) for line, count in given_.items())
    more = len(units)  # what was lost to a unit that is void is free again: the next ones may have it
    assert often(left([answers(made, batch(["abc" * copies], unit=more))])) == {
        line: copies - stays[line] for line in "abc" if stays[line] < copies}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_turns_count_those_before(pairs):
    keys = [np.array([pair[which] for pair in pairs], dtype=np.int64) for which in (0, 1)]
    assert turns(*keys).tolist() == [pairs[:row].count(pair) for row, pair in enumerate(pairs)]


def test_many_units_in_a_batch_and_many_batches_in_a_unit():
    letters = [chr(0x4E00 + n) for n in range(700)]
    made = stage()
    for low in range(0, 700, 2):
        assert answers(made, batch(letters[low:low + 2], unit=[low % 5, 5], ids=letters[low:low + 2])) == letters[low:low + 2]
    lost = answers(made, batch(["".join(letters), "x"], unit=9))
    assert lost == [[letters[0]], "x"]
    assert made.snapshot(9).depends == set(range(6))
    assert sum(len(made.snapshot(unit).rows) for unit in range(6)) == 700


def test_many_lines_take_little_memory():
    made = stage()
    for unit in range(4):
        made.process(plain([f"{unit} {row} a\n{unit} {row} b\n{unit} {row} c\n{unit} {row} d" for row in range(3000)], unit=unit))
    assert sum(len(made.snapshot(unit).rows) for unit in range(4)) == 12_000
    assert made._claims.nbytes < 48_000 * 82 + 12_000 * (80 + 8)


RECIPE = """
name: lines
read: {{jsonl: {{path: {source}/*.jsonl}}}}
steps:
  - dedup.lines: {{min_chars: 1, copies: {copies}, mode: stream}}
write: {{jsonl: {{path: {out}, compression: none}}}}
"""


@pytest.mark.parametrize(("workers", "copies"), [(0, 1), (2, 2)])
def test_from_files_to_files(tmp_path, workers, copies):
    rows = [{"id": f"r{n:03}", "text": "\n".join(f"line {n * k % 97}" for k in range(1, 7))} for n in range(60)]
    (tmp_path / "in").mkdir()
    for part_ in range(3):
        (tmp_path / "in" / f"{part_}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[part_::3]))
    (tmp_path / "r.yaml").write_text(RECIPE.format(source=tmp_path / "in", out=tmp_path / "out", copies=copies))
    result = load(str(tmp_path / "r.yaml"), {}).run(workers=workers)
    assert result.ok
    written = [json.loads(line) for path in (tmp_path / "out/data").glob("*.jsonl") for line in path.read_text().splitlines()]
    before = Counter(line for row in rows for line in row["text"].split("\n"))
    after = Counter(line for row in written for line in row["text"].split("\n"))
    assert after == {line: min(copies, count) for line, count in before.items()}
    assert sum(row["removed_lines"] for row in written) > 0
    assert result.records["duplicate"] == len(rows) - len(written) > 0
    assert [p for p in (tmp_path / "out" / "duplicate" / "dedup.lines").rglob("*") if p.is_file()]


def lines_of(folder):
    return Counter(line for path in folder.glob("*.jsonl") for row in path.read_text().splitlines()
                   for line in json.loads(row)["text"].split("\n"))


def test_a_run_over_more_input_goes_on_where_the_last_one_ended(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "r.yaml").write_text(RECIPE.format(source=tmp_path / "in", out=tmp_path / "out", copies=2))
    for run in range(3):
        rows = [{"id": f"{run}-{n}", "text": "\n".join(f"line {n * k % 31 + 5 * run}" for k in range(4))} for n in range(12)]
        (tmp_path / "in" / f"{run}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert load(str(tmp_path / "r.yaml"), {}).run(workers=0).ok
        before = lines_of(tmp_path / "in")
        assert max(before.values()) > 2
        assert lines_of(tmp_path / "out/data") == {line: min(2, count) for line, count in before.items()}


@pytest.mark.parametrize(("options", "told"), [({"mode": "streams"}, "mode must be"), (
    {"mode": "stream", "shards": 4}, "shards is for the work on all records"), (
    {"mode": "stream", "memory_bytes": 1}, "memory_bytes is for the work on all records")])
def test_what_needs_all_records_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        DedupLines(**options)


@pytest.mark.parametrize("parameters", [{}, {"copies": 2, "scope": "lang"}])
def test_the_stage_keeps_the_rules(parameters):
    texts, columns = ["ab", "bc", None, "ca", "ab", "dd", "", "a"], {"lang": list("eeeedddd")}
    check_stage(part(**parameters), batch(texts, **columns if "scope" in parameters else {}).without(["_unit"]))
