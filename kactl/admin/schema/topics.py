"""Topics and their partitions."""

from typing import Annotated

from msgspec import Meta

from .words import (
    LIMIT_DEFAULT,
    TIMEOUT_MS_MAX,
    Answer,
    AsOf,
    Cursor,
    Int32,
    Limit,
    PartitionStateName,
    Question,
    Reason,
    ReplicaStateName,
)


class PartitionInfo(Answer, frozen=True):
    """One partition.

    Attributes:
        isr: in the order of the assignment.
        offline: it counts as offline; `under_replicated`: a replica is not in sync.
        min_insync_replicas: the topic's `min.insync.replicas`: its override, else the default for all brokers in the
            store, else `kafka.min-insync-replicas` of the server; null if it could not be read.
        under_min_isr: it has no leader, or fewer in sync than brokers enforce (never more than there are replicas).
        preferred_leader: the first assigned replica; -1 if nothing is assigned.
        replica_states: by broker id.
    """

    topic: str
    partition: int
    state: PartitionStateName
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool
    offline: bool
    under_replicated: bool
    min_insync_replicas: int | None
    under_min_isr: bool
    preferred_leader: int
    replica_states: dict[int, ReplicaStateName]


class PartitionPage(Answer, frozen=True):
    """Some partitions. `matched`: how many there are on all pages; `next_cursor`: null on the last page."""

    items: tuple[PartitionInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf


class TopicInfo(Answer, frozen=True):
    """One topic in numbers. `id`: in Kafka's text form; null if it has none.

    Attributes:
        replication_factor: the largest of its partitions.
        deleting: it waits for deletion.
    """

    name: str
    id: str | None
    partitions: int
    replication_factor: int
    offline_partitions: int
    under_replicated_partitions: int
    deleting: bool


class TopicPage(Answer, frozen=True):
    """Some topics, by name."""

    items: tuple[TopicInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf


class TopicDetail(Answer, frozen=True):
    """One topic. `config`: its overrides; null if the store could not be read now.

    `partitions` is the first page of them; its cursor goes on at `/v1/partitions?topic=`.
    """

    topic: TopicInfo
    config: dict[str, str] | None
    partitions: PartitionPage


class TopicCreated(Answer, frozen=True):
    """A topic was created, or would be: `dry_run`."""

    name: str
    id: str | None
    dry_run: bool


class TopicChanged(Answer, frozen=True):
    """A topic was changed, or would be: `dry_run`."""

    name: str
    partitions: int
    config: dict[str, str] | None
    dry_run: bool


class TopicDeleted(Answer, frozen=True):
    """A topic was marked for deletion, or would be: `dry_run`. `gone`: nothing is left of it already."""

    name: str
    id: str | None
    gone: bool
    dry_run: bool


class TopicPath(Question, frozen=True):
    """Which topic."""

    topic: str


class PartitionPath(Question, frozen=True):
    """Which partition."""

    topic: str
    partition: Int32


class TopicQuery(Question, frozen=True):
    """Which topics."""

    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None


class PartitionQuery(Question, frozen=True):
    """Which partitions: those of which everything that is asked for holds. Lists are repeated, or have commas."""

    state: Annotated[list[PartitionStateName], Meta(description="in one of these states")] = []
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="led by this broker; -1 for none")] | None = None
    replica: Annotated[int, Meta(ge=0, le=2**31 - 1, description="with an assigned replica on it")] | None = None
    topic: Annotated[list[str], Meta(max_length=1000, description="names; `*` and `?` stand for any characters")] = []
    offline: Annotated[bool, Meta(description="that count as offline, or do not")] | None = None
    urp: Annotated[bool, Meta(description="that are under-replicated, or are not")] | None = None
    under_min_isr: Annotated[bool, Meta(description="with fewer in sync than min.insync.replicas, or not")] | None = (
        None
    )
    at_min_isr: Annotated[bool, Meta(description="with as many in sync as min.insync.replicas, or not")] | None = None
    not_preferred: Annotated[bool, Meta(description="not led by the preferred replica, or led by it")] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None


ConfigKey = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9._-]+$")]
ConfigValue = Annotated[str, Meta(max_length=4096)]


class TopicCreation(Question, frozen=True):
    """Create a topic.

    Attributes:
        partitions, replication_factor: 1 if they are not given.
        assignment: in their place: for each partition, from 0 on, the ids of its replicas, the preferred leader first.
        config: overrides, such as {"unclean.leader.election.enable": "true"}.
        timeout_ms: how long to wait until all partitions have a leader; 0 does not wait.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: list[Annotated[list[Int32], Meta(max_length=1000)]] | None = None
    config: Annotated[dict[ConfigKey, ConfigValue], Meta(max_length=100)] = {}
    dry_run: bool = False
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""


class TopicChange(Question, frozen=True):
    """Change a topic: more partitions, other overrides, or both.

    Attributes:
        partitions: how many it is to have then; null leaves them.
        assignment: replicas of each new partition, in order; null has them placed.
        config: overrides to set; null in place of a value takes one away. Others stay.
        timeout_ms: how long to wait until all partitions have a leader; 0 does not wait.
    """

    partitions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    assignment: list[Annotated[list[Int32], Meta(max_length=1000)]] | None = None
    config: Annotated[dict[ConfigKey, ConfigValue | None], Meta(max_length=100)] = {}
    dry_run: bool = False
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""


class TopicDeletion(Question, frozen=True):
    """How to delete. `timeout_ms`: how long to wait until nothing of it is left; 0 does not wait."""

    dry_run: bool = False
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""
