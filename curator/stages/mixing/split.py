"""Records divided at random: to train on, to validate with."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import SIDE_OUTPUTS, Contract, Outputs, Stage
from curator.stages.sample import chance, check_seed


@dataclass(kw_only=True)
class Split(Stage):
    """Send each record to one of several ports at random, a share to each: `{train: 0.99, validation: 0.01}`.

    The choice is a hash of `seed` and id: the same in each run, in any order. Shares must sum to 1, and are
    met on average.

    `by`: a column; records with one value there go to one port (the chunks of a document, the clips of a
    film, the pages of a site), so that nothing of what is validated with was trained on. Records without a
    value are divided by their ids.
    """

    shares: dict[str, float]
    by: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in self.shares.items():
            if name in SIDE_OUTPUTS or not re.fullmatch(r"[A-Za-z0-9][\w-]*", name):
                raise RecipeError(f"split: {name!r} cannot be the name of a port; take letters, digits, _ "
                                  "and -")
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
                raise RecipeError(f"split: the share of {name} must be a number above 0, up to 1, got "
                                  f"{share!r}")
        if not self.shares or abs(sum(self.shares.values()) - 1) > 1e-9:
            raise RecipeError("split wants shares that sum to 1, such as {train: 0.99, validation: 0.01}")
        check_seed(self)
        self.ports = tuple(self.shares)

    def contract(self) -> Contract:
        return Contract(needs=() if self.by is None else {self.by})

    def process(self, batch: Batch) -> Outputs:
        keys = batch.rows.column("id").cast(pa.string())
        if self.by is not None:
            keys = pc.coalesce(batch.rows.column(self.by).cast(pa.string()), keys)
        ends = np.cumsum(list(self.shares.values()))[:-1]
        places = np.searchsorted(ends, chance(keys, self.seed), side="right")
        return Outputs(batch.split([self.ports[place] for place in places]))
