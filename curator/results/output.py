"""A run's folder as it lies there: its files by what became of their records, and all of them as one table.

    out = RunOutput.open("out/")
    out.connect().sql("SELECT _place, reason, count(*) FROM records GROUP BY ALL").show()
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from curator.api.errors import CuratorError
from curator.io.files.folder import Folder
from curator.io.files.listing import CLUSTERS, RUN
from curator.observe.report.graph import behind
from curator.pipeline.graph import Graph
from curator.recipe import load
from curator.results.archives import Archives, Media
from curator.results.places import Place, find_places
from curator.results.tables import Tables
from curator.run.folder.lock import stats_of
from curator.run.folder.shards import shards_in


class RunOutput:
    """A run's folder. Nothing is copied or changed; a run that goes on shows what it had when it was opened.

    `stats`: what stats.json holds, with the true status of a run that was killed; `manifest`; `recipe`: the
    YAML.
    """

    def __init__(self, folder: Folder, stats: dict[str, Any]) -> None:
        self.folder, self.stats = folder, stats
        self._own = folder.sub(RUN)
        self._archives = Archives(folder)

    @classmethod
    def open(cls, path: str, storage_options: dict[str, Any] | None = None) -> RunOutput:
        """The run whose folder this is.

        Raises:
            CuratorError: there is no run there, none that has written of itself yet, or it is damaged.
        """
        folder = Folder.open(str(path), storage_options)
        if not (stats := stats_of(folder)):
            raise CuratorError(no_run(folder, str(path)))
        return cls(folder, stats)

    def __repr__(self) -> str:
        return f"<output of the run {self.stats['name']} ({self.stats['status']}) in {self.folder.uri}>"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self._own.read("manifest.json"))

    @cached_property
    def recipe(self) -> str:
        return self._own.read("recipe.yaml").decode()

    def graph(self, overrides: Mapping[str, str] | None = None) -> Graph:
        """The recipe that it ran, with `--set` values.

        Raises:
            RecipeError: it does not load here: a pack is missing, or a stage was given in Python.
        """
        return load(self.recipe + "\n", overrides)

    def order(self) -> tuple[str, ...]:
        """The stages, sources and sinks too, each after those that it takes rows from."""
        return tuple(stage["name"] for stage in self.stats["stages"])

    def stage(self, name: str) -> dict[str, Any]:
        """The numbers of a stage.

        Raises:
            CuratorError: it has no such stage.
        """
        found = next((stage for stage in self.stats["stages"] if stage["name"] == name), None)
        if found is None:
            raise CuratorError(f"the run has no stage {name!r}; it has {', '.join(self.order())}")
        return found

    def behind(self, name: str) -> frozenset[str]:
        """The stages that rows may reach which leave this one, by any port."""
        return frozenset(stage["name"] for stage in behind(self.stats["stages"], name))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where records lie: the data first, then by ending, each in the order of the pipeline. Only files of
        finished units count."""
        return find_places(self.folder, self.order(), self.stats["status"] == "running")

    def path_of(self, file: str) -> str:
        """The full path or URL of a file of a place."""
        return self.folder.full_path(file)

    def media(self, file: str, key: str) -> tuple[Media, ...]:
        """What a sample of a WebDataset holds: where each member's bytes lie, as they stand in the archive.

        `file`: the archive, or the table beside it (`_file` of a record); `key`: its column `key`.
        """
        return self._archives.members(file, key)

    def connect(self) -> Any:
        """A DuckDB connection with the view `records`: all rows of data, dropped, duplicate and failed.

        Columns are joined by name, and widened where types differ, to text if nothing else holds all. `id`,
        `source`, `reason`, `duplicate_of` and `error` are always there; `_place` is the kind, `_stage` the
        stage, `_file` the file as `places` has it, `_row` the row of a Parquet file, from 0. Columns that a
        query does not name are not read, and of Parquet no row groups that a condition on `_row` leaves out.

        The connection reads the files of the run and no others, loads no extension, and takes a quarter of
        the memory at most. SQL that a stranger wrote goes through `curator.sql.columns_of` before.

        Raises:
            CuratorError: files that the ledger names are gone.
        """
        return self._tables.connect()

    def columns(self, place: Place) -> dict[str, str]:
        """The columns that the files of a place have, with their types in SQL; none of one that is unread."""
        return self._tables.columns(place)

    @property
    def unread(self) -> tuple[Place, ...]:
        """Places whose records are not in `records`: their files are no tables."""
        return tuple(place for place in self.places if place.kind != CLUSTERS and not place.is_read)

    def text_column(self, columns: Collection[str]) -> str | None:
        """Of these columns that with what people read: `text`, or one that a stage shows in the report."""
        shown = [c for c, kind in self.stats.get("example_columns", {}).items() if kind == "text"]
        likely = ("text", *shown, "caption", "transcript", "content", "messages", "txt")
        return next((column for column in likely if column in columns), None)

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self.folder, self.places, self._archives)


def no_run(folder: Folder, path: str) -> str:
    """Why a folder is none of a run that can be looked at."""
    if shards_in(folder):
        return f"{path} holds shards that nobody has gathered: run the recipe there without --shard first"
    if folder.exists(RUN):
        return f"the run in {path} has written nothing of itself yet; wait some seconds"
    if not folder.exists(""):
        return f"{path} does not exist: give the output folder of a run"
    above = next((up for up in ("..", "../..") if folder.is_local and folder.exists(f"{up}/{RUN}")), "")
    hint = f"; did you mean {Folder.open(folder.path_of(above)).uri}?" if above else ""
    return f"{path} holds no run: there is no {RUN}/stats.json in it{hint}"
