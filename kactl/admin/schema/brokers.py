"""Brokers, and operations on them."""

from typing import Annotated

from msgspec import Meta

from kactl.model import UNTIL_MS_MAX

from .common import Answer, AsOf, BrokerStateName, Int32, PartitionName, Question, Reason


class EndpointInfo(Answer, frozen=True):
    """Address of one listener of a broker."""

    listener: str
    host: str
    port: int
    protocol: str


class DrainInfo(Answer, frozen=True):
    """A drain, which outlives controllers and registrations of the broker.

    Attributes:
        since_ms, until_ms: in milliseconds since 1970; `until_ms` is null without a time limit.
        until_restart: it ends when the broker has registered anew.
        by: the user; empty if a program drained the broker.
    """

    since_ms: int
    until_ms: int | None
    until_restart: bool
    by: str
    reason: str


class BrokerInfo(Answer, frozen=True):
    """One broker: registered, or dead with assigned replicas.

    Attributes:
        epoch: of its registration; null if it is dead.
        leaders: number of partitions it leads; `replicas`: number of replicas assigned to it; both without shards.
        leader_skew, replica_skew: deviation from an even share among all brokers, in percent.
        out_of_sync: assigned replicas that are not in the ISR.
        queue_size: requests queued for it, including the one in flight; `queue_oldest_ms`: age of the oldest.
        last_error: error of the last request, or why the link was lost, or why other participants cannot connect to
            the advertised address; empty if there is none.
        linked: whether a participant has a link to this controller; null for a broker without links, and from a standby
            instance. A participant that has never had one is fenced.
        linked_since_ms: when the link was opened, or lost.
        participant: it runs in the process of this server, and can be killed and restarted over this API.
        drain: an operator's order that it leads nothing; it may be dead meanwhile. Null without one.
        shards: number of shards of ownership topics that it owns; `standby_shards`: that it follows.
        groups: the ownership topics that it offers; null for all, and for a broker that is no participant.
        name: of a participant that has not chosen its id: its own, or `host:process`; empty for other brokers.
    """

    id: int
    state: BrokerStateName
    epoch: int | None
    rack: str | None
    endpoints: tuple[EndpointInfo, ...]
    is_controller: bool
    leaders: int
    leader_skew: float
    replicas: int
    replica_skew: float
    out_of_sync: int
    queue_size: int
    queue_oldest_ms: float
    last_error: str
    participant: bool
    linked: bool | None = None
    linked_since_ms: int | None = None
    drain: DrainInfo | None = None
    shards: int = 0
    standby_shards: int = 0
    groups: tuple[str, ...] | None = None
    name: str = ""


class BrokerList(Answer, frozen=True):
    """All brokers, sorted by id."""

    items: tuple[BrokerInfo, ...]
    as_of: AsOf


class BrokerPath(Question, frozen=True):
    """Selects a broker."""

    id: Int32


class BrokerAction(Question, frozen=True):
    """Kill or restart a participant; the body may be empty."""

    dry_run: bool = False
    reason: Reason = ""


class BrokerDrain(Question, frozen=True):
    """Move leadership away from a broker, until the drain ends. A second drain replaces the first.

    Attributes:
        undo: allow it to lead and follow again.
        until_ms: when the drain ends by itself, in milliseconds since 1970, in the future.
        until_restart: the drain ends when the broker has registered anew.
    """

    undo: bool = False
    dry_run: bool = False
    reason: Reason = ""
    until_ms: Annotated[int, Meta(ge=0, le=UNTIL_MS_MAX)] | None = None
    until_restart: bool = False


class SomePartitions(Answer, frozen=True):
    """A set of partitions with the names of the first 100. `count`: of all."""

    count: int
    first: tuple[PartitionName, ...]


class DrainEffect(Answer, frozen=True):
    """Partitions that draining a broker changed, or would change.

    Attributes:
        moved: another replica leads instead of the broker.
        left_isr: the broker leaves the ISR.
        alone: the broker holds the only replica; it stays leader and in sync.
        under_min_isr: now has fewer in-sync replicas than `min.insync.replicas`: writes with acks=all are rejected.
        last_in_sync: now has a single in-sync replica: one more failure takes the partition offline.
        shards_moved: shards of ownership topics that other participants own instead, once these are prepared.
        shards_kept: shards that it keeps, as no other participant can own them. The others do not count shards.
    """

    moved: SomePartitions
    left_isr: SomePartitions
    alone: SomePartitions
    under_min_isr: SomePartitions
    last_in_sync: SomePartitions
    shards_moved: SomePartitions = SomePartitions(count=0, first=())
    shards_kept: SomePartitions = SomePartitions(count=0, first=())


class BrokerDrained(Answer, frozen=True):
    """Result of a drain. `remaining`: partitions that it still leads, or would lead, as no other replica can, and the
    shards that it keeps.

    `effect`: null for `undo`. `drain`: as it is now. `changed`: false for an `undo` of what is not drained.
    """

    broker: int
    undo: bool
    dry_run: bool
    remaining: tuple[PartitionName, ...]
    effect: DrainEffect | None
    as_of: AsOf
    drain: DrainInfo | None = None
    changed: bool = True


class BrokerActed(Answer, frozen=True):
    """Result of an operation on a participant. `action`: kill, restart."""

    broker: int
    action: str
    dry_run: bool = False
