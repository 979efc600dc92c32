"""The batches that a stage was called with, in a file, so that its calls can be made again alone.

A ZIP archive: `recipe.yaml`, `stage` (its name there), and a folder for each class of batches with its
batches as Arrow files, payloads as binary columns (see `curator.io.spool.to_table`). Nothing is pickled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from types import TracebackType
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context, Stage
from curator.io.spool import from_table, kind_of, to_table
from curator.trial.sample import find
from curator.worker.rows import parts

BYTES_MAX = 256 << 20  # of batches that are kept


class RecordedCalls:
    """Writes the batches of a stage's calls, up to `BYTES_MAX`."""

    def __init__(self, path: str, recipe: str, stage: str) -> None:
        self.left, self.calls = BYTES_MAX, 0
        try:
            self.file = zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED)
        except OSError as error:
            raise CuratorError(f"calls cannot be kept in {path}: {error.strerror}; name a file that is not "
                               "there yet") from None
        self.file.writestr("recipe.yaml", recipe)
        self.file.writestr("stage", stage)

    def add(self, batch: Batch) -> int:
        """Keeps a batch while there is room; 1 if it is kept."""
        if self.left < batch.nbytes:
            return 0
        self.left -= batch.nbytes
        encoded, table = pa.BufferOutputStream(), to_table(batch)
        with pa.ipc.new_file(encoded, table.schema) as writer:
            writer.write_table(table)
        kind = f"{type(batch).__module__}:{type(batch).__qualname__}"
        self.file.writestr(f"{kind}/{self.calls:06}.arrow", encoded.getvalue().to_pybytes())
        self.calls += 1
        return 1

    def __enter__(self) -> RecordedCalls:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.file.close()
        if kind is not None:
            Path(self.file.filename or "").unlink(missing_ok=True)


def recorded(path: str) -> tuple[Stage, list[Batch]]:
    """The stage that was recorded, from the recipe beside its batches, and the batches.

    Raises:
        CuratorError: it is no such file, or its recipe cannot be loaded here.
    """
    from curator import recipe

    try:
        with zipfile.ZipFile(path) as file:
            graph = recipe.load(file.read("recipe.yaml").decode())
            return find(graph, file.read("stage").decode()).stage, list(_batches(file))
    except (OSError, zipfile.BadZipFile, KeyError, pa.ArrowException) as error:
        raise CuratorError(f"{path} holds no recorded calls: {error}; `curator profile RECIPE --stage S "
                           "--record FILE` makes such a file") from None


def _batches(file: zipfile.ZipFile) -> Iterator[Batch]:
    names = [name for name in file.namelist() if name.endswith(".arrow")]
    for name in sorted(names, key=lambda name: name.rpartition("/")[2]):
        with pa.ipc.open_file(file.read(name)) as reader:
            yield from_table(reader.read_all(), kind_of(name.rpartition("/")[0]))


def call_again(stage: Stage, batches: list[Batch], times: int = 1) -> Iterator[dict[str, Any]]:
    """Calls a stage with recorded batches: for each call its rows in and out by port, seconds by the clock
    and of the processor. What it raises is raised."""
    stage.setup_node(Context())
    stage.setup(Context())
    for batch in batches * times:
        began, cpu = perf_counter(), process_time()
        made = list(parts(stage.process(batch)))
        seconds, cpu_s = perf_counter() - began, process_time() - cpu
        out: dict[str, int] = {}
        for part in made:
            for port, rows in part.items():
                out[port] = out.get(port, 0) + len(rows)
        yield {"rows": len(batch), "out": out, "seconds": seconds, "cpu_s": cpu_s}
