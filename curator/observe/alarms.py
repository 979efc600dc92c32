"""What in the stats of a run deserves a look. Each alarm is one sentence: what, where, and what to look
at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from curator.api.format import count, listing, plural, share
from curator.observe.report.graph import kept, ports

ROWS_MIN = 20  # with fewer rows, a rule that never fired or a constant column says nothing
FAILED_MAX = 0.01  # share of the records above which failures are no longer single bad inputs
DUPLICATE_MAX = 0.9  # share of a stage's rows above which they are one corpus read twice rather than repeats

Stats = Mapping[str, Any]
Alarms = Iterator[tuple[str, str | None, str]]  # level, stage, text


def find_alarms(stats: Stats) -> list[dict[str, Any]]:
    """The alarms that any run and any stage may raise; a stage's own come from its `findings`."""
    found = [*_lost_rows(stats), *_empty(stats), *_failed(stats), *_silent(stats)]
    for stage in stats["stages"]:
        found += [*_memory(stage), *_rules(stage), *_duplicates(stage), *_constants(stage)]
    return [{"level": level, "stage": stage, "text": text} for level, stage, text in found]


def _lost_rows(stats: Stats) -> Alarms:
    """The accounting itself: every stage, every hand-over and the run add up, or Curator has a bug.

    In a run that has not finished, rows may be under way between two stages.
    """
    asked = "this is a bug in Curator: do not trust this output, and report it with _run/stats.json."
    unfinished = stats["status"] != "finished"
    sent = {(s["name"], port): rows for s in stats["stages"] for port, rows in ports(s).items()}
    for stage in stats["stages"]:
        name, rows = stage["name"], stage["in"]
        came, left = rows + stage["made"], sum(ports(stage).values()) + stage["absorbed"]
        if came != left:
            yield ("error", name,
                   f"Stage {name} had {count(came)} rows ({count(rows)} in, {count(stage['made'])} "
                   f"made) but {count(left)} left it; {asked}")
        given = sum(sent.get((before, port), 0) for before, port in stage["after"])
        if stage["kind"] != "source" and rows != given and not unfinished:
            yield ("error", name,
                   f"Stage {name} was given {count(given)} rows but took in {count(rows)}; {asked}")
    records = stats["records"]
    ended = {name: records[name] for name in ("written", "dropped", "duplicate", "failed", "absorbed")}
    had, sums = records["in"] + records["made"] - records.get("unfinished", 0), sum(ended.values())
    if sums != had and not unfinished:
        terms = " + ".join(f"{count(rows)} {name}" for name, rows in ended.items())
        yield ("error", None,
               f"The records do not add up: {count(records['in'])} in + {count(records['made'])} made = "
               f"{count(had)}, but {terms} = {count(sums)}; {asked}")


def _empty(stats: Stats) -> Alarms:
    records, stages = stats["records"], stats["stages"]
    sinks = [s for s in stages if s["kind"] == "sink"]
    if stats["status"] != "finished" or "shard" in stats["about"]:  # other shards may have something
        return
    if not records["in"]:
        sources = listing(s["name"] for s in stages if s["kind"] == "source")
        yield ("error", None,
               f"No record was read by {sources}: look at the recipe's `read` path and the input files.")
    elif sinks and not records["written"]:
        last = [s for s in stages if s["in"] and s["kind"] != "sink"][-1]
        yield ("error", None,
               f"The output is empty: none of {count(records['in'])} records was written, and the last "
               f"of them ended in stage {last['name']}; look at its reasons.")
    else:
        for sink in sinks:
            if not kept(sink):
                origin = listing(f"{name} (port {port})" for name, port in sink["after"])
                yield ("warning", sink["name"],
                       f"{sink['name']} wrote nothing: no row came to it from {origin}.")


def _failed(stats: Stats) -> Alarms:
    records = stats["records"]
    failed, had = records["failed"], records["in"] + records["made"]
    if failed and failed > FAILED_MAX * had:
        worst = max(stats["stages"], key=lambda s: s["failed"])
        yield ("warning", worst["name"],
               f"{count(failed)} of {count(had)} records failed ({share(failed, had)}), most "
               f"of them in stage {worst['name']} ({count(worst['failed'])}): read the column `error` in "
               f"failed/{worst['name']}.")


def _memory(stage: Stats) -> Alarms:
    short, name = stage.get("memory"), stage["name"]
    if short:
        text = (f"Stage {name} ran out of memory in {plural(short['calls'], 'call')} of up to "
                f"{plural(short['rows'], 'row')}")
        most = short["rows_max"]
        if most is None:
            yield ("note", name,
                   f"{text}; with fewer rows they went on, and at the end as many fitted as before.")
        else:
            yield ("warning", name, f"{text}, and went on with at most {plural(most, 'row')} a call at the "
                                    "end: state a smaller "
                   "`batch_size`, so that no time is lost with larger ones, or give the stage more memory.")


def _rules(stage: Stats) -> Alarms:
    name, rows, reasons = stage["name"], stage["in"], stage["dropped"]
    if not rows:
        return
    whole = [reason for reason, n in reasons.items() if n == rows]
    if whole:
        yield ("warning", name,
               f"The rule {whole[0]} in stage {name} dropped all of the {plural(rows, 'record')} that "
               f"reached it: check its threshold, and that the column it reads holds what it means.")
    elif sum(reasons.values()) == rows:
        ranked = sorted(reasons, key=lambda reason: -reasons[reason])
        yield ("warning", name, f"Stage {name} dropped all of the {plural(rows, 'record')} that reached it "
               f"({listing(ranked, 3)}): look at dropped/{name}.")


def _silent(stats: Stats) -> Alarms:
    """Rules that never fired, of all stages in one note: of several it has only how many, and the report
    names them."""
    found = {s["name"]: [reason for reason, n in s["dropped"].items() if not n] for s in stats["stages"]
             if s["in"] >= ROWS_MIN and 0 in s["dropped"].values()}
    of = {s["name"]: plural(len(s["dropped"]), "rule") for s in stats["stages"]}
    which = "".join(f" ({listing(silent)})" for silent in found.values()) if len(found) == 1 else ""
    told = listing((f"{len(silent)} of {of[name]} in stage {name}" for name, silent in found.items()), 9)
    if found:
        yield ("note", next(iter(found)) if len(found) == 1 else None,
               f"{told}{which} never fired: fine on clean input, else check threshold and column.")


def _duplicates(stage: Stats) -> Alarms:
    name, rows, same = stage["name"], stage["in"], stage["duplicate"]
    if rows >= ROWS_MIN and same > DUPLICATE_MAX * rows:
        yield ("warning", name,
               f"{count(same)} of {count(rows)} records are duplicates in stage {name}: check that "
               f"the input is not read twice and that the compared column is filled.")


def _constants(stage: Stats) -> Alarms:
    """Columns that say nothing: a warning where the stage has no other, else a note.

    Zero everywhere is usual for counts of rare things, null for what only some formats have, one size for the
    images of one data set. Whole numbers other than 0 are often the same by nature, as is one picture a file.
    """
    name = stage["name"]
    usual = stage.get("sparse", ())
    seen = {c: s for c, s in stage.get("columns", {}).items() if s["rows"] >= ROWS_MIN and c not in usual}
    numbers = {column: s for column, s in seen.items() if "min" in s}
    zero = [c for c, s in numbers.items() if s["constant"] and s["min"] == 0]
    same = [c for c, s in numbers.items() if s["constant"] and s["min"] != 0 and isinstance(s["min"], float)]
    empty = [column for column, s in seen.items() if s["nulls"] == s["rows"]]
    if same:
        shown = listing([f"{column} ({numbers[column]['min']:g})" for column in same])
        yield (_level(same, numbers), name,
               f"Stage {name} gives every record the same score in {shown}: check that it "
               f"reads the right column.")
    if zero:
        yield (_level(zero, numbers), name,
               f"Stage {name} gives every record 0 in {listing(zero)}: check it if you expected otherwise.")
    if empty:
        yield (_level(empty, seen), name,
               f"Stage {name} left {listing(empty)} null in every record: check what it reads.")


def _level(silent: list[str], columns: Mapping[str, Any]) -> str:
    return "warning" if len(silent) == len(columns) else "note"
