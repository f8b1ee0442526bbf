"""Random clusters for hypothesis."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from hypothesis import strategies as st

from kactl.decide.state.cluster import Cluster
from kactl.model import Leadership, PartitionState, ReplicaState, TopicPartition
from tests.oracle.model import ObjectCluster

from .cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, ids_of

# Some small ids, and two beyond 16 bits and beyond a table by id.
BROKERS: Final = (0, 1, 2, 3, 4, 7)
FAR_BROKERS: Final = (1, 2, 3, 40_000, 65_536, 1_000_000)
TOPICS: Final = ("a", "b", "c")
REPLICATION_MAX: Final = 5
REPLICA_STATES: Final = tuple(ReplicaState)
PARTITION_STATES: Final = tuple(PartitionState)

_Item = TypeVar("_Item")


@dataclasses.dataclass
class Both:
    """A random cluster in both forms, printed as its seed."""

    seed: ClusterSeed
    cluster: Cluster = dataclasses.field(repr=False)
    objects: ObjectCluster = dataclasses.field(repr=False)

    @classmethod
    def of(cls, seed: ClusterSeed) -> "Both":
        return cls(seed, seed.columns(), seed.objects())


class Decisions:
    """Decisions read from drawn bytes, one byte each; 0 is the simplest decision.

    Drawing them one by one takes hypothesis ten times as long as building and checking the clusters. The bytes shrink
    like any other draw.
    """

    def __init__(self, content: bytes) -> None:
        self._content = iter(content)

    def below(self, limit: int) -> int:
        """Returns a number from 0 to `limit` - 1; `limit` is at most 256."""
        return next(self._content) % limit

    def flag(self) -> bool:
        return bool(self.below(2))

    def pick(self, items: Sequence[_Item]) -> _Item:
        return items[self.below(len(items))]

    def sample(self, items: Iterable[_Item], *, size_max: int = 256) -> list[_Item]:
        """Returns some of the items, at most `size_max`, in any order."""
        rest = list(items)
        size = self.below(min(size_max, len(rest)) + 1)
        return [rest.pop(self.below(len(rest))) for _ in range(size)]

    def shuffled(self, items: Iterable[_Item]) -> list[_Item]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(len(rest))]


# At least as many bytes as there are decisions; with fewer, `Decisions` fails.
PARTITION_BYTES: Final = 64
CLUSTER_BYTES: Final = 32


def leadership_of(decide: Decisions, replicas: list[int], pool: tuple[int, ...]) -> Leadership:
    """Mostly valid: an ISR from the assignment with a leader in it. Sometimes empty, unassigned, or with a leader
    outside it."""
    isr = decide.sample(replicas)
    if decide.flag():
        strays = decide.sample(pool, size_max=2)
        isr = decide.shuffled(dict.fromkeys([*isr, *strays]))
    return Leadership(
        leader=decide.pick([*isr, *replicas, -1, *pool[:2]]),
        leader_epoch=decide.below(10),
        isr=tuple(isr),
        partition_epoch=decide.below(10),
        controller_epoch=EPOCH - 2 + decide.below(3),
        recovering=decide.flag(),
    )


def partition_seed_of(decide: Decisions, pool: tuple[int, ...]) -> PartitionSeed:
    replicas = decide.sample(pool, size_max=REPLICATION_MAX)
    roles = [decide.pick("-ar") for _ in replicas] if decide.flag() else []
    leadership = leadership_of(decide, replicas, pool) if decide.below(4) else None
    states = dict.fromkeys(replicas, ReplicaState.ONLINE)
    states |= {replica: decide.pick(REPLICA_STATES) for replica in decide.sample(replicas)}
    if decide.below(6) == 5:  # left by a replica that is no longer assigned
        states[decide.pick(pool)] = decide.pick(REPLICA_STATES)
    known = dict.fromkeys([*replicas, *(leadership.isr if leadership else ())])
    return PartitionSeed(
        replicas=tuple(replicas),
        adding=tuple(replica for replica, role in zip(replicas, roles, strict=False) if role == "a"),
        removing=tuple(replica for replica, role in zip(replicas, roles, strict=False) if role == "r"),
        leadership=leadership,
        state=decide.pick(PARTITION_STATES),
        states=states,
        dirs_offline=tuple(decide.sample(known, size_max=2)),
    )


def cluster_seed_of(content: bytes, partitions: Mapping[TopicPartition, bytes]) -> ClusterSeed:
    decide = Decisions(content)
    pool = decide.pick((BROKERS, FAR_BROKERS))
    fates = [decide.pick("ulsd") for _ in pool]
    topics = sorted({name.topic for name in partitions})
    queued = decide.sample(topics) if decide.flag() else []
    return ClusterSeed(
        live=frozenset(id for id, fate in zip(pool, fates, strict=True) if fate in "ul"),
        shutting_down=frozenset(id for id, fate in zip(pool, fates, strict=True) if fate == "s"),
        partitions={name: partition_seed_of(Decisions(of), pool) for name, of in partitions.items()},
        topic_ids=ids_of(decide.sample(topics)),
        queued=frozenset(queued),
        started=frozenset(decide.sample(queued)),
        recovery=decide.flag(),
    )


def _bytes(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def cluster_seeds_drawn(*, partitions_max: int = 4) -> st.SearchStrategy[ClusterSeed]:
    names = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3))
    partitions = st.dictionaries(names, _bytes(PARTITION_BYTES), min_size=1, max_size=partitions_max)
    return st.builds(cluster_seed_of, _bytes(CLUSTER_BYTES), partitions)


def clusters(*, partitions_max: int = 4) -> st.SearchStrategy[Both]:
    """Random clusters: replication factors 0 to 5, empty ISRs and unassigned members, dead brokers and brokers in
    shutdown, failed directories, reassignments in progress, recovering and leaderless partitions, topics queued for
    deletion or in deletion, in any states."""
    return cluster_seeds_drawn(partitions_max=partitions_max).map(Both.of)


def brokers() -> st.SearchStrategy[int]:
    """A broker id that is likely to be used."""
    both = sorted(set(BROKERS) & set(FAR_BROKERS))
    return st.sampled_from([*both, *both, *BROKERS, *FAR_BROKERS])
