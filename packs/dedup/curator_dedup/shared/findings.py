"""What deduplication says of a run: in how large clusters records are alike, and what each source lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from curator.api.counts import Counts
from curator.api.findings import Alarm, Finding, Line, Table
from curator.api.format import count, plural, share

ROWS_MIN = 20  # with fewer records a share says nothing
CLUSTER_MIN = 10  # records in a cluster that is worth a word, however few there are in all
SOURCES_SHOWN = 20


def findings_of_duplicates(step: str, counts: Counts, alarm_above: Mapping[str, float]) -> Iterator[Finding]:
    """`alarm_above`: the shares of all records in one `cluster`, and of a `source` lost, above which there is
    an alarm."""
    yield from _clusters(step, counts, alarm_above.get("cluster", 1.0))
    yield from _sources(step, counts, alarm_above.get("source", 1.0))


def _clusters(step: str, counts: Counts, above: float) -> Iterator[Finding]:
    """From the columns that the part reports which finds clusters."""
    if "cluster_size" not in counts.columns:
        return
    largest, sizes, rows = (counts.columns["cluster_size"].greatest or 0,
                            counts.columns["cluster_sizes"].values or {}, counts.rows_in)
    if largest:
        yield Line(f"{count(sum(sizes.values()))} records in clusters of up to {count(largest)}")
    if sizes:
        in_order = sorted(sizes.items(), key=lambda item: int(item[0].split("-")[0]))
        yield Table("Clusters of duplicates", ("records in a cluster", "records"),
                    [(size, n, rows) for size, n in in_order])
    if rows >= ROWS_MIN and largest > max(CLUSTER_MIN, above * rows):
        yield Alarm("warning", f"One cluster of stage {step} has {count(largest)} of {count(rows)} records "
                    f"({share(largest, rows)}): look at it in clusters/{step}; it may be a template, or an "
                    "error page.")


def _sources(step: str, counts: Counts, above: float) -> Iterator[Finding]:
    """Look-alikes that are none, a source that is read twice or holds another."""
    lost = [(source, ports.get("duplicate", 0), ports.get("out", 0) + ports.get("duplicate", 0))
            for source, ports in counts.by_value.get("source", {}).items()]
    lost.sort(key=lambda row: -row[1])
    if striking := [row for row in lost if row[2] >= ROWS_MIN and row[1] > above * row[2]]:
        source, same, had = striking[0]
        others = f", and over {share(above, 1)} of those of {plural(len(striking) - 1, 'more source')}"
        yield Alarm("warning",
                    f"Stage {step} took {count(same)} of {count(had)} records of source {source} for "
                    f"duplicates ({share(same, had)}){others if len(striking) > 1 else ''}: check that this is "
                    "meant, and which source `keep` prefers.")
    if several := [row for row in lost if row[1] and row[2] > 1]:
        yield Table("Duplicates by source", ("source", "duplicates"), several[:SOURCES_SHOWN])
