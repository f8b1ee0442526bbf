"""Some participants under one name."""

import anyio
import pytest

from kactl.errors import BadRequest, BrokerIdTaken, NotFound
from kactl.participant import Life, Participants

from .conftest import SESSION_MS, Network, Notes

pytestmark = pytest.mark.anyio


def group(network: Network, count: int) -> Participants:
    return Participants(
        count,
        store=network.store,
        hub=network.hub,
        clock=network.clock,
        listener=lambda broker: Notes(),
        session_timeout_ms=SESSION_MS,
    )


async def test_they_live_and_end_together(network: Network) -> None:
    async with group(network, 3) as brokers:
        assert brokers.ids == (1, 2, 3)
        assert len(brokers) == 3
        assert await network.registered() == [1, 2, 3]

    assert await network.registered() == []


async def test_each_has_a_life_of_its_own(network: Network) -> None:
    async with group(network, 3) as brokers:
        epoch = brokers[3].epoch
        await brokers.kill(1)
        brokers.pause(2)
        await brokers.restart(3)

        assert [broker.life for broker in brokers] == [Life.ENDED, Life.PAUSED, Life.RUNNING]
        assert brokers[3].epoch > epoch

        brokers.resume(2)
        assert brokers[2].life is Life.RUNNING


@pytest.mark.parametrize("call", ["kill", "restart"])
async def test_nobody_has_that_id(network: Network, call: str) -> None:
    async with group(network, 1) as brokers:
        with pytest.raises(NotFound, match="there is no participant 2"):
            await getattr(brokers, call)(2)


async def test_if_one_cannot_start_none_runs(network: Network) -> None:
    refused = []

    async def start() -> None:
        with pytest.raises(BrokerIdTaken):
            async with group(network, 3):
                pass
        refused.append(True)

    async with network.participant(2), anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await network.clock.advance(3 * SESSION_MS)

        assert refused
        assert await network.registered() == [2]


async def test_after_a_crash_they_wait_for_their_old_registrations(network: Network) -> None:
    async with group(network, 2) as crashed:
        for broker in crashed.ids:
            await crashed.kill(broker)

        async with anyio.create_task_group() as tasks:
            started = []

            async def start() -> None:
                async with group(network, 2) as brokers:
                    started.append(brokers.ids)

            tasks.start_soon(start)
            await network.clock.advance(SESSION_MS + 2_000)
            assert started == [(1, 2)]


@pytest.mark.parametrize("count", [-1, 1_001])
async def test_a_number_that_cannot_be_is_refused(network: Network, count: int) -> None:
    with pytest.raises(BadRequest, match="count"):
        group(network, count)
