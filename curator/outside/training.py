"""A pipeline as a dataset of PyTorch: read and worked on by the processes of a `DataLoader`."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.outside.by_unit import ByUnit, values
from curator.pipeline.graph import Graph
from curator.worker.pickling import dumps


class PipelineDataset(IterableDataset):
    """Records of a pipeline as dicts. See `Pipeline.to_torch`.

    The units of the source (files, ranges, row groups) are dealt to the workers of all ranks in turn, so that
    each record is given once an epoch. `state_dict` says how far this process is: units that are done, and
    rows of the next one.
    """

    def __init__(self, pipeline: Graph, columns: list[str] | None = None, shuffle: bool = False,
                 seed: int = 0, rank: int | None = None, world_size: int | None = None) -> None:
        if isinstance(columns, str) or columns == []:
            raise ValueError(f"columns must be a list of names, got {columns!r}")
        self.rank, self.world_size = _place(rank, world_size)
        self.pipeline, self.columns, self.shuffle, self.seed = pipeline, columns, shuffle, seed
        self._made: ByUnit | None = None
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # workers that stay see it change
        self._resumed: dict[str, Any] | None = None
        self._now: dict[str, Any] | None = None
        self.units = len(self._work.units)  # what is wrong with the pipeline is said here, not by a worker

    @property
    def _work(self) -> ByUnit:
        if self._made is None:
            self._made = ByUnit(self.pipeline, self.columns)
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None, "pipeline": dumps(self.pipeline)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, pipeline=pickle.loads(state["pipeline"]))

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next loop, which says how it is shuffled; call it before each."""
        self._epoch.fill_(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this process is; of the next loop, if none is begun."""
        return dict(self._now or self._resumed or self._begin())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next loop goes on there.

        Raises:
            CuratorError: the pipeline, its input or the way of dealing it has changed since.
        """
        now = self._begin()
        for key, what in (("digest", "the pipeline or its input has"), ("shuffle", "shuffle or seed has"),
                          ("shard", "the number of ranks or workers has")):
            if state.get(key) != now[key]:
                raise CuratorError(f"this state is of another dataset: {what} changed since, from "
                                   f"{state.get(key)} to {now[key]}. Begin anew, or load it where all is as "
                                   "it was")
        self._resumed, self._now = dict(state), None
        self.set_epoch(state["epoch"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        now = self._now = self._resumed or self._begin()
        self._resumed = None
        shard, shards = now["shard"]
        work, epoch = self._work, now["epoch"]
        order = np.arange(len(work.units))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(order)
        if len(order) < shards and shard == 0:
            warnings.warn(f"{len(order)} units for {shards} processes: {shards - len(order)} of them get no "
                          "record; more files, or a smaller unit_bytes of the reader, make more units",
                          stacklevel=2)
        mine = order[shard::shards]
        try:
            for number in mine[now["units"]:]:
                skip = now["rows"]
                for row in self._rows(int(number), epoch, skip):
                    now["rows"] += 1
                    yield row
                now.update(units=now["units"] + 1, rows=0)
        finally:
            work.close()

    def _rows(self, unit: int, epoch: int, skip: int) -> Iterator[dict[str, Any]]:
        batches: Iterator[Batch] = self._work.rows(unit)
        if self.shuffle:
            whole = list(batches)
            if not whole:
                return
            one = Batch.concat(whole)
            batches = iter([one.take(np.random.default_rng([self.seed, epoch, unit]).permutation(len(one)))])
        for batch in batches:
            if skip >= len(batch):
                skip -= len(batch)
                continue
            yield from values(batch.slice(skip, len(batch)), self.columns)
            skip = 0

    def _begin(self) -> dict[str, Any]:
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        return {"digest": self._work.digest, "epoch": int(self._epoch), "units": 0, "rows": 0,
                "shuffle": [self.shuffle, self.seed],
                "shard": [self.rank * workers + worker, self.world_size * workers]}


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This rank and how many there are: as said, as torch.distributed knows, or as torchrun has it."""
    if (rank is None) != (world_size is None):
        raise ValueError("say both rank and world_size, or none of them")
    if rank is None or world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be at least 0 and below world_size = {world_size}, got {rank}")
    return rank, world_size
