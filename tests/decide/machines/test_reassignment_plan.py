"""Reassignment plans: few moves, balanced load, and all requested replicas."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.reassignment_plan import Replicas, plan
from kactl.model import Broker, TopicPartition
from kactl.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def brokers(*ids: int, racks: str = "") -> list[Broker]:
    return [Broker(id_, 0, rack=racks[index] if racks else None) for index, id_ in enumerate(ids)]


def partitions_of(*replicas: Replicas) -> dict[TopicPartition, Replicas]:
    return {TopicPartition("t", number): assignment for number, assignment in enumerate(replicas)}


def test_valid_replicas_are_not_moved() -> None:
    assert plan(partitions_of((1, 2), (2, 3)), brokers(1, 2, 3)) == {}


def test_removed_broker_is_replaced_in_its_position() -> None:
    planned = plan(partitions_of((1, 2), (3, 1), (2, 3)), brokers(2, 3))

    assert planned == {TopicPartition("t", 0): (3, 2), TopicPartition("t", 1): (3, 2)}


def test_least_loaded_broker_is_chosen_and_others_count_as_load() -> None:
    assert plan(partitions_of((1,)), brokers(2, 3), others=[(2, 9), (2,)]) == partitions_of((3,))


def test_new_rack_is_preferred_to_a_less_loaded_broker() -> None:
    planned = plan(partitions_of((1, 9)), brokers(1, 2, 3, racks="aab"), others=[(3,), (3,)])

    assert planned == partitions_of((1, 3))


def test_replicas_are_appended_and_cut_at_the_end() -> None:
    assert plan(partitions_of((2, 1)), brokers(1, 2, 3), replication_factor=3) == partitions_of((2, 1, 3))
    assert plan(partitions_of((2, 1, 3)), brokers(1, 2, 3), replication_factor=1) == partitions_of((2,))


def test_invalid_replicas_are_cut_first() -> None:
    assert plan(partitions_of((9, 1, 2)), brokers(1, 2, 3), replication_factor=2) == partitions_of((1, 2))


def test_new_broker_gets_its_share_only_with_balance() -> None:
    partitions = partitions_of(*[(1, 2)] * 6)

    assert plan(partitions, brokers(1, 2, 3)) == {}
    planned = partitions | plan(partitions, brokers(1, 2, 3), balance=True)
    assert sorted(replica_counts(planned).values()) == [4, 4, 4]
    assert sorted(collections.Counter(replicas[0] for replicas in planned.values()).values()) == [2, 2, 2]


def test_balance_does_not_reduce_the_racks_of_a_partition() -> None:
    partitions = partitions_of(*[(1, 3)] * 4)

    planned = partitions | plan(partitions, brokers(1, 2, 3, racks="aab"), balance=True)

    assert all(
        {1: "a", 2: "a", 3: "b"}[replicas[0]] != {1: "a", 2: "a", 3: "b"}[replicas[1]] for replicas in planned.values()
    )
    assert replica_counts(planned) == {1: 2, 2: 2, 3: 4}


def test_impossible_plans_are_rejected() -> None:
    with pytest.raises(
        InvalidReplicationFactor,
        match="t-0 cannot have 3 replicas on 2 brokers; plan with fewer replicas or more brokers",
    ):
        plan(partitions_of((1, 2, 3)), brokers(1, 2))
    with pytest.raises(InvalidReplicationFactor, match="0 replicas"):
        plan(partitions_of((1,)), brokers(1), replication_factor=0)
    with pytest.raises(InvalidReplicaAssignment, match="no broker is left"):
        plan(partitions_of((1,)), [])


def replica_counts(partitions: dict[TopicPartition, Replicas]) -> dict[int, int]:
    return dict(collections.Counter(broker for replicas in partitions.values() for broker in replicas))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, Replicas], list[Broker], int | None]:
    ids = draw(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True))
    allowed = [Broker(id_, 0, rack=draw(st.sampled_from([None, "a", "b"]))) for id_ in ids]
    replicas = st.lists(st.integers(0, 8), min_size=1, max_size=len(ids), unique=True).map(tuple)
    partitions = partitions_of(*draw(st.lists(replicas, max_size=12)))
    return partitions, allowed, draw(st.none() | st.integers(1, len(ids)))


@given(clusters(), st.booleans())
def test_plan_is_a_valid_assignment_and_idempotent(
    request: tuple[dict[TopicPartition, Replicas], list[Broker], int | None], balance: bool
) -> None:
    partitions, allowed, factor = request

    planned = plan(partitions, allowed, replication_factor=factor, balance=balance)

    after = partitions | planned
    for name, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == (factor or len(partitions[name]))
        assert set(replicas) <= {broker.id for broker in allowed}
    assert all(planned[name] != partitions[name] for name in planned)
    if not balance:
        assert plan(after, allowed, replication_factor=factor) == {}
        for name, replicas in after.items():
            staying = [broker for broker in partitions[name] if broker in replicas]
            assert staying == [broker for broker in replicas if broker in staying]
