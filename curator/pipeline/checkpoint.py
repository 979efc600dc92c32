"""The step `checkpoint`: rows are kept where it stands, so that an edit behind it starts there.

It is no stage of a plan: what it says is where the plan keeps rows. So results stay what they are when one is
added, moved or taken away.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from curator.api.batch import Batch, kinds
from curator.api.stage import Stage
from curator.io.files.listing import RUN

CHECKPOINTS = f"{RUN}/checkpoint"  # the folder of all checkpoints, in the run's folder


@dataclass(kw_only=True)
class Checkpoint(Stage):
    """Keep all columns here, in `_run/checkpoint/`: after an edit behind this step, records are read from
    there and nothing before it is done again.

    Adds nothing, and decides nothing of what comes out. A file's bytes are kept with the columns where they
    are needed behind; decoded images, sounds and frames end here, so put it behind the stages that measure
    them. It takes about the disk space of the same rows as Parquet. `keep: false` does as if it were not
    there; what it kept goes when the recipe is run next. The folder may be deleted too: the next edit then
    starts from the input.
    """

    keep: bool = True

    def process(self, batch: Batch) -> Batch:
        return batch


def payloads(lasting: bool) -> frozenset[str]:
    """The payloads of all kinds of batches known here that a checkpoint keeps (`lasting`), or does not."""
    own = [field for kind in kinds() for field in fields(kind) if field.metadata.get("payload")]
    return frozenset(field.name for field in own if field.metadata["lasts"] == lasting)
