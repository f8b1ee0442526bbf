"""Reassignment plans: the target replicas of partitions, computed without moving anything.

A plan moves as few replicas as possible. Replicas that can stay keep their positions, so that preferred leaders stay
too; a replica that must go is replaced in its position. With `balance`, replicas then move until no broker holds two
more than another one that could take one, and preferred leaders are spread by changing the order within partitions.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

from kactl.model import Broker, TopicPartition
from kactl.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor

Replicas = tuple[int, ...]


def plan(
    partitions: Mapping[TopicPartition, Replicas],
    brokers: Sequence[Broker],
    *,
    others: Iterable[Replicas] = (),
    replication_factor: int | None = None,
    balance: bool = False,
) -> dict[TopicPartition, Replicas]:
    """Returns the partitions that change, with their new replicas, by name.

    Args:
        partitions: the partitions that may be moved, with their present replicas, the preferred leader first.
        brokers: the brokers that may hold replicas.
        others: the replicas of partitions that are not moved; they count as load.
        replication_factor: for every partition; None keeps the present one.
        balance: also even out replicas and preferred leaders.

    Raises:
        InvalidReplicaAssignment: there is no broker to choose from.
        InvalidReplicationFactor: more replicas than brokers, or fewer than one.
    """
    if not brokers:
        raise InvalidReplicaAssignment("brokers", "no broker is left to hold replicas; name at least one live broker")
    planner = _Planner(brokers, others)
    planned = {}
    for name in sorted(partitions):
        size = len(partitions[name]) if replication_factor is None else replication_factor
        if not 1 <= size <= len(planner.racks):
            raise InvalidReplicationFactor(
                "replication_factor",
                f"{name} cannot have {size} replicas on {len(planner.racks)} brokers; plan with fewer replicas or more "
                "brokers",
            )
        planned[name] = planner.keep(partitions[name], size)
    for name, replicas in planned.items():
        planned[name] = planner.fill(replicas)
    if balance:
        planner.spread_replicas(planned)
        planner.spread_leaders(planned)
    return {name: tuple(replicas) for name, replicas in planned.items() if tuple(replicas) != partitions[name]}


class _Planner:
    """The number of replicas, and of preferred leaders, that each broker has so far."""

    def __init__(self, brokers: Sequence[Broker], others: Iterable[Replicas]) -> None:
        self.racks = {broker.id: broker.rack for broker in sorted(brokers, key=lambda broker_: broker_.id)}
        self.load = collections.Counter(dict.fromkeys(self.racks, 0))
        self.leads = collections.Counter(dict.fromkeys(self.racks, 0))
        for replicas in others:
            self.load.update(broker for broker in replicas if broker in self.racks)
            if replicas and replicas[0] in self.racks:
                self.leads[replicas[0]] += 1

    def keep(self, replicas: Replicas, size: int) -> list[int]:
        """Returns the replicas that stay, in their positions; -1 where a new one is needed."""
        result = [broker if broker in self.racks else -1 for broker in replicas]
        while len(result) > size:
            # Positions that need a new replica are dropped first, then the last ones.
            del result[max(index for index, broker in enumerate(result) if broker == -1 or -1 not in result)]
        result += [-1] * (size - len(result))
        self.load.update(broker for broker in result if broker != -1)
        return result

    def fill(self, replicas: list[int]) -> list[int]:
        """Returns the replicas with every -1 replaced: by the least loaded broker, from a rack without a replica if
        possible.
        """
        for index, broker in enumerate(replicas):
            if broker != -1:
                continue
            used = {self.racks[other] for other in replicas if other != -1}
            free = [other for other in self.racks if other not in replicas]
            replicas[index] = min(free, key=lambda other: (self._crowds(other, used), self.load[other], other))
            self.load[replicas[index]] += 1
        return replicas

    def _crowds(self, broker: int, used: set[str | None]) -> bool:
        """Whether the rack of a broker already holds a replica; False for a broker without a rack."""
        rack = self.racks[broker]
        return rack is not None and rack in used

    def spread_replicas(self, planned: dict[TopicPartition, list[int]]) -> None:
        """Move replicas from full brokers to empty ones, as long as that reduces the difference and loses no rack."""
        holds = collections.defaultdict(list)
        for replicas in planned.values():
            for broker in replicas:
                holds[broker].append(replicas)
        for source in sorted(self.racks, key=lambda broker_: (-self.load[broker_], broker_)):
            for replicas in holds[source]:
                if self.load[source] <= min(self.load[broker_] for broker_ in self.racks) + 1:
                    break
                target = self._better(source, replicas)
                if target is not None:
                    replicas[replicas.index(source)] = target
                    self.load[source] -= 1
                    self.load[target] += 1

    def _better(self, source: int, replicas: list[int]) -> int | None:
        """Returns the broker that should hold a replica in place of `source`; None if there is none."""
        used = {self.racks[other] for other in replicas if other != source}
        was_crowded = self._crowds(source, used)
        free = [
            other
            for other in self.racks
            if other not in replicas
            and self.load[other] + 1 < self.load[source]
            and (was_crowded or not self._crowds(other, used))
        ]
        return min(free, key=lambda other: (self.load[other], other), default=None)

    def spread_leaders(self, planned: dict[TopicPartition, list[int]]) -> None:
        """Change the order within partitions where that evens out the preferred leaders."""
        for replicas in planned.values():
            self.leads[replicas[0]] += 1
        for replicas in planned.values():
            index = min(range(len(replicas)), key=lambda index_: (self.leads[replicas[index_]], index_))
            if self.leads[replicas[index]] + 1 < self.leads[replicas[0]]:
                self.leads[replicas[0]] -= 1
                self.leads[replicas[index]] += 1
                replicas[0], replicas[index] = replicas[index], replicas[0]
