"""Fenced brokers: no election chooses them, none of them joins an ISR, and nothing is taken from them."""

import numpy as np
import pytest

from kactl.decide.machines import alter_partition, reassignment
from kactl.decide.machines.alter_partition import Proposed
from kactl.decide.machines.election import STRATEGIES, Election, first_leader
from kactl.decide.messages.broker import IsrProposal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import BrokerSet, LiveBrokers
from kactl.model import NO_LEADER, Broker, Leadership, TopicRef
from kactl.model.errors import ErrorCode
from tests.decide.machines.test_election import a_partition, elect, leader_of, notified
from tests.support.cluster_seeds import ClusterSeed, rows_of


def leadership(leader: int, *isr: int) -> Leadership:
    return Leadership(leader, 3, isr, 5, 1)


def fence(seed: ClusterSeed, *fenced: int) -> Cluster:
    cluster = seed.columns()
    cluster.add_brokers(Broker(broker, 0) for broker in seed.live | seed.shutting_down)
    cluster.set_fenced(frozenset(fenced))
    return cluster


def elected(
    seed: ClusterSeed, election: Election, *fenced: int, unclean: bool = False
) -> tuple[int, set[int], set[int]]:
    """Returns the leader, the ISR and the brokers that are notified."""
    cluster = fence(seed, *fenced)
    rows = rows_of(cluster, "t-0")
    result = STRATEGIES[election](rows, cluster.live_brokers, np.array([unclean]))
    members = rows.replicas[:, 0]
    return (
        int(result.leader[0]),
        set(members[result.in_sync[:, 0]].tolist()),
        set(members[result.notify[:, 0]].tolist()),
    )


@pytest.mark.parametrize("election", [Election.OFFLINE, Election.REASSIGNMENT, Election.CONTROLLED_SHUTDOWN])
def test_fenced_replica_is_passed_over(election: Election) -> None:
    seed = a_partition((1, 2, 3), leadership(NO_LEADER, 1, 2, 3), live=(1, 2, 3))

    leader, isr, notify = elected(seed, election, 1)

    assert (leader, isr, notify) == (2, {1, 2, 3}, {1, 2, 3})


@pytest.mark.parametrize("election", Election)
def test_election_with_only_fenced_candidates_elects_nobody(election: Election) -> None:
    seed = a_partition((1, 2), leadership(NO_LEADER, 1, 2), live=(1, 2))

    assert elected(seed, election, 1, 2)[0] == NO_LEADER


def test_preferred_replica_that_is_fenced_is_not_elected() -> None:
    seed = a_partition((1, 2), leadership(2, 1, 2), live=(1, 2))

    assert elected(seed, Election.PREFERRED, 1)[0] == NO_LEADER
    assert elected(seed, Election.PREFERRED, 2)[0] == 1


def test_fenced_member_of_the_isr_prevents_an_unclean_election() -> None:
    seed = a_partition((1, 2), leadership(NO_LEADER, 1), live=(1, 2))

    assert elected(seed, Election.OFFLINE, 1, unclean=True)[0] == NO_LEADER
    assert elected(seed, Election.OFFLINE, unclean=True)[0] == 1


def test_unclean_election_does_not_choose_a_fenced_replica() -> None:
    seed = a_partition((1, 2, 3), leadership(NO_LEADER, 1), live=(2, 3))

    assert elected(seed, Election.OFFLINE, 2, unclean=True)[:2] == (3, {3})


def test_first_isr_has_no_fenced_members_and_all_replicas_are_notified() -> None:
    seed = a_partition((1, 2, 3), leadership(NO_LEADER, 1), live=(1, 2, 3))
    cluster = fence(seed, 1, 3)
    rows = rows_of(cluster, "t-0")

    first = first_leader(rows, cluster.live_brokers)

    members = rows.replicas[:, 0]
    assert first.leader.tolist() == [2]
    assert members[first.in_sync[:, 0]].tolist() == [2]
    assert members[first.notify[:, 0]].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("isr", "error"), [((1, 2), ErrorCode.NONE), ((1, 2, 3), ErrorCode.INELIGIBLE_REPLICA)])
def test_fenced_follower_stays_in_the_isr_and_does_not_join(isr: tuple[int, ...], error: ErrorCode) -> None:
    seed = a_partition((1, 2, 3), leadership(1, 1, 2), live=(1, 2, 3))
    cluster = fence(seed, 2, 3)
    brokers = cluster.live_brokers
    proposed = Proposed.of([IsrProposal(TopicRef("t"), 0, 3, isr, 5)])

    judged = alter_partition.judge(
        rows_of(cluster, "t-0"), proposed, broker=1, live=brokers.electable, registered=brokers.registered, version=3
    )

    assert judged.error.tolist() == [error]


def test_reassignment_hands_leadership_to_no_fenced_replica() -> None:
    seed = a_partition((1, 2, 3), leadership(1, 1, 2, 3), live=(1, 2, 3))
    cluster = fence(seed, 2)
    rows = rows_of(cluster, "t-0")
    stays = np.array([[2], [3]], np.int32)

    assert reassignment.hand_over(rows, stays, cluster.live_brokers, controller_epoch=1).leader.tolist() == [3]


def test_sets_are_shared_while_nothing_is_fenced() -> None:
    """Elections of a hundred thousand partitions compute nothing twice."""
    cluster = Cluster(100)
    cluster.add_brokers([Broker(1, 0), Broker(2, 0)])
    cluster.set_fenced(frozenset({9}))

    assert cluster.live_brokers.unfenced is None
    assert cluster.live_brokers.electable is cluster.live_brokers.live
    assert cluster.fenced == frozenset()
    assert LiveBrokers(BrokerSet((1,)), BrokerSet((1,)), unfenced=BrokerSet()).electable.ids == frozenset()


def test_ordinary_elections_do_not_change() -> None:
    change = elect(a_partition((1, 2), leadership(NO_LEADER, 1, 2), live=(1, 2)), Election.OFFLINE)

    assert leader_of(change) == 1
    assert notified(change) == [1, 2]
