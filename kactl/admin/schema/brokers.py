"""Brokers, and what is done to them."""

from .words import Answer, AsOf, BrokerStateName, Int32, PartitionName, Question, Reason


class EndpointInfo(Answer, frozen=True):
    """Where one listener of a broker can be reached."""

    listener: str
    host: str
    port: int
    protocol: str


class BrokerInfo(Answer, frozen=True):
    """One broker: registered, or dead and still assigned.

    Attributes:
        epoch: of its registration; null if it is dead.
        leaders: partitions that it leads; `replicas`: that are assigned to it.
        leader_skew, replica_skew: by how much that differs from an even share among all brokers, in percent.
        out_of_sync: assigned replicas that are not in the ISR.
        queue_size: requests that wait for it, the one in flight included; `queue_oldest_ms`: for how long.
        last_error: why the last request did not get through; empty if it did.
        participant: it runs in the process of this server, and can be killed and restarted over this API.
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


class BrokerList(Answer, frozen=True):
    """All brokers, by id."""

    items: tuple[BrokerInfo, ...]
    as_of: AsOf


class BrokerPath(Question, frozen=True):
    """Which broker."""

    id: Int32


class BrokerAction(Question, frozen=True):
    """Kill or restart a participant; an empty body will do."""

    reason: Reason = ""


class BrokerDrain(Question, frozen=True):
    """Lead a broker's partitions elsewhere, as before it is stopped. `undo`: let it lead and follow again."""

    undo: bool = False
    dry_run: bool = False
    reason: Reason = ""


class SomePartitions(Answer, frozen=True):
    """Partitions of which the first 100 are named. `count`: of all of them."""

    count: int
    first: tuple[PartitionName, ...]


class DrainEffect(Answer, frozen=True):
    """What draining a broker did to partitions, or would do.

    Attributes:
        moved: another replica leads in place of the broker.
        left_isr: the broker leaves the ISR.
        alone: the broker holds the only replica; it stays, led and in sync.
        under_min_isr: fewer in sync than `min.insync.replicas`, and there were enough before: acks=all is rejected.
        last_in_sync: one replica is in sync, and there were more before: another failure stops the partition.
    """

    moved: SomePartitions
    left_isr: SomePartitions
    alone: SomePartitions
    under_min_isr: SomePartitions
    last_in_sync: SomePartitions


class BrokerDrained(Answer, frozen=True):
    """What came of it. `remaining`: what it still leads, as nobody else can, or what it would still lead.

    `effect`: null for `undo`.
    """

    broker: int
    undo: bool
    dry_run: bool
    remaining: tuple[PartitionName, ...]
    effect: DrainEffect | None
    as_of: AsOf


class BrokerActed(Answer, frozen=True):
    """What was done to a participant. `action`: kill, restart."""

    broker: int
    action: str
