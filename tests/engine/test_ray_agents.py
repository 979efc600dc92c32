"""What the runtime on Ray does that needs no cluster to be seen: cores that come and go, an agent without a driver."""

import threading
import time
from collections import deque
from concurrent.futures import Future

import pytest

from curator.api.resources import Node
from curator.engine.events import CoresUsed

pytest.importorskip("ray")

from ray.exceptions import RayTaskError

from curator.runtime import ray as runtime_ray
from curator.runtime.agent import Agent
from curator.runtime.leases import Claim, Lease, Piece, Wants
from curator.runtime.ray import RayRuntime

pytestmark = pytest.mark.ray


def leased(wants, base, *pieces):
    """A runtime with one node, of no cluster: the base of its agent, and pieces beside."""
    one, lease = object.__new__(RayRuntime), Lease(number=0, node_id="n", cpus=base + sum(pieces), base=base)
    member = runtime_ray.Member(lease, None, node=Node(), machine=Node(cpus=8),
                                pieces=[Piece(cores, cores, granted=True) for cores in pieces])
    one.wants, one.members, one.events, one.asking, one.strangers = wants, {0: member}, [], 0, deque()
    one.tell = lambda kind, text: None
    return one, member


def test_cores_that_a_long_call_uses_leave_after_it_though_nobody_waits_any_more(monkeypatch):
    removed = []
    monkeypatch.setattr(runtime_ray, "remove_placement_group", removed.append)
    one, member = leased(Wants(None, False, False), 1, 2, 1)
    for _look in range(runtime_ray.GROW_LOOKS):
        one._share(4, 0, [], asked=1)
    assert [event.node.cpus for event in one.events] == [3]
    one.execute(CoresUsed(0, 4, 4))
    assert not removed
    one.events.clear()
    one._share(4, 0, [], asked=0)
    assert [event.node.cpus for event in one.events] == [3]  # it asks again what is used
    one.execute(CoresUsed(0, 3, 4))
    assert removed == [1]
    assert member.held == member.cores == 3


@pytest.mark.parametrize(("pieces", "kept"), [((2,), 3), ((1, 1), 2)])
def test_cores_are_given_back_in_pieces_of_which_no_call_uses_any(pieces, kept):
    one, member = leased(Wants(None, False, False), 1, *pieces)
    member.used += [2] * runtime_ray.IDLE_LOOKS
    one._share(8, 0, [Claim(5, True)], asked=0)  # it has its share, so it gets what is idle
    assert member.cores == kept


@pytest.mark.parametrize(("base", "piece", "used", "wants"), [
    (1, 3, 4, True), (1, 3, 3, False), (2, 1, 2, True), (2, 2, 2, False), (4, 1, 1, False)])
def test_a_run_wants_more_when_what_is_left_has_no_room_for_a_call(base, piece, used, wants):
    one, member = leased(Wants(None, False, False, base), base, piece)
    member.used.append(used)
    one._share(8, 0, [], asked=0)
    assert one.claim.wants is wants


def test_an_agent_waits_for_a_driver_that_is_busy_and_leaves_when_it_never_comes_back(monkeypatch):
    monkeypatch.setattr("curator.runtime.agent.SILENCE_S", 0.6)
    monkeypatch.setattr("curator.runtime.agent.LOOK_S", 0.15)
    left = threading.Event()
    agent = Agent([], lambda node, path: None, left.set)
    began = time.monotonic()
    agent.hear(0.3)
    assert not left.is_set()  # nor while somebody listens, however long
    agent.hear(1.2)
    assert not left.is_set()
    heard = time.monotonic()
    assert left.wait(60)
    assert time.monotonic() - heard > 0.5
    assert time.monotonic() - began > 1.9
    agent.thread.join(60)
    assert not agent.thread.is_alive()


@pytest.mark.parametrize("granted", [True, False])
def test_a_piece_that_ray_does_not_grant_costs_no_agent(monkeypatch, granted):
    removed, answer = [], Future()
    monkeypatch.setattr(runtime_ray, "remove_placement_group", removed.append)
    one, member = leased(Wants(None, False, False), 1, 2)
    piece = member.pieces[0]
    piece.granted = False
    answer.set_result(piece.group) if granted else answer.set_exception(RayTaskError("ready", "the group was removed", ValueError()))
    one._granted(piece, member, answer)
    assert one.members == {0: member}
    assert (member.pieces, removed) == (([piece], []) if granted else ([], [2]))
    assert member.cores == (3 if granted else 1)
