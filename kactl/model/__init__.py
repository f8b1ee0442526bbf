"""Values of the cluster: partitions, replicas, leadership, brokers.

Immutable values that compare by content and do not depend on storage. The controller itself keeps columns
(`kactl.decide.state.table`) and builds these values on demand, for responses, logs and tests.
"""

import datetime
import enum
import re
from collections import Counter
from collections.abc import Collection
from typing import Final, Literal, NamedTuple, Self

import msgspec

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2  # only sent to brokers, never stored
NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2  # only sent, as the leader epoch of a StopReplica
NO_BROKER: Final = -1
NO_VERSION: Final = -1  # version of an entry that is not stored yet
ZERO_ID: Final = bytes(16)  # a topic without an id
# Of an order with a time limit: the end of the year 9999, the last moment that a calendar can show.
UNTIL_MS_MAX: Final = 253_402_300_799_999

# The most partitions of one topic: its stored entry must fit into ZooKeeper's limit for one node.
PARTITIONS_OF_A_TOPIC_MAX: Final = 50_000
# Kafka's own limit; longer names do not fit the directory name of a partition.
TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
# The ids that controllers give to participants that have chosen none. Kafka's brokers count theirs from 0 or 1,001.
# Sets of higher ids are slower; see `kactl.decide.state.rows.BrokerSet`.
GIVEN_IDS: Final = range(40_000, 1 << 16)
# Of a participant, which is stored with its id.
PARTICIPANT_NAME_LENGTH_MAX: Final = 100
# Between the host and the process of a participant that has no name: no name contains it.
HOST_SEPARATOR: Final = ":"


class PartitionState(enum.IntEnum):
    """State of a partition. Numbers as in Kafka's metrics and logs."""

    NEW = 0  # replicas are assigned; it never had a leader
    ONLINE = 1  # a leader was elected
    OFFLINE = 2  # it has no live leader, or its deletion has started
    ABSENT = 3  # never created, or deleted (Kafka: NonExistentPartition)


class ReplicaState(enum.IntEnum):
    """State of a replica. ONLINE does not mean that its broker is up. Numbers as in Kafka's metrics and logs."""

    NEW = 1  # just created; it can only become a follower
    ONLINE = 2
    OFFLINE = 3  # its broker or directory failed, or it is being removed
    DELETION_STARTED = 4  # StopReplica with delete was sent
    DELETION_SUCCESSFUL = 5  # the broker confirmed the deletion
    DELETION_INELIGIBLE = 6  # the deletion failed, or cannot be retried now
    ABSENT = 7  # Kafka: NonExistentReplica


# Names of the states in Kafka's logs.
PARTITION_STATE_NAMES: Final = {
    PartitionState.NEW: "NewPartition",
    PartitionState.ONLINE: "OnlinePartition",
    PartitionState.OFFLINE: "OfflinePartition",
    PartitionState.ABSENT: "NonExistentPartition",
}
REPLICA_STATE_NAMES: Final = {
    ReplicaState.NEW: "NewReplica",
    ReplicaState.ONLINE: "OnlineReplica",
    ReplicaState.OFFLINE: "OfflineReplica",
    ReplicaState.DELETION_STARTED: "ReplicaDeletionStarted",
    ReplicaState.DELETION_SUCCESSFUL: "ReplicaDeletionSuccessful",
    ReplicaState.DELETION_INELIGIBLE: "ReplicaDeletionIneligible",
    ReplicaState.ABSENT: "NonExistentReplica",
}


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """Name of a partition, written `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the partition named by text such as `topic-0`, which is split at the last dash.

        Raises:
            ValueError: the text has no dash, no topic before it, or no number after it.
        """
        topic, dash, number = text.rpartition("-")
        if not dash or not topic or not number.isascii() or not number.isdecimal():
            raise ValueError(f"{text!r} is not a partition: write it as topic-0")
        return cls(topic, int(number))


class Assignment(msgspec.Struct, frozen=True):
    """The brokers of a partition; the first is the preferred leader.

    During a reassignment, `replicas` holds the target followed by the rest of the origin; `adding` and `removing` are
    subsets of it, in its order.
    """

    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas that the partition returns to if the reassignment is cancelled."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has when the reassignment completes."""
        return _without(self.replicas, self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> "Assignment":
        """Returns the assignment that starts a reassignment to `target`; an earlier target is dropped."""
        origin = self.origin
        full = tuple(dict.fromkeys(target + origin))
        return Assignment(full, adding=_without(full, origin), removing=_without(full, target))

    def remove_replica(self, broker: int) -> "Assignment":
        removed = (broker,)
        return Assignment(_drop(self.replicas, removed), _drop(self.adding, removed), _drop(self.removing, removed))


def _without(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Returns `left` less one occurrence of each member of `right`, in the order of `left`."""
    result = list(left)
    for member in right:
        if member in result:
            result.remove(member)
    return tuple(result)


def _drop(members: tuple[int, ...], removed: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(member for member in members if member not in removed)


class Leadership(msgspec.Struct, frozen=True):
    """Leader, ISR and epochs of a partition.

    Attributes:
        isr: a set, in assignment order; replicas that are not assigned come last.
        partition_epoch: the version of the stored entry; each write of it adds one.
        controller_epoch: of the controller that wrote it, or that last took it over in memory.
        recovering: True after an unclean election, until the leader reports that it has recovered.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool = False


class ReplicaStatus(enum.Enum):
    """Whether a replica of a participant can lead and follow."""

    READY = "ready"  # again, after one of the others
    NOT_READY = "not ready"  # the handler raised NotReady: another replica is elected
    FAILED = "failed"  # it raised something else three times in a row, or took too long: another replica is elected
    STUCK = "stuck"  # a cancelled call of the handler has not ended
    ERROR = "error"  # the data of the replica is of another topic, and is kept
    BUSY = "busy"  # a call of the handler takes long; the replica counts as ready
    RETRYING = "retrying"  # the handler has raised, and is called again here; the replica counts as ready

    @property
    def is_failure(self) -> bool:
        """Whether the replica cannot be elected."""
        return self not in (ReplicaStatus.READY, ReplicaStatus.BUSY, ReplicaStatus.RETRYING)


class Endpoint(msgspec.Struct, frozen=True):
    """Address of one listener of a broker. `protocol` is Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT ..."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


class Broker(msgspec.Struct, frozen=True):
    """One registration of a broker. A broker that registers again has the same id and a higher epoch.

    Attributes:
        features: (name, lowest, highest level) of each.
        incarnation: id of a participant's registration; empty for Kafka's brokers.
            See `kactl.decide.messages.sessions`.
        evicted: the controller has decided to end the registration. It does not count as live, and its session cannot
            be renewed.
        timeout_ms: granted timeout of a participant's session; 0 if it is not known.
        session: on what the registration depends: a session with the store, or one with the active controller.
        handover_wait_ms: how long the next leader waits after a session that the store only witnesses has vanished; 0
            if renewals are counted.
        peer: where other participants connect.
        groups: the ownership topics of which a participant may own partitions; None: all.
        weight: of a participant's share of these partitions.
        name: of a participant without an id of its own choice; see `GIVEN_IDS`.
    """

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    incarnation: bytes = b""
    evicted: bool = False
    timeout_ms: int = 0
    session: Literal["store", "controller"] = "store"
    handover_wait_ms: int = 0
    peer: Endpoint | None = None
    groups: tuple[str, ...] | None = None
    weight: int = 1
    name: str = ""

    def offers(self, topic: str) -> bool:
        """Whether this is a participant that may own partitions of an ownership topic."""
        return bool(self.incarnation) and (self.groups is None or topic in self.groups)

    def listed_among(self, brokers: Collection["Broker"]) -> "Broker":
        """Returns this entry of a controller as it is listed among `brokers`: with a rack exactly if all of them have
        one, and otherwise with none.

        Brokers place replicas on every entry of the list, and refuse a list in which only some have racks. The rack is
        this entry's own. Without one it is the rack with the most brokers, and the first by name of several: most
        brokers share the replicas that are placed on the controller and have to move to another broker of that rack.

        Source: AdminUtils.assignReplicasToBrokers.
        """
        counts = Counter(broker.rack for broker in brokers)
        rack = None
        if counts and None not in counts:
            rack = self.rack or min(counts, key=lambda rack: (-counts[rack], str(rack)))
        return self if rack == self.rack else msgspec.structs.replace(self, rack=rack)

    def in_remote_session(self, incarnation: bytes, timeout_ms: int, *, epoch: int = NO_EPOCH) -> "Broker":
        """Returns the registration of an incarnation in a session with the controller."""
        return msgspec.structs.replace(
            self, epoch=epoch, incarnation=incarnation, evicted=False, timeout_ms=timeout_ms, session="controller"
        )

    def has_remote_session(self, incarnation: bytes) -> bool:
        """Returns whether this is the registration of an incarnation in a session with the controller that is not
        evicted."""
        return self.session == "controller" and self.incarnation == incarnation and not self.evicted


class Fence(msgspec.Struct, frozen=True):
    """Fencing token of an elected controller, required by all its writes.

    Attributes:
        epoch: the controller epoch, sent to brokers.
        version: the store's version of the entry that holds the epoch; it becomes stale when another controller is
            elected.
    """

    epoch: int
    version: int


class ControllerRecord(msgspec.Struct, frozen=True):
    """The controllership as stored."""

    id: int
    epoch: int
    since_ms: int  # wall clock, ms since 1970
    address: str = ""  # where the controller listens for participants and spectators; empty if it is not known


class Features(msgspec.Struct, frozen=True):
    """Finalized features of the cluster.

    Attributes:
        levels: the finalized level of each feature, by name.
        enabled: whether features are finalized at all (protocol level 2.7 and above).
        format: of the stored entry: 1, or 2 from protocol level 3.3 on.
        version: of the stored entry, which is the features' epoch; NO_VERSION for an entry that is not stored yet.
    """

    levels: dict[str, int] = {}
    enabled: bool = True
    format: int = 2
    version: int = NO_VERSION


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """`length` producer ids from `first` on, reserved for one broker."""

    broker: int
    first: int
    length: int

    @property
    def last(self) -> int:
        return self.first + self.length - 1


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored order of an operator, which outlives controllers.

    Attributes:
        since_ms, until_ms: Unix times; `until_ms` is None for an order without a time limit.
        by: the user; empty for a call by a program.
    """

    since_ms: int
    until_ms: int | None = None
    by: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """Returns by whom it was given, since and until when, and why."""
        return self._text()

    def _text(self, *, until_restart: bool = False) -> str:
        until = "" if self.until_ms is None else _utc(self.until_ms)
        return order_text(self.by, _utc(self.since_ms), until, self.reason, until_restart=until_restart)

    def is_past(self, now_ms: int) -> bool:
        """Returns whether the time limit has passed."""
        return self.until_ms is not None and self.until_ms <= now_ms


class Drain(Order, frozen=True):
    """Order that a broker leads nothing; it outlives registrations, too.

    Attributes:
        broker_epoch: the registration whose end also ends the drain; NO_EPOCH if none does.
    """

    broker_epoch: int = NO_EPOCH

    def __str__(self) -> str:
        return self._text(until_restart=self.ends_with_registration)

    @property
    def ends_with_registration(self) -> bool:
        return self.broker_epoch != NO_EPOCH

    def is_over(self, now_ms: int, broker: Broker | None) -> bool:
        """Returns whether the time limit has passed, or a registration `broker` is a new one that ends the drain."""
        is_new = broker is not None and self.ends_with_registration and broker.epoch != self.broker_epoch
        return is_new or self.is_past(now_ms)


def order_text(by: str, since: str, until: str, reason: str, *, until_restart: bool = False) -> str:
    """Returns by whom something was ordered, since and until when, and why. All but `since` may be empty."""
    parts = (
        f"by {by}" if by else "",
        f"since {since}",
        f"until {until}" if until else "",
        "until it registers anew" if until_restart else "",
    )
    return ", ".join(filter(None, parts)) + (f": {reason}" if reason else "")


def _utc(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Maintenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What operators have ordered beyond one controllership, and the ids of named participants.

    Attributes:
        drains: by broker.
        holds: by id of an instance that has resigned, and leaves the controllership to others.
        names: the ids given to names of participants, the earliest first.
    """

    drains: dict[int, Drain] = {}
    holds: dict[int, Order] = {}
    names: dict[str, int] = {}

    def without_past(self, now_ms: int) -> "Maintenance":
        """Returns it without the holds whose time limits have passed."""
        holds = {instance: hold for instance, hold in self.holds.items() if not hold.is_past(now_ms)}
        return msgspec.structs.replace(self, holds=holds)


class Membership(NamedTuple):
    """All registrations by broker id, with epochs, and the stored maintenance."""

    brokers: dict[int, Broker]
    maintenance: Maintenance


def check_participant_name(name: str) -> str | None:
    """Returns the reason why `name` is not a valid name of a participant; None if it is valid.

    Ids and names stand at the same place in certificates, and must not be taken for each other.
    """
    if not _LEGAL_TOPIC.fullmatch(name) or not name[0].isalnum() or len(name) > PARTICIPANT_NAME_LENGTH_MAX:
        allowed = f"1 to {PARTICIPANT_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-'"
        return f"{name!r} is not {allowed}, the first one a letter or a digit"
    return f"{name!r} would be a broker id: give it a letter" if name.isdecimal() else None


def given_name(shown: str) -> str:
    """Returns the name that a program has given to its participant, of the one in a registration; empty without one."""
    return "" if HOST_SEPARATOR in shown else shown


def check_topic_name(name: str) -> str | None:
    """Returns the reason why `name` is not a valid topic name; None if it is valid.

    Source: Kafka's rules for topic names.
    """
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return "'.' and '..' cannot name a topic"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"{len(name)} characters, at most {TOPIC_NAME_LENGTH_MAX} are allowed"
    if not _LEGAL_TOPIC.fullmatch(name):
        invalid = next(character for character in name if not _LEGAL_TOPIC.fullmatch(character))
        return f"{name!r} contains {invalid!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


# The kind of a topic is part of its id: it is stored and sent wherever the id is, and never changes. The bits of a UUID
# of version 8 are the program's own; Kafka's ids have version 4.
_OWN_VERSION: Final = 8
_OWNERSHIP: Final = b"own"
TopicKind = Literal["replicated", "ownership"]
# The setting of an ownership topic: how many participants follow each partition.
STANDBY: Final = "ownership.standby"


def ownership_id(topic_id: bytes) -> bytes:
    """Returns the id of an ownership topic that has the other bits of a random id."""
    return topic_id[:6] + bytes([_OWN_VERSION << 4 | topic_id[6] & 0x0F]) + topic_id[7:9] + _OWNERSHIP + topic_id[12:]


class TopicRef(msgspec.Struct, frozen=True):
    """Name and id (16 bytes) of a topic; ZERO_ID if it has no id."""

    name: str
    id: bytes = ZERO_ID

    @property
    def is_ownership(self) -> bool:
        """Whether the topic is of the kind `ownership`: its partitions are owned, and not replicated."""
        return self.id[9:12] == _OWNERSHIP and self.id[6] >> 4 == _OWN_VERSION

    @property
    def kind(self) -> TopicKind:
        return "ownership" if self.is_ownership else "replicated"

    def is_other(self, topic_id: bytes) -> bool:
        """Returns whether an id belongs to another topic of this name, of before or after a deletion."""
        return topic_id != self.id and topic_id != ZERO_ID and self.id != ZERO_ID


class PartitionView(msgspec.Struct, frozen=True):
    """Cluster state of one partition, for responses, logs and tests.

    Attributes:
        isr: in assignment order; replicas that are not assigned come last.
        leader_epoch: NO_EPOCH, like the other epochs, if there is no leadership information.
        replica_states: of each assigned replica, and of each other one that has a state.
    """

    topic: str
    partition: int
    state: PartitionState
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool
    replica_states: dict[int, ReplicaState]

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.replicas, self.adding, self.removing)

    @property
    def leadership(self) -> Leadership | None:
        if self.leader_epoch == NO_EPOCH:
            return None
        return Leadership(
            self.leader, self.leader_epoch, self.isr, self.partition_epoch, self.controller_epoch, self.recovering
        )
