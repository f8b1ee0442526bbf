"""Events of one partition, and counts of transitions, from the columns of the ring."""

import pytest

from kactl.decide.messages.log import AnyEvent, Cause, PartitionEvent, ReplicaEvent, TopicEvent
from kactl.decide.state.change import Change, Refusal
from kactl.model import PartitionState, ReplicaState
from kactl.telemetry.event_log import EventLog
from tests.support.cluster_seeds import rows_of

from .test_event_log import CLUSTER, add_one, add_partitions, add_replicas, history

pytestmark = pytest.mark.anyio
ALL = tuple(f"t-{index}" for index in range(5))
OFFLINE, ONLINE = PartitionState.OFFLINE, PartitionState.ONLINE


def without_change(ring: EventLog, *names: str, strategy: str = "") -> None:
    ring.current.because = Cause(event=1, trigger="Test")
    rows = rows_of(CLUSTER, *names)
    ring.add_partitions(Change.of(rows), CLUSTER.table.refs, controller_epoch=3, strategy=strategy)


async def test_events_of_one_partition_are_found_in_order() -> None:
    ring = history()
    add_partitions(ring, rows_of(CLUSTER, *ALL))
    ring.add(TopicEvent(what="grown", topic="t"))
    add_partitions(ring, rows_of(CLUSTER, "t-3"))
    add_replicas(ring, rows_of(CLUSTER, *ALL), 1)
    everything, _ = ring.read(0)

    found = await ring.of_partition("t", 3, limit=100)

    expected = [each for each in everything if isinstance(each, PartitionEvent | ReplicaEvent) and each.partition == 3]
    assert found == expected
    assert [type(each) for each in found] == [PartitionEvent, PartitionEvent, ReplicaEvent]
    assert await ring.of_partition("t", 3, limit=2) == found[-2:]
    assert await ring.of_partition("other", 3, limit=100) == []
    assert await ring.of_partition("t", 9, limit=100) == []


async def test_events_of_earlier_processes_are_found() -> None:
    earlier = history()
    add_partitions(earlier, rows_of(CLUSTER, *ALL))
    events: list[AnyEvent] = earlier.read(0)[0]
    ring = history()
    ring.restore(events, orderly=True)

    assert await ring.of_partition("t", 2, limit=100) == [events[2]]


async def test_transitions_are_counted_by_state() -> None:
    ring = history()
    add_partitions(ring, rows_of(CLUSTER, "t-1", "t-2"))
    add_partitions(ring, rows_of(CLUSTER, "t-3"), refusal=Refusal.ILLEGAL_MOVE)
    add_partitions(ring, rows_of(CLUSTER, "t-4"), refusal=Refusal.NO_ELIGIBLE_LEADER)
    add_replicas(ring, rows_of(CLUSTER, *ALL), 1, 2)

    counts, since_ms = await ring.transitions(1_000)

    assert counts.partitions == {(OFFLINE, ONLINE): 2}
    assert (counts.illegal, counts.refused) == ({OFFLINE: 1}, {OFFLINE: 1})
    assert counts.replicas == {(ReplicaState.ONLINE, ReplicaState.OFFLINE): 5}
    assert since_ms == 1_000


async def test_same_state_counts_only_after_an_election() -> None:
    ring = history()
    without_change(ring, "t-1", "t-2")
    assert (await ring.transitions(0))[0].partitions == {}

    without_change(ring, "t-1", strategy="preferred")

    assert (await ring.transitions(0))[0].partitions == {(OFFLINE, OFFLINE): 1}


async def test_counts_state_from_when_they_are_complete() -> None:
    ring = history(limit=3)
    assert (await ring.transitions(0))[1] == 1_000  # the process began at that time
    assert (await ring.transitions(5_000))[1] == 5_000

    add_partitions(ring, rows_of(CLUSTER, *ALL))
    for _ in range(3):
        add_one(ring, "broker")

    assert await ring.transitions(0) == ((await history().transitions(0))[0], 1_000)


async def test_events_before_this_process_are_not_counted() -> None:
    earlier = history()
    add_partitions(earlier, rows_of(CLUSTER, *ALL))
    ring = history()
    ring.restore(earlier.read(0)[0], orderly=False)

    assert (await ring.transitions(0))[0].partitions == {}
