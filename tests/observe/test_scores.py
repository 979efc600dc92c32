"""Scores in the report: histograms with thresholds, near misses, survivors of copies, where records of a value ended."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator.api.counts import Counts
from curator.api.summary import ColumnSummary
from curator.io.files.folder import Folder
from curator.observe.report.examples import find_examples
from curator.observe.report.page import render_report
from curator.observe.report.sample import samples, spread
from curator.observe.report.scores import charts, columns_wanted
from curator.observe.stats import RunInfo, StageInfo, summarise

CONDITIONS = {"few_words": "words < 50", "strange": "score > 0.9 AND words < 500", "never": "score > 2"}


@pytest.fixture
def run(tmp_path):
    """100 records of 1 to 100 words; `rules` drops 49 and 5, `dedup` 1; 45 are written."""
    def file(path, port, stage, table):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / path, row_group_size=10)
        return {"path": path, "rows": len(table), "size_bytes": 1, "stage": stage, "port": port}

    def table(words, **more):
        words = list(words)
        return pa.table({"id": [f"r{w}" for w in words], "text": [f"a text of as many as {w} words" for w in words], "words": words,
                         "score": [w / 100 for w in words], "language": ["en" if w % 2 else "de" for w in words], **more})

    gone = table([*range(1, 50), *range(91, 96)], reason=["few_words"] * 49 + ["strange"] * 5)
    files = [file("dropped/rules/a.parquet", "dropped", "rules", gone), file("data/a.parquet", "written", "write", table(range(50, 80))),
             file("data/b.parquet", "written", "write", table([*range(80, 91), *range(96, 100)])),
             file("duplicate/dedup/a.parquet", "duplicate", "dedup", table([100], duplicate_of=["r60"], similarity=[1.0]))]

    def stats(signals_behind=False):
        infos = [StageInfo("read", "source"), StageInfo("rules", "stage", (("read", "out"),), reasons=CONDITIONS),
                 StageInfo("dedup", "stage", (("rules", "out"),)), StageInfo("write", "sink", (("dedup", "out"),))]
        summary = {"words": ColumnSummary(100)} if signals_behind else {}
        counts = {"read": Counts(100, 0, {"out": 100}), "rules": Counts(100, 0, {"out": 46}, {"few_words": 49, "strange": 5}),
                  "dedup": Counts(46, 0, {"out": 45}, duplicate=1, columns=summary), "write": Counts(45, 0, {"written": 45})}
        return summarise(RunInfo(name="demo", files=files), infos, counts)

    return stats, Folder.open(str(tmp_path))


def drawn(stats, out):
    return {(chart.reason, chart.measure): chart for chart in charts(stats, samples(stats, out, columns_wanted(stats) | {"reason"}))}


def test_each_rule_that_compares_with_a_number_has_a_histogram_with_its_threshold(run):
    stats, out = run
    found = drawn(stats(), out)
    assert set(found) == {("few_words", "words"), ("strange", "words"), ("strange", "score"), ("never", "score")}
    chart = found["few_words", "words"]
    assert (chart.low, chart.high, chart.dropped) == ("1", "100", 49)
    (place, text), = chart.marks
    assert (round(place, 2), text) == (0.85, "< 50")
    assert chart.note == "logarithmic"
    kinds = [{kind for kind, _ in bar} for bar in chart.bars]
    assert kinds[0] == {"dropped"}
    assert kinds[-1] == {"written", "elsewhere"}  # the copy, and what `strange` dropped
    assert "few_words" in render_report(stats(), "", out)


def test_a_measure_that_a_later_stage_changes_has_no_histogram(run):
    stats, out = run
    assert set(drawn(stats(signals_behind=True), out)) == {("strange", "score"), ("never", "score")}


def test_records_that_a_rule_nearly_dropped_are_shown_after_those_that_it_dropped(run):
    stats, out = run
    groups = find_examples(stats(), out)
    assert [(g.port, g.reason) for g in groups] == [("written", ""), ("dropped", "few_words"), ("near", "few_words"),
                                                    ("dropped", "strange"), ("duplicate", "")]
    assert [one["id"] for one in groups[2].examples] == ["r50", "r51", "r52"]
    assert groups[2].examples[0]["about"] == "words 50"
    assert "words 1" in groups[1].examples[0]["about"]


def test_a_copy_is_shown_beside_the_record_that_stays(run):
    stats, out = run
    assert find_examples(stats(), out)[-1].examples[0]["stays"] == "a text of as many as 60 words"


def test_the_report_says_where_the_records_of_each_language_ended(run):
    stats, out = run
    html = render_report(stats(), "", out)
    assert "Where records ended, by language" in html
    table = html.partition("Where records ended, by language")[2].partition("</table>")[0]
    cells = [re.sub("<[^>]*>", " ", row).split() for row in table.split("</tr>")[1:3]]
    assert cells == [["de", "50", "46.0%", "26", "1"], ["en", "50", "44.0%", "28"]]


@pytest.mark.parametrize(("count", "most", "expected"), [(3, 4, [0, 1, 2]), (4, 4, [0, 1, 2, 3]), (100, 4, [0, 25, 50, 75]), (0, 4, [])])
def test_spread_takes_from_all_over(count, most, expected):
    assert spread(range(count), most) == expected
