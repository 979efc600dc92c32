"""What differs between two runs: recipe, code, input, funnel, scores, records."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from curator.api.format import count, listing, plural
from curator.results.output import RunOutput
from curator.results.places import ledgers
from curator.results.tables import columns_in, is_number, sql_name
from curator.run.folder.ledger_files import is_marked, to_record

EARLIER = "ended before it begins"  # in a run that reads what the other has written from there on
EXAMPLES = 10
SAMPLE = 200_000  # records whose scores are compared one by one
SHARES = (0.05, 0.5, 0.95)
END = ("CASE _place WHEN 'data' THEN 'written' WHEN 'dropped' THEN concat('dropped by ', _stage, ': ', "
       "reason) ELSE concat(_place, ' in ', _stage) END")


@dataclass(frozen=True, kw_only=True)
class Score:
    """A column of numbers in both runs, each with mean, and what 5 %, half and 95 % of the values are below;
    None without a value. `moved`: the share of records in both whose value differs (of a sample where there
    are many), None where none has both."""

    column: str
    means: tuple[float | None, float | None]
    quantiles: tuple[list[float] | None, list[float] | None]
    moved: float | None


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Records that ended otherwise: where in each run, None where they are not in it, `EARLIER` where it
    reads the other's rows from a later step on (`curator recut`). `examples`: ids."""

    before: str | None
    after: str | None
    count: int
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`recipe`: the lines of a diff. `code`: by stage or distribution, what it was in each run. `inputs`:
    files that were read in the first only (`gone`), in the second only (`new`), or in another state
    (`changed`). `funnel`: stage, what of it, and the records in each run, None where it has no such stage.
    `same`: records that end alike; `texts`: those of them with another text."""

    names: tuple[str, str]
    recipe: list[str] = field(default_factory=list)
    code: dict[str, tuple[str, str]] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    funnel: list[tuple[str, str, int | None, int | None]] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    same: int = 0
    texts: int = 0
    verdict: str = ""


def compare(one: RunOutput, two: RunOutput) -> Comparison:
    """What differs between two runs.

    Raises:
        CuratorError: the files of one cannot be read.
    """
    found: dict[str, Any] = {"recipe": list(_recipe(one, two)), "code": _code(one, two),
                             "inputs": _inputs(one, two), "funnel": _funnel(one, two)}
    with one.connect() as first, two.connect() as second:
        found |= _records(first, second, _taken(one, two), _taken(two, one))
        found["scores"] = list(_scores(first, second))
    names = one.folder.uri, two.folder.uri
    return Comparison(names=names, verdict=_verdict(found, one, two), **found)


def _recipe(one: RunOutput, two: RunOutput) -> Iterator[str]:
    """A diff of the recipes, but for the folders of the runs."""
    was, now = ([line for line in run.recipe.splitlines() if not line.startswith("out:")]
                for run in (one, two))
    yield from list(difflib.unified_diff(was, now, lineterm="", n=1))[2:]


def _code(one: RunOutput, two: RunOutput) -> dict[str, tuple[str, str]]:
    """What has another version; of stages with the same version that of another fingerprint: a parameter, or
    code of one's own."""
    found: dict[str, tuple[str, str]] = {}
    versions = [run.manifest.get("versions", {}) for run in (one, two)]
    for name in sorted(versions[0].keys() | versions[1].keys()) if all(versions) else ():
        was, now = (str(of.get(name, "-")) for of in versions)
        if was != now:
            found[name] = was, now
    stages = [{s["name"]: s for s in run.manifest["stages"]} for run in (one, two)]
    for name in (n for n in stages[0] if n in stages[1]):
        a, b = stages[0][name], stages[1][name]
        if a["version"] != b["version"]:
            found[name] = f"version {a['version']}", f"version {b['version']}"
        elif a["fingerprint"] != b["fingerprint"]:
            found[name] = f"fingerprint {a['fingerprint']}", f"fingerprint {b['fingerprint']}"
    return found


def _inputs(one: RunOutput, two: RunOutput) -> dict[str, list[str]]:
    """What was read, as the lines of finished units have it."""
    units = [_units(run) for run in (one, two)]
    files = [{uri for uris in of.values() for uri in uris} for of in units]
    groups: list[dict[tuple[str, ...], set[str]]] = [{}, {}]
    for group, of in zip(groups, units, strict=True):
        for key, uris in of.items():
            group.setdefault(uris, set()).add(key)  # a large file is several units
    changed = {uri for uris in groups[0].keys() & groups[1].keys() for uri in uris
               if groups[0][uris] != groups[1][uris]}
    return {"gone": sorted(files[0] - files[1]), "new": sorted(files[1] - files[0]),
            "changed": sorted(changed)}


def _units(run: RunOutput) -> dict[str, tuple[str, ...]]:
    records = (to_record(line) for _, _, line in next(ledgers(run.folder)).units() if not is_marked(line))
    return {record.unit: record.uris for record in records}


def _funnel(one: RunOutput, two: RunOutput) -> list[tuple[str, str, int | None, int | None]]:
    """Of each stage what came in, and what did not go on and why."""
    sides = [{(stage["name"], what): rows for stage in run.stats["stages"] for what, rows in _parts(stage)}
             for run in (one, two)]
    stages = [{name for name, _ in side} for side in sides]
    order = list(dict.fromkeys([*one.order(), *two.order()]))
    both = sorted(sides[0].keys() | sides[1].keys(),
                  key=lambda at: (order.index(at[0]), at[1] != "in", at[1]))
    return [(name, what, *(side.get((name, what), 0) if name in there else None
                           for side, there in zip(sides, stages, strict=True))) for name, what in both]


def _parts(stage: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield "in", stage["in"]
    yield from ((f"dropped: {reason}", rows) for reason, rows in stage["dropped"].items() if rows)
    yield from ((what, stage[what]) for what in ("made", "duplicate", "failed", "absorbed") if stage[what])
    if stage["kind"] == "sink":
        yield from stage["out"].items()


def _taken(one: RunOutput, two: RunOutput) -> list[str] | None:
    """What of the first the second reads, such as `dropped/quality`, if it reads nothing else."""
    read = {uri for uris in _units(two).values() for uri in uris}
    ways = {one.path_of(file): f"{place.kind}/{place.stage}" for place in one.places
            for file in (*place.files, *place.tables)}
    return sorted({ways[uri] for uri in read}) if read and read <= ways.keys() else None


def _records(first: Any, second: Any, *taken: list[str] | None) -> dict[str, Any]:
    """Where the records of both ended, side by side. `taken`: what of each the other reads."""
    for db, ways in zip((first, second), taken, strict=True):
        text = "hash(text)" if "text" in columns_in(db) else "NULL::UBIGINT"
        earlier = "bool_and(NOT list_contains(?::VARCHAR[], concat(_place, '/', _stage)))"
        db.execute(f"CREATE TABLE ends AS SELECT id, string_agg(DISTINCT {END}, ', ' ORDER BY {END}) AS "
                   f"ended, any_value({text}) AS text, {earlier} AS earlier FROM records "
                   "WHERE id IS NOT NULL GROUP BY id", [ways])
    first.register("others", second.sql("SELECT * FROM ends").to_arrow_table())
    rows = first.execute(
        f"SELECT coalesce(a.ended, if(b.earlier, '{EARLIER}', NULL)), "
        f"coalesce(b.ended, if(a.earlier, '{EARLIER}', NULL)), count(*), min(coalesce(a.id, b.id), ?), "
        "count(*) FILTER (a.text IS DISTINCT FROM b.text) FROM ends a FULL JOIN others b ON a.id = b.id "
        "GROUP BY ALL ORDER BY 3 DESC, 1, 2", [EXAMPLES]).fetchall()
    first.unregister("others")
    alike = [row for row in rows if row[0] == row[1]]
    return {"moved": [Moved(before=a, after=b, count=n, examples=ids) for a, b, n, ids, _ in rows if a != b],
            "same": sum(row[2] for row in alike), "texts": sum(row[4] for row in alike)}


def _scores(first: Any, second: Any) -> Iterator[Score]:
    """The columns of numbers that both have."""
    measured = [[name for name, kind in columns_in(db).items()
                 if name[0] != "_" and (is_number(kind) or kind == "BOOLEAN")] for db in (first, second)]
    columns = [name for name in measured[0] if name in measured[1]]
    if not columns:
        return
    told = []
    for db in (first, second):
        wanted = ", ".join(f"avg({n}::DOUBLE), quantile_cont({n}::DOUBLE, {list(SHARES)})"
                           for n in map(sql_name, columns))
        told.append(db.execute(f"SELECT {wanted} FROM records").fetchall()[0])
    [[rows]] = first.execute("SELECT count(*) FROM ends").fetchall()
    sample = (f"SELECT id, {', '.join(f'any_value({n})::DOUBLE AS {n}' for n in map(sql_name, columns))} "
              f"FROM records WHERE hash(id) % {1 + rows // SAMPLE} = 0 GROUP BY id")
    first.register("others", second.sql(sample).to_arrow_table())
    moved = first.execute("SELECT " + ", ".join(
        f"avg((a.{n} <> b.{n})::INTEGER)" for n in map(sql_name, columns))
        + f" FROM ({sample}) a JOIN others b ON a.id = b.id").fetchall()[0]
    first.unregister("others")
    for at, name in enumerate(columns):
        yield Score(column=name, means=(told[0][2 * at], told[1][2 * at]), moved=moved[at],
                    quantiles=(told[0][2 * at + 1], told[1][2 * at + 1]))


def _verdict(found: dict[str, Any], one: RunOutput, two: RunOutput) -> str:
    """Whether they have the same records, and why not."""
    only = [sum(m.count for m in found["moved"] if (m.before, m.after)[1 - at] is None) for at in (0, 1)]
    earlier = sum(m.count for m in found["moved"] if EARLIER in (m.before, m.after))
    other = sum(m.count for m in found["moved"]) - sum(only) - earlier
    apart = [f"{count(n)} {what}" for n, what in (
        (only[0], "in the first only"), (only[1], "in the second only"),
        (earlier, "that ended before the other run begins"), (other, "with another end"),
        (found["texts"], "with another text")) if n]
    scores = [s.column for s in found["scores"] if s.moved]
    causes = []
    if found["recipe"]:
        causes.append("the recipe")
    if stages := [name for name in found["code"] if name in one.order()]:
        causes.append(f"parameters or code of {listing(stages)}")
    if rest := [name for name in found["code"] if name not in stages]:
        causes.append(f"versions of {listing(rest)}")
    if inputs := [f"{count(len(files))} {what}" for what, files in found["inputs"].items() if files]:
        causes.append(f"the input ({', '.join(inputs)})")
    unfinished = [run.folder.uri for run in (one, two) if run.stats["status"] in ("running", "stopped")]
    if unfinished:
        causes.append(f"that {' and '.join(unfinished)} did not finish")
    if not apart:
        begin = f"The same {plural(found['same'], 'record')}, each with the same end"
        more = f"; scores differ in {listing(scores)}" if scores else ""
        return f"{begin}{more}." + (f" There is a difference in {', '.join(causes)}." if causes else "")
    total = found["same"] + sum(only) + earlier + other
    begin = f"Not the same records: of the {count(total)} of both runs {', '.join(apart)}"
    why = (f"; what differs is {', '.join(causes)}" if causes else
           "; recipe, code and input are the same, so it is the order of the records, or a stage that does "
           "not always answer alike")
    return f"{begin}{why}."
