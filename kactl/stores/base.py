"""The store protocol: events, broker sessions and the operations that every store implements.

A store keeps the controllership and its epoch, broker registrations, topics with their assignments, and the leadership
of each partition. It returns them as columns, writes new leadership by compare-and-set on each partition's own version
under a fence, and reports changes made by other clients.

One contract suite runs over every store. The semantics follow Kafka's use of ZooKeeper: a write is durable when the
call returns; a write with another fence than the stored one changes nothing and raises ControllerMoved; every write of
an entry raises its version by one, beginning at 0.

A watched read arms a watch: `brokers`, `topics`, `assignments`, `default_config`, `deletions`, `controller`, the two
admin requests, and the two notifications. After a change of the data that was read, the listener receives at least one
event; several changes may be reported as one event. A listener reads again before it acts on an event. For an admin
request only the arrival of a new one is reported, not its shrinking or its removal.
"""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from kactl.decide.state.records import Assignments, Changes, Committed, Found, Leaderships, Names, Outcome, Write
from kactl.decide.state.rows import Ints
from kactl.model import (
    NO_BROKER,
    Assignment,
    Broker,
    ControllerRecord,
    Features,
    Fence,
    Leadership,
    Maintenance,
    Membership,
    ProducerIdBlock,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import StoreError

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
    "SessionBound",
    "Store",
    "StoreEvent",
    "Write",
]


class Changed(enum.Enum):
    """The kind of a change in a store."""

    CONTROLLER = "controller"  # the controllership was taken, or passed to another instance
    CONTROLLER_GONE = "controller gone"  # there is no controller now
    BROKERS = "brokers"  # a broker registered, or a registration ended
    BROKER = "broker"  # the data of one registration; `name` is the id
    TOPICS = "topics"  # a topic was created or deleted
    TOPIC = "topic"  # the assignment of one topic; `name` is the topic
    TOPIC_CONFIG = "topic config"  # the configuration of one topic; `name` is the topic
    DEFAULT_CONFIG = "default config"  # the configuration of all brokers
    DELETIONS = "deletions"  # a topic was marked for deletion
    LEADERSHIP = "leadership"  # of one watched partition; `name` is the partition, as topic-0
    ISR_NOTIFICATIONS = "isr notifications"
    LOG_DIR_NOTIFICATIONS = "log dir notifications"
    REASSIGNMENT_REQUEST = "reassignment request"  # a new one arrived
    PREFERRED_ELECTION_REQUEST = "preferred election request"  # a new one arrived
    SUSPENDED = "suspended"  # no contact for so long that the session may have ended
    CONNECTED = "connected"  # after SUSPENDED: the session has not ended
    SESSION_LOST = "session lost"  # the client's session has ended, and everything that depended on it
    SESSION_OPENED = "session opened"  # after SESSION_LOST: there is a new session


class StoreEvent(msgspec.Struct, frozen=True):
    """A change in the store; the data has to be read again. `name` is the topic, broker or partition, if there are
    many.
    """

    what: Changed
    name: str = ""


class Notification(msgspec.Struct, frozen=True):
    """A notification that stays in the store until the controller deletes it.

    Attributes:
        key: the store's name for it, passed to `delete_notifications`.
        partitions: of an ISR notification: the partitions with leadership that a leader has written.
        broker: of a log directory notification: the broker with the failed directory; otherwise NO_BROKER.
    """

    key: str
    partitions: tuple[TopicPartition, ...] = ()
    broker: int = NO_BROKER


class SessionBound(msgspec.Struct, frozen=True, kw_only=True):
    """What a successful renewal of a session proves to the client that sent it.

    Attributes:
        kind: "counted": the store ends the session no earlier than `timeout_ms` after it received the renewal, by its
            own clock. "witnessed": the session existed at a moment after the renewal was sent, and no more is known.
        same_clock: the store and its clients read one clock, so that no drift between two clocks has to be allowed for.
        resolution_ns: by how much the store may end a session early, because it rounds times.
    """

    kind: Literal["counted", "witnessed"]
    same_clock: bool = False
    resolution_ns: int = 0


class Session(Protocol):
    """A lease on which a broker's registration depends.

    It ends when it is closed, or when it was not renewed for its timeout. The registration of a closed session is
    removed at once.
    """

    @property
    def timeout_ms(self) -> int:
        """The timeout that the store has granted, which may differ from the requested one."""

    @property
    def bound(self) -> SessionBound:
        """What a successful `renew` proves."""

    async def register(self, broker: Broker) -> int:
        """Register a broker; its `epoch` is ignored.

        Returns:
            the broker epoch: higher than that of every earlier registration in this store.

        Raises:
            BrokerIdTaken: another live session holds the id.
            SessionExpired: this session has ended.
        """

    async def renew(self, sent_ns: int) -> None:
        """Renew the session for another timeout. Calls may overlap.

        Args:
            sent_ns: the caller's `Clock.lease_ns`, read immediately before the call. A store whose sessions end by that
                clock may count from it instead of the moment at which it receives the call.

        Raises:
            SessionExpired: too late; the registration has ended, or is evicted.
            StoreError: the session was not renewed, or it is unknown whether it was.
        """

    async def keep_alive(self) -> None:
        """Renew the session like `renew`, for a caller that keeps no lease."""

    async def close(self) -> None:
        """End the session now."""


class Store(Protocol):
    """One client of a store: pass a SqliteStore, an EtcdStore or a MemoryStore to the controller.

    The interface is for authors of other stores; the module docstring has the common semantics.

    Every method may raise StoreUnavailable, or SessionExpired if the client's own session was lost.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` in the event loop's thread for every change. One listener; set before the first read."""

    @property
    def trouble(self) -> str:
        """Returns why the last attempt to use the store failed, and the remedy; empty if it succeeded. Does no I/O."""

    async def new_session(self, timeout_ms: int) -> Session:
        """Returns a new session for a broker of this process."""

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        """Returns the active controller, or None if there is none."""

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        """Take the controllership and raise its epoch by one, in one atomic step; the first epoch is 1.

        The controllership lasts as long as the store's own session (a lease, an ephemeral node).

        Args:
            take_over: take it even if another instance holds it.
            address: where the instance listens for participants, for its record.

        Returns:
            the fence of this election, which every fenced write carries.

        Raises:
            ControllerMoved: another instance holds it, or was elected first.
        """

    async def resign(self, fence: Fence) -> None:
        """Give up the controllership if `fence` is still the stored one.

        Raises:
            ControllerMoved: `fence` is not the stored one.
        """

    async def check(self, fence: Fence) -> None:
        """Verify that `fence` is the stored one, before an action that no later fenced write could prevent.

        A call that begins after another contest has been answered fails.

        Raises:
            ControllerMoved: `fence` is not the stored one.
        """

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        """Returns all registrations by broker id, with epochs. An unreadable registration is logged and left out."""

    async def broker(self, broker: int) -> Broker | None:
        """Returns one registration, or None."""

    async def membership(self) -> Membership:
        """Returns what `brokers` returns, and the maintenance, in the requests that `brokers` needs.

        Only the controller writes the maintenance, so that no watch is armed for it. An unreadable one is logged and
        counts as none, until the next write replaces it.
        """

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        """Replace the stored maintenance.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        """Register a broker whose session is with the controller: the registration lasts until `end_remote`.

        A registration of the same incarnation stays as it is, so that the call can be repeated if its outcome is
        unknown.

        Args:
            broker: its `epoch`, `incarnation`, `timeout_ms`, `session` and `evicted` are ignored.
            timeout_ms: granted timeout of the session, which the controller counts.

        Returns:
            the broker epoch. Those of both kinds of sessions rise together.

        Raises:
            BrokerIdTaken: another registration has the id, or that of this incarnation is evicted.
            ControllerMoved: the fence is not the stored one.
        """

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        """Remove the registration of a broker whose session is with the controller.

        Skipped if there is none with that epoch, or its session is with the store.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        """Mark a registration as evicted, whatever its session. Skipped if there is none with that epoch.

        The session cannot be renewed from then on: `Session.renew` raises SessionExpired. The mark stays until the
        registration ends. BROKERS or BROKER is reported.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def topics(self) -> list[str]:
        """Returns the names of all topics, sorted. An invalid topic name is logged and left out.

        Like every read it may be repeated by any caller, and a lost response has no consequence: a topic counts as
        listed when the response has reached the client, never when the server sent it; see `take_deleted_topics`.
        """

    def take_deleted_topics(self) -> frozenset[str]:
        """Returns the topics deleted since this client read their assignments, created again or not; each once.

        A topic that was deleted and created again is in the results of `topics` before and after. A caller that follows
        the list calls this after each `topics`, discards its state of the returned topics, and treats those of them
        that are listed as new. Deletions are recorded if there is a listener, and at the latest when `topics` returns;
        each was reported by TOPICS. A record remains until this method returns it, however often a read in between
        fails or is repeated, and whoever is elected controller meanwhile: a new controller may know topics from earlier
        reads.

        Topics that this client deleted itself are left out. Does not wait and does not fail, so no returned record is
        lost.
        """

    async def assignments(self, topics: Collection[str]) -> Assignments:
        """Returns the assignments and ids of some topics.

        Topics that do not exist or cannot be read are left out of `topics` (an unreadable one is logged); a topic
        without an id has ZERO_ID.
        """

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
        """Replace all assignments of an existing topic, at any version. A `fence` of None is an unfenced admin write.

        A topic that is written without an id keeps its id. A topic without an id is given that of a fenced write.

        Raises:
            ControllerMoved: the fence is not the stored one.
            NotFound: the topic does not exist, or has another id: it was deleted and created again.
        """

    async def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        """Returns the copies that `write_topic_ids` has left of the ids of some topics; none for the others.

        A copy lasts as long as its topic. Tools that rewrite an assignment without the id do not touch it.
        """

    async def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        """Write the ids of topics, each with a copy, and leave their assignments as they are stored.

        A topic without stored leadership is skipped: it may be a later one of the name. So is a topic that is gone or
        cannot be read.

        Args:
            copies_only: write no id into an assignment.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        """Returns the overrides of each topic: {} if there are none, None if they could not be read."""

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replace a topic's overrides. Not fenced."""

    async def default_config(self) -> dict[str, str]:
        """Returns the settings for all brokers, which override each broker's own settings; {} if there are none.

        Unreadable settings are logged and count as {}: the settings of each instance apply then.
        """

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        """Replace the settings for all brokers; an unfenced admin write. {} leaves each broker to its own settings."""

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        """Mark a topic for deletion, as Kafka's admin tools do, without checking that it exists. Not fenced.

        Raises:
            BeingDeleted: it is marked already.
        """

    async def deletions(self) -> list[str]:
        """Returns the topics that are marked for deletion, sorted."""

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        """Remove deletion marks without deleting the topics; missing marks are skipped.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        """Delete the data of some topics: assignment and leadership, then the configuration, then the deletion mark.

        The mark is deleted last, so that a later controller finds it after a crash and continues. Missing data is
        skipped.
        Topics are deleted concurrently; a failure of one delays no other.

        Args:
            topics: by name, the partitions, int32[n], whose leadership is believed to be stored. If that is correct,
                the store need not list them; if it is not, or more is stored, the store lists them.

        Returns:
            the topics of which data remains, with the reason; their marks remain too. Retry these.

        Raises:
            ControllerMoved: the fence is not the stored one. Parts may have been deleted before that was detected.
            StoreUnavailable: the outcome is unknown for each topic: a missing mark means that everything is deleted.
        """

    async def partitions_begun(self, topic: str) -> list[int]:
        """Returns the partitions of a topic that have stored data besides their assignment, ascending."""

    # -- admin requests stored by Kafka's older tools

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Store a request for reassignments; an unfenced admin write.

        Raises:
            RequestWaits: there is one already.
        """

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Returns the requested reassignments, or None if there is no request.

        A new request that was read may not be reported. An unreadable request is logged and counts as {}; when it is
        repaired, REASSIGNMENT_REQUEST is reported.
        """

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        """Replace the request by its remaining part; {} deletes the request.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        """Store a request for preferred elections; an unfenced admin write.

        Raises:
            RequestWaits: there is one already.
        """

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        """Returns the requested partitions, each once, or None if there is no request.

        An unreadable request is logged and counts as []; when it is repaired, PREFERRED_ELECTION_REQUEST is reported.
        """

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        """Delete the request, if there is one.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    # -- features and producer ids

    async def features(self) -> Features | None:
        """Returns the finalized features, or None if none are stored.

        Raises:
            StoreDamaged: they cannot be read, and must not be overwritten. Also logged.
        """

    async def write_features(self, features: Features, fence: Fence) -> Features:
        """Store features, whatever was stored before.

        Returns:
            the features with their new version.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        """Returns the last allocated block, None if there is none, and its version. Creates a missing record.

        Raises:
            StoreDamaged: it cannot be read, and must not be overwritten: ids could be allocated twice. Also logged.
        """

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        """Record a block as allocated if the stored version is `expected`. Not fenced, as in Kafka.

        Returns:
            False if the stored version is another one.
        """

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        """Returns the stored leadership of n partitions, n >= 0."""

    async def commit(self, write: Write, fence: Fence) -> Committed:
        """Commit new leadership, each row by compare-and-set on its own version, with the fence's epoch in it.

        n = 0 sends nothing. The first leadership of a partition is not committed if the stored topic has another id
        than the one in `write.names`: it was deleted and created again.

        Raises:
            ControllerMoved: the fence is not the stored one. Rows may have been committed before that was detected.
            StoreUnavailable: the outcome is unknown. Read back before writing again.
        """

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        """Returns the entries written since an earlier call, so that a cached copy need not be read again as a whole.

        Every write that completed before this call, by any client, is in the result of this call or of an earlier one.

        Args:
            since: the `position` of the earlier result. None for the first call: nothing is known, and the store begins
                to record changes; from then on every write may cost it something. A position before the last one that
                was passed may be unknown to the store.
            last: the caller keeps no copy any longer: the store stops recording, and the position is useless.
        """

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        """Report LEADERSHIP for these partitions only, each time that any client writes one of them.

        The client's own writes are reported as well. Ends with the session; partitions of missing topics may be left
        out.
        """

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        """Write an ISR as its leader does, like Kafka's brokers below protocol level 2.7. Not fenced.

        `state.controller_epoch` is the epoch that was received with the leadership.

        Returns:
            the new version, or None if the stored version is not `expected`.
        """

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        """Notify the controller that leaders have written the ISRs of some partitions."""

    async def notify_log_dir(self, broker: int) -> None:
        """Notify the controller that a log directory of a broker failed."""

    async def isr_notifications(self) -> list[Notification]: ...

    async def log_dir_notifications(self) -> list[Notification]: ...

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        """Delete notifications; missing ones are skipped.

        Raises:
            ControllerMoved: the fence is not the stored one.
        """
