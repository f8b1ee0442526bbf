"""What every store promises.

A store keeps who is the controller and under which epoch, which brokers are registered, what topics exist and how they
are assigned, and who leads each partition. It gives all of it back as columns, takes new leadership by compare-and-set
on each partition's own version under a fence, and says when something changed behind our back.

One contract suite runs over every store. Semantics follow Kafka's use of ZooKeeper: what was written is durable when
the call returns; a write under a fence that is no longer the stored one changes nothing and raises ControllerMoved;
every write of an entry raises its version by one, beginning at 0.

A watched read arms a watch: `brokers`, `topics`, `assignments`, `default_config`, `deletions`, `controller` and the
two notifications.
After a change of what was read, one event comes at least; several changes may come as one event. Whoever gets an event
reads again before acting.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec
import numpy as np

from kactl.model import (
    NO_BROKER,
    NO_EPOCH,
    NO_LEADER,
    NO_VERSION,
    ZERO_ID,
    Assignment,
    Broker,
    ControllerRecord,
    Fence,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.rows import Bools, Bytes, Ints

# -- columns in and out ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Assignments:
    """n assignments of some topics, as columns.

    Attributes:
        topics: the topics that the rows speak of; a topic may have no rows.
        topic: int32[n], index into `topics`.
        partition: int32[n].
        replicas: int32[W, n] in assignment order, NO_BROKER behind the last.
        adding, removing: bool[W, n], by slot of `replicas`.
    """

    topics: tuple[TopicRef, ...]
    topic: Ints
    partition: Ints
    replicas: Ints
    adding: Bools
    removing: Bools

    def __len__(self) -> int:
        return len(self.partition)

    def one(self, position: int) -> Assignment:
        """The assignment at one position as an object."""
        held = self.replicas[:, position]
        which = held != NO_BROKER
        return Assignment(
            tuple(held[which].tolist()),
            tuple(held[which & self.adding[:, position]].tolist()),
            tuple(held[which & self.removing[:, position]].tolist()),
        )

    def take(self, which: Bools) -> "Assignments":
        """Some of them; all topics stay listed."""
        return Assignments(
            self.topics,
            self.topic[which],
            self.partition[which],
            self.replicas[:, which],
            self.adding[:, which],
            self.removing[:, which],
        )

    def items(self) -> Iterable[tuple[TopicPartition, Assignment]]:
        """All of them as objects; for small ones."""
        for position, (topic, partition) in enumerate(zip(self.topic.tolist(), self.partition.tolist(), strict=True)):
            yield TopicPartition(self.topics[topic].name, partition), self.one(position)

    @classmethod
    def of(
        cls, assignments: Mapping[TopicPartition, Assignment], ids: Mapping[str, bytes] | None = None
    ) -> "Assignments":
        """Columns of some assignments; a broker named twice is kept once."""
        names = list(dict.fromkeys(name.topic for name in assignments))
        number = {name: index for index, name in enumerate(names)}
        width = max((len(assignment.replicas) for assignment in assignments.values()), default=0)
        columns = cls(
            topics=tuple(TopicRef(name, (ids or {}).get(name, ZERO_ID)) for name in names),
            topic=np.array([number[name.topic] for name in assignments], np.int32),
            partition=np.array([name.partition for name in assignments], np.int32),
            replicas=np.full((width, len(assignments)), NO_BROKER, np.int32),
            adding=np.zeros((width, len(assignments)), np.bool_),
            removing=np.zeros((width, len(assignments)), np.bool_),
        )
        for at, assignment in enumerate(assignments.values()):
            for slot, broker in enumerate(dict.fromkeys(assignment.replicas)):
                columns.replicas[slot, at] = broker
                columns.adding[slot, at] = broker in assignment.adding
                columns.removing[slot, at] = broker in assignment.removing
        return columns


class Found(enum.IntEnum):
    """What was found of one partition's leadership."""

    FOUND = 0
    MISSING = 1  # nothing is stored
    UNREADABLE = 2  # something is stored that is no leadership
    FAILED = 3  # this one read failed


@dataclasses.dataclass(frozen=True, slots=True)
class Leaderships:
    """Leadership of n partitions, as columns, in the order in which they were asked for.

    Attributes:
        status: uint8[n] of `Found`; the other columns hold -1 and False where it is not FOUND.
        isr: int32[K, n], NO_BROKER in free places; a set.
        partition_epoch: the version under which it is stored.
    """

    status: Bytes
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    partition_epoch: Ints
    controller_epoch: Ints
    recovering: Bools

    def __len__(self) -> int:
        return len(self.leader)

    @property
    def found(self) -> Bools:
        found: Bools = self.status == Found.FOUND
        return found

    def take(self, which: Bools) -> "Leaderships":
        return Leaderships(**{f.name: getattr(self, f.name)[..., which] for f in dataclasses.fields(self)})

    @classmethod
    def of(cls, states: Sequence[Leadership | None]) -> "Leaderships":
        """Columns of some leaderships; None is MISSING."""
        count = len(states)
        width = max((len(state.isr) for state in states if state), default=0)
        columns = cls(
            status=np.array([Found.FOUND if state else Found.MISSING for state in states], np.uint8),
            leader=np.full(count, NO_LEADER, np.int32),
            leader_epoch=np.full(count, NO_EPOCH, np.int32),
            isr=np.full((width, count), NO_BROKER, np.int32),
            partition_epoch=np.full(count, NO_VERSION, np.int32),
            controller_epoch=np.full(count, NO_EPOCH, np.int32),
            recovering=np.zeros(count, np.bool_),
        )
        for at, state in enumerate(states):
            if state is None:
                continue
            columns.leader[at], columns.leader_epoch[at] = state.leader, state.leader_epoch
            columns.isr[: len(state.isr), at] = state.isr
            columns.partition_epoch[at], columns.controller_epoch[at] = state.partition_epoch, state.controller_epoch
            columns.recovering[at] = state.recovering
        return columns

    def one(self, at: int) -> Leadership | None:
        """One of them as an object; None unless FOUND."""
        if self.status[at] != Found.FOUND:
            return None
        isr = self.isr[:, at]
        return Leadership(
            leader=int(self.leader[at]),
            leader_epoch=int(self.leader_epoch[at]),
            isr=tuple(isr[isr != NO_BROKER].tolist()),
            partition_epoch=int(self.partition_epoch[at]),
            controller_epoch=int(self.controller_epoch[at]),
            recovering=bool(self.recovering[at]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """n partitions by name, as columns: `topics[topic[i]].name`-`partition[i]`."""

    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints

    def __len__(self) -> int:
        return len(self.partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partition in zip(self.topic.tolist(), self.partition.tolist(), strict=True):
            yield TopicPartition(self.topics[topic].name, partition)

    def take(self, which: Bools) -> "Names":
        return Names(self.topics, self.topic[which], self.partition[which])

    @classmethod
    def of(cls, names: Sequence[TopicPartition]) -> "Names":
        topics = list(dict.fromkeys(name.topic for name in names))
        number = {name: index for index, name in enumerate(topics)}
        return cls(
            tuple(TopicRef(name) for name in topics),
            np.array([number[name.topic] for name in names], np.int32),
            np.array([name.partition for name in names], np.int32),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """New leadership for n partitions, no partition twice.

    Attributes:
        names: which.
        leader, leader_epoch: int32[n].
        isr: int32[W, n], NO_BROKER in free places, at any place; written in slot order.
        recovering: bool[n].
        expected: int32[n], the version that must stand there now; NO_VERSION where nothing may stand there yet.
    """

    names: Names
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    recovering: Bools
    expected: Ints

    def __len__(self) -> int:
        return len(self.expected)


class Outcome(enum.IntEnum):
    """What became of one row of a write."""

    KEPT = 0
    CONFLICT = 1  # another version stands there, or something stands there already, or nothing
    FAILED = 2  # the store answered with another error for this row


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """What became of a write, row by row. Partial success is normal.

    Attributes:
        outcome: uint8[n] of `Outcome`.
        version: int32[n], the new version; NO_VERSION where it was not kept.
    """

    outcome: Bytes
    version: Ints

    @property
    def kept(self) -> Bools:
        kept: Bools = self.outcome == Outcome.KEPT
        return kept


# -- what changed ------------------------------------------------------------------------------------------------------


class Changed(enum.Enum):
    """What a store saw change."""

    CONTROLLER = "controller"  # the controllership was taken, or changed hands
    CONTROLLER_GONE = "controller gone"  # nobody holds it now
    BROKERS = "brokers"  # a broker registered or its registration ended
    BROKER = "broker"  # the data of one registration; `name` is the id
    TOPICS = "topics"  # a topic came or vanished
    TOPIC = "topic"  # the assignment of one topic; `name` is the topic
    TOPIC_CONFIG = "topic config"  # the configuration of one topic; `name` is the topic
    DEFAULT_CONFIG = "default config"  # the configuration of all brokers
    DELETIONS = "deletions"  # a topic was marked for deletion
    ISR_NOTIFICATIONS = "isr notifications"
    LOG_DIR_NOTIFICATIONS = "log dir notifications"
    REASSIGNMENT_REQUEST = "reassignment request"
    PREFERRED_ELECTION_REQUEST = "preferred election request"
    SESSION_LOST = "session lost"  # our session has ended; nothing of ours holds any more
    SESSION_OPENED = "session opened"  # after a loss: a new session stands


class StoreEvent(msgspec.Struct, frozen=True):
    """Something changed; read it again. `name` says which topic or broker where there are many."""

    what: Changed
    name: str = ""


class Notification(msgspec.Struct, frozen=True):
    """One notification that stands in the store until the controller takes it away.

    Attributes:
        key: the store's name for it; give it back to `delete_notifications`.
        partitions: for an ISR notification, whose leadership a leader has written.
        broker: for a log directory notification, whose directory failed; else NO_BROKER.
    """

    key: str
    partitions: tuple[TopicPartition, ...] = ()
    broker: int = NO_BROKER


# -- the promises ------------------------------------------------------------------------------------------------------


class Session(Protocol):
    """What a broker's registration lives by. It ends when it is closed, or when it was not kept alive for its timeout.

    A closed session's registration is gone at once.
    """

    @property
    def timeout_ms(self) -> int: ...

    async def register(self, broker: Broker) -> int:
        """Register a broker; its `epoch` is ignored.

        Returns:
            the broker epoch: higher than that of every earlier registration in this store.

        Raises:
            BrokerIdTaken: another live session holds the id.
            SessionExpired: this session has ended.
        """

    async def keep_alive(self) -> None:
        """Say that the owner lives.

        Raises:
            SessionExpired: too late; the registration has ended.
        """

    async def close(self) -> None:
        """End the session now."""


class Store(Protocol):
    """See the module. Every method may raise StoreUnavailable or, for a lost session of ours, SessionExpired."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` in the event loop's thread for everything that changes. One listener; set before reading."""

    async def new_session(self, timeout_ms: int) -> Session:
        """A session for a broker of this process."""

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        """Who holds it; None if nobody does."""

    async def contest(self, controller_id: int, *, take_over: bool = False) -> Fence:
        """Take the controllership and raise its epoch by one, in one atomic step; the first epoch is 1.

        Holds for as long as the store's own session lives (a lease, an ephemeral node).

        Args:
            take_over: take it even if somebody holds it.

        Raises:
            ControllerMoved: somebody holds it, or was faster.
        """

    async def resign(self, fence: Fence) -> None:
        """Give the controllership up, if `fence` is still the stored one.

        Raises:
            ControllerMoved: it is not.
        """

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        """All registrations by id, with epochs. A registration that cannot be read is logged and left out."""

    async def broker(self, broker: int) -> Broker | None:
        """One registration."""

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""

    async def assignments(self, topics: Collection[str]) -> Assignments:
        """The assignments and ids of some topics. Topics that are gone, or cannot be read, are left out of `topics`
        (one that cannot be read is logged); a topic's `id` is ZERO_ID where it has none."""

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        """Write a topic as Kafka's admin tools do: its configuration, then its assignment. Not fenced.

        Raises:
            TopicExists: nothing was changed.
        """

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        """Replace all assignments of a topic that exists, at any version; None is not fenced (an admin's write).

        Raises:
            ControllerMoved: the fence is not the stored one.
            NotFound: there is no such topic.
        """

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        """The overrides of each topic: {} where there are none, None where they could not be read."""

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replace a topic's overrides. Not fenced."""

    async def default_config(self) -> dict[str, str]:
        """What is set for all brokers, over what each has in its own settings; {} where there is nothing.

        One that cannot be read is logged and counts as {}: the settings of each instance hold then.
        """

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        """Replace what is set for all brokers; an admin's write, not fenced. {} leaves each to its own settings."""

    async def deletions(self) -> list[str]:
        """The topics that are marked for deletion, sorted."""

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        """What is stored of some partitions, n >= 0."""

    async def commit(self, write: Write, fence: Fence) -> Committed:
        """Keep new leadership, each row by compare-and-set on its own version, with the fence's epoch in it.

        Nothing is sent for n = 0.

        Raises:
            ControllerMoved: the fence is not the stored one. Rows may have been kept before that was found.
            StoreUnavailable: the outcome is unknown. Read back before writing again.
        """

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        """A leader's own write of its ISR, as Kafka's brokers do below protocol level 2.7. Not fenced.

        `state.controller_epoch` is the epoch that came with the leadership.

        Returns:
            the new version, or None: another version than `expected` stands there.
        """

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the controller that leaders have written the ISRs of some partitions."""

    async def notify_log_dir(self, broker: int) -> None:
        """Tell the controller that a log directory of a broker failed."""

    async def isr_notifications(self) -> list[Notification]: ...

    async def log_dir_notifications(self) -> list[Notification]: ...

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        """Take away notifications; those that are gone already are passed over.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """
