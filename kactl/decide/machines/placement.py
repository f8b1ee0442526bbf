"""Placement of the replicas of new topics and partitions, and validation of requests to create them.

Replicas go where the fewest are: the leader to the broker that leads the fewest partitions, the followers to those with
the fewest replicas. Otherwise topics that are created and deleted by turns would gather on some brokers. Among equal
brokers leaders are assigned round-robin, and followers with a stride that changes with each round, so that the
partitions led by one broker have their followers on all others. If brokers have racks, neighbours in the round are of
different racks, and the replicas of a partition are in as many racks as possible.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kactl.config.controller_settings import ControllerSettings
from kactl.config.topic import Rules, check_overrides
from kactl.decide.messages.admin import AddPartitions, CreateTopic
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Ints, first
from kactl.decide.state.table import Table
from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, Assignment, Broker, TopicRef, check_topic_name
from kactl.model.errors import (
    BadRequest,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    ReassignmentRunning,
    TopicBeingDeleted,
    TopicExists,
)

from .shortage import too_few


def topic_rules(cluster: Cluster, settings: ControllerSettings) -> Rules:
    """Returns which overrides topics may have. Only programs without Kafka's brokers may use names of their own."""
    has_kafkas = any(not broker.incarnation for broker in cluster.brokers.values())
    return Rules(settings.level, settings.remote_log_storage_system_enable, own_names=not has_kafkas)


def check_creation(
    request: CreateTopic, cluster: Cluster, settings: ControllerSettings
) -> tuple[TopicRef, dict[int, Assignment]]:
    """Returns the requested topic with its assignment; nothing is changed.

    A dry run without an assignment places nothing: a few bytes can request any number of partitions.

    Raises:
        InvalidTopic, TopicExists, BadConfig, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment.
    """
    reason = check_topic_name(request.topic)
    if reason is not None:
        raise InvalidTopic("name", reason)
    if request.topic in cluster.topics_to_delete:
        raise TopicBeingDeleted(request.topic)
    if cluster.table.topic(request.topic) is not None:
        raise TopicExists(request.topic)
    other = _colliding(request.topic, cluster)
    if other is not None:
        raise InvalidTopic(
            "name", f"{request.topic!r} and the topic {other!r} have the same metrics; choose another name"
        )
    is_ownership = request.kind == "ownership"
    assignment = _unplaced(request, cluster, settings) if is_ownership else _placement(request, cluster)
    check_room(cluster, len(request.assignment or ()) or request.partitions or 1, settings.partitions_max)
    check_overrides(request.config, topic_rules(cluster, settings))
    return TopicRef(request.topic), assignment


def check_room(cluster: Cluster, more: int, partitions_max: int) -> None:
    """Raises InvalidPartitions if the cluster would have too many partitions."""
    count = len(cluster.table.all())
    if count + more > partitions_max:
        raise InvalidPartitions(
            "partitions",
            f"{more} more partitions, the cluster has {count}, and at most {partitions_max} are created: delete "
            "topics, or raise partitions-max of [controller] (partitions_max=)",
        )


def _placement(request: CreateTopic, cluster: Cluster) -> dict[int, Assignment]:
    """Returns the assignment of a new topic: the requested one, or a new one."""
    if request.assignment is not None:
        if request.partitions is not None or request.replication_factor is not None:
            raise InvalidReplicaAssignment(
                "assignment", "give either an assignment, or partitions and replication_factor, not both"
            )
        return check_assignment(request.assignment, cluster.brokers)
    count = _checked_count(request.partitions)
    factor = 1 if request.replication_factor is None else request.replication_factor
    live = usable_brokers(cluster)
    if factor < 1:
        raise InvalidReplicationFactor("replication_factor", f"{factor} is less than 1")
    if factor > len(live):
        raise InvalidReplicationFactor(
            "replication_factor",
            too_few(cluster, [broker.id for broker in live], factor),
        )
    if request.dry_run:
        return {}
    placed = place(live, partitions=count, replication_factor=factor, load=load_of(cluster.table, live))
    return dict(enumerate(map(Assignment, placed)))


def _unplaced(request: CreateTopic, cluster: Cluster, settings: ControllerSettings) -> dict[int, Assignment]:
    """Returns the stored assignment of a new ownership topic: partitions without replicas. See `ownership`."""
    if request.assignment is not None or request.replication_factor is not None:
        raise BadRequest(
            "kind",
            "the participants of an ownership topic are chosen by the controller: leave out assignment and "
            "replication_factor, and give standby= for warm followers",
        )
    if not settings.level.topic_ids:
        raise BadRequest("kind", f"ownership topics need topics with ids: level 2.8 or above, not {settings.level}")
    kafkas = sorted(id_ for id_, broker in cluster.brokers.items() if not broker.incarnation)
    if kafkas:
        raise BadRequest(
            "kind", f"brokers {kafkas[:5]} are Kafka's, which know no ownership topics: use another cluster"
        )
    count = _checked_count(request.partitions)
    return dict.fromkeys(range(0 if request.dry_run else count), Assignment())


def _checked_count(partitions: int | None) -> int:
    count = 1 if partitions is None else partitions
    if not 1 <= count <= PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("partitions", f"{count} is not between 1 and {PARTITIONS_OF_A_TOPIC_MAX}")
    return count


def check_growth(
    request: AddPartitions, existing: Mapping[int, Assignment], cluster: Cluster, *, is_ownership: bool = False
) -> dict[int, Assignment]:
    """Returns the partitions to add with their assignments; nothing is changed.

    They have as many replicas as the first partition. A dry run without an assignment places nothing.

    Args:
        existing: the stored assignments of the topic.

    Raises:
        InvalidPartitions, ReassignmentRunning, InvalidReplicationFactor, InvalidReplicaAssignment.
    """
    first = max(existing, default=-1) + 1
    if request.count <= first:
        raise InvalidPartitions(
            "partitions", f"{request.count} partitions, and the topic has {first}: request more than that"
        )
    if request.count > PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("partitions", f"{request.count} partitions, at most {PARTITIONS_OF_A_TOPIC_MAX}")
    if any(assignment.is_being_reassigned for assignment in existing.values()):
        raise ReassignmentRunning(request.topic)
    if not existing:
        raise InvalidPartitions(
            "partitions", "the topic has no partition to take the number of replicas from: create it again"
        )
    size, numbers = len(existing[min(existing)].replicas), range(first, request.count)
    if is_ownership:
        if request.assignment is not None:
            raise InvalidReplicaAssignment("assignment", "the controller chooses the owners: leave it out")
        return dict.fromkeys(numbers, Assignment())
    if request.assignment is not None:
        return dict(zip(numbers, _given(request.assignment, len(numbers), size, cluster), strict=True))
    live = usable_brokers(cluster)
    if size > len(live):
        raise InvalidReplicationFactor(
            "partitions",
            f"the topic has {size} replicas: {too_few(cluster, [broker.id for broker in live], size)}",
        )
    if request.dry_run:
        return {}
    placed = place(live, partitions=len(numbers), replication_factor=size, load=load_of(cluster.table, live))
    return dict(zip(numbers, map(Assignment, placed), strict=True))


def usable_brokers(cluster: Cluster) -> list[Broker]:
    """Returns the brokers that may get replicas."""
    passed_over = cluster.shutting_down | cluster.fenced
    return [broker for id_, broker in cluster.brokers.items() if id_ not in passed_over]


def _given(given: Sequence[Sequence[int]], count: int, size: int, cluster: Cluster) -> list[Assignment]:
    """Returns a manual assignment of `count` new partitions with `size` replicas each, as the others have."""
    if len(given) != count:
        raise InvalidReplicaAssignment("assignment", f"{len(given)} lists of replicas for {count} new partitions")
    numbered = dict(enumerate(Assignment(tuple(replicas)) for replicas in given))
    checked = list(check_assignment(numbered, cluster.brokers).values())
    if len(checked[0].replicas) != size:
        given_size = len(checked[0].replicas)
        raise InvalidReplicaAssignment("assignment.0", f"{given_size} replicas, and the topic's partitions have {size}")
    return checked


def _colliding(name: str, cluster: Cluster) -> str | None:
    """Returns a topic with a name that differs from `name` only by dots in place of underscores; None if there is none.

    Brokers name metrics after topics, with underscores for dots. Source: Topic.hasCollision.
    """
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    names = (topic.name for topic in cluster.table.topics())
    return next((other for other in names if other.replace(".", "_") == plain), None)


def check_assignment(assignment: Mapping[int, Assignment], brokers: Mapping[int, Broker]) -> dict[int, Assignment]:
    """Returns a manual assignment in the order of partitions.

    Raises:
        InvalidReplicaAssignment: a gap in the numbers, no replica, a broker named twice, different numbers of replicas,
            or an unregistered broker.
    """
    if len(assignment) > PARTITIONS_OF_A_TOPIC_MAX:
        raise InvalidPartitions("assignment", f"{len(assignment)} partitions, at most {PARTITIONS_OF_A_TOPIC_MAX}")
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicaAssignment("assignment", "partitions are numbered from 0 without a gap")
    size = len(assignment[0].replicas)
    known = frozenset(brokers)
    for partition, replicas_of in sorted(assignment.items()):
        distinct = known.intersection(replicas_of.replicas)
        if len(distinct) == len(replicas_of.replicas) == size > 0:
            continue
        field = f"assignment.{partition}"
        if not replicas_of.replicas:
            raise InvalidReplicaAssignment(field, "a partition needs at least one replica")
        if len(set(replicas_of.replicas)) != len(replicas_of.replicas):
            raise InvalidReplicaAssignment(field, f"{list(replicas_of.replicas)} names a broker twice")
        if len(replicas_of.replicas) != size:
            raise InvalidReplicaAssignment(field, f"{len(replicas_of.replicas)} replicas, and partition 0 has {size}")
        unknown = [broker for broker in replicas_of.replicas if broker not in brokers]
        if unknown:
            raise InvalidReplicaAssignment(field, f"brokers {unknown} are not registered; there are {sorted(brokers)}")
    return dict(sorted(assignment.items()))


Counts = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What n brokers have, in the order of the round.

    Attributes:
        leaders: int64[n], partitions of which a broker is the preferred leader.
        replicas: int64[n].
    """

    leaders: Counts
    replicas: Counts


def load_of(table: Table, brokers: Sequence[Broker]) -> Load:
    """Returns what some brokers have when all reassignments are complete, without topics queued for deletion."""
    rows = table.rows(table.not_queued(table.all()))
    stays = rows.assigned & ~rows.removing
    ids = np.array([broker.id for broker in _interleaved(brokers)], np.int32)
    return Load(_count(first(stays, rows.replicas), ids), _count(rows.replicas[stays], ids))


def _count(column: Ints, ids: Ints) -> Counts:
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[order], column), max(len(ids) - 1, 0))
    known = place[ids[order][place] == column] if len(ids) else place[:0]
    counts = np.zeros(len(ids), np.int64)
    counts[order] = np.bincount(known, minlength=len(ids))
    return counts


def place(
    brokers: Sequence[Broker], *, partitions: int, replication_factor: int, load: Load | None = None
) -> list[tuple[int, ...]]:
    """Returns the replicas of some new partitions, with distinct brokers in each.

    A whole round adds the same to each broker, unless there are racks. For each of the other partitions, the sums of
    squares of leaders and of replicas grow as little as possible. Ties keep both within one of their averages: leaders
    are brokers with more replicas, which few followers will join, and followers are brokers with more leaders, which
    are the last to lead again.

    Args:
        brokers: at least `replication_factor`.
        load: as of `load_of`; None for an empty cluster.
    """
    circle = _interleaved(brokers)
    size = len(circle)
    nothing = np.zeros(size, np.int64)
    leaders, replicas = (nothing, nothing.copy()) if load is None else (load.leaders.copy(), load.replicas.copy())
    rounds = partitions // size if len({broker.rack for broker in circle}) == 1 else 0
    stride = int(leaders.sum()) // size
    chosen = _whole_rounds(size, rounds, stride, replication_factor)
    for index in range(partitions - len(chosen)):
        stride = int(leaders.sum()) // size + rounds
        enough = np.partition(replicas, replication_factor - 1)[replication_factor - 1]
        cost = leaders + np.maximum(replicas - enough, 0)
        begin = (chosen[-1][0] + 1) % size if index else 0
        leader = int(np.lexsort(((np.arange(size) - begin) % size, -replicas, cost))[0])
        leaders[leader] += 1
        others = np.array(_others(size, leader, stride), np.intp)
        others = others[np.lexsort((-leaders[others], replicas[others]))]  # stable: otherwise in their order
        chosen.append(_spread(circle, [leader, *others.tolist()], replication_factor))
        replicas[chosen[-1]] += 1
    return [tuple(circle[index].id for index in one) for one in chosen]


def _whole_rounds(size: int, rounds: int, stride: int, replication_factor: int) -> list[list[int]]:
    """Returns the positions of the replicas of some rounds, as `_others` has them: at once, for large topics."""
    leader = np.tile(np.arange(size), rounds)[:, np.newaxis]
    turn = np.repeat(np.arange(rounds), size)[:, np.newaxis]
    steps = np.arange(replication_factor - 1)
    others = (leader + 1 + (stride + turn + steps) % max(size - 1, 1)) % size
    chosen: list[list[int]] = np.hstack([leader, others]).tolist()
    return chosen


def _others(size: int, leader: int, stride: int) -> list[int]:
    """Returns the positions of all brokers but the leader, in the order in which they follow it."""
    return [(leader + 1 + (stride + step) % (size - 1)) % size for step in range(size - 1)]


def _interleaved(brokers: Sequence[Broker]) -> list[Broker]:
    """Returns the brokers by id, with neighbours of different racks as long as possible."""
    racks: dict[str, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda candidate: candidate.id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = itertools.zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for round_ in rounds for broker in round_ if broker is not None]


def _spread(circle: Sequence[Broker], candidates: Sequence[int], count: int) -> list[int]:
    """Returns `count` candidates: those in a new rack before others, otherwise in order. The first candidate is always
    first.
    """
    chosen: list[int] = []
    racks: set[str] = set()
    for index in candidates:
        rack = circle[index].rack
        if len(chosen) < count and (rack is None or rack not in racks):
            chosen.append(index)
            racks.update([] if rack is None else [rack])
    left = [index for index in candidates if index not in chosen] if len(chosen) < count else []
    return chosen + left[: count - len(chosen)]
