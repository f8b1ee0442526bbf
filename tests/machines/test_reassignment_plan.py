"""Plans for a reassignment: little is moved, nothing is crowded, and everything asked for is there."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from kactl.machines.reassignment_plan import Replicas, plan
from kactl.model import Broker, TopicPartition


def brokers(*ids: int, racks: str = "") -> list[Broker]:
    return [Broker(id_, 0, rack=racks[at] if racks else None) for at, id_ in enumerate(ids)]


def held(*replicas: Replicas) -> dict[TopicPartition, Replicas]:
    return {TopicPartition("t", at): each for at, each in enumerate(replicas)}


def test_what_may_stay_stays() -> None:
    assert plan(held((1, 2), (2, 3)), brokers(1, 2, 3)) == {}


def test_a_broker_that_is_left_out_is_replaced_in_its_place() -> None:
    planned = plan(held((1, 2), (3, 1), (2, 3)), brokers(2, 3))

    assert planned == {TopicPartition("t", 0): (3, 2), TopicPartition("t", 1): (3, 2)}


def test_the_least_loaded_broker_is_chosen_and_others_count_as_load() -> None:
    assert plan(held((1,)), brokers(2, 3), others=[(2, 9), (2,)]) == held((3,))


def test_a_rack_without_a_replica_comes_before_a_less_loaded_broker() -> None:
    planned = plan(held((1, 9)), brokers(1, 2, 3, racks="aab"), others=[(3,), (3,)])

    assert planned == held((1, 3))


def test_more_replicas_are_put_at_the_end_and_fewer_are_cut_there() -> None:
    assert plan(held((2, 1)), brokers(1, 2, 3), replication_factor=3) == held((2, 1, 3))
    assert plan(held((2, 1, 3)), brokers(1, 2, 3), replication_factor=1) == held((2,))


def test_of_too_many_replicas_those_go_first_that_could_not_stay() -> None:
    assert plan(held((9, 1, 2)), brokers(1, 2, 3), replication_factor=2) == held((1, 2))


def test_a_new_broker_gets_its_share_only_when_asked_to_balance() -> None:
    partitions = held(*[(1, 2)] * 6)

    assert plan(partitions, brokers(1, 2, 3)) == {}
    planned = partitions | plan(partitions, brokers(1, 2, 3), balance=True)
    assert sorted(counted(planned).values()) == [4, 4, 4]
    assert sorted(collections.Counter(each[0] for each in planned.values()).values()) == [2, 2, 2]


def test_balancing_does_not_take_a_rack_from_a_partition() -> None:
    partitions = held(*[(1, 3)] * 4)

    planned = partitions | plan(partitions, brokers(1, 2, 3, racks="aab"), balance=True)

    assert all({1: "a", 2: "a", 3: "b"}[each[0]] != {1: "a", 2: "a", 3: "b"}[each[1]] for each in planned.values())
    assert counted(planned) == {1: 2, 2: 2, 3: 4}


def test_impossible_plans_are_rejected() -> None:
    with pytest.raises(InvalidReplicationFactor, match="t-0 is to have 3 replicas, on 2 brokers"):
        plan(held((1, 2, 3)), brokers(1, 2))
    with pytest.raises(InvalidReplicationFactor, match="0 replicas"):
        plan(held((1,)), brokers(1), replication_factor=0)
    with pytest.raises(InvalidReplicaAssignment, match="no broker is left"):
        plan(held((1,)), [])


def counted(partitions: dict[TopicPartition, Replicas]) -> dict[int, int]:
    return dict(collections.Counter(broker for each in partitions.values() for broker in each))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, Replicas], list[Broker], int | None]:
    ids = draw(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True))
    allowed = [Broker(id_, 0, rack=draw(st.sampled_from([None, "a", "b"]))) for id_ in ids]
    replicas = st.lists(st.integers(0, 8), min_size=1, max_size=len(ids), unique=True).map(tuple)
    partitions = held(*draw(st.lists(replicas, max_size=12)))
    return partitions, allowed, draw(st.none() | st.integers(1, len(ids)))


@given(clusters(), st.booleans())
def test_every_plan_is_an_assignment_and_a_second_one_changes_nothing(
    asked: tuple[dict[TopicPartition, Replicas], list[Broker], int | None], balance: bool
) -> None:
    partitions, allowed, factor = asked

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
