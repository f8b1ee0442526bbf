"""Replica state machine: exactly the transitions of the table are legal; brokers leave ISRs."""

import itertools

import numpy as np
import pytest

from kactl.decide.machines import replica
from kactl.decide.state.change import CHANGED_COLUMNS, Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools
from kactl.model import Leadership, ReplicaState
from tests.support.cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, led, rows_of, slots_of, tp

S = ReplicaState
T0 = tp("t-0")

# Independent copy of the transitions that the classic controller allows.
LEGAL = {
    (S.ABSENT, S.NEW),
    *itertools.product((S.NEW, S.ONLINE, S.OFFLINE, S.DELETION_INELIGIBLE), (S.ONLINE, S.OFFLINE)),
    (S.OFFLINE, S.DELETION_STARTED),
    (S.OFFLINE, S.DELETION_INELIGIBLE),
    (S.DELETION_STARTED, S.DELETION_SUCCESSFUL),
    (S.DELETION_STARTED, S.DELETION_INELIGIBLE),
    (S.DELETION_SUCCESSFUL, S.ABSENT),
}


def in_state(state: ReplicaState, leadership: Leadership | None = None, *, queued: bool = False) -> Cluster:
    """Partition t-0 on 1, 2 and 3; the replica on 2 is in `state`."""
    seed = PartitionSeed(replicas=(1, 2, 3), adding=(2,), removing=(2,), leadership=leadership, states={2: state})
    return ClusterSeed(
        live=frozenset({1, 2, 3}), partitions={T0: seed}, queued=frozenset({"t"} if queued else ())
    ).columns()


def brokers(change: Change, which: Bools) -> list[int]:
    """Return the brokers of the selected slots of the one row, in slot order."""
    named: list[int] = change.rows.replicas[which].tolist()
    return named


@pytest.mark.parametrize("leadership", [None, led(1, 3, (1, 2), 7)])
@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)), ids=str)
def test_only_transitions_of_the_table_are_applied(before: S, after: S, leadership: Leadership | None) -> None:
    cluster = in_state(before, leadership)
    rows = rows_of(cluster)
    which = slots_of(rows, 2)
    assert (before in replica.TRANSITIONS[after]) == ((before, after) in LEGAL)
    if after is S.OFFLINE:
        assert replica.legal_offline(rows, 2).tolist() == [(before, after) in LEGAL]
        return

    planned = replica.plan(rows, which, after)

    if (before, after) in LEGAL:
        assert planned.moved.tolist() == which.tolist()
        assert not planned.refused.any()
        assert planned.change.replica_state[which].tolist() == [after]
        assert planned.change.replica_state[~which].tolist() == rows.replica_state[~which].tolist()
    else:
        assert not planned.moved.any()
        assert planned.refused[which].tolist() == [Refusal.ILLEGAL_MOVE]
        assert not planned.refused[~which].any()
        assert not planned.change.notify.any()
        for name in CHANGED_COLUMNS:
            assert np.array_equal(getattr(planned.change, name), getattr(rows, name)), name
    assert not planned.change.writes.any()


@pytest.mark.parametrize(
    ("before", "after", "notified"),
    [
        (S.ABSENT, S.NEW, [2]),
        (S.NEW, S.ONLINE, []),
        (S.ONLINE, S.ONLINE, [2]),
        (S.OFFLINE, S.ONLINE, [2]),
        (S.DELETION_INELIGIBLE, S.ONLINE, [2]),
        (S.OFFLINE, S.DELETION_STARTED, []),
        (S.OFFLINE, S.DELETION_INELIGIBLE, []),
        (S.DELETION_STARTED, S.DELETION_SUCCESSFUL, []),
        (S.DELETION_SUCCESSFUL, S.ABSENT, []),
    ],
)
def test_notified_brokers(before: S, after: S, notified: list[int]) -> None:
    """Only the replica's own broker is notified, and no broker while there is no leadership."""
    for leadership, expected in ((led(1, 3, (1, 2), 7), notified), (None, [])):
        rows = rows_of(in_state(before, leadership))

        change = replica.plan(rows, slots_of(rows, 2), after).change

        assert brokers(change, change.notify) == expected


def test_leader_is_not_created_as_a_follower() -> None:
    rows = rows_of(in_state(S.ABSENT, led(2, 3, (1, 2), 7)))

    planned = replica.plan(rows, slots_of(rows, 2, 3), S.NEW)

    assert planned.refused[:, 0].tolist() == [0, Refusal.ASKED_TO_LEAD, 0]
    assert brokers(planned.change, planned.moved) == [3]
    assert brokers(planned.change, planned.change.notify) == [3]
    assert planned.change.replica_state[:, 0].tolist() == [S.ABSENT, S.ABSENT, S.NEW]


def test_new_unassigned_replica_is_appended() -> None:
    cluster = in_state(S.ONLINE, led(1, 3, (1, 2), 7))
    cluster.table.admit_replica(0, 9, S.NEW)
    rows = rows_of(cluster)

    cluster.apply(replica.plan(rows, slots_of(rows, 9), S.ONLINE).change)

    view = cluster.view(T0)
    assert view is not None
    assert view.replicas == (1, 2, 3, 9)
    assert view.replica_states[9] is S.ONLINE


def test_deleted_replica_leaves_the_assignment() -> None:
    cluster = in_state(S.DELETION_SUCCESSFUL, led(1, 3, (1, 2), 7))
    rows = rows_of(cluster)

    cluster.apply(replica.plan(rows, slots_of(rows, 2), S.ABSENT).change)

    view = cluster.view(T0)
    assert view is not None
    assert (view.replicas, view.adding, view.removing) == ((1, 3), (), ())
    assert view.leadership == led(1, 3, (1, 2), 7)
    assert 2 not in view.replica_states


def test_next_replica_is_preferred_after_deletion_of_the_first() -> None:
    seed = PartitionSeed(replicas=(2, 1), leadership=led(1, 3, (1, 2)), states={2: S.DELETION_SUCCESSFUL})
    cluster = ClusterSeed(live=frozenset({1, 2}), partitions={T0: seed}).columns()
    assert cluster.imbalance_count == 1
    rows = rows_of(cluster)

    cluster.apply(replica.plan(rows, slots_of(rows, 2), S.ABSENT).change)

    assert cluster.imbalance_count == cluster.count_again()[1] == 0


# -- leaving ISRs ------------------------------------------------------------------------------------------------------

E = 6  # leader epoch before the change


@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        (led(1, E, (1, 2, 3)), 2, (1, {1, 3}, E + 1)),
        (led(1, E, (1, 2)), 1, (-1, {2}, E + 1)),
        (led(1, E, (1,)), 1, (-1, {1}, E + 1)),
        (led(-1, E, (1,)), 1, (-1, {1}, E + 1)),
        (led(1, E, (1, 3)), 2, None),
        (led(2, E, (2,)), 1, None),
        (led(1, E, ()), 1, None),
    ],
)
def test_broker_leaves_the_isr(before: Leadership, gone: int, after: tuple[int, set[int], int] | None) -> None:
    seed = PartitionSeed(replicas=(1, 2, 3), leadership=before)
    rows = rows_of(ClusterSeed(partitions={T0: seed}).columns())

    change = replica.go_offline(rows, gone, controller_epoch=EPOCH + 1)

    leader, isr, epoch = after or (before.leader, set(before.isr), E)
    assert change.writes.tolist() == [after is not None]
    assert change.leader.tolist() == [leader]
    assert set(brokers(change, change.in_sync)) == isr
    assert change.leader_epoch.tolist() == [epoch]
    assert change.controller_epoch.tolist() == [EPOCH + 1]  # whether written or not
    assert brokers(change, change.notify) == [broker for broker in (1, 2, 3) if broker != gone]
    assert change.replica_state[slots_of(rows, gone)].tolist() == [S.OFFLINE]
    assert change.recovering is rows.recovering


def test_stopped_replica_does_not_count_as_last_isr_member() -> None:
    """A leader added the replica after the controller stopped it, then failed: only the leader has the records."""
    seed = PartitionSeed(replicas=(1, 2), leadership=led(1, E, (1, 4)))
    rows = rows_of(ClusterSeed(partitions={T0: seed}).columns())

    change = replica.go_offline(rows, 1, controller_epoch=EPOCH)

    assert change.writes.tolist() == [True]
    assert change.leader.tolist() == [-1]
    assert set(brokers(change, change.in_sync)) == {1, 4}


def test_running_replica_counts_as_isr_member() -> None:
    seed = PartitionSeed(replicas=(1, 2), leadership=led(1, E, (1, 4)), states={4: S.ONLINE})
    rows = rows_of(ClusterSeed(partitions={T0: seed}).columns())

    change = replica.go_offline(rows, 1, controller_epoch=EPOCH)

    assert set(brokers(change, change.in_sync)) == {4}


def test_isr_shrinks_without_notification_for_queued_topics() -> None:
    rows = rows_of(in_state(S.ONLINE, led(1, E, (1, 2)), queued=True))

    change = replica.go_offline(rows, 2, controller_epoch=EPOCH)

    assert change.writes.tolist() == [True]
    assert brokers(change, change.in_sync) == [1]
    assert not change.notify.any()


def test_only_the_state_changes_without_leadership() -> None:
    rows = rows_of(in_state(S.NEW))

    change = replica.go_offline(rows, 2, controller_epoch=EPOCH)

    assert not change.writes.any()
    assert not change.notify.any()
    assert change.controller_epoch.tolist() == [-1]
    assert change.replica_state[slots_of(rows, 2)].tolist() == [S.OFFLINE]


def test_reloaded_row_is_applied_completely() -> None:
    """A leader recovered between read and write; a broker that leaves its ISR does not undo that in memory."""
    cluster = in_state(S.ONLINE, led(1, E, (1, 2), 7, recovering=True))
    read = rows_of(cluster).replace(recovering=np.array([False]), partition_epoch=np.array([8], np.int32))

    cluster.apply(replica.go_offline(read, 2, controller_epoch=EPOCH).committed(np.array([9], np.int32)))

    view = cluster.view(T0)
    assert view is not None
    assert view.leadership == led(1, E + 1, (1,), 9)
