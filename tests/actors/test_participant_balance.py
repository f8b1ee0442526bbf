"""Leaderships of participants return a few seconds after these, and stay away from replicas that have resigned."""

from typing import Any

import pytest

from kactl.actors.handlers.balance import PAUSES_MAX
from kactl.decide.messages.admin import ElectionKind
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, NotReady
from tests.support.clocks import settle
from tests.support.controller_harness import world

from .test_partition_reports import Cluster, open_cluster

pytestmark = pytest.mark.anyio

AFTER_MS = 3_000
SESSION_MS = 18_000


async def return_after_kill(cluster: Cluster, broker: int) -> None:
    """Kill a participant, wait until others lead, and start it again."""
    await cluster.brokers[broker].kill()
    await cluster.clock.advance(SESSION_MS + 1_000)
    await cluster.brokers[broker].start()
    await settle()


async def test_leaderships_return_to_a_participant_that_is_back() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await return_after_kill(cluster, 1)
        assert cluster.leader != 1
        second = cluster.leading[cluster.leader]

        await cluster.clock.advance(AFTER_MS + 500)

        assert cluster.leader == 1
        assert cluster.valid == [1]
        assert not second.is_valid
        assert second.token < cluster.leading[1].token


async def test_replicas_that_are_not_in_sync_are_waited_for() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, NotReady(40_000))  # and not in sync until then
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await return_after_kill(cluster, 3)
        await cluster.clock.advance(AFTER_MS + 500)
        assert cluster.leader == 2

        cluster.prepare.clear()
        await cluster.clock.advance(AFTER_MS << PAUSES_MAX)

        assert cluster.leader == 1


async def test_takeover_schedules_the_check_too() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await return_after_kill(cluster, 1)
        await cluster.controller.resign()
        await cluster.clock.advance(1_000)

        await cluster.clock.advance(AFTER_MS + 1_000)

        assert cluster.leader == 1


async def test_drained_participant_gets_nothing_back() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await cluster.controller.drain(1)
        await return_after_kill(cluster, 3)

        await cluster.clock.advance(10 * AFTER_MS)

        assert cluster.leader == 2


@pytest.mark.parametrize("settings", [{"participant_balance_ms": 0}, {"auto_balance": False}], ids=["0", "off"])
async def test_return_of_leaderships_is_switched_off(settings: dict[str, Any]) -> None:
    async with open_cluster(**settings) as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await return_after_kill(cluster, 1)
        led = cluster.leader

        await cluster.clock.advance(10 * AFTER_MS)

        assert cluster.leader == led != 1


async def test_kafka_brokers_wait_for_the_interval() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.wait(6_000)  # the first check after a takeover
        await w.stop(1)
        await w.start(1)
        await w.write_isr("t-0", 1, 2)

        await w.wait(30_000)

        assert (await w.stored("t-0"))[0] == 2


# -- leaderships that were resigned ------------------------------------------------------------------------------------


async def resigned(cluster: Cluster, **options: Any) -> None:
    """Let broker 1 resign t-0, and another participant return, which makes the check due."""
    await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
    await settle()
    await cluster.leading[1].resign("maintenance", **options)
    await cluster.clock.advance(2_000)
    assert cluster.leader == 2
    await return_after_kill(cluster, 3)


async def test_resigned_leadership_does_not_return_by_itself() -> None:
    async with open_cluster(balance_interval_ms=10_000) as cluster:
        await resigned(cluster)

        await cluster.clock.advance(60_000)

        assert cluster.leader == 2


async def test_resigned_leadership_returns_after_its_hold() -> None:
    async with open_cluster(balance_interval_ms=10_000) as cluster:
        await resigned(cluster, hold_ms=60_000)
        await cluster.clock.advance(30_000)
        assert cluster.leader == 2

        await cluster.clock.advance(30_000)

        assert cluster.leader == 1


async def test_resignation_without_a_hold_ends_at_the_next_check() -> None:
    async with open_cluster() as cluster:
        await resigned(cluster, hold_ms=0)

        await cluster.clock.advance(AFTER_MS + 500)

        assert cluster.leader == 1


@pytest.mark.parametrize("named", [True, False])
async def test_requested_preferred_election_ends_the_hold(named: bool) -> None:
    async with open_cluster() as cluster:
        await resigned(cluster)

        await cluster.controller.elect(ElectionKind.PREFERRED, [TopicPartition("t", 0)] if named else None)
        await settle()

        assert cluster.leader == 1


async def test_next_registration_has_no_hold() -> None:
    async with open_cluster() as cluster:
        await resigned(cluster)
        await return_after_kill(cluster, 1)

        await cluster.clock.advance(AFTER_MS + 500)

        assert cluster.leader == 1


async def test_held_replica_leads_if_no_other_can() -> None:
    async with open_cluster() as cluster:
        await resigned(cluster)
        await cluster.brokers[2].kill()
        await cluster.brokers[3].kill()

        await cluster.clock.advance(SESSION_MS + 2_000)

        assert cluster.leader == 1


@pytest.mark.parametrize("hold_ms", [-1, "soon", 1.5, True])
async def test_invalid_hold_is_rejected(hold_ms: Any) -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()

        with pytest.raises(BadRequest, match="hold_ms"):
            await cluster.leading[1].resign("maintenance", hold_ms=hold_ms)

        assert cluster.leading[1].is_valid
