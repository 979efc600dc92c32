"""The life of a record, told from what a run wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curator import sql
from curator.api.errors import CuratorError
from curator.api.format import shorten
from curator.io.files.faults import path_text
from curator.io.files.listing import DATA
from curator.observe.preview import StagePreview
from curator.pipeline.graph import Graph
from curator.results.look.failures import own_line
from curator.results.output import RunOutput
from curator.results.places import UNIT
from curator.results.tables import columns_in, sql_name
from curator.trial.preview import Wanted, preview

FOUND_MAX = 20  # records that are listed where several are meant
KIN_MAX = 10  # children and copies that are named
STEPS_MAX = 50  # of a chain of duplicates
CONTEXT = 60  # characters around a piece of text that was looked for
NAMES = ("id", "url", "path", "source")  # columns that a record is found by, in this order
BESIDE = ("_place", "_stage", "_file")
WHY = ("reason", "duplicate_of", "error", "traceback")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A record that may be meant. `excerpt`: the text around what was looked for, else its beginning."""

    id: str
    place: str
    stage: str
    source: str
    excerpt: str = ""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """A stage that a record went through. `columns`: those that it filled, with their values now;
    `rewritten`: those that a later stage filled again, so that the value is of that one."""

    stage: str
    columns: dict[str, Any] = field(default_factory=dict)
    rewritten: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Life:
    """What became of a record, at one of the places where it lies.

    `place`: data, dropped, duplicate or failed; `stage`: that put it there. `file`: in the run's folder;
    `row`: in it, from 0, None where that is not told. `unit`: the key of the unit. `passed`: the stages that
    it went through, the source first. `why`: reason, error or id of the other record. `condition`: the rule
    that dropped it, and `values` of the columns that this reads. `others`: the records that it is a duplicate
    of, each of the next; the last one stays, or ended otherwise.
    """

    id: str
    place: str
    stage: str
    source: str
    file: str
    row: int | None
    unit: str
    passed: tuple[Passed, ...]
    why: str = ""
    condition: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    others: tuple[Found, ...] = ()
    parents: tuple[Found, ...] = ()
    children: tuple[Found, ...] = ()
    children_count: int = 0
    copies: tuple[Found, ...] = ()
    copies_count: int = 0
    line: str = ""


def find(output: RunOutput, wanted: str) -> list[Found]:
    """The records that are meant: by id, else by URL or path, else by a piece of the text. At most
    `FOUND_MAX`.

    Raises:
        CuratorError: there is none.
    """
    if not wanted.strip():
        raise CuratorError("no record is named by nothing: give an id, a URL or path, or a piece of the text")
    wanted = path_text(wanted)
    with output.connect() as db:
        columns = columns_in(db)
        for name in (n for n in NAMES if n in columns):
            if found := _some(db, f"{sql_name(name)} = ?", [wanted]):
                return found
        for name in (n for n in ("path", "url", "source", "id") if n in columns):
            if found := _some(db, f"ends_with({sql_name(name)}, ?)", [wanted], name, wanted):
                return found
        texts = [name for name, kind in columns.items() if kind == "VARCHAR" and name not in (*BESIDE, *WHY)]
        texts.sort(key=lambda name: (name != "text", name not in ("content", "caption", "title"), name))
        for name in texts:
            if found := _some(db, f"contains({sql_name(name)}, ?)", [wanted], name, wanted):
                return found
    raise CuratorError(f"no record of the run in {output.folder.uri} has the id, URL or path {wanted!r}, or "
                       f"this in its text. {_unread(output)}".rstrip())


def lives(output: RunOutput, identity: str) -> list[Life]:
    """What became of the record with this id, at each place where it lies: mostly one."""
    graph = _graph(output)
    with output.connect() as db:
        columns = columns_in(db)
        places = db.execute("SELECT DISTINCT _place, _stage, _file FROM records WHERE id = ? ORDER BY ALL "
                            "LIMIT ?", [identity, FOUND_MAX]).fetchall()
        return [_life(output, db, columns, graph, identity, *place) for place in places]


def _life(output: RunOutput, db: Any, columns: Mapping[str, str], graph: Graph | None, identity: str,
          place: str, stage: str, file: str) -> Life:
    shown = [name for name, kind in columns.items() if kind != "BLOB" and name not in BESIDE]
    names = ", ".join(map(sql_name, shown))
    [values] = db.execute(f"SELECT {names} FROM records WHERE id = ? AND _place = ? AND _stage = ? "
                          "AND _file = ? LIMIT 1", [identity, place, stage, file]).fetchall()
    there = {name for one in output.places if (one.kind, one.stage) == (place, stage)
             for name in output.columns(one)}
    held = dict(zip(shown, values, strict=True))
    row = {name: value for name, value in held.items() if name in there}
    why = {"dropped": "reason", "duplicate": "duplicate_of", "failed": "error"}.get(place, "")
    reason = str(row.get(why) or "")
    condition = _conditions(graph, stage).get(reason, "") if place == "dropped" else ""
    read = sql.needs({reason: condition}) if condition else ()
    chain = _chain(db, row.get("duplicate_of")) if place == "duplicate" else ()
    children, children_count = _kin(db, columns, "parent", identity)
    copies, copies_count = _kin(db, columns, "duplicate_of", identity)
    unit = re.search(UNIT, file)
    return Life(id=identity, place=place, stage=stage, source=str(row.get("source") or ""), file=file,
        row=held["_row"], unit=unit[1] if unit else "",
        passed=_passed(output, row, stage, place), why=reason, condition=condition,
        values={name: row.get(name) for name in sorted(read)}, others=chain,
        parents=_chain(db, row.get("parent"), "parent"), children=children, children_count=children_count,
        copies=copies, copies_count=copies_count, line=own_line(str(row.get("traceback") or "")))

def _some(db: Any, condition: str, values: list[Any], column: str = "", wanted: str = "") -> list[Found]:
    """Records for which a condition is true, one for each id."""
    excerpt = "''"
    if column:
        at = f"greatest(1, strpos({sql_name(column)}, ?) - {CONTEXT})"
        excerpt = f"substr(any_value({sql_name(column)}), any_value({at}), {2 * CONTEXT + len(wanted)})"
    rows = db.execute(
        f"SELECT id, any_value(_place), any_value(_stage), any_value(source), {excerpt} FROM records "
        f"WHERE {condition} GROUP BY id ORDER BY id LIMIT {FOUND_MAX}",
        ([wanted] if column else []) + values).fetchall()
    return [Found(id=str(row[0]), place=row[1], stage=row[2], source=row[3] or "",
                  excerpt=shorten(row[4] or "", 2 * CONTEXT + len(wanted))) for row in rows]


def _unread(output: RunOutput) -> str:
    """What was not looked into, in a sentence."""
    gone = [f"{stage['name']} ({port})" for stage in output.stats["stages"]
            for port, rows in (("dropped", sum(stage["dropped"].values())), ("duplicate", stage["duplicate"]),
                               ("failed", stage["failed"]))
            if rows and not any((p.kind, p.stage) == (port, stage["name"]) for p in output.places)]
    parts = [f"not kept are the records of {', '.join(gone)}"] if gone else []
    if output.unread:
        parts.append(f"not looked into: {', '.join(place.stage for place in output.unread)}, no tables")
    if output.stats["status"] != "finished":
        parts.append("the run has not finished")
    return "; ".join(parts).capitalize()


def _graph(output: RunOutput) -> Graph | None:
    """The recipe; None where it does not load here: then conditions are not told."""
    try:
        return output.graph()
    except CuratorError:
        return None


def _conditions(graph: Graph | None, stage: str) -> dict[str, str]:
    """By reason, the conditions of a step of the kind of `drop`."""
    for node, name in graph.names().items() if graph else ():
        if name == stage and isinstance(reasons := node.stage.reasons(), dict):
            return reasons
    return {}


def _passed(output: RunOutput, row: Mapping[str, Any], stage: str, place: str) -> tuple[Passed, ...]:
    """The stages on the ways to one, each with the columns that it filled."""
    stages = {one["name"]: one for one in output.stats["stages"]}
    ways, todo = set(), [stage]
    while todo:
        name = todo.pop()
        if name in stages and name not in ways:
            ways.add(name)
            todo += [before for before, _ in stages[name]["after"]]
    names = [name for name in output.order() if name in ways]
    filled = {name: list(stages[name].get("columns", ())) for name in names}
    made_by = {column for columns in filled.values() for column in columns}
    if place != DATA:
        filled[stage] = []  # it was not to answer this record
    last = {column: name for name in names for column in filled.get(name, ())}
    first = [column for column in row if column not in made_by and column not in WHY
             and (place != "failed" or row[column] is not None)]  # what a stage gave that never answered
    made = []
    for name in names:
        columns = first if stages[name]["kind"] == "source" else filled.get(name, ())
        own = {c: row[c] for c in columns if c in row and last.get(c, name) == name}
        made.append(Passed(stage=name, columns=own,
                           rewritten={c: last[c] for c in columns if c in row and last.get(c, name) != name}))
    return tuple(made)


def _chain(db: Any, identity: Any, column: str = "duplicate_of") -> tuple[Found, ...]:
    """The record with an id, that which it points to, and so on."""
    found: list[Found] = []
    columns = columns_in(db)
    while identity and len(found) < STEPS_MAX and identity not in {one.id for one in found}:
        next_one = sql_name(column) if column in columns else "NULL"
        rows = db.execute(f"SELECT _place, _stage, source, {next_one} FROM records WHERE id = ? "
                          "ORDER BY _place LIMIT 1", [identity]).fetchall()
        place, stage, source, after = rows[0] if rows else ("", "", "", None)
        found.append(Found(id=str(identity), place=place, stage=stage or "", source=source or ""))
        identity = after
    return tuple(found)


def _kin(db: Any, columns: Mapping[str, str], column: str, identity: str) -> tuple[tuple[Found, ...], int]:
    """Records that point to one."""
    if column not in columns:
        return (), 0
    name = sql_name(column)
    rows = db.execute(f"SELECT id, _place, _stage, source, count(*) OVER () FROM records WHERE {name} = ? "
                      f"ORDER BY id LIMIT {KIN_MAX}", [identity]).fetchall()
    return (tuple(Found(id=str(r[0]), place=r[1], stage=r[2], source=r[3] or "") for r in rows),
            rows[0][4] if rows else 0)


def rerun(output: RunOutput, life: Life) -> list[StagePreview]:
    """What each stage of the recipe does to the record that this one came from, read from its unit again.
    Stages that compare records see this one alone.

    Raises:
        CuratorError: the recipe does not load here, or the record is not in the input any more.
    """
    first = life.parents[-1].id if life.parents else life.id
    found = preview(output.graph(), 1, Wanted(first, "" if _later(life) else life.unit))
    if not any(table.num_rows for table in found[0].outputs.values()):
        raise CuratorError(f"{first!r} is not in the input any more, or is called otherwise there")
    return found


def _later(life: Life) -> bool:
    """Whether its file was written in a later phase, whose units are none of the source."""
    return bool(life.file) and re.search(r"part-[0-9a-f]{16}-[0-9a-f]{16}-0-", life.file) is None
