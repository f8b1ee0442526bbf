"""Checks of the controller's requests: the epochs that a broker compares, and the error of each partition.

These functions change nothing. A plan contains for each row the action, and the error code to return if the action
succeeds. The broker stores the state of a row only after its action has succeeded, so a request that has failed is
accepted when it is repeated.

Source: KafkaApis.handle*Request, ReplicaManager.becomeLeaderOrFollower, ReplicaManager.stopReplicas, and the responses
of real brokers.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    Request,
    Response,
    Shorts,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kactl.decide.state.rows import Bools, RowNumbers, choose, some
from kactl.model import EPOCH_DURING_DELETE, NO_EPOCH
from kactl.model.errors import ErrorCode

from .hosted_replicas import HostedReplicas, Ids, Role, ids_of, names_of
from .row_index import ABSENT

UNCHECKED_BROKER_EPOCH = -1


def request_error(
    request: Request, *, broker_epoch: int, controller_epoch: int, controller_id: int | None = None
) -> ErrorCode:
    """Returns the error with which the whole request is rejected; NONE if it is accepted.

    Equal epochs are accepted. So is a higher broker epoch: the controller may have seen a registration before the
    broker has received the response to it. Two controllers of one epoch use two stores, one of which is a copy of the
    other; the later one is elected again, with the next epoch.

    Args:
        broker_epoch: the epoch of the broker's current registration.
        controller_epoch: the highest controller epoch that the broker has received.
        controller_id: the controller that it has received it from; None accepts any.
    """
    if request.broker_epoch != UNCHECKED_BROKER_EPOCH and request.broker_epoch < broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    is_other = controller_id is not None and request.controller_id != controller_id
    if request.controller_epoch < controller_epoch or (request.controller_epoch == controller_epoch and is_other):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def error_response(request: Request, error: ErrorCode) -> Response:
    """Returns the response to a request that is rejected as a whole.

    The response to LeaderAndIsr repeats the error for each row, the response to StopReplica has no rows.
    """
    match request:
        case LeaderAndIsr(states=states):
            errors = np.full(len(states), error, np.int16)
            return LeaderAndIsrResponse(error=int(error), partitions=_of(states, errors))
        case StopReplica():
            return StopReplicaResponse(error=int(error), partitions=PartitionErrors.none())
        case _:
            return UpdateMetadataResponse(error=int(error))


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderAndIsrPlan:
    """Actions and errors for the n rows of a LeaderAndIsr.

    Attributes:
        error: int16[n], the error code to return; 0 for rows with an action.
        lead, follow: bool[n], the rows for which the broker becomes leader or follower.
        id_only: bool[n], the rows in which only the topic id is new.
    """

    error: Shorts
    lead: Bools
    follow: Bools
    id_only: Bools


def plan_leader_and_isr(
    states: PartitionStates,
    hosted: HostedReplicas,
    broker: int,
    *,
    controller_epoch: int = NO_EPOCH,
    is_late: bool = False,
) -> LeaderAndIsrPlan:
    """Compare a LeaderAndIsr with the hosted replicas, row by row. Returns the plan.

    A replica of another topic that could not be deleted, or is set aside, blocks the topic of the request: it counts as
    a failure of the replica, so that the controller elects no leader here.

    A replica that was stopped starts again under a higher leader epoch only: a delayed request may be older than the
    one that stopped it. A request of a later controller is not.

    Args:
        controller_epoch: of the request.
        is_late: whether a later request has been carried out before.
    """
    rows = hosted.index.find(names_of(states.topics), states.topic, states.partition)
    if not is_late:
        rows = hosted.current(states, rows)
    known = rows != ABSENT
    ids = ids_of(states.topics)[states.topic]
    local_ids = _local(hosted.topic_id, rows, b"")
    local_epoch = _local(hosted.leader_epoch, rows, NO_EPOCH)
    failed = _local(hosted.failed, rows, False)
    differs = hosted.differs(states, rows)
    aside = _local(hosted.set_aside, rows, False)
    blocked = _local(hosted.undeleted, rows, False) | aside
    if blocked.any():
        blocked &= differs | hosted.contradicts(states, rows)

    has_id = ids != b""
    role, controller = _local(hosted.role, rows, Role.NONE), _local(hosted.controller_epoch, rows, NO_EPOCH)
    _put_deleted(states, hosted, ids, rows == ABSENT, (role, local_epoch, controller))
    is_later = (controller_epoch > controller) | aside
    restarts = (role == Role.STOPPED) & (states.leader_epoch == local_epoch) & is_later
    newer = (states.leader_epoch > local_epoch) | restarts
    id_only = ~failed & known & (states.leader_epoch == local_epoch) & has_id & (local_ids == b"")
    ours = some(states.replicas == broker)
    error = choose(
        failed | blocked,
        ErrorCode.KAFKA_STORAGE_ERROR,
        differs,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        newer & ours,
        ErrorCode.NONE,
        newer,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        id_only,
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
    ).astype(np.int16)
    # An older version of the leadership under a newer epoch is skipped, without an error.
    accepted = (
        (error == ErrorCode.NONE) & newer & (states.partition_epoch >= _local(hosted.partition_epoch, rows, NO_EPOCH))
    )
    leads = states.leader == broker
    return LeaderAndIsrPlan(error=error, lead=accepted & leads, follow=accepted & ~leads, id_only=id_only)


def _put_deleted(
    states: PartitionStates,
    hosted: HostedReplicas,
    ids: Ids,
    absent: Bools,
    columns: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]],
) -> None:
    """Write the epochs of deleted replicas into the columns role, leader epoch and controller epoch of the rows."""
    if not hosted.has_deletions:
        return
    role, leader_epoch, controller_epoch = columns
    names = names_of(states.topics)
    for position in np.flatnonzero(absent).tolist():
        # A topic that was created again has another id.
        deleted = hosted.deletion(names[states.topic[position]], int(states.partition[position]), bytes(ids[position]))
        if deleted is not None:
            role[position] = Role.STOPPED
            leader_epoch[position] = deleted.leader_epoch
            controller_epoch[position] = deleted.controller_epoch


def reject_failed(states: PartitionStates, hosted: HostedReplicas, plan: LeaderAndIsrPlan) -> None:
    """Remove the rows from a plan whose directory has failed while their actions were in progress."""
    rows = hosted.index.find(names_of(states.topics), states.topic, states.partition)
    failed = (plan.lead | plan.follow) & _local(hosted.failed, rows, False)
    plan.error[failed] = ErrorCode.KAFKA_STORAGE_ERROR
    plan.lead[failed] = plan.follow[failed] = False


def leader_and_isr_response(states: PartitionStates, error: Shorts, *, leads_later: bool) -> LeaderAndIsrResponse:
    """Returns the response to a LeaderAndIsr that was accepted."""
    return LeaderAndIsrResponse(error=0, partitions=_of(states, error), leads_later=leads_later)


@dataclasses.dataclass(frozen=True, slots=True)
class StopReplicaPlan:
    """Actions and errors for the n rows of a StopReplica.

    Attributes:
        error: int16[n], the error code to return; 0 for rows that are accepted.
        stop: bool[n], the rows for which the listener is called: the replica is served now, or its data is to be
            deleted.
    """

    error: Shorts
    stop: Bools


def plan_stop_replica(request: StopReplica, hosted: HostedReplicas) -> StopReplicaPlan:
    """Compare a StopReplica with the hosted replicas, row by row. Returns the plan.

    A replica that is not hosted may still have data of an earlier registration of the broker, so its deletion is
    planned as well. A row of another topic id than that of the hosted replica succeeds and has no effect: the request
    is late, or its replica was never started here. Kafka's brokers receive no ids, and stop the replica.

    A deletion that is repeated succeeds, too, if the directory has failed since: the first response was lost.
    """
    rows = hosted.index.find(names_of(request.topics), request.topic, request.partition)
    epoch = request.leader_epoch
    unconditional = (epoch == NO_EPOCH) | (epoch == EPOCH_DURING_DELETE)
    differs = hosted.differs(request, rows)
    current = unconditional | (epoch >= _local(hosted.leader_epoch, rows, NO_EPOCH)) | (rows == ABSENT) | differs
    is_done = request.delete & _local(hosted.emptied, rows, False)
    error = choose(
        _local(hosted.failed, rows, False) & ~is_done,
        ErrorCode.KAFKA_STORAGE_ERROR,
        current,
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
    ).astype(np.int16)
    role = _local(hosted.role, rows, Role.NONE)
    served = (role == Role.LEADER) | (role == Role.FOLLOWER)
    stop = (error == ErrorCode.NONE) & (served | request.delete) & ~differs & ~is_done
    return StopReplicaPlan(error=error, stop=stop)


def reject_failed_stops(request: StopReplica, hosted: HostedReplicas, plan: StopReplicaPlan) -> None:
    """Remove the rows from a plan whose directory has failed while the replicas stopped.

    A deletion that has succeeded nevertheless has deleted the data, and is not repeated.
    """
    rows = hosted.index.find(names_of(request.topics), request.topic, request.partition)
    failed = plan.stop & ~request.delete & _local(hosted.failed, rows, False)
    plan.error[failed] = ErrorCode.KAFKA_STORAGE_ERROR
    plan.stop[failed] = False


def stop_replica_response(request: StopReplica, error: Shorts) -> StopReplicaResponse:
    """Returns the response to a StopReplica that was accepted."""
    topics = tuple(names_of(request.topics))
    return StopReplicaResponse(error=0, partitions=PartitionErrors(topics, request.topic, request.partition, error))


def _of(states: PartitionStates, error: Shorts) -> PartitionErrors:
    return PartitionErrors(tuple(names_of(states.topics)), states.topic, states.partition, error)


def _local(column: npt.NDArray[Any], rows: RowNumbers, otherwise: object) -> npt.NDArray[Any]:
    """Returns the values of some rows; `otherwise` where a row is ABSENT."""
    if not len(column):
        return np.full(len(rows), otherwise, column.dtype)
    return np.where(rows == ABSENT, np.array(otherwise, column.dtype), column[rows])
