"""Cluster state of the controller: assignments, counters, brokers, topic ids and deletion."""

import numpy as np
import pytest

from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.state.cluster import NOT_ACTIVE, Cluster
from kactl.decide.state.deletion_blockers import BlockerReason, DeletionBlocker
from kactl.model import Assignment, Fence, Leadership, PartitionState, ReplicaState
from kactl.model.errors import IllegalState
from kactl.stores.base import Assignments, Leaderships
from tests.support.cluster_seeds import (
    ClusterSeed,
    PartitionSeed,
    ids_of,
    led,
    rows_of,
    seed_broker,
    slots_of,
    tp,
)

A0, A1, B0 = tp("A-0"), tp("A-1"), tp("B-0")


@pytest.fixture
def cluster() -> Cluster:
    """Three live brokers, three partitions without leaders."""
    return ClusterSeed(
        live=frozenset({1, 2, 3}),
        partitions={
            A0: PartitionSeed(replicas=(1, 2, 3)),
            A1: PartitionSeed(replicas=(2, 3, 1)),
            B0: PartitionSeed(replicas=(3, 1, 2)),
        },
    ).columns()


def lead(cluster: Cluster, name: str, leadership: Leadership) -> None:
    """Set the leadership of one partition, as after a read from the store."""
    cluster.put_leaderships(cluster.table.rows_named([tp(name)]), Leaderships.of([leadership]))


def assignments_of(cluster: Cluster, topic: str) -> dict[object, Assignment]:
    known = cluster.table.topic(topic)
    rows = [] if known is None else cluster.table.rows_of(known).tolist()
    views = [cluster.table.view(row) for row in rows]
    return {view.name: view.assignment for view in views}


def counts(cluster: Cluster) -> tuple[int, int]:
    """Return the counters, after checking that a recount agrees."""
    assert (cluster.offline_count, cluster.imbalance_count) == cluster.count_again()
    return cluster.offline_count, cluster.imbalance_count


# -- assignments -------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(1)
def test_assignment_replaces_the_previous_one(cluster: Cluster) -> None:
    cluster.put_assignment(A0, Assignment((4,)))

    assert cluster.assignment(A0) == Assignment((4,))


@pytest.mark.scenario(2)
def test_assignment_is_read_back_as_put(cluster: Cluster) -> None:
    """Additions and removals are marks on replicas, so marks of brokers that are not replicas are dropped. The
    assignment is not validated."""
    cluster.put_assignment(A0, Assignment((3, 1, 2), adding=(1,), removing=(2,)))
    cluster.put_assignment(A1, Assignment((3,), adding=(1,), removing=(2,)))

    assert cluster.assignment(A0) == Assignment((3, 1, 2), adding=(1,), removing=(2,))
    assert cluster.assignment(A1) == Assignment((3,))


@pytest.mark.scenario(3)
@pytest.mark.parametrize("name", ["unknown-0", "A-100"])
def test_unknown_partition_has_no_replicas(cluster: Cluster, name: str) -> None:
    assert cluster.assignment(tp(name)).replicas == ()
    assert cluster.view(tp(name)) is None


@pytest.mark.scenario(4)
@pytest.mark.parametrize("name", ["unknown-0", "A-100"])
def test_unknown_partition_has_an_empty_assignment(cluster: Cluster, name: str) -> None:
    assert cluster.assignment(tp(name)) == Assignment()


@pytest.mark.scenario(5)
def test_unknown_topic_has_no_assignments(cluster: Cluster) -> None:
    assert assignments_of(cluster, "unknown") == {}


@pytest.mark.scenario(6)
def test_topic_has_the_assignments_of_its_partitions(cluster: Cluster) -> None:
    assert assignments_of(cluster, "A") == {A0: Assignment((1, 2, 3)), A1: Assignment((2, 3, 1))}


# -- counters ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_off_balance(cluster: Cluster) -> Cluster:
    """All partitions assigned to [1, 2, 3], led by 1, 2 and 3."""
    for name in (A0, A1, B0):
        cluster.put_assignment(name, Assignment((1, 2, 3)))
    for leader, name in enumerate((A0, A1, B0), start=1):
        lead(cluster, str(name), led(leader, 0, (1, 2, 3)))
    return cluster


@pytest.mark.scenario(18)
def test_leader_that_is_not_preferred_counts_as_imbalance(cluster: Cluster) -> None:
    for name in (A0, A1, B0):
        cluster.put_assignment(name, Assignment((1, 2, 3)))
    seen = []

    for leader, name in enumerate((A0, A1, B0), start=1):
        lead(cluster, str(name), led(leader, 0, (1, 2, 3)))
        seen.append(counts(cluster)[1])

    assert seen == [0, 1, 2]


@pytest.mark.scenario(19)
def test_new_assignment_updates_the_imbalance_count(two_off_balance: Cluster) -> None:
    for name in (A0, A1):
        two_off_balance.put_assignment(name, Assignment((2, 3, 1)))

    assert counts(two_off_balance) == (0, 2)


@pytest.mark.scenario(20)
def test_topic_queued_for_deletion_is_not_counted(two_off_balance: Cluster) -> None:
    two_off_balance.put_assignment(A0, Assignment((2, 3, 1)))
    two_off_balance.put_assignment(A1, Assignment((2, 3, 1)))
    seen = []

    two_off_balance.queue_deletion(["B"])
    seen.append(counts(two_off_balance)[1])
    lead(two_off_balance, "B-0", led(1, 1, (1, 2, 3)))
    seen.append(counts(two_off_balance)[1])

    assert seen == [1, 1]


@pytest.mark.scenario(21)
def test_removed_topic_is_not_counted(two_off_balance: Cluster) -> None:
    two_off_balance.queue_deletion(["B"])

    for topic in ("A", "A", "B"):
        two_off_balance.remove_topic(topic)

    assert counts(two_off_balance) == (0, 0)


@pytest.mark.scenario(22)
def test_topic_queued_twice_is_subtracted_once(cluster: Cluster) -> None:
    cluster.put_assignment(B0, Assignment((1, 2, 3)))
    seen = []

    cluster.queue_deletion(["A"])
    seen.append(counts(cluster)[1])
    lead(cluster, "A-0", led(-1, 0, (1, 2, 3)))
    seen.append(counts(cluster)[1])
    cluster.queue_deletion(["A", "B"])
    seen.append(counts(cluster)[1])

    assert seen == [0, 0, 0]


@pytest.mark.scenario(23)
def test_added_preferred_replica_counts_only_when_in_sync(cluster: Cluster) -> None:
    cluster.put_assignment(A0, Assignment((4, 1), adding=(4,)))
    seen = []

    for leadership in (led(1, 0, (1,)), led(1, 0, (1, 4)), led(4, 1, (1, 4))):
        lead(cluster, "A-0", leadership)
        seen.append(counts(cluster)[1])

    assert seen == [0, 1, 1]


@pytest.mark.scenario(24)
def test_offline_partition_is_counted_once(cluster: Cluster) -> None:
    rows = cluster.table.rows_named([A0])
    cluster.set_states(rows, PartitionState.ONLINE)
    seen = []

    for state in (PartitionState.OFFLINE, PartitionState.OFFLINE, PartitionState.ONLINE):
        cluster.set_states(rows, state)
        seen.append(counts(cluster)[0])

    assert seen == [1, 1, 0]


def test_offline_partitions_are_not_counted_after_deletion_starts(cluster: Cluster) -> None:
    cluster.set_states(cluster.table.all(), PartitionState.OFFLINE)
    cluster.queue_deletion(["A", "B"])
    assert counts(cluster)[0] == 3

    cluster.begin_deletion(["A"])

    assert counts(cluster)[0] == 1
    cluster.begin_deletion(["A", "unknown"])
    cluster.remove_topic("A")
    assert counts(cluster)[0] == 1
    assert cluster.deletion_started == set()


def test_new_partitions_of_a_queued_topic_are_queued_with_it(cluster: Cluster) -> None:
    cluster.queue_deletion(["C"])

    cluster.put_assignment(tp("C-0"), Assignment((1, 2)))
    lead(cluster, "C-0", led(2, 0, (1, 2)))

    assert counts(cluster)[1] == 0
    assert not len(cluster.table.led_by(2))


@pytest.mark.parametrize("leader", [-1, 2, 3])
def test_reloaded_row_updates_counters_from_the_table_values(leader: int, cluster: Cluster) -> None:
    """The rows of a change may have been reloaded from the store; the counter still includes the table's old values."""
    lead(cluster, "A-0", led(1, 0, (1, 2, 3), 4, recovering=True))
    cluster.set_states(cluster.table.all(), PartitionState.ONLINE)
    read = rows_of(cluster, "A-0").replace(
        leader=np.array([leader], np.int32), partition_epoch=np.array([5], np.int32), recovering=np.array([False])
    )
    nothing = np.zeros(1, np.bool_)
    change = partition.elect(read, Election.PREFERRED, cluster.live_brokers, unclean=nothing, controller_epoch=50)

    cluster.apply(change.committed(np.array([6], np.int32)))

    assert counts(cluster)[1] == 0


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(25)
def test_topic_names_and_ids_are_one_to_one() -> None:
    x, y = b"x" * 16, b"y" * 16
    cluster = ClusterSeed(partitions={tp("t-0"): PartitionSeed(replicas=(1,))}).columns()

    with pytest.raises(IllegalState, match="topic u is unknown"):
        cluster.put_topic_id("u", x)
    cluster.put_topic_id("t", x)
    cluster.put_topic_id("t", x)
    with pytest.raises(IllegalState, match="topic t has the id"):
        cluster.put_topic_id("t", y)
    cluster.put_assignment(tp("u-0"), Assignment((1,)))
    with pytest.raises(IllegalState, match="belongs to topic t and cannot be given to u"):
        cluster.put_topic_id("u", x)

    ids = {topic.name: topic.ref.id for topic in cluster.table.topics()}
    assert ids == {"t": x, "u": bytes(16)}


# -- queries -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(26)
def test_replica_is_online_if_its_broker_and_directory_are() -> None:
    seed = PartitionSeed(replicas=(1, 2, 3, 4), dirs_offline=(4,))
    cluster = ClusterSeed(live=frozenset({1, 4}), shutting_down=frozenset({2}), partitions={tp("t-0"): seed}).columns()

    online = [cluster.is_replica_online(id, tp("t-0")) for id in (1, 2, 3, 4, -1)]

    assert online == [True, False, False, False, False]
    assert cluster.is_replica_online(2, tp("t-0"), include_shutting_down=True)
    assert not cluster.is_replica_online(4, tp("t-0"), include_shutting_down=True)
    cluster.forget_offline_dirs(4)
    assert cluster.is_replica_online(4, tp("t-0"))


@pytest.mark.scenario(27)
def test_led_by_excludes_sole_replicas_and_queued_topics() -> None:
    cluster = ClusterSeed(
        partitions={
            tp("a-0"): PartitionSeed(replicas=(1,), leadership=led(1, 0, (1,))),
            tp("b-0"): PartitionSeed(replicas=(1, 2), leadership=led(1, 0, (1, 2))),
            tp("c-0"): PartitionSeed(replicas=(1, 2), leadership=led(1, 0, (1, 2))),
        },
        queued=frozenset({"c"}),
    ).columns()

    assert cluster.table.led_by(1).tolist() == cluster.table.rows_named([tp("b-0")]).tolist()


@pytest.mark.scenario(28)
def test_stop_replica_epoch_marks_topics_queued_for_deletion() -> None:
    cluster = ClusterSeed(
        partitions={
            tp("t-0"): PartitionSeed(replicas=(1,), leadership=led(1, 7, (1,))),
            tp("u-0"): PartitionSeed(replicas=(1,)),
            tp("w-0"): PartitionSeed(replicas=(1,), leadership=led(1, 3, (1,))),
        },
        queued=frozenset({"w"}),
    ).columns()

    assert cluster.stop_replica_epoch(rows_of(cluster, "t-0", "u-0", "w-0")).tolist() == [7, -1, -2]


@pytest.mark.scenario(29)
def test_topic_without_partitions_has_all_replicas_in_any_state(cluster: Cluster) -> None:
    cluster.table.add_topic("empty")

    assert cluster.all_replicas_in("empty", ReplicaState.DELETION_SUCCESSFUL)
    assert cluster.all_replicas_in("unknown", ReplicaState.DELETION_SUCCESSFUL)
    assert not cluster.all_replicas_in("A", ReplicaState.DELETION_SUCCESSFUL)
    row_numbers = cluster.table.all()
    rows = cluster.table.rows(row_numbers)
    states = np.where(slots_of(rows, 1, 2), ReplicaState.DELETION_SUCCESSFUL, ReplicaState.OFFLINE)
    cluster.table.set_replica_states(row_numbers, states)
    assert not cluster.all_replicas_in("A", ReplicaState.DELETION_SUCCESSFUL)


@pytest.mark.scenario(30)
def test_leader_is_offline_if_dead_or_absent() -> None:
    cluster = ClusterSeed(
        live=frozenset({1}),
        partitions={
            tp("t-0"): PartitionSeed(replicas=(1, 9), leadership=led(9, 0, (1, 9))),
            tp("u-0"): PartitionSeed(replicas=(1, 9), leadership=led(-1, 0, (9,))),
            tp("w-0"): PartitionSeed(replicas=(1, 9), leadership=led(1, 0, (1, 9))),
            tp("x-0"): PartitionSeed(replicas=(1, 9), leadership=led(9, 0, (1, 9))),
        },
        queued=frozenset({"x"}),
    ).columns()

    rows = cluster.table.led_by_none_of(cluster.live_brokers.live)

    assert rows.tolist() == cluster.table.rows_named([tp("t-0"), tp("u-0")]).tolist()


# -- removed topics ----------------------------------------------------------------------------------------------------


@pytest.fixture
def doomed() -> Cluster:
    """Topic t is being deleted and has every kind of state; u has the same and is not deleted."""
    seed = PartitionSeed(
        replicas=(1, 2),
        adding=(2,),
        leadership=led(1, 4, (1, 9)),
        state=PartitionState.OFFLINE,
        states={1: ReplicaState.DELETION_STARTED, 2: ReplicaState.DELETION_INELIGIBLE},
        dirs_offline=(2,),
    )
    cluster = ClusterSeed(
        live=frozenset({1, 2, 9}),
        partitions={tp("t-0"): seed, tp("u-0"): seed},
        topic_ids=ids_of(["t", "u"]),
        queued=frozenset({"t"}),
        started=frozenset({"t"}),
    ).columns()
    cluster.block_deletion("t", DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, (2,), (0,)))
    cluster.deletion_unsure.add("t")
    cluster.reassigning |= {tp("t-0"), tp("u-0")}
    return cluster


@pytest.mark.scenario(31)
def test_removed_topic_is_removed_from_all_state(doomed: Cluster) -> None:
    doomed.remove_topic("t")

    assert doomed.topics_to_delete == set()
    assert doomed.deletion_started == set()
    assert [topic.name for topic in doomed.table.topics()] == ["u"]
    assert doomed.assignment(tp("t-0")) == Assignment()
    assert doomed.view(tp("t-0")) is None
    assert doomed.table.leadership_count() == 1
    doomed.put_topic_id("u", doomed.table.topic("u").ref.id)  # type: ignore[union-attr]
    doomed.put_assignment(tp("v-0"), Assignment((1,)))
    doomed.put_topic_id("v", ids_of(["t"])["t"])  # its id is free again


@pytest.mark.scenario(32)
def test_removed_topic_loses_partition_and_replica_states(doomed: Cluster) -> None:
    doomed.remove_topic("t")

    assert doomed.deletion_ineligible == {}
    assert doomed.deletion_unsure == set()
    assert doomed.reassigning == {tp("u-0")}
    assert counts(doomed) == (1, 0)
    doomed.put_assignment(tp("t-0"), Assignment((9, 2)))
    again = doomed.view(tp("t-0"))
    assert again is not None
    assert again.state == PartitionState.ABSENT
    assert again.leadership is None
    assert again.isr == ()
    assert again.replica_states == {9: ReplicaState.ABSENT, 2: ReplicaState.ABSENT}
    assert doomed.is_replica_online(2, tp("t-0"))
    assert not rows_of(doomed, "t-0").queued.any()


@pytest.mark.scenario(33)
def test_reset_clears_all_state(doomed: Cluster) -> None:
    doomed.mark_shutting_down(2)
    assert counts(doomed) == (1, 0)
    assert doomed.fence != NOT_ACTIVE

    doomed.reset()

    assert len(doomed.table) == 0
    assert doomed.table.topic_count() == 0
    assert doomed.brokers == {}
    assert doomed.shutting_down == frozenset()
    assert not len(doomed.live_brokers.registered)
    assert doomed.topics_to_delete == doomed.deletion_started == doomed.deletion_unsure == set()
    assert doomed.deletion_ineligible == {}
    assert doomed.reassigning == set()
    assert counts(doomed) == (0, 0)
    assert doomed.fence == Fence(epoch=0, version=0)


# -- brokers -----------------------------------------------------------------------------------------------------------


def test_registration_replaces_the_previous_one_by_id(cluster: Cluster) -> None:
    cluster.add_brokers([seed_broker(7), seed_broker(2, epoch=9)])

    assert [(registered.id, registered.epoch) for registered in cluster.brokers.values()] == [
        (1, 1001),
        (2, 9),
        (3, 1003),
        (7, 1007),
    ]
    assert cluster.live_brokers.live.ids == {1, 2, 3, 7}
    cluster.mark_shutting_down(7)
    cluster.remove_brokers([1, 100])
    assert cluster.live_brokers.live.ids == {2, 3}
    assert cluster.live_brokers.registered.ids == {2, 3, 7}
    cluster.mark_shutting_down(7, False)
    assert cluster.live_brokers.live.ids == {2, 3, 7}


def test_put_assignments_returns_rows_in_input_order(cluster: Cluster) -> None:
    names = [tp("C-3"), A1, tp("C-0"), B0]

    rows = cluster.put_assignments(Assignments.of({name: Assignment((1,)) for name in names}))

    assert rows.tolist() == cluster.table.rows_named(names).tolist()
