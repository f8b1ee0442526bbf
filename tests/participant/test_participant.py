"""Lifecycle of a participant."""

import anyio
import pytest

from kactl.decide.messages.control import Response, UpdateMetadataResponse
from kactl.model import Broker, Endpoint, TopicPartition
from kactl.model.errors import BrokerIdTaken, BrokerUnreachable, StoreUnavailable
from kactl.participant import Life, Listener, Participant
from kactl.participant.registrar import RETRY_MS
from kactl.runtime.patience import START_TIMEOUT_MS
from kactl.stores.memory import MemoryStore
from kactl.stores.memory.store import MemorySession
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import ORDERS_0, StateRow, leader_and_isr, update_metadata

from .conftest import SESSION_MS, Network, Recorder

pytestmark = pytest.mark.anyio


async def test_participant_is_registered_during_its_block(network: Network) -> None:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
    participant = Participant(
        7, store=network.store, hub=network.hub, clock=network.clock, rack="r2", endpoints=(endpoint,)
    )
    lives = [participant.life]

    async with participant:
        registered = await network.store.broker(7)
        assert registered is not None
        assert (registered.endpoints, registered.rack) == ((endpoint,), "r2")
        assert registered.epoch == participant.epoch
        lives.append(participant.life)

    assert await network.registered() == []
    assert [*lives, participant.life] == [Life.NEW, Life.RUNNING, Life.ENDED]


async def test_keep_alives_preserve_the_registration(network: Network) -> None:
    async with network.participant() as participant:
        epoch = participant.epoch
        for _ in range(30):
            await network.clock.advance(SESSION_MS / 3)

        assert await network.registered() == [1]
        assert participant.epoch == epoch


async def test_killed_participant_is_registered_until_its_session_expires(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0))
        await participant.kill()

        assert await network.registered() == [1]
        with pytest.raises(BrokerUnreachable):
            await network.send(1, update_metadata())
        assert participant.life is Life.ENDED
        assert recorder.calls == ["leads orders-0 at 0 with (1, 2, 3)"]  # `stopped` is not called

        await network.clock.advance(SESSION_MS + 1_000)
        assert await network.registered() == []


async def test_kill_fails_pending_requests(network: Network) -> None:
    async with network.participant() as participant, anyio.create_task_group() as tasks:
        participant.pause()
        unreachable = []

        async def deliver() -> None:
            with pytest.raises(BrokerUnreachable, match="ended"):
                await network.send(1, update_metadata())
            unreachable.append(True)

        tasks.start_soon(deliver)
        await settle()
        await participant.kill()
        await settle()

        assert unreachable


async def test_stop_unregisters_at_once_and_calls_stopped(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0))
        await participant.stop()

        assert await network.registered() == []
        assert recorder.calls[-1] == "stops orders-0"


async def test_restart_raises_the_epoch_and_clears_all_state(network: Network) -> None:
    async with network.participant() as participant:
        first = participant.epoch
        await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=5), epoch=9)

        await participant.restart()

        assert participant.epoch > first
        assert participant.hosts == []
        assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=5), epoch=2) == [0]


async def test_restart_after_kill_waits_for_the_old_registration(network: Network) -> None:
    async with network.participant() as participant, anyio.create_task_group() as tasks:
        first = participant.epoch
        await participant.kill()

        tasks.start_soon(participant.restart)
        await network.clock.advance(SESSION_MS - 1_000)
        assert participant.epoch == -1

        await network.clock.advance(2_000)
        assert participant.epoch > first
        assert await network.send(1, update_metadata()) == UpdateMetadataResponse(error=0)


async def test_id_of_a_live_participant_is_not_taken_over(network: Network) -> None:
    async with network.participant() as first, anyio.create_task_group() as tasks:
        rejected = []

        async def second() -> None:
            with pytest.raises(BrokerIdTaken):
                async with network.participant():
                    pass
            rejected.append(True)

        tasks.start_soon(second)
        await network.clock.advance(START_TIMEOUT_MS + SESSION_MS)

        assert rejected
        assert await network.lead_and_follow(1, StateRow(ORDERS_0)) == [0]
        assert first.hosts == [ORDERS_0]


async def test_paused_participant_responds_after_resume(network: Network) -> None:
    async with network.participant() as participant, anyio.create_task_group() as tasks:
        answers: list[Response] = []

        async def deliver() -> None:
            answers.append(await network.send(1, update_metadata()))

        participant.pause()
        assert participant.life is Life.PAUSED
        tasks.start_soon(deliver)
        await network.clock.advance(1_000)
        assert not answers

        participant.resume()
        await settle()
        assert answers == [UpdateMetadataResponse(error=0)]


async def test_short_pause_keeps_registration_and_replicas(network: Network) -> None:
    async with network.participant() as participant:
        epoch = participant.epoch
        await network.lead_and_follow(1, StateRow(ORDERS_0))

        participant.pause()
        await network.clock.advance(SESSION_MS / 2)
        participant.resume()
        await network.clock.advance(2 * SESSION_MS)

        assert participant.epoch == epoch
        assert participant.hosts == [ORDERS_0]


async def test_long_pause_loses_registration_and_replicas(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        first = participant.epoch
        await network.lead_and_follow(1, StateRow(ORDERS_0))

        participant.pause()
        await network.clock.advance(2 * SESSION_MS)
        assert await network.registered() == []
        participant.resume()
        await network.clock.advance(1_000)

        assert await network.registered() == [1]
        assert participant.epoch > first
        assert participant.hosts == []
        assert recorder.calls[-1] == "stops orders-0"


async def test_lost_registration_fails_pending_requests(network: Network) -> None:
    class Hanging(Listener):
        async def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
            await anyio.sleep_forever()

    async with network.participant(listener=Hanging()) as participant, anyio.create_task_group() as tasks:
        unreachable = []

        async def deliver() -> None:
            with pytest.raises(BrokerUnreachable, match="ended"):
                await network.lead_and_follow(1, StateRow(ORDERS_0, leader=2))
            unreachable.append(True)

        tasks.start_soon(deliver)
        await settle()
        participant.pause()
        await network.clock.advance(2 * SESSION_MS)
        participant.resume()
        await settle()

        assert unreachable
        assert participant.life is Life.RUNNING
        assert await network.send(1, update_metadata()) == UpdateMetadataResponse(error=0)


async def test_request_for_an_earlier_registration_is_rejected(network: Network) -> None:
    async with network.participant() as participant:
        late = leader_and_isr(StateRow(ORDERS_0), broker_epoch=participant.epoch)
        await participant.restart()

        response = await network.send(1, late)

        assert getattr(response, "error", None) == 77
        assert participant.hosts == []


async def test_cancelled_request_is_still_carried_out(network: Network) -> None:
    async with network.participant() as participant:
        participant.pause()
        with anyio.move_on_after(0):
            await network.send(1, leader_and_isr(StateRow(ORDERS_0)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.send, 1, leader_and_isr(StateRow(ORDERS_0)))
            await settle()
            tasks.cancel_scope.cancel()

        participant.resume()
        await settle()

        assert participant.hosts == [ORDERS_0]


class LostResponse(MemoryStore):
    """Commits the first registration, and raises instead of confirming it."""

    loses_response = True

    async def new_session(self, timeout_ms: int) -> MemorySession:
        session = await super().new_session(timeout_ms)
        if self.loses_response:
            self.loses_response = False
            await session.register(Broker(1, 0))
            session.register = fail  # type: ignore[method-assign]
        return session


async def fail(broker: Broker) -> int:
    raise StoreUnavailable("the connection broke")


async def test_unconfirmed_registration_does_not_block_the_next_one() -> None:
    clock = ManualClock()
    async with LostResponse(clock=clock) as store, anyio.create_task_group() as tasks:
        participant = Network(store, clock).participant()
        await participant.open()
        tasks.start_soon(participant.start)

        await clock.advance(RETRY_MS)  # less than a session timeout

        registered = await store.broker(1)
        assert registered is not None
        assert registered.epoch == participant.epoch
        await participant.close()


async def test_start_outside_of_a_block_opens_the_participant(network: Network) -> None:
    participant = network.participant()

    await participant.start()
    registered = await network.registered()
    await participant.aclose()

    assert registered == [participant.id]
    assert await network.registered() == []


async def test_error_of_the_block_is_raised_unchanged(network: Network) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with network.participant():
            raise ValueError("mine")

    assert await network.registered() == []
