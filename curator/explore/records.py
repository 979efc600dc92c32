"""The records of a run as questions ask for them: columns, filters, and queries with a limit."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from curator import sql
from curator.api.errors import CuratorError, RecipeError
from curator.api.names import suggestion
from curator.results.output import RunOutput
from curator.results.tables import is_number, sql_name
from curator.sql.parse import first_lines

SECONDS = 20  # of a query
STOP_S = 2.0  # a query has so long to end once it is told to
AT_ONCE = 2  # queries; others wait
STUCK_MAX = 4  # queries that did not end then; with more nothing else is asked
OWN = {"_place": "kind of place", "_stage": "stage", "_file": "file"}
FOLDER = "_folder"  # of the source: where every record is a file, sources tell nothing
DERIVED = {FOLDER: "regexp_replace(source, '[^/]*$', '')"}
_SEARCHED = ("id", "url", "key", "source", "title")


class Records:
    """The view `records` of a run. May be asked by several threads."""

    def __init__(self, output: RunOutput) -> None:
        self.output = output
        self._connection = output.connect()
        self._lock, self._turn = threading.Lock(), threading.BoundedSemaphore(AT_ONCE)
        self._running: set[Any] = set()  # cursors
        self._stuck: set[Any] = set()  # those of them that nobody waits for any more
        self._closed = False

    def close(self) -> None:
        """Ends what is being asked."""
        with self._lock:
            self._closed = True
            for cursor in self._running:
                cursor.interrupt()
        for _ in range(AT_ONCE):
            self._turn.acquire(timeout=SECONDS)
        if not self._stuck:  # else closing would wait for them
            self._connection.close()

    def ask(self, query: str, values: Sequence[Any] = (), seconds: float = SECONDS) -> list[tuple]:
        """The rows of an answer.

        Raises:
            CuratorError: the query cannot be answered, or not in time.
        """
        if len(self._stuck) >= STUCK_MAX:
            raise CuratorError(f"{len(self._stuck)} conditions still run that could not be stopped: start "
                               "curator explore again")
        with self._turn:
            with self._lock:
                if self._closed:
                    raise CuratorError("curator explore has ended")
                cursor = self._connection.cursor()
                self._running.add(cursor)
            found: list[Any] = []
            # In a thread of its own: one call of a function (`levenshtein` of two long texts) does not hear
            # that it is to stop, and nobody shall wait for it.
            thread = threading.Thread(target=self._work, args=(cursor, query, list(values), found),
                                      daemon=True)
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                cursor.interrupt()
                thread.join(STOP_S)
            with self._lock:
                if not found:
                    self._stuck.add(cursor)
            if not found:
                raise CuratorError(f"stopped waiting after {seconds:g} s: one call of a function in the "
                                   "condition takes longer than that, and cannot be ended; it goes on beside "
                                   "what is asked next")
        if isinstance(found[0], CuratorError):
            raise found[0]
        return found[0]

    def _work(self, cursor: Any, query: str, values: list[Any], found: list[Any]) -> None:
        """Puts the rows into `found`, or the error."""
        import duckdb

        try:
            found.append(cursor.execute(query, values).fetchall())
        except duckdb.InterruptException:
            found.append(CuratorError("stopped, since it took too long: narrow the filter (a place, a stage, "
                                      "a source), or ask for less"))
        except duckdb.Error as error:
            found.append(CuratorError(first_lines(error)))
        except Exception as error:  # Python does not hold all values: an interval of a million years
            found.append(CuratorError(f"the answer cannot be shown: {error}"))
        finally:
            with self._lock:
                self._running.discard(cursor)
                self._stuck.discard(cursor)
            cursor.close()

    def rows(self, query: str, values: Sequence[Any] = (), *, names: Sequence[str]) -> list[dict[str, Any]]:
        """As `ask`, each row by these names."""
        return [dict(zip(names, row, strict=True)) for row in self.ask(query, values)]

    @cached_property
    def types(self) -> dict[str, str]:
        """What DuckDB calls the type of every column."""
        return {row[0]: row[1] for row in self.ask("DESCRIBE records")}

    def kind(self, column: str) -> str:
        """What a column holds: number, text, bool, bytes, or other."""
        kind = self.types[column]
        if is_number(kind):
            return "number"
        return {"VARCHAR": "text", "BOOLEAN": "bool", "BLOB": "bytes"}.get(kind, "other")

    def expression(self, column: Any) -> str:
        """A column as SQL.

        Raises:
            CuratorError: there is none of this name.
        """
        if isinstance(column, str) and column in self.types:
            return sql_name(column)
        if isinstance(column, str) and column in DERIVED:
            return DERIVED[column]
        hint = suggestion(str(column), self.types, "the page lists those there are", quoted=True)
        raise CuratorError(f"there is no column {str(column)[:80]!r}; {hint}")

    def condition(self, text: Any) -> str:
        """A condition that somebody wrote, in brackets; it sees one record, as those of recipes do.

        Raises:
            CuratorError: it is none, or uses a column that is not there.
        """
        if not isinstance(text, str):
            raise CuratorError("a condition is a text")
        for name in sorted(sql.columns_of(text)):
            if name not in self.types:
                hint = suggestion(name, self.types, "the page lists those there are", quoted=True)
                raise RecipeError(f"`{text}` uses the column {name!r}, which is not there; {hint}")
        return f"({text}\n)"

    def where(self, given: Any) -> tuple[str, list[Any]]:
        """A filter as an SQL condition with its values: `{is: {column: [value, …]}, between: {column:
        [from, below]}, where: condition, search: text}`, all of which must hold. None is no value.

        Raises:
            CuratorError: it is not of this form.
        """
        given = {} if given is None else given
        if not isinstance(given, Mapping) or not set(given) <= {"is", "between", "where", "search"}:
            raise CuratorError("a filter has is, between, where, search, and nothing else")
        parts, values = [], []
        for column, wanted in _pairs(given.get("is")):
            some = [str(value) for value in wanted if value is not None]
            cast = f"CAST({self.expression(column)} AS VARCHAR)"
            either = [f"{cast} IN ({', '.join('?' * len(some))})"] if some else []
            either += [f"{cast} IS NULL"] if None in wanted else []
            parts.append(f"({' OR '.join(either) or 'false'})")
            values += some
        for column, wanted in _pairs(given.get("between")):
            if len(wanted) != 2 or not all(w is None or isinstance(w, (int, float)) for w in wanted):
                raise CuratorError(f"between: of {column} it wants two numbers, or null for no end")
            for bound, operator in zip(wanted, (">=", "<"), strict=True):
                if bound is not None:
                    parts.append(f"{self.expression(column)} {operator} ?")
                    values.append(bound)
        if given.get("where"):
            parts.append(f"{self.condition(given['where'])} IS TRUE")
        if given.get("search"):
            found, asked = self._search(str(given["search"]))
            parts.append(found)
            values += asked
        return " AND ".join(parts) or "true", values

    def _search(self, text: str) -> tuple[str, list[str]]:
        """The record of this id, or all that have this in what names them or in their text, in capitals or
        not."""
        if self.ask("SELECT 1 FROM records WHERE id = ? LIMIT 1", [text]):
            return "id = ?", [text]  # at once, where texts would be looked through
        columns = [c for c in _SEARCHED if self.types.get(c) == "VARCHAR"]
        columns += [c for c in (self.text_column,) if c and self.types[c] == "VARCHAR" and c not in columns]
        return (f"({' OR '.join(f'contains(lower({sql_name(c)}), ?)' for c in columns)})",
                [text.lower()] * len(columns))

    @cached_property
    def text_column(self) -> str | None:
        return self.output.text_column(self.types)


def _pairs(given: Any) -> list[tuple[str, list[Any]]]:
    if given is None:
        return []
    if not isinstance(given, Mapping) or not all(isinstance(wanted, list) for wanted in given.values()):
        raise CuratorError("a filter names columns, each with a list")
    return list(given.items())
