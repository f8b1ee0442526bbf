"""Where replicas should go: plans for a reassignment, made without moving anything.

A plan moves as little as it can. Replicas that may stay do, each in its place, so that preferred leaders stay too;
one that has to go is replaced where it stood. Asked to balance, it goes on until no broker holds two replicas more
than another that could take one, and then spreads the preferred leaders by changing the order within partitions.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

from kactl.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from kactl.model import Broker, TopicPartition

Replicas = tuple[int, ...]


def plan(
    partitions: Mapping[TopicPartition, Replicas],
    brokers: Sequence[Broker],
    *,
    others: Iterable[Replicas] = (),
    replication_factor: int | None = None,
    balance: bool = False,
) -> dict[TopicPartition, Replicas]:
    """The partitions that are to change, with their new replicas, by name.

    Args:
        partitions: what may be moved, with the replicas of now, the preferred leader first.
        brokers: where replicas may be.
        others: the replicas of partitions that are not to be moved; they count as load.
        replication_factor: for every partition; None keeps what each has.
        balance: even out replicas and preferred leaders, too.

    Raises:
        InvalidReplicaAssignment: there is no broker to choose from.
        InvalidReplicationFactor: more replicas than brokers, or fewer than one.
    """
    if not brokers:
        raise InvalidReplicaAssignment("brokers", "none is left to hold replicas; name at least one that is live")
    planner = _Planner(brokers, others)
    planned = {}
    for name in sorted(partitions):
        size = len(partitions[name]) if replication_factor is None else replication_factor
        if not 1 <= size <= len(planner.racks):
            raise InvalidReplicationFactor(
                "replication_factor", f"{name} is to have {size} replicas, on {len(planner.racks)} brokers"
            )
        planned[name] = planner.keep(partitions[name], size)
    for name, kept in planned.items():
        planned[name] = planner.fill(kept)
    if balance:
        planner.spread_replicas(planned)
        planner.spread_leaders(planned)
    return {name: tuple(held) for name, held in planned.items() if tuple(held) != partitions[name]}


class _Planner:
    """How many replicas, and how many preferred leaders, each broker has so far."""

    def __init__(self, brokers: Sequence[Broker], others: Iterable[Replicas]) -> None:
        self.racks = {broker.id: broker.rack for broker in sorted(brokers, key=lambda each: each.id)}
        self.load = collections.Counter(dict.fromkeys(self.racks, 0))
        self.leads = collections.Counter(dict.fromkeys(self.racks, 0))
        for replicas in others:
            self.load.update(broker for broker in replicas if broker in self.racks)
            if replicas and replicas[0] in self.racks:
                self.leads[replicas[0]] += 1

    def keep(self, replicas: Replicas, size: int) -> list[int]:
        """The replicas that stay, in their places; -1 where one has to be found."""
        kept = [broker if broker in self.racks else -1 for broker in replicas]
        while len(kept) > size:
            # Those that have to be found go first, then the last ones.
            del kept[max(at for at, broker in enumerate(kept) if broker == -1 or -1 not in kept)]
        kept += [-1] * (size - len(kept))
        self.load.update(broker for broker in kept if broker != -1)
        return kept

    def fill(self, kept: list[int]) -> list[int]:
        """With a broker in every place: one in a rack that has none yet if there is, and the least loaded of these."""
        for at, broker in enumerate(kept):
            if broker != -1:
                continue
            used = {self.racks[each] for each in kept if each != -1}
            free = [each for each in self.racks if each not in kept]
            kept[at] = min(free, key=lambda each: (self._crowds(each, used), self.load[each], each))
            self.load[kept[at]] += 1
        return kept

    def _crowds(self, broker: int, used: set[str | None]) -> bool:
        """Whether a broker's rack holds a replica already; brokers without a rack crowd nobody."""
        rack = self.racks[broker]
        return rack is not None and rack in used

    def spread_replicas(self, planned: dict[TopicPartition, list[int]]) -> None:
        """Move replicas from full brokers to empty ones, as long as that evens them out and no rack is lost."""
        holds = collections.defaultdict(list)
        for held in planned.values():
            for broker in held:
                holds[broker].append(held)
        for source in sorted(self.racks, key=lambda each: (-self.load[each], each)):
            for held in holds[source]:
                if self.load[source] <= min(self.load[each] for each in self.racks) + 1:
                    break
                target = self._better(source, held)
                if target is not None:
                    held[held.index(source)] = target
                    self.load[source] -= 1
                    self.load[target] += 1

    def _better(self, source: int, held: list[int]) -> int | None:
        """Who should hold a replica in place of `source`; None if nobody."""
        used = {self.racks[each] for each in held if each != source}
        was_crowded = self._crowds(source, used)
        free = [
            each
            for each in self.racks
            if each not in held
            and self.load[each] + 1 < self.load[source]
            and (was_crowded or not self._crowds(each, used))
        ]
        return min(free, key=lambda each: (self.load[each], each), default=None)

    def spread_leaders(self, planned: dict[TopicPartition, list[int]]) -> None:
        """Change the order within partitions where that evens out who is preferred."""
        for held in planned.values():
            self.leads[held[0]] += 1
        for held in planned.values():
            at = min(range(len(held)), key=lambda each: (self.leads[held[each]], each))
            if self.leads[held[at]] + 1 < self.leads[held[0]]:
                self.leads[held[0]] -= 1
                self.leads[held[at]] += 1
                held[0], held[at] = held[at], held[0]
