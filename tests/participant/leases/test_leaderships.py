"""Leaderships of a participant, and their leases."""

import pytest

from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, LeadershipLost, StoreUnavailable
from kactl.participant import Listener, Participant
from kactl.participant.leases.events import LeaseEvent, LeaseLapsed, LeaseResumed
from kactl.participant.leases.terms import LeaseConfig
from kactl.participant.leases.token import FencingToken
from kactl.stores.memory.store import MemorySession
from tests.participant.conftest import SESSION_MS, Network, network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ID_A, ORDERS_0, ORDERS_1, StateRow, stop_replica

__all__ = ["network"]

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7, controller_epoch=4, isr=(1, 3), topic_id=ID_A)
# The store's clock is the participant's, so no drift is subtracted.
LEASE_MS = SESSION_MS - SESSION_MS / 10


async def test_leader_has_a_valid_leadership_with_its_token(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED, StateRow(ORDERS_1, leader=2, topic_id=ID_A), epoch=4)

        leader = participant.leadership("orders-0")

        assert leader is not None
        leader.check()
        assert leader.is_valid
        assert (leader.partition, leader.isr) == (ORDERS_0, (1, 3))
        assert leader.token == FencingToken(4, 7, ID_A)
        assert 0 < leader.remaining_ms() <= LEASE_MS
        assert participant.leadership(ORDERS_0) is leader
        assert participant.leaderships() == [leader]
        assert participant.leadership(ORDERS_1) is participant.leadership(BILLS_0) is None


async def test_topic_id_that_ends_with_zeros_is_complete_in_the_token(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED.but(topic_id=b"a" + b"\0" * 15), epoch=4)

        leader = participant.leadership(ORDERS_0)

        assert leader is not None
        assert leader.token.topic_id == b"a" + b"\0" * 15


@pytest.mark.parametrize("order", ["lead", "follow", "stop", "fail", "restart", "kill"])
async def test_leadership_ends_with_the_next_order(network: Network, order: str) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        leader = participant.leadership(ORDERS_0)
        assert leader is not None

        match order:
            case "lead":
                await network.lead_and_follow(1, LED.but(leader_epoch=9), epoch=4)  # another may have led under 8
            case "follow":
                await network.lead_and_follow(1, LED.but(leader_epoch=8, leader=2), epoch=4)
            case "stop":
                await network.send(1, stop_replica(ORDERS_0, leader_epoch=8, epoch=4))
            case "fail":
                await participant.fail_directory([ORDERS_0])
            case "restart":
                await participant.restart()
            case "kill":
                await participant.kill()

        with pytest.raises(LeadershipLost, match=r"orders-0 under token 4\.7"):
            leader.check()
        assert not leader.is_valid
        assert leader.remaining_ms() <= 0
        again = participant.leadership(ORDERS_0)
        assert (again is not None) is (order == "lead")
        if again is not None:
            assert leader.token < again.token


async def test_lease_ends_during_a_pause_even_if_nothing_runs(network: Network) -> None:
    """As for a stopped process: the first check after it looks at the clock."""
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        leader = participant.leadership(ORDERS_0)
        assert leader is not None
        participant.pause()

        await network.clock.advance(LEASE_MS - 1)
        leader.check()
        await network.clock.advance(1)

        assert await network.registered() == [1]  # the store still waits
        with pytest.raises(LeadershipLost):
            leader.check()


class SilentSession(MemorySession):
    """Loses the responses to its renewals while `silent`."""

    silent = False

    async def renew(self, sent_ns: int) -> None:
        await super().renew(sent_ns)
        if SilentSession.silent:
            raise StoreUnavailable("the connection broke")


async def test_lapsed_leadership_resumes_under_the_same_token(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has received renewals that the participant does not count, so the session outlives the lease."""
    events: list[LeaseEvent] = []
    monkeypatch.setattr("kactl.stores.memory.store.MemorySession", SilentSession)
    participant = Participant(
        1,
        store=network.store,
        hub=network.hub,
        clock=network.clock,
        session_timeout_ms=SESSION_MS,
        shutdown_attempts=0,
        on_lease_event=events.append,
    )
    async with participant:
        await network.lead_and_follow(1, LED, epoch=4)
        first, epoch = participant.leadership(ORDERS_0), participant.epoch
        assert first is not None

        SilentSession.silent = True
        await network.clock.advance(LEASE_MS + 1)
        lapsed = participant.leadership(ORDERS_0), participant.leaderships()
        SilentSession.silent = False
        await network.clock.advance(SESSION_MS / 6)

        second = participant.leadership(ORDERS_0)
        assert lapsed == (None, [])
        assert participant.epoch == epoch
        assert second is not None
        assert second.token == first.token
        assert not first.is_valid
        assert [type(event) for event in events[-2:]] == [LeaseLapsed, LeaseResumed]


async def test_next_registration_leads_only_what_it_is_ordered(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        participant.pause()
        await network.clock.advance(2 * SESSION_MS)
        participant.resume()
        await network.clock.advance(1_000)
        await settle()

        assert participant.leaderships() == []
        await network.lead_and_follow(1, LED.but(leader_epoch=8), epoch=4)
        assert len(participant.leaderships()) == 1


async def test_session_that_is_too_short_for_the_margin_is_rejected(network: Network) -> None:
    participant = Participant(
        1, store=network.store, hub=network.hub, session_timeout_ms=500, lease=LeaseConfig(margin_ms=500)
    )

    with pytest.raises(BadRequest, match=r"lease\.margin_ms"):
        async with participant:
            pass

    assert await network.registered() == []


class Recorder(Listener):
    """Records the calls of `became_leader`; raises `error`."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[int, ...]]] = []
        self.error: Exception | None = None

    def became_leader(self, partition: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self.calls.append((leader_epoch, isr))
        if self.error is not None:
            raise self.error


async def test_leader_of_a_listener_goes_on_while_only_the_isr_changes(network: Network) -> None:
    listener = Recorder()
    async with network.participant(listener=listener) as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        leader = participant.leadership(ORDERS_0)
        assert leader is not None
        await network.lead_and_follow(1, LED.but(leader_epoch=8, isr=(1,), controller_epoch=5), epoch=5)
        await network.lead_and_follow(1, LED.but(leader_epoch=10, isr=(1, 2), unbroken=1), epoch=5)

        leader.check()
        assert participant.leadership(ORDERS_0) is leader
        assert (leader.token, leader.leader_epoch, leader.isr) == (FencingToken(4, 7, ID_A), 10, (1, 2))
        assert listener.calls == [(7, (1, 3)), (8, (1,)), (10, (1, 2))]  # it is told of each ISR


async def test_leader_that_is_looked_up_later_has_the_token_of_the_begin(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        await network.lead_and_follow(1, LED.but(leader_epoch=8, isr=(1,), controller_epoch=5), epoch=5)

        leader = participant.leadership(ORDERS_0)

        assert leader is not None
        assert (leader.token, leader.leader_epoch, leader.isr) == (FencingToken(4, 7, ID_A), 8, (1,))


async def test_leader_of_a_listener_that_fails_ends_and_begins_again_under_another_token(network: Network) -> None:
    listener = Recorder()
    async with network.participant(listener=listener) as participant:
        await network.lead_and_follow(1, LED, epoch=4)
        first = participant.leadership(ORDERS_0)
        assert first is not None
        listener.error = OSError("disk full")
        assert await network.lead_and_follow(1, LED.but(leader_epoch=8), epoch=4) == [56]
        assert not first.is_valid
        assert participant.leadership(ORDERS_0) is None

        listener.error = None
        await network.lead_and_follow(1, LED.but(leader_epoch=9, unbroken=5), epoch=4)
        second = participant.leadership(ORDERS_0)
        assert second is not None
        assert second.token == FencingToken(4, 9, ID_A)
