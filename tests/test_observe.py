"""What a person sees of a run: counts, funnel, alarms, report, progress, preview."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import tracemalloc
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import Outputs, Stage, read, stage, write
from curator.api import format as fmt
from curator.api.counts import VALUES_MAX, Counts
from curator.api.findings import Alarm, Line, Table
from curator.api.summary import DISTINCT_MAX, ColumnSummary
from curator.io.files.folder import Folder
from curator.observe.live.progress import Progress
from curator.observe.preview import StagePreview, show_preview
from curator.observe.report.examples import find_examples
from curator.observe.report.flow import strips
from curator.observe.report.funnel import show_funnel
from curator.observe.report.graph import lines
from curator.observe.report.page import render_report
from curator.observe.stats import RunInfo, StageInfo, summarise


def chain(*stages, columns=None, **run):
    """Stats of a pipeline in a line: `(name, kind, Counts)` each, or with the reasons that it may give."""
    infos, counts, before = [], {}, ()
    for name, kind, count, *reasons in stages:
        infos.append(StageInfo(name, kind, before, 2, tuple(*reasons)))
        held = {c: ColumnSummary.from_json(s) for c, s in (columns or {}).get(name, {}).items()}
        counts[name], before = replace(count, columns=held), ((name, "out"),)
    return summarise(RunInfo(name="demo", **run), infos, counts)


def small(**run):
    return chain(("jsonl", "source", Counts(1000, 0, {"out": 1000}, busy_s=0.1)),
                 ("signals", "stage", Counts(1000, 0, {"out": 999}, failed=1, busy_s=3.2)),
                 ("drop", "stage", Counts(999, 0, {"out": 800}, {"too_short": 199}, busy_s=0.05),
                  ["too_short", "loud"]),
                 ("parquet", "sink", Counts(800, 0, {"written": 800}, busy_s=0.2)), seconds=2.34, **run)


def branched():
    """Two branches (one on `dropped`) that merge again, a port with two takers, and 30 reasons."""
    infos = [StageInfo("warc", "source"), StageInfo("language", "stage", (("warc", "out"),)),
             StageInfo("rules", "stage", (("language", "out"),)),
             StageInfo("route", "stage", (("rules", "out"),)),
             StageInfo("best", "sink", (("route", "high"),)), StageInfo("copy", "sink", (("route", "high"),)),
             StageInfo("rewrite", "stage", (("route", "low"),)),
             StageInfo("translate", "stage", (("language", "dropped"),)),
             StageInfo("merge", "stage", (("rewrite", "out"), ("translate", "out"))),
             StageInfo("rest", "sink", (("merge", "out"),))]
    reasons = {f"rule_{i:02}": i + 1 for i in range(30)}
    counts = {"warc": Counts(10_000, 0, {"out": 9_990}, failed=10), "translate": Counts(2_000, 0, {"out": 2_000}),
              "language": Counts(9_990, 0, {"out": 7_990}, {"language": 2_000}),
              "rules": Counts(7_990, 0, {"out": 7_525}, reasons),
              "route": Counts(7_525, 0, {"high": 7_000, "low": 525}),
              "best": Counts(7_000, 0, {"written": 7_000}), "copy": Counts(7_000, 0, {"written": 7_000}),
              "rewrite": Counts(525, 525, {"out": 1_050}), "merge": Counts(3_050, 0, {"out": 3_050}),
              "rest": Counts(3_050, 0, {"written": 3_050})}
    return summarise(RunInfo(name="branched"), infos, counts)


def texts(stats, level=None):
    return [a["text"] for a in stats["alarms"] if level in (None, a["level"])]


# -- counts and stats ---------------------------------------------------------------------------------------


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


def run_of(stage, n=100, **columns):
    """A run whose middle stage has these counts."""
    left = sum(stage.out.values())
    return chain(("read", "source", Counts(n, 0, {"out": n})), ("middle", "stage", stage, ["a", "b"]),
                 ("sink", "sink", Counts(left, 0, {"written": left})), columns={"middle": columns})


def test_a_rule_that_never_fired_is_a_note_and_one_that_took_all_a_warning():
    assert "2 of 2 rules in stage middle (a, b) never fired" in texts(run_of(Counts(100, 0, {"out": 100})), "note")[0]
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


def test_examples_show_the_columns_that_stages_declare(tmp_path):
    rows = [{"id": "a", "source": "folder/a.jpg", "caption": "a cat on a mat", "words": "long " * 50, "score": 0.5}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    stats = {"files": [{"path": "a.parquet", "port": "written", "stage": "write"}], "stages": [{"name": "write"}],
             "example_columns": {"caption": "text", "score": "number", "words": "number", "gone": "image"}}
    group, = find_examples(stats, Folder.open(str(tmp_path)))
    assert group.examples == [{"id": "a", "source": "folder/a.jpg", "picture": "", "about": "score 0.5", "excerpt": "a cat on a mat"}]


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


# -- the funnel ---------------------------------------------------------------------------------------------

FILES = [{"path": "/home/anna/out/part-0.parquet", "rows": 800, "size_bytes": 3_400_000, "stage": "parquet",
          "port": "written"},
         {"path": "/home/anna/out/dropped/drop/a.parquet", "rows": 199, "size_bytes": 300_000, "stage": "drop",
          "port": "dropped"}]


def funnel(stats, **kwargs):
    out = io.StringIO()
    show_funnel(stats, out, **kwargs)
    return out.getvalue()


def test_the_funnel_as_plain_text():
    text = funnel(small(files=FILES, out="/home/anna/out", limit="signals: 2 of 2 workers busy"))
    assert text == """
                                                 records   share    time  rows/s
records in                                         1,000
jsonl                                              1,000  100.0%    2.8%  10,000
signals                                              999   99.9%   90.1%     312
    failed                                            -1    0.1%
drop                                                 800   80.1%    1.4%  19,980
    dropped: too_short                              -199   19.9%
parquet                                              800  100.0%    5.6%   4,000
records written                                      800   80.0%

run in /home/anna/out
written  /home/anna/out/                                   1 file  800    3.4 MB
dropped  dropped/drop/                                     1 file  199  300.0 kB

demo finished in 2.3 s, 427 records/s; 0 of 0 units
1,000 in = 800 written + 199 dropped + 1 failed
limit: signals: 2 of 2 workers busy

note  The rule loud in stage drop never fired on 999 records: fine on clean
      input, else check threshold and column.

"""


def test_branches_and_many_reasons_in_the_funnel():
    text = funnel(branched(), reasons_max=5)
    assert re.search(r"dropped: rule_29 +-30 ", text)
    assert re.search(r"dropped: 25 more reasons +-325 ", text)
    assert re.search(r"\n  > low to rewrite +525 +7.0%\n  rewrite +1,050 .*\n      made +\+525\n", text)
    assert "\nmerge from rewrite, translate " in text
    assert "\n  copy from route high " in text
    assert "rules from language" in text
    assert max(map(len, text.split("\n"))) <= 80
    assert text.isascii()
    assert text.replace("\n", "").isprintable()


def test_a_terminal_gets_colour(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    show_funnel(small(), out)
    assert "\x1b[" in out.getvalue()


def test_files_are_grouped_by_stage_and_port_outputs_first():
    groups = small(files=[FILES[1], FILES[0], FILES[0] | {"path": "/home/anna/out/en/part-1.parquet"}])["outputs"]
    assert [(g["port"], g["folder"], g["files"], g["rows"]) for g in groups] == [
        ("written", "/home/anna/out/", 2, 1600), ("dropped", "/home/anna/out/dropped/drop/", 1, 199)]


# -- numbers and paths --------------------------------------------------------------------------------------


def test_numbers_as_people_read_them():
    assert [fmt.share(*x) for x in ((0, 5), (5, 5), (1, 10**6), (10**6 - 1, 10**6), (1, 0))] == [
        "0.0%", "100.0%", "<0.1%", ">99.9%", ""]
    assert [fmt.size(x) for x in (0, 999, 1000, 999_949, 999_960, 2.5e12)] == [
        "0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "2.5 TB"]
    assert [fmt.duration(x) for x in (0.418, 12.34, 59.96, 125, 3600, 11_520, 108_000)] == [
        "0.42 s", "12.3 s", "1 min 00 s", "2 min 05 s", "1 h 00 min", "3 h 12 min", "1 d 06 h"]
    assert [fmt.rate(x) for x in (12345.6, 3.14159, 0)] == ["12,346", "3.1", ""]


@pytest.mark.parametrize(("path", "width", "short"), [
    ("out/part.parquet", 40, "out/part.parquet"),
    ("/home/anna/deeper/than/that/out/part.parquet", 30, "/home/.../out/part.parquet"),
    ("s3://bucket/a/very/long/way/run-17/out/", 24, "s3://.../way/run-17/out/"),
    ("averylongnamewithoutanyslash.parquet", 20, "averyl...ash.parquet"),
])
def test_paths_are_shortened_in_the_middle(path, width, short):
    assert fmt.short_path(path, width) == short


# -- the report ---------------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    """Fails on a tag that is not closed; collects tags and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [small, branched, lambda: run_of(Counts(), 0)], ids=["small", "branched", "empty"])
def test_the_report_is_one_well_formed_file_that_needs_nothing_else(make):
    stats, page = make(), Balanced()
    html = render_report(stats, "steps: []")
    page.feed(html)
    assert page.open == []
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert not any(key in ("src", "href") or key.startswith("on") for _, attrs in page.seen for key in attrs)
    assert "http://" not in html
    assert "https://" not in html


def test_the_report_escapes_what_comes_from_recipe_and_data():
    evil = "<script>alert(1)</script>"
    stats = chain((evil, "source", Counts(30, 0, {"out": 29}, {evil: 1}), [evil]),
                  ("sink", "sink", Counts(29, 0, {"written": 29})), message=evil, out=evil, limit=evil,
                  columns={evil: {"language": {"rows": 30, "nulls": 0, "constant": True, "values": {evil: 30}}}})
    html = render_report(stats, evil)
    assert evil not in html
    assert html.count("&lt;script&gt;") >= 8


def test_the_report_tells_every_reason_and_the_recipe():
    html = render_report(branched(), "read: {jsonl: {path: x}}")
    assert all(f"rule_{i:02}" in html for i in range(30))
    assert "read: {jsonl: {path: x}}" in html


def test_the_report_shows_the_first_error_of_a_stage_with_its_place():
    error = {"stage": "clean", "error": "ZeroDivisionError: <0>", "traceback": "Traceback of clean", "file": "mine.py",
             "line": 7, "record": "doc-3"}
    html = render_report(small() | {"first_errors": [error]}, "steps: []")
    page = Balanced()
    page.feed(html)
    assert page.open == []
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))
    assert "clean, record doc-3, mine.py line 7: ZeroDivisionError: &lt;0&gt;" in shown
    assert "Traceback of clean" in shown


@pytest.fixture
def lossy(tmp_path):
    """Stats of a run that wrote, dropped and failed records, with its files."""
    def file(path, port, stage, **columns):
        count = len(next(iter(columns.values())))
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": [f"{path[0]}{i}" for i in range(count)], "source": ["folder/doc.txt"] * count, **columns})
        pq.write_table(table, tmp_path / path)
        return {"path": path, "rows": count, "size_bytes": 1, "stage": stage, "port": port}

    words = "a text with more than a few words in it, <b>bold</b>, " * 20
    files = [file("dropped/rule/a.parquet", "dropped", "rule", text=[words] * 9, reason=["short", "long", "long"] * 3),
             file("b.parquet", "written", "write", text=["red", "green"], thumbnail=[b"\x89PNG" + bytes(20), b"<svg onload=x>"]),
             file("c.parquet", "written", "write", text=["blue"], thumbnail=[b"\xff\xd8\xff" + bytes(90_000)]),
             {"path": "gone.jsonl.gz", "rows": 3, "size_bytes": 1, "stage": "write", "port": "written"}]
    line = json.dumps({"id": "d", "source": "s", "text": "a line of JSON with some words in it"})
    (tmp_path / "d.jsonl").write_text(line + "\n")
    files.append({"path": "d.jsonl", "rows": 1, "size_bytes": 1, "stage": "write", "port": "written"})
    stats = chain(("read", "source", Counts(12, 0, {"out": 12})), ("rule", "stage", Counts(12, 0, {"out": 3}, {"short": 9})),
                  ("write", "sink", Counts(3, 0, {"written": 3})))
    return stats | {"files": files, "example_columns": {"thumbnail": "image"}}, Folder.open(str(tmp_path))


def test_examples_show_a_few_records_of_each_reason(lossy):
    stats, out = lossy
    groups = find_examples(stats, out)
    assert [(g.port, g.stage, g.reason, len(g.examples)) for g in groups] == [
        ("written", "write", "", 4), ("dropped", "rule", "short", 3), ("dropped", "rule", "long", 6)]
    assert [one["picture"][:15] for one in groups[0].examples] == ["data:image/png;", "", "", ""]
    assert [one["excerpt"] for one in groups[0].examples] == [*["folder/doc.txt"] * 3, "a line of JSON with some words in it"]
    assert all(100 < len(one["excerpt"]) <= 280 for one in groups[1].examples)


@pytest.mark.parametrize("path", ["long.jsonl", "long.parquet"])
def test_examples_of_long_texts_are_looked_for_in_a_few_of_them(tmp_path, path):
    rows = [{"id": str(i), "source": "s", "text": chr(97 + i % 26) * (1 << 20)} for i in range(60)]
    if path.endswith(".jsonl"):
        (tmp_path / path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / path)
    del rows
    stats = {"files": [{"path": path, "port": "written", "stage": "write"}], "stages": [{"name": "write"}]}
    tracemalloc.start()
    try:
        group, = find_examples(stats, Folder.open(str(tmp_path)))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert [one["id"] for one in group.examples] == list("012345")


def test_examples_in_the_report_are_escaped_and_bounded(lossy):
    stats, out = lossy
    html = render_report(stats, "", find_examples(stats, out))
    assert "&lt;b&gt;bold" in html
    assert "<b>bold" not in html
    assert "svg onload" not in html
    assert html.count("<img") == 1
    assert len(html) < 100_000


def test_ribbons_stay_within_the_strip_and_meet_at_its_edges():
    drawn = strips(branched()["stages"])
    numbers = [float(x) for strip in drawn for shape in strip.shapes for x in re.findall(r"[\d.]+", shape.path)]
    assert min(numbers) >= 0
    assert max(numbers) <= 100

    def ends(strip, y):
        """Left ends of the ribbons that cross the upper (0) or lower (100) edge."""
        found = set()
        for shape in strip.shapes:
            if shape.kind in ("flow", "waiting", "leaving", "arriving"):
                found |= set(re.findall(r"^M([\d.]+) 0C" if y == 0 else r"([\d.]+) 100H", shape.path))
        return found

    for above, below in itertools.pairwise(drawn):
        assert ends(above, 100) == ends(below, 0)
    kinds = {strip.stage["name"]: {shape.kind for shape in strip.shapes} for strip in drawn}
    assert "dropped" in kinds["rules"]
    assert "dropped" not in kinds["language"]  # its dropped rows go on to a stage
    assert "sink" in kinds["rest"]


# -- progress -----------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


SNAPSHOT = {"units_done": 2, "units_total": 8, "bytes_done": 50_000_000, "bytes_total": 200_000_000, "records_in": 12_345, "written": 9_000,
            "dropped": 3_000, "failed": 3, "duplicate": 0, "rate": 1234.5, "workers": 4, "limit": "waiting for html"}


def test_a_log_gets_a_plain_line_every_ten_seconds_and_a_last_one():
    clock, out = Clock(), io.StringIO()
    progress = Progress(out, clock)
    for second in range(26):
        clock.now = 100 + second
        progress.update({**SNAPSHOT, "bytes_done": second * 4_000_000, "units_done": 0})
    progress.close()
    progress.close()
    told = "12,345 read; 9,000 written; 3,000 dropped; 3 failed; 1,234 records/s; 4 workers"
    assert out.getvalue() == (
        f"20%; 0 of 8 units, 40.0 MB of 200.0 MB; {told}; 10.0 s so far; about 40.0 s left; waiting for html\n"
        f"40%; 0 of 8 units, 80.0 MB of 200.0 MB; {told}; 20.0 s so far; about 30.0 s left; waiting for html\n"
        f"50%; 0 of 8 units, 100.0 MB of 200.0 MB; {told}; 25.0 s so far; about 25.0 s left; waiting for html\n")


def test_what_a_resumed_run_began_with_does_not_count_as_speed():
    clock = Clock()
    progress = Progress(io.StringIO(), clock)
    progress.update({"units_done": 5, "units_total": 10})
    assert progress.seconds_left() is None
    clock.now += 10
    progress.update({"units_done": 6, "units_total": 10})
    progress.update({"units_done": 6, "units_total": 10})
    assert progress.share() == pytest.approx(0.6)
    assert progress.seconds_left() == pytest.approx(40)


def test_a_terminal_gets_a_panel_at_most_five_times_a_second(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    clock, out = Clock(), Terminal()
    progress = Progress(out, clock)
    for step in range(100):
        clock.now = 100 + step / 100
        progress.update({**SNAPSHOT, "records_in": step})
    shown = [int(n) for n in re.findall(r"(\d+) read", out.getvalue())]
    assert 4 <= len(set(shown)) <= 6
    progress.close()
    assert "waiting for html" in out.getvalue()
    assert "25%" in out.getvalue()


def test_a_run_without_snapshots_or_totals_is_quiet_or_modest():
    out = io.StringIO()
    Progress(out).close()
    assert out.getvalue() == ""
    progress = Progress(out, Clock())
    progress.update({"records_in": 0})
    progress.close()
    assert out.getvalue() == "0%; 0 read; 0 written; 0.00 s so far\n"


# -- preview ------------------------------------------------------------------------------------------------


def preview(*stages, **kwargs):
    out = io.StringIO()
    show_preview(stages, out, **kwargs)
    return out.getvalue()


def docs(**columns):
    n = len(next(iter(columns.values())))
    return pa.table({"id": [f"doc-{i}" for i in range(n)], "source": ["x"] * n, "_row": list(range(n)), **columns})


def test_preview_shows_the_changed_words_of_a_text():
    before = docs(text=["The cafÃ© at the end of the street is open again.", "Nothing to change in this one here."])
    after = docs(text=["The café at the end of the street is open again.", "Nothing to change in this one here."])
    text = preview(StagePreview("clean", {"out": after}, before))
    assert "clean  2 in, 2 out" in text
    assert "~ text: 49 -> 48 characters  The [-cafÃ©-]{+café+} at" in text
    assert "out: 1 unchanged" in text


def test_preview_tells_who_dropped_what_and_why():
    before = docs(text=["too short", "a text that is long enough to be kept here"])
    dropped = before.slice(0, 1).append_column("reason", pa.array(["too_short"]))
    failed = before.slice(1, 1).append_column("error", pa.array(["ValueError: no\nbody"])).append_column(
        "traceback", pa.array(["Traceback (most recent call last)..."]))
    text = preview(StagePreview("drop", {"dropped": dropped, "failed": failed}, before))
    assert "  doc-0  dropped: too_short\n    too short\n" in text
    assert "  doc-1  failed: ValueError: no body\n    a text that is long enough" in text
    assert "Traceback" not in text


def test_preview_names_the_source_of_a_record_without_a_text():
    photos = pa.table({"id": ["a", "b"], "source": ["photos/a.jpg", "photos/b.jpg"], "format": ["jpeg", "jpeg"]})
    copy = photos.slice(1).append_column("duplicate_of", pa.array(["a"])).append_column("cluster", pa.array(["2e12b1e3dacf30bd"]))
    assert "  b  duplicate: a\n    photos/b.jpg\n" in preview(StagePreview("near", {"duplicate": copy}, photos))


def test_preview_shows_new_values_and_columns_that_went():
    before = docs(html=[b"<html>" * 1000])
    after = docs(text=["A text that is long enough for a line of its own."], score=[0.123456], n=[7], empty=[None])
    text = preview(StagePreview("read", {"out": before}), StagePreview("extract", {"out": after}, before))
    assert "+ html=<6.0 kB>" in text
    assert "+ text: A text that is long enough for a line" in text
    assert "+ score=0.1235, n=7, empty=null" in text
    assert "- html" in text
    assert "_row" not in text


def test_preview_matches_children_to_their_parent_and_limits_the_records():
    before = docs(n=[1])
    after = pa.table({"id": [f"doc-0#{i}" for i in range(7)], "source": ["x"] * 7, "parent": ["doc-0"] * 7,
                      "n": [1] * 7})
    text = preview(StagePreview("split", {"out": after}, before), records_max=3)
    assert "out: 3 unchanged" in text
    assert "out: 4 more not shown" in text
    assert max(map(len, preview(StagePreview("x", {"out": docs(text=["word " * 99_999])})).split("\n"))) <= 80
