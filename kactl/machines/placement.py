"""Where the replicas of new topics and partitions go, and whether what was asked for can be.

Leaders go round the brokers; followers go round them with a stride that changes each time, so that the partitions of
one broker have their followers on all others. Where brokers have racks, neighbours in the round are of different
racks and a partition's replicas take as many racks as there are.
"""

import itertools
from collections.abc import Mapping, Sequence

from kactl.config import topic as topic_config
from kactl.errors import (
    BadConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    ReassignmentRunning,
    TopicBeingDeleted,
    TopicExists,
)
from kactl.messages.admin import PARTITIONS_OF_A_TOPIC_MAX, PartitionsRequested, TopicCreationRequested
from kactl.model import Assignment, Broker, TopicRef, check_topic_name
from kactl.state.cluster import Cluster


def check_creation(asked: TopicCreationRequested, cluster: Cluster) -> tuple[TopicRef, dict[int, Assignment]]:
    """The topic that was asked for, with an assignment; nothing is changed.

    Raises:
        InvalidTopic, TopicExists, BadConfig, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment.
    """
    reason = check_topic_name(asked.topic)
    if reason is not None:
        raise InvalidTopic("name", reason)
    if asked.topic in cluster.topics_to_delete:
        raise TopicBeingDeleted(asked.topic)
    if cluster.table.topic(asked.topic) is not None:
        raise TopicExists(asked.topic)
    other = _colliding(asked.topic, cluster)
    if other is not None:
        raise InvalidTopic(
            "name", f"{asked.topic!r} and the topic {other!r} have the same metrics; choose another name"
        )
    unusable = topic_config.wrong(asked.config)
    if unusable is not None:
        raise BadConfig("config", ": ".join(unusable))
    if asked.assignment is not None:
        if asked.partitions is not None or asked.replication_factor is not None:
            raise InvalidReplicaAssignment(
                "assignment", "give either an assignment, or partitions and replication_factor, not both"
            )
        return TopicRef(asked.topic), check_assignment(asked.assignment, cluster.brokers)
    count = 1 if asked.partitions is None else asked.partitions
    if not 1 <= count <= PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("partitions", f"{count} is not between 1 and {PARTITIONS_OF_A_TOPIC_MAX}")
    factor = 1 if asked.replication_factor is None else asked.replication_factor
    live = [broker for id_, broker in cluster.brokers.items() if id_ not in cluster.shutting_down]
    if factor < 1:
        raise InvalidReplicationFactor("replication_factor", f"{factor} is less than 1")
    if factor > len(live):
        raise InvalidReplicationFactor(
            "replication_factor", f"{factor} replicas need {factor} live brokers, and there are {len(live)}"
        )
    placed = place(live, partitions=count, replication_factor=factor, start=cluster.table.topic_count())
    return TopicRef(asked.topic), dict(enumerate(map(Assignment, placed)))


def check_growth(asked: PartitionsRequested, held: Mapping[int, Assignment], cluster: Cluster) -> dict[int, Assignment]:
    """The partitions that are to be added, with their assignments; nothing is changed.

    They get as many replicas as the first partition has, and go on round the brokers from where it is.

    Args:
        held: what is stored of the topic now.

    Raises:
        InvalidPartitions, ReassignmentRunning, InvalidReplicationFactor, InvalidReplicaAssignment.
    """
    first = max(held, default=-1) + 1
    if asked.count <= first:
        raise InvalidPartitions(
            "partitions", f"{asked.count} partitions, and the topic has {first}: ask for more than that"
        )
    if asked.count > PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("partitions", f"{asked.count} partitions, at most {PARTITIONS_OF_A_TOPIC_MAX}")
    if any(each.is_being_reassigned for each in held.values()):
        raise ReassignmentRunning(asked.topic)
    if not held:
        raise InvalidPartitions(
            "partitions", "the topic has no partition whose replicas could be counted: make it anew"
        )
    size, numbers = len(held[min(held)].replicas), range(first, asked.count)
    if asked.assignment is not None:
        return dict(zip(numbers, _given(asked.assignment, len(numbers), size, cluster), strict=True))
    live = [broker for id_, broker in cluster.brokers.items() if id_ not in cluster.shutting_down]
    if size > len(live):
        raise InvalidReplicationFactor(
            "partitions", f"{size} replicas, as the topic has them, need {size} live brokers, and there are {len(live)}"
        )
    circle = [broker.id for broker in _interleaved(live)]
    begin = next((circle.index(broker) for broker in held[min(held)].replicas if broker in circle), 0)
    placed = place(live, partitions=len(numbers), replication_factor=size, start=begin, first=first)
    return dict(zip(numbers, map(Assignment, placed), strict=True))


def _given(given: Sequence[Sequence[int]], count: int, size: int, cluster: Cluster) -> list[Assignment]:
    """A manual assignment of `count` new partitions with `size` replicas each, as the topic's others have them."""
    if len(given) != count:
        raise InvalidReplicaAssignment("assignment", f"{len(given)} lists of replicas for {count} new partitions")
    numbered = dict(enumerate(Assignment(tuple(replicas)) for replicas in given))
    checked = list(check_assignment(numbered, cluster.brokers).values())
    if len(checked[0].replicas) != size:
        found = len(checked[0].replicas)
        raise InvalidReplicaAssignment("assignment.0", f"{found} replicas, and the topic's partitions have {size}")
    return checked


def _colliding(name: str, cluster: Cluster) -> str | None:
    """A topic whose name differs from `name` only in that one has dots where the other has underscores.

    Brokers name metrics after topics, with underscores for dots. Source: Topic.hasCollision.
    """
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    names = (topic.name for topic in cluster.table.topics())
    return next((each for each in names if each.replace(".", "_") == plain), None)


def check_assignment(assignment: Mapping[int, Assignment], brokers: Mapping[int, Broker]) -> dict[int, Assignment]:
    """A manual assignment, in the order of partitions.

    Raises:
        InvalidReplicaAssignment: a gap in the numbers, no replica, one named twice, different numbers of replicas, or
            a broker that is not registered.
    """
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicaAssignment("assignment", "partitions are numbered from 0 without a gap")
    if len(assignment) > PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("assignment", f"{len(assignment)} partitions, at most {PARTITIONS_OF_A_TOPIC_MAX}")
    size = len(assignment[0].replicas)
    for partition, held in sorted(assignment.items()):
        where = f"assignment.{partition}"
        if not held.replicas:
            raise InvalidReplicaAssignment(where, "a partition needs at least one replica")
        if len(set(held.replicas)) != len(held.replicas):
            raise InvalidReplicaAssignment(where, f"{list(held.replicas)} names a broker twice")
        if len(held.replicas) != size:
            raise InvalidReplicaAssignment(where, f"{len(held.replicas)} replicas, and partition 0 has {size}")
        unknown = [broker for broker in held.replicas if broker not in brokers]
        if unknown:
            raise InvalidReplicaAssignment(where, f"brokers {unknown} are not registered; there are {sorted(brokers)}")
    return dict(sorted(assignment.items()))


def place(
    brokers: Sequence[Broker], *, partitions: int, replication_factor: int, start: int = 0, first: int = 0
) -> list[tuple[int, ...]]:
    """Replicas for partitions `first` ... `first` + `partitions` - 1, no broker twice in one.

    Args:
        brokers: at least `replication_factor`.
        start: where partition 0 begins in the round, so that topics with few partitions do not all begin on one broker.
    """
    circle = _interleaved(brokers)
    size = len(circle)
    placed = []
    for partition in range(first, first + partitions):
        leader = (start + partition) % size
        stride = 1 + (start + partition // size) % (size - 1) if size > 1 else 0
        others = [circle[(leader + 1 + (stride - 1 + step) % (size - 1)) % size] for step in range(size - 1)]
        placed.append(_spread([circle[leader], *others], replication_factor))
    return placed


def _interleaved(brokers: Sequence[Broker]) -> list[Broker]:
    """The brokers by id, neighbours of different racks as long as there are different ones left."""
    racks: dict[str, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = itertools.zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for turn in rounds for broker in turn if broker is not None]


def _spread(candidates: Sequence[Broker], count: int) -> tuple[int, ...]:
    """The first `count` candidates, those that bring a new rack first; the first candidate is always first."""
    chosen: list[Broker] = []
    racks: set[str | None] = set()
    for broker in candidates:
        if len(chosen) < count and (broker.rack not in racks or broker.rack is None):
            chosen.append(broker)
            racks.add(broker.rack)
    for broker in candidates:
        if len(chosen) < count and broker not in chosen:
            chosen.append(broker)
    return tuple(broker.id for broker in chosen)
