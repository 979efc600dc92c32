"""The files of a run by what became of their records, as its ledgers name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curator.api.errors import InputError
from curator.api.stage import SIDE_OUTPUTS
from curator.io.files.compression import without_codec
from curator.io.files.folder import Folder
from curator.io.files.listing import CLUSTERS, DATA, RUN, ending
from curator.run.folder.ledger import FOLDER
from curator.run.folder.ledger_files import LedgerFiles, Record, is_marked, to_record

KINDS = (DATA, *SIDE_OUTPUTS, CLUSTERS)  # of places, in this order
FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".csv": "csv", ".tsv": "csv", ".tab": "csv",
           ".tar": "webdataset"}
UNIT = r"part-([0-9a-f]{16})-"  # in the name of a file: the key of its unit
TRIES = 3  # a run that goes on makes one file of some of its ledger while they are read

_Of = tuple[str, str, bool]  # kind, stage, and whether it is evidence


@dataclass(frozen=True)
class Place:
    """Files of one stage: of a sink the data, of another stage what it dropped, found twice or failed on.

    `kind`: one of `KINDS`. `files`: relative to the run's folder where they lie below it, else paths or URLs.
    `tables`: those of them that hold a row a record; of a `webdataset` the Parquet files beside the archives,
    where there are such. `format`: parquet, jsonl, csv, webdataset, or "other" for what is no table. `rows`:
    as the sink counted them. `evidence`: rows that failed in units which did not end, of a run that stopped
    early.
    """

    kind: str
    stage: str
    files: tuple[str, ...]
    format: str
    rows: int
    tables: tuple[str, ...] = ()
    evidence: bool = False

    @property
    def is_read(self) -> bool:
        """Whether its records can be read as a table."""
        return bool(self.tables) or self.format == "webdataset"


def find_places(folder: Folder, order: Sequence[str], running: bool) -> tuple[Place, ...]:
    """Where records lie: the data first, then by ending, each in the `order` of the stages. Only files of
    finished units count."""
    files: dict[_Of, dict[str, int]] = {}
    for attempt in range(TRIES):
        try:
            files = _named(folder)
            break
        except InputError:
            if attempt == TRIES - 1 or not running:
                raise
    rank = {name: at for at, name in enumerate(order)}
    ordered = sorted((KINDS.index(of[0]), rank.get(of[1], len(rank)), of[1:], of) for of in files)
    return tuple(_place(KINDS[kind], *of[1:], files[of], folder) for kind, _, _, of in ordered)


def _named(folder: Folder) -> dict[_Of, dict[str, int]]:
    """The files that the ledgers name, each with its rows."""
    found: dict[_Of, dict[str, int]] = {}
    for ledger in ledgers(folder):
        for _, _, line in ledger.units():
            if not is_marked(line):
                for of, path, rows in _files_of(to_record(line)):
                    found.setdefault(of, {})[path] = rows
        for path in ledger.states[0].remove if ledger.states else ():
            kind, _, rest = path.partition("/")
            if kind == "failed" and "/" in rest and folder.exists(path):
                found.setdefault(("failed", rest.partition("/")[0], True), {})[path] = 0
    return found


def ledgers(folder: Folder) -> Iterator[LedgerFiles]:
    """The ledger of each phase of a run. The units of the first one are those of its sources."""
    own, named, number = folder.sub(RUN), FOLDER, 1
    while number == 1 or own.exists(named):
        yield LedgerFiles(own.sub(named))
        number += 1
        named = f"{FOLDER}-{number}"


def _files_of(record: Record) -> Iterator[tuple[_Of, str, int]]:
    """The files of a unit."""
    for name, stage in record.stages.items():
        port, slash, of = name.partition("/")
        for file in stage.files:
            if file.path.startswith(f"{RUN}/"):
                continue  # spools and checkpoints: rows on their way
            if slash:
                yield (port, of, False), file.path, file.rows
            elif file.path.startswith(f"{CLUSTERS}/"):
                yield (CLUSTERS, file.path.split("/")[1], False), file.path, file.rows
            else:
                yield (DATA, name, False), file.path, file.rows


def _place(kind: str, stage: str, evidence: bool, files: dict[str, int], folder: Folder) -> Place:
    formats = {name: FORMATS.get(without_codec(ending(name)).lower(), "other") for name in sorted(files)}
    archives = {name.removesuffix(".tar") for name, form in formats.items() if form == "webdataset"}
    tables = [name for name, form in formats.items() if form not in ("other", "webdataset")]
    if archives:  # what lies beside them is of the same records; what else there is, is of none
        tables = [name for name in tables if name.removesuffix(".parquet") in archives]
    kinds = {formats[name] for name in tables}
    if len(kinds) > 1:  # a table of the records, and others beside it
        most = max(sorted(kinds), key=lambda one: sum(files[name] for name in tables if formats[name] == one))
        tables = [name for name in tables if formats[name] == most]
    paths = [folder.full_path(name) for name in files]
    if any(path.partition("://")[0] != folder.uri.partition("://")[0] for path in paths if "://" in path) or \
            any("://" not in path for path in paths) != folder.is_local:
        return Place(kind, stage, tuple(formats), "elsewhere", sum(files.values()), evidence=evidence)
    form = "webdataset" if archives else formats[tables[0]] if tables else "other"
    return Place(kind, stage, tuple(formats), form, sum(files.values()), tuple(tables), evidence)
