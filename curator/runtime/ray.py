"""Workers on a Ray cluster: one actor a node, the node's agent, which runs that node's worker processes.

An agent leases from Ray the cores, GPUs and memory that the run uses there, so other jobs run beside this
one. Its own are the cores that one worker needs; the others are pieces beside it, which come and go while it
works (`leases` has the rule). The driver sends an agent many requests in one call, and has one call waiting
at each of them that answers as soon as there is something to tell. All answers come into one inbox, which
`wait` blocks on. Batches stay in the shared memory of their node; one that is needed elsewhere goes from
agent to agent through Ray's object store. Agents belong to the driver: when it dies, Ray ends them, and their
workers and shared memory go with them. A driver that is only slow, or stopped for a while, loses nothing:
what agents have to tell waits for it.

The same packages must be installed on every node, and the folders that the run reads and writes must be
reachable from there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from curator.api.errors import CuratorError
from curator.api.format import plural
from curator.api.resources import Node
from curator.engine import events as ev
from curator.engine import protocol
from curator.machine.detect import this_machine
from curator.runtime.agent import Agent
from curator.runtime.leases import (
    IDLE_LOOKS,
    Claim,
    Heard,
    Lease,
    Member,
    Piece,
    Wants,
    asked_for,
    check_gpus,
    halves,
    may_keep,
    to_give,
)
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
    # no public function tells what is free on each node, or what waits
    from ray._private.state import available_resources_per_node
    from ray.autoscaler.sdk import request_resources
    from ray.autoscaler.v2.sdk import get_cluster_resource_state
    from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayError
    from ray.experimental import internal_kv
    from ray.util.metrics import Gauge
    from ray.util.placement_group import placement_group, remove_placement_group
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
# cores that were free on a node of ours for so many looks are leased too, and what others wait for so long
# they get: what Ray says is a second old
GROW_LOOKS = 3
CLAIMS = b"curator"  # where in the cluster's store of words runs say what they have
RESTARTS = 4  # of an agent that dies on a node that lives
BACKOFF_S = 2.0  # before the first of them; twice as long before each further one
FULL_TRIES = 5  # of a batch for which the object store has no room
CLOSE_S = 25.0
STORE_BYTES = 128 << 20  # of a cluster of our own, which has one node, so that nothing travels


# -- on each node --------------------------------------------------------------------------------------------


GROUPS: Any = {"concurrency_groups": {"do": 1, "hear": 1, "read": READS}}  # which Ray's types do not know


@ray.remote(max_restarts=0, max_task_retries=0, **GROUPS)
class NodeAgent:
    """The actor around an `Agent`."""

    def __init__(self, run: str, lease: Lease, modules: Sequence[str], path: Sequence[str]) -> None:
        self.run, self.lease = run, lease
        sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
        if os.environ.get("OMP_NUM_THREADS") == str(lease.base):
            del os.environ["OMP_NUM_THREADS"]  # Ray's: it is meant for one process with all these cores
        self.peers: dict[int, Any] = {}
        self.agent = Agent(modules, self._fetch, lambda: os._exit(0))

    def __repr__(self) -> str:
        return f"curator {self.run}, node {self.lease.number}"

    def info(self) -> tuple[str, Node]:
        """How others reach this node, and what it is."""
        return ray.util.get_node_ip_address(), this_machine()

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


# -- the driver ----------------------------------------------------------------------------------------------


class RayRuntime:
    """Workers on the nodes of the Ray cluster that this process is connected to.

    `cores`: to use in all, None for what is free. `tell`: (kind, text) for the log of the run. `nodes`: what
    is leased, by node number; those who come later are told as events.

    Raises:
        CuratorError: the cluster has no node that could run a stage.
    """

    gauge = Gauge

    def __init__(self, job: Job, cores: float | None,
                 tell: Callable[[ev.ReportKind, str], None] = lambda kind, text: None) -> None:
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
        self.claim, self.heard = Claim(0, True), Heard()
        self.asking = 0  # for how many looks strangers wait for cores
        self.strangers: deque[float] = deque(maxlen=IDLE_LOOKS)  # cores that are neither free nor a run's
        self.closing = threading.Event()
        self.next_number = 0
        self.watcher = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self.has = ""  # what the cluster has, in words
        self.checked = False  # whether the cluster can ever give what the stages need
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

    # -- the runtime ----------------------------------------------------------------------------------------

    def execute(self, action: ev.RuntimeAction) -> None:
        if isinstance(action, ev.CoresUsed):
            self._used(action)
        else:
            self.workers.do(action)

    def wait(self, timeout: float | None) -> list[ev.Event]:
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
        """End every worker and agent; returns when they are gone."""
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
                _end(member)
        self.members.clear()
        if self.watcher.is_alive():
            self.watcher.join(CLOSE_S)

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
            member.address, member.machine = told
            member.node = member.lease.node(member.machine, member.cores)
            self._ask(member.actor.hear.remote(), self._hear, member)
            self.events.append(ev.NodeUp(member.lease.number, member.node))
            if len(self.nodes) == 2 and self.job.sidecars.is_local:
                self.tell("shared_folder", "the run has several nodes, and all of them must see the folder "
                                           f"of {self.job.sidecars.uri}")

    def _down(self, member: Member, reason: str) -> None:
        lease = member.lease
        del self.members[lease.number]
        _end(member)
        self.deaths.setdefault(lease.node_id, []).append(time.monotonic())
        self.last_death = f"{lease.name}: {reason}"
        self.workers.lose_node(lease.number)
        if member.node is not None:
            self.events.append(ev.NodeDown(lease.number, self.last_death))

    # -- the nodes ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """In a thread of its own: what the cluster has, every few seconds, also after a failed answer."""
        silent_since, me = None, f"{self.run}-{os.getpid()}".encode()
        while not self.closing.is_set():
            asked_at = time.monotonic()
            try:
                words = json.dumps([self.claim.has, self.claim.wants, asked_at]).encode()
                internal_kv._internal_kv_put(me, words, overwrite=True, namespace=CLAIMS)
                said = {name: internal_kv._internal_kv_get(name, namespace=CLAIMS) or b"[0, false]"
                        for name in internal_kv._internal_kv_list(b"", namespace=CLAIMS) if name != me}
                for name in self.heard.dead:  # one that lives after all says it again
                    internal_kv._internal_kv_del(name, namespace=CLAIMS)
                state = get_cluster_resource_state(internal_kv.internal_kv_get_gcs_client())
                requests = [(dict(r.request.resources_bundle), r.count)
                            for r in state.pending_resource_requests]
                self.inbox.put(partial(self._look_around, ray.nodes(), available_resources_per_node(), said,
                                       requests))
                silent_since = None
            except Exception as error:
                if self.closing.is_set():
                    return
                if silent_since is None:
                    silent_since = asked_at
                    text = f"the Ray cluster does not tell its nodes ({error}); asking again"
                    self.inbox.put(partial(self.tell, "cluster_silent", text))
                elif time.monotonic() - silent_since > SILENT_S:
                    text = f"the Ray cluster does not answer any more ({error}); {ev.GO_ON}"
                    self.inbox.put(partial(self.events.append, ev.Stop("interrupted", text)))
                    return
            self.closing.wait(WATCH_S)
        with contextlib.suppress(Exception):  # the cluster may be the reason why this run ends
            internal_kv._internal_kv_del(me, namespace=CLAIMS)

    def _look_around(self, nodes: list[dict], free: Mapping[str, Mapping[str, float]],
                     said: Mapping[bytes, bytes], requests: Sequence[tuple[dict[str, float], int]]) -> None:
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
                _end(member)  # it is asked again, for what is free then
                del self.members[member.lease.number]
            for piece in [p for p in member.pieces if not p.granted]:
                piece.looks += 1
                if piece.looks > GROW_LOOKS:  # others took what was free
                    self._release(member, piece)
        room = self._share(total, sum(free.get(n, {}).get("CPU", 0) for n in alive), self.heard.others(said),
                           asked_for(requests, [n["Resources"] for n in alive.values()]))
        # The largest first: the fewer nodes, the less travels between them.
        for node_id, node in sorted(alive.items(), key=lambda n: (-free.get(n[0], {}).get("CPU", 0), n[0])):
            lease = self.wants.lease(free.get(node_id, {}), room, self.next_number, node_id, node["NodeName"])
            mine = [m for m in self.members.values() if m.lease.node_id == node_id]
            if lease is not None and self._takes(lease, mine) and self._may_start(node_id, now):
                room -= lease.cpus
                if mine and not lease.gpus:
                    self._grow(mine[0], lease.cpus)
                else:
                    self.next_number += 1
                    self._start(lease)
            elif lease is None:
                self.spare.pop(node_id, None)

    def _takes(self, lease: Lease, mine: Sequence[Member]) -> bool:
        """Whether to lease on a node what is free there. Where we have something, once it has been free for
        some looks, all that we asked for there is ours, and we use all that we have."""
        settled = all(m.node is not None and all(p.granted for p in m.pieces) for m in mine)
        looks = self.spare.get(lease.node_id, 0) + 1 if settled and (self.claim.wants or lease.gpus) else 0
        self.spare[lease.node_id] = looks
        return not mine or looks >= GROW_LOOKS

    # -- beside other runs ----------------------------------------------------------------------------------

    def _share(self, total: float, free: float, others: Sequence[Claim], asked: float) -> float:
        """Give back what others should have; gives how many cores we may take."""
        up = [m for m in self.members.values() if m.node is not None]
        has = sum(m.held for m in self.members.values())
        most = inf if self.wants.cores is None else self.wants.cores
        # calls of several cores use all that they can, if what is left has no room for one more
        full = all(max(m.used, default=inf) >= max(m.lease.base, m.cores - m.lease.base + 1)
                   for m in self.members.values())
        self.claim = Claim(has, has < most and full)
        self.strangers.append(total - free - has - sum(other.has for other in others))
        self.asking = self.asking + 1 if asked > free else 0
        asked = asked - free if self.asking >= GROW_LOOKS else 0.0
        keep = may_keep(self.claim, others, total, max(0.0, min(self.strangers)), asked)
        if asked or any(other.wants for other in others):
            self._give_back(up, keep, inf if any(other.wants for other in others) else asked)
        for member in up:  # cores that leave may be in use still, when nobody waits for them any more
            if others or asked or (free >= 1 and has < most) or member.held > member.cores:
                self._resize(member)
        return min(most, keep) - has

    def _give_back(self, up: Sequence[Member], keep: float, wanted: float) -> None:
        """Give back what is more than we may keep, and what is idle, if it is wanted."""
        had = sum(m.cores for m in up)
        over, given = had - keep, 0
        for member in sorted(up, key=lambda m: -m.cores):
            pieces = [p for p in member.pieces if p.granted and not p.leaving]
            cores = int(max(over, min(member.idle, wanted), 0))
            for piece in [pieces[index] for index in to_give([p.cores for p in pieces], cores)]:
                if over >= 1 or piece.cores <= member.idle:  # else calls would lack some of them
                    piece.leaving = True
                    over, wanted, given = over - piece.cores, wanted - piece.cores, given + piece.cores
        if given:
            self.asking = 0  # who waits gets them soon
            self.tell("shared", f"gives {given} of {had} cores back, since others wait for some")

    def _used(self, told: ev.CoresUsed) -> None:
        """How many cores the calls on a node use: what none uses any more can leave."""
        member = self.members.get(told.number)
        if member is not None:
            member.used.append(told.most)
            for piece in [p for p in member.pieces if p.leaving and told.now <= member.cores]:
                self._release(member, piece)

    def _resize(self, member: Member) -> None:
        """The scheduler is told what a node has now, and tells what is used of it."""
        if member.machine is not None:
            member.node = member.lease.node(member.machine, member.cores)
            self.events.append(ev.NodeCores(member.lease.number, member.node))

    def _grow(self, member: Member, cores: int) -> None:
        self.spare.pop(member.lease.node_id, None)
        with contextlib.suppress(RayError):  # it is asked for again when the nodes are looked at next
            for size in halves(cores):
                group = placement_group([{"CPU": size}], name=f"curator-{self.run}-{member.lease.number}",
                                        bundle_label_selector=[{"ray.io/node-id": member.lease.node_id}])
                piece = Piece(size, group)
                member.pieces.append(piece)
                self._ask(group.ready(), partial(self._granted, piece), member)

    def _granted(self, piece: Piece, member: Member, answer: Future) -> None:
        if piece not in member.pieces or member.lease.number not in self.members:
            return
        if isinstance(answer.exception(), RayError):  # the agent works on; what is free is asked for again
            self._release(member, piece)
            return
        answer.result()
        piece.granted = True
        self._resize(member)

    def _release(self, member: Member, piece: Piece) -> None:
        member.pieces.remove(piece)
        with contextlib.suppress(RayError):
            remove_placement_group(piece.group)

    def _may_start(self, node_id: str, now: float) -> bool:
        deaths = self.deaths.get(node_id, [])
        return not deaths or (len(deaths) <= RESTARTS
                              and now - deaths[-1] > BACKOFF_S * 2 ** (len(deaths) - 1))

    def _start(self, lease: Lease) -> None:
        try:
            actor = NodeAgent.options(  # type: ignore[attr-defined]  # by the decorator, which mypy ignores
                name=f"curator-{self.run}-{lease.number}", num_cpus=lease.base, num_gpus=lease.gpus,
                memory=lease.memory_bytes or None,
                scheduling_strategy=NodeAffinitySchedulingStrategy(lease.node_id, soft=False),
            ).remote(self.run, lease, modules_of(self.job.operators), [p for p in sys.path if p])
        except RayError as error:  # it is tried again when the nodes are looked at next
            self.tell("cluster_silent", f"Ray starts no agent on {lease.name} ({error}); trying again")
            return
        member = Member(lease, actor)
        self.members[lease.number] = member
        self._grow(member, lease.cpus - lease.base)
        self._ask(actor.info.remote(), self._up, member)


def _end(member: Member) -> None:
    """End an agent, and give back all that it had; one that is gone, or whose cluster is, needs no end."""
    with contextlib.suppress(RayError):
        ray.kill(member.actor)
        for piece in member.pieces:
            remove_placement_group(piece.group)


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
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
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
                 include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                 object_store_memory=store_bytes, _temp_dir=folder)
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
                           "on the cluster (ray job submit -- curator run ...), or give the address of the "
                           "cluster itself (host:6379)")
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
