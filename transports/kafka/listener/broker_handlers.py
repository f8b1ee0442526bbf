"""Handlers of the requests that brokers send to their controller.

Source: the classic controller's handling of ControlledShutdown, AlterPartition and AllocateProducerIds.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Final

from kactl.decide.messages.broker import (
    VERSION_WITH_REJECTIONS,
    AllocateProducerIds,
    AlterPartitionReceived,
    ControlledShutdown,
    IsrProposal,
    IsrResult,
)
from kactl.model import NO_EPOCH, NO_LEADER, TopicRef
from kactl.model.errors import ErrorCode, NotController

from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .field_types import Values
from .responses import Handler, error_of
from .served_controller import ServedController

_RECOVERING: Final = 1
# Proposals in one event. The controller needs about 20 microseconds for each, and does nothing else meanwhile.
PROPOSALS_MAX: Final = 1000


class BrokerHandlers:
    """Handlers of ControlledShutdown, AlterPartition and AllocateProducerIds."""

    def __init__(self, controller: ServedController) -> None:
        self._controller = controller

    def handlers(self) -> dict[int, Handler]:
        return {
            CONTROLLED_SHUTDOWN: self.on_controlled_shutdown,
            ALTER_PARTITION: self.on_alter_partition,
            ALLOCATE_PRODUCER_IDS: self.on_allocate_producer_ids,
        }

    async def on_controlled_shutdown(self, request: dict[str, Any], version: int) -> Values:
        """Return STALE_CONTROLLER_EPOCH if this instance is not active: the broker then looks the controller up."""
        try:
            remaining = await self._controller.ask(ControlledShutdown(request["broker_id"], request["broker_epoch"]))
        except NotController:
            return {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH}
        except Exception as error:
            return {"error_code": error_of(error)[0]}
        return {
            "remaining_partitions": [
                {"topic_name": name.topic, "partition_index": name.partition} for name in remaining
            ]
        }

    async def on_allocate_producer_ids(self, request: dict[str, Any], version: int) -> Values:
        try:
            block = await self._controller.ask(AllocateProducerIds(request["broker_id"], request["broker_epoch"]))
        except Exception as error:
            return {"error_code": error_of(error)[0]}
        return {"producer_id_start": block.first, "producer_id_len": block.length}

    async def on_alter_partition(self, request: dict[str, Any], version: int) -> Values:
        """Send the proposals PROPOSALS_MAX at a time, because the controller handles one event without a pause.

        An error before the first result is the error of the whole response. A later one is the error of each remaining
        proposal, which the broker sends again. Brokers up to 3.0 do not survive that, but repeat all proposals after an
        error of the whole response, and those that were accepted succeed again.
        """
        topics: list[dict[str, Any]] = []
        proposals = _proposals(request)
        error: ErrorCode | None = None
        while True:
            chunk = tuple(itertools.islice(proposals, PROPOSALS_MAX))
            if not chunk and topics:
                break
            if error is None:
                event = AlterPartitionReceived(request["broker_id"], request["broker_epoch"], chunk, version=version)
                try:
                    results = await self._controller.ask(event)
                except Exception as failed:
                    error = error_of(failed)[0]
                    if not topics or version < VERSION_WITH_REJECTIONS:
                        return {"error_code": error}
            if error is not None:
                results = [IsrResult(proposal.topic, proposal.partition, error) for proposal in chunk]
                await asyncio.sleep(0)
            _add(topics, results)
            if len(chunk) < PROPOSALS_MAX:
                break
        return {"topics": topics}


def _proposals(request: dict[str, Any]) -> Iterator[IsrProposal]:
    """Yields the proposals, in order. They are removed from the request, so that it is not freed all at once."""
    for topic in request["topics"]:
        ref = TopicRef(topic["topic_name"], topic["topic_id"])
        partitions = topic["partitions"]
        partitions.reverse()
        while partitions:
            partition = partitions.pop()
            # Only the newest version has broker epochs. Kafka's brokers with ZooKeeper send NO_EPOCH for all members.
            members = partition["new_isr_with_epochs"]
            epochs = tuple(member["broker_epoch"] for member in members)
            yield IsrProposal(
                ref,
                partition["partition_index"],
                partition["leader_epoch"],
                tuple(partition["new_isr"] or [member["broker_id"] for member in members]),
                partition["partition_epoch"],
                partition["leader_recovery_state"],  # the controller rejects an invalid state
                () if all(epoch == NO_EPOCH for epoch in epochs) else epochs,
            )


def _add(topics: list[dict[str, Any]], results: list[IsrResult]) -> None:
    """Add results to a response; adjacent results of one topic share one entry."""
    for topic, of_topic in itertools.groupby(results, lambda result: result.topic):
        entry = topics[-1] if topics else None
        if entry is None or (entry["topic_name"], entry["topic_id"]) != (topic.name, topic.id):
            entry = {"topic_name": topic.name, "topic_id": topic.id, "partitions": []}
            topics.append(entry)
        entry["partitions"] += map(_altered, of_topic)


def _altered(result: IsrResult) -> dict[str, Any]:
    leadership = result.leadership
    if leadership is None or result.error is not ErrorCode.NONE:
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
        "leader_id": leadership.leader,
        "leader_epoch": leadership.leader_epoch,
        "isr": leadership.isr,
        "leader_recovery_state": _RECOVERING if leadership.recovering else 0,
        "partition_epoch": leadership.partition_epoch,
    }
