"""What the page may ask, by name, and the bytes that it may show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from curator.api.errors import CuratorError
from curator.api.stage import SIDE_OUTPUTS
from curator.explore.blobs import VALUE_BYTES, Blob, Kept, below, of_file, of_value
from curator.explore.effects import effects
from curator.explore.histograms import histogram
from curator.explore.pages import near, page, record
from curator.explore.records import DERIVED, FOLDER, Records
from curator.explore.rules import Rules
from curator.io.files.folder import open_input
from curator.io.media.types import HEAD_BYTES, media_type
from curator.results.archives import Media
from curator.results.output import RunOutput
from curator.results.tables import sql_name, sql_text

GROUPS_MAX = 200  # values of a column that are counted for themselves
SNIFFED = 40  # records by which it is told what a column of bytes holds
NO_GROUP = ("id", "source", "parent", "key", "title", "url")
MORE_FILTERS = 3  # columns of few values that have a filter of their own
FEW_VALUES = 60  # of a column that is worth a filter of its own


class Questions:
    """A run, and everything that may be asked of it."""

    def __init__(self, output: RunOutput, media_root: str | None = None) -> None:
        if media_root is not None and not os.path.isdir(media_root):
            raise CuratorError(f"--media-root {media_root}: there is no such folder")
        self.output, self.media_root = output, media_root
        self.records, self.rules = Records(output), Rules(output)
        self._kept = Kept()
        self._known: dict[str, Any] = {}
        self._ways: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "run": self._run, "counts": self._counts,
            "histogram": lambda given: histogram(self.records, self.rules, given),
            "page": lambda given: page(self.records, self.rules, given),
            "near": lambda given: near(self.records, self.rules, given),
            "record": self._record,
            "what_if": self._what_if,
            "write": lambda given: self.rules.written(self.rules.changed(given.get("changes"))),
        }

    def close(self) -> None:
        self.records.close()

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        """The answer to a question.

        Raises:
            CuratorError: there is no such question, or something in it is wrong.
        """
        if name not in self._ways:
            raise CuratorError(f"there is no question {name[:40]!r}")
        try:
            return self._ways[name](given)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise CuratorError(f"the question {name!r} is not as it should be: {error}") from error

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        """What the page shows first: the run, its columns and rules. Found once."""
        if not self._known:
            stats, records = self.output.stats, self.records
            kinds = {c: records.kind(c) for c in records.types}
            media = self._media_columns(kinds)
            unread = [f"{p.kind}/{p.stage}: {len(p.files)} files of {p.format}" for p in self.output.unread]
            self._known = {
                **self._endings(), "archives": bool(self._archives), "kinds": self._kinds(media),
                "name": stats["name"], "status": stats["status"], "message": stats.get("message", ""),
                "stages": list(self.output.order()), "out": stats.get("out"),
                "columns": kinds, "derived": [d for d in DERIVED if self._sources_are_many],
                "rules": [rule.told() for rule in self.rules.all], "text": records.text_column,
                "media": media, "facets": self._facets(kinds), "marks": self.rules.marks,
                "notes": [*([f"No thresholds: {self.rules.trouble}"] if self.rules.trouble else []),
                          *(f"not shown: {text}" for text in unread)],
            }
        return self._known

    def _endings(self) -> dict[str, Any]:
        """How many records ended where: by kind of place, by rule, and in each step that has rules."""
        found = self.records.ask("SELECT _place, _stage, reason, count(*) FROM records GROUP BY ALL")
        places = dict.fromkeys(("data", *SIDE_OUTPUTS), 0)
        for place, _, _, n in found:
            places[place] += n
        dropped = {(stage, reason): n for place, stage, reason, n in found if place == "dropped"}
        funnel = {stage["name"]: {"in": stage["in"] + stage["made"], "lost": sum(stage["dropped"].values())}
                  for stage in self.output.stats["stages"]}
        return {"places": places, "total": sum(places.values()), "funnel": funnel, "reasons": {
            json.dumps([rule.stage, rule.reason], ensure_ascii=False, separators=(",", ":")):
                dropped.get((rule.stage, rule.reason), 0) for rule in self.rules.all}}

    @cached_property
    def _archives(self) -> frozenset[str]:
        """The files whose records have their media in an archive: tables beside archives, or the archives."""
        return frozenset(file for place in self.output.places if place.format == "webdataset"
                         for file in (*place.tables, *place.files))

    def _kinds(self, media: Mapping[str, str]) -> list[str]:
        """Picture, sound, film: what there is to be seen or heard, in columns or in archives."""
        found = set(media.values())
        if self._archives and "key" in self.records.types:
            some = self.records.ask("SELECT _file, key FROM records WHERE _place = 'data' AND key IS NOT "
                                    f"NULL LIMIT {SNIFFED}")
            for file, key in some:
                found |= {self._member_type(m).partition("/")[0] for m in self.output.media(file, key)[:1]}
        return sorted(found & {"image", "audio", "video"})

    def _facets(self, kinds: Mapping[str, str]) -> list[str]:
        """Columns with few values, by which records are told apart."""
        first = [c for c in ("_place", "_stage", "reason", "error", "language") if c in kinds]
        counted = self.output.stats["stages"]
        others = {name for stage in counted for name, told in stage.get("columns", {}).items()
                  if 1 < len(told.get("values") or ()) <= FEW_VALUES} - {*first, *NO_GROUP}
        return [*first, FOLDER if self._sources_are_many else "source",
                *[c for c in kinds if c in others and kinds[c] == "text"][:MORE_FILTERS]]

    @cached_property
    def _sources_are_many(self) -> bool:
        """Whether sources are files with a record each."""
        [(some, n)] = self.records.ask(
            "SELECT count(DISTINCT source), count(*) FROM (SELECT source FROM records LIMIT 20000)")
        return some > 20 and some > n / 10

    def _media_columns(self, kinds: Mapping[str, str]) -> dict[str, str]:
        """Columns of bytes that a browser can show: picture, sound or film, by how some values begin."""
        found: dict[str, str] = {}
        for column in [c for c, kind in kinds.items() if kind == "bytes"]:
            heads = self.records.ask(f"SELECT {sql_name(column)}[1:{HEAD_BYTES}] FROM records WHERE "
                                     f"{sql_name(column)} IS NOT NULL LIMIT {SNIFFED}")
            shown = [media_type(bytes(head)).partition("/")[0] for head, in heads]
            best = max(("image", "audio", "video"), key=shown.count)
            if best in shown:
                found[column] = best
        return found

    def _counts(self, given: dict[str, Any]) -> dict[str, Any]:
        """`{by, filter}`: how many records each value of a column has in each kind of place; the most
        frequent values, and `more`: whether there are others."""
        by = self.records.expression(given.get("by"))
        where, values = self.records.where(given.get("filter"))
        found = self.records.ask(
            f"SELECT CAST({by} AS VARCHAR) AS v, count(*) AS n, count(*) FILTER (_place = 'data'), "
            "count(*) FILTER (_place = 'dropped'), count(*) FILTER (_place = 'duplicate'), "
            f"count(*) FILTER (_place = 'failed') FROM records WHERE {where} GROUP BY 1 ORDER BY n DESC, v "
            f"LIMIT {GROUPS_MAX + 1}", values)
        names = ("value", "all", "data", "dropped", "duplicate", "failed")
        return {"rows": [dict(zip(names, row, strict=True)) for row in found[:GROUPS_MAX]],
                "more": len(found) > GROUPS_MAX}

    def _what_if(self, given: dict[str, Any]) -> dict[str, Any]:
        """`{changes}`: what they would do to the whole run, exactly."""
        kept = self._run({})["places"]["data"]
        overrides = self.rules.overrides(self.rules.changed(given.get("changes")))
        return effects(self.output, overrides, kept, self._run({})["total"] - kept)

    def _record(self, given: dict[str, Any]) -> dict[str, Any]:
        found = record(self.records, self.rules, given)
        row = found["row"]
        inside = row["_file"] in self._archives and "key" in row
        members = self.output.media(row["_file"], row["key"]) if inside else ()
        for at, member in enumerate(members):
            found["blobs"][f"{at}:{member.name}"] = {"size": member.size, "type": self._member_type(member)}
        played = any(blob["type"].startswith(("audio/", "video/")) for blob in found["blobs"].values())
        if "path" in row and not played and "bytes" not in found["blobs"]:
            try:
                with self._reference(row["path"]) as blob:
                    found["blobs"]["path"] = {"size": blob.size, "type": blob.kind}
            except CuratorError as error:
                found["hint"] = str(error)
        return found

    def _member_type(self, member: Media) -> str:
        with open_input(member.path, self.output.folder.storage_options, None) as file, \
                of_file(file, member.offset, member.size) as blob:
            return blob.kind

    @contextmanager
    def blob(self, given: Mapping[str, str]) -> Iterator[Blob]:
        """`id`, `place`, `stage`, and `column`: one of bytes, or `path` for what it refers to; or `member`:
        the number of a member of its sample in an archive; or `of`: image, audio or video for the first
        member of that kind.

        Raises:
            CuratorError: there is no such thing.
        """
        column = given.get("column", "")
        if column and self.records.types.get(column) == "BLOB":
            yield of_value(self._value(given, column))
        elif column == "path":
            with self._reference(self._row(given, "path")[0]) as blob:
                yield blob
        elif "member" in given or "of" in given:
            member = self._member(given)
            with open_input(member.path, self.output.folder.storage_options, None) as opened, \
                    of_file(opened, member.offset, member.size) as blob:
                yield blob
        else:
            raise CuratorError("there is no column of bytes of this name")

    def _member(self, given: Mapping[str, str]) -> Media:
        """A member of a record's sample in an archive: by its number, or the first of a kind."""
        file, key = self._row(given, "_file", "key")
        for at, member in enumerate(self.output.media(file, key) if file in self._archives else ()):
            kind = self._member_type(member).partition("/")[0]
            if given.get("member") == str(at) or given.get("of") == kind:
                return member
        raise CuratorError("its sample has no such member")

    def _row(self, given: Mapping[str, str], *columns: str) -> tuple:
        """Columns of a record. Its `file`, if that is said and Parquet, is the only one looked into."""
        if not all(column in self.records.types for column in columns):
            raise CuratorError("no record has that")
        relation, where, values = "records", "id = ?", [given.get("id", "")]
        if "file" in given and given["file"] in self._parquet and "_file" not in columns:
            relation = f"read_parquet({sql_text(self.output.path_of(given['file']))})"
        else:
            for name in ("place", "stage"):
                where += f" AND _{name} = ?"
                values.append(given.get(name, ""))
        found = self.records.ask(f"SELECT {', '.join(map(sql_name, columns))} FROM {relation} "
                                 f"WHERE {where} LIMIT 1", values)
        if not found or found[0][0] is None:
            raise CuratorError("there is no such record, or it has none")
        return found[0]

    @cached_property
    def _parquet(self) -> frozenset[str]:
        """The run's files of Parquet that are looked at."""
        return frozenset(file for place in self.output.places for file in place.tables
                         if file.endswith(".parquet"))

    def _value(self, given: Mapping[str, str], column: str) -> bytes:
        def read() -> bytes:
            value = bytes(self._row(given, column)[0])
            if len(value) > VALUE_BYTES:
                raise CuratorError(f"it has {len(value):,} bytes; up to {VALUE_BYTES:,} are shown")
            return value

        return self._kept.get((*(given.get(name) for name in ("id", "place", "stage", "file")), column), read)

    @contextmanager
    def _reference(self, path: Any) -> Iterator[Blob]:
        if self.media_root is None:
            raise CuratorError("its media lies outside the run; --media-root FOLDER shows it")
        with Path(below(self.media_root, str(path))).open("rb") as file, of_file(file) as blob:
            yield blob
