"""A controller over one existing partition: t-0, led by broker 1 under leader epoch 5, stored with version 9.

An earlier controller writes this state into the store.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal, IsrResult
from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode
from kactl.stores.base import Names
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import CONTROLLER, RecordingBrokers, World
from tests.support.store_clients import new_write

T0 = TopicPartition("t", 0)
EPOCH, VERSION = 5, 9
ID = b"t" * 16


@asynccontextmanager
async def led_partition(
    *,
    isr: tuple[int, ...] = (1, 2),
    recovering: bool = False,
    brokers: tuple[int, ...] = (1, 2),
    assignment: Assignment | None = None,
    partitions: int = 1,
    make_store: Callable[[MemoryStore], MemoryStore] = MemoryStore.another,
    **options: Any,
) -> AsyncIterator[World]:
    """Open a controller over the partition described in the module docstring.

    Args:
        partitions: number of partitions, all in the same state.
        make_store: builds the controller's store client from another client.
        options: further options of the controller.
    """
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(MemoryStore(clock=clock))
        held = assignment or Assignment((1, 2))
        await admin.create_topic(TopicRef("t", ID), dict.fromkeys(range(partitions), held), {})
        names = [TopicPartition("t", number) for number in range(partitions)]
        fence = await admin.contest(99)
        await admin.commit(new_write(names, leader=1, leader_epoch=EPOCH, isr=isr, recovering=recovering), fence)
        for name in names:
            state = (await admin.leaderships(Names.of([name]))).one(0)
            assert state is not None
            for version in range(VERSION):
                assert await admin.write_isr(name, state, expected=version) == version + 1
        await admin.resign(fence)
        transport = RecordingBrokers()
        controller = Controller(CONTROLLER, store=make_store(admin), transport=transport, clock=clock, **options)
        made = World(clock, admin, controller, transport)
        await made.start(*brokers)
        await stack.enter_async_context(controller)
        await settle()
        assert controller.is_active
        made.brokers.forget()
        yield made
        await settle()
        if controller.is_active:
            await made.check()


async def send_request(made: World, asked: ControllerRequest) -> Any:
    """Send a broker's request to the controller. Returns the response."""
    found = made.controller.hub.controller(CONTROLLER)
    assert found is not None
    answer = await found(asked)
    await settle()
    return answer


def epoch_of(made: World, broker: int) -> int:
    """Returns the epoch of a broker's registration."""
    return made.controller.cluster.brokers[broker].epoch


def proposal(
    isr: tuple[int, ...] = (1, 2),
    *,
    partition: int = 0,
    version: int = VERSION,
    leader_epoch: int = EPOCH,
    recovering: bool | int = False,
    topic: TopicRef | None = None,
    broker_epochs: tuple[int, ...] = (),
) -> IsrProposal:
    """ISR proposal for t-0 that names the topic by name and by id. The controller uses the one of its protocol
    level."""
    ref = topic or TopicRef("t", ID)
    return IsrProposal(ref, partition, leader_epoch, isr, version, recovering, broker_epochs)


async def propose(
    made: World, *proposals: IsrProposal, broker: int = 1, broker_epoch: int | None = None, version: int = 3
) -> list[IsrResult]:
    by_id = version >= 2
    named = [
        msgspec.structs.replace(each, topic=TopicRef("", each.topic.id) if by_id else TopicRef(each.topic.name))
        for each in proposals
    ]
    epoch = epoch_of(made, broker) if broker_epoch is None else broker_epoch
    answer: list[IsrResult] = await send_request(made, AlterPartitionReceived(broker, epoch, tuple(named), version))
    return answer


async def isr_error(made: World, isr: tuple[int, ...] = (1, 2), **columns: Any) -> ErrorCode:
    """Propose an ISR for t-0. Returns the error code; nothing may be stored."""
    before = await made.store.leaderships(Names.of([T0]))
    (result,) = await propose(made, proposal(isr, **columns))
    after = await made.store.leaderships(Names.of([T0]))
    assert before.one(0) == after.one(0)
    assert result.leadership is None
    return result.error
