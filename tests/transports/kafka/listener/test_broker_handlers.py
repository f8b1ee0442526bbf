"""Requests of brokers over the wire, and their responses, in every version."""

import asyncio
import dataclasses
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.broker import (
    AllocateProducerIds,
    AlterPartitionReceived,
    ControlledShutdown,
    IsrProposal,
    IsrResult,
)
from kactl.model import ZERO_ID, Broker, Endpoint, Leadership, ProducerIdBlock, TopicPartition, TopicRef
from kactl.model.errors import BrokerNotAvailable, BrokerNotRegistered, ErrorCode, KactlError, StaleBrokerEpoch
from kactl.transports.kafka.listener.broker_handlers import PROPOSALS_MAX

from .client import connected, part, request_class
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio
ORDERS = TopicRef("orders", bytes(range(16)))


@pytest.mark.parametrize("version", [0, 1])
async def test_shutdown_without_an_epoch_is_rejected(version: int) -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: []})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(7, version)(broker_id=2))

    assert answer.error_code is KioError.stale_broker_epoch
    assert controller.requests == []


@pytest.mark.parametrize("version", [2, 3])
async def test_stopping_broker_receives_its_remaining_partitions(version: int) -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: [TopicPartition("orders", 3), TopicPartition("eu", 0)]})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(7, version)(broker_id=2, broker_epoch=77))

    assert controller.requests == [ControlledShutdown(2, 77)]
    assert answer.error_code is KioError.none
    assert [(partition.topic_name, partition.partition_index) for partition in answer.remaining_partitions] == [
        ("orders", 3),
        ("eu", 0),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StaleBrokerEpoch(2, 76, 77), KioError.stale_broker_epoch),
        (BrokerNotAvailable(2), KioError.broker_not_available),
        (KactlError("a store that fails"), KioError.unknown_server_error),
        (RuntimeError("a bug"), KioError.unknown_server_error),
    ],
    ids=["stale epoch", "unknown broker", "store", "bug"],
)
async def test_shutdown_is_rejected_by_code_and_the_connection_stays_open(error: Exception, code: KioError) -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: error})
    async with listening(controller) as (_, port), connected(port) as client:
        rejected = await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=76))
        again = await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=76))

    assert rejected.error_code is again.error_code is code
    assert rejected.remaining_partitions == ()


async def test_not_controller_is_returned_in_the_form_of_each_request() -> None:
    controller = ControllerStub()
    controller.is_active = False
    async with listening(controller) as (_, port), connected(port) as client:
        shutdown = await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=1))
        altered = await client.ask(request_class(56, 3)(broker_id=2, broker_epoch=1, topics=()))
        ids = await client.ask(request_class(67, 0)(broker_id=2, broker_epoch=1))

    assert shutdown.error_code is KioError.stale_controller_epoch
    assert altered.error_code is ids.error_code is KioError.not_controller


async def test_broker_receives_producer_ids() -> None:
    controller = ControllerStub({AllocateProducerIds: lambda _: ProducerIdBlock(2, 5000, 1000)})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(67, 0)(broker_id=2, broker_epoch=77))
        controller.answers[AllocateProducerIds] = lambda _: BrokerNotRegistered(2)
        rejected = await client.ask(request_class(67, 0)(broker_id=2, broker_epoch=77))

    assert controller.requests[0] == AllocateProducerIds(2, 77)
    assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (KioError.none, 5000, 1000)
    assert rejected.error_code is KioError.broker_id_not_registered


def alter(version: int, *partitions: tuple[int, int, tuple[int, ...], int]) -> Any:
    """Return an AlterPartition for partitions of one topic: (number, leader epoch, isr, partition epoch)."""
    entries = []
    for number, leader_epoch, isr, partition_epoch in partitions:
        if version >= 3:
            state = part(56, version, "BrokerState")
            members: dict[str, Any] = {"new_isr_with_epochs": tuple(state(broker_id=broker_id) for broker_id in isr)}
        else:
            members = {"new_isr": isr}
        if version >= 1:
            members["leader_recovery_state"] = 1
        entries.append(
            part(56, version, "PartitionData")(
                partition_index=number, leader_epoch=leader_epoch, partition_epoch=partition_epoch, **members
            )
        )
    name = {"topic_id": uuid.UUID(bytes=ORDERS.id)} if version >= 2 else {"topic_name": ORDERS.name}
    topic = part(56, version, "TopicData")(partitions=tuple(entries), **name)
    return request_class(56, version)(broker_id=2, broker_epoch=77, topics=(topic,))


async def test_broker_epochs_of_a_proposed_isr_are_forwarded() -> None:
    """Kafka's brokers with ZooKeeper send no epochs."""
    ref = TopicRef("", ORDERS.id)
    controller = ControllerStub({AlterPartitionReceived: lambda _: [IsrResult(ref, 0, ErrorCode.INELIGIBLE_REPLICA)]})
    proposed = alter(3, (0, 9, (2, 3), 5))
    (topic,) = proposed.topics
    (partition,) = topic.partitions
    state = part(56, 3, "BrokerState")
    members = tuple(state(broker_id=id_, broker_epoch=epoch) for id_, epoch in ((2, 77), (3, 41)))
    named = dataclasses.replace(partition, new_isr_with_epochs=members)
    with_epochs = dataclasses.replace(proposed, topics=(dataclasses.replace(topic, partitions=(named,)),))
    async with listening(controller) as (_, port), connected(port) as client:
        answered = await client.ask(with_epochs)
        await client.ask(proposed)

    (rejected,) = answered.topics[0].partitions
    assert rejected.error_code is KioError.ineligible_replica
    request = [item for item in controller.requests if isinstance(item, AlterPartitionReceived)]
    assert [item.proposals[0].broker_epochs for item in request] == [(77, 41), ()]


@pytest.mark.parametrize("version", range(4))
async def test_leader_proposes_isrs_and_receives_the_result(version: int) -> None:
    ref = TopicRef("", ORDERS.id) if version >= 2 else TopicRef(ORDERS.name, ZERO_ID)

    def answer(request: AlterPartitionReceived) -> list[IsrResult]:
        now = Leadership(2, 9, (2, 3), 6, 50, True)
        return [IsrResult(ref, 0, leadership=now), IsrResult(ref, 5, ErrorCode.INVALID_UPDATE_VERSION)]

    controller = ControllerStub({AlterPartitionReceived: answer})
    async with listening(controller) as (_, port), connected(port) as client:
        answered = await client.ask(alter(version, (0, 9, (2, 3), 5), (5, 8, (2,), 4)))

    recovering = version >= 1
    assert controller.requests == [
        AlterPartitionReceived(
            2,
            77,
            (IsrProposal(ref, 0, 9, (2, 3), 5, recovering), IsrProposal(ref, 5, 8, (2,), 4, recovering)),
            version,
        )
    ]
    (topic,) = answered.topics
    taken, rejected = topic.partitions
    assert (topic.topic_id.bytes if version >= 2 else topic.topic_name) == (ORDERS.id if version >= 2 else "orders")
    assert (taken.error_code, taken.leader_id, taken.leader_epoch, taken.isr, taken.partition_epoch) == (
        KioError.none,
        2,
        9,
        (2, 3),
        6,
    )
    assert version < 1 or taken.leader_recovery_state == 1
    assert (rejected.partition_index, rejected.error_code) == (5, KioError.invalid_update_version)


@pytest.mark.parametrize("version", [1, 3])
async def test_ten_thousand_proposals_are_read_in_steps(version: int) -> None:
    """Other requests are served between the steps: a shutdown gets its response before the proposals are decided."""
    ref = TopicRef("", ORDERS.id) if version >= 2 else TopicRef(ORDERS.name, ZERO_ID)
    stopped = asyncio.Event()

    class Busy(ControllerStub):
        async def ask(self, request: Any) -> Any:
            if isinstance(request, ControlledShutdown):
                return []
            await stopped.wait()
            return [
                IsrResult(ref, proposal.partition, leadership=Leadership(2, 9, proposal.isr, 6, 50))
                for proposal in request.proposals
            ]

    async def stop() -> None:
        async with connected(port) as client:
            await until(lambda: listener.held > 0)
            await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=77))
            stopped.set()

    controller = Busy()
    controller.live = [Broker(2, 77, (Endpoint("OTHER", "127.0.0.1", 1),))]
    async with listening(controller) as (listener, port), connected(port) as client, asyncio.timeout(60):
        proposals = alter(version, *((number, 9, (2, 3), 5) for number in range(10_000)))
        answer, _ = await asyncio.gather(client.ask(proposals), stop())

    (topic,) = answer.topics
    assert [(item.partition_index, item.isr, item.partition_epoch) for item in topic.partitions] == [
        (number, (2, 3), 6) for number in range(10_000)
    ]


@pytest.mark.parametrize(("version", "whole"), [(0, True), (1, False)])
async def test_error_after_the_first_proposals_is_of_the_form_that_leaders_survive(version: int, whole: bool) -> None:
    """Brokers that send version 0 repeat a request that failed as a whole; an error of a partition blocks it."""

    class Resigning(ControllerStub):
        async def ask(self, request: Any) -> Any:
            if request.proposals[0].partition:
                raise BrokerNotRegistered(2)
            ref = TopicRef(ORDERS.name, ZERO_ID)
            return [
                IsrResult(ref, each.partition, leadership=Leadership(2, 9, (2, 3), 6, 50)) for each in request.proposals
            ]

    async with listening(Resigning()) as (_, port), connected(port) as client, asyncio.timeout(60):
        answer = await client.ask(alter(version, *((number, 9, (2, 3), 5) for number in range(PROPOSALS_MAX + 1))))

    assert (answer.error_code is not KioError.none) == whole
    assert len(answer.topics) == (0 if whole else 1)
