"""The numbers of a run: counts, records, alarms, what stages say of themselves, summaries of columns."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass

import pyarrow as pa
import pytest

from curator import Outputs, Stage, read, stage, write
from curator.api.counts import VALUES_MAX, Counts
from curator.api.findings import Alarm, Line, Table
from curator.api.summary import DISTINCT_MAX, ColumnSummary
from curator.observe.alarms import find_alarms
from curator.observe.report.funnel import show_funnel
from curator.observe.report.graph import lines
from curator.observe.report.page import render_report
from curator.observe.stats import RunInfo, StageInfo, stage_rows, summarise
from tests.observe.runs import branched, chain, funnel, run_of, small, texts


def test_counts_add_up_and_survive_json():
    counts = Counts(10, 2, {"out": 7}, {"short": 3}, duplicate=1, failed=1, busy_s=0.5)
    counts.check("drop")
    counts.add(Counts(5, 0, {"out": 1, "low": 3}, {"loud": 1}))
    counts.check("drop")
    assert counts.out == {"out": 8, "low": 3}
    assert counts.dropped == {"short": 3, "loud": 1}
    assert Counts.from_json(json.loads(json.dumps(counts.to_json()))) == counts
    assert Counts.from_json(Counts().to_json()) == Counts()


def test_a_lost_row_is_an_error_that_names_the_stage():
    with pytest.raises(AssertionError, match="'drop': 1 rows"):
        Counts(10, 0, {"out": 9}).check("drop")


def test_records_of_a_line():
    assert small()["records"] == {"in": 1000, "made": 0, "written": 800, "dropped": 199, "duplicate": 0, "failed": 1,
                                  "absorbed": 0}


def test_an_ending_that_is_taken_is_no_end_and_copies_count_as_made():
    stats = branched()
    assert stats["records"] == {"in": 10_000, "made": 525 + 7_000, "written": 17_050, "dropped": 465, "duplicate": 0,
                                "failed": 10, "absorbed": 0}
    assert not texts(stats, "error")


def test_reading_order_puts_branches_below_their_stage_and_a_merge_where_they_began():
    order = [(line.depth, line.stage["name"], line.port) for line in lines(branched()["stages"])]
    assert order == [(0, "warc", None), (0, "language", None), (0, "language", "dropped"), (1, "translate", None),
                     (0, "rules", None), (0, "route", None), (0, "route", "high"), (1, "best", None), (1, "copy", None),
                     (0, "route", "low"), (1, "rewrite", None), (0, "merge", None), (0, "rest", None)]


# -- alarms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "complaint"), [
    ({"drop": Counts(10, 0, {"out": 8})}, "Stage drop had 10 rows"),
    ({"drop": Counts(9, 0, {"out": 9})}, "Stage drop was given 10 rows but took in 9"),
    ({"sink": Counts(10, 0, {"written": 9})}, "10 in + 0 made = 10, but 9 written"),
])
def test_a_mismatch_of_the_counts_is_an_error(counts, complaint):
    good = {"read": Counts(10, 0, {"out": 10}), "drop": Counts(10, 0, {"out": 10}),
            "sink": Counts(10, 0, {"written": 10})}
    kinds = {"read": "source", "drop": "stage", "sink": "sink"}
    assert not texts(chain(*((name, kinds[name], count) for name, count in good.items())), "error")
    stats = chain(*((name, kinds[name], count) for name, count in {**good, **counts}.items()))
    assert any(complaint in text for text in texts(stats, "error"))


def test_rows_may_be_unfinished_in_a_run_that_was_stopped():
    stats = chain(("read", "source", Counts(10, 0, {"out": 10})), ("sink", "sink", Counts(4, 0, {"written": 4})),
                  status="stopped")
    assert not stats["alarms"]
    out = io.StringIO()
    show_funnel(stats, out)
    assert "10 in = 4 written + 6 unfinished" in out.getvalue()


def test_a_rule_that_never_fired_is_a_note_and_one_that_took_all_a_warning():
    assert "2 of 2 rules in stage middle (a, b) never fired" in texts(run_of(Counts(100, 0, {"out": 100})), "note")[0]
    two = run_of(Counts(100, 0, {"out": 100}))
    two["stages"].insert(1, dict(two["stages"][1], name="other", dropped={"c": 3, "d": 0}))
    assert ("1 of 2 rules in stage other, 2 of 2 rules in stage middle never fired: fine on clean input, else check threshold "
            "and column.") in [alarm["text"] for alarm in find_alarms(two) if alarm["level"] == "note"]
    assert not texts(run_of(Counts(5, 0, {"out": 5}), 5))  # too few records to tell
    stats = run_of(Counts(100, 0, {}, {"a": 100}))
    assert "The rule a in stage middle dropped all of the 100 records" in texts(stats, "warning")[0]
    assert "the output is empty" in texts(stats, "error")[0].lower()
    stats = run_of(Counts(100, 0, {}, {"a": 60, "b": 40}))
    assert "Stage middle dropped all of the 100 records that reached it (a, b)" in texts(stats, "warning")[0]


def test_failures_above_a_percent_and_masses_of_duplicates_are_warnings():
    assert not texts(run_of(Counts(100, 0, {"out": 99}, failed=1)), "warning")
    assert "2 of 100 records failed (2.0%)" in texts(run_of(Counts(100, 0, {"out": 98}, failed=2)), "warning")[0]
    assert "99 of 100 records are duplicates" in texts(run_of(Counts(100, 0, {"out": 1}, duplicate=99)), "warning")[0]


def test_nothing_read_and_an_empty_branch_are_told():
    assert "No record was read by read" in texts(run_of(Counts(), 0), "error")[0]
    infos = [StageInfo("read", "source"), StageInfo("route", "stage", (("read", "out"),)),
             StageInfo("best", "sink", (("route", "high"),)), StageInfo("rest", "sink", (("route", "low"),))]
    counts = {"read": Counts(3, 0, {"out": 3}), "route": Counts(3, 0, {"low": 3}), "rest": Counts(3, 0, {"written": 3})}
    stats = summarise(RunInfo(name="x"), infos, counts)
    assert texts(stats) == ["best wrote nothing: no row came to it from route (port high)."]


def test_columns_that_say_nothing():
    kept = Counts(100, 0, {"out": 100}, {"a": 0, "b": 0})
    same = {"rows": 100, "nulls": 0, "constant": True, "min": 0.5, "max": 0.5}
    zero, varied = same | {"min": 0, "max": 0}, same | {"constant": False, "max": 1.0}
    assert "the same score in quality (0.5)" in texts(run_of(kept, quality=same), "warning")[0]
    whole = same | {"min": 512, "max": 512}
    assert not any("same score" in text for level in ("warning", "note") for text in texts(run_of(kept, width=whole), level))
    assert "the same score in megapixels (0.5)" in texts(run_of(kept, megapixels=same, quality=varied), "note")[-1]
    assert "every record 0 in hits" in texts(run_of(kept, hits=zero, quality=varied), "note")[-1]
    assert "every record 0 in hits" in texts(run_of(kept, hits=zero), "warning")[0]
    empty = {"rows": 100, "nulls": 100, "constant": False}
    assert "left title null in every record" in texts(run_of(kept, title=empty), "warning")[0]
    assert "left title null in every record" in texts(run_of(kept, title=empty, quality=varied), "note")[-1]


def test_columns_that_a_stage_calls_sparse_are_not_asked_about():
    kept = Counts(100, 0, {"out": 100})
    stats = run_of(kept, note={"rows": 100, "nulls": 100, "constant": False})
    assert any("note null in every record" in alarm["text"] for alarm in find_alarms(stats))
    stats["stages"][1]["sparse"] = ["note"]
    assert not any("null in every record" in alarm["text"] for alarm in find_alarms(stats))
    info, = stage_rows([StageInfo("middle", "stage", sparse=("note",))], {"middle": kept})
    assert info["sparse"] == ["note"]


# -- what stages say of themselves --------------------------------------------------------------------------


@dataclass(kw_only=True)
class Asks(Stage):
    """Counts what it asked for, and says so."""

    count_by = ("source",)

    def process(self, batch):
        return Outputs(out=batch, counts={"tokens": 7 * len(batch)})

    def findings(self, step, counts):
        yield Line(f"{counts.extra.get('tokens', 0)} tokens")
        yield Alarm("warning", f"Stage {step} is costly")
        yield Table("Tokens by source", ("source", "tokens"), [(s, 7 * p["out"], 21) for s, p in counts.by_value["source"].items()])


def test_extra_counts_add_up_and_survive_json():
    counts = Counts(extra={"tokens": 3}, by_value={"source": {"a": {"out": 1}}})
    counts.add(Counts(extra={"tokens": 4, "hits": 1}, by_value={"source": {"a": {"out": 2, "duplicate": 1}, "b": {"out": 1}}}))
    assert counts.extra == {"tokens": 7, "hits": 1}
    assert counts.by_value == {"source": {"a": {"out": 3, "duplicate": 1}, "b": {"out": 1}}}
    assert Counts.from_json(json.loads(json.dumps(counts.to_json()))) == counts
    for n in range(VALUES_MAX + 5):
        counts.saw_value("key", str(n), "out", 1)
    counts.saw_value("key", "0", "out", 1)
    assert len(counts.by_value["key"]) == VALUES_MAX
    assert counts.by_value["key"]["0"] == {"out": 2}


def test_what_a_stage_counts_and_says_is_in_stats_funnel_report_and_ledger(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"id": f"{name}{i}"}) + "\n" for i in range(3)))

    def run():
        return (read(str(tmp_path / "*.jsonl")) >> Asks() >> write(str(tmp_path / "out"))).run(workers=0).stats

    stats = run()
    told = stats["stages"][1]
    assert told["extra"] == {"tokens": 42}
    assert sorted(p["out"] for p in told["by_value"]["source"].values()) == [3, 3]
    assert told["lines"] == ["42 tokens"]
    assert "Stage asks is costly" in texts(stats, "warning")
    assert "    42 tokens\n" in funnel(stats)
    html = render_report(stats)
    assert "Tokens by source" in html
    assert "42 tokens" in html
    again = run()  # every unit is in the ledger
    assert again["units"]["skipped"] == again["units"]["total"] > 0
    assert [again["stages"][1][name] for name in ("extra", "by_value", "lines")] == [told[name] for name in ("extra", "by_value", "lines")]


def test_the_counts_of_a_call_that_raises_are_nobodys(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": str(i)}) + "\n" for i in range(4)))

    @stage
    def asks(batch):
        def answers():
            yield Outputs(counts={"tokens": 10 * len(batch)})
            if "3" in batch.column("id"):
                raise ValueError("refused")
            yield Outputs(out=batch, counts={"tokens": len(batch)})
        return answers()

    result = (read(str(tmp_path / "a.jsonl")) >> asks >> write(str(tmp_path / "out"))).named("x", max_failed=1).run(workers=0)
    assert result.records["failed"] == 1
    assert result.stats["stages"][1]["extra"] == {"tokens": 33}


def test_a_mistake_in_what_a_stage_says_is_an_alarm_and_ends_no_run(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a"}\n')
    asks = Asks()
    asks.count_by = ()
    result = (read(str(tmp_path / "a.jsonl")) >> asks >> write(str(tmp_path / "out"))).run(workers=0)
    assert result.ok
    assert any("What stage asks found cannot be shown (KeyError" in text for text in texts(result.stats, "warning"))


# -- column summaries ---------------------------------------------------------------------------------------


def summary(*values, kind=None):
    found = ColumnSummary()
    found.add(pa.array(values, kind))
    return found


def test_column_summaries():
    assert summary(1, 5, None).to_json() == {"rows": 3, "nulls": 1, "constant": False, "min": 1, "max": 5}
    assert summary(2.0, float("nan"), None, 2.0).constant
    assert summary("a", "b", "b", None).to_json()["values"] == {"b": 2, "a": 1}
    assert summary(True, None).to_json()["values"] == {"true": 1}
    assert summary([1], [2]).to_json() == {"rows": 2, "nulls": 0, "constant": False}
    assert summary("long text " * 50).values is None
    assert summary(*(f"id{i}" for i in range(DISTINCT_MAX + 1))).values is None
    json.dumps(summary(1.0, float("inf")).to_json(), allow_nan=False)
    assert not summary(1.0, float("inf")).constant


def test_summaries_merge_as_if_seen_together():
    rng = random.Random(1)
    kinds = {"score": pa.float64(), "language": pa.string(), "name": pa.string()}
    rows = [{"score": rng.choice([None, rng.random()]), "language": rng.choice(["en", "de", None]), "name": f"n{i}"}
            for i in range(200)]
    table = pa.Table.from_pylist(rows, pa.schema(kinds.items()))
    whole = {name: ColumnSummary() for name in kinds}
    joined = {name: ColumnSummary() for name in kinds}
    for name in kinds:
        whole[name].add(table.column(name))
        for start in range(0, 200, 30):
            part = ColumnSummary()
            part.add(table.column(name).slice(start, 30))
            joined[name].merge(ColumnSummary.from_json(json.loads(json.dumps(part.to_json()))))
    assert {n: s.to_json() for n, s in joined.items()} == {n: s.to_json() for n, s in whole.items()}
    assert whole["name"].values is None
