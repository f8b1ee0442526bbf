"""A group of participants in one process."""

import anyio
import pytest

from kactl.model.errors import BadRequest, BrokerIdTaken, NotFound
from kactl.participant import Life, Participants
from kactl.runtime.patience import START_TIMEOUT_MS

from .conftest import SESSION_MS, Network, Recorder

pytestmark = pytest.mark.anyio


def participants(network: Network, count: int) -> Participants:
    return Participants(
        count,
        store=network.store,
        hub=network.hub,
        clock=network.clock,
        listener=lambda broker: Recorder(),
        session_timeout_ms=SESSION_MS,
    )


async def test_participants_start_and_end_together(network: Network) -> None:
    async with participants(network, 3) as brokers:
        assert brokers.ids == (1, 2, 3)
        assert len(brokers) == 3
        assert await network.registered() == [1, 2, 3]

    assert await network.registered() == []


async def test_participants_are_controlled_one_by_one(network: Network) -> None:
    async with participants(network, 3) as brokers:
        epoch = brokers[3].epoch
        await brokers.kill(1)
        brokers.pause(2)
        await brokers.restart(3)

        assert [broker.life for broker in brokers] == [Life.ENDED, Life.PAUSED, Life.RUNNING]
        assert brokers[3].epoch > epoch

        brokers.resume(2)
        assert brokers[2].life is Life.RUNNING


@pytest.mark.parametrize("call", ["kill", "restart"])
async def test_unknown_id_raises_not_found(network: Network, call: str) -> None:
    async with participants(network, 1) as brokers:
        with pytest.raises(NotFound, match="there is no participant 2"):
            await getattr(brokers, call)(2)


async def test_no_participant_runs_if_one_cannot_start(network: Network) -> None:
    rejected = []

    async def start() -> None:
        with pytest.raises(BrokerIdTaken):
            async with participants(network, 3):
                pass
        rejected.append(True)

    async with network.participant(2), anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await network.clock.advance(START_TIMEOUT_MS + SESSION_MS)

        assert rejected
        assert await network.registered() == [2]


async def test_start_after_a_crash_waits_for_old_registrations(network: Network) -> None:
    async with participants(network, 2) as crashed:
        for broker in crashed.ids:
            await crashed.kill(broker)

        async with anyio.create_task_group() as tasks:
            started = []

            async def start() -> None:
                async with participants(network, 2) as brokers:
                    started.append(brokers.ids)

            tasks.start_soon(start)
            await network.clock.advance(SESSION_MS + 2_000)
            assert started == [(1, 2)]


@pytest.mark.parametrize("count", [-1, 1_001])
async def test_invalid_count_is_rejected(network: Network, count: int) -> None:
    with pytest.raises(BadRequest, match="count"):
        participants(network, count)
