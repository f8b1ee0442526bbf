"""Placement: leaders and replicas stay within one of their averages, and replicas in as many racks as possible."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.config.controller_settings import ControllerSettings
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.machines.placement import Load, check_creation, check_growth, load_of, place
from kactl.decide.messages.admin import AddPartitions, CreateTopic
from kactl.decide.state.cluster import Cluster
from kactl.model import Assignment, Broker, TopicPartition
from kactl.model.errors import BadConfig
from kactl.stores.base import Assignments


def cluster_of(brokers: int, *, racks: int = 0) -> Cluster:
    cluster = Cluster(100)
    cluster.add_brokers([Broker(number, 1, (), f"r{number % racks}" if racks else None) for number in range(brokers)])
    return cluster


def create(cluster: Cluster, topic: str, partitions: int, factor: int) -> dict[int, Assignment]:
    _, assignment = check_creation(CreateTopic(topic, partitions, factor), cluster, ControllerSettings())
    put(cluster, topic, assignment)
    return assignment


def grow(cluster: Cluster, topic: str, more: int) -> None:
    known = cluster.table.topic(topic)
    assert known is not None
    numbers = range(len(cluster.table.rows_of(known)))
    existing = {number: cluster.assignment(TopicPartition(topic, number)) for number in numbers}
    put(cluster, topic, check_growth(AddPartitions(topic, len(existing) + more), existing, cluster))


def put(cluster: Cluster, topic: str, assignment: dict[int, Assignment]) -> None:
    named = {TopicPartition(topic, number): replicas for number, replicas in assignment.items()}
    cluster.put_assignments(Assignments.of(named))


def loads(cluster: Cluster) -> tuple[list[int], list[int]]:
    load = load_of(cluster.table, list(cluster.brokers.values()))
    return load.leaders.tolist(), load.replicas.tolist()


def spread(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


STEPS = st.tuples(st.sampled_from(["create", "create", "grow", "delete"]), st.integers(1, 5), st.integers(1, 7))


@given(brokers=st.integers(1, 7), steps=st.lists(STEPS, max_size=30))
def test_leaders_and_replicas_stay_within_one_of_the_average(brokers: int, steps: list[tuple[str, int, int]]) -> None:
    """A deletion may unbalance a cluster. What is created afterwards balances it again, as soon as there is room."""
    cluster = cluster_of(brokers)
    has_deleted = False
    for number, (what, partitions, factor) in enumerate(steps):
        names = [topic.name for topic in cluster.table.topics()]
        if what == "create" or not names:
            create(cluster, f"t{number}", partitions, min(factor, brokers))
        elif what == "grow":
            grow(cluster, names[partitions % len(names)], factor)
        else:
            cluster.remove_topic(names[partitions % len(names)])
            has_deleted = True
        if not has_deleted:
            assert all(spread(counts) <= 1 for counts in loads(cluster))

    for number in range(200):
        create(cluster, f"filling-{number}", 1, 1 + number % min(brokers, 2))
    assert all(spread(counts) <= 1 for counts in loads(cluster))


def test_topics_of_each_day_do_not_gather_on_one_broker() -> None:
    cluster = cluster_of(6)
    for day in range(90):
        create(cluster, f"day-{day}", 1, 2)
        cluster.remove_topic(f"day-{day - 30}")

        for counts in loads(cluster):
            assert all(abs(count - sum(counts) / 6) <= 1 for count in counts)


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_replicas_are_in_as_many_racks_as_possible(factor: int) -> None:
    cluster = cluster_of(6, racks=3)
    for number in range(7):
        assignment = create(cluster, f"t{number}", 5, factor)
        for partition in assignment.values():
            assert len({broker % 3 for broker in partition.replicas}) == min(factor, 3)
        if number % 3 == 2:
            cluster.remove_topic(f"t{number - 1}")
    create(cluster, "filling", 60, factor)

    for counts in loads(cluster):
        assert spread(counts) <= 1


def test_followers_of_one_leader_are_on_all_other_brokers() -> None:
    placed = place([Broker(number, 1, ()) for number in range(5)], partitions=40, replication_factor=2)

    for leader in range(5):
        followers = Counter(replicas[1] for replicas in placed if replicas[0] == leader)
        assert len(followers) == 4


def test_placement_is_deterministic_and_does_not_change_the_load() -> None:
    brokers = [Broker(number, 1, ()) for number in range(4)]
    load = Load(np.array([3, 0, 1, 0]), np.array([4, 4, 1, 2]))
    before = dataclasses.replace(load, leaders=load.leaders.copy(), replicas=load.replicas.copy())

    first, second = (place(brokers, partitions=3, replication_factor=2, load=load) for _ in range(2))

    assert first == second
    assert [replicas[0] for replicas in first] == [3, 1, 2]
    assert (load.leaders == before.leaders).all()
    assert (load.replicas == before.replicas).all()


def test_topics_that_are_deleted_do_not_count() -> None:
    cluster = cluster_of(2)
    create(cluster, "old", 1, 1)
    cluster.queue_deletion(["old"])

    assert create(cluster, "new", 1, 1) == {0: Assignment((0,))}


def test_only_clusters_without_kafkas_brokers_have_settings_of_their_own() -> None:
    request, settings = CreateTopic("jobs", 1, 1, config={"jobs.parallel": "2"}), ControllerSettings()
    participants = Cluster(100)
    participants.add_brokers([Broker(1, 1, (), incarnation=b"1" * 16)])

    check_creation(request, participants, settings)

    with pytest.raises(BadConfig, match=r"jobs\.parallel: topics have no such setting"):
        check_creation(request, cluster_of(1), settings)


def test_names_of_later_levels_are_rejected() -> None:
    request = CreateTopic("jobs", 1, 1, config={"compression.gzip.level": "9"})

    check_creation(request, cluster_of(1), ControllerSettings(level=ProtocolLevel(3, 8)))

    with pytest.raises(BadConfig, match=r"from level 3\.8 on"):
        check_creation(request, cluster_of(1), ControllerSettings(level=ProtocolLevel(3, 7)))
