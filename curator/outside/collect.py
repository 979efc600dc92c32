"""What a pipeline makes, as a table in memory, or as counts alone."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from typing import Unpack

import pyarrow as pa

from curator.api.errors import CuratorError, RecipeError
from curator.api.stage import Sink, Source
from curator.io.tables.parquet import ToParquet
from curator.outside.options import RunOptions
from curator.pipeline.checkpoint import payloads
from curator.pipeline.contracts import check_contracts
from curator.pipeline.graph import Graph
from curator.results import RunOutput
from curator.results.places import UNIT
from curator.run.run import Result, run


def collect(pipeline: Graph, **options: Unpack[RunOptions]) -> pa.Table:
    """Run a pipeline that has no sink, and give what it makes as a table, in the order of its input as far as
    stages keep it. `options`: of `curator.run.run.run`. Where no row comes out, the table has the columns
    that are known; of those whose type is not known it is null.

    Everything lies in a temporary folder until it is read, so it has to fit into memory and on disk once.

    Raises:
        RecipeError: it has a sink.
        RunStopped: it did not end well.
        CuratorError: workers of other machines wrote where this one does not see it.
    """
    with tempfile.TemporaryDirectory(prefix="curator-collect-") as folder:
        result = run_into(pipeline, ToParquet(), folder, options)
        if not result.ok:
            raise result.error
        try:
            return _table(result, pipeline)
        except FileNotFoundError as error:
            raise CuratorError("some of the rows are not in the temporary folder of this machine: workers on "
                               "other machines wrote to theirs. End the pipeline with a sink that all of "
                               "them reach, run() it, and read what it wrote") from error


def count(pipeline: Graph, **options: Unpack[RunOptions]) -> Result:
    """Run a pipeline that has no sink for its counts: nothing of what it makes is kept, but the result."""
    with tempfile.TemporaryDirectory(prefix="curator-count-") as folder:
        return replace(run_into(pipeline, ToParquet(), folder, options), out="")


def run_into(pipeline: Graph, sink: Sink, folder: str, options: RunOptions) -> Result:
    """Run a pipeline that has no sink into this one, in a folder that goes when it is done.

    Raises:
        RecipeError: it has a sink, or `out` is said.
    """
    if options.get("out") is not None:
        raise RecipeError("out is the folder of what a run keeps, and without a sink it keeps nothing: end "
                          "the pipeline with a sink, for example >> write(\"out/\"), or do not give out")
    given: RunOptions = {**options, "out": folder}
    result = run(with_sink(pipeline, sink), **given)
    message = re.sub(rf"; they are in {re.escape(folder)}\S*", "", result.stats["message"])
    return replace(result, stats=result.stats | {"message": message})


def with_sink(pipeline: Graph, sink: Sink) -> Graph:
    """A pipeline that has no sink with this one, and nothing that is kept beside it."""
    refuse_sinks(pipeline)
    kept = replace(pipeline.settings, discard=("dropped", "duplicate"), out=None)
    return replace(pipeline.then(sink), settings=kept)


def refuse_sinks(pipeline: Graph) -> None:
    if pipeline.sinks:
        raise RecipeError("this pipeline writes to a sink: run() it, and read what it wrote")


def _table(result: Result, pipeline: Graph) -> pa.Table:
    import pyarrow.parquet as pq

    out = RunOutput.open(result.out)
    units = [unit.key for node in pipeline.nodes() if isinstance(node.stage, Source)
             for unit in node.stage.units()]
    order = {key: at for at, key in enumerate(units)}  # behind a barrier there are other units

    def place_of(path: str) -> tuple[int, str]:
        found = re.search(UNIT, path)
        return order.get(found[1], len(order)) if found else len(order), path

    files = sorted((out.path_of(path) for place in out.places if place.kind == "data"
                    for path in place.files), key=place_of)
    tables = [pq.read_table(path, partitioning=None) for path in files]
    if not tables:
        return columns_of(pipeline).empty_table()
    return pa.concat_tables(tables, promote_options="permissive")


def columns_of(pipeline: Graph) -> pa.Schema:
    """The columns of what a pipeline makes, as far as contracts tell: of type null where they do not say
    which. Without pictures, sounds and frames, which no table holds."""
    ends = pipeline.ends or tuple(end for sink in pipeline.sinks for end in sink.inputs)
    whole = replace(pipeline, ends=ends, sinks=()).then(ToParquet())
    known = check_contracts(whole.nodes(), whole.names(), {})[whole.sinks[0]] or {}
    media = payloads(lasting=True) | payloads(lasting=False)
    return pa.schema([(name, kind or pa.null()) for name, kind in known.items()
                      if kind is not None or name not in media])
