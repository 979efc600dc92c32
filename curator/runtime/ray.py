"""Workers on a Ray cluster: one actor a node, the node's agent, which runs that node's worker processes.

An agent leases from Ray the cores, GPUs and memory that the run uses there, so other jobs run beside this
one. The driver sends an agent many requests in one call, and has one call waiting at each of them that
answers as soon as there is something to tell. All answers come into one inbox, which `wait` blocks on.
Batches stay in the shared memory of their node; one that is needed elsewhere goes from agent to agent through
Ray's object store. Agents belong to the driver: when it dies, Ray ends them, and their workers and shared
memory go with them. A driver that is only slow, or stopped for a while, loses nothing: what agents have to
tell waits for it.

The same packages must be installed on every node, and the folders that the run reads and writes must be
reachable from there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from curator.api.errors import CuratorError
from curator.api.format import plural
from curator.api.resources import Node
from curator.engine import events as ev
from curator.engine import protocol
from curator.machine.detect import this_machine
from curator.runtime.agent import Agent
from curator.runtime.workers import Job, Workers
from curator.worker.imports import modules_of
from curator.worker.pickling import dumps
from curator.worker.processes import FORK_SERVER
from curator.worker.store import Store

try:
    import ray
except ImportError as missing:
    what = ("Ray is not installed here" if missing.name == "ray"
            else f"Ray cannot be imported here ({missing})")
    raise CuratorError(f"{what}; install it with: pip install 'curator-core[ray]'") from missing
try:
    # no public function tells what is free on each node
    from ray._private.state import available_resources_per_node
    from ray.autoscaler.sdk import request_resources
    from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayError
    from ray.util.metrics import Gauge
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as missing:
    raise CuratorError("Curator does not know its way about Ray "
                       f"{getattr(ray, '__version__', 'of this version')} ({missing}); "
                       "install Ray 2.60, on all nodes: pip install 'ray==2.60.*'") from missing

HEAR_S = 5.0  # an agent with nothing to tell says so this often
WATCH_S = 2.0  # the list of nodes is read this often
# a cluster that gives no list of nodes for so long is gone; its head may be started again meanwhile
SILENT_S = 90.0
READS = 4  # batches that an agent gives to others at a time
START_S = 60.0  # for the agents of the nodes that are there at the start; who is later joins later
# so often is the list of nodes read until Ray must have started an agent, else others took what was free
GRANT_LOOKS = 15
# cores that were free on a node of ours for so many looks are leased too: what Ray says is a second old
GROW_LOOKS = 3
RESTARTS = 4  # of an agent that dies on a node that lives
BACKOFF_S = 2.0  # before the first of them; twice as long before each further one
FULL_TRIES = 5  # of a batch for which the object store has no room
CLOSE_S = 25.0
STORE_BYTES = 128 << 20  # of a cluster of our own, which has one node, so that nothing travels


# -- on each node --------------------------------------------------------------------------------------------


@ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"do": 1, "hear": 1, "read": READS})
class NodeAgent:
    """The actor around an `Agent`."""

    def __init__(self, run: str, lease: Lease, modules: Sequence[str], path: Sequence[str]) -> None:
        self.run, self.lease = run, lease
        sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
        if os.environ.get("OMP_NUM_THREADS") == str(int(lease.cpus)):
            del os.environ["OMP_NUM_THREADS"]  # Ray's: it is meant for one process with all these cores
        self.peers: dict[int, Any] = {}
        self.agent = Agent(modules, self._fetch, lambda: os._exit(0))

    def __repr__(self) -> str:
        return f"curator {self.run}, node {self.lease.number}"

    def info(self) -> tuple[str, Node]:
        """How others reach this node, and what of it is ours."""
        lease, machine = self.lease, this_machine()
        share = min(1.0, lease.cpus / machine.cpus)
        node = replace(machine, name=lease.name, cpus=lease.cpus, gpus=lease.gpus,
                       memory_bytes=lease.memory_bytes or int(machine.memory_bytes * share),
                       budget_bytes=max(64 << 20, int(machine.budget_bytes * share)))
        return ray.util.get_node_ip_address(), node

    @ray.method(concurrency_group="do", num_returns=0)
    def do(self, peers: Mapping[int, Any], requests: bytes) -> None:
        self.peers.update(peers)
        self.agent.do(pickle.loads(requests))

    @ray.method(concurrency_group="do")  # behind what was asked before
    def close(self) -> None:
        self.agent.close()

    @ray.method(concurrency_group="hear")
    def hear(self) -> bytes:
        return dumps(self.agent.hear(HEAR_S))

    @ray.method(concurrency_group="read")
    def read(self, path: str) -> Any:
        return Store.read(path)

    def _fetch(self, node: int, path: str) -> Any:
        for attempt in range(FULL_TRIES):
            try:
                return ray.get(self.peers[node].read.remote(path))
            except (ObjectStoreFullError, OutOfDiskError):
                if attempt == FULL_TRIES - 1:
                    raise
                time.sleep(2.0 ** attempt)
        raise AssertionError


# -- what to lease -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What an agent asks of Ray. `memory_bytes` 0: the run states no need of memory."""

    number: int
    node_id: str
    name: str = ""
    cpus: float = 1.0
    gpus: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class Wants:
    """What a run takes of a cluster: up to `cores` in all (None for as many as there are), GPUs and memory if
    a stage asks."""

    cores: float | None
    gpus: bool
    memory: bool

    @classmethod
    def of(cls, job: Job, cores: float | None) -> Wants:
        needs = [o.resources for o in job.operators]
        return cls(cores, any(n.gpus or n.gpu_memory_gb for n in needs), any(n.memory_gb for n in needs))

    def lease(self, free: Mapping[str, float], taken: float, number: int, node_id: str,
              name: str) -> Lease | None:
        """All that is free on a node, within what the run may still take; None if that is less than a
        core."""
        cpus = int(min(free.get("CPU", 0.0), float("inf") if self.cores is None else self.cores - taken))
        if cpus < 1:
            return None
        return Lease(number=number, node_id=node_id, name=name, cpus=cpus,
                     gpus=int(free.get("GPU", 0)) if self.gpus else 0,
                     memory_bytes=int(free.get("memory", 0)) if self.memory else 0)


def check_gpus(job: Job, nodes: Sequence[Mapping[str, Any]]) -> None:
    """A cluster with GPUs must have a node with as many as a worker needs. One without any is taken as it is,
    like a machine without any: a stage that can do without then does.

    Raises:
        CuratorError: naming the stage and the largest node.
    """
    largest = max(nodes, key=lambda n: n["Resources"].get("GPU", 0), default=None)
    most = largest["Resources"].get("GPU", 0) if largest else 0
    total = sum(n["Resources"].get("GPU", 0) for n in nodes)
    for operator in job.operators:
        need = operator.resources
        if most and need.gpus > (total if need.gang else most):
            has = f"its {len(nodes)} nodes together have {total:g}" if need.gang else \
                f"its largest node, {largest['NodeName']}, has {most:g}"
            raise CuratorError(f"{operator.name} needs {need.gpus:g} GPUs, and this Ray cluster can never "
                               f"give them: {has}")


# -- the driver ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Member:
    """An agent as the driver knows it. `node`: None until it is up. `known`: nodes whose agents it was told
    of."""

    lease: Lease
    actor: Any
    looks: int = 0  # since it was asked for; not seconds, in which the driver itself may have been stopped
    node: Node | None = None
    address: str = ""
    outbox: list[protocol.Request] = field(default_factory=list)
    known: set[int] = field(default_factory=set)


class RayRuntime:
    """Workers on the nodes of a Ray cluster.

    `address`: of the cluster; "local" for one of our own on this machine. `cores`: to use in all, None for
    what is free. `tell`: (kind, text) for the log of the run. `nodes`: what is leased, by node number; those
    who come later are told as events.

    Raises:
        CuratorError: the cluster cannot be reached, or has no node that could run a stage.
    """

    gauge = Gauge

    def __init__(self, job: Job, address: str = "local", cores: float | None = None,
                 tell: Callable[[str, str], None] = lambda kind, text: None) -> None:
        self.workers = Workers(job, lambda node: self.members[node].address if node in self.members else "")
        self.job, self.tell, self.wants = job, tell, Wants.of(job, cores)
        self.run = secrets.token_hex(3)
        self.members: dict[int, Member] = {}
        # what is to be done with each answer that came
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.events: list[ev.Event] = []  # that `wait` has not told yet
        self.deaths: dict[str, list[float]] = {}  # of our agents, when, by node
        self.last_death = ""
        self.spare: dict[str, int] = {}  # for how many looks a core was free, by node that is ours
        self.closing = threading.Event()
        self.next_number = 0
        self.watcher = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self.has = ""  # what the cluster has, in words
        self.checked = False  # whether the cluster can ever give what the stages need
        self.disconnect = connect(address, cores)
        if cores is not None:
            request_resources(num_cpus=int(cores))  # where the cluster starts nodes by itself
        try:
            self._gather()
        except BaseException:
            self.close()
            raise

    @property
    def nodes(self) -> dict[int, Node]:
        return {number: m.node for number, m in self.members.items() if m.node is not None}

    def _gather(self) -> None:
        """Start an agent on each node where something is free; returns when those are up, or there is at
        least one."""
        self.watcher.start()
        until, told = time.monotonic() + START_S, False
        while not self.nodes or (len(self.nodes) < len(self.members) and time.monotonic() < until):
            self.inbox.get()()
            for stop in (e for e in self.events if isinstance(e, ev.Stop)):
                raise CuratorError(stop.message)
            if not self.members and self.last_death:
                raise CuratorError(f"no worker can be started on this Ray cluster: {self.last_death}")
            if not self.members and not told:
                told = True
                self.tell("waiting", f"waits for a free core: {self.has}")
        self.events.clear()  # the run begins with `nodes`
        if len(self.nodes) > 1 and self.job.sidecars.is_local:
            self.tell("shared_folder",
                      f"the run has {len(self.nodes)} nodes, and all of them must see the folder of "
                                       f"{self.job.sidecars.uri}")

    # -- the runtime ----------------------------------------------------------------------------------------

    def execute(self, action: ev.Action) -> None:
        """Do what the scheduler asks; it leaves with the next `wait`."""
        self.workers.do(action)

    def wait(self, timeout: float | None) -> list[ev.Event]:
        """What has happened since; waits for the first event, at most `timeout` seconds."""
        self._send()
        with contextlib.suppress(Empty):
            self.inbox.get(timeout=timeout)()
            while True:
                self.inbox.get_nowait()()
        self._send()
        events = list(self.events)
        self.events.clear()
        return events

    def close(self) -> None:
        """End every worker and agent, and leave the cluster; returns when they are gone."""
        self.closing.set()
        if ray.is_initialized():
            with contextlib.suppress(RayError):  # the cluster may be the reason why this run ends
                if self.wants.cores is not None:
                    request_resources(num_cpus=0)
                self._send()
                ending = [m.actor.close.remote() for m in self.members.values() if m.node is not None]
                if ending:
                    ray.wait(ending, num_returns=len(ending), timeout=CLOSE_S)
            for member in self.members.values():
                _kill(member.actor)
        self.members.clear()
        if self.watcher.is_alive():
            self.watcher.join(CLOSE_S)
        self.disconnect()

    def _send(self) -> None:
        """All requests so far, in one call an agent."""
        for node, request in self.workers.take_requests():
            if node in self.members:  # else it is gone, and what was there too
                self.members[node].outbox.append(request)
        for member in self.members.values():
            if member.outbox:
                needed = {n for request in member.outbox if isinstance(request, protocol.Send)
                          for n in request.far.values()}
                new = {n: self.members[n].actor for n in needed - member.known if n in self.members}
                member.known |= new.keys()
                member.actor.do.remote(new, dumps(member.outbox))
                member.outbox = []

    # -- the inbox ------------------------------------------------------------------------------------------

    def _ask(self, ref: Any, then: Callable[[Member, Future], None], member: Member) -> None:
        """Call `then` with the agent and what it answered."""
        ref.future().add_done_callback(lambda done: self.inbox.put(partial(then, member, done)))

    def _hear(self, member: Member, answer: Future) -> None:
        said = self._result(member, answer)
        if said is None:
            return
        self._ask(member.actor.hear.remote(), self._hear, member)
        for process, message in pickle.loads(said):
            if process == FORK_SERVER:
                self._down(member, "the process that holds its workers has died")
                return
            self.events += self.workers.hear(member.lease.number, process, message)

    def _result(self, member: Member, answer: Future) -> Any:
        """What an agent answered; None if it is gone."""
        if member.lease.number not in self.members:
            return None
        try:
            return answer.result()
        except RayActorError as error:
            self._down(member, str(error).strip().splitlines()[-1])
        except RayError as error:
            self._down(member, f"its agent failed: {error}")
        return None

    def _up(self, member: Member, answer: Future) -> None:
        told = self._result(member, answer)
        if told is not None:
            member.address, member.node = told
            self._ask(member.actor.hear.remote(), self._hear, member)
            self.events.append(ev.NodeUp(member.lease.number, member.node))

    def _down(self, member: Member, reason: str) -> None:
        lease = member.lease
        del self.members[lease.number]
        _kill(member.actor)
        self.deaths.setdefault(lease.node_id, []).append(time.monotonic())
        self.last_death = f"{lease.name}: {reason}"
        self.workers.lose_node(lease.number)
        if member.node is not None:
            self.events.append(ev.NodeDown(lease.number, self.last_death))

    # -- the nodes ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """In a thread of its own: what the cluster has, every few seconds. One answer that fails to come is
        no reason to stop."""
        silent_since = None
        while not self.closing.is_set():
            asked_at = time.monotonic()
            try:
                self.inbox.put(partial(self._look_around, ray.nodes(), available_resources_per_node()))
                silent_since = None
            except Exception as error:
                if self.closing.is_set():
                    return
                if silent_since is None:
                    silent_since = asked_at
                    self.inbox.put(partial(self.tell, "cluster silent",
                                           f"the Ray cluster does not tell its nodes ({error}); asking "
                                           "again"))
                elif time.monotonic() - silent_since > SILENT_S:
                    self.inbox.put(partial(self.events.append, ev.Stop(
                        "interrupted", f"the Ray cluster does not answer any more ({error}); what was "
                                       "committed is safe: "
                        "run the same command again")))
                    return
            self.closing.wait(WATCH_S)

    def _look_around(self, nodes: list[dict], free: Mapping[str, Mapping[str, float]]) -> None:
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        if not self.checked:
            check_gpus(self.job, list(alive.values()))
            self.checked = True
        total = sum(node["Resources"].get("CPU", 0) for node in alive.values())
        self.has = (f"the Ray cluster has {plural(int(total), 'core')} on {plural(len(alive), 'node')}, "
                    "none free")
        now = time.monotonic()
        for member in list(self.members.values()):
            member.looks += 1
            if member.lease.node_id not in alive:
                self._down(member, "the node is gone")
            elif member.node is None and member.looks > GRANT_LOOKS:
                _kill(member.actor)  # it is asked again, for what is free then
                del self.members[member.lease.number]
        ours = {m.lease.node_id for m in self.members.values()}
        # The largest first: the fewer nodes, the less travels between them.
        for node_id, node in sorted(alive.items(), key=lambda n: (-free.get(n[0], {}).get("CPU", 0), n[0])):
            if self._has_room(node_id, ours, free) and self._may_start(node_id, now):
                taken = sum(m.lease.cpus for m in self.members.values())
                lease = self.wants.lease(free.get(node_id, {}), taken, self.next_number, node_id,
                                         node["NodeName"])
                if lease is not None:
                    self.next_number += 1
                    self._start(lease)

    def _has_room(self, node_id: str, ours: Collection[str], free: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether to lease on a node what is free there. Where we have something, another agent takes what
        others have left, once that has been free for some looks and all that we asked for there is ours."""
        if node_id not in ours:
            return True
        mine = [m for m in self.members.values() if m.lease.node_id == node_id]
        idle = free.get(node_id, {}).get("CPU", 0) >= 1 and all(m.node is not None for m in mine)
        self.spare[node_id] = self.spare.get(node_id, 0) + 1 if idle else 0
        return self.spare[node_id] >= GROW_LOOKS

    def _may_start(self, node_id: str, now: float) -> bool:
        deaths = self.deaths.get(node_id, [])
        return not deaths or (len(deaths) <= RESTARTS
                              and now - deaths[-1] > BACKOFF_S * 2 ** (len(deaths) - 1))

    def _start(self, lease: Lease) -> None:
        try:
            actor = NodeAgent.options(
                name=f"curator-{self.run}-{lease.number}", num_cpus=lease.cpus, num_gpus=lease.gpus,
                memory=lease.memory_bytes or None,
                scheduling_strategy=NodeAffinitySchedulingStrategy(lease.node_id, soft=False),
            ).remote(self.run, lease, modules_of(self.job.operators), [p for p in sys.path if p])
        except RayError as error:  # it is tried again when the nodes are looked at next
            self.tell("cluster silent", f"Ray starts no agent on {lease.name} ({error}); trying again")
            return
        member = Member(lease, actor)
        self.members[lease.number] = member
        self.spare.pop(lease.node_id, None)
        self._ask(actor.info.remote(), self._up, member)


def _kill(actor: Any) -> None:
    """End an agent; one that is gone, or whose cluster is, needs no end."""
    with contextlib.suppress(RayError):
        ray.kill(actor)


# -- connecting ----------------------------------------------------------------------------------------------


def connect(address: str, cores: float | None, store_bytes: int = STORE_BYTES) -> Callable[[], None]:
    """Connect this process to a cluster, if it is not yet; gives how to leave it. `store_bytes`: the object
    store of a cluster of our own.

    Raises:
        CuratorError: it cannot be reached, or runs another version of Ray or Python.
    """
    if ray.is_initialized():
        return lambda: None
    if address == "local":
        return _own_cluster(cores, store_bytes)
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        raise CuratorError(f"the Ray cluster at {address} cannot be used: {error}") from error
    return ray.shutdown


def _own_cluster(cores: float | None, store_bytes: int) -> Callable[[], None]:
    machine = this_machine(cores)
    # The paths of sockets below it must stay within 107 characters.
    parent = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="curator_ray_", dir=parent if len(parent) < 24 else "/tmp")

    def leave() -> None:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)

    try:
        ray.init(address="local", num_cpus=max(1, int(machine.cpus)), num_gpus=machine.gpus,
                 include_dashboard=False,
                 log_to_driver=False, logging_level="ERROR", object_store_memory=store_bytes,
                 _temp_dir=folder)
    except BaseException as error:
        leave()
        if isinstance(error, (ConnectionError, RuntimeError, ValueError, RayError, OSError)):
            raise CuratorError(f"Ray cannot be started on this machine: {error}") from error
        raise
    return leave


def _check_reachable(address: str) -> None:
    """Ray itself tries for a minute."""
    if address.startswith("ray://"):
        raise CuratorError(f"{address} is for Ray's client, through which a run would be slow; start the run "
                           "on the cluster "
                           "(ray job submit -- curator run ...), or give the address of the cluster itself "
                           "(host:6379)")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        if address != "auto":
            raise CuratorError(f"{address!r} is not the address of a Ray cluster; give host:port, auto or "
                               "local")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except OSError as error:
        raise CuratorError(f"there is no Ray cluster at {address}: {error.strerror or error}") from error
