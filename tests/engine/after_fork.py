"""Notes what workers import after they were forked. Workers import this module before that, as they would a pack's."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from curator import Stage, stage

FOLDER = "CURATOR_TEST_IMPORTS"  # names the folder to note it in, a file a worker


class Recorder:
    def find_spec(self, name, path=None, target=None):
        with open(f"{os.environ[FOLDER]}/{os.getpid()}", "a", encoding="utf-8") as file:
            file.write(f"{name}\n")


def in_child() -> None:
    if FOLDER in os.environ:
        threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
        Path(os.environ[FOLDER], str(os.getpid())).write_text(f"{threads}\n")
        sys.meta_path.insert(0, Recorder())


os.register_at_fork(after_in_child=in_child)


@dataclass(kw_only=True)
class Locked(Stage):
    """Makes too early what is to be made in `setup`."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()


@stage
def unchanged(batch):
    return batch


@stage(adds={"kind": pa.string(), "rows": pa.int64()})
def by_pandas(batch):
    """What Arrow makes of values of pandas, in a process that forked without it."""
    import pandas as pd

    table = pa.table(pd.DataFrame({"day": pd.to_datetime(["2026-01-02"] * len(batch))}))
    day = type(table.column("day").cast(pa.timestamp("ns"))[0].as_py()).__name__
    null = pa.array(pd.Series([float("nan")])).null_count
    return batch.with_columns({"kind": [f"{day} {null}"] * len(batch), "rows": [table.num_rows] * len(batch)})


@stage(adds={"at": pa.timestamp("ns")})
def stamped(batch):
    return batch.with_columns({"at": pa.array([1_700_000_000_123_456_789] * len(batch), pa.timestamp("ns"))})


@stage(needs={"at"}, adds={"iso": pa.string()})
def in_words(batch):
    return batch.with_columns({"iso": [at.isoformat() for at in batch.rows.column("at").to_pylist()]})
