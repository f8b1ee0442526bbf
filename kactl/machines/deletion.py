"""The life of a topic that waits for its deletion, told by the states of its replicas.

    QUEUED ──start──▶ STARTED ──every replica DELETION_SUCCESSFUL──▶ complete
                       │   ▲
         a replica fails   └── start again, as soon as no halt stands
                       ▼   │
                      HALTED, its ineligible replicas OFFLINE

Nothing is begun while a broker still has an order to delete, because its answer may change everything. A halt forbids
to start, but neither to complete nor to make ready for a later start.

Source: the classic controller's TopicDeletionManager.resumeDeletions.
"""

import dataclasses

import msgspec
import numpy as np

from kactl.model import ReplicaState
from kactl.state.cluster import Cluster
from kactl.state.deletion_blockers import DeletionBlocker
from kactl.state.rows import Bools, BrokerSet, Bytes, Ints, Rows, some


@dataclasses.dataclass(frozen=True, slots=True)
class Due:
    """What is to be done for each of T topics, bool[T] each.

    Attributes:
        complete: all replicas are deleted, and also where there are none.
        retry: ineligible replicas go back to OFFLINE, from where they can be tried again.
        start: all that are alive and not deleted yet are to be deleted.
    """

    complete: Bools
    retry: Bools
    start: Bools


def due(topic: Ints, assigned: Bools, replica_state: Bytes, *, halted: Bools) -> Due:
    """What comes next for topics that wait for their deletion.

    Args:
        topic: int32[n], for each row the position of its topic among the T topics; a topic may have no rows.
        assigned, replica_state: [W, n].
        halted: bool[T].
    """

    def any_replica(which: Bools) -> Bools:
        found = np.zeros(len(halted), np.bool_)
        found[topic[some(assigned & which)]] = True
        return found

    complete = ~any_replica(replica_state != ReplicaState.DELETION_SUCCESSFUL)
    rests = ~complete & ~any_replica(replica_state == ReplicaState.DELETION_STARTED)
    return Due(
        complete=complete,
        retry=rests & any_replica(replica_state == ReplicaState.DELETION_INELIGIBLE),
        start=rests & ~halted,
    )


def dead(rows: Rows, live: BrokerSet) -> Bools:
    """bool[W, n]: assigned replicas that cannot be told to delete anything now."""
    unreachable: Bools = rows.assigned & ~rows.online(live)
    return unreachable


def to_delete(rows: Rows, live: BrokerSet) -> Bools:
    """bool[W, n]: assigned replicas that can be told, and have not said yet that they are deleted."""
    told: Bools = rows.assigned & rows.online(live) & (rows.replica_state != ReplicaState.DELETION_SUCCESSFUL)
    return told


# -- how far it has come -----------------------------------------------------------------------------------------------


class Waiting(msgspec.Struct, frozen=True):
    """How far the deletion of one topic has come.

    Attributes:
        started: brokers have been told to forget the topic; False while it waits for its beginning.
        replicas: how many there are to delete in all.
        replicas_left: of these, how many are not deleted.
        halts: why it does not go on; empty if it does.
    """

    topic: str
    started: bool
    replicas: int
    replicas_left: int
    halts: tuple[DeletionBlocker, ...]


def waiting(cluster: Cluster) -> list[Waiting]:
    """All topics that wait for their deletion, by name."""
    return [_waiting(cluster, name) for name in sorted(cluster.topics_to_delete)]


def _waiting(cluster: Cluster, name: str) -> Waiting:
    known = cluster.table.topic(name)
    replicas = left = 0
    if known is not None:
        rows = cluster.table.rows(cluster.table.rows_of(known))
        replicas = int(np.count_nonzero(rows.assigned))
        left = int(np.count_nonzero(rows.assigned & (rows.replica_state != ReplicaState.DELETION_SUCCESSFUL)))
    return Waiting(name, name in cluster.deletion_started, replicas, left, cluster.deletion_ineligible.get(name, ()))
