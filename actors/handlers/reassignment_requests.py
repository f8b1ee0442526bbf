"""Validation of requested reassignments, and the reassignment request that older tools write into the store.

Source: the classic controller's processApiPartitionReassignment, maybeRemoveFromZkReassignment.
"""

from collections.abc import Callable, Collection, Mapping

from kactl.decide.messages.admin import ReassignmentResult
from kactl.decide.messages.events import ZkPartitionReassignment
from kactl.decide.state.cluster import Cluster
from kactl.model import NO_BROKER, Assignment, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.runtime.logs import logger

from .base import ControllerContext, Handlers

log = logger(__name__)

Target = tuple[int, ...]


def check_target(name: TopicPartition, target: Target) -> ReassignmentResult | None:
    """Returns the error of a target that is invalid for any partition, or None."""
    if not target:
        return _invalid(name, "a partition needs at least one replica")
    if len(set(target)) != len(target):
        return _invalid(name, f"{list(target)} names a broker twice")
    if min(target) <= NO_BROKER:
        return _invalid(name, f"{list(target)} names a negative broker id")
    return None


def check_request(cluster: Cluster, name: TopicPartition, target: Target | None) -> Assignment | ReassignmentResult:
    """Returns the assignment with which a move to `target`, or its cancellation, starts; or the error.

    Does not check that the partition exists.
    """
    current = cluster.assignment(name)
    if target is None:
        if current.is_being_reassigned:
            return current.reassign_to(current.origin)
        return _refused(name, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned: nothing to cancel")
    refused = check_target(name, target)
    if refused is not None:
        return refused
    planned = current.reassign_to(target)
    missing = [broker for broker in planned.adding if broker not in cluster.live_brokers.live]
    if missing:
        live = sorted(cluster.live_brokers.live.ids)
        return _invalid(name, f"new replicas need live brokers, and {missing} are not; live are {live}")
    return planned


def check_partition(cluster: Cluster, name: TopicPartition) -> ReassignmentResult | None:
    """Returns the error of a partition that is unknown or being deleted, or None."""
    if name.topic in cluster.topics_to_delete:
        return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist: it is being deleted")
    topic = cluster.table.topic(name.topic)
    if topic is not None and topic.ref.is_ownership:
        text = (
            "the owners of an ownership topic are chosen by the controller: drain a participant to move its partitions"
        )
        return _refused(name, ErrorCode.INVALID_REQUEST, text)
    if not cluster.assignment(name).replicas:
        return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
    return None


class WaitingRequest(Handlers):
    """The reassignment request in the store. It exists until each of its reassignments is complete."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._known: Mapping[TopicPartition, Target] = {}  # started, or an event that starts them is queued

    async def read(self) -> dict[TopicPartition, Target] | None:
        """Returns the requested targets to be started, or None without a request. Sets the watch for a new request."""
        requested = await self.store.reassignment_request()
        self._known = requested or {}
        return requested

    async def drop(self, names: Collection[TopicPartition]) -> None:
        """Remove some partitions, independently of their requested targets."""
        await self._drop(lambda name, _: name in names)

    async def carried_out(self, ended: Mapping[TopicPartition, Target]) -> None:
        """Remove completed reassignments. A partition with another target than the requested one stays."""
        await self._drop(lambda name, target: ended.get(name) == target)

    async def _drop(self, goes: Callable[[TopicPartition, Target], bool]) -> None:
        requested = await self.store.reassignment_request() or {}
        if requested.items() - self._known.items():
            # A new request. The store may not report it any more, as it was read here.
            self.context.enqueue(ZkPartitionReassignment())
        self._known = requested
        left = {name: target for name, target in requested.items() if not goes(name, target)}
        if len(left) == len(requested):
            # Also a request that cannot be decoded: an operator may still repair it.
            return
        await self.store.set_reassignment_request(left, self.cluster.fence)
        self._known = left
        if not left:
            # Reading sets the watch for the next request, which may exist by now.
            self.context.enqueue(ZkPartitionReassignment())


def _invalid(name: TopicPartition, message: str) -> ReassignmentResult:
    return _refused(name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _refused(name: TopicPartition, code: ErrorCode, message: str) -> ReassignmentResult:
    return ReassignmentResult(name.topic, name.partition, code, message)
