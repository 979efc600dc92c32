"""What a run did, in numbers: the counts of each stage and the dict that becomes `stats.json`.

Everything that shows a run (funnel, report, card, alarms) reads this dict and nothing else:

    name, status ("running" | "finished" | "stopped" | "failed"), message, seconds (of all attempts), out (the
    run's folder), limit (a sentence); where earlier attempts took a part also latest_seconds
    records  {in, made, written, dropped, duplicate, failed, absorbed}: where the records of the run ended; in
             a run that is not finished also {unfinished}: read, and under way or in files that were given up,
             so they will be read again; in a shard: kept for what needs those of all shards
    stopped_by  why it did not end well, as `curator.engine.events.Stop` has it
    first_errors  [{stage, error, traceback, file, line, record}]: the first error of each stage, what matters
             most first
    stages   in pipeline order, each {name, kind ("source" | "stage" | "sink"), after ([[stage, port], ...]:
             inputs), in, made, out {port: rows}, dropped {reason: rows}, duplicate, failed, absorbed, busy_s
             (seconds of work, over all workers), rows_per_s (rows in per second of work: the speed of one
             worker), workers (most at a time)} and, where there are any, columns {column: summary} (see
             `curator.api.summary`), conditions {reason: SQL}, sparse [column], by_value {column: {value:
             {port: rows}}}, extra {name: number}, amounts {column: {way: {port or reason: sum}}} (see
             `Counts`), memory (see `MemoryShort`), and its `findings`: lines [text], tables [{title, head,
             rows}]
    units    {done, total, skipped}
    alive, live  only while it works, or of one that was killed: who writes this, when and how often; and the
             run at that moment, as `curator.observe.live.words` has it, with `engine`: queues, workers, nodes
    outputs  [{stage, port, folder, files (how many), rows, size_bytes}]; port is "written" or the side output
             that is kept there
    files    [{path, rows, size_bytes, stage, port}]: of each output the first hundred; the ledger names all
    checkpoints  if there are any, as outputs: what is kept behind a stage for a later edit
    alarms   [{level ("error" | "warning" | "note"), stage, text}], worst first; stage is None for what
             concerns the whole run
    example_columns  {column: how it is shown}, as stages declare; amounts likewise: {column: how its sum is
             shown}
    about    {began, command, versions {distribution: version}, machine}: of the latest attempt; in a shard
             also {shard}: "3/8"
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from curator.api.counts import WRITTEN, Counts
from curator.api.findings import Alarm, Finding, Line, Table
from curator.api.format import folder
from curator.api.stage import SIDE_OUTPUTS, Stage
from curator.observe.alarms import find_alarms
from curator.observe.report.graph import ports, takers

CHECKPOINT = "checkpoint"  # the port of files that a checkpoint keeps
FILES_MAX = 100  # of a stage and port are listed; a run may write a million
LEVELS = ("error", "warning", "note")


@dataclass(frozen=True)
class StageInfo:
    """What is known of a stage without running it.

    `kind`: "source", "stage" or "sink". `after`: the stages and ports it takes rows from. `workers`: how many
    worked on it, 0 when unknown. `reasons`: each reason it can give for a drop, so that a rule that never
    fired is seen; a mapping has the condition of each. `sparse`: columns that are null or 0 in most data.
    """

    name: str
    kind: str
    after: tuple[tuple[str, str], ...] = ()
    workers: int = 0
    reasons: Collection[str] = ()
    sparse: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """How a run went, beside its counts. `seconds` covers every attempt; `files`: all of them, as in
    `stats.json`."""

    name: str
    status: str = "finished"
    message: str = ""
    seconds: float = 0.0
    out: str = ""
    limit: str = ""
    units: Mapping[str, int] = field(default_factory=dict)
    files: Iterable[Mapping[str, Any]] = ()
    example_columns: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


def summarise(run: RunInfo, stage_infos: Sequence[StageInfo], counts: Mapping[str, Counts],
              findings: Mapping[str, Sequence[Finding]] | None = None) -> dict[str, Any]:
    """The stats of a run. Stages come in pipeline order; a stage without counts saw no row.

    `findings`: what each stage says of itself. A mismatch of the counts does not raise here: it becomes an
    alarm of level "error" with the numbers, so that the run can still be looked at.
    """
    stages = stage_rows(stage_infos, counts)
    alarms = []
    for stage in stages:
        if stage["name"] in counts and (columns := counts[stage["name"]].columns):
            stage["columns"] = {name: summary.to_json() for name, summary in columns.items()}
        for found in (findings or {}).get(stage["name"], ()):
            match found:
                case Alarm():
                    alarms.append({"level": found.level, "stage": stage["name"], "text": found.text})
                case Line():
                    stage.setdefault("lines", []).append(found.text)
                case Table():
                    stage.setdefault("tables", []).append(asdict(found))
    ended = records(stages)
    if run.status in ("running", "stopped") or "shard" in run.about:
        gone = sum(ended[name] for name in (WRITTEN, *SIDE_OUTPUTS, "absorbed"))
        ended["unfinished"] = max(0, ended["in"] + ended["made"] - gone)
    stats = {"name": run.name, "status": run.status, "message": run.message, "records": ended,
             "seconds": round(run.seconds, 3), "out": run.out, "limit": run.limit,
             "units": {"done": 0, "total": 0, "skipped": 0, **run.units},
             "stages": stages, **_outputs(run.files), "example_columns": dict(run.example_columns),
             "amounts": dict(run.amounts), "about": dict(run.about)}
    stats["alarms"] = sorted([*find_alarms(stats), *alarms], key=lambda alarm: LEVELS.index(alarm["level"]))
    return stats


def _outputs(files: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """`outputs`, the written first, `files`, and `checkpoints`."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    listed: list[dict[str, Any]] = []
    for file in files:
        stage, port, path = file["stage"], file["port"], file["path"]
        group = groups.setdefault((stage, port), {"stage": stage, "port": port, "folder": folder([path]),
                                                  "files": 0, "rows": 0, "size_bytes": 0})
        if group["files"] < FILES_MAX and port != CHECKPOINT:
            listed.append(dict(file))
        group["folder"] = folder([group["folder"], path])
        group["files"] += 1
        group["rows"] += file["rows"]
        group["size_bytes"] += file["size_bytes"]
    order = {port: at for at, port in enumerate(SIDE_OUTPUTS)}
    kept = [group for group in groups.values() if group["port"] == CHECKPOINT]
    written = [group for group in groups.values() if group["port"] != CHECKPOINT]
    return {"outputs": sorted(written, key=lambda group: order.get(group["port"], -1)),
            "files": listed, **({"checkpoints": kept} if kept else {})}


def findings_of(stage: Stage, step: str, counts: Counts) -> list[Finding]:
    """What a stage says of itself. A mistake in that ends no run."""
    try:
        return list(stage.findings(step, counts))
    except Exception as error:
        return [Alarm("warning", f"What stage {step} found cannot be shown ({type(error).__name__}: "
                                 f"{error}): this is a bug in its "
                                 "`findings`; the records and counts are not concerned.")]


def with_parts(counts: Mapping[str, Counts], part_of: Mapping[str, str],
               reports: Mapping[str, Sequence[str]], behind: Collection[str] = (),
               taken: Collection[tuple[str, str]] = ()) -> dict[str, Counts]:
    """The counts with those of the parts of composite stages (`part_of`: the main step of each) in their main
    steps. `behind`: main steps that take rows from their parts only. `taken`: the ports that a step takes.

    Parts work on copies of what they compare, which are no records: only their work, their failures and what
    they found out (of columns what each `reports`) are counted. A main step absorbs what its parts sent it.
    One behind its parts is sent the records: of those that it absorbs, as one that puts them into another
    order does, as many stay as it makes. What its parts drop, make or fail on are records too.
    """
    whole = {name: counts[name] for name in counts if name not in part_of}
    for main in set(part_of.values()) & set(whole):
        own, whole[main] = whole[main], Counts()
        if main in behind:
            stay = min(own.made, own.absorbed)
            whole[main].add(replace(own, made=own.made - stay, absorbed=own.absorbed - stay))
        else:
            whole[main].add(replace(own, rows_in=own.rows_in - own.absorbed, absorbed=0))
    for name, main in part_of.items():
        if name in counts and main in whole:
            part = counts[name]
            ends = Counts(made=part.failed, failed=part.failed)
            if main in behind:
                left = {port for port in SIDE_OUTPUTS if (name, port) not in taken}
                ends = Counts(made=part.made, absorbed=part.absorbed,
                              dropped=part.dropped if "dropped" in left else {},
                              duplicate=part.duplicate if "duplicate" in left else 0,
                              failed=part.failed if "failed" in left else 0)
                ends.rows_in = (sum(ends.dropped.values()) + ends.duplicate + ends.failed + ends.absorbed
                                - ends.made)
            whole[main].add(ends)
            whole[main].add(Counts(busy_s=part.busy_s, errors=part.errors, extra=part.extra,
                                   by_value=part.by_value, memory=part.memory,
                                   columns={c: s for c, s in part.columns.items() if c in reports[name]}))
    return whole


def stage_rows(infos: Sequence[StageInfo], counts: Mapping[str, Counts]) -> list[dict[str, Any]]:
    """The stages of `stats.json`, without columns and findings."""
    return [_stage(info, counts.get(info.name, Counts())) for info in infos]


def _stage(info: StageInfo, counts: Counts) -> dict[str, Any]:
    conditions = dict(info.reasons) if isinstance(info.reasons, Mapping) else {}
    optional = {"conditions": conditions, "sparse": list(info.sparse), "by_value": counts.by_value,
                "amounts": counts.amounts, "extra": counts.extra,
                "memory": asdict(counts.memory) if counts.memory else None,
                "inner": {name: inner.to_json() for name, inner in counts.inner.items()}}
    return {"name": info.name, "kind": info.kind, "after": [list(end) for end in info.after],
            "in": counts.rows_in, "made": counts.made, "out": dict(counts.out),
            "dropped": {**dict.fromkeys(info.reasons, 0), **counts.dropped},
            "duplicate": counts.duplicate, "failed": counts.failed, "absorbed": counts.absorbed,
            "busy_s": round(counts.busy_s, 3), "workers": info.workers,
            "rows_per_s": round(counts.rows_in / counts.busy_s, 1) if counts.busy_s > 0 else 0.0,
            **{name: value for name, value in optional.items() if value}}


def records(stages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Where the records of a run ended: each of them in one place only.

    A side output that another stage takes (a branch on `dropped`) is no end, so its rows count where that
    branch ends. A port that two stages take gives each of them the rows: the copies count as made.
    """
    taken = takers(stages)
    total = dict.fromkeys(("in", "made", WRITTEN, *SIDE_OUTPUTS, "absorbed"), 0)
    for stage in stages:
        total["made"] += stage["made"]
        total["absorbed"] += stage["absorbed"]
        if stage["kind"] == "source":
            total["in"] += stage["in"]
        if stage["kind"] == "sink":
            total[WRITTEN] += sum(stage["out"].values())
        for port, rows in ports(stage).items():
            takers_of_port = taken.get((stage["name"], port), ())
            total["made"] += rows * max(0, len(takers_of_port) - 1)
            if port in SIDE_OUTPUTS and not takers_of_port:
                total[port] += rows
    return total
