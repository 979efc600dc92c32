"""The conformance kit for sources and sinks; see `curator.testing`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Generator, Sequence

import cloudpickle
import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Sink, Source, Unit, WrittenFile
from curator.io.files.folder import Folder
from curator.pipeline.layout import sink_folder
from curator.testing.run import (
    Record,
    check_fingerprint,
    equal,
    fresh,
    marked,
    named,
    raising,
    read_unit,
    records,
    same,
    short,
)

NAME = "part-check-a"


def check_source(source: Source, *, unique_ids: bool = True) -> None:
    """Check that a source lists and reads the same units with the same records each time.

    `unique_ids`: False where the input's own ids are known to repeat. At least one record must be read.

    Raises:
        AssertionError: what is wrong, and what to do.
    """
    who = named(source)
    check_fingerprint(source)
    driver = copy.copy(source)
    units = _units(driver, who)
    assert [u.key for u in units] == [u.key for u in _units(copy.copy(source), who)], (
        f"{who} lists other units the second time, although nothing changed: key and order of units must "
        "rest on the input alone, or a resumed run does everything again")
    columns = driver.columns() or {}
    read = {unit: _read(fresh(driver), unit, columns) for unit in units}
    worker = fresh(driver)
    for unit in reversed(units):  # one worker, the other way round
        reading = iter(worker.read(unit))
        next(reading, None)
        # let go, as when its run is stopped or it starts again after a failure
        if isinstance(reading, Generator):
            reading.close()
        _check_again(who, unit, read[unit], _read(worker, unit, columns))
    worker.close()
    ids = [record["id"] for found in read.values() for record in found if "error" not in record]
    assert any(read.values()), f"{who} read no record; check_source wants some input"
    if unique_ids and len(set(ids)) < len(ids):
        twice = ", ".join(sorted({i for i in ids if ids.count(i) > 1})[:3])
        raise AssertionError(f"{who} gives several records one id ({twice}): take source and place into the "
                             "id")


def check_sink(sink: Sink, batch: Batch, *, read: Callable[[str], pa.Table] | None = None) -> None:
    """Check that a sink writes what it is given, names its files, and leaves nothing else behind.

    `sink.path` is an empty folder for the test. `read`: gives the rows of a file by its path, to compare them
    with what was written.

    Raises:
        AssertionError: what is wrong, and what to do.
    """
    who = named(sink)
    assert len(batch) >= 2, f"check_sink wants 2 records or more; got {len(batch)}"
    check_fingerprint(sink)
    assert hasattr(sink, "path"), f"{who} has no field `path`: every sink has one, and its files lie below it"
    folder = sink_folder(sink)
    before = set(folder.everything())
    assert not before, f"check_sink wants an empty folder; in {folder.uri} there is {sorted(before)[0]}"
    _check_files(who, _written(sink, f"{NAME}-0", batch), folder, f"{NAME}-0", batch, read)
    content = {name: folder.read(name) for name in folder.everything()}
    _check_files(who, _interrupted(sink, who, batch, folder), folder, f"{NAME}-2", batch, read,
                 beside=content)
    empty = fresh(sink).open(f"{NAME}-3").close()
    assert sum(file.rows for file in empty) == 0, f"{who} reports rows although it was given none"
    assert all(folder.read(name) == data for name, data in content.items()), (
        f"{who} changed a file of another name: let all names of files begin with the name given to `open`")


def _units(source: Source, who: str) -> list[Unit]:
    units = source.units()
    assert isinstance(units, list), f"{who}: units gave {type(units).__name__}; give a list"
    assert units, f"{who} lists no unit; raise InputError when nothing matches"
    for unit in units:
        assert isinstance(unit, Unit), f"{who}: units has {type(unit).__name__} in it; give Unit"
        assert unit.parts, f"{who}: a unit has no part"
        assert unit.size_bytes >= 0, f"{who}: unit {unit.label} has a size of {unit.size_bytes} bytes"
        assert cloudpickle.loads(cloudpickle.dumps(unit)) == unit, (
            f"{who}: unit {unit.label} changes when it is pickled")
    keys = [unit.key for unit in units]
    assert len(set(keys)) == len(keys), (
        f"{who}: two units have one key; a unit is a file, or a range of one, once")
    return units


def _read(source: Source, unit: Unit, columns: dict[str, pa.DataType | None]) -> list[Record]:
    """The records of a unit, those on other ports included; each batch is checked."""
    found: list[Record] = []
    with raising(named(source),
                 f"while reading {unit.label}: what cannot be read is a row on `failed` (with_error)"):
        for port, batch in read_unit(source, unit):
            names = batch.rows.column_names
            hidden = ", ".join(name for name in names if name.startswith("_"))
            assert not hidden, (
                f"{named(source)}: {hidden}: names that begin with _ belong to the engine; rename the column")
            for name, kind in columns.items() if port == "out" else ():
                who = f"{named(source)}: column {name!r}"
                assert name in (*names, *batch.payloads()), (
                    f"{who} is missing, which `columns` or the contract names")
                have = batch.rows.schema.field(name).type if name in names else None
                assert kind is None or have is None or have.equals(kind), (
                    f"{who} is {have}, and `columns` or the contract says {kind}")
            found += records(batch)
    return found


def _check_again(who: str, unit: Unit, first: list[Record], second: list[Record]) -> None:
    remedy = "a unit that is read again must give the same, whatever was read before it"
    assert len(first) == len(second), (
        f"{who} reads {len(second)} records of {unit.label} the second time, and {len(first)} the first: "
        f"{remedy}")
    for old, new in zip(first, second, strict=True):
        assert same(old, new), (f"{who} reads {unit.label} differently the second time: {short(new)} instead "
                                f"of {short(old)}; {remedy}, ids included")


def _written(sink: Sink, name: str, batch: Batch) -> list[WrittenFile]:
    """The files of a batch that is written in two halves; it is the same afterwards."""
    given = marked(copy.deepcopy(batch))
    before = copy.deepcopy(given)
    writer = fresh(sink).open(name)
    for half in np.array_split(np.arange(len(batch)), 2):
        writer.write(given.slice(int(half[0]), int(half[-1]) + 1))
    files = writer.close()
    assert equal(before, given), f"{named(sink)} changes the batch that it is given, which other stages share"
    return files


def _interrupted(sink: Sink, who: str, batch: Batch, folder: Folder) -> list[WrittenFile]:
    """The files of a unit that one worker begins, gives up, and does again; an attempt at another unit is
    open beside it."""
    before, worker = set(folder.everything()), fresh(sink)
    writer, beside = worker.open(f"{NAME}-1"), worker.open(f"{NAME}-other")
    writer.write(marked(batch))
    beside.write(marked(batch.slice(0, 1)))
    strange = [file for file in set(folder.names(recursive=True)) - before if f"/{NAME}" not in f"/{file}"]
    assert not strange, (f"{who} begins the file {strange[0]}, whose name does not begin with the name given "
                         "to `open`: it would stay behind when the run is killed")
    writer.abort()
    again = worker.open(f"{NAME}-2")
    again.write(marked(batch))
    beside.abort()
    files = again.close()
    left = set(folder.everything()) - before - {_inside(folder, file.path) for file in files}
    assert not left, f"{who} leaves {sorted(left)[0]} behind after `abort`: remove what was begun"
    return files


def _check_files(who: str, files: Sequence[WrittenFile], folder: Folder, name: str, batch: Batch,
                 read: Callable[[str], pa.Table] | None, beside: Collection[str] = ()) -> None:
    """The files are there, say what they hold, and nothing else is there but what was `beside` them."""
    assert all(isinstance(file, WrittenFile) for file in files), f"{who}: close gives a list of WrittenFile"
    rows = sum(file.rows for file in files)
    assert rows == len(batch), (
        f"{who} reports {rows} rows and was given {len(batch)}: each row is in one of the files")
    inside = {_inside(folder, file.path): file for file in files}
    for path, file in inside.items():
        assert any(inner.startswith(name) for inner in path.split("/")), (
            f"{who}: the file {file.path} does not begin with {name!r}, the name given to `open`, nor does a "
            "folder it is in: it would not be known again after a crash")
        assert folder.exists(path), f"{who} reports {file.path}, which is not there when `close` is done"
        size = len(folder.read(path))
        assert file.size_bytes == size, (
            f"{who} reports {file.size_bytes} bytes of {file.path}, which has {size}")
    others = set(folder.everything()) - set(inside) - set(beside)
    assert not others, f"{who} left {sorted(others)[0]} behind, which `close` does not report"
    if read is not None:
        _check_content(who, [read(file.path) for file in files], batch)


def _check_content(who: str, tables: Sequence[pa.Table], batch: Batch) -> None:
    got = [row for table in tables for row in table.to_pylist()]
    hidden = sorted({name for table in tables for name in table.column_names if name.startswith("_")})
    assert not hidden, f"{who} writes {', '.join(hidden)}, the engine's columns: write `batch.visible()`"
    expected = batch.visible().to_pylist()
    assert len(got) == len(expected), (
        f"{who}: {len(got)} rows are in the files, and {len(expected)} were given")
    for old, new in zip(expected, got, strict=True):
        assert same(old, new), f"{who}: a row comes back as {short(new, 200)} and was {short(old, 200)}"


def _inside(folder: Folder, path: str) -> str:
    """A file's path below the folder."""
    uri, top = Folder.open(path).uri, folder.uri.rstrip("/") + "/"
    assert uri.startswith(top), f"the file {path} does not lie in the sink's folder {folder.uri}"
    return uri[len(top):]
