"""What in the stats of a run deserves a look. Each alarm is one sentence: what, where, and what to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from curator.observe.format import count, listing, plural, share
from curator.observe.report.graph import kept, ports

LEVELS = ("error", "warning", "note")
ROWS_MIN = 20  # with fewer rows, a rule that never fired or a constant column says nothing
FAILED_MAX = 0.01  # share of the records above which failures are no longer single bad inputs
CLUSTER_MIN = 10  # records in a cluster that is worth a word, however few there are in all
SOURCES_SHOWN = 5  # alarms over sources that lost much
DUPLICATE_MAX = 0.9  # share of a stage's rows above which they are one corpus read twice rather than repeats

# Source: ISO 639-1:2002, the two-letter codes.
_CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg
ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn
no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw
ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
LANGUAGES = frozenset(_CODES.split())

Stats = Mapping[str, Any]
Alarms = Iterator[tuple[str, str | None, str]]  # level, stage, text


def find_alarms(stats: Stats) -> list[dict[str, Any]]:
    """The alarms of a run, worst first: `[{level, stage, text}]`; `stage` is None for what concerns the whole run."""
    found = [*_lost_rows(stats), *_empty(stats), *_failed(stats)]
    for stage in stats["stages"]:
        found += [*_memory(stage), *_rules(stage), *_duplicates(stage), *_clusters(stage), *_constants(stage), *_languages(stage)]
    alarms = [{"level": level, "stage": stage, "text": text} for level, stage, text in found]
    return sorted(alarms, key=lambda alarm: LEVELS.index(alarm["level"]))


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
            yield ("error", name, f"Stage {name} had {count(came)} rows ({count(rows)} in, {count(stage['made'])} "
                   f"made) but {count(left)} left it; {asked}")
        given = sum(sent.get((before, port), 0) for before, port in stage["after"])
        if stage["kind"] != "source" and rows != given and not unfinished:
            yield "error", name, f"Stage {name} was given {count(given)} rows but took in {count(rows)}; {asked}"
    records = stats["records"]
    ended = {name: records[name] for name in ("written", "dropped", "duplicate", "failed", "absorbed")}
    had, sums = records["in"] + records["made"], sum(ended.values())
    if sums != had and not unfinished:
        terms = " + ".join(f"{count(rows)} {name}" for name, rows in ended.items())
        yield ("error", None, f"The records do not add up: {count(records['in'])} in + {count(records['made'])} made = "
               f"{count(had)}, but {terms} = {count(sums)}; {asked}")


def _empty(stats: Stats) -> Alarms:
    records, stages = stats["records"], stats["stages"]
    sinks = [s for s in stages if s["kind"] == "sink"]
    if stats["status"] != "finished":
        return
    if not records["in"]:
        sources = listing(s["name"] for s in stages if s["kind"] == "source")
        yield "error", None, f"No record was read by {sources}: look at the recipe's `read` path and the input files."
    elif sinks and not records["written"]:
        last = [s for s in stages if s["in"] and s["kind"] != "sink"][-1]
        yield ("error", None, f"The output is empty: none of {count(records['in'])} records was written, and the last "
               f"of them ended in stage {last['name']}; look at its reasons.")
    else:
        for sink in sinks:
            if not kept(sink):
                origin = listing(f"{name} (port {port})" for name, port in sink["after"])
                yield "warning", sink["name"], f"{sink['name']} wrote nothing: no row came to it from {origin}."


def _failed(stats: Stats) -> Alarms:
    records = stats["records"]
    failed, had = records["failed"], records["in"] + records["made"]
    if failed and failed > FAILED_MAX * had:
        worst = max(stats["stages"], key=lambda s: s["failed"])
        yield ("warning", worst["name"], f"{count(failed)} of {count(had)} records failed ({share(failed, had)}), most "
               f"of them in stage {worst['name']} ({count(worst['failed'])}): read the column `error` in "
               f"failed/{worst['name']}.")


def _memory(stage: Stats) -> Alarms:
    short, name = stage.get("memory"), stage["name"]
    if short:
        told = f"Stage {name} ran out of memory in {plural(short['calls'], 'call')} of up to {plural(short['rows'], 'row')}"
        most = short["rows_max"]
        if most is None:
            yield "note", name, f"{told}; with fewer rows they went on, and at the end as many fitted as before."
        else:
            yield ("warning", name, f"{told}, and went on with at most {plural(most, 'row')} a call at the end: state a smaller "
                   "`batch_size`, so that no time is lost with larger ones, or give the stage more memory.")


def _rules(stage: Stats) -> Alarms:
    name, rows, reasons = stage["name"], stage["in"], stage["dropped"]
    if not rows:
        return
    whole = [reason for reason, n in reasons.items() if n == rows]
    if whole:
        yield ("warning", name, f"The rule {whole[0]} in stage {name} dropped all of the {plural(rows, 'record')} that "
               f"reached it: check its threshold, and that the column it reads holds what it means.")
    elif sum(reasons.values()) == rows:
        ranked = sorted(reasons, key=lambda reason: -reasons[reason])
        yield ("warning", name, f"Stage {name} dropped all of the {plural(rows, 'record')} that reached it "
               f"({listing(ranked, 3)}): look at dropped/{name}.")
    silent = [reason for reason, n in reasons.items() if not n]
    if silent and rows >= ROWS_MIN:
        rules = (f"The rule {silent[0]} in stage {name}" if len(silent) == 1
                 else f"{len(silent)} of {len(reasons)} rules in stage {name} ({listing(silent)})")
        yield ("note", name, f"{rules} never fired on {count(rows)} records: fine on clean input, else check threshold "
               f"and column.")


def _duplicates(stage: Stats) -> Alarms:
    name, rows, same = stage["name"], stage["in"], stage["duplicate"]
    if rows >= ROWS_MIN and same > DUPLICATE_MAX * rows:
        yield ("warning", name, f"{count(same)} of {count(rows)} records are duplicates in stage {name}: check that "
               f"the input is not read twice and that the compared column is filled.")


def _clusters(stage: Stats) -> Alarms:
    """One cluster, or one source, that loses much: look-alikes that are none, a template, a source that is read twice."""
    name, rows, above = stage["name"], stage["in"], stage.get("alarm_above", {})
    largest = stage.get("clusters", {}).get("largest", 0)
    if rows >= ROWS_MIN and largest > max(CLUSTER_MIN, above.get("cluster", 1.0) * rows):
        yield ("warning", name, f"One cluster of stage {name} has {count(largest)} of {count(rows)} records "
               f"({share(largest, rows)}): look at it in clusters/{name}; it may be a template, or an error page.")
    for note, about in stage.get("notes", {}).items():
        yield "warning", name, f"Stage {name}: {count(about)} {note}"
    for source, (out, same) in sorted(stage.get("by_source", {}).items(), key=lambda s: -s[1][1])[:SOURCES_SHOWN]:
        if out + same >= ROWS_MIN and same > above.get("source", 1.0) * (out + same):
            yield ("warning", name, f"Stage {name} took {count(same)} of {count(out + same)} records of source {source} for "
                   f"duplicates ({share(same, out + same)}): check that this is meant, and which source `keep` prefers.")


def _constants(stage: Stats) -> Alarms:
    """Columns that say nothing: a warning where the stage has no other, else a note.

    Zero everywhere is usual for counts of rare things, null for what only some formats have, one size for the images of one
    data set. Whole numbers other than 0 are often the same by nature, as is one picture a file.
    """
    name = stage["name"]
    seen = {c: s for c, s in stage.get("columns", {}).items() if s["rows"] >= ROWS_MIN}
    numbers = {column: s for column, s in seen.items() if "min" in s}
    zero = [c for c, s in numbers.items() if s["constant"] and s["min"] == 0]
    same = [c for c, s in numbers.items() if s["constant"] and s["min"] != 0 and isinstance(s["min"], float)]
    empty = [column for column, s in seen.items() if s["nulls"] == s["rows"]]
    if same:
        shown = listing([f"{column} ({numbers[column]['min']:g})" for column in same])
        yield (_level(same, numbers), name, f"Stage {name} gives every record the same score in {shown}: check that it "
               f"reads the right column.")
    if zero:
        yield (_level(zero, numbers), name, f"Stage {name} gives every record 0 in {listing(zero)}: check it if you "
               f"expected otherwise.")
    if empty:
        yield _level(empty, seen), name, f"Stage {name} left {listing(empty)} null in every record: check what it reads."


def _level(silent: list[str], columns: Mapping[str, Any]) -> str:
    return "warning" if len(silent) == len(columns) else "note"


def _languages(stage: Stats) -> Alarms:
    name = stage["name"]
    for column, summary in stage.get("columns", {}).items():
        if column.split(".")[-1] not in ("language", "lang"):
            continue
        for place, codes in (("holds", summary.get("values", {})), ("is kept for", summary.get("keep", ()))):
            unknown = [repr(code) for code in codes if not known_language(code)]
            if unknown:
                yield ("warning", name, f"Column {column} of stage {name} {place} {listing(unknown)}, unknown as a "
                       f"language code: use ISO 639 codes, such as en or deu.")


def known_language(code: str) -> bool:
    """True for a code of ISO 639-1, and for anything that has the shape of one of ISO 639-3's 7,900.

    A script or region may follow (`zh-Hant`, `deu_Latn`, `pt-BR`).
    """
    language, *subtags = re.split("[-_]", code)
    if not all(re.fullmatch("[A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}", subtag) for subtag in subtags):
        return False
    return language in LANGUAGES or bool(re.fullmatch("[a-z]{3}", language))
