"""Pipelines that can be run: the door for people who write Python.

    read("docs/*.jsonl") >> Drop(conditions={"short": "length(text) < 200"}) >> write("out/")

The graph itself is `curator.pipeline.graph`; what runs, tries or explains it is imported when it is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack

from curator.api.errors import CuratorError, InputError
from curator.api.stage import Source, Stage
from curator.pipeline import graph

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from curator.observe.preview import StagePreview
    from curator.outside.options import RunOptions
    from curator.outside.training import PipelineDataset
    from curator.run.run import Result


@dataclass(frozen=True)
class Pipeline(graph.Graph):
    """Stages joined port to stage. `>>` adds a stage or sink, `+` unites, `route` and `port` branch."""

    def __rshift__(self, stage: Stage | str | Mapping[str, Any]) -> Pipeline:
        """The pipeline with another stage: an object, or as in a recipe, `"text.signals"` or
        `{"drop": {"rules": "gopher_quality"}}`."""
        if isinstance(stage, (str, Mapping)):
            from curator.recipe import stage_of

            stage = stage_of(stage)
        return self.then(stage)

    @classmethod
    def of(cls, made: graph.Graph) -> Pipeline:
        """The same graph, as a pipeline that can be run."""
        return cls(**{field.name: getattr(made, field.name) for field in fields(made)})

    def route(self, routes: Mapping[str, str]) -> dict[str, Pipeline]:
        """A branch for each label, of the rows for which its SQL condition is the first true one.

        Rows for which none is true are dropped with the reason `unmatched`.
        """
        from curator.stages.route import Route

        return self.then(Route(routes=dict(routes))).branches()

    def run(self, *, check: bool = True, progress: bool | None = None, **options: Unpack[RunOptions]
            ) -> Result:
        """Run it, or continue it: see `curator.run.run.run` for the options and the result. Without a sink it
        is run for its counts: nothing else is kept.

        `progress`: show how far it is, unless `watch` is given; None: in a notebook.

        Raises:
            RunStopped: it did not end well (too many records failed, a stage cannot work); with `check=False`
            the result says so.
        """
        from curator.outside.collect import count
        from curator.run.run import run

        with _shown(options, progress):
            result = run(self, **options) if self.sinks else count(self, **options)
        if check and not result.ok:
            raise result.error
        return result

    def collect(self, **options: Unpack[RunOptions]) -> pa.Table:
        """Run it, and give what it makes as an Arrow table; it has no sink. `options`: as for `run`.

        Raises:
            RunStopped: it did not end well.
        """
        from curator.outside.collect import collect

        with _shown(options):
            return collect(self, **options)

    def to_pandas(self, **options: Unpack[RunOptions]) -> pandas.DataFrame:
        """Run it, and give what it makes as a data frame; it has no sink."""
        if find_spec("pandas") is None:  # not after the work
            raise CuratorError("to_pandas wants pandas: pip install pandas")
        return self.collect(**options).to_pandas()

    def batches(self, rows: int | None = None, **options: Unpack[RunOptions]) -> Iterator[pa.Table]:
        """Run it, and give what it makes as tables, while it works; it has no sink. A loop over the pipeline
        itself is the same.

        The run stops a bounded amount ahead of the loop, and ends when the loop is left. What an input file
        becomes comes in the order of its records as far as stages keep it; files come as they are done.
        `rows`: of each table but the last, by default as they come. `options`: as for `run`.

        Raises:
            RunStopped: it did not end well; what came before it is given first.
        """
        from curator.outside.stream import batches

        return batches(self, rows, options)

    def __iter__(self) -> Iterator[pa.Table]:
        return self.batches()

    def to_torch(self, *, columns: list[str] | None = None, shuffle: bool = False, seed: int = 0,
                 rank: int | None = None, world_size: int | None = None) -> PipelineDataset:
        """What it makes as an `IterableDataset` of PyTorch, whose records are dicts; it has no sink, and no
        stage that has to see all rows.

        The processes of a `DataLoader` do the work, each with its share of the input (units: files, ranges,
        row groups), of all ranks: each record comes once an epoch. `columns`: those, and payloads such as
        decoded images, that are wanted; None for all columns. `shuffle`: units, and rows within each, by
        `seed` and the epoch (`set_epoch`). `rank`, `world_size`: those of torch.distributed or torchrun, if
        not said. `state_dict` and `load_state_dict` are as `torchdata.stateful_dataloader` wants them.
        """
        try:
            from curator.outside.training import PipelineDataset
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise CuratorError("to_torch needs PyTorch: pip install torch") from error
        return PipelineDataset(self, columns, shuffle, seed, rank, world_size)

    def preview(self, records: int = 5) -> Preview:
        """Try it on the first records and print what each stage does to them; nothing is written."""
        from curator.observe.preview import show_preview
        from curator.trial.preview import preview

        stages = Preview(preview(self, records))
        show_preview(stages, records_max=records)
        return stages

    def schema(self) -> pa.Schema:
        """The columns of what it makes, with types, as the contracts of its stages tell before anything runs:
        those that its sinks get, or the next stage would get. The type null: it is not known.

        Raises:
            ContractError: a stage needs what nothing before it makes.
        """
        from curator.outside.collect import columns_of

        return columns_of(self)

    def to_yaml(self) -> str:
        """The recipe: `load` makes the same plan of it. Secrets are `***`.

        Raises:
            RecipeError: YAML cannot say it: a function or class of no pack, rows in memory, no sink.
        """
        from curator.outside.as_recipe import to_yaml

        return to_yaml(self)

    def __repr__(self) -> str:
        from curator.outside.drawing import tree

        return tree(self)

    def _repr_svg_(self) -> str:
        from curator.outside.drawing import svg

        return svg(self)

    def plan(self, mode: Literal["stream", "batch"] = "stream", out: str | None = None) -> str:
        """What it would do, in words."""
        from curator.run.folder.shards import planned
        from curator.trial.explain import explain

        return explain(planned(self, mode, out))


class Preview(tuple["StagePreview", ...]):
    """What each stage did, in pipeline order."""

    def __repr__(self) -> str:
        return f"<preview of {len(self)} stages>"


@contextmanager
def _shown(options: RunOptions, wanted: bool | None = None) -> Iterator[None]:
    """Show how far the run is that gets these options: None in a notebook, and not where somebody watches."""
    from curator.observe.live.progress import Progress, in_notebook

    if "watch" in options or not (in_notebook() if wanted is None else wanted):
        yield
        return
    shown = Progress()
    options["watch"] = shown.update
    try:
        yield
    finally:
        shown.close()


def read(source: Any, format: str | None = None, **options: Any) -> Pipeline:
    """A pipeline that reads these paths, globs or URLs, this source, or rows in memory.

    `source`: a path or a list of them, a `Source`; an Arrow table, a data frame, a dataset of Hugging Face, a
    list of dicts; or a pipeline, which is given back. `format`: `jsonl`, `parquet`, `csv`, `webdataset` or
    `files`; by default what the suffixes say. `options`: the source's parameters.
    """
    if isinstance(source, Pipeline):
        return source
    if isinstance(source, Source):
        return from_source(source)
    paths = source if isinstance(source, (list, tuple)) else [source]
    if not paths:
        raise InputError("an empty list cannot be read: give paths, or dicts, one a record")
    if not all(isinstance(path, (str, PathLike)) for path in paths):
        from curator.outside.memory import from_memory

        return from_source(from_memory(source, **options))
    from curator.pipeline.formats import source_for

    return from_source(source_for(source, format, **options))


def from_source(source: Source) -> Pipeline:
    """A pipeline that begins with this source."""
    return Pipeline.of(graph.from_source(source))


def load(recipe: str | PathLike[str], overrides: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a recipe: a file, a packaged recipe (`text/web`) or the YAML itself; see
    `curator.recipe.load`."""
    from curator import recipe as recipes

    return Pipeline.of(recipes.load(recipe, overrides))
