"""Reductions for tests of phases. Workers import this module, as they would a pack's."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from curator import Contract, Outputs, Reduce, TextBatch, setting


@dataclass(kw_only=True)
class CountText(Reduce):
    """Adds `count`: how many records have the same text."""

    key: str | None = "text"
    shards: int = setting(default=3)
    add: int = 0  # to each count, to be edited

    columns = ("text",)

    def contract(self) -> Contract:
        return Contract(adds={"count": pa.int64()})

    def setup(self, ctx) -> None:
        self.seen: Counter = Counter()

    def clear(self) -> None:
        self.seen.clear()

    def absorb(self, batch) -> None:
        assert set(batch.columns) == {"id", "source", "text"}
        self.seen.update(batch.column("text"))

    def process(self, batch):
        return batch.with_columns({"count": pa.array([self.seen[t] + self.add for t in batch.column("text")], pa.int64())})


@dataclass(kw_only=True)
class Words(CountText):
    """Rows of its own making: each different text with its count. The rows that came are absorbed."""

    shards: int = setting(default=2)

    def finish(self):
        if self.seen:
            texts = sorted(self.seen)
            yield TextBatch(pa.table({"id": texts, "source": ["words"] * len(texts),
                                      "count": pa.array([self.seen[t] for t in texts], pa.int64())}))

    def process(self, batch):
        return Outputs(absorbed=batch)

    def columns_after(self, columns):
        return Reduce.columns_after(self, {n: columns[n] for n in ("id", "source")})


@dataclass(kw_only=True)
class Total(Reduce):
    """How many records there are at all, as one row."""

    def contract(self) -> Contract:
        return Contract(adds={"total": pa.int64()})

    def clear(self) -> None:
        self.total = 0

    def absorb(self, batch) -> None:
        self.total += len(batch)

    def finish(self):
        return TextBatch(pa.table({"id": ["total"], "source": ["total"], "total": pa.array([self.total], pa.int64())}))


@dataclass(kw_only=True)
class Broken(CountText):
    """Raises, kills its worker or hangs over a text with "hurt", in `absorb`, `finish` or `process`; with `marks` only once."""

    where: str = "absorb"
    how: str = "raise"
    marks: str = ""

    def hurt(self, where: str, texts) -> None:
        if where != self.where or not any("hurt" in t for t in texts):
            return
        if self.marks:
            try:
                os.close(os.open(os.path.join(self.marks, "once"), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        if self.how == "raise":
            raise ValueError(f"cannot {where} this")
        if self.how == "hang":
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)

    def absorb(self, batch) -> None:
        self.hurt("absorb", batch.column("text"))
        super().absorb(batch)

    def finish(self):
        self.hurt("finish", self.seen)

    def process(self, batch):
        self.hurt("process", batch.column("text"))
        return super().process(batch)
