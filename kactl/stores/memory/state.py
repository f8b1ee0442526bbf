"""Data of the in-memory store, shared by all clients."""

import dataclasses
import itertools
from collections.abc import Collection

from kactl.decide.state.rows import RowNumbers
from kactl.model import (
    Broker,
    ControllerRecord,
    Features,
    Fence,
    Maintenance,
    ProducerIdBlock,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import ControllerMoved

from ..base import Changed, Committed, Names, Notification, StoreEvent
from ..entries import ChangeLog, Entries, EntryTable
from ..topic_assignment import TopicAssignment
from ..watch_registry import Watches


@dataclasses.dataclass(slots=True)
class Topic:
    ref: TopicRef
    assignment: TopicAssignment
    id_copy: bytes | None = None


class MemoryState:
    """The stored data. It outlives the clients that share it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.controller: tuple[ControllerRecord, int] | None = None  # with the session that holds it
        self.brokers: dict[int, tuple[Broker, int | None]] = {}  # with the session of each; None: with the controller
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
        self.maintenance = Maintenance()
        self.producer_ids: tuple[ProducerIdBlock | None, int] = (None, 0)
        self.configs: dict[str, dict[str, str]] = {}
        self.default_config: dict[str, str] = {}
        self.entries = EntryTable()
        self.seq = 0  # of the last change to a topic's entry, or to leadership
        self.topics_written: dict[str, int] = {}  # the `seq` of the last change to each topic's entry
        self.log = ChangeLog()
        self.notifications: dict[str, Notification] = {}
        self.notification_ids = itertools.count()
        self.watches: list[Watches] = []

    def changed(self, kind: Changed, name: str = "") -> None:
        event = StoreEvent(kind, name)
        for watches in tuple(self.watches):
            watches.fire(event)

    def check(self, fence: Fence) -> None:
        if (fence.epoch, fence.version) != (self.epoch, self.epoch):
            raise ControllerMoved(ours=fence.epoch, theirs=self.epoch)

    def create_topic(self, ref: TopicRef, assignment: TopicAssignment) -> None:
        self.topic_numbers[ref.name] = next(self.next_topic_number)
        self.topics[ref.name] = Topic(ref, assignment)
        self.topic_written(ref.name)

    def topic_written(self, topic: str) -> None:
        self.seq += 1
        self.topics_written[topic] = self.seq

    def put(self, entries: Entries, rows: RowNumbers) -> None:
        """Store the entries of a write, as planned by `EntryTable.plan_write`."""
        self.entries.put(entries, rows)
        self.seq += 1
        self.log.add(self.seq, entries.topic, entries.partition)

    def delete_topic(self, topic: str) -> None:
        """Delete everything stored of a topic except its deletion mark."""
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

    def report_leaderships(self, names: Names, committed: Committed) -> None:
        """Report written partitions to the clients that watch single partitions."""
        watching = [watches for watches in self.watches if watches.leaderships]
        if watching:
            written = names.take(committed.committed)
            for watches in watching:
                watches.fire_leaderships(written)

    def open_session(self) -> int:
        session = next(self.session_ids)
        self.sessions.add(session)
        return session

    def end_session(self, session: int) -> None:
        """End a session and remove everything that depends on it; a session that has ended is skipped."""
        self.sessions.discard(session)
        if self.controller and self.controller[1] == session:
            self.controller = None
            self.changed(Changed.CONTROLLER_GONE)
        removed = [broker for broker, (_, holder) in self.brokers.items() if holder == session]
        for broker in removed:
            del self.brokers[broker]
        if removed:
            self.changed(Changed.BROKERS)
