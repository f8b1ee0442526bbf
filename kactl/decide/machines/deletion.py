"""State machine of a topic that is queued for deletion, derived from the states of its replicas.

    QUEUED ──start──▶ STARTED ──every replica DELETION_SUCCESSFUL──▶ complete
                       │   ▲
         a replica fails   └── start again, as soon as nothing blocks the deletion
                       ▼   │
                      HALTED, its ineligible replicas OFFLINE

Nothing is started while a broker has an outstanding request to delete, because its response may change the result. A
blocker prevents a start, but neither the completion nor the preparation of a later start.

Source: the classic controller's TopicDeletionManager.resumeDeletions.
"""

import dataclasses

import msgspec
import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.deletion_blockers import DeletionBlocker
from kactl.decide.state.rows import Bools, BrokerSet, Bytes, Ints, Rows, some
from kactl.model import ReplicaState


@dataclasses.dataclass(frozen=True, slots=True)
class Due:
    """Next steps of T topics, bool[T] each.

    Attributes:
        complete: all replicas are deleted, or there are none.
        retry: ineligible replicas return to OFFLINE, from where their deletion can be retried.
        start: all live replicas that are not deleted yet must be deleted.
    """

    complete: Bools
    retry: Bools
    start: Bools


def due(topic: Ints, assigned: Bools, replica_state: Bytes, *, halted: Bools) -> Due:
    """Returns the next steps of topics that are queued for deletion.

    Args:
        topic: int32[n], the position of each row's topic among the T topics; a topic may have no rows.
        assigned, replica_state: [W, n].
        halted: bool[T], the topics with a blocker.
    """

    def any_replica(which: Bools) -> Bools:
        result = np.zeros(len(halted), np.bool_)
        result[topic[some(assigned & which)]] = True
        return result

    complete = ~any_replica(replica_state != ReplicaState.DELETION_SUCCESSFUL)
    is_idle = ~complete & ~any_replica(replica_state == ReplicaState.DELETION_STARTED)
    return Due(
        complete=complete,
        retry=is_idle & any_replica(replica_state == ReplicaState.DELETION_INELIGIBLE),
        start=is_idle & ~halted,
    )


def dead(rows: Rows, live: BrokerSet) -> Bools:
    """Returns bool[W, n]: assigned replicas that cannot receive a request now."""
    unreachable: Bools = rows.assigned & ~rows.online(live)
    return unreachable


def to_delete(rows: Rows, live: BrokerSet) -> Bools:
    """Returns bool[W, n]: assigned replicas that can receive a request and are not reported as deleted."""
    result: Bools = rows.assigned & rows.online(live) & (rows.replica_state != ReplicaState.DELETION_SUCCESSFUL)
    return result


# -- progress -------------------------------------------------------------------------------------------------------


class Waiting(msgspec.Struct, frozen=True):
    """Progress of the deletion of one topic.

    Attributes:
        started: requests to delete the topic were sent to brokers; False while the topic is queued.
        replicas: the total number of replicas.
        replicas_left: the number of replicas that are not deleted yet.
        halts: the blockers; empty if the deletion proceeds.
    """

    topic: str
    started: bool
    replicas: int
    replicas_left: int
    halts: tuple[DeletionBlocker, ...]


def waiting(cluster: Cluster) -> list[Waiting]:
    """Returns the progress of all topics that are queued for deletion, by name."""
    return [_waiting(cluster, name) for name in sorted(cluster.topics_to_delete)]


def _waiting(cluster: Cluster, name: str) -> Waiting:
    entry = cluster.table.topic(name)
    replicas = left = 0
    if entry is not None:
        rows = cluster.table.rows(cluster.table.rows_of(entry))
        replicas = int(np.count_nonzero(rows.assigned))
        left = int(np.count_nonzero(rows.assigned & (rows.replica_state != ReplicaState.DELETION_SUCCESSFUL)))
    return Waiting(name, name in cluster.deletion_started, replicas, left, cluster.deletion_ineligible.get(name, ()))
