"""Operations of the server of the in-memory store; see `kactl.stores.base.Store` for their meaning.

Each is one method without a wait, so every operation is atomic. A read of watched data arms the client's watch.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from kactl.decide.state.records import named
from kactl.decide.state.rows import Ints
from kactl.model import (
    NO_BROKER,
    ZERO_ID,
    Assignment,
    Broker,
    Features,
    Fence,
    Leadership,
    Maintenance,
    Membership,
    ProducerIdBlock,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import BeingDeleted, NotFound, RequestWaits, TopicExists

from ..base import Assignments, Changed, Changes, Committed, Leaderships, Names, Notification, Write
from ..entries import leader_write, topic_numbers
from ..topic_assignment import TopicAssignment, join, split
from .sessions import ClientSessions


class ServerConnection(ClientSessions):
    """Server's side of one client: executes its operations."""

    # -- brokers and topics

    def brokers(self) -> dict[int, Broker]:
        self.watches.arm(Changed.BROKERS)
        return {number: broker for number, (broker, _) in sorted(self.state.brokers.items())}

    def membership(self) -> Membership:
        return Membership(self.brokers(), self.state.maintenance)

    def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        self.state.check(fence)
        self.state.maintenance = maintenance

    def broker(self, broker: int) -> Broker | None:
        return self.state.brokers[broker][0] if broker in self.state.brokers else None

    def topics(self, *, watched: bool) -> dict[str, int]:
        """Returns the names of all topics, and the number that tells a topic from an earlier one of its name."""
        if watched:
            self.watches.arm(Changed.TOPICS)
        return dict(self.state.topic_numbers)

    def assignments(self, topics: Collection[str]) -> tuple[Assignments, dict[str, int]]:
        """Returns the assignments and the numbers of those topics that exist."""
        state = self.state
        present = [state.topics[name] for name in topics if name in state.topics]
        self.watches.arm_all(Changed.TOPIC, (topic.ref.name for topic in present))
        numbers = {topic.ref.name: state.topic_numbers[topic.ref.name] for topic in present}
        return join([topic.ref for topic in present], [topic.assignment for topic in present]), numbers

    def create_topic(self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]) -> None:
        state = self.state
        if topic.name in state.topics:
            raise TopicExists(topic.name)
        state.configs[topic.name] = dict(config)
        state.create_topic(topic, TopicAssignment.of(assignment))
        state.changed(Changed.TOPICS)

    def create_topics(self, assignments: Assignments) -> None:
        """Create many topics at once, without configuration. Not fenced.

        Raises:
            TopicExists: one of them exists; nothing was changed.
        """
        state = self.state
        for topic in assignments.topics:
            if topic.name in state.topics:
                raise TopicExists(topic.name)
        for topic, assignment in zip(assignments.topics, split(assignments), strict=True):
            state.create_topic(topic, assignment)
        state.changed(Changed.TOPICS)

    def write_assignment(self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None) -> None:
        state = self.state
        if fence:
            state.check(fence)
        stored = state.topics.get(topic.name)
        if stored is None or topic.is_other(stored.ref.id):
            raise NotFound("topic", topic.name)
        stored.ref = topic if topic.id != ZERO_ID else stored.ref
        stored.assignment = TopicAssignment.of(assignment)
        state.topic_written(topic.name)
        state.changed(Changed.TOPIC, topic.name)

    def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        stored = {name: self.state.topics[name].id_copy for name in topics if name in self.state.topics}
        return {name: copy for name, copy in stored.items() if copy is not None}

    def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        state = self.state
        state.check(fence)
        for topic in topics:
            stored = state.topics.get(topic.name)
            if stored is None or not state.entries.partitions_of(state.topic_numbers[topic.name]):
                continue
            stored.id_copy = topic.id
            if not copies_only and stored.ref.id != topic.id:
                stored.ref = topic
                state.topic_written(topic.name)
                state.changed(Changed.TOPIC, topic.name)

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        self.watches.arm_all(Changed.TOPIC_CONFIG, topics)
        return {topic: dict(self.state.configs.get(topic, {})) for topic in topics}

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        self.state.configs[topic] = dict(config)
        self.state.changed(Changed.TOPIC_CONFIG, topic)

    def default_config(self) -> dict[str, str]:
        self.watches.arm(Changed.DEFAULT_CONFIG)
        return dict(self.state.default_config)

    def set_default_config(self, config: Mapping[str, str]) -> None:
        self.state.default_config = dict(config)
        self.state.changed(Changed.DEFAULT_CONFIG)

    # -- leadership

    def leaderships(self, names: Names) -> Leaderships:
        state = self.state
        return state.entries.read(topic_numbers(names, state.topic_numbers), names.partition)

    def commit(self, write: Write, fence: Fence) -> Committed:
        self.state.check(fence)
        return self._write(write, fence.epoch)

    def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        committed = self._write(leader_write(name, state, expected=expected), state.controller_epoch)
        return int(committed.version[0]) if committed.committed[0] else None

    def _write(self, write: Write, controller_epoch: int) -> Committed:
        state = self.state
        topic = topic_numbers(write.names, state.topic_numbers, lambda name: state.topics[name].ref.id)
        committed, entries, rows = state.entries.plan_write(write, topic, controller_epoch)
        state.put(entries, rows)
        state.report_leaderships(write.names, committed)
        return committed

    def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        state = self.state
        entries = None if since is None else state.log.since(since[0])
        if since is None or entries is None:
            return Changes.unknown((state.seq,))
        topics = frozenset(name for name, seq in state.topics_written.items() if seq > since[0])
        names = {number: name for name, number in state.topic_numbers.items()}
        return Changes((state.seq,), False, topics, named(*entries, names))

    def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        self.watches.watch_leaderships(names)

    # -- notifications

    def notify(self, kind: Changed, partitions: tuple[TopicPartition, ...], broker: int) -> None:
        state = self.state
        key = f"{next(state.notification_ids):010}"
        state.notifications[key] = Notification(key, partitions, broker)
        state.changed(kind)

    def notifications(self, kind: Changed) -> list[Notification]:
        self.watches.arm(kind)
        return [notification for notification in self.state.notifications.values() if _kind(notification) is kind]

    def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        state = self.state
        state.check(fence)
        deleted = [one for one in notifications if state.notifications.pop(one.key, None)]
        # In the order of their first notification: the order of a set would differ from run to run.
        for kind in dict.fromkeys(_kind(notification) for notification in deleted):
            state.changed(kind)

    # -- deletion

    def mark_deletion(self, topic: str) -> None:
        if topic in self.state.deletions:
            raise BeingDeleted(topic)
        self.state.deletions.add(topic)
        self.state.changed(Changed.DELETIONS)

    def deletions(self) -> list[str]:
        self.watches.arm(Changed.DELETIONS)
        return sorted(self.state.deletions)

    def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        self.state.check(fence)
        self.state.unmark(topics)

    def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> None:
        state = self.state
        state.check(fence)
        for topic in topics:
            state.delete_topic(topic)
        state.unmark(topics)

    def partitions_begun(self, topic: str) -> list[int]:
        number = self.state.topic_numbers.get(topic)
        return [] if number is None else self.state.entries.partitions_of(number)

    # -- admin requests

    def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        state = self.state
        if state.reassignment_request is not None:
            raise RequestWaits("reassignments")
        state.reassignment_request = dict(targets)
        state.changed(Changed.REASSIGNMENT_REQUEST)

    def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        self.watches.arm(Changed.REASSIGNMENT_REQUEST)
        request = self.state.reassignment_request
        return None if request is None else dict(request)

    def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        self.state.check(fence)
        self.state.reassignment_request = dict(targets) or None

    def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        state = self.state
        if state.preferred_election_request is not None:
            raise RequestWaits("preferred elections")
        state.preferred_election_request = list(dict.fromkeys(partitions))
        state.changed(Changed.PREFERRED_ELECTION_REQUEST)

    def preferred_election_request(self) -> list[TopicPartition] | None:
        self.watches.arm(Changed.PREFERRED_ELECTION_REQUEST)
        request = self.state.preferred_election_request
        return None if request is None else list(request)

    def delete_preferred_election_request(self, fence: Fence) -> None:
        self.state.check(fence)
        self.state.preferred_election_request = None

    # -- features and producer ids

    def features(self) -> Features | None:
        return self.state.features

    def write_features(self, features: Features, fence: Fence) -> Features:
        state = self.state
        state.check(fence)
        version = 0 if state.features is None else state.features.version + 1
        state.features = msgspec.structs.replace(features, levels=dict(features.levels), version=version)
        return state.features

    def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return self.state.producer_ids

    def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        state = self.state
        if state.producer_ids[1] != expected:
            return False
        state.producer_ids = (block, expected + 1)
        return True


def _kind(notification: Notification) -> Changed:
    return Changed.ISR_NOTIFICATIONS if notification.broker == NO_BROKER else Changed.LOG_DIR_NOTIFICATIONS
