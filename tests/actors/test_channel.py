"""Broker channels: order, retries, isolation between brokers, and close."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import anyio
import numpy as np
import pytest

from kactl.actors import channel as channel_module
from kactl.actors.actor import InboxFull
from kactl.actors.channel import COALESCE_COUNT, RETRY_BACKOFF_MS, SLOW_MS
from kactl.actors.channels import RENEWAL_PAUSE_MS, Channels
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.events import BrokerLag, Event, LeaderAndIsrResponseReceived, UpdateMetadataResponseReceived
from kactl.decide.outbound.batch import Addressed
from kactl.model import Broker, TopicPartition, TopicRef
from kactl.model.errors import BrokerUnreachable
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.metrics import Telemetry
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import stop_replica

pytestmark = pytest.mark.anyio

NONE = np.zeros(0, np.int32)
STATES = PartitionStates((), NONE, NONE, NONE, NONE, NONE, np.zeros((0, 0), np.int32), NONE, np.zeros((0, 0), np.int32))


def metadata_request(number: int) -> UpdateMetadata:
    """Request identified by its broker epoch."""
    return UpdateMetadata(controller_id=9, controller_epoch=1, broker_epoch=number, states=STATES)


@dataclasses.dataclass
class ScriptedTransport:
    """Transport whose brokers respond, fail or hang as the test directs."""

    delivered: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (broker, number of the request)
    failing: set[int] = dataclasses.field(default_factory=set)
    retry_after_ms: float = 0
    hanging: set[int] = dataclasses.field(default_factory=set)
    closed: list[int] = dataclasses.field(default_factory=list)
    attempts: int = 0
    numbers: list[int] = dataclasses.field(default_factory=list)  # of each attempt

    def connect(self, broker: Broker) -> "ScriptedConnection":
        return ScriptedConnection(self, broker.id)


@dataclasses.dataclass
class ScriptedConnection:
    wire: ScriptedTransport
    broker: int

    async def deliver(self, request: Request) -> Response:
        self.wire.attempts += 1
        assert isinstance(request, LeaderAndIsr | UpdateMetadata | StopReplica)
        self.wire.numbers.append(request.number)
        if self.broker in self.wire.hanging:
            await asyncio.Event().wait()
        if self.broker in self.wire.failing:
            raise BrokerUnreachable(self.broker, "refused", retry_after_ms=self.wire.retry_after_ms)
        self.wire.delivered.append((self.broker, request.broker_epoch))
        if isinstance(request, LeaderAndIsr):
            return LeaderAndIsrResponse(0, PartitionErrors.none())
        if isinstance(request, StopReplica):
            return StopReplicaResponse(0, PartitionErrors.none())
        return UpdateMetadataResponse(0)

    async def close(self) -> None:
        self.wire.closed.append(self.broker)


@dataclasses.dataclass
class ChannelRig:
    wire: ScriptedTransport
    clock: ManualClock
    channels: Channels
    events: list[Event]
    inbox_full: int = 0

    def numbers(self, broker: int) -> list[int]:
        return [number for to, number in self.wire.delivered if to == broker]


def no_deletions(request: StopReplica, response: StopReplicaResponse) -> PartitionErrors:
    """Returns no partition errors: no deletion is pending."""
    return PartitionErrors.none()


@pytest.fixture
async def rig() -> AsyncIterator[ChannelRig]:
    wire, clock = ScriptedTransport(), ManualClock()
    bench = ChannelRig(wire, clock, channels=None, events=[])  # type: ignore[arg-type]

    def take(event: Event) -> None:
        if bench.inbox_full:
            bench.inbox_full -= 1
            raise InboxFull("controller", 0)
        bench.events.append(event)

    bench.channels = Channels(
        wire.connect,
        clock=clock,
        telemetry=Telemetry(),
        deliver_event=take,
        deletions_in=no_deletions,
        history=EventLog(clock),
    )
    for broker in (1, 2):
        bench.channels.add(Broker(broker, 100 + broker))
    yield bench
    bench.channels.close()
    await bench.channels.closed()


async def test_requests_arrive_in_the_order_of_sending(rig: ChannelRig) -> None:
    rig.channels.send(Addressed(1, metadata_request(number)) for number in range(50))
    await settle()

    assert rig.numbers(1) == list(range(50))
    assert len(rig.channels[1]) == 0


async def test_numbers_rise_also_over_a_new_channel_and_repeats_keep_theirs(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, leader_request(1))])
    await rig.clock.advance(RETRY_BACKOFF_MS)
    rig.wire.failing.clear()
    rig.channels.send([Addressed(1, metadata_request(2)), Addressed(1, stop_replica(TopicPartition("t", 0)))])
    await rig.clock.advance(RETRY_BACKOFF_MS)
    rig.channels.remove(1)
    rig.channels.add(Broker(1, 101))
    rig.channels.send([Addressed(1, leader_request(3))])
    await settle()

    first, repeated, again, *later = rig.wire.numbers
    assert 0 < first == repeated == again
    assert [first, *later] == sorted({first, *later})
    assert len(later) == 3


async def test_merged_requests_are_numbered_in_the_order_in_which_they_are_sent(rig: ChannelRig) -> None:
    """A LeaderAndIsr that is merged is sent before a StopReplica that was queued earlier."""
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    for number in range(COALESCE_COUNT):
        stop = stop_replica(TopicPartition("u", number), broker_epoch=1)
        stop = dataclasses.replace(stop, controller_id=9)
        rig.channels.send([Addressed(1, stop), Addressed(1, leader_request(number))])
    rig.wire.failing.clear()
    rig.wire.numbers.clear()
    await rig.clock.advance(RETRY_BACKOFF_MS * COALESCE_COUNT)

    assert 1 < len(rig.wire.numbers) < COALESCE_COUNT
    assert rig.wire.numbers == sorted({*rig.wire.numbers})


async def test_failed_request_is_retried_before_later_ones(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1)), Addressed(1, metadata_request(2))])
    await rig.clock.advance(RETRY_BACKOFF_MS * 5)

    assert rig.wire.attempts == 6
    assert rig.numbers(1) == []
    assert rig.channels[1].failures == 6
    assert rig.channels[1].last_error == "refused"

    rig.wire.failing.clear()
    await rig.clock.advance(RETRY_BACKOFF_MS)

    assert rig.numbers(1) == [1, 2]
    assert rig.channels[1].failures == 0


async def test_pause_that_a_failure_asks_for_is_kept(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.wire.retry_after_ms = 8 * RETRY_BACKOFF_MS
    rig.channels.send([Addressed(1, metadata_request(1))])
    await rig.clock.advance(7 * RETRY_BACKOFF_MS)
    assert rig.wire.attempts == 1

    await rig.clock.advance(RETRY_BACKOFF_MS)
    assert rig.wire.attempts == 2


async def test_hanging_broker_does_not_delay_others(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    rig.channels.send(
        [Addressed(1, metadata_request(1)), Addressed(2, metadata_request(2)), Addressed(1, metadata_request(3))]
    )
    await rig.clock.advance(250)

    assert rig.numbers(2) == [2]
    # The request in flight counts as queued.
    assert len(rig.channels[1]) == 2
    assert rig.channels[1].oldest_ms == 250


async def test_removed_channel_sends_nothing_and_closes_its_connection(
    rig: ChannelRig,
) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    rig.channels.remove(1)
    rig.wire.failing.clear()
    await rig.clock.advance(RETRY_BACKOFF_MS * 3)

    rig.channels.send([Addressed(1, metadata_request(2))])
    await settle()

    assert rig.numbers(1) == []
    assert rig.wire.closed == [1]
    assert 1 not in rig.channels


async def test_returned_broker_gets_a_new_empty_channel(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    rig.channels.remove(1)
    rig.channels.add(Broker(1, 200))
    rig.wire.failing.clear()
    rig.channels.send([Addressed(1, metadata_request(2))])
    await rig.clock.advance(RETRY_BACKOFF_MS)

    assert rig.numbers(1) == [2]


async def test_responses_except_to_stop_replica_become_events(rig: ChannelRig) -> None:
    lead = LeaderAndIsr(controller_id=9, controller_epoch=1, broker_epoch=1, states=STATES)
    stop = StopReplica(9, 1, 2, (), NONE, NONE, NONE, np.zeros(0, np.bool_))
    rig.channels.send([Addressed(1, lead), Addressed(1, stop), Addressed(1, metadata_request(3))])
    await settle()

    assert rig.numbers(1) == [1, 2, 3]
    assert [type(event) for event in rig.events] == [LeaderAndIsrResponseReceived, UpdateMetadataResponseReceived]


async def test_response_is_kept_while_the_inbox_is_full(rig: ChannelRig) -> None:
    rig.inbox_full = 3
    rig.channels.send([Addressed(1, metadata_request(1)), Addressed(1, metadata_request(2))])
    await settle()

    assert rig.events == []
    assert rig.numbers(1) == [1]

    await rig.clock.advance(RETRY_BACKOFF_MS * 3)

    assert len(rig.events) == 2
    assert rig.numbers(1) == [1, 2]


async def test_queue_over_its_limit_is_dropped_and_reported(rig: ChannelRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "QUEUE_LIMIT", 3)
    rig.wire.hanging.add(1)
    rig.channels.send(Addressed(1, metadata_request(number)) for number in range(4))
    await settle()

    assert BrokerLag(1) in rig.events
    assert len(rig.channels[1]) == 0


async def test_updates_are_dropped_until_the_full_state_is_sent(
    rig: ChannelRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "QUEUE_LIMIT", 3)
    rig.wire.hanging.add(1)
    rig.channels.send(Addressed(1, metadata_request(number)) for number in range(4))
    rig.wire.hanging.clear()
    rig.channels.send([Addressed(1, metadata_request(5))])
    await settle()
    assert rig.numbers(1) == []

    rig.channels.resume(1)
    rig.channels.send([Addressed(1, metadata_request(6))])
    await settle()

    assert rig.numbers(1) == [6]


async def test_channel_that_fails_by_a_bug_is_replaced_and_reported(
    rig: ChannelRig,
) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("a bug")

    line = rig.channels[1]._connection
    line.deliver = broken  # type: ignore[method-assign]
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    rig.channels.resume(1)
    rig.channels.send([Addressed(1, metadata_request(2))])
    await settle()

    assert rig.events[0] == BrokerLag(1)
    assert rig.numbers(1) == []  # a request that can never be sent must not cause a busy loop

    await rig.clock.advance(RENEWAL_PAUSE_MS)

    assert rig.numbers(1) == [2]


async def test_close_cancels_a_hanging_delivery(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()

    rig.channels.close()
    with anyio.fail_after(60):
        await rig.channels.closed()

    assert sorted(rig.wire.closed) == [1, 2]


async def test_requests_wait_for_the_send_gate_in_order(rig: ChannelRig) -> None:
    rig.wire.failing.add(2)
    rig.channels.send([Addressed(2, metadata_request(1))])
    await settle()
    attempts = rig.wire.attempts

    rig.channels.gate.pause("a test says so")
    rig.channels.send([Addressed(1, metadata_request(1)), Addressed(1, metadata_request(2))])
    await rig.clock.advance(RETRY_BACKOFF_MS * 5)

    assert rig.wire.attempts == attempts, "what is tried again waits, too"
    assert len(rig.channels[1]) == 2

    rig.channels.gate.open()
    await settle()

    assert rig.numbers(1) == [1, 2]


async def test_requests_behind_the_gate_are_dropped_with_their_channel(rig: ChannelRig) -> None:
    rig.channels.gate.pause("a test says so")
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()

    rig.channels.close()
    rig.channels.add(Broker(1, 200))
    rig.channels.send([Addressed(1, metadata_request(2))])
    await settle()

    assert rig.numbers(1) == [2]


def leader_request(number: int) -> LeaderAndIsr:
    """One of many requests for the same partition, each with a higher leader epoch."""
    at, epoch, replicas = np.zeros(1, np.int32), np.array([number], np.int32), np.array([[1], [2]], np.int32)
    topics = [TopicRef("t", bytes(range(16)))]
    states = PartitionStates(topics, at, at, at, at + np.int32(1), epoch, replicas, epoch, replicas)
    return LeaderAndIsr(controller_id=9, controller_epoch=1, broker_epoch=1, states=states)


async def behind(bench: ChannelRig, *, requests: int = 10, wait_ms: float = SLOW_MS) -> list[Request]:
    """Returns the requests received by broker 1, which has not responded for a while."""
    arrived: list[Request] = []
    line = bench.channels[1]._connection
    deliver = line.deliver

    async def noted(request: Request) -> Response:
        response = await deliver(request)
        arrived.append(request)
        return response

    line.deliver = noted  # type: ignore[method-assign]
    bench.wire.failing.add(1)
    bench.channels.send(Addressed(1, leader_request(number)) for number in range(requests))
    await bench.clock.advance(wait_ms)
    bench.wire.failing.clear()
    await bench.clock.advance(RETRY_BACKOFF_MS)
    return arrived


def epochs(requests: list[Request]) -> list[int]:
    return [int(request.states.leader_epoch[0]) for request in requests if isinstance(request, LeaderAndIsr)]


async def test_queue_of_a_slow_broker_is_merged_except_the_request_in_flight(
    rig: ChannelRig,
) -> None:
    arrived = await behind(rig)

    # The first was retried and may have arrived. Of the others only the last state is needed.
    assert epochs(arrived) == [0, 9]
    assert len(rig.events) == 2


async def test_requests_with_a_short_wait_are_not_merged(rig: ChannelRig) -> None:
    assert epochs(await behind(rig, wait_ms=SLOW_MS / 4)) == list(range(10))


async def test_broker_with_prompt_responses_is_not_slow(
    rig: ChannelRig,
) -> None:
    arrived: list[Request] = []
    line = rig.channels[1]._connection
    deliver = line.deliver

    async def without_haste(request: Request) -> Response:
        await rig.clock.sleep_ms(SLOW_MS / 4)
        arrived.append(request)
        return await deliver(request)

    line.deliver = without_haste  # type: ignore[method-assign]
    rig.channels.send(Addressed(1, leader_request(number)) for number in range(12))
    await rig.clock.advance(SLOW_MS * 3)

    assert epochs(arrived) == list(range(12))


@pytest.mark.parametrize(("slow_too", "put_together"), [(1, True), (2, False)])
async def test_broker_is_slow_only_relative_to_others(rig: ChannelRig, slow_too: int, put_together: bool) -> None:
    """If most brokers take as long, the controller is the bottleneck, and merging would slow it further."""
    for broker in range(2, 5):
        rig.channels.add(Broker(broker, 100 + broker))
    slow = range(2, 2 + slow_too)
    rig.wire.hanging.update(slow)
    rig.channels.send(Addressed(broker, leader_request(0)) for broker in slow)

    arrived = await behind(rig)

    assert epochs(arrived) == ([0, 9] if put_together else list(range(10)))


async def test_parity_mode_does_not_merge(rig: ChannelRig) -> None:
    rig.channels._coalesce = False
    rig.channels.remove(1)
    rig.channels.add(Broker(1, 200))

    assert epochs(await behind(rig)) == list(range(10))


async def test_queue_is_merged_before_it_grows_large(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    longest = 0
    for number in range(1000):
        rig.channels.send([Addressed(1, leader_request(number)), Addressed(1, metadata_request(1))])
        await asyncio.sleep(0)
        longest = max(longest, len(rig.channels[1]))

    assert longest <= COALESCE_COUNT
    assert not any(isinstance(event, BrokerLag) for event in rig.events)


async def test_merge_uses_the_live_brokers_of_the_last_update(rig: ChannelRig) -> None:
    """A follower whose metadata lacks a live leader does not follow, and keeps its epoch."""

    def told(*alive: int) -> UpdateMetadata:
        return dataclasses.replace(metadata_request(1), live_brokers=tuple(Broker(id_, 1) for id_ in alive))

    rig.channels.send([Addressed(1, told(1, 2))])
    await settle()
    channel = rig.channels[1]
    assert channel._alive is not None
    assert set(channel._alive) == {1, 2}

    arrived = await behind(rig, requests=0)
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, told(1)), *(Addressed(1, leader_request(number)) for number in range(4))])
    rig.channels.send([Addressed(1, told(1, 2)), Addressed(1, led_by_2(9)), Addressed(1, led_by_2(10))])
    await rig.clock.advance(SLOW_MS)
    rig.wire.failing.clear()
    await rig.clock.advance(RETRY_BACKOFF_MS)

    # 2 leads again only after the broker has 2 as live.
    assert [type(request).__name__ for request in arrived] == [
        "UpdateMetadata",
        "UpdateMetadata",
        "LeaderAndIsr",
    ]
    assert epochs(arrived) == [10]


def led_by_2(number: int) -> LeaderAndIsr:
    request = leader_request(number)
    return dataclasses.replace(request, states=dataclasses.replace(request.states, leader=np.array([2], np.int32)))


# -- deliveries --------------------------------------------------------------------------------------------------------


async def test_broker_is_behind_until_it_has_answered_what_was_queued(rig: ChannelRig) -> None:
    rig.wire.failing.add(2)
    rig.channels.send(Addressed(broker, metadata_request(1)) for broker in (1, 2))
    delivery = rig.channels.delivery(rig.channels.queued)
    assert delivery.behind(False) == [1, 2]
    await settle()
    assert delivery.behind(False) == [2]
    await rig.clock.advance(RETRY_BACKOFF_MS)
    assert (delivery.behind(False), delivery.behind(True)) == ([], [2])  # it is down
    rig.wire.failing.clear()
    rig.channels.send([Addressed(2, metadata_request(2))])
    later = rig.channels.delivery(rig.channels.queued)
    await rig.clock.advance(RETRY_BACKOFF_MS)

    assert later.behind(True) == delivery.behind(True) == []


async def test_merged_requests_count_as_the_oldest_of_them(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    deliveries = []
    for number in range(COALESCE_COUNT):
        rig.channels.send([Addressed(1, leader_request(number))])
        deliveries.append(rig.channels.delivery(rig.channels.queued))
    assert len(rig.channels[1]) < COALESCE_COUNT

    line = rig.channels[1]._connection
    deliver = line.deliver

    async def once(request: Request) -> Response:
        response = await deliver(request)
        rig.wire.hanging.add(1)
        return response

    line.deliver = once  # type: ignore[method-assign]
    rig.wire.failing.clear()
    await rig.clock.advance(RETRY_BACKOFF_MS)

    assert rig.numbers(1) == [1]
    assert all(delivery.behind(True) == [1] for delivery in deliveries)


async def test_broker_whose_queue_was_dropped_is_behind_until_it_has_everything(
    rig: ChannelRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "QUEUE_LIMIT", 2)
    rig.wire.hanging.add(1)
    for number in range(3):
        rig.channels.send([Addressed(1, metadata_request(number))])
        await settle()
    delivery = rig.channels.delivery(rig.channels.queued)
    assert rig.events == [BrokerLag(1)]
    assert delivery.behind(False) == [1]
    rig.wire.hanging.clear()
    rig.channels.resume(1)
    event = rig.channels._history.current

    assert delivery.behind(False) == [1]
    event.handled()
    assert delivery.behind(False) == []
    rig.channels.remove(1)
    assert rig.channels._restoring == {}
