"""INV-69 and INV-70 over hand-written histories."""

from typing import Final

import pytest

from tests.sim.engine.checkers import Owners
from tests.sim.engine.checkers.owners import FAILED_MS

from .stories import T1, Story

OWN: Final = "0123456789ab8cdef0" + b"own".hex() + "00000001"


def begin(one: Story, broker: int, shard: int, *, life: int = 7, topic: str = "jobs", topic_id: str = OWN) -> None:
    """An owner acts."""
    one.record(
        "lease.begin", f"broker {broker}", broker=broker, life=life, topic=topic, topic_id=topic_id, partition=shard,
        controller_epoch=1, leader_epoch=0, present_epoch=0, valid=[],
    )  # fmt: skip


def own(one: Story, *owners: int, topic: str = "jobs", epoch: int = 0) -> None:
    """Write the owners of the shards 0, 1, ... of a topic."""
    for shard, owner in enumerate(owners):
        one.lead(owner, epoch, [max(owner, 1)], key=f"leadership/{topic}/{shard}")


def story(*owners: int, topic_id: str = OWN, members: tuple[int, ...] = (1, 2, 3)) -> Story:
    """A topic whose owners act, under controller epoch 1."""
    one = Story(Owners())
    one.elected(1)
    for broker in members:
        one.commit({f"brokers/{broker}": {"epoch": 7}})
    one.brokers(dict.fromkeys(members, 7))
    one.topic({shard: [] for shard in range(len(owners))}, name="jobs", topic_id=topic_id)
    own(one, *owners)
    for shard, owner in enumerate(owners):
        begin(one, owner, shard, topic_id=topic_id)
    return one


def test_moves_that_even_out_the_shares_are_allowed() -> None:
    one = story(1, 1, 1, 2, 2)
    own(one, 3, 1, 1, 2, 2, epoch=1)

    assert one.found == []


@pytest.mark.parametrize(
    ("before", "after"), [((1, 1, 2), (2, 1, 2)), ((1, 2, 3), (2, 1, 3)), ((1, 2, 3), (-1, 2, 3))], ids=str
)
def test_owner_that_acts_and_loses_its_shard_for_nothing_breaks_inv_69(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    one = story(*before)
    own(one, *after, epoch=1)

    assert one.found[:1] == ["INV-69"]


def test_shards_that_fail_do_not_count() -> None:
    one = story(1, 1, 2, 2)
    one.record("handler.report", "broker 2", broker=2, topic="jobs", partition=3, status="RETRYING")
    one.record("handler.report", "broker 2", broker=2, topic="jobs", partition=2, status="RETRYING")
    own(one, 2, 1, 2, 2, epoch=1)

    assert one.found == []


def test_shares_of_all_topics_count() -> None:
    """Member 1 owns a shard more than member 2 of each of two topics: one of them moves."""
    one = story(1)
    one.topic({0: []}, name="more", topic_id=OWN)
    own(one, 1, topic="more")
    begin(one, 1, 0, topic="more")
    own(one, 2, topic="more", epoch=1)

    assert one.found == []


@pytest.mark.parametrize("reason", ["lapsed", "ended", "crashed", "gone", "evicted", "leaving", "failed", "replicated"])
def test_shards_of_owners_that_do_not_act_or_serve_move(reason: str) -> None:
    one = story(1, 2, topic_id=T1 if reason == "replicated" else OWN)
    replica = {"broker": 1, "topic": "jobs", "partition": 0}
    match reason:
        case "lapsed":
            one.record("lease.lapse", "broker 1", broker=1, life=7)
        case "ended":
            one.record("lease.end", "broker 1", **replica, life=7)
        case "crashed":
            one.record("node.crash", "broker 1", incarnation=1, clean=False)
        case "gone":
            one.commit({"brokers/1": None})
        case "evicted":
            one.commit({"brokers/1": {"epoch": 7, "evicted": True}})
        case "leaving":
            one.brokers({1: 7, 2: 7}, [1])
        case "failed":
            one.record("handler.report", "broker 1", **replica, status="FAILED")
    own(one, 2, 2, epoch=1)

    assert one.found == []


def test_failure_of_long_ago_does_not_count() -> None:
    one = story(1, 2)
    one.record("handler.report", "broker 1", broker=1, topic="jobs", partition=0, status="FAILED")
    one.now_ms += FAILED_MS
    own(one, 2, 2, epoch=1)

    assert one.found == ["INV-69"]


@pytest.mark.parametrize(("ago_ms", "expected"), [(20_000, ["INV-69"]), (30_000, [])])
def test_shard_that_was_moved_since_it_fails_moves_no_other_one(ago_ms: float, expected: list[str]) -> None:
    one = story(2, 1, 1, 2)
    one.record("handler.report", "broker 2", broker=2, topic="jobs", partition=0, status="RETRYING")
    own(one, 1, 1, 1, 2, epoch=1)
    one.now_ms += ago_ms
    own(one, 1, 2, 1, 2, epoch=2)

    assert one.found == expected


def test_controller_may_not_know_that_a_shard_has_failed() -> None:
    one = story(1, 1, 1, 2)
    one.record("handler.report", "broker 1", broker=1, topic="jobs", partition=0, status="RETRYING")
    own(one, 1, 2, 1, 2, epoch=1)

    assert one.found == []


def stop(one: Story, broker: int, epoch: int, *, topic_id: str = OWN) -> None:
    one.record(
        "role.stop", f"broker {broker}", message=1, broker=broker, broker_epoch=7, topic="jobs", topic_id=topic_id,
        partition=0, leader_epoch=epoch, delete=False, outcome="applied",
    )  # fmt: skip


def test_stop_of_an_owner_breaks_inv_70() -> None:
    one = story(1, 2)
    stop(one, 1, 0)

    assert one.found == ["INV-70"]


@pytest.mark.parametrize("what", ["former owner", "earlier epoch", "deletion", "replicated"])
def test_other_stops_are_allowed(what: str) -> None:
    one = story(1, 2, topic_id=T1 if what == "replicated" else OWN)
    if what == "earlier epoch":
        own(one, 1, epoch=1)
    if what == "deletion":
        one.commit({"deletions/jobs": {}})
    stop(one, 2 if what == "former owner" else 1, 0, topic_id=T1 if what == "replicated" else OWN)

    assert one.found == []
