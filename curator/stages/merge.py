"""Unite branches."""

from __future__ import annotations

from dataclasses import dataclass

from curator.api.batch import Batch
from curator.api.stage import Contract, Stage


@dataclass(kw_only=True)
class Merge(Stage):
    """Take in the records of several branches and send them on as they are, in no particular order.

    A column that only some of the branches have is null for the records of the others.
    """

    def contract(self) -> Contract:
        return Contract()

    def process(self, batch: Batch) -> Batch:
        return batch
