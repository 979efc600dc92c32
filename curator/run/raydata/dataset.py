"""A phase as a dataset of Ray Data: one `map_batches` with a pool of actors for each group of operators.

Ray Data decides how many actors a pool has, what waits where, and what is done again when an actor or a node
goes; its progress bars and dashboard show it. The driver takes the units as they come through.

The same packages must be installed on every node, and the folders that the run reads and writes must be
reachable from there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.resources import Resources
from curator.engine.events import GO_ON, Report, Stop
from curator.engine.protocol import Restored
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator
from curator.run.raydata.notes import Notes
from curator.run.raydata.work import Work, from_rows, grouped, shared_out, to_row
from curator.run.raydata.worker import Group
from curator.runtime.ray import connect  # which says what to install where Ray is not
from curator.worker.pickling import dumps

try:
    import ray
    import ray.data
    from ray.data import ActorPoolStrategy, DataContext
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise CuratorError(f"Ray Data cannot be imported here ({missing}); install it with: "
                       "pip install 'ray[data]'") from missing

NAME_CHARS = 60
ASK_S = 10.0  # the driver asks this often whether the notes are there
IN_FLIGHT = 2  # rows that an actor has: one that it works on, and one that is on its way to it

__all__ = ["Execution", "connect"]


# -- what runs on the cluster --------------------------------------------------------------------------------


class Actor:
    """What `map_batches` makes once an actor: a group of operators. `spec`: pickled, as a class may lie
    where the driver's `path` leads."""

    def __init__(self, path: Sequence[str], spec: bytes, notes: Any) -> None:
        sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
        pa.set_cpu_count(1)
        pa.set_io_thread_count(2)
        context = ray.get_runtime_context()
        words = [word for word in vars(Notes) if not word.startswith("_")]
        asked: Any = SimpleNamespace(**{word: partial(_ask, getattr(notes, word)) for word in words})
        operators, sidecars, restored = pickle.loads(spec)
        self.group = Group(operators, sidecars, restored, asked, str(context.get_actor_id()),
                           context.get_node_id())

    def __call__(self, rows: pa.Table) -> pa.Table:
        made = []
        for works in from_rows(rows):
            self.group.work(works)
            made.append(to_row(works))
        return pa.concat_tables(made)


def _ask(method: Any, *words: Any) -> Any:
    """What the `Notes` answer an actor."""
    try:
        return ray.get(method.remote(*words))
    except CuratorError as error:  # Ray's class for it has its own text, with a traceback
        raise CuratorError(str(getattr(error, "cause", error))) from None
    except RayTaskError:
        raise
    except RayError:  # the node goes: an error would end the run, and a death has the row done again
        os._exit(1)


def _named(group: Sequence[Operator]) -> type[Actor]:
    """The same, called as the stages are: Ray Data shows the name."""
    steps = [step.name for operator in group for step in operator.steps if not step.implicit]
    return type(" + ".join(steps)[:NAME_CHARS], (Actor,), {})


# -- the pools -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """The actors of a group: what Ray is asked for each, and how many there may be."""

    cpus: float
    gpus: float
    memory_bytes: int
    least: int
    most: int

    @property
    def options(self) -> dict[str, Any]:
        strategy = ActorPoolStrategy(min_size=self.least, max_size=self.most,
                                     max_tasks_in_flight_per_actor=IN_FLIGHT,
                                     max_concurrent_calls_per_actor=1)
        return {"compute": strategy, "num_cpus": self.cpus, "num_gpus": self.gpus or None,
                "memory": self.memory_bytes or None}


def pools_of(groups: Sequence[Sequence[Operator]], nodes: Sequence[Mapping[str, float]], rows: int,
             cores: float | None) -> list[Pool]:
    """One pool a group. All stand side by side: where one actor of each does not fit into the cores of the
    nodes, each gets a share of them.

    Raises:
        CuratorError: there are GPUs, and not as many as one actor of each group needs.
    """
    needs = [group[0].resources for group in groups]
    cpus = cores_of(nodes, cores)
    total = sum(node.get("GPU", 0.0) for node in nodes)
    wanted = sum(_gpus(need) for need in needs)
    if total and wanted > total:
        names = ", ".join(group[0].name for group, need in zip(groups, needs, strict=True) if _gpus(need))
        raise CuratorError(f"{names} need {wanted:g} GPUs at once, and this Ray cluster has {total:g}: all "
                           "stages of Ray Data stand side by side. Run it with --ray, where stages take "
                           "turns, or give them shares (resources: {gpus: 0.5})")
    share = _share([need.cpus for need in needs], [node.get("CPU", 0.0) for node in nodes], cpus)
    spare, spare_gpus = max(0.0, cpus - sum(need.cpus for need in needs)), max(0.0, total - wanted)
    pools = []
    for group, need in zip(groups, needs, strict=True):
        gpus = _gpus(need) if total else 0.0
        more = spare / need.cpus if need.cpus else cpus
        most = 1 + int(min(more, spare_gpus / gpus) if gpus else more)
        most = 1 if group[0].kind == "stateful" else max(1, min(most, rows))
        memory = int(need.memory_gb * 1e9)
        memory = memory if any(node.get("memory", 0.0) >= memory for node in nodes) else 0
        pools.append(Pool(round(need.cpus * share, 4), gpus, memory, most if len(groups) == 1 else 1, most))
    return pools


def cores_of(nodes: Sequence[Mapping[str, float]], cores: float | None) -> float:
    """Those that a run may use."""
    return min(sum(node.get("CPU", 0.0) for node in nodes) or 1.0, inf if cores is None else cores)


def _share(needs: Sequence[float], nodes: Sequence[float], cores: float) -> float:
    """The largest share of what they need that lets them all fit on the nodes, in steps of a hundredth."""
    for share in range(100, 1, -1):
        free = sorted(nodes, reverse=True)
        for need in sorted(needs, reverse=True):
            need *= share / 100
            at = next((i for i, cpus in enumerate(free) if cpus >= need), None)
            if at is None:
                break
            free[at] -= need
        else:
            if sum(needs) * share <= cores * 100:
                return share / 100
    return 0.01


def _gpus(need: Resources) -> float:
    """GPUs of one actor. How large they are Ray does not know, so who asks for memory alone gets one."""
    return need.gpus or float(need.gpu_memory_gb > 0)


# -- a phase -------------------------------------------------------------------------------------------------


class Execution:
    """A phase at work. `works`: the units to do; `short_circuits`: stateful operators without which nothing
    need be read; `restored`: what the ledger has of stateful ones.

    Raises:
        CuratorError: the cluster cannot give what the stages need.
    """

    def __init__(self, operators: Sequence[Operator], works: Sequence[Work], short_circuits: frozenset[int],
                 sidecars: Folder, restored: Mapping[int, Sequence[Restored]], cores: float | None) -> None:
        groups, nodes = grouped(operators), [node["Resources"] for node in ray.nodes() if node["Alive"]]
        rows = [to_row(some) for some in shared_out(works, max(1, int(cores_of(nodes, cores))))]
        pools = pools_of(groups, nodes, len(rows), cores)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        notes = ray.remote(Notes).options(num_cpus=0, max_restarts=0, scheduling_strategy=here)
        self.notes: Any = notes.remote(short_circuits)  # Ray's handle, whose methods have a `remote`
        path = [p for p in sys.path if p]
        with DataContext.current(DataContext.get_current().copy()):
            dataset: ray.data.Dataset = ray.data.from_arrow(rows)
            for group, pool in zip(groups, pools, strict=True):
                spec = dumps((group, sidecars, {o.index: restored.get(o.index, ()) for o in group}))
                dataset = dataset.map_batches(_named(group), fn_constructor_args=(path, spec, self.notes),
                                              batch_size=1, batch_format="pyarrow", zero_copy_batch=True,
                                              **pool.options)
        self.inbox: SimpleQueue[Work | Stop | None] = SimpleQueue()
        self.ended, self.ask_at = False, time.monotonic() + ASK_S
        self.needs, self.lacks = sum(pool.cpus * pool.least for pool in pools), False
        self.asked: list[Any] = []  # whether the notes are there; at most one question at a time
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._consume, args=(dataset,), name="ray data", daemon=True)
        self.thread.start()

    def _consume(self, dataset: Any) -> None:
        try:
            batches = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
            for table in batches:
                for works in from_rows(table):
                    for work in works:
                        self.inbox.put(work)
                if self.closing.is_set():
                    break
            del batches  # which ends the execution
        except RayError as error:
            self.inbox.put(Stop("lost", f"Ray Data has ended: {_cause(error)}; {GO_ON}"))
        except Exception as error:
            self.inbox.put(Stop("broken", f"Ray Data has failed: {type(error).__name__}: {error}; {GO_ON}"))
        self.inbox.put(None)

    def wait(self, timeout: float) -> list[Work | Stop | Report]:
        """What has come through since; waits for the first. `ended`, when there is no more."""
        found: list[Work | Stop | Report | None] = []
        if self.asked and ray.wait([self.asked[0]], timeout=0)[0]:  # without notes no actor can work
            try:
                ray.get(self.asked.pop())
            except RayError as error:
                found.append(Stop("lost",
                                  f"the actor with the run's notes is gone: {_cause(error)}; {GO_ON}"))
        if not self.asked and time.monotonic() > self.ask_at:
            self.asked = [self.notes.skips.remote(())]
            self.ask_at = time.monotonic() + ASK_S
            found += self._lacks()
        with contextlib.suppress(Empty):
            found.append(self.inbox.get(timeout=timeout))
            while True:
                found.append(self.inbox.get_nowait())
        self.ended = self.ended or None in found
        return [one for one in found if one is not None]

    def _lacks(self) -> list[Report]:
        """Nodes have gone, and Ray Data, which then waits for others, does not say so."""
        cores = cores_of([node["Resources"] for node in ray.nodes() if node["Alive"]], None)
        before, self.lacks = self.lacks, cores < self.needs - 0.01
        text = (f"waits for a node: the stages need {self.needs:g} cores side by side, and the Ray cluster "
                f"has {cores:g}")
        return [Report("waiting", text)] if self.lacks and not before else []

    def stop(self) -> None:
        """Units that are not begun yet come through as they are."""
        self.closing.set()
        with contextlib.suppress(RayError):
            self.notes.stop.remote()

    def close(self, patience_s: float) -> None:
        self.stop()
        self.thread.join(patience_s)
        with contextlib.suppress(RayError):
            ray.kill(self.notes)


def _cause(error: BaseException) -> str:
    """What Ray's long text is about: its first line that names an error, which is the innermost."""
    lines = str(error).strip().splitlines()
    named = (line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line))
    return next(named, lines[0] if lines else repr(error))

