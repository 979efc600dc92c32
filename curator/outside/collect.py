"""What a pipeline makes, as a table in memory, or as counts alone."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import pyarrow as pa

from curator.api.errors import RecipeError, RunStopped
from curator.io.tables.parquet import ToParquet
from curator.pipeline.graph import Graph
from curator.results import RunOutput
from curator.run.run import Result, run


def collect(pipeline: Graph, **options: Any) -> pa.Table:
    """Run a pipeline that has no sink, and give what it makes as a table, in the order of its input as far as
    stages keep it. `options`: of `curator.run.run.run`.

    Everything lies in a temporary folder until it is read, so it has to fit into memory and on disk once.

    Raises:
        RecipeError: it has a sink.
        RunStopped: it did not end well.
    """
    with tempfile.TemporaryDirectory(prefix="curator-collect-") as folder:
        result = _run(pipeline, folder, options)
        return _table(result)


def count(pipeline: Graph, **options: Any) -> Result:
    """Run a pipeline that has no sink for its counts: nothing of what it makes is kept, but the result.

    Raises:
        RecipeError, RunStopped: as `collect`.
    """
    with tempfile.TemporaryDirectory(prefix="curator-count-") as folder:
        return _run(pipeline, folder, options)


def _run(pipeline: Graph, folder: str, options: dict[str, Any]) -> Result:
    if pipeline.sinks:
        raise RecipeError("this pipeline writes to a sink: run() it, and read what it wrote")
    kept = replace(pipeline.settings, discard=("dropped", "duplicate"), out=None)
    result = run(replace(pipeline.then(ToParquet()), settings=kept), out=folder, **options)
    if not result.ok:
        raise RunStopped("\n".join(map(str, (result.stats["message"], *result.first_errors[:1]))))
    return result


def _table(result: Result) -> pa.Table:
    import pyarrow.parquet as pq

    out = RunOutput.open(result.out)
    files = sorted(out.folder.path_of(path) for place in out.places if place.kind == "data"
                   for path in place.files)
    tables = [pq.read_table(path, partitioning=None) for path in files]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
