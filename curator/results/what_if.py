"""What other conditions of `drop` steps would have done to a run, told from what it wrote.

A record that a step dropped, and now would not, goes on through the rules behind it, to the first stage that
must see it. A record that passed, and now would be dropped, is gone from where it ended. All others end as
they did: what stages that remember records (dedup, limits) would do with others is said, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from curator import sql
from curator.api.errors import CuratorError, RecipeError
from curator.api.format import plural
from curator.results.edits import RuleEdit, edited
from curator.results.flow import Flow
from curator.results.output import RunOutput
from curator.results.questions import End, Question
from curator.results.tables import columns_in, sql_name, sql_text

EXAMPLES = 10  # records that flip, each way
VALUES = 12  # sources and languages that are named


@dataclass(frozen=True)
class Move:
    """So many records that would end elsewhere."""

    before: End
    after: End
    records: int


@dataclass(frozen=True)
class Row:
    """A stage in both funnels: the records that go on from it, and of a `drop` step those of each reason.

    `open`: so many of those more that go on are not certain, nor are they counted.
    """

    stage: str
    before: int
    after: int
    open: int = 0
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """Records of one source, or in one language: brought back, and lost."""

    value: str
    back: int
    lost: int


@dataclass(frozen=True)
class WhatIf:
    """`back` and `lost`: examples of records that no rule drops any more, or that one does now: id, source,
    before, after, the columns that the rules look at, and an excerpt. `by`: shares by column. `notes`: what
    the output does not tell."""

    edits: tuple[RuleEdit, ...]
    funnel: tuple[Row, ...]
    moves: tuple[Move, ...]
    by: dict[str, tuple[Share, ...]]
    back: tuple[dict[str, Any], ...]
    lost: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def what_if(out: RunOutput, overrides: Mapping[str, str]) -> WhatIf:
    """What the run would have done with these `--set` values.

    Raises:
        RecipeError: they change something else than conditions of `drop` steps, or nothing.
        CuratorError: the output does not have what is needed.
    """
    graph, edits = edited(out, overrides)
    question = Question(out, Flow.of(graph), edits)
    with out.connect() as db:
        return Answer(question, db).whole()


class Answer:
    """Asks the question, and counts."""

    def __init__(self, question: Question, db: Any) -> None:
        self.q, self.db, self.out, self.flow = question, db, question.out, question.flow
        self.notes = list(question.notes)
        self.columns = columns_in(db)
        self.by = [column for column in ("source", "language") if column in self.columns]
        self._find()
        self.moves = self._moves()

    def _find(self) -> None:
        """Make the table `moved` of the records that would end elsewhere: `way` is 1 for those brought back,
        2 for those lost, 0 for others."""
        import duckdb

        if not self.q.groups:
            raise CuratorError("no record that these rules look at is in the output. " + " ".join(self.notes))
        try:
            for text in (after for edit in self.q.edits for _, _, after in edit.changes if after):
                bound = self.db.execute(f"DESCRIBE SELECT ({text}\n) FROM records").fetchone()
                sql.check_kind(text, bound[1])
            self.db.execute(f"CREATE TABLE moved AS {self._query(lambda case: case)}")
        except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException):
            self.db.execute(f"CREATE TABLE moved AS {self._query(lambda case: f'TRY({case})')}")
            self.notes.append("a condition cannot be evaluated for some records, which would fail; they are "
                              "counted as they ended before")
        except duckdb.Error as error:
            raise RecipeError(f"the conditions do not fit the output: {str(error).splitlines()[0]}") from None

    def _query(self, tried: Callable[[str], str]) -> str:
        drops, parts = self._drops(), []
        for at, (place, case) in enumerate(self.q.groups):
            way = (f"CASE WHEN {drops} THEN 0 ELSE 1 END" if place.kind == "dropped"
                   else f"CASE WHEN {drops} THEN 2 ELSE 0 END" if place.kind == "data" else "0")
            where = f"_place = {sql_text(place.kind)} AND _stage = {sql_text(place.stage)}"
            parts.append(f"SELECT {at} AS place, id, {', '.join(self.by)}, reason, code, {way} AS way, "
                         f"_file, _row FROM (SELECT *, {tried(case)} AS code FROM records WHERE {where}) "
                         "WHERE code IS NOT NULL")
        return " UNION ALL ".join(parts)

    def _drops(self) -> str:
        """The condition that a record of `moved` would be dropped."""
        codes = [str(code) for code, end in enumerate(self.q.ends) if end.kind == "dropped"]
        return f"code IN ({', '.join(codes)})" if codes else "false"

    def _moves(self) -> tuple[Move, ...]:
        rows = self.db.execute("SELECT place, reason, code, count(*) AS n FROM moved GROUP BY ALL "
                               "ORDER BY n DESC, place, reason, code").fetchall()
        return tuple(Move(self.q.old_end(self.q.groups[place][0], reason), self.q.ends[code], n)
                     for place, reason, code, n in rows)

    def whole(self) -> WhatIf:
        self._say_what_is_open()
        back, lost = self._examples(1), self._examples(2)
        return WhatIf(self.q.edits, self._funnel(), self.moves, {c: self._shares(c) for c in self.by},
                      back, lost, tuple(self.notes))

    def _funnel(self) -> tuple[Row, ...]:
        rows = []
        for stage in self.out.stats["stages"]:
            name = stage["name"]
            before, reasons = sum(stage["out"].values()), dict.fromkeys(stage["dropped"], 0)
            change, unsure = 0, 0
            for move in self.moves:
                change += move.records * (self._passes(move.after, name) - self._passes(move.before, name))
                if move.after.kind == "reaches":
                    way = self.flow.through[move.after.stage]
                    is_behind = move.after.stage == name or move.after.stage in self.flow.above[name]
                    unsure += move.records * (is_behind and (name not in way or name == move.after.stage))
                for end, by in ((move.before, -move.records), (move.after, move.records)):
                    if end.stage == name and end.kind == "dropped":
                        reasons[end.reason] = reasons.get(end.reason, 0) + by
            dropped = {reason: (stage["dropped"].get(reason, 0), stage["dropped"].get(reason, 0) + by)
                       for reason, by in reasons.items()}
            rows.append(Row(name, before, before + change, unsure, dropped))
        return tuple(rows)

    def _passes(self, end: End, name: str) -> bool:
        """Whether a record with this end went on from a stage."""
        if end.kind == "written":  # to all sinks that take the same rows
            return name in self.flow.through[end.stage] or name in self.flow.twins(end.stage)
        return name in self.flow.through[end.stage] and end.stage != name

    def _say_what_is_open(self) -> None:
        status = self.out.stats["status"]
        if status != "finished":
            self.notes.insert(0, f"the run is {status}: this is told of the records that have ended so far")
        reached: dict[str, int] = {}
        for move in self.moves:
            if move.after.kind == "reaches":
                reached[move.after.stage] = reached.get(move.after.stage, 0) + move.records
        for name, n in reached.items():
            self.notes.append(f"{plural(n, 'more record')} would reach {name}; {self._asked(name)}")
        for name in self.flow.order:
            if self.flow.remembers(name):
                self._say_of_those_gone(name)

    def _asked(self, name: str) -> str:
        """What is not known of records that reach a stage."""
        if self._finds_copies(name):
            return "how many of them are copies is not told by the output"
        rest = [other for other in self.flow.order if name in self.flow.above[other]
                and not self.flow.is_sink(other)]
        return "what it makes of them" + (f", and those behind it ({', '.join(rest)})," if rest else "") + \
            " is not told by the output"

    def _finds_copies(self, name: str) -> bool:
        return bool(self.out.stage(name)["duplicate"]) or "dedup" in name

    def _say_of_those_gone(self, name: str) -> None:
        """Of a stage that remembers: how many records it would not see any more, and what rested on them."""
        gone = sum(m.records for m in self.moves if m.after.kind == "dropped"
                   and name in self.flow.through[m.before.stage]
                   and name not in self.flow.through[m.after.stage])
        if not gone:
            return
        if not self._finds_copies(name):
            self.notes.append(f"{name} would not see {gone:,} records that it saw; what it would do with "
                              "others in their place is not told by the output")
            return
        copies = self.db.execute(
            "SELECT count(*) FROM records r WHERE _place = 'duplicate' AND _stage = $1 AND duplicate_of IN "
            f"(SELECT id FROM moved WHERE {self._drops()}) AND NOT EXISTS (SELECT 1 FROM moved m WHERE "
            "m.id = r.id AND m._file = r._file)", [name]).fetchone()[0]
        self.notes.append(f"{gone:,} records that {name} saw would be dropped before it; " + (
            f"{copies:,} duplicates name one of them, and some of these would be kept in its place" if copies
            else "no duplicate that stays names one of them"))

    def _shares(self, column: str) -> tuple[Share, ...]:
        rows = self.db.execute(
            f"SELECT {column}, count(*) FILTER (way = 1) AS back, count(*) FILTER (way = 2) AS lost "
            f"FROM moved WHERE way > 0 GROUP BY 1 ORDER BY back + lost DESC, 1 LIMIT {VALUES}").fetchall()
        return tuple(Share("" if value is None else str(value), back, lost) for value, back, lost in rows)

    def _examples(self, way: int) -> tuple[dict[str, Any], ...]:
        chosen = self.db.execute(f"SELECT id, _file, _row, place, reason, code FROM moved WHERE way = {way} "
                                 f"ORDER BY _file, _row, id LIMIT {EXAMPLES}").fetchall()
        if not chosen:
            return ()
        columns = sorted(set().union(*(sql.columns_of(condition) for edit in self.q.edits
                                       for _, *both in edit.changes for condition in both if condition)))
        text = self.out.text_column([c for c, kind in self.columns.items() if kind == "VARCHAR"])
        shown = [f"left({sql_name(text)}, 400) AS {sql_name(text)}" if c == text else sql_name(c)
                 for c in dict.fromkeys([*columns, *([text] if text else [])]) if c not in ("id", "source")]
        places = {self.q.groups[row[3]][0] for row in chosen}
        where = " OR ".join(f"(_place = {sql_text(p.kind)} AND _stage = {sql_text(p.stage)})" for p in places)
        known = [str(row[2]) for row in chosen if row[2] is not None]
        near = f"AND _row IN ({', '.join(known)})" if len(known) == len(chosen) else ""
        found = self.db.execute(
            f"SELECT id, source{''.join(f', {s}' for s in shown)} FROM records WHERE ({where}) {near} "
            f"AND _file IN ({', '.join({sql_text(row[1]) for row in chosen})}) "
            f"AND id IN ({', '.join(sql_text(row[0]) for row in chosen)})")
        names = [d[0] for d in found.description]
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in found.fetchall()}
        return tuple(rows.get(id, {"id": id}) | {
            "before": str(self.q.old_end(self.q.groups[place][0], reason)), "after": str(self.q.ends[code])}
            for id, _, _, place, reason, code in chosen)
