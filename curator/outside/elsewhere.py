"""Stages in somebody else's engine: a callable for `datasets.map`, `ray_dataset.map_batches` or a loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import ROW, Batch
from curator.api.errors import CuratorError
from curator.api.stage import Composite, Context, Reduce, Sink, Source, Stage, Stateful
from curator.outside.memory import as_table
from curator.worker.rows import parts


class StageMap:
    """Calls stages one after the other on rows, and gives the rows that come out of the last.

    Rows are an Arrow table or record batch, a dict of columns (lists or arrays), a list of dicts, a data
    frame of pandas or Polars, a dataset of `datasets` or of Ray Data; the answer is of the same kind. Rows
    without `id` and `source` get some for the stages, which are taken away again. What a stage drops, or
    sends to another port, is left out; `keep` gives it back instead, all ports in one table with the columns
    `port` and `reason`. What a stage raises is raised. It sets its stages up at the first call, so it can be
    pickled.
    """

    def __init__(self, *stages: Stage, keep: bool = False) -> None:
        if not stages:
            raise CuratorError("as_map() wants stages, such as Drop({\"short\": \"length(text) < 10\"})")
        for stage in stages:
            if not isinstance(stage, Stage):
                raise CuratorError(f"{stage!r:.80} is not a stage, as Drop(…) is; a plain function becomes "
                                   "one with @curator.stage")
            if isinstance(stage, (Source, Sink, Reduce, Stateful, Composite)):
                does = ("reads" if isinstance(stage, Source) else "writes" if isinstance(stage, Sink)
                        else "is made of others" if isinstance(stage, Composite) else "has to see all rows")
                raise CuratorError(f"{stage.name!r} cannot be called batch by batch, as it {does}: use a "
                                   "pipeline, read(data) >> … and collect()")
        self.stages, self.keep, self._ready = stages, keep, False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ready": False}

    def __call__(self, data: Any) -> Any:
        library = type(data).__module__.partition(".")[0]
        if library == "datasets" and hasattr(data, "map"):  # not what such a call is given
            return self._on_dataset(data)
        if library == "ray":
            # a class, so that the stages are set up once an actor
            return data.map_batches(StageMap, fn_constructor_args=self.stages, batch_format="pyarrow",
                                    fn_constructor_kwargs={"keep": self.keep})
        is_pandas = library == "pandas"
        table = pa.Table.from_pandas(data, preserve_index=False) if is_pandas else as_table(data)
        added = [name for name in ("id", "source") if name not in table.column_names]
        for name in added:
            table = table.append_column(name, pa.array(np.arange(table.num_rows).astype(str)))
        made = self._answer(Batch(table.append_column(ROW, pa.array(np.arange(table.num_rows)))))
        rows = made.column(ROW) if ROW in made.column_names else None
        made = made.drop_columns([name for name in (*added, ROW) if name in made.column_names])
        if not is_pandas:
            return _as_given(made, data)
        frame = made.to_pandas()
        return frame if rows is None else frame.set_axis(data.index.take(rows.to_numpy()), axis=0)

    def _on_dataset(self, data: Any) -> Any:
        """Of `datasets`, which calls this batch by batch, and keeps the answer on disk."""
        names = data.column_names
        if isinstance(names, Mapping):  # of each split
            return type(data)({split: self(data[split]) for split in data})
        if not hasattr(data, "format"):  # streaming
            return data.map(self, batched=True, remove_columns=names)
        made = data.with_format("arrow").map(self, batched=True, remove_columns=names)
        return made.with_format(data.format["type"])

    def _answer(self, rows: Batch) -> pa.Table:
        if not self._ready:
            for stage in self.stages:
                stage.setup_node(Context())
                stage.setup(Context())
            self._ready = True
        aside: list[tuple[str, Batch]] = []
        for stage in self.stages:
            rows, gone = _process(stage, rows)
            aside += gone
        if not self.keep:
            return _plain(rows)
        tables = [_plain(batch).append_column("port", pa.array([port] * len(batch), pa.string()))
                  for port, batch in (("out", rows), *aside)]
        return pa.concat_tables(tables, promote_options="permissive")


def _process(stage: Stage, batch: Batch) -> tuple[Batch, list[tuple[str, Batch]]]:
    out, aside = list[Batch](), list[tuple[str, Batch]]()
    for some in _cut(stage, batch):
        for part in parts(stage.process(some)):
            for port, rows in part.items():
                if port == "out":
                    out.append(rows)
                else:
                    aside.append((port, rows))
    return (Batch.concat(out) if out else batch.slice(0, 0)), aside


def _cut(stage: Stage, batch: Batch) -> Iterator[Batch]:
    """As many rows at a time as the stage takes in a run."""
    size = max(1, len(batch) * stage.batch_bytes // max(1, batch.nbytes))
    size = min(size, stage.batch_size or size)
    yield from (batch.slice(at, min(at + size, len(batch))) for at in range(0, len(batch), size))


def _plain(batch: Batch) -> pa.Table:
    """The rows without what belongs to the engine, but the place that they had."""
    return batch.rows.select([*batch.columns, *(name for name in batch.rows.column_names if name == ROW)])


def _as_given(table: pa.Table, given: Any) -> Any:
    if isinstance(given, Mapping):
        arrays = any(isinstance(column, np.ndarray) for column in given.values())
        return {name: table.column(name).to_numpy() if arrays else table.column(name).to_pylist()
                for name in table.column_names}
    if isinstance(given, (list, tuple)):
        return table.to_pylist()
    if isinstance(given, pa.RecordBatch):
        [batch] = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return batch
    if type(given).__module__.partition(".")[0] == "polars":
        import polars

        return polars.from_arrow(table)
    return table
