"""What a broker does with a request from a controller: the epochs that it compares, and what it answers.

Nothing is changed here. A verdict says for each row what is to be done and what to answer if that succeeds; only what
has been done counts as seen, so that an instruction whose execution failed is taken again when it comes again.

Source: KafkaApis.handle*Request, ReplicaManager.becomeLeaderOrFollower, ReplicaManager.stopReplicas, and the answers
of real brokers.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from kactl.errors import ErrorCode
from kactl.messages.control import (
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
from kactl.model import EPOCH_DURING_DELETE, NO_EPOCH
from kactl.state.rows import Bools, RowNumbers, choose, some

from .hosted_replicas import Hosted, Role, ids_of, names_of
from .row_index import ABSENT

UNCHECKED_BROKER_EPOCH = -1


def refusal(request: Request, *, broker_epoch: int, controller_epoch: int) -> ErrorCode:
    """Why the whole request is refused; NONE if it is not. Equal epochs are taken, and so is a higher broker epoch:
    the controller may have seen a registration before the broker has its answer.

    Args:
        broker_epoch: of the registration that the broker lives by.
        controller_epoch: the highest that the broker has seen.
    """
    if request.broker_epoch != UNCHECKED_BROKER_EPOCH and request.broker_epoch < broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    if request.controller_epoch < controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def refuse(request: Request, error: ErrorCode) -> Response:
    """The answer to a request that is refused as a whole: LeaderAndIsr says it of each row, StopReplica of none."""
    match request:
        case LeaderAndIsr(states=states):
            errors = np.full(len(states), error, np.int16)
            return LeaderAndIsrResponse(error=int(error), partitions=_of(states, errors))
        case StopReplica():
            return StopReplicaResponse(error=int(error), partitions=PartitionErrors.none())
        case _:
            return UpdateMetadataResponse(error=int(error))


@dataclasses.dataclass(frozen=True, slots=True)
class Instructed:
    """What a LeaderAndIsr makes of each of its rows.

    Attributes:
        error: int16[n], what to answer; 0 for those that are to be done.
        lead, follow: bool[n], to be done.
        id_only: bool[n], nothing but the topic's id is new.
    """

    error: Shorts
    lead: Bools
    follow: Bools
    id_only: Bools


def instruct(states: PartitionStates, hosted: Hosted, broker: int) -> Instructed:
    """Compare a LeaderAndIsr with what is hosted, row by row."""
    rows = hosted.index.find(names_of(states.topics), states.topic, states.partition)
    known = rows != ABSENT
    ids = ids_of(states.topics)[states.topic]
    local_ids = _local(hosted.topic_id, rows, b"")
    local_epoch = _local(hosted.leader_epoch, rows, NO_EPOCH)
    failed = _local(hosted.failed, rows, False)

    has_id = ids != b""
    contradicts = has_id & (local_ids != b"") & (ids != local_ids)
    newer = states.leader_epoch > local_epoch
    id_only = ~failed & known & (states.leader_epoch == local_epoch) & has_id & (local_ids == b"")
    ours = some(states.replicas == broker)
    error = choose(
        failed,
        ErrorCode.KAFKA_STORAGE_ERROR,
        contradicts,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        newer & ours,
        ErrorCode.NONE,
        newer,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        id_only,
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
    ).astype(np.int16)
    # An older version of the leadership under a newer epoch: answered as if done, and passed over.
    done = (
        (error == ErrorCode.NONE) & newer & (states.partition_epoch >= _local(hosted.partition_epoch, rows, NO_EPOCH))
    )
    leads = states.leader == broker
    return Instructed(error=error, lead=done & leads, follow=done & ~leads, id_only=id_only)


def instructed(states: PartitionStates, error: Shorts) -> LeaderAndIsrResponse:
    """The answer to a LeaderAndIsr that was not refused."""
    return LeaderAndIsrResponse(error=0, partitions=_of(states, error))


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """What a StopReplica makes of each of its rows.

    Attributes:
        error: int16[n], what to answer; 0 for those that are to be done.
        stop: bool[n], to be told to whoever serves the replica: it is served now, or its data is to be deleted.
    """

    error: Shorts
    stop: Bools


def stop(request: StopReplica, hosted: Hosted) -> Stopped:
    """Compare a StopReplica with what is hosted, row by row.

    A replica that is not hosted can still have data that an earlier life of the broker left behind: deleting it is
    told as well.
    """
    rows = hosted.index.find(names_of(request.topics), request.topic, request.partition)
    epoch = request.leader_epoch
    unconditional = (epoch == NO_EPOCH) | (epoch == EPOCH_DURING_DELETE)
    current = unconditional | (epoch >= _local(hosted.leader_epoch, rows, NO_EPOCH)) | (rows == ABSENT)
    error = choose(
        _local(hosted.failed, rows, False),
        ErrorCode.KAFKA_STORAGE_ERROR,
        current,
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
    ).astype(np.int16)
    role = _local(hosted.role, rows, Role.NONE)
    served = (role == Role.LEADER) | (role == Role.FOLLOWER)
    return Stopped(error=error, stop=(error == ErrorCode.NONE) & (served | request.delete))


def stopped(request: StopReplica, error: Shorts) -> StopReplicaResponse:
    """The answer to a StopReplica that was not refused."""
    topics = tuple(names_of(request.topics))
    return StopReplicaResponse(error=0, partitions=PartitionErrors(topics, request.topic, request.partition, error))


def _of(states: PartitionStates, error: Shorts) -> PartitionErrors:
    return PartitionErrors(tuple(names_of(states.topics)), states.topic, states.partition, error)


def _local(column: npt.NDArray[Any], rows: RowNumbers, otherwise: object) -> npt.NDArray[Any]:
    """The values of some rows; `otherwise` where a row is ABSENT."""
    if not len(column):
        return np.full(len(rows), otherwise, column.dtype)
    return np.where(rows == ABSENT, np.array(otherwise, column.dtype), column[rows])
