"""Stages in somebody else's engine: a callable for `datasets.map`, `ray_dataset.map_batches` or a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context, Reduce, Sink, Source, Stage, Stateful
from curator.outside.memory import as_table
from curator.worker.rows import parts


class StageMap:
    """Calls stages one after the other on a batch of rows, and gives the rows that come out of the last.

    A batch is an Arrow table, a dict of columns (lists or arrays), or a data frame; the answer is of the same
    kind. Rows without `id` and `source` get some for the stages, which are taken away again. What a stage
    drops, or sends to another port, is left out; `keep` gives it back instead, all ports in one table with
    the columns `port` and `reason`. It sets its stages up at the first call, so it can be pickled.
    """

    def __init__(self, *stages: Stage, keep: bool = False) -> None:
        for stage in stages:
            if isinstance(stage, (Source, Sink, Reduce, Stateful)):
                does = ("reads" if isinstance(stage, Source) else "writes" if isinstance(stage, Sink)
                        else "has to see all rows")
                raise CuratorError(f"{stage.name!r} cannot be called batch by batch, as it {does}: use a "
                                   "pipeline, read(data) >> … and collect()")
        self.stages, self.keep, self._ready = stages, keep, False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ready": False}

    def __call__(self, data: Any) -> Any:
        table = as_table(data)
        added = [name for name in ("id", "source") if name not in table.column_names]
        for name in added:
            table = table.append_column(name, pa.array(np.arange(table.num_rows).astype(str)))
        if not self._ready:
            for stage in self.stages:
                stage.setup_node(Context())
                stage.setup(Context())
            self._ready = True
        rows, aside = Batch(table), []
        for stage in self.stages:
            rows, gone = _process(stage, rows)
            aside += gone
        made = rows.visible()
        if self.keep:
            tables = [_labelled(made, "out"), *(_labelled(batch.visible(), port) for port, batch in aside)]
            made = pa.concat_tables(tables, promote_options="permissive")
        return _as_given(made.drop_columns([name for name in added if name in made.column_names]), data)


def _process(stage: Stage, batch: Batch) -> tuple[Batch, list[tuple[str, Batch]]]:
    out, aside = [], []
    for part in parts(stage.process(batch) if len(batch) else batch):
        for port, rows in part.items():
            (out if port == "out" else aside).append(rows if port == "out" else (port, rows))
    return (Batch.concat(out) if out else batch.slice(0, 0)), aside


def _labelled(table: pa.Table, port: str) -> pa.Table:
    return table.append_column("port", pa.array(np.full(table.num_rows, port), pa.string()))


def _as_given(table: pa.Table, given: Any) -> Any:
    if isinstance(given, Mapping):
        arrays = any(isinstance(column, np.ndarray) for column in given.values())
        return {name: table.column(name).to_numpy() if arrays else table.column(name).to_pylist()
                for name in table.column_names}
    kind = type(given).__module__.partition(".")[0]
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table
