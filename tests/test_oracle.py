"""Columns and the object oracle agree on any cluster: elections, moves and broker failures."""

from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines import partition
from kactl.decide.machines.election import STRATEGIES, Elected, Election, first_leader
from kactl.decide.outbound.batch import RequestBatch
from kactl.decide.state.change import Refusal
from kactl.decide.state.rows import Rows
from kactl.model import NO_LEADER, PartitionState, ReplicaState, TopicPartition
from tests.oracle import election as oracle_election
from tests.oracle import failure, machines
from tests.oracle.batch import ObjectBatch, encode
from tests.oracle.model import Partition
from tests.support import sync_machines as columns
from tests.support.cluster_seeds import plain_cluster, plain_object_request, plain_objects, plain_request
from tests.support.cluster_strategies import TOPICS, Both, brokers, clusters

unclean_topics = st.sets(st.sampled_from(TOPICS))


def agree(both: Both) -> None:
    """Assert that both forms are equal and that the counters are correct."""
    assert plain_cluster(both.cluster) == plain_objects(both.objects)
    assert (both.cluster.offline_count, both.cluster.imbalance_count) == (
        both.objects.count_offline(),
        both.objects.count_imbalanced(),
    )


def say_the_same(batch: RequestBatch, objects: ObjectBatch) -> None:
    assert list(map(plain_request, batch.flush())) == list(map(plain_object_request, objects.flush()))


def names_of(both: Both, rows: Rows) -> list[TopicPartition]:
    return [both.cluster.table.view(row).name for row in rows.index.tolist()]


@given(clusters())
def test_cluster_is_equal_in_both_forms(both: Both) -> None:
    agree(both)


# -- elections ---------------------------------------------------------------------------------------------------------


def as_choice(rows: Rows, elected: Elected, at: int) -> tuple[object, ...] | None:
    if elected.leader[at] == NO_LEADER:
        return None
    return (
        int(elected.leader[at]),
        frozenset(rows.replicas[elected.in_sync[:, at], at].tolist()),
        bool(elected.recovering[at]),
        rows.replicas[elected.notify[:, at], at].tolist(),
        bool(elected.unclean[at]),
    )


def plain_choice(choice: oracle_election.Choice | None) -> tuple[object, ...] | None:
    if choice is None:
        return None
    return choice.leader, frozenset(choice.isr), choice.recovering, choice.told, choice.unclean


@pytest.mark.parametrize("election", Election)
@given(both=clusters(), topics=unclean_topics)
def test_elections_agree(election: Election, both: Both, topics: Collection[str]) -> None:
    cluster, table = both.cluster, both.cluster.table
    rows = table.rows(table.with_leadership())
    unclean = columns.unclean_in(cluster, rows, topics)

    elected = STRATEGIES[election](rows, cluster.live_brokers, unclean)

    for at, name in enumerate(names_of(both, rows)):
        one = both.objects.partitions[name]
        strategy = oracle_election.STRATEGIES[election]
        assert one.leading is not None
        choice = strategy(both.objects, one, one.leading, unclean=name.topic in topics)
        assert as_choice(rows, elected, at) == plain_choice(choice), name


@given(clusters())
def test_first_leaders_agree(both: Both) -> None:
    rows = both.cluster.table.rows(both.cluster.table.all())

    elected = first_leader(rows, both.cluster.live_brokers)

    for at, name in enumerate(names_of(both, rows)):
        choice = oracle_election.first_leader(both.objects, both.objects.partitions[name])
        assert as_choice(rows, elected, at) == plain_choice(choice), name


# -- queries -----------------------------------------------------------------------------------------------------------


@given(clusters(), st.sets(brokers(), max_size=3))
def test_cluster_queries_agree(both: Both, asked: set[int]) -> None:
    cluster, table, objects = both.cluster, both.cluster.table, both.objects

    def named(at: object) -> list[TopicPartition]:
        return sorted(names_of(both, table.rows(np.asarray(at, np.intp))))

    def said(partitions: list[Partition]) -> list[TopicPartition]:
        return sorted(each.name for each in partitions)

    assert named(table.led_by_none_of(cluster.live_brokers.live)) == said(objects.with_offline_leader())
    assert named(table.with_replica_on(asked)) == said(objects.with_replica_on(asked))
    assert named(table.in_state(PartitionState.OFFLINE, PartitionState.NEW)) == said(objects.waiting_for_a_leader())
    for broker in asked:
        assert named(table.led_by(broker)) == said(objects.led_by(broker))
        for name in objects.partitions:
            for wide in (False, True):
                online = cluster.is_replica_online(broker, name, include_shutting_down=wide)
                assert online == objects.is_online(broker, name, include_shutting_down=wide)
    rows = table.rows(table.all())
    epochs = dict(zip(names_of(both, rows), cluster.stop_replica_epoch(rows).tolist(), strict=True))
    assert epochs == {name: objects.stop_epoch(each) for name, each in objects.partitions.items()}


# -- the machines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [PartitionState.NEW, PartitionState.OFFLINE, PartitionState.ABSENT])
@given(both=clusters())
def test_partition_moves_agree(target: PartitionState, both: Both) -> None:
    at = both.cluster.table.all()

    refusal = columns.move_partitions(both.cluster, at, target)

    refused = machines.move_partitions(both.objects.partitions.values(), target)
    assert columns.refusals(both.cluster, at, refusal) == refused
    agree(both)


@pytest.mark.parametrize("election", Election)
@given(both=clusters(), topics=unclean_topics)
def test_partitions_going_online_agree(election: Election, both: Both, topics: Collection[str]) -> None:
    at, batch, objects = both.cluster.table.all(), RequestBatch(both.cluster), ObjectBatch(both.objects)

    refusal, _ = columns.go_online(both.cluster, batch, at, election, topics)

    plans, refused = machines.plan_online(both.objects, both.objects.partitions.values(), election, topics)
    machines.apply_online(objects, machines.commit(both.objects, plans))
    assert columns.refusals(both.cluster, at, refusal) == refused
    agree(both)
    say_the_same(batch, objects)


@pytest.mark.parametrize("target", [state for state in ReplicaState if state != ReplicaState.OFFLINE], ids=str)
@given(both=clusters(), broker=brokers())
def test_replica_moves_agree(target: ReplicaState, both: Both, broker: int) -> None:
    table, batch, objects = both.cluster.table, RequestBatch(both.cluster), ObjectBatch(both.objects)
    at = table.all()
    rows = table.rows(at)
    held = (rows.replicas == broker) & (rows.assigned | (rows.replica_state != ReplicaState.ABSENT))
    at = at[held.any(axis=0)]

    refused = columns.move_replicas(both.cluster, batch, at, [broker], target)

    here = both.cluster.table.rows(at)
    for position, name in enumerate(names_of(both, here)):
        reason = machines.move_replica(objects, both.objects.partitions[name], broker, target)
        assert Refusal(int(refused[:, position].max())) == reason, name
    agree(both)
    say_the_same(batch, objects)


@given(both=clusters(), gone=st.sets(brokers(), min_size=1, max_size=2))
def test_replicas_going_offline_agree(both: Both, gone: set[int]) -> None:
    table, batch, objects = both.cluster.table, RequestBatch(both.cluster), ObjectBatch(both.objects)
    by_broker = {broker: both.objects.with_replica_on([broker]) for broker in gone}

    for broker in sorted(gone):
        columns.replicas_offline(both.cluster, batch, table.with_replica_on([broker]), [broker])

    machines.replicas_offline(both.objects, objects, by_broker)
    agree(both)
    say_the_same(batch, objects)


@given(clusters())
def test_controller_startups_agree(both: Both) -> None:
    rows = both.cluster.table.rows(both.cluster.table.all())

    both.cluster.apply(partition.begin(rows, both.cluster.staying))

    for each in both.objects.partitions.values():
        each.state = machines.state_at_the_beginning(both.objects, each)
    agree(both)


# -- a broker fails ----------------------------------------------------------------------------------------------------


@given(both=clusters(), broker=brokers(), topics=unclean_topics)
def test_broker_failures_agree(both: Both, broker: int, topics: Collection[str]) -> None:
    sent = columns.broker_failed(both.cluster, broker, unclean_topics=topics)

    requests = failure.broker_failed(both.objects, broker, unclean_topics=topics)
    assert list(map(plain_request, sent)) == list(map(plain_object_request, requests))
    agree(both)
    assert len(encode(requests)) == len(requests)


@given(clusters(), st.lists(brokers(), min_size=2, max_size=4, unique=True))
def test_successive_failures_agree(both: Both, gone: list[int]) -> None:
    for broker in gone:
        sent = columns.broker_failed(both.cluster, broker)
        requests = failure.broker_failed(both.objects, broker)
        assert list(map(plain_request, sent)) == list(map(plain_object_request, requests))
    agree(both)
