"""Stats of runs that never ran."""

from __future__ import annotations

import io
from dataclasses import replace

from curator.api.counts import Counts
from curator.api.summary import ColumnSummary
from curator.observe.report.funnel import show_funnel
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


def run_of(stage, n=100, **columns):
    """A run whose middle stage has these counts."""
    left = sum(stage.out.values())
    return chain(("read", "source", Counts(n, 0, {"out": n})), ("middle", "stage", stage, ["a", "b"]),
                 ("sink", "sink", Counts(left, 0, {"written": left})), columns={"middle": columns})


def funnel(stats, **kwargs):
    out = io.StringIO()
    show_funnel(stats, out, **kwargs)
    return out.getvalue()
