"""Partition state machine: exactly the transitions of the table are legal."""

import itertools

import numpy as np
import pytest

from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.state.change import CHANGED_COLUMNS, Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.model import Leadership, PartitionState, ReplicaState
from tests.support.cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, led, rows_of, tp

NEW, ONLINE, OFFLINE, ABSENT = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ABSENT
T0 = tp("t-0")

# Independent copy of the transitions that the classic controller allows.
LEGAL = {
    (ABSENT, NEW),
    (NEW, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, ONLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, ONLINE),
    (OFFLINE, OFFLINE),
    (OFFLINE, ABSENT),
}


def in_state(state: PartitionState, *, live: tuple[int, ...] = (1, 2)) -> Cluster:
    """Partition that any election could serve; without leadership if it is NEW."""
    leadership = None if state is NEW else led(2, 3, (1, 2), 7)
    seed = PartitionSeed(replicas=(1, 2, 3), leadership=leadership, state=state)
    return ClusterSeed(live=frozenset(live), partitions={T0: seed}).columns()


def plan(cluster: Cluster, target: PartitionState) -> Change:
    rows, now = rows_of(cluster), cluster.live_brokers
    if target is not ONLINE:
        return partition.move(rows, target)
    if (rows.state == NEW).all():
        return partition.initialize(rows, now, controller_epoch=EPOCH)
    unclean = np.zeros(len(rows), np.bool_)
    return partition.elect(rows, Election.OFFLINE, now, unclean=unclean, controller_epoch=EPOCH)


def leaves_no_trace(change: Change) -> bool:
    same = all(np.array_equal(getattr(change, name), getattr(change.rows, name)) for name in CHANGED_COLUMNS)
    return same and not (change.writes.any() or change.notify.any() or change.unclean.any())


@pytest.mark.parametrize(("before", "after"), list(itertools.product(PartitionState, PartitionState)), ids=str)
def test_only_transitions_of_the_table_are_applied(before: PartitionState, after: PartitionState) -> None:
    cluster = in_state(before)

    change = plan(cluster, after)

    assert ((before, after) in partition.TRANSITIONS) == ((before, after) in LEGAL)
    assert partition.legal(rows_of(cluster), after).tolist() == [(before, after) in LEGAL]
    if (before, after) in LEGAL:
        assert change.refusal.tolist() == [Refusal.NONE]
        assert change.state.tolist() == [after]
        assert change.writes.tolist() == [after is ONLINE]
    else:
        assert change.refusal.tolist() == [Refusal.ILLEGAL_MOVE]
        assert leaves_no_trace(change)


@pytest.mark.parametrize("after", [NEW, OFFLINE, ABSENT])
def test_move_without_election_changes_only_the_state(after: PartitionState) -> None:
    before = ABSENT if after is NEW else OFFLINE

    change = plan(in_state(before), after)

    for name in set(CHANGED_COLUMNS) - {"state"}:
        assert getattr(change, name) is getattr(change.rows, name)
    assert not change.notify.any()


def test_first_leader_has_all_online_replicas_in_sync() -> None:
    change = plan(in_state(NEW, live=(2, 3, 9)), ONLINE)

    assert change.leader.tolist() == [2]
    assert change.leader_epoch.tolist() == [0]
    assert change.rows.replicas[change.in_sync].tolist() == [2, 3]
    assert change.rows.replicas[change.notify].tolist() == [2, 3]
    assert change.controller_epoch.tolist() == [EPOCH]
    assert change.recovering.tolist() == [False]
    assert change.rows.partition_epoch.tolist() == [-1]  # no stored entry is expected


def test_no_first_leader_without_an_online_replica() -> None:
    change = plan(in_state(NEW, live=(9,)), ONLINE)

    assert change.refusal.tolist() == [Refusal.NO_ONLINE_REPLICA]
    assert leaves_no_trace(change)


def test_no_first_leader_if_leadership_is_known() -> None:
    cluster = in_state(OFFLINE)
    cluster.set_states(cluster.table.all(), NEW)

    change = plan(cluster, ONLINE)

    assert change.refusal.tolist() == [Refusal.STATE_EXISTS]
    assert leaves_no_trace(change)


def test_own_leadership_of_an_earlier_topic_is_overwritten() -> None:
    seed = PartitionSeed(replicas=(1, 2), state=NEW, leadership=Leadership(7, 3, (7,), 4, EPOCH))
    change = plan(ClusterSeed(live=frozenset({1, 2}), partitions={T0: seed}).columns(), ONLINE)

    assert change.refusal.tolist() == [Refusal.NONE]
    assert change.leader_epoch.tolist() == [4]
    assert change.rows.partition_epoch.tolist() == [4]  # by compare-and-set on it


@pytest.mark.parametrize("stored", [Leadership(7, 3, (7,), 4, EPOCH - 1), Leadership(1, 3, (1, 7), 4, EPOCH)])
def test_other_leadership_is_not_overwritten_by_a_first_leader(stored: Leadership) -> None:
    seed = PartitionSeed(replicas=(1, 2), state=NEW, leadership=stored)

    change = plan(ClusterSeed(live=frozenset({1, 2}), partitions={T0: seed}).columns(), ONLINE)

    assert change.refusal.tolist() == [Refusal.STATE_EXISTS]


def test_first_leaders_and_elections_are_planned_in_one_change() -> None:
    seeds = {
        T0: PartitionSeed(replicas=(1, 2), state=NEW),
        tp("t-1"): PartitionSeed(replicas=(1, 2), state=OFFLINE, leadership=Leadership(-1, 3, (2,), 4, 1)),
        tp("t-2"): PartitionSeed(replicas=(1, 2)),
    }
    cluster = ClusterSeed(live=frozenset({1, 2}), partitions=seeds).columns()
    rows = rows_of(cluster)
    nobody = np.zeros(len(rows), np.bool_)

    change = partition.go_online(rows, Election.OFFLINE, cluster.live_brokers, unclean=nobody, controller_epoch=EPOCH)

    results = zip(change.refusal.tolist(), change.leader.tolist(), change.leader_epoch.tolist(), strict=True)
    planned = dict(zip(rows.state.tolist(), results, strict=True))
    assert planned[NEW] == (Refusal.NONE, 1, 0)
    assert planned[OFFLINE] == (Refusal.NONE, 2, 4)
    assert planned[ABSENT][0] == Refusal.ILLEGAL_MOVE


@pytest.mark.parametrize("election", Election)
def test_no_election_without_leadership(election: Election) -> None:
    cluster = in_state(NEW)
    cluster.set_states(cluster.table.all(), OFFLINE)
    rows, anybody = rows_of(cluster), np.ones(1, np.bool_)

    change = partition.elect(rows, election, cluster.live_brokers, unclean=anybody, controller_epoch=EPOCH)

    assert change.refusal.tolist() == [Refusal.NO_LEADERSHIP]
    assert leaves_no_trace(change)


def test_leftover_replica_cannot_be_the_first_leader() -> None:
    seed = PartitionSeed(replicas=(1,), state=NEW, states={9: ReplicaState.OFFLINE})
    cluster = ClusterSeed(live=frozenset({9}), partitions={T0: seed}).columns()

    assert plan(cluster, ONLINE).refusal.tolist() == [Refusal.NO_ONLINE_REPLICA]


@pytest.mark.parametrize("before", [ONLINE, OFFLINE])
def test_failed_election_keeps_the_state(before: PartitionState) -> None:
    change = plan(in_state(before, live=(3,)), ONLINE)

    assert change.refusal.tolist() == [Refusal.NO_ELIGIBLE_LEADER]
    assert leaves_no_trace(change)


def test_rows_of_one_call_are_moved_or_refused_independently() -> None:
    seeds = {
        tp(f"t-{state.value}"): PartitionSeed(replicas=(1,), leadership=led(1, 3, (1,)), state=state)
        for state in PartitionState
    }
    cluster = ClusterSeed(live=frozenset({1}), partitions=seeds).columns()

    change = partition.move(rows_of(cluster, *map(str, seeds)), OFFLINE)

    assert change.refusal.tolist() == [Refusal.NONE, Refusal.NONE, Refusal.NONE, Refusal.ILLEGAL_MOVE]
    assert change.state.tolist() == [OFFLINE, OFFLINE, OFFLINE, ABSENT]


@pytest.mark.parametrize(
    ("leadership", "state"),
    [(None, NEW), (led(1, 0, (1,)), ONLINE), (led(3, 0, (3,)), OFFLINE), (led(-1, 0, (1,)), OFFLINE)],
)
def test_initial_state_follows_stored_leadership_and_live_brokers(leadership: object, state: PartitionState) -> None:
    seed = PartitionSeed(replicas=(1, 3), leadership=leadership)  # type: ignore[arg-type]
    cluster = ClusterSeed(live=frozenset({1}), partitions={T0: seed}).columns()

    assert partition.begin(rows_of(cluster), cluster.staying).state.tolist() == [state]


@pytest.mark.parametrize(("failed", "state"), [((), ONLINE), ((1,), OFFLINE)])
def test_leader_with_a_failed_directory_is_offline_at_startup(failed: tuple[int, ...], state: PartitionState) -> None:
    seed = PartitionSeed(replicas=(1, 3), leadership=led(1, 0, (1,)), dirs_offline=failed)
    cluster = ClusterSeed(live=frozenset({1, 3}), partitions={T0: seed}).columns()

    assert partition.begin(rows_of(cluster), cluster.staying).state.tolist() == [state]


def test_live_leader_outside_the_assignment_is_online_at_startup() -> None:
    seed = PartitionSeed(replicas=(1,), leadership=led(9, 0, (1,)))
    cluster = ClusterSeed(live=frozenset({1, 9}), partitions={T0: seed}).columns()

    assert partition.begin(rows_of(cluster), cluster.staying).state.tolist() == [ONLINE]
    assert not len(cluster.table.led_by_none_of(cluster.live_brokers.live))
