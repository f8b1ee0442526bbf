"""Topics and their partitions."""

from typing import Annotated, Literal

from msgspec import Meta

from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, TopicKind

from .common import (
    LIMIT_DEFAULT,
    TIMEOUT_MS_MAX,
    Answer,
    AsOf,
    Cursor,
    HandlerStatusName,
    Int32,
    Limit,
    PartitionStateName,
    Question,
    Reason,
    ReplicaStateName,
)


class HandlerStatus(Answer, frozen=True):
    """A replica of a participant that is not in its normal state.

    `status`: not_ready, failed, stuck, error, busy, retrying. `detail`: what the handler has raised, or which call is
    slow. `for_ms`: how long it has been in this state. `failures`: in a row. `next_ms`: until it is called again; null
    if that is not known.
    """

    status: HandlerStatusName
    detail: str
    for_ms: float
    failures: int = 0
    next_ms: float | None = None


ShardStateName = Literal["unowned", "handover", "waiting", "preparing", "failing", "owned"]


class ShardInfo(Answer, frozen=True):
    """A partition of an ownership topic: its leader is the owner, and the other members of its ISR are the standbys.

    Attributes:
        state: unowned: it has no owner; handover: its next owner prepares, and `former` owns it until then; waiting:
            its owner waits for the end of the former one's lease; preparing: its owner prepares; failing: the handler
            of its owner has failed, and is called again; owned: its owner leads.
        former: the owner during a hand-over; null otherwise.
        names: of the owner, the former one and the standbys, as far as they have not chosen their ids; by id.
    """

    state: ShardStateName
    former: int | None = None
    names: dict[int, str] = {}


class PartitionInfo(Answer, frozen=True):
    """One partition.

    Attributes:
        isr: in assignment order.
        offline: it counts as offline; `under_replicated`: a replica is not in sync.
        min_insync_replicas: the topic's `min.insync.replicas`: its override, else the cluster-wide default in the
            store, else `kafka.min-insync-replicas` of the server; null if it could not be read.
        under_min_isr: it has no leader, or fewer in-sync replicas than brokers enforce (at most all replicas).
        preferred_leader: the first assigned replica; -1 if no replica is assigned.
        replica_states: by broker id.
        replica_status: by broker id, of participants whose replicas are not in their normal state; empty in lists of
            partitions, and from a standby instance.
        shard: of a partition of an ownership topic, from the controller; null otherwise.
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
    replica_status: dict[int, HandlerStatus] = {}
    shard: ShardInfo | None = None


class PartitionPage(Answer, frozen=True):
    """One page of partitions. `matched`: their number on all pages; `next_cursor`: null on the last page.

    `at_ms`: the earlier time of the page; null if it is of the present. Earlier partitions lack `replica_states`,
    `adding`, `removing` and `min_insync_replicas`.
    """

    items: tuple[PartitionInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf
    at_ms: int | None = None


class TopicInfo(Answer, frozen=True):
    """Summary of one topic. `id`: in Kafka's text form; null if it has none.

    Attributes:
        replication_factor: the largest of its partitions.
        offline_partitions: those without a leader; of an ownership topic, without an owner.
        deleting: the topic is marked for deletion.
        kind: an ownership topic has shards in place of partitions, and owners in place of leaders.
        standby: how many participants follow each shard; null for a replicated topic, and from a standby instance.
    """

    name: str
    id: str | None
    partitions: int
    replication_factor: int
    offline_partitions: int
    under_replicated_partitions: int
    deleting: bool
    kind: TopicKind = "replicated"
    standby: int | None = None


class TopicPage(Answer, frozen=True):
    """One page of topics, sorted by name."""

    items: tuple[TopicInfo, ...]
    matched: int
    next_cursor: str | None
    as_of: AsOf


class TopicDetail(Answer, frozen=True):
    """One topic. `config`: its overrides; null if the store cannot be read.

    `partitions` is the first page; its cursor continues at `/v1/partitions?topic=`.
    """

    topic: TopicInfo
    config: dict[str, str] | None
    partitions: PartitionPage


class TopicCreated(Answer, frozen=True):
    """The topic was created, or with `dry_run` would be."""

    name: str
    id: str | None
    dry_run: bool


class TopicChanged(Answer, frozen=True):
    """The topic was changed, or with `dry_run` would be."""

    name: str
    partitions: int
    config: dict[str, str] | None
    dry_run: bool


class TopicDeleted(Answer, frozen=True):
    """The topic was marked for deletion, or with `dry_run` would be. `gone`: the deletion is already complete."""

    name: str
    id: str | None
    gone: bool
    dry_run: bool


class TopicPath(Question, frozen=True):
    """Selects a topic."""

    topic: str


class PartitionPath(Question, frozen=True):
    """Selects a partition."""

    topic: str
    partition: Int32


class ReplicaPath(Question, frozen=True):
    """Selects a replica."""

    topic: str
    partition: Int32
    broker: Int32


class ReplicaResetting(Question, frozen=True):
    """Reset the handler of a replica; the body may be empty."""

    dry_run: bool = False
    reason: Reason = ""


class ReplicaResetInfo(Answer, frozen=True):
    """The participant was requested to use the replica again. `failure`: the state that this ends."""

    topic: str
    partition: int
    broker: int
    failure: HandlerStatus


class TopicQuery(Question, frozen=True):
    """Selects topics."""

    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None


PastTime = Annotated[
    str, Meta(max_length=50, description="as of this earlier time: RFC 3339 with an offset, or ms since 1970")
]


class PartitionQuery(Question, frozen=True):
    """Selects partitions that match all given filters. List values are repeated or separated by commas."""

    state: Annotated[list[PartitionStateName], Meta(description="in one of these states")] = []
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="led by this broker; -1: without a leader")] | None = (
        None
    )
    replica: Annotated[int, Meta(ge=0, le=2**31 - 1, description="with a replica on this broker")] | None = None
    topic: Annotated[list[str], Meta(max_length=1000, description="names; `*` and `?` are wildcards")] = []
    offline: Annotated[bool, Meta(description="offline, or not offline")] | None = None
    urp: Annotated[bool, Meta(description="under-replicated, or not")] | None = None
    under_min_isr: Annotated[bool, Meta(description="below min.insync.replicas, or not")] | None = None
    at_min_isr: Annotated[bool, Meta(description="exactly at min.insync.replicas, or not")] | None = None
    not_preferred: Annotated[bool, Meta(description="not led by the preferred replica, or led by it")] | None = None
    kind: Annotated[TopicKind, Meta(description="of topics of this kind")] | None = None
    shard: Annotated[
        list[ShardStateName], Meta(description="shards in one of these states: unowned, failing and so on")
    ] = []
    at: PastTime | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    offset: Annotated[int, Meta(ge=0, description="skip so many, instead of a cursor: for lists that are scrolled")] = 0


ConfigKey = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9._-]+$")]
ConfigValue = Annotated[str, Meta(max_length=4096)]


AssignmentLists = Annotated[
    list[Annotated[list[Int32], Meta(max_length=1000)]], Meta(max_length=PARTITIONS_OF_A_TOPIC_MAX)
]


class TopicCreation(Question, frozen=True):
    """Create a topic.

    Attributes:
        partitions, replication_factor: default to 1.
        assignment: instead of these: for each partition, from 0, the ids of its replicas, the preferred leader first.
        config: overrides, such as {"unclean.leader.election.enable": "true"}.
        kind: `ownership` for programs that keep no records in kactl: any participant that offers the topic may own any
            partition. It has neither `replication_factor` nor `assignment`.
        standby: of an ownership topic: how many participants follow each partition, ready to own it.
        wait: stored: until the controller knows the topic. led, or acknowledged: until each partition has a leader that
            has acknowledged its order, and every broker that can be reached knows the topic. ready: until leaders with
            handlers lead, too. null: led; for an ownership topic, whose participants may start later, stored.
        timeout_ms: maximum wait; 0 does not wait.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: AssignmentLists | None = None
    config: Annotated[dict[ConfigKey, ConfigValue], Meta(max_length=100)] = {}
    kind: TopicKind = "replicated"
    standby: Int32 | None = None
    dry_run: bool = False
    wait: Literal["stored", "led", "ready", "acknowledged"] | None = None
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""


class TopicChange(Question, frozen=True):
    """Change a topic: add partitions, change overrides, or both.

    Attributes:
        partitions: the new number of partitions; null leaves it unchanged.
        assignment: replicas of each new partition, in order; null places them automatically.
        config: overrides to set; null as a value removes an override. Others are unchanged.
        wait, timeout_ms: for new partitions, as in a creation.
    """

    partitions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    assignment: AssignmentLists | None = None
    config: Annotated[dict[ConfigKey, ConfigValue | None], Meta(max_length=100)] = {}
    dry_run: bool = False
    wait: Literal["stored", "led", "ready", "acknowledged"] | None = None
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""


class TopicDeletion(Question, frozen=True):
    """Options of a deletion. `timeout_ms`: maximum wait for its completion; 0 does not wait."""

    dry_run: bool = False
    timeout_ms: Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)] = 30_000
    reason: Reason = ""
