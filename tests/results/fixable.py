"""Stages that fail until they are mended: while a file `broken` lies in their folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curator import Contract, Outputs, Stage, VideoBatch
from curator.api.stage import setting
from tests.engine.small_stages import Lines


@dataclass(kw_only=True)
class Fixable(Stage):
    """Adds `column`, the length of the text. Texts with `word` make it raise while it is broken."""

    marks: str = setting()
    word: str = "bad"
    column: str = "length"
    count_by = ("kind",)

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={self.column: pa.int64()})

    def amounts(self):
        return {"size": "number"}

    def process(self, batch):
        if Path(self.marks, "broken").exists() and (bad := [t for t in batch.column("text") if self.word in t]):
            raise ValueError(f"{bad[0]!r} is {len(bad[0])} long")
        return batch.with_columns({self.column: [len(t) for t in batch.column("text")]})


@dataclass(kw_only=True)
class Measured(Stage):
    """Adds what is counted: a `kind` and a `size`."""

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"kind": pa.string(), "size": pa.float64()})

    def process(self, batch):
        texts = batch.column("text")
        return batch.with_columns({"kind": [t[:1] for t in texts], "size": [float(len(t)) for t in texts]})


@dataclass(kw_only=True)
class FixableFrames(Fixable):
    """Works on frames, which no row keeps."""

    def contract(self) -> Contract:
        return Contract(needs={"text", "frames"}, adds={self.column: pa.int64()})


@dataclass(kw_only=True)
class Frames(Stage):
    """Gives each record frames."""

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"frames": None, "timestamps": None})

    def process(self, batch):
        frames = [np.zeros((1, 2, 2, 3), np.uint8) for _ in range(len(batch))]
        return batch.as_type(VideoBatch).with_payloads(frames=frames, timestamps=[np.zeros(1) for _ in frames])


@dataclass(kw_only=True)
class FixableChildren(Fixable):
    """Makes two of each record; of a bad one a child fails while it is broken."""

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"parent": pa.string()})

    def process(self, batch):
        made = batch.explode([2] * len(batch))
        broken = Path(self.marks, "broken").exists()
        bad = np.array([broken and self.word in t and i.endswith("#1")
                        for t, i in zip(made.column("text"), made.column("id"), strict=True)], dtype=bool)
        return Outputs(out=made.filter(~bad), failed=made.filter(bad).with_error("this child is bad"))


@dataclass(kw_only=True)
class FixableLines(Lines):
    """The lines of text files, of which the file `b` cannot be read while it is broken."""

    marks: str = setting()

    def read(self, unit):
        if unit.parts[0].uri.endswith("b.txt") and Path(self.marks, "broken").exists():
            raise OSError("the disk is away")
        return super().read(unit)
