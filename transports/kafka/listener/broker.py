"""What brokers ask of their controller.

Source: the classic controller's handling of ControlledShutdown, AlterPartition and AllocateProducerIds.
"""

import itertools
from typing import Any, Final

from kactl.broker_requests import (
    AlterPartitionRequested,
    ControlledShutdownRequested,
    IsrProposal,
    IsrResult,
    ProducerIdsRequested,
)
from kactl.errors import ErrorCode, NotController
from kactl.model import NO_EPOCH, NO_LEADER, TopicRef

from .answers import Answer, said
from .cluster import Ruled
from .keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .schema import Values

_RECOVERING: Final = 1


class BrokerAnswers:
    """See the module."""

    def __init__(self, ruled: Ruled) -> None:
        self._ruled = ruled

    def answers(self) -> dict[int, Answer]:
        return {
            CONTROLLED_SHUTDOWN: self.on_controlled_shutdown,
            ALTER_PARTITION: self.on_alter_partition,
            ALLOCATE_PRODUCER_IDS: self.on_allocate_producer_ids,
        }

    async def on_controlled_shutdown(self, asked: dict[str, Any], version: int) -> Values:
        """Not the controller is STALE_CONTROLLER_EPOCH here: a broker looks for the controller again then."""
        try:
            remaining = await self._ruled.ask(ControlledShutdownRequested(asked["broker_id"], asked["broker_epoch"]))
        except NotController:
            return {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH}
        except Exception as error:
            return {"error_code": said(error)[0]}
        return {
            "remaining_partitions": [
                {"topic_name": name.topic, "partition_index": name.partition} for name in remaining
            ]
        }

    async def on_allocate_producer_ids(self, asked: dict[str, Any], version: int) -> Values:
        try:
            block = await self._ruled.ask(ProducerIdsRequested(asked["broker_id"], asked["broker_epoch"]))
        except Exception as error:
            return {"error_code": said(error)[0]}
        return {"producer_id_start": block.first, "producer_id_len": block.length}

    async def on_alter_partition(self, asked: dict[str, Any], version: int) -> Values:
        request = AlterPartitionRequested(
            asked["broker_id"], asked["broker_epoch"], tuple(_proposals(asked)), version=version
        )
        try:
            results = await self._ruled.ask(request)
        except Exception as error:
            return {"error_code": said(error)[0]}
        return {
            "topics": [
                {
                    "topic_name": topic.name,
                    "topic_id": topic.id,
                    "partitions": [_altered(each) for each in of_topic],
                }
                for topic, of_topic in itertools.groupby(results, lambda each: each.topic)
            ]
        }


def _proposals(asked: dict[str, Any]) -> list[IsrProposal]:
    proposals = []
    for topic in asked["topics"]:
        ref = TopicRef(topic["topic_name"], topic["topic_id"])
        for each in topic["partitions"]:
            # Broker epochs come with the newest version. Kafka's brokers with ZooKeeper send NO_EPOCH for all.
            members = each["new_isr_with_epochs"]
            epochs = tuple(member["broker_epoch"] for member in members)
            proposals.append(
                IsrProposal(
                    ref,
                    each["partition_index"],
                    each["leader_epoch"],
                    tuple(each["new_isr"] or [member["broker_id"] for member in members]),
                    each["partition_epoch"],
                    each["leader_recovery_state"],  # a number that no state has is refused by the controller
                    () if all(epoch == NO_EPOCH for epoch in epochs) else epochs,
                )
            )
    return proposals


def _altered(result: IsrResult) -> dict[str, Any]:
    now = result.leadership
    if now is None or result.error is not ErrorCode.NONE:
        return {
            "partition_index": result.partition,
            "error_code": result.error,
            "leader_id": NO_LEADER,
            "leader_epoch": NO_EPOCH,
            "isr": (),
            "partition_epoch": NO_EPOCH,
        }
    return {
        "partition_index": result.partition,
        "leader_id": now.leader,
        "leader_epoch": now.leader_epoch,
        "isr": now.isr,
        "leader_recovery_state": _RECOVERING if now.recovering else 0,
        "partition_epoch": now.partition_epoch,
    }
