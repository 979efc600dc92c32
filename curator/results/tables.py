"""The files of a run as one DuckDB view, `records`."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from curator.api.errors import CuratorError
from curator.io.files.folder import Folder, open_input
from curator.io.files.listing import CLUSTERS
from curator.machine.detect import available_cpus, memory_bytes
from curator.results.archives import Archives
from curator.results.places import Place

THREADS = 8
MEMORY_BYTES = 4 << 30  # of a connection, or a quarter of the machine's
SPILL_BYTES = 16 << 30
OBJECT_BYTES = 64 << 20  # of a line
SAMPLE_ROWS = 100_000  # of JSON Lines, by which types are told
ALWAYS = ("id", "source", "reason", "duplicate_of", "error")
NOTHING = '"NULL"'  # the type of a column without a value
_NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
            "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE"}
# DuckDB takes texts for such; they came from texts.
_GUESSED = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "HUGEINT")


@dataclass(frozen=True)
class _Branch:
    """Files that are read by one call. `columns`: the types that they are read with, by name; `as_text`:
    columns that are then made text. `indexed`: it is a table that was made of archives."""

    place: Place
    reader: Literal["parquet", "csv", "json"]
    call: str
    columns: dict[str, str]
    as_text: frozenset[str] = frozenset()
    indexed: bool = False


class Tables:
    """Makes connections over the places of a run. What they need to know of the files is read once."""

    def __init__(self, folder: Folder, places: Sequence[Place], archives: Archives) -> None:
        self._folder, self._archives = folder, archives
        self._places = [place for place in places if place.kind != CLUSTERS and place.is_read]
        self._scratch = ""  # our own folder, for what memory does not hold and for tables of archives
        self._view = ""
        self._columns: dict[Place, dict[str, str]] = {}
        self._remote = None if folder.is_local else folder.fsspec()
        self._root = self._written(folder.path_of(""))

    def _written(self, uri: str) -> str:
        """A path or URL as DuckDB writes it."""
        if self._remote is None:
            return uri
        return self._remote.unstrip_protocol(self._remote._strip_protocol(uri)) + "/" * uri.endswith("/")

    def connect(self) -> Any:
        import duckdb

        if not self._scratch:
            self._scratch = tempfile.mkdtemp(prefix="curator-look-")
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        db = duckdb.connect(":memory:", config={
            "threads": max(1, min(THREADS, int(available_cpus()))), "temp_directory": self._scratch,
            "memory_limit": f"{max(256 << 20, min(MEMORY_BYTES, memory_bytes() // 4)) >> 20}MiB",
            "max_temp_directory_size": f"{SPILL_BYTES >> 30}GiB", "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
        try:
            # In a notebook without widgets the bar is off, and DuckDB refuses to be told about it.
            if db.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
                db.execute("SET enable_progress_bar = false")
            db.execute("SET parquet_metadata_cache = true")
            if self._remote is not None:
                db.register_filesystem(self._remote)
            tables = {place: self._tables_of(place) for place in self._places}
            db.execute(f"SET allowed_paths = {_list(file for files in tables.values() for file in files)}")
            db.execute("SET enable_external_access = false; SET lock_configuration = true")
            if not self._view:
                found = [branch for place, files in tables.items()
                         for branch in _branches(db, place, files, self._folder.storage_options)]
                found = _settled(found)
                for branch in found:
                    self._columns.setdefault(branch.place, {}).update(branch.columns)
                self._view = " UNION ALL BY NAME ".join([_empty(), *map(self._selected, found)])
            db.execute(f"CREATE VIEW records AS {self._view}")
        except BaseException as error:
            db.close()
            if isinstance(error, duckdb.Error):
                raise CuratorError(f"the files of the run in {self._folder.uri} cannot be read: "
                                   f"{str(error).splitlines()[0]}") from error
            raise
        return db

    def columns(self, place: Place) -> dict[str, str]:
        """The columns that the files of a place have, with DuckDB's names of their types."""
        if not self._view:
            self.connect().close()
        return self._columns.get(place, {})

    def _tables_of(self, place: Place) -> list[str]:
        """The files to read of a place; of archives without tables, one that is made of what they say."""
        if place.tables:
            return [self._written(self._folder.full_path(file)) for file in place.tables]
        path = f"{self._scratch}/{self._places.index(place)}.jsonl"
        if not self._view:
            self._archives.index(place.files, path)
        return [path]

    def _selected(self, branch: _Branch) -> str:
        """The query that gives the rows of a branch."""
        columns = []
        for name, kind in branch.columns.items():
            value = sql_name(name)
            if branch.reader == "csv" and kind != "VARCHAR":
                value = f"TRY_CAST({value} AS {kind})"
            if name in branch.as_text:
                value = f"CAST({value if _sort(kind) == 'plain' else f'to_json({value})'} AS VARCHAR)"
            columns.append(f"{value} AS {sql_name(name)}")
        file = "_file"
        if not branch.indexed:
            file = (f"CASE WHEN starts_with(_file, {sql_text(self._root)}) "
                    f"THEN substr(_file, {len(self._root) + 1}) ELSE _file END")
        given = branch.columns | ({"_file": "VARCHAR"} if branch.indexed else {})
        types = ", ".join(f"{sql_text(name)}: {sql_text(kind)}" for name, kind in given.items())
        call = branch.call + {"json": f", columns = {{{types}}})", "csv": ", all_varchar = true)",
                              "parquet": ")"}[branch.reader]
        columns += [f"{sql_text(branch.place.kind)} AS _place", f"{sql_text(branch.place.stage)} AS _stage",
                    f"{file} AS _file"]
        if branch.reader == "parquet" and "file_row_number" not in map(str.lower, branch.columns):
            columns.append("file_row_number AS _row")
        return f"SELECT {', '.join(columns)} FROM {call}"


def _branches(db: Any, place: Place, files: list[str], storage: dict[str, Any] | None) -> Iterator[_Branch]:
    if files[0].endswith(".parquet"):
        yield from _parquet(db, place, files)
        return
    if place.format == "csv":
        options = (f"delim = {sql_text(_delimiter(files[0], storage))}, quote = '\"', escape = '\"', "
                   "header = true, union_by_name = true, filename = '_file', "
                   f"max_line_size = {OBJECT_BYTES >> 2}")
        call = f"read_csv({_list(files)}, {options}"
        yield _Branch(place, "csv", call, _described(db, call))
        return
    indexed = place.format != "jsonl"
    options = (f"format = 'newline_delimited', union_by_name = true, maximum_object_size = {OBJECT_BYTES}, "
               f"sample_size = {SAMPLE_ROWS}" + ("" if indexed else ", filename = '_file'"))
    call = f"read_json({_list(files)}, {options}"
    columns = {name: "VARCHAR" if kind in _GUESSED or name in ALWAYS else kind
               for name, kind in _described(db, call).items()}
    yield _Branch(place, "json", call, columns, indexed=indexed)


def _parquet(db: Any, place: Place, files: list[str]) -> list[_Branch]:
    """One branch; where DuckDB finds no type for a column of two files, one for each set of columns."""
    said = "concat_ws(' ', name, type, num_children, logical_type)"
    groups = db.execute(f"SELECT list(file_name) FROM (SELECT file_name, list({said}) AS said FROM "
                        f"parquet_schema({_list(files)}) GROUP BY file_name) GROUP BY said").fetchall()
    branches = []
    for some in sorted(sorted(group) for group, in groups):
        call = f"read_parquet({_list(some)}, filename = '_file'"
        branches.append(_Branch(place, "parquet", call, _described(db, call)))
    if len(branches) > 1 and not _clashes(branches):
        call = f"read_parquet({_list(files)}, union_by_name = true, filename = '_file'"
        branches = [_Branch(place, "parquet", call, _described(db, call))]
    return branches


def _described(db: Any, call: str) -> dict[str, str]:
    """The columns that a call gives, but for the file's name."""
    return {row[0]: row[1] for row in db.execute(f"DESCRIBE SELECT * FROM {call})").fetchall()
            if row[0] != "_file"}


def _settled(branches: list[_Branch]) -> list[_Branch]:
    """With one type for each column, or text: Parquet files know their types, the others have them from
    there."""
    known: dict[str, str] = {}
    for branch in sorted(branches, key=lambda b: b.reader != "parquet"):
        for name, kind in branch.columns.items() if branch.reader != "csv" else ():
            if kind != NOTHING:
                known.setdefault(name, kind)
    made = []
    for branch in branches:
        columns = branch.columns
        if branch.reader != "parquet":
            columns = {name: known.get(name, kind) for name, kind in columns.items()}
        if branch.reader == "csv":
            columns = {name: kind if _sort(kind) == "plain" and name not in ALWAYS else "VARCHAR"
                       for name, kind in columns.items()}
        made.append(replace(branch, columns=columns))
    text = _clashes(made)
    return [replace(branch, as_text=frozenset(text & branch.columns.keys())) for branch in made]


def _clashes(branches: Iterable[_Branch]) -> set[str]:
    """The columns of which no type but text holds all."""
    seen: dict[str, set[str]] = {}
    for branch in branches:
        for name, kind in branch.columns.items():
            if kind != NOTHING:
                seen.setdefault(name, set()).add(_sort(kind))
    return {name for name, sorts in seen.items() if len(sorts) > 1}


def _sort(kind: str) -> str:
    """What a type is joined with."""
    if kind.endswith("]"):
        return "list"
    nested = next((sort for sort in ("STRUCT", "MAP", "UNION") if kind.startswith(f"{sort}(")), "")
    return nested or (kind if kind in ("BLOB", "JSON") else "plain")


def _delimiter(file: str, storage: dict[str, Any] | None) -> str:
    """What stands between the columns of a CSV file that a run wrote."""
    with open_input(file, storage) as opened:
        head = opened.readline(1 << 20).decode("utf-8", "replace")
    return next((mark for mark in "\t;|" if mark in head and "," not in head), ",")


def _empty() -> str:
    """No row, with what is always there."""
    columns = [f"CAST(NULL AS VARCHAR) AS {name}" for name in (*ALWAYS, "_place", "_stage", "_file")]
    columns.append("CAST(NULL AS BIGINT) AS _row")
    return f"SELECT {', '.join(columns)} WHERE false"


def columns_in(db: Any) -> dict[str, str]:
    """The columns of the view, with DuckDB's names of their types."""
    return {row[0]: row[1] for row in db.execute("DESCRIBE records").fetchall()}


def is_number(kind: str) -> bool:
    """Whether DuckDB calls a type of numbers so."""
    return kind in _NUMBERS or (kind.startswith("DECIMAL(") and kind.endswith(")"))


def sql_text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_name(column: str) -> str:
    """The name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'


def _list(values: Iterable[str]) -> str:
    return f"CAST([{', '.join(map(sql_text, values))}] AS VARCHAR[])"
