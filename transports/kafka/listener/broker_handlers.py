"""What brokers ask of their controller.

Source: the classic controller's handling of ControlledShutdown, AlterPartition and AllocateProducerIds.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Final

from kactl.errors import ErrorCode, NotController
from kactl.messages.broker import (
    AlterPartitionRequested,
    ControlledShutdownRequested,
    IsrProposal,
    IsrResult,
    ProducerIdsRequested,
)
from kactl.model import NO_EPOCH, NO_LEADER, TopicRef

from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .responses import Answer, said
from .schema import Values
from .served_controller import Ruled

_RECOVERING: Final = 1
# Of one event. The controller takes some 20 microseconds for each proposal, and nothing else happens meanwhile.
PROPOSALS_MAX: Final = 1000


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
        """Hand in proposals PROPOSALS_MAX at a time: the controller handles one event without a pause.

        An error before anything was handled is the answer's own; later ones are those of the proposals that are left,
        which the broker sends again.
        """
        topics: list[dict[str, Any]] = []
        proposals = _proposals(asked)
        error: ErrorCode | None = None
        while True:
            some = tuple(itertools.islice(proposals, PROPOSALS_MAX))
            if not some and topics:
                break
            if error is None:
                request = AlterPartitionRequested(asked["broker_id"], asked["broker_epoch"], some, version=version)
                try:
                    results = await self._ruled.ask(request)
                except Exception as failed:
                    error = said(failed)[0]
                    if not topics:
                        return {"error_code": error}
            if error is not None:
                results = [IsrResult(each.topic, each.partition, error) for each in some]
                await asyncio.sleep(0)
            _add(topics, results)
            if len(some) < PROPOSALS_MAX:
                break
        return {"topics": topics}


def _proposals(asked: dict[str, Any]) -> Iterator[IsrProposal]:
    """The proposals, in order. They are taken out of the request, so that it is not freed all at once."""
    for topic in asked["topics"]:
        ref = TopicRef(topic["topic_name"], topic["topic_id"])
        partitions = topic["partitions"]
        partitions.reverse()
        while partitions:
            each = partitions.pop()
            # Broker epochs come with the newest version. Kafka's brokers with ZooKeeper send NO_EPOCH for all.
            members = each["new_isr_with_epochs"]
            epochs = tuple(member["broker_epoch"] for member in members)
            yield IsrProposal(
                ref,
                each["partition_index"],
                each["leader_epoch"],
                tuple(each["new_isr"] or [member["broker_id"] for member in members]),
                each["partition_epoch"],
                each["leader_recovery_state"],  # a number that no state has is refused by the controller
                () if all(epoch == NO_EPOCH for epoch in epochs) else epochs,
            )


def _add(topics: list[dict[str, Any]], results: list[IsrResult]) -> None:
    """Add results to an answer, those of one topic that follow each other together."""
    for topic, of_topic in itertools.groupby(results, lambda each: each.topic):
        answered = topics[-1] if topics else None
        if answered is None or (answered["topic_name"], answered["topic_id"]) != (topic.name, topic.id):
            answered = {"topic_name": topic.name, "topic_id": topic.id, "partitions": []}
            topics.append(answered)
        answered["partitions"] += map(_altered, of_topic)


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
