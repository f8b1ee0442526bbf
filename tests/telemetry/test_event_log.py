"""The ring of events: retention, resets of readers, followers and earlier processes."""

import asyncio
import contextlib
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.messages.log import KINDS, AnyEvent, BrokerEvent, PartitionEvent, ReplicaEvent, Reset, TopicEvent
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import Rows
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import IllegalState
from kactl.runtime.clock import UNKNOWN_BOOT, BootTime
from kactl.telemetry.event_log import EventLog
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed, led, rows_of, slots_of, tp


class StandingClock:
    """Clock that does not advance."""

    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> float:
        return 1_000.0

    def boot_time(self) -> BootTime:
        return BootTime(UNKNOWN_BOOT, 1_000)

    def lease_ns(self) -> int:
        return 1_000_000_000

    async def sleep_ms(self, delay_ms: float) -> None:
        raise AssertionError("the history does not wait for time to pass")


CLUSTER = ClusterSeed(
    partitions={
        tp(f"t-{index}"): PartitionSeed(
            replicas=(1, 2),
            leadership=led(1, index, (2, 1), 7),
            state=PartitionState.OFFLINE,
            states={1: ReplicaState.ONLINE, 2: ReplicaState.OFFLINE},
        )
        for index in range(5)
    }
).columns()


def history(limit: int = 100) -> EventLog:
    return EventLog(StandingClock(), limit=limit)


def add_partitions(ring: EventLog, rows: Rows, *, refusal: Refusal = Refusal.NONE) -> None:
    refused = np.full(len(rows), refusal, np.uint8)
    change = Change.of(rows, state=np.full(len(rows), PartitionState.ONLINE, np.uint8), refusal=refused)
    ring.add_partitions(change, CLUSTER.table.refs, controller_epoch=3)


def add_replicas(ring: EventLog, rows: Rows, *brokers: int) -> None:
    which = slots_of(rows, *brokers)
    ring.add_replicas(rows, which, ReplicaState.OFFLINE, CLUSTER.table.refs, controller_epoch=3)


def add_one(ring: EventLog, kind: str) -> None:
    event: AnyEvent = BrokerEvent(what="started", broker=1, broker_epoch=2)
    if kind == "topic":
        event = TopicEvent(what="created", topic="t")
    ring.add(event)


def test_partition_events_are_built_when_read() -> None:
    ring = history()

    add_partitions(ring, rows_of(CLUSTER, "t-2", "t-4"))
    events, position = ring.read(0)

    assert position == ring.seq == 2
    assert events[1] == PartitionEvent(
        seq=2,
        time_ms=1_000,
        controller_epoch=3,
        topic="t",
        partition=4,
        from_state=PartitionState.OFFLINE,
        to_state=PartitionState.ONLINE,
        leader=1,
        leader_epoch=4,
        isr=(1, 2),
        partition_epoch=7,
        replicas=(1, 2),
    )


def test_rejected_partition_has_its_reason() -> None:
    ring = history()

    add_partitions(ring, rows_of(CLUSTER, "t-2"), refusal=Refusal.NO_ELIGIBLE_LEADER)

    assert [event.refused for event in ring.read(0)[0]] == ["no replica may lead"]  # type: ignore[union-attr]


def test_only_replicas_that_changed_become_events() -> None:
    ring = history()

    add_replicas(ring, rows_of(CLUSTER, "t-0", "t-1"), 1, 2)
    add_replicas(ring, rows_of(CLUSTER, "t-0", "t-1"), 2)
    events, _ = ring.read(0)

    assert [(event.partition, event.broker) for event in events if isinstance(event, ReplicaEvent)] == [(0, 1), (1, 1)]
    assert events[0].from_state is ReplicaState.ONLINE  # type: ignore[union-attr]
    assert events[0].to_state is ReplicaState.OFFLINE  # type: ignore[union-attr]
    assert ring.seq == 2


def test_reader_behind_the_ring_receives_a_reset() -> None:
    ring = history(limit=3)
    for _ in range(5):
        add_one(ring, "broker")

    events, position = ring.read(1)

    assert [type(event) for event in events] == [Reset, BrokerEvent, BrokerEvent, BrokerEvent]
    assert [event.seq for event in events] == [2, 3, 4, 5]
    assert position == 5
    assert [event.seq for event in ring.read(2)[0]] == [3, 4, 5]  # nothing is missing after 2


def test_number_beyond_the_newest_event_is_a_reset() -> None:
    ring = history()
    add_one(ring, "broker")

    events, position = ring.read(9)

    assert [(type(event), event.seq) for event in events] == [(Reset, 1)]
    assert position == 1


def test_newest_change_is_retained_completely() -> None:
    ring = history(limit=2)
    add_one(ring, "broker")

    add_partitions(ring, rows_of(CLUSTER))

    assert (ring.oldest, ring.seq) == (2, 6)
    assert len(ring.read(1)[0]) == 5


# -- comparison with a plain list --------------------------------------------------------------------------------------

ADDITIONS = st.lists(st.sampled_from(["broker", "topic", "partitions", "replicas", "nothing"]), max_size=12)


@given(
    additions=ADDITIONS,
    limit=st.integers(1, 12),
    after=st.integers(0, 40),
    at_once=st.integers(1, 7),
    kinds=st.sets(st.sampled_from(KINDS)),
)
def test_ring_equals_a_plain_list(
    additions: list[str], limit: int, after: int, at_once: int, kinds: Collection[str]
) -> None:
    ring, model, sizes = history(limit), [], []
    for addition in additions:
        match addition:
            case "partitions":
                add_partitions(ring, rows_of(CLUSTER, "t-0", "t-1", "t-2"))
                model += ["partition"] * 3
                sizes.append(3)
            case "replicas":
                add_replicas(ring, rows_of(CLUSTER, "t-3", "t-4"), 1)
                model += ["replica"] * 2
                sizes.append(2)
            case "nothing":
                add_replicas(ring, rows_of(CLUSTER, "t-3"), 2)
            case kind:
                add_one(ring, kind)
                model.append(kind)
                sizes.append(1)
    while sum(sizes) > limit and len(sizes) > 1:
        del sizes[0]
    first = len(model) - sum(sizes) + 1
    assert (ring.oldest, ring.seq) == (first, len(model))

    expected: list[tuple[str, int]] = []
    if after > len(model) or after < first - 1:
        after_reset = min(len(model), max(after, first - 1))
        expected.append(("reset", after_reset))
    begin = min(len(model), max(after, first - 1))
    numbered = list(enumerate(model, start=1))[begin:]
    expected += [(kind, seq) for seq, kind in numbered if not kinds or kind in kinds]

    read_events: list[tuple[str, int]] = []
    position, reads = after, 0
    while True:
        events, now = ring.read(position, limit=at_once, kinds=kinds)
        assert len(events) <= at_once
        read_events += [(event.__struct_config__.tag, event.seq) for event in events]  # type: ignore[misc]
        reads += 1
        assert now > position or now == ring.seq or events
        position = now
        if not events and position == ring.seq:
            break
        assert reads < 60
    assert read_events == expected


# -- following ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_follower_receives_new_events() -> None:
    ring = history()
    add_one(ring, "broker")
    seen: list[int] = []

    async def follow() -> None:
        async for event in ring.follow(kinds=["topic"]):
            seen.append(event.seq)

    follower = asyncio.ensure_future(follow())
    for kind in ("topic", "broker", "topic"):
        await asyncio.sleep(0)
        add_one(ring, kind)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    follower.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await follower

    assert seen == [2, 4]
    add_one(ring, "topic")  # no reader waits any more


@pytest.mark.anyio
async def test_follower_receives_retained_events_first() -> None:
    ring = history(limit=2)
    for _ in range(4):
        add_one(ring, "broker")
    seen = []

    async for event in ring.follow(after=0):
        seen.append((type(event), event.seq))
        if len(seen) == 3:
            break

    assert seen == [(Reset, 2), (BrokerEvent, 3), (BrokerEvent, 4)]


# -- earlier processes -------------------------------------------------------------------------------------------------


def earlier(*seqs: int) -> list[AnyEvent]:
    return [TopicEvent(seq=seq, time_ms=seq, what="created", topic="t") for seq in seqs]


def restored(*seqs: int, orderly: bool = True, first: int = 1_000, limit: int = 100) -> EventLog:
    ring = EventLog(StandingClock(), first=first, limit=limit)
    ring.restore(earlier(*seqs), orderly=orderly)
    ring.add(TopicEvent(what="created", topic="new"))
    return ring


def test_events_of_earlier_processes_come_first() -> None:
    ring = restored(5, 6, 7)

    events, position = ring.read(0)

    assert [event.seq for event in events] == [5, 6, 7, 1_000]
    assert position == ring.seq == 1_000
    assert (ring.oldest, ring.first) == (5, 1_000)


@pytest.mark.parametrize(("after", "expected"), [(4, [5, 6, 1_000]), (5, [6, 1_000]), (6, [1_000]), (500, [1_000])])
def test_position_of_an_earlier_process_remains_valid(after: int, expected: list[int]) -> None:
    events, _ = restored(5, 6).read(after)

    assert [event.seq for event in events] == expected


@pytest.mark.parametrize("kinds", [(), ("broker",)])
def test_position_before_the_oldest_event_is_a_reset(kinds: Collection[str]) -> None:
    events, _ = restored(5, 6).read(3, kinds=kinds)

    assert events[0] == Reset(seq=4, time_ms=1_000)


@pytest.mark.parametrize(("after", "kinds"), [(6, ()), (500, ()), (998, ("broker",))])
def test_reset_follows_a_process_that_was_killed(after: int, kinds: Collection[str]) -> None:
    events, _ = restored(5, 6, orderly=False).read(after, kinds=kinds)

    assert events[0] == Reset(seq=999, time_ms=1_000)


def test_numbers_rise_after_the_wall_clock_was_set_back() -> None:
    ring = restored(5_000, 5_001, orderly=False)

    assert [event.seq for event in ring.read(5_000)[0]] == [5_001, 5_002, 5_003]


def test_earlier_events_are_discarded_for_new_ones() -> None:
    ring = restored(*range(1, 50), limit=10)
    for _ in range(5):
        ring.add(TopicEvent(what="created", topic="new"))

    assert [event.seq for event in ring.read(ring.oldest - 1)[0]] == [46, 47, 48, 49, *range(1_000, 1_006)]


@pytest.mark.anyio
async def test_reader_waits_after_the_gap_of_an_earlier_process() -> None:
    ring = EventLog(StandingClock(), first=1_000)
    ring.restore(earlier(5, 6), orderly=True)
    follower = ring.follow(4)
    assert [(await anext(follower)).seq, (await anext(follower)).seq] == [5, 6]

    third = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    assert not third.done()
    ring.add(TopicEvent(what="created", topic="new"))

    assert (await third).seq == 1_000


def test_earlier_events_cannot_be_added_after_new_ones() -> None:
    ring = restored(5)

    with pytest.raises(IllegalState):
        ring.restore(earlier(6), orderly=True)
