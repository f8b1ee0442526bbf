"""A listener leads only under a lease."""

from typing import Any

import anyio
import pytest

from kactl.decide.messages.broker import ReportPartitions
from kactl.model import ReplicaStatus, TopicPartition
from kactl.participant import Listener, Participant
from tests.participant.conftest import SESSION_MS, Network, Recorder
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, ORDERS_1, StateRow, stop_replica, update_metadata

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7)
LEADS, STOPS = "leads orders-0 at 7 with (1, 2, 3)", "stops orders-0"


async def lapse(network: Network, participant: Participant) -> None:
    """Stop the participant for longer than its lease, and shorter than its session."""
    participant.pause()
    await network.clock.advance(SESSION_MS - 100)


async def test_listener_is_stopped_at_a_lapse_and_leads_again_afterwards(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, LED, StateRow(BILLS_0, leader=2))
        before = list(recorder.calls)
        await lapse(network, participant)
        participant.resume()
        await settle()

        assert recorder.calls == [*before, STOPS, LEADS]
        assert participant.leadership(ORDERS_0) is not None


async def test_lapse_ends_before_the_margin_does(network: Network) -> None:
    """Only the store is silent; the participant runs."""
    recorder = Recorder()
    async with network.participant(listener=recorder) as participant:
        await network.lead_and_follow(1, LED)
        assert participant._session is not None
        participant._session.renew = silent  # type: ignore[method-assign]
        await network.clock.advance(SESSION_MS * 0.9)

        assert recorder.calls == [LEADS, STOPS]
        assert await network.registered() == [1]


async def silent(sent_ns: int) -> None:
    await anyio.sleep_forever()


@pytest.mark.parametrize("order", ["follow", "stop", "lead"])
async def test_newer_order_during_a_lapse_replaces_the_leadership(network: Network, order: str) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, LED)
        assert participant._incarnation is not None
        lease = participant._incarnation._lease
        participant._incarnation.lease_ended()
        await settle()
        recorder.calls.clear()
        if order == "stop":
            await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        else:
            leader = 1 if order == "lead" else 2
            assert await network.lead_and_follow(1, LED.but(leader_epoch=8, leader=leader)) == [0]
        during = list(recorder.calls)
        recorder.calls.clear()
        participant._incarnation.lease_began(lease)
        await settle()

        assert during == {"stop": [STOPS], "follow": ["follows 2 for orders-0 at 8"], "lead": []}[order]
        assert recorder.calls == (["leads orders-0 at 8 with (1, 2, 3)"] if order == "lead" else [])


async def test_follower_since_a_lapse_is_stopped_with_the_registration(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, LED)
        assert participant._incarnation is not None
        participant._incarnation.lease_ended()
        await network.lead_and_follow(1, LED.but(leader_epoch=8, leader=2))
        recorder.calls.clear()

        await participant.stop()

        assert recorder.calls == [STOPS]


async def test_session_that_ends_after_a_lapse_stops_each_replica_once(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, LED, StateRow(BILLS_0, leader=2))
        recorder.calls.clear()
        participant.pause()
        await network.clock.advance(2 * SESSION_MS)
        participant.resume()
        await network.clock.advance(1_000)

        assert sorted(recorder.calls) == ["stops bills-0", STOPS]


async def test_asynchronous_listener_is_called_in_order(network: Network) -> None:
    calls: list[str] = []
    delay_ms = 5

    class Slow(Listener):
        async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            await network.clock.sleep_ms(delay_ms)
            calls.append(f"leads {name}")

        async def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
            await network.clock.sleep_ms(delay_ms)
            calls.append(f"stops {name}")

    async with network.participant(listener=Slow()) as participant, anyio.create_task_group() as tasks:
        tasks.start_soon(network.lead_and_follow, 1, LED, StateRow(ORDERS_1))
        await network.clock.advance(20)
        await lapse(network, participant)
        participant.resume()
        await network.clock.advance(50)
        delay_ms = 0

    names = (ORDERS_0, ORDERS_1)
    leads, stops = [f"leads {name}" for name in names], [f"stops {name}" for name in names]
    assert calls == [*leads, *stops, *leads, *stops]  # the last ones at the end of the block


@pytest.mark.parametrize("recovery", ["lead", "follow", "delete", "next lease"])
async def test_failure_after_a_lapse_is_reported_until_a_call_succeeds(network: Network, recovery: str) -> None:
    """The response to the order to lead was sent before."""
    received: list[Any] = []

    async def receive(request: Any) -> None:
        received.append(request)

    def reports() -> list[tuple[TopicPartition, int, ReplicaStatus]]:
        every = [one for asked in received if isinstance(asked, ReportPartitions) for one in asked.reports]
        return [(report.partition, report.leader_epoch, report.status) for report in every]

    async with network.participant(listener=(recorder := Recorder())) as participant:
        network.hub.attach_controller(100, receive)
        await network.send(1, update_metadata())
        await network.lead_and_follow(1, LED, StateRow(ORDERS_1))
        recorder.failing.add(ORDERS_0)
        await lapse(network, participant)
        participant.resume()
        await settle()
        assert reports() == [(ORDERS_0, 7, ReplicaStatus.FAILED)]
        assert recorder.calls[-1] == "leads orders-1 at 0 with (1, 2, 3)"
        if recovery == "lead":
            assert await network.lead_and_follow(1, LED.but(leader_epoch=8)) == [56]
        recorder.failing.clear()

        match recovery:
            case "lead":
                await network.lead_and_follow(1, LED.but(leader_epoch=9))
            case "follow":
                await network.lead_and_follow(1, LED.but(leader_epoch=9, leader=2))
            case "delete":
                await network.send(1, stop_replica(ORDERS_0, leader_epoch=9, delete=True))
            case "next lease":
                await lapse(network, participant)
                participant.resume()
        await settle()
        await network.lead_and_follow(1, LED.but(leader_epoch=10))
        await settle()

        epoch = 7 if recovery in ("delete", "next lease") else 9
        assert reports()[1:] == [(ORDERS_0, epoch, ReplicaStatus.READY)]


# -- calls that hang ---------------------------------------------------------------------------------------------------


class Hanging(Recorder):
    """Records its calls; those in `hangs` do not end, and those in `ignores` not even when they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: set[TopicPartition] = set()
        self.ignores: set[TopicPartition] = set()
        self.ended = anyio.Event()

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> Any:
        super().became_leader(name, leader_epoch=leader_epoch, isr=isr)
        return self._hang(name)

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> Any:
        super().became_follower(name, leader=leader, leader_epoch=leader_epoch)
        return self._hang(name)

    async def _hang(self, name: TopicPartition) -> None:
        if name in self.ignores:
            with anyio.CancelScope(shield=True):
                await self.ended.wait()
        if name in self.hangs:
            await anyio.sleep_forever()


TIMEOUT_MS = 2_000


async def test_call_that_hangs_is_cancelled_and_counts_as_failed(network: Network) -> None:
    recorder = Hanging()
    recorder.hangs.add(ORDERS_0)
    async with (
        network.participant(listener=recorder, transition_timeout_ms=TIMEOUT_MS) as participant,
        anyio.create_task_group() as tasks,
    ):
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await network.lead_and_follow(1, LED, StateRow(ORDERS_1), StateRow(BILLS_0, leader=2)))

        tasks.start_soon(send)
        await network.clock.advance(TIMEOUT_MS - 1)
        assert answers == []
        await network.clock.advance(1)
        await settle()

        assert answers == [[56, 0, 0]]
        assert participant.leadership(ORDERS_0) is None
        assert participant.leadership(ORDERS_1) is not None


async def test_partition_of_a_call_that_ignores_its_cancellation_gets_no_other(network: Network) -> None:
    recorder = Hanging()
    recorder.ignores.add(ORDERS_0)
    async with (
        network.participant(listener=recorder, transition_timeout_ms=TIMEOUT_MS) as participant,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.lead_and_follow, 1, LED)
        await network.clock.advance(TIMEOUT_MS)
        await network.clock.advance(SESSION_MS / 10)
        await settle()
        calls = list(recorder.calls)

        refused = await network.lead_and_follow(1, LED.but(leader_epoch=8), StateRow(ORDERS_1))
        recorder.ended.set()
        await settle()
        accepted = await network.lead_and_follow(1, LED.but(leader_epoch=9))

        assert (calls, refused, accepted) == ([LEADS], [56, 0], [0])
        assert recorder.calls[1:] == ["leads orders-1 at 0 with (1, 2, 3)", LEADS.replace("7", "9")]
        assert participant.leadership(ORDERS_0) is not None


async def test_call_that_leads_is_cancelled_at_the_end_of_the_lease(network: Network) -> None:
    recorder = Hanging()
    recorder.hangs.add(ORDERS_0)
    async with (
        network.participant(listener=recorder, transition_timeout_ms=600_000) as participant,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.lead_and_follow, 1, LED, StateRow(ORDERS_1))
        await settle()
        assert participant._session is not None
        participant._session.renew = silent  # type: ignore[method-assign]
        await network.clock.advance(SESSION_MS * 0.9)

        # orders-1 is not led after the end of the lease.
        assert recorder.calls == [LEADS, STOPS]
        assert await network.registered() == [1]


async def test_calls_that_a_lapse_has_cancelled_are_made_again_under_the_next_lease(network: Network) -> None:
    recorder = Hanging()
    recorder.hangs.add(ORDERS_0)
    async with (
        network.participant(listener=recorder, transition_timeout_ms=600_000) as participant,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.lead_and_follow, 1, LED, StateRow(ORDERS_1))
        await settle()
        await lapse(network, participant)
        recorder.hangs.clear()
        participant.resume()
        await settle()

        assert recorder.calls[:2] == [LEADS, STOPS]
        assert sorted(recorder.calls[2:]) == [LEADS, "leads orders-1 at 0 with (1, 2, 3)"]
        assert participant.leadership(ORDERS_0) is not None
        assert participant.leadership(ORDERS_1) is not None
