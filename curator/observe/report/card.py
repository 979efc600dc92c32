"""The card of a run's folder, `README.md`: what it holds and where it is from, for people and for readers of
datasets.

Its head names *configs*, so that `load_dataset(out)` gives the data and `load_dataset(out, "dropped")` what
was dropped. All configs of a folder are read as one format, that of the first: what has another one is
described in words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import pyarrow as pa

from curator.api.counts import WRITTEN
from curator.api.errors import InputError
from curator.api.format import count, plural, shorten
from curator.api.stage import SIDE_OUTPUTS
from curator.io.card import feature, head_text, is_sealed, sealed
from curator.io.files.folder import Folder, open_input
from curator.io.files.listing import CARD, DATA
from curator.observe.report.columns import table_of
from curator.observe.report.funnel import balance

# as `load_dataset` calls them
FORMATS = {".tar": "webdataset", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow"}
FILES_MAX = 16  # of a folder, that are looked at for their columns
ROWS_MAX = 200  # of a file that has no schema

Stats = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class About:
    """What a card says beside the numbers. `sources`: what was read, one a line. `sinks`: the folder of each
    that lies in the run's, seen from there, by name."""

    version: str
    description: str = ""
    license: str = ""
    sources: Sequence[str] = ()
    sinks: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Table:
    """Files that are read as one: a sink's, or those of an ending. `columns`: None where it is not known."""

    name: str
    folder: str
    suffix: str
    rows: int = 0
    columns: pa.Schema | None = None
    varies: bool = False  # its files have not all the same columns

    @property
    def pattern(self) -> str:
        return f"{self.folder}/**/*{self.suffix}"


def may_replace(out: Folder) -> bool:
    """Whether a card may be written: there is none, or it is as a run wrote it."""
    if not out.exists(CARD):
        return True
    try:
        return is_sealed(out.read(CARD).decode())
    except (InputError, UnicodeDecodeError):
        return False


def render_card(stats: Stats, about: About, out: Folder) -> str:
    """The text of `README.md`. `out` is looked into for the columns of files."""
    tables = list(_tables(stats, about, out))
    named = [t for t in tables if t.suffix == tables[0].suffix] if tables[0].rows else tables[:1]
    text = _template().render(
        **_said(stats, about, tables[0].columns), head=_head(about, named),
        tables=[(t, _how(t, t in named, not at)) for at, t in enumerate(tables)],
        described=[t for t in tables if t.columns is not None and t.folder.split("/")[0] not in SIDE_OUTPUTS])
    return sealed(text)


def render_published(stats: Stats, about: About, recipe: str) -> str:
    """The text of a card for another place, with the recipe, and without what is here."""
    head = head_text({"license": about.license}) if about.license else ""
    said = _said(stats, about, None) | {"recipe": recipe}
    return _template().render(**said, head=head, tables=[], described=[])


def _said(stats: Stats, about: About, columns: pa.Schema | None) -> dict[str, Any]:
    return {"stats": stats, "about": about, "plural": plural, "recipe": "",
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "funnel": table_of(stats, "card"),
            "balance": balance(stats), "licences": _licences(about, columns)}


@cache
def _template() -> Any:
    """Compiled once: it takes as long as a small run."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"line": _line, "count": count}
    return environment.from_string(files("curator.observe.report").joinpath("card.md.j2").read_text("utf-8"))


def _head(about: About, tables: Sequence[_Table]) -> str:
    """The head of the card, as YAML. The first table is the default."""
    configs = [{"config_name": t.name, **({} if at else {"default": True}), "data_files": t.pattern}
               for at, t in enumerate(tables)]
    infos = [{"config_name": t.name, "features": [feature(f) for f in t.columns]}
             # else all files would have to be like the first
             for t in tables if t.varies and t.columns is not None]
    head = {**({"license": about.license} if about.license else {}), "configs": configs,
            **({"dataset_info": infos} if infos else {})}
    return head_text(head)


def _tables(stats: Stats, about: About, out: Folder) -> Iterator[_Table]:
    """What there is to load, the data first. Where nothing was written, a first one without files: it keeps
    readers from taking for data what lies beside it."""
    outputs = stats["outputs"]
    written = {output["stage"]: output for output in outputs if output["port"] == WRITTEN}
    if not written.keys() & about.sinks.keys():
        yield _Table(DATA, DATA, ".parquet")
    for sink, folder in about.sinks.items():
        if sink in written:
            name = re.sub(r"[^\w.-]+", "-", folder.removeprefix(f"{DATA}/"))
            yield _table(f"{DATA}-{name}" if name in SIDE_OUTPUTS else name, folder, [written[sink]],
                         stats, out)
    for port in SIDE_OUTPUTS:
        if own := [output for output in outputs if output["port"] == port]:
            whole = _table(port, port, own, stats, out)
            by_stage = [_table(f"{port}-{one['stage']}", f"{port}/{one['stage']}", [one], stats, out)
                        for one in own if whole.columns is None]
            yield from by_stage or [whole]


def _table(name: str, folder: str, outputs: Sequence[Stats], stats: Stats, out: Folder) -> _Table:
    """The files of these outputs as one. `stats` names some of each."""
    ends = {(output["stage"], output["port"]) for output in outputs}
    paths = [file["path"] for file in stats["files"] if (file["stage"], file["port"]) in ends]
    kind = next((s for s in FORMATS if any(s in path.rpartition("/")[2] for path in paths)), "")
    suffix = max((path[path.rindex(kind):] for path in paths if kind and kind in path.rpartition("/")[2]),
                 default="")
    described = [path for path in paths if path.endswith(".parquet" if kind == ".tar" else suffix)]
    step = max(1, len(described) // FILES_MAX)
    schemas = [s for path in described[::step][:FILES_MAX] if (s := _schema(out, path)) is not None]
    try:
        columns = pa.unify_schemas(schemas) if schemas else None
    except pa.ArrowException:
        columns = None
    varies = kind == ".parquet" and any(s.names != schemas[0].names or s.types != schemas[0].types
                                        for s in schemas)
    if varies and columns is not None and any(feature(f) is None for f in columns):
        columns = None
    return _Table(name, folder, suffix, sum(output["rows"] for output in outputs), columns, varies)


def _schema(out: Folder, path: str) -> pa.Schema | None:
    """The columns of a file, None if they are not known."""
    try:
        with open_input(path if "://" in path or path.startswith("/") else out.path_of(path),
                        out.storage_options) as file:
            if path.endswith(".parquet"):
                import pyarrow.parquet as pq

                return pq.read_schema(file).remove_metadata()
            if ".arrow" in path:
                opener = pa.ipc.open_stream if path.endswith("s") else pa.ipc.open_file
                return opener(file).schema.remove_metadata()
            if ".jsonl" in path:
                return pa.Table.from_pylist([json.loads(line) for line in islice(file, ROWS_MAX)]).schema
            if ".csv" not in path:
                return None
            import pyarrow.csv as csv

            schema = csv.open_csv(file).schema
            # names are decoded here, where what is not UTF-8 does no harm
            return schema if schema.names else None
    except (InputError, OSError, ValueError, pa.ArrowException):
        return None


def _how(table: _Table, is_config: bool, is_default: bool) -> str:
    """How the table is loaded, with the folder of the run as the working folder."""
    if is_config:
        return '`load_dataset(".")`' if is_default else f'`load_dataset(".", "{table.name}")`'
    kind = next((FORMATS[s] for s in FORMATS if table.suffix.startswith(s)), None)
    return "" if kind is None else f'`load_dataset("{kind}", data_files="{table.pattern}")`'


def _licences(about: About, columns: pa.Schema | None) -> str:
    said = [f"`{about.license}`, as the recipe says"] if about.license else []
    if columns is not None and "license" in columns.names:
        said.append("each record's own, in its column `license`")
    text = "; ".join(said)
    return text[:1].upper() + text[1:]


def _line(text: str) -> str:
    """A text that others wrote, as part of a line or of a table's cell."""
    return shorten(text, 200, keep_end=True).replace("|", "\\|").replace("<", "&lt;")
