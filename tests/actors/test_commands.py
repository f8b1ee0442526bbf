"""Requests to a controller instance that no other test file covers."""

import anyio
import pytest

from kactl.actors.actor import ActorStopped
from kactl.decide.messages.admin import ResignController
from kactl.model.errors import BadRequest, BrokerNotAvailable, NotController
from tests.support.clocks import settle
from tests.support.controller_harness import open_standby, world

pytestmark = pytest.mark.anyio


async def test_restored_broker_is_elected_again() -> None:
    async with world(1, 2) as here:
        here.controller.cluster.mark_shutting_down(2)
        await here.create("u", [[2]])
        assert here.known("u-0").leader == -1

        await here.controller.restore(2)
        await settle()

        assert here.known("u-0").leader == 2
        assert here.brokers.told(2)["u-0"][0] == 2


async def test_unknown_broker_cannot_be_restored() -> None:
    async with world(1) as here:
        with pytest.raises(BrokerNotAvailable):
            await here.controller.restore(9)


async def test_resign_applies_to_the_given_epoch_only() -> None:
    async with world(1) as here:
        with pytest.raises(BadRequest, match="read it again"):
            await here.controller.resign(expected_epoch=7)
        assert here.controller.is_active

        await here.controller.resign(expected_epoch=1)
        await settle()

        assert here.controller.cluster.fence.epoch == 2


async def test_wait_for_leaders_fails_when_the_controllership_moves() -> None:
    """This instance would never see the leaders."""
    async with world(1, 2) as here:
        here.controller.cluster.mark_shutting_down(2)
        heard: list[BaseException] = []

        async def wait() -> None:
            try:
                await here.controller.create_topic("t", assignment={0: [2]})
            except NotController as moved:
                heard.append(moved)

        other, _ = open_standby(here, 101, take_over=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await settle()
            async with other:
                await settle()

        assert [type(each) for each in heard] == [NotController]


async def test_stopped_instance_rejects_requests() -> None:
    async with world(1) as here:
        other, _ = open_standby(here, 101)
        async with other:
            pass

        with pytest.raises(ActorStopped):
            await other.ask(ResignController())
