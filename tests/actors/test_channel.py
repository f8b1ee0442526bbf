"""The channels to brokers: order, patience, isolation, and silence after their end."""

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
from kactl.errors import BrokerUnreachable
from kactl.messages.control import (
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
from kactl.messages.events import BrokerLagged, Event, LeaderAndIsrAnswered, UpdateMetadataAnswered
from kactl.model import Broker, TopicRef
from kactl.outbound.batch import Addressed
from kactl.telemetry.metrics import Telemetry
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

NONE = np.zeros(0, np.int32)
STATES = PartitionStates((), NONE, NONE, NONE, NONE, NONE, np.zeros((0, 0), np.int32), NONE, np.zeros((0, 0), np.int32))


def metadata_request(number: int) -> UpdateMetadata:
    """A request that can be told from others by its broker epoch."""
    return UpdateMetadata(controller_id=9, controller_epoch=1, broker_epoch=number, states=STATES)


@dataclasses.dataclass
class ScriptedTransport:
    """A transport whose brokers do what the test says: answer, fail, or hang."""

    delivered: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (broker, request's number)
    failing: set[int] = dataclasses.field(default_factory=set)
    hanging: set[int] = dataclasses.field(default_factory=set)
    closed: list[int] = dataclasses.field(default_factory=list)
    attempts: int = 0

    def connect(self, broker: Broker) -> "ScriptedConnection":
        return ScriptedConnection(self, broker.id)


@dataclasses.dataclass
class ScriptedConnection:
    wire: ScriptedTransport
    broker: int

    async def deliver(self, request: Request) -> Response:
        self.wire.attempts += 1
        if self.broker in self.wire.hanging:
            await asyncio.Event().wait()
        if self.broker in self.wire.failing:
            raise BrokerUnreachable(self.broker, "refused")
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
    """Nothing that this asks to stop is waited for."""
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

    bench.channels = Channels(wire, clock=clock, telemetry=Telemetry(), deliver_event=take, deletions_in=no_deletions)
    for broker in (1, 2):
        bench.channels.add(Broker(broker, 100 + broker))
    yield bench
    bench.channels.close()
    await bench.channels.closed()


async def test_requests_arrive_in_the_order_in_which_they_were_left(rig: ChannelRig) -> None:
    rig.channels.send(Addressed(1, metadata_request(number)) for number in range(50))
    await settle()

    assert rig.numbers(1) == list(range(50))
    assert len(rig.channels[1]) == 0


async def test_what_fails_is_tried_again_and_nothing_overtakes_it(rig: ChannelRig) -> None:
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


async def test_a_hanging_broker_delays_nobody_else(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    rig.channels.send(
        [Addressed(1, metadata_request(1)), Addressed(2, metadata_request(2)), Addressed(1, metadata_request(3))]
    )
    await rig.clock.advance(250)

    assert rig.numbers(2) == [2]
    # The one in flight counts as waiting.
    assert len(rig.channels[1]) == 2
    assert rig.channels[1].oldest_ms == 250


async def test_a_removed_channel_sends_nothing_any_more_and_lets_go_of_its_connection(
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


async def test_a_broker_that_comes_again_gets_a_channel_with_nothing_old_in_it(rig: ChannelRig) -> None:
    rig.wire.failing.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()
    rig.channels.remove(1)
    rig.channels.add(Broker(1, 200))
    rig.wire.failing.clear()
    rig.channels.send([Addressed(1, metadata_request(2))])
    await rig.clock.advance(RETRY_BACKOFF_MS)

    assert rig.numbers(1) == [2]


async def test_answers_become_events_but_for_stops(rig: ChannelRig) -> None:
    lead = LeaderAndIsr(controller_id=9, controller_epoch=1, broker_epoch=1, states=STATES)
    stop = StopReplica(9, 1, 2, (), NONE, NONE, NONE, np.zeros(0, np.bool_))
    rig.channels.send([Addressed(1, lead), Addressed(1, stop), Addressed(1, metadata_request(3))])
    await settle()

    assert rig.numbers(1) == [1, 2, 3]
    assert [type(event) for event in rig.events] == [LeaderAndIsrAnswered, UpdateMetadataAnswered]


async def test_an_answer_that_the_controller_cannot_take_yet_is_held_and_not_lost(rig: ChannelRig) -> None:
    rig.inbox_full = 3
    rig.channels.send([Addressed(1, metadata_request(1)), Addressed(1, metadata_request(2))])
    await settle()

    assert rig.events == []
    assert rig.numbers(1) == [1]

    await rig.clock.advance(RETRY_BACKOFF_MS * 3)

    assert len(rig.events) == 2
    assert rig.numbers(1) == [1, 2]


async def test_a_queue_that_outgrows_its_bound_is_dropped_and_the_controller_is_told(
    rig: ChannelRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "QUEUE_LIMIT", 3)
    rig.wire.hanging.add(1)
    rig.channels.send(Addressed(1, metadata_request(number)) for number in range(4))
    await settle()

    assert BrokerLagged(1) in rig.events
    assert len(rig.channels[1]) == 0


async def test_updates_to_a_lagging_broker_are_dropped_until_all_is_sent_anew(
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


async def test_a_channel_that_ends_by_a_bug_is_made_anew_and_the_controller_is_told(
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

    assert rig.events[0] == BrokerLagged(1)
    assert rig.numbers(1) == []  # a request that cannot be sent at all must not spin

    await rig.clock.advance(RENEWAL_PAUSE_MS)

    assert rig.numbers(1) == [2]


async def test_closing_while_a_delivery_hangs_ends_it(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()

    rig.channels.close()
    with anyio.fail_after(5):
        await rig.channels.closed()

    assert sorted(rig.wire.closed) == [1, 2]


async def test_behind_a_shut_gate_requests_wait_and_then_go_in_their_order(rig: ChannelRig) -> None:
    rig.wire.failing.add(2)
    rig.channels.send([Addressed(2, metadata_request(1))])
    await settle()
    attempts = rig.wire.attempts

    rig.channels.gate.shut("a test says so")
    rig.channels.send([Addressed(1, metadata_request(1)), Addressed(1, metadata_request(2))])
    await rig.clock.advance(RETRY_BACKOFF_MS * 5)

    assert rig.wire.attempts == attempts, "what is tried again waits, too"
    assert len(rig.channels[1]) == 2

    rig.channels.gate.open()
    await settle()

    assert rig.numbers(1) == [1, 2]


async def test_what_waited_behind_the_gate_goes_with_its_channel(rig: ChannelRig) -> None:
    rig.channels.gate.shut("a test says so")
    rig.channels.send([Addressed(1, metadata_request(1))])
    await settle()

    rig.channels.close()
    rig.channels.add(Broker(1, 200))
    rig.channels.send([Addressed(1, metadata_request(2))])
    await settle()

    assert rig.numbers(1) == [2]


def leader_request(number: int) -> LeaderAndIsr:
    """One of many that speak of the same partition, each under a higher leader epoch."""
    at, epoch, replicas = np.zeros(1, np.int32), np.array([number], np.int32), np.array([[1], [2]], np.int32)
    topics = [TopicRef("t", bytes(range(16)))]
    states = PartitionStates(topics, at, at, at, at + np.int32(1), epoch, replicas, epoch, replicas)
    return LeaderAndIsr(controller_id=9, controller_epoch=1, broker_epoch=1, states=states)


async def behind(bench: ChannelRig, *, requests: int = 10, wait_ms: float = SLOW_MS) -> list[Request]:
    """What broker 1 gets, that did not answer for a while."""
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


async def test_what_waits_for_a_slow_broker_is_put_together_but_never_what_is_in_flight(
    rig: ChannelRig,
) -> None:
    arrived = await behind(rig)

    # The first was tried again and again, and may have arrived; of the others the last word is enough.
    assert epochs(arrived) == [0, 9]
    assert len(rig.events) == 2


async def test_what_has_hardly_waited_goes_as_it_is(rig: ChannelRig) -> None:
    assert epochs(await behind(rig, wait_ms=SLOW_MS / 4)) == list(range(10))


async def test_a_broker_that_takes_one_request_soon_after_the_other_is_not_slow_however_many_wait(
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
async def test_a_broker_is_slow_only_beside_others(rig: ChannelRig, slow_too: int, put_together: bool) -> None:
    """If most of them take as long, it is we who are slow, and putting together would make us slower."""
    for broker in range(2, 5):
        rig.channels.add(Broker(broker, 100 + broker))
    slow = range(2, 2 + slow_too)
    rig.wire.hanging.update(slow)
    rig.channels.send(Addressed(broker, leader_request(0)) for broker in slow)

    arrived = await behind(rig)

    assert epochs(arrived) == ([0, 9] if put_together else list(range(10)))


async def test_with_parity_everything_goes_as_it_is(rig: ChannelRig) -> None:
    rig.channels._coalesce = False
    rig.channels.remove(1)
    rig.channels.add(Broker(1, 200))

    assert epochs(await behind(rig)) == list(range(10))


async def test_a_queue_is_looked_at_before_it_grows_large(rig: ChannelRig) -> None:
    rig.wire.hanging.add(1)
    longest = 0
    for number in range(1000):
        rig.channels.send([Addressed(1, leader_request(number)), Addressed(1, metadata_request(1))])
        await asyncio.sleep(0)
        longest = max(longest, len(rig.channels[1]))

    assert longest <= COALESCE_COUNT
    assert not any(isinstance(event, BrokerLagged) for event in rig.events)


async def test_whom_the_broker_knows_to_be_alive_is_what_it_was_told_last(rig: ChannelRig) -> None:
    """A follower that does not know its leader to be alive does not follow, and keeps its epoch."""

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

    # Led by 2 again only after 2 is known to be alive again.
    assert [type(request).__name__ for request in arrived] == [
        "UpdateMetadata",
        "UpdateMetadata",
        "LeaderAndIsr",
    ]
    assert epochs(arrived) == [10]


def led_by_2(number: int) -> LeaderAndIsr:
    request = leader_request(number)
    return dataclasses.replace(request, states=dataclasses.replace(request.states, leader=np.array([2], np.int32)))
