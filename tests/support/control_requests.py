"""Control requests built from rows."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaseRelease,
    PartitionErrors,
    PartitionStates,
    StopReplica,
    UpdateMetadata,
)
from kactl.decide.messages.leases import LeaderEpochs
from kactl.decide.state.rows import Ints
from kactl.model import LEADER_DURING_DELETE, NO_BROKER, NO_EPOCH, ZERO_ID, Broker, TopicPartition, TopicRef

CONTROLLER: Final = 100
ORDERS_0, ORDERS_1, BILLS_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16


class StateRow(msgspec.Struct, frozen=True):
    """One row of a LeaderAndIsr or UpdateMetadata."""

    name: TopicPartition
    leader: int = 1
    leader_epoch: int = 0
    isr: tuple[int, ...] = (1, 2, 3)
    replicas: tuple[int, ...] = (1, 2, 3)
    partition_epoch: int = 0
    controller_epoch: int = 1
    topic_id: bytes = ZERO_ID
    recovering: bool = False
    hold: bool = False
    previous: int = NO_BROKER
    reason: int = 0
    unbroken: int = 0

    def but(self, **changes: object) -> "StateRow":
        return msgspec.structs.replace(self, **changes)


def deleted_row(name: TopicPartition) -> StateRow:
    """Returns the UpdateMetadata row of a partition that is being deleted."""
    return StateRow(name, leader=LEADER_DURING_DELETE, isr=())


def lists(rows: Sequence[tuple[int, ...]]) -> Ints:
    column = np.full((max(map(len, rows), default=0), len(rows)), NO_BROKER, np.int32)
    for position, row in enumerate(rows):
        column[: len(row), position] = row
    return column


def partition_errors(codes: Mapping[str, int]) -> PartitionErrors:
    """Returns the rows of a response with the error code of each partition."""
    names = [TopicPartition.parse(name) for name in codes]
    topics = tuple(dict.fromkeys(name.topic for name in names))
    return PartitionErrors(
        topics,
        ints([topics.index(name.topic) for name in names]),
        ints([name.partition for name in names]),
        np.array(list(codes.values()), np.int16),
    )


def ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int32)


def states(*rows: StateRow) -> PartitionStates:
    names = list(dict.fromkeys(row.name.topic for row in rows))
    rows = tuple(sorted(rows, key=lambda row: names.index(row.name.topic)))
    ids = {row.name.topic: row.topic_id for row in rows}
    return PartitionStates(
        topics=tuple(TopicRef(name, ids[name]) for name in names),
        topic=ints([names.index(row.name.topic) for row in rows]),
        partition=ints([row.name.partition for row in rows]),
        controller_epoch=ints([row.controller_epoch for row in rows]),
        leader=ints([row.leader for row in rows]),
        leader_epoch=ints([row.leader_epoch for row in rows]),
        isr=lists([row.isr for row in rows]),
        partition_epoch=ints([row.partition_epoch for row in rows]),
        replicas=lists([row.replicas for row in rows]),
        recovering=np.array([row.recovering for row in rows], np.bool_),
        hold=np.array([row.hold for row in rows], np.bool_) if any(row.hold for row in rows) else None,
        previous=ints([row.previous for row in rows]) if any(row.previous != NO_BROKER for row in rows) else None,
        reason=ints([row.reason for row in rows]) if any(row.reason for row in rows) else None,
        unbroken=ints([row.unbroken for row in rows]) if any(row.unbroken for row in rows) else None,
    )


def leader_and_isr(*rows: StateRow, epoch: int = 1, broker_epoch: int = -1) -> LeaderAndIsr:
    return LeaderAndIsr(CONTROLLER, epoch, broker_epoch, states(*rows))


def update_metadata(
    *rows: StateRow, live: Sequence[int] = (1, 2, 3), epoch: int = 1, broker_epoch: int = -1, number: int = 0
) -> UpdateMetadata:
    return UpdateMetadata(CONTROLLER, epoch, broker_epoch, states(*rows), tuple(Broker(id, 0) for id in live), number)


def stop_replica(
    *names: TopicPartition,
    leader_epoch: int = NO_EPOCH,
    delete: bool = False,
    epoch: int = 1,
    broker_epoch: int = -1,
    topic_id: bytes = ZERO_ID,
) -> StopReplica:
    topics = list(dict.fromkeys(name.topic for name in names))
    return StopReplica(
        CONTROLLER,
        epoch,
        broker_epoch,
        tuple(TopicRef(topic, topic_id) for topic in topics),
        ints([topics.index(name.topic) for name in names]),
        ints([name.partition for name in names]),
        ints([leader_epoch] * len(names)),
        np.full(len(names), delete, np.bool_),
    )


def lease_release(*names: TopicPartition, leader_epoch: int, epoch: int = 1, topic_id: bytes = ZERO_ID) -> LeaseRelease:
    stop = stop_replica(*names, leader_epoch=leader_epoch, topic_id=topic_id)
    return LeaseRelease(CONTROLLER, epoch, -1, stop.topics, stop.topic, stop.partition, stop.leader_epoch)


def texts(epochs: LeaderEpochs) -> list[str]:
    """Returns the partitions and their leader epochs as texts."""
    names, leader_epochs = epochs.columns()
    return [f"{name} at {epoch}" for name, epoch in zip(names, leader_epochs.tolist(), strict=True)]


def errors(partitions: PartitionErrors) -> dict[TopicPartition, int]:
    """Returns the error codes by partition."""
    return {
        TopicPartition(partitions.topics[topic], partition): error
        for topic, partition, error in zip(
            partitions.topic.tolist(), partitions.partition.tolist(), partitions.error.tolist(), strict=True
        )
    }
