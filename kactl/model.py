"""The words of the cluster: partitions, replicas, leadership, brokers.

Values only; they compare by content, are never changed, and know nothing of where they are kept. The controller
itself keeps columns (`table.py`) and makes these on demand, for answers, logs and tests.
"""

import enum
import re
from typing import Final, Self

import msgspec

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2  # only ever sent to brokers, never stored
NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2  # only ever sent, as the leader epoch of a StopReplica
NO_BROKER: Final = -1
NO_VERSION: Final = -1  # of a stored entry that does not exist yet
ZERO_ID: Final = bytes(16)  # a topic without an id

# Kafka's own limit; longer names do not fit the directory name of a partition.
TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


class PartitionState(enum.IntEnum):
    """The life of a partition. Numbers as in Kafka's metrics and logs."""

    NEW = 0  # replicas are assigned, it never had a leader
    ONLINE = 1  # a leader was elected
    OFFLINE = 2  # the leader is gone, or deletion has begun
    ABSENT = 3  # never created, or deleted (Kafka: NonExistentPartition)


class ReplicaState(enum.IntEnum):
    """The life of a replica. ONLINE does not say that its broker is up. Numbers as in Kafka's metrics and logs."""

    NEW = 1  # just created; it can only be told to follow
    ONLINE = 2
    OFFLINE = 3  # its broker or directory failed, or it is being taken out
    DELETION_STARTED = 4  # StopReplica with delete was sent
    DELETION_SUCCESSFUL = 5  # the broker confirmed it
    DELETION_INELIGIBLE = 6  # the deletion failed, or cannot be tried now
    ABSENT = 7  # Kafka: NonExistentReplica


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A partition's name, written `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `topic-0`, parting at the last dash.

        Raises:
            ValueError: there is no dash, no topic before it, or no number behind it.
        """
        topic, dash, number = text.rpartition("-")
        if not dash or not topic or not number.isascii() or not number.isdecimal():
            raise ValueError(f"{text!r} is not a partition: write it as topic-0")
        return cls(topic, int(number))


class Assignment(msgspec.Struct, frozen=True):
    """Which brokers hold a partition; the first is the preferred leader.

    While it is being reassigned `replicas` holds the target first and then what is left of the origin; `adding` and
    `removing` are subsets of it, in its order.
    """

    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """What the partition falls back to when the reassignment is cancelled."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """What the partition will be when the reassignment completes."""
        return _without(self.replicas, self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> "Assignment":
        """The assignment with which a move to `target` begins; an earlier target is forgotten."""
        origin = self.origin
        full = tuple(dict.fromkeys(target + origin))
        return Assignment(full, adding=_without(full, origin), removing=_without(full, target))

    def remove_replica(self, broker: int) -> "Assignment":
        gone = (broker,)
        return Assignment(_drop(self.replicas, gone), _drop(self.adding, gone), _drop(self.removing, gone))


def _without(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """`left` less one occurrence for each occurrence in `right`, in the order of `left`."""
    kept = list(left)
    for member in right:
        if member in kept:
            kept.remove(member)
    return tuple(kept)


def _drop(members: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(member for member in members if member not in gone)


class Leadership(msgspec.Struct, frozen=True):
    """Who leads a partition, who is in sync, and the epochs that go with it.

    Attributes:
        isr: a set, written in assignment order, members from outside the assignment last.
        partition_epoch: the version of the stored entry; each write of it adds one.
        controller_epoch: of the controller that wrote it, or that last took it over in memory.
        recovering: True after an unclean election, until the leader says that it has recovered.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool = False


class Endpoint(msgspec.Struct, frozen=True):
    """Where one listener of a broker can be reached. `protocol` is Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT ..."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


class Broker(msgspec.Struct, frozen=True):
    """One registration of a broker. A broker that registers again is the same id with a higher epoch."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()  # (name, lowest, highest level)


class Fence(msgspec.Struct, frozen=True):
    """What an election gave us, and what every write of ours must show.

    Attributes:
        epoch: the controller epoch, sent to brokers.
        version: the store's version of the entry that holds the epoch; stale as soon as somebody else is elected.
    """

    epoch: int
    version: int


class ControllerRecord(msgspec.Struct, frozen=True):
    """Who holds the controllership, as the store has it."""

    id: int
    epoch: int
    since_ms: int  # wall clock, ms since 1970


class Features(msgspec.Struct, frozen=True):
    """The features that the cluster has agreed on.

    Attributes:
        levels: the finalized level of each feature, by name.
        enabled: whether features are finalized at all (protocol level 2.7 and above).
        format: of the stored entry: 1, or 2 from protocol level 3.3 on.
        version: of the stored entry, which is the features' epoch; NO_VERSION for one that is to be written.
    """

    levels: dict[str, int] = {}
    enabled: bool = True
    format: int = 2
    version: int = NO_VERSION


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """The producer ids from `first` on, `length` of them, which are the broker's to give away."""

    broker: int
    first: int
    length: int

    @property
    def last(self) -> int:
        return self.first + self.length - 1


def check_topic_name(name: str) -> str | None:
    """Why `name` cannot name a topic; None if it can.

    Source: Kafka's rules for topic names.
    """
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return "'.' and '..' cannot name a topic"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"{len(name)} characters, at most {TOPIC_NAME_LENGTH_MAX} are allowed"
    if not _LEGAL_TOPIC.fullmatch(name):
        return "only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


class TopicRef(msgspec.Struct, frozen=True):
    """A topic's name and its id, 16 bytes; ZERO_ID where it has none."""

    name: str
    id: bytes = ZERO_ID


class PartitionView(msgspec.Struct, frozen=True):
    """One partition as the controller knows it, for answers, logs and tests.

    Attributes:
        isr: in assignment order, members from outside the assignment last.
        leader_epoch: NO_EPOCH, like the other epochs, as long as there is no leadership information.
        replica_states: for each assigned replica, and each that still has a state.
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
