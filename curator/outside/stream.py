"""What a pipeline makes, while it makes it: tables for a loop, which the run does not outpace.

The run goes on in a thread. Its sink writes pieces of a few MB into a temporary folder, and waits there while
the loop has not taken those before: then the queues before the sink fill up, and the readers stop.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Sink, Writer, WrittenFile, setting
from curator.io.sink import own
from curator.outside.collect import columns_of, refuse_sinks, run_into
from curator.outside.options import RunOptions
from curator.pipeline.graph import Graph
from curator.results.places import UNIT

AHEAD_BYTES = 64 << 20  # that the loop has not taken; each worker of the sink may add a piece
PIECE_BYTES, PIECE_S = 4 << 20, 0.2  # a piece leaves that has so much, or so long after the last one
LOOK_S = 0.01  # how often each side looks for the other
LAST = "last"  # in the name of the last piece of a unit
_PIECE = re.compile(rf"\d+~({UNIT}.*)-\d+-(\w*)\.arrow")


@dataclass(kw_only=True)
class ToLoop(Sink):
    """Write pieces for a loop into the folder `pieces`, of which at most about `ahead_bytes` lie there."""

    path: str | None = setting(default=None)
    pieces: str = setting()
    ahead_bytes: int = setting()

    def open(self, name: str) -> Writer:
        return _Pieces(Path(self.pieces), name, self.ahead_bytes)


class _Pieces(Writer):
    def __init__(self, folder: Path, name: str, ahead_bytes: int) -> None:
        self.folder, self.name, self.ahead_bytes = folder, name, ahead_bytes
        self.tables: list[pa.Table] = []
        self.nbytes = self.sent = 0
        self.sent_at = 0.0

    def write(self, batch: Batch) -> None:
        rows = own(batch.visible())
        self.tables.append(rows)
        self.nbytes += rows.nbytes
        if self.nbytes >= PIECE_BYTES or time.monotonic() - self.sent_at >= PIECE_S:
            self._send()

    def close(self) -> list[WrittenFile]:
        if self.tables or self.sent:
            self._send(LAST)
        return []

    def _send(self, kind: str = "") -> None:
        while self._waiting() >= self.ahead_bytes:
            if _stop(self.folder).exists():
                return
            time.sleep(LOOK_S)
        tables, self.tables, self.nbytes = self.tables, [], 0
        rows = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
        name = f"{time.monotonic_ns():020d}~{self.name}-{self.sent}-{kind}.arrow"
        partial = self.folder / f"{name}.partial"
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        partial.rename(self.folder / name)
        self.sent, self.sent_at = self.sent + 1, time.monotonic()

    def _waiting(self) -> int:
        return sum(path.stat().st_size for path in _pieces(self.folder) if path.exists())


def _pieces(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.arrow"))


def _stop(folder: Path) -> Path:
    return folder / "stop"


def batches(pipeline: Graph, rows: int | None, options: RunOptions) -> Iterator[pa.Table]:
    """Run a pipeline that has no sink, and give what it makes as tables; see `Pipeline.batches`."""
    refuse_sinks(pipeline)
    if options.get("ray") or options.get("engine", "curator") != "curator":
        raise CuratorError("a loop gets what workers of this machine make: leave out ray and engine, or "
                           "run() the pipeline with a sink, and read what it wrote")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be 1 or more, got {rows}")
    return _batches(pipeline, rows, options)


def _batches(pipeline: Graph, rows: int | None, options: RunOptions) -> Iterator[pa.Table]:
    known = columns_of(pipeline)
    working = _Working(pipeline, options)
    try:
        tables = (_typed(table, known) for table in working.tables())
        yield from tables if rows is None else _of_rows(tables, rows)
    finally:
        working.end()


class _Left(Exception):
    """The loop was left."""


class _Working:
    """A run in a thread, until its end or that of the loop."""

    def __init__(self, pipeline: Graph, options: RunOptions) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="curator-loop-"))
        self.pieces = self.folder / "pieces"
        self.pieces.mkdir()
        self.watch: Callable[[Mapping[str, Any]], None] | None = options.get("watch")
        sink = ToLoop(pieces=str(self.pieces), ahead_bytes=AHEAD_BYTES)
        work = (pipeline, sink, str(self.folder / "run"), {**options, "ray": False, "watch": self._watch})
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._work, args=work, name="curator loop", daemon=True)
        atexit.register(self.end)  # of a loop that is left in the middle when the program ends
        self.thread.start()

    def _work(self, *work: Any) -> None:
        try:
            result = run_into(*work)
            self.error = None if result.ok else result.error
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def _watch(self, snapshot: Mapping[str, Any]) -> None:
        if _stop(self.pieces).exists():
            raise _Left
        if self.watch is not None:
            self.watch(snapshot)

    def tables(self) -> Iterator[pa.Table]:
        """What comes, and at last the error that ended the run, if one did."""
        given = _Given()
        while True:
            ended, found = self.ended.is_set(), _pieces(self.pieces)
            for path in found:
                named = cast(re.Match[str], _PIECE.fullmatch(path.name))
                with pa.memory_map(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
                path.unlink()  # its memory stays as long as the table
                table = given.fresh(named[2], named[1], table, named[3] == LAST)
                if table.num_rows:
                    yield table
            if not found and ended:
                break
            if not found:
                self.ended.wait(LOOK_S)
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """End the run, if it works, and remove what it left."""
        atexit.unregister(self.end)
        if self.thread.is_alive():
            _stop(self.pieces).touch()
            self.thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Given:
    """Which rows a loop has of units that are not finished: when a unit begins again (a worker died, a file
    could not be reached), the loop gets those of the new attempt that it does not have."""

    def __init__(self) -> None:
        self.open: dict[str, dict[str, Counter[str]]] = {}  # of a unit, by attempt, how often each id came
        self.whole: dict[str, str] = {}  # the attempt that a unit was finished in

    def fresh(self, unit: str, attempt: str, table: pa.Table, last: bool) -> pa.Table:
        if self.whole.get(unit, attempt) != attempt:
            return table.slice(0, 0)
        attempts = self.open.setdefault(unit, {})
        seen = attempts.setdefault(attempt, Counter())
        others = [counter for name, counter in attempts.items() if name != attempt]
        ids = table.column("id").to_pylist() if table.num_rows else []
        wanted = []
        for name in ids:
            seen[name] += 1
            wanted.append(all(seen[name] > other[name] for other in others))
        if last:
            self.whole[unit] = attempt
            del self.open[unit]
        return table.filter(pa.array(wanted, pa.bool_())) if others else table


def _typed(table: pa.Table, known: pa.Schema) -> pa.Table:
    """A column without any value gets the type that the contracts say."""
    for at, field in enumerate(table.schema):
        if pa.types.is_null(field.type) and (named := known.get_field_index(field.name)) >= 0:
            kind = known.field(named).type
            table = table.set_column(at, field.name, pa.nulls(table.num_rows, kind))
    return table


def _of_rows(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many; the last one may be shorter."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.num_rows for one in waiting) < rows:
            continue
        one = pa.concat_tables(waiting, promote_options="permissive")
        whole = one.num_rows - one.num_rows % rows
        yield from (one.slice(start, rows) for start in range(0, whole, rows))
        waiting = [one.slice(whole)] if whole < one.num_rows else []
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")
