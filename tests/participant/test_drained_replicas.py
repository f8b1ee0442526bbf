"""Replicas that a controlled shutdown stopped, and that serve again."""

from contextlib import AsyncExitStack

import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ResignController, UndrainBroker
from kactl.decide.messages.broker import ControlledShutdown
from kactl.model import NO_EPOCH, TopicPartition
from kactl.participant import Participant
from kactl.participant.hosted_replicas import Role
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T_0 = TopicPartition("t", 0)
DRAIN = ControlledShutdown(2, NO_EPOCH)


class Drained:
    """A controller, and a follower that is out of the ISR and that the controller has stopped."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> "Drained":
        hub = MemoryHub()
        store = await self.stack.enter_async_context(MemoryStore(clock=self.clock))
        self.controller = await self.stack.enter_async_context(
            Controller(100, store=store.another(), hub=hub, clock=self.clock)
        )
        await settle()
        for broker in (1, 2):
            participant = Participant(
                broker, store=store, hub=hub, clock=self.clock, in_sync=lambda *_: False, shutdown_attempts=0
            )
            self.follower = await self.stack.enter_async_context(participant)
        await settle()
        await self.controller.create_topic("t", assignment={0: (1, 2)})
        await settle()
        # The first drain takes it out of the ISR, under another leader epoch; the second one does not.
        for request in (DRAIN, UndrainBroker(2), DRAIN):
            await self.controller.ask(request)
            await settle()
        assert self.role() is Role.STOPPED
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stack.aclose()

    def role(self) -> Role:
        replica = self.follower.hosted(T_0)
        assert replica is not None
        return replica.role


async def test_undrained_broker_follows_again() -> None:
    async with Drained() as drained:
        await drained.controller.ask(UndrainBroker(2))
        await settle()

        assert drained.role() is Role.FOLLOWER


async def test_broker_stays_drained_under_the_next_controller() -> None:
    async with Drained() as drained:
        await drained.controller.ask(ResignController())
        await settle()

        assert drained.controller.is_active
        assert drained.role() is Role.STOPPED
        await drained.controller.ask(UndrainBroker(2))
        await settle()
        assert drained.role() is Role.FOLLOWER
