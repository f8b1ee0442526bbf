"""Random clusters for hypothesis."""

import dataclasses
from typing import Final

from hypothesis import strategies as st

from kactl.model import Leadership, PartitionState, ReplicaState, TopicPartition
from kactl.state.cluster import Cluster
from tests.oracle.model import ObjectCluster

from .cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, ids_of

# Some small ids, and two beyond 16 bits and beyond a table by id.
BROKERS: Final = (0, 1, 2, 3, 4, 7)
FAR_BROKERS: Final = (1, 2, 3, 40_000, 65_536, 1_000_000)
TOPICS: Final = ("a", "b", "c")
REPLICATION_MAX: Final = 5


@dataclasses.dataclass
class Both:
    """A random cluster in both forms, printed as its seed."""

    seed: ClusterSeed
    cluster: Cluster = dataclasses.field(repr=False)
    objects: ObjectCluster = dataclasses.field(repr=False)

    @classmethod
    def of(cls, seed: ClusterSeed) -> "Both":
        return cls(seed, seed.columns(), seed.objects())


@st.composite
def leaderships(draw: st.DrawFn, replicas: list[int], pool: tuple[int, ...]) -> Leadership:
    """Mostly valid: an ISR from the assignment with a leader in it. Sometimes empty, unassigned, or with a leader
    outside it."""
    isr = draw(st.lists(st.sampled_from(replicas), unique=True)) if replicas else []
    if draw(st.booleans()):
        strays = draw(st.lists(st.sampled_from(pool), max_size=2, unique=True))
        isr = draw(st.permutations(list(dict.fromkeys([*isr, *strays]))))
    return Leadership(
        leader=draw(st.sampled_from([*isr, *replicas, -1, *pool[:2]])),
        leader_epoch=draw(st.integers(0, 9)),
        isr=tuple(isr),
        partition_epoch=draw(st.integers(0, 9)),
        controller_epoch=draw(st.integers(EPOCH - 2, EPOCH)),
        recovering=draw(st.booleans()),
    )


@st.composite
def partition_seeds(draw: st.DrawFn, pool: tuple[int, ...]) -> PartitionSeed:
    replicas = draw(st.lists(st.sampled_from(pool), max_size=REPLICATION_MAX, unique=True))
    adding: list[int] = []
    removing: list[int] = []
    moving = draw(st.booleans())
    if moving and replicas:
        roles = draw(st.lists(st.sampled_from("-ar"), min_size=len(replicas), max_size=len(replicas)))
        for member, role in zip(replicas, roles, strict=True):
            if role != "-":
                (adding if role == "a" else removing).append(member)
    leadership = draw(leaderships(replicas, pool)) if draw(st.integers(0, 3)) else None
    states = dict.fromkeys(replicas, ReplicaState.ONLINE)
    if replicas:
        states |= draw(st.dictionaries(st.sampled_from(replicas), st.sampled_from(ReplicaState)))
    if draw(st.integers(0, 5)) == 0:  # left by a replica that is no longer assigned
        states |= draw(st.dictionaries(st.sampled_from(pool), st.sampled_from(ReplicaState), max_size=1))
    known = [*replicas, *(leadership.isr if leadership else ())]
    dirs_offline = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
    return PartitionSeed(
        replicas=tuple(replicas),
        adding=tuple(adding),
        removing=tuple(removing),
        leadership=leadership,
        state=draw(st.sampled_from(PartitionState)),
        states=states,
        dirs_offline=tuple(dirs_offline),
    )


@st.composite
def cluster_seeds_drawn(draw: st.DrawFn, *, partitions_max: int = 4) -> ClusterSeed:
    pool = draw(st.sampled_from((BROKERS, FAR_BROKERS)))
    fates = draw(st.lists(st.sampled_from("ulsd"), min_size=len(pool), max_size=len(pool)))
    names = draw(
        st.lists(
            st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3)),
            min_size=1,
            max_size=partitions_max,
            unique=True,
        )
    )
    topics = sorted({name.topic for name in names})
    queued = draw(st.sets(st.sampled_from(topics))) if draw(st.booleans()) else set()
    started = draw(st.sets(st.sampled_from(sorted(queued)))) if queued else set()
    return ClusterSeed(
        live=frozenset(id for id, fate in zip(pool, fates, strict=True) if fate in "ul"),
        shutting_down=frozenset(id for id, fate in zip(pool, fates, strict=True) if fate == "s"),
        partitions={name: draw(partition_seeds(pool)) for name in names},
        topic_ids=ids_of(draw(st.sets(st.sampled_from(topics)))),
        queued=frozenset(queued),
        started=frozenset(started),
        recovery=draw(st.booleans()),
    )


def clusters(*, partitions_max: int = 4) -> st.SearchStrategy[Both]:
    """Random clusters: replication factors 0 to 5, empty ISRs and unassigned members, dead brokers and brokers in
    shutdown, failed directories, reassignments in progress, recovering and leaderless partitions, topics queued for
    deletion or in deletion, in any states."""
    return cluster_seeds_drawn(partitions_max=partitions_max).map(Both.of)


def brokers() -> st.SearchStrategy[int]:
    """A broker id that is likely to be used."""
    both = sorted(set(BROKERS) & set(FAR_BROKERS))
    return st.sampled_from([*both, *both, *BROKERS, *FAR_BROKERS])
