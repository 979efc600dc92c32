"""What runs that share a cluster keep, and what they give back: the arithmetic, and what the scheduler does with it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.resources import Node
from curator.engine.events import CoresUsed, NodeCores
from curator.runtime.leases import Claim, Heard, Wants, asked_for, halves, may_keep, to_give
from tests.engine.harness import Harness
from tests.engine.scenario import make_stage


@pytest.mark.parametrize(("mine", "others", "strangers", "asked", "keep"), [
    (Claim(64, True), [], 0, 0, inf),
    (Claim(64, True), [Claim(0, True)], 0, 0, 32),
    (Claim(40, True), [Claim(24, True)], 0, 0, 32),
    (Claim(32, True), [Claim(32, True)], 0, 0, inf),  # nobody has less than his share
    (Claim(54, True), [Claim(10, False)], 0, 0, inf),  # who wants no more has enough
    (Claim(54, True), [Claim(10, False), Claim(0, True)], 0, 0, 27),
    (Claim(44, True), [Claim(0, True)], 20, 0, 22),
    (Claim(64, True), [], 0, 3, 61),  # a job of somebody else asks for three cores
    (Claim(64, True), [], 0, 500, 32),
    (Claim(24, True), [], 40, 500, inf),  # it has more than its share
    (Claim(3, True), [Claim(61, True)], 0, 0, inf),
])
def test_a_run_keeps_its_share_while_others_want_theirs(mine, others, strangers, asked, keep):
    assert may_keep(mine, others, 64, strangers, asked) == keep


def test_what_no_node_could_ever_give_is_not_waited_for():
    nodes = [{"CPU": 8, "memory": 100}, {"CPU": 4, "GPU": 1}]
    asks = [({"CPU": 2.0}, 3), ({"CPU": 16.0}, 1), ({"CPU": 6.0, "GPU": 1.0}, 1), ({"CPU": 4.0, "GPU": 1.0}, 2), ({"GPU": 1.0}, 4)]
    assert asked_for(asks, nodes) == 14


@given(st.integers(0, 300), st.integers(0, 300))
def test_any_number_of_cores_can_be_given_back_of_those_that_are_one_lease(cores, back):
    pieces = halves(cores)
    assert sum(pieces) == cores
    assert len(pieces) <= 9
    assert sum(pieces[i] for i in to_give(pieces, min(back, cores))) == min(back, cores)
    assert sum(pieces[i] for i in to_give(pieces[:1], back)) in (0, *pieces[:1])


@given(st.integers(1, 60), st.lists(st.booleans(), min_size=2, max_size=5))
def test_runs_that_come_one_after_the_other_all_get_a_share(cores, wants):
    """Each gives back what is over and takes what is free, one after the other, until nobody moves; who wants none has one."""
    claims, free = [Claim(0, True) for _ in wants], cores
    for _turn in range(5):
        for i, mine in enumerate(claims):
            keep = may_keep(mine, claims[:i] + claims[i + 1:], cores, 0, 0)
            pieces = halves(mine.has)
            has = mine.has - sum(pieces[p] for p in to_give(pieces, int(max(0, mine.has - keep))))
            free += mine.has - has
            most = min(keep, cores) if wants[i] else 1
            more = int(max(0, min(free, most - has)))
            claims[i], free = Claim(has + more, wants[i]), free - more
    share = cores // len(claims)
    assert all(claim.has >= share for claim in claims if claim.wants)
    assert free + sum(claim.has for claim in claims) == cores


@pytest.mark.parametrize(("free", "room", "wants", "leased"), [
    ({"CPU": 3.5, "GPU": 2, "memory": 8e9}, inf, Wants(None, False, False), (3, 1, 0, 0)),
    ({"CPU": 3.5, "GPU": 1.5, "memory": 8e9}, inf, Wants(None, True, True, 2), (3, 2, 1, 8_000_000_000)),
    ({"CPU": 8}, 2, Wants(4, False, False, 4), (2, 2, 0, 0)),
    ({"CPU": 8}, 0.5, Wants(4, False, False), None),
    ({"CPU": 0.9, "GPU": 4}, inf, Wants(None, True, False), None),
    ({}, inf, Wants(None, False, False), None),
])
def test_a_lease_is_whole_cores_within_what_is_free_and_what_is_allowed(free, room, wants, leased):
    lease = wants.lease(free, room, 0, "id", "name")
    assert (lease and (lease.cpus, lease.base, lease.gpus, lease.memory_bytes)) == leased


def test_a_run_that_says_nothing_new_is_gone_and_a_last_word_is_no_claim():
    heard, told = Heard(), {b"a": b"[4, true, 1]", b"b": b"[2, true, 1]"}
    assert heard.others(told | {b"killed": b"[8, true, 1]"}) == []
    told = {b"a": b"[4, true, 2]", b"b": b"[2, true, 2]", b"killed": b"[8, true, 1]"}
    assert heard.others(told) == [Claim(4, True), Claim(2, True)]
    for beat in range(20):
        found = heard.others(told | {b"a": b"[4, true, %d]" % beat})
    assert found == [Claim(4, True)]
    assert heard.dead == [b"killed"]  # it may be removed; who was heard just now may come back
    for beat in range(20):
        heard.others({b"a": b"[4, true, %d]" % beat, b"b": b"[2, true, 2]"})
    assert heard.dead == [b"b"]
    heard.others({b"b": b"[2, true, 3]"})
    assert heard.dead == []


# -- the scheduler ------------------------------------------------------------------------------------------------


def test_calls_keep_the_cores_of_a_node_that_has_fewer_now_and_no_new_one_begins_before_there_is_room():
    harness = Harness(make_stage(), cpus=4, units=8)
    while len(harness.calls) < 4:
        harness.read(10_000)
        harness.all_ready()
    harness.tell(NodeCores(0, Node(cpus=1)))
    assert harness.said_of(CoresUsed) == [CoresUsed(0, 4, 4)]
    assert len(harness.calls) >= 4
    while (used := harness.state.nodes[0].cpus_used) > 1:
        call = next(c for c in harness.calls if harness.state.workers[c.worker].head is c)
        if call.kind == "read":
            harness.read(10, unit=call.units[0][0])
        else:
            harness.passes(call)
        assert harness.state.nodes[0].cpus_used <= used
    harness.tell(NodeCores(0, Node(cpus=1)))
    assert harness.said_of(CoresUsed) == [CoresUsed(0, 1, 4)]
    harness.tell(NodeCores(0, Node(cpus=4)))
    harness.all_ready()
    assert harness.state.nodes[0].cpus_used > 1
    assert len(harness.finish()) > 0
    assert not harness.state.open
