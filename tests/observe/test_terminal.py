"""What a terminal or a log shows of a run: funnel, progress, preview."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pytest

from curator.api import format as fmt
from curator.observe.live.progress import Progress
from curator.observe.preview import StagePreview, show_preview
from curator.observe.report.funnel import show_funnel
from curator.observe.report.page import render_report
from tests.observe.runs import branched, funnel, small

# -- the funnel ---------------------------------------------------------------------------------------------

FILES = [{"path": "/home/anna/out/part-0.parquet", "rows": 800, "size_bytes": 3_400_000, "stage": "parquet",
          "port": "written"},
         {"path": "/home/anna/out/dropped/drop/a.parquet", "rows": 199, "size_bytes": 300_000, "stage": "drop",
          "port": "dropped"}]


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

note  1 of 2 rules in stage drop (loud) never fired: fine on clean input, else
      check threshold and column.

"""


def test_the_funnel_of_a_run_that_ended_well_says_what_failed_first_and_where_to_look():
    error = {"stage": "signals", "error": "ValueError: no\x1b[2J text", "traceback": "", "file": "", "line": 0, "record": "d7"}
    text = funnel({**small(out="/home/anna/out"), "first_errors": [error]})
    assert "199 dropped + 1 failed\nfirst error in stage signals: ValueError: no" in text
    assert " text; all: curator failures\n/home/anna/out" in text or " text; all: curator failures /home/anna/out" in text
    assert "\x1b" not in text


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


def test_a_run_that_was_continued_says_its_own_time_and_the_whole():
    stats = small(status="finished")
    assert "demo finished in 2.3 s, " in funnel(stats)
    stats["latest_seconds"] = 0.52
    assert "demo finished in 0.52 s (2.3 s with earlier attempts), " in funnel(stats)
    assert "0.52 s (2.3 s with earlier attempts), " in render_report(stats)


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


# -- progress -----------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


STAGES = [{"name": "jsonl", "in": 12_345, "out": 12_345, "failed": 0, "rate": 1234.5, "busy": 0.2, "workers": 1, "operator": 0},
          {"name": "html", "in": 12_000, "out": 11_000, "failed": 3, "rate": 1200, "busy": 2.71, "workers": 4, "operator": 1,
           "queue_rows": 345, "queue_bytes": 9_000, "queue_limit": 1 << 20},
          {"name": "rules", "in": 11_000, "out": 9_000, "failed": 0, "rate": 1100, "busy": 0.04, "workers": 4, "operator": 1}]
SNAPSHOT = {"share": 0.25, "seconds_left": 32.4, "seconds": 10.0, "units_done": 2, "units_total": 8, "bytes_read": 50_000_000,
            "bytes_total": 200_000_000, "records_in": 12_345, "written": 9_000, "dropped": 3_000, "failed": 3, "duplicate": 0,
            "rate": 1234.5, "bytes_rate": 5_000_000, "workers": 4, "limit": "waiting for html", "stages": STAGES}


def test_a_log_gets_a_plain_line_every_ten_seconds_and_a_last_one():
    clock, out = Clock(), io.StringIO()
    progress = Progress(out, clock)
    for second in range(26):
        clock.now = 100 + second
        progress.update({**SNAPSHOT, "share": second / 50, "seconds": second, "seconds_left": 50.4 - second})
    progress.close()
    progress.close()
    told = ("2 of 8 units, 50.0 MB of 200.0 MB read; 12,345 read; 9,000 written; 3,000 dropped; 3 failed; 1,234 records/s; 5.0 MB/s; "
            "4 workers")
    assert out.getvalue() == (
        f"20%; {told}; 10.0 s so far; about 40.0 s left; waiting for html\n"
        f"40%; {told}; 20.0 s so far; about 30.0 s left; waiting for html\n"
        f"50%; {told}; 25.0 s so far; about 25.0 s left; waiting for html\n")


def test_a_line_for_each_stage():
    out = io.StringIO()
    progress = Progress(out, Clock(), stages=True)
    progress.update(SNAPSHOT)
    progress.close()
    assert out.getvalue().split("\n", 1)[1] == """\
  stage      in     out  rows/s  queue  workers  busy
  jsonl  12,345  12,345   1,234               1   0.2
  html   12,000  11,000   1,200    345        4   2.7
  rules  11,000   9,000   1,100               "   0.0
"""


@pytest.fixture
def notebook(monkeypatch):
    """What is displayed in an IPython that is none."""
    import sys
    from types import ModuleType

    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    def display(data, raw, display_id):
        shown.append(data)
        return Handle()

    class ZMQInteractiveShell:
        pass

    module, inner = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython, module.display, inner.display = ZMQInteractiveShell, inner, display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    return shown


def test_a_notebook_gets_one_display_that_is_written_over(notebook, capsys):
    clock = Clock()
    progress = Progress(clock=clock)
    for second in range(5):
        clock.now = 100 + second / 2
        progress.update({**SNAPSHOT, "share": second / 10, "limit": "<script>alert(1)</script>"})
    progress.close()
    assert [data["text/plain"][:3] for data in notebook] == ["0%;", "20%", "40%", "40%"]
    assert "<script>" not in notebook[-1]["text/html"]
    assert "&lt;script&gt;" in notebook[-1]["text/html"]
    assert capsys.readouterr() == ("", "")


def test_a_run_in_a_notebook_shows_how_far_it_is(notebook, tmp_path, capsys):
    from curator import read, write

    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n' * 20)
    (read(str(tmp_path / "in.jsonl")) >> write(str(tmp_path / "out"))).run(workers=0)
    assert notebook
    assert notebook[-1]["text/plain"].startswith("100%; 1 of 1 unit, 280 B of 280 B read; 20 read; 20 written")
    assert capsys.readouterr() == ("", "")
    notebook.clear()
    (read(str(tmp_path / "in.jsonl")) >> write(str(tmp_path / "other"))).run(workers=0, progress=False)
    assert notebook == []


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
