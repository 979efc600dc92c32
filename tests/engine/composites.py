"""A composite stage for tests. Workers import this module, as they would a pack's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator import Batch, Contract, Outputs, Reduce, Stage, setting
from curator.api.findings import Alarm, Line, Table
from curator.api.stage import Composite
from curator.io.tables.parquet import ToParquet
from curator.stages import Select


@dataclass
class Texts(Batch):
    """Copies of what is compared."""


@dataclass
class Often(Batch):
    """Texts that are there more than once, and who has them first."""


@dataclass(kw_only=True)
class Copy(Stage):
    def process(self, batch):
        if any(t is None for t in batch.column("text")):
            raise ValueError("there is no text")
        return Texts(batch.rows.select(["id", "source", "text", *(n for n in batch.rows.column_names if n.startswith("_"))]))


@dataclass(kw_only=True)
class FindTwice(Reduce):
    key = "text"
    reports = ("cluster_size", "cluster_sizes")
    shards: int = setting(default=2)

    def clear(self) -> None:
        self.ids: dict[str, list[str]] = {}

    def absorb(self, batch) -> None:
        for i, t in zip(batch.column("id"), batch.column("text"), strict=True):
            self.ids.setdefault(t, []).append(i)

    def finish(self):
        yield Outputs(counts={"groups": sum(len(ids) > 1 for ids in self.ids.values())})
        rows = [{"id": i, "source": "found", "first": min(ids), "cluster_size": len(ids), "cluster_sizes": str(len(ids))}
                for ids in self.ids.values() if len(ids) > 1 for i in ids]
        if rows:
            yield Often(pa.Table.from_pylist(rows))

    def findings(self, step, counts):
        yield Alarm("note", f"{step} has {counts.extra['groups']} groups")

    def contract(self) -> Contract:
        return Contract(adds={"first": pa.string(), "cluster_size": pa.int64(), "cluster_sizes": pa.string()})


@dataclass(kw_only=True)
class Decide(Reduce):
    key = "id"
    absorbs = Often
    count_by = ("source",)
    shards: int = setting(default=2)

    def findings(self, step, counts):
        yield Line(f"up to {counts.columns['cluster_size'].greatest} alike in {counts.extra['groups']} groups")
        sources = {source: ports.get("duplicate", 0) for source, ports in counts.by_value["source"].items()}
        yield Table("Lost", ("source", "records"), [(source, n, counts.duplicate) for source, n in sources.items()])

    def clear(self) -> None:
        self.first: dict[str, str] = {}

    def absorb(self, batch) -> None:
        assert isinstance(batch, Often)
        self.first |= dict(zip(batch.column("id"), batch.column("first"), strict=True))

    def process(self, batch):
        if isinstance(batch, Often):
            return Outputs(absorbed=batch)
        first = [self.first.get(i, i) for i in batch.column("id")]
        same = [f != i for f, i in zip(first, batch.column("id"), strict=True)]
        marked = batch.filter(same)
        return Outputs(out=batch.filter([not s for s in same]),
                       duplicate=marked.with_columns({"duplicate_of": [f for f, s in zip(first, same, strict=True) if s]}))


@dataclass(kw_only=True)
class Unlike(Composite):
    """Keeps the first of equal texts, by way of copies."""

    def contract(self) -> Contract:
        return Contract(needs={"text"})

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        often = (rows >> Copy() >> FindTwice()).to(ToParquet(path=folder, storage_options=storage_options))
        return (rows + often) >> Decide()


class Telling(Decide):
    """Says at the end of a shard how many copies it was shown: a record that it makes."""

    def finish(self):
        if self.first:
            yield Batch(pa.table({"id": [min(self.first)], "source": ["told"], "text": [str(len(self.first))]}))


class UnlikeAndTold(Unlike):
    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        return (rows + (rows >> Copy() >> FindTwice(shards=1))) >> Telling(shards=1)


class Counted(Composite):
    """How many records there are, as one; `finish` is given what a part lets through."""

    def contract(self) -> Contract:
        return Contract(needs={"text"})

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        return rows >> Select(keep=["text"]) >> Count()


class Count(Reduce):
    key = None

    def clear(self) -> None:
        self.rows = 0

    def absorb(self, batch) -> None:
        self.rows += len(batch)

    def finish(self):
        yield Batch(pa.table({"id": ["all"], "source": ["counted"], "text": [str(self.rows)]}))
