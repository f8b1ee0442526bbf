"""What every store promises.

A store keeps who is the controller and under which epoch, which brokers are registered, what topics exist and how they
are assigned, and who leads each partition. It gives all of it back as columns, takes new leadership by compare-and-set
on each partition's own version under a fence, and says when something changed behind our back.

One contract suite runs over every store. Semantics follow Kafka's use of ZooKeeper: what was written is durable when
the call returns; a write under a fence that is no longer the stored one changes nothing and raises ControllerMoved;
every write of an entry raises its version by one, beginning at 0.

A watched read arms a watch: `brokers`, `topics`, `assignments`, `default_config`, `deletions`, `controller`, the two
requests that wait, and the two notifications.
After a change of what was read, one event comes at least; several changes may come as one event. Whoever gets an event
reads again before acting. Of a request that waits, only the coming of a new one is told: not that it shrinks, or goes.
"""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec

from kactl.errors import StoreError
from kactl.model import (
    NO_BROKER,
    Assignment,
    Broker,
    ControllerRecord,
    Features,
    Fence,
    Leadership,
    ProducerIdBlock,
    TopicPartition,
    TopicRef,
)
from kactl.state.records import Assignments, Changes, Committed, Found, Leaderships, Names, Outcome, Write
from kactl.state.rows import Ints

__all__ = [
    "Assignments",
    "Changed",
    "Changes",
    "Committed",
    "Found",
    "Leaderships",
    "Names",
    "Notification",
    "Outcome",
    "Session",
    "Store",
    "StoreEvent",
    "Write",
]


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
    LEADERSHIP = "leadership"  # of one partition that is watched; `name` is the partition, as topic-0
    ISR_NOTIFICATIONS = "isr notifications"
    LOG_DIR_NOTIFICATIONS = "log dir notifications"
    REASSIGNMENT_REQUEST = "reassignment request"  # a new one waits
    PREFERRED_ELECTION_REQUEST = "preferred election request"  # a new one waits
    SUSPENDED = "suspended"  # nothing was heard for so long that it may have ended
    CONNECTED = "connected"  # after a doubt: it stands
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
    ) -> bool | None: ...

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` in the event loop's thread for everything that changes. One listener; set before reading."""

    @property
    def trouble(self) -> str:
        """Why the store could not be used at the last try, and what to do; empty if it could. Costs nothing."""

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

    async def check(self, fence: Fence) -> None:
        """See that `fence` is the stored one now, before something is done that no later write could prevent.

        Raises:
            ControllerMoved: it is not.
        """

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        """All registrations by id, with epochs. A registration that cannot be read is logged and left out."""

    async def broker(self, broker: int) -> Broker | None:
        """One registration."""

    async def topics(self) -> list[str]:
        """The names of all topics, sorted. A name that cannot be a topic's is logged and left out.

        Like every read this may be repeated, by any caller, and its answer may be lost, without a loss to anybody; see
        `take_deleted_topics`.
        """

    def take_deleted_topics(self) -> frozenset[str]:
        """The topics that were deleted since this client read their assignments, created again or not; each once.

        The name of a topic that was deleted and created again is in the answers to `topics` before and after. Who
        follows the list calls this after each answer, forgets what it knows of these topics, and takes those of them
        that are listed for new ones. Deletions are noted where there is a listener, and at the latest when `topics`
        answers; TOPICS was told of each. They stay noted until they are taken, however often a read in between fails or
        is repeated.

        Topics that this client deleted itself, and what it had read before its `contest`, are left out.

        Waits for nothing and does not fail, so that nothing that was taken is lost.
        """

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

        A topic that is written without its id keeps the one it has.

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

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        """Mark a topic for deletion, as Kafka's admin tools do; whether it exists is not looked at. Not fenced.

        Raises:
            BeingDeleted: it is marked already.
        """

    async def deletions(self) -> list[str]:
        """The topics that are marked for deletion, sorted."""

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        """Take away marks without deleting anything; those that are gone already are passed over.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        """Delete what is stored of some topics: assignment and leadership, then the configuration, then the mark.

        The mark of each goes last, so that whoever comes after a crash finds it and goes on. What is gone is passed
        over. Topics are deleted side by side, and what is in the way of one holds up no other.

        Args:
            topics: for each by name the partitions, int32[n], of which leadership is thought to be stored. Where that
                is so nobody has to look for it; where it is not, or more is stored, the store looks.

        Returns:
            the topics of which something is still there, and so is the mark, with the reason; try these again.

        Raises:
            ControllerMoved: the fence is not the stored one. Parts may have been deleted before that was found.
            StoreUnavailable: the outcome is unknown, for each of them: a mark that is gone says that all of it is.
        """

    async def partitions_begun(self, topic: str) -> list[int]:
        """The partitions of a topic that something is stored of besides their assignment, ascending."""

    # -- requests that wait in the store, as Kafka's older tools leave them

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Leave a request for reassignments; an admin's write, not fenced.

        Raises:
            RequestWaits: one waits already.
        """

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """What is requested; None if nothing is.

        One that cannot be read is logged and counts as {}; if somebody mends it, REASSIGNMENT_REQUEST is told.
        """

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        """Replace what is left of the request; {} takes the request away.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        """Leave a request for preferred elections; an admin's write, not fenced.

        Raises:
            RequestWaits: one waits already.
        """

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        """What is requested, each partition once; None if nothing is.

        One that cannot be read is logged and counts as []; if somebody mends it, PREFERRED_ELECTION_REQUEST is told.
        """

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        """Take the request away; nothing happens if there is none.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    # -- features and producer ids

    async def features(self) -> Features | None:
        """The finalized features; None if nothing is stored. One that cannot be read is logged and raises
        StoreDamaged: it must not be overwritten."""

    async def write_features(self, features: Features, fence: Fence) -> Features:
        """Store features, whatever stood there; the answer carries the version that they stand under now.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        """The block that was given away last, None if none was, and its version; it is made ready if it is missing.

        Raises:
            StoreDamaged: it cannot be read, and must not be overwritten: ids could be given away twice. It is logged.
        """

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        """Note a block as given away, if version `expected` still stands. Not fenced, as in Kafka.

        Returns:
            False if another version stands there.
        """

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

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        """What was written since an earlier look, so that whoever keeps a copy need not read all of it again.

        Whatever was written when this is called, by whomever, is in the answer to this call or to an earlier one.

        Args:
            since: the `position` of the earlier look. None for the first: nothing is known, and the store begins to
                take note; from then on it may cost it something for every write. A position before the one that was
                asked from last may be unknown to it.
            last: no copy is kept any more: the store ceases to take note, and the position is of no use.
        """

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        """From now on say LEADERSHIP for these partitions only, each time somebody writes one of them.

        Writes of our own are told as well. Ends with our session; partitions of topics that are not there may be left
        out.
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
