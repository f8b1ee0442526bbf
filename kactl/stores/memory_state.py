"""What a store in memory holds, and the sessions that parts of it live by."""

import dataclasses
import itertools
from collections.abc import Collection

import anyio.lowlevel
import msgspec

from kactl.clock import Clock
from kactl.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.model import Broker, ControllerRecord, Features, Fence, ProducerIdBlock, TopicPartition, TopicRef
from kactl.state.rows import RowNumbers

from .base import Changed, Committed, Names, Notification, StoreEvent
from .change_log import ChangeLog
from .entries import Entries, EntryTable
from .topic_assignment import TopicAssignment
from .watches import Watches


@dataclasses.dataclass(slots=True)
class Topic:
    ref: TopicRef
    piece: TopicAssignment


class MemoryState:
    """What is stored. It outlives the clients that share it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.controller: tuple[ControllerRecord, int] | None = None  # and the session that holds it
        self.brokers: dict[int, tuple[Broker, int]] = {}  # and the session that each lives by
        self.broker_epoch = 0
        self.sessions: set[int] = set()
        self.session_ids = itertools.count(1)
        self.topics: dict[str, Topic] = {}
        self.topic_numbers: dict[str, int] = {}
        self.next_topic_number = itertools.count()
        self.deletions: set[str] = set()
        self.reassignment_request: dict[TopicPartition, tuple[int, ...]] | None = None
        self.preferred_election_request: list[TopicPartition] | None = None
        self.features: Features | None = None
        self.producer_ids: tuple[ProducerIdBlock | None, int] = (None, 0)
        self.configs: dict[str, dict[str, str]] = {}
        self.default_config: dict[str, str] = {}
        self.entries = EntryTable()
        self.seq = 0  # of the newest change to a topic's entry, or to leadership
        self.topics_written: dict[str, int] = {}  # and of the newest to each topic's entry
        self.log = ChangeLog()
        self.notifications: dict[str, Notification] = {}
        self.notification_ids = itertools.count()
        self.watches: list[Watches] = []

    def changed(self, what: Changed, name: str = "") -> None:
        event = StoreEvent(what, name)
        for watches in tuple(self.watches):
            watches.fire(event)

    def check(self, fence: Fence) -> None:
        if (fence.epoch, fence.version) != (self.epoch, self.epoch):
            raise ControllerMoved(ours=fence.epoch, theirs=self.epoch)

    def create_topic(self, ref: TopicRef, piece: TopicAssignment) -> None:
        self.topic_numbers[ref.name] = next(self.next_topic_number)
        self.topics[ref.name] = Topic(ref, piece)
        self.topic_written(ref.name)

    def topic_written(self, topic: str) -> None:
        self.seq += 1
        self.topics_written[topic] = self.seq

    def put(self, entries: Entries, rows: RowNumbers) -> None:
        """Keep leadership, as the table of entries has judged."""
        self.entries.put(entries, rows)
        self.seq += 1
        self.log.add(self.seq, entries.topic, entries.partition)

    def delete_topic(self, topic: str) -> None:
        """All that is stored of a topic, but not the mark that asks for it."""
        self.configs.pop(topic, None)
        if self.topics.pop(topic, None):
            self.entries.remove(self.topic_numbers.pop(topic))
            self.topics_written.pop(topic, None)
            self.changed(Changed.TOPICS)

    def unmark(self, topics: Collection[str]) -> None:
        marked = self.deletions.intersection(topics)
        self.deletions -= marked
        if marked:
            self.changed(Changed.DELETIONS)

    def led(self, names: Names, committed: Committed) -> None:
        """Tell those who watch single partitions which of them were written."""
        watching = [watches for watches in self.watches if watches.leaderships]
        if watching:
            written = names.take(committed.kept)
            for watches in watching:
                watches.fire_leaderships(written)

    def open_session(self) -> int:
        session = next(self.session_ids)
        self.sessions.add(session)
        return session

    def end_session(self, session: int) -> None:
        """Everything that lived by the session is gone; nothing happens for one that has ended."""
        self.sessions.discard(session)
        if self.controller and self.controller[1] == session:
            self.controller = None
            self.changed(Changed.CONTROLLER_GONE)
        gone = [broker for broker, (_, holder) in self.brokers.items() if holder == session]
        for broker in gone:
            del self.brokers[broker]
        if gone:
            self.changed(Changed.BROKERS)


class MemorySession:
    """A broker's session; see `kactl.stores.base.Session`. It expires on the clock of the client that opened it."""

    def __init__(self, state: MemoryState, clock: Clock, timeout_ms: int) -> None:
        self._state = state
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._id = state.open_session()
        self._deadline_ms = clock.monotonic_ms() + timeout_ms

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    async def register(self, broker: Broker) -> int:
        await anyio.lowlevel.checkpoint()
        self._check()
        state = self._state
        if broker.id in state.brokers and state.brokers[broker.id][1] != self._id:
            raise BrokerIdTaken(broker.id)
        state.broker_epoch += 1
        state.brokers[broker.id] = (msgspec.structs.replace(broker, epoch=state.broker_epoch), self._id)
        state.changed(Changed.BROKERS)
        return state.broker_epoch

    async def keep_alive(self) -> None:
        await anyio.lowlevel.checkpoint()
        self._check()
        self._deadline_ms = self._clock.monotonic_ms() + self._timeout_ms

    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        self._state.end_session(self._id)

    async def expire_when_silent(self) -> None:
        """Wait until the session has ended, and end it when it was silent for too long."""
        while self._id in self._state.sessions:
            left_ms = self._deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._state.end_session(self._id)
            else:
                await self._clock.sleep_ms(left_ms)

    def _check(self) -> None:
        if self._clock.monotonic_ms() >= self._deadline_ms:
            self._state.end_session(self._id)
        if self._id not in self._state.sessions:
            raise SessionExpired("the session of this broker has ended: open another one and register again")
