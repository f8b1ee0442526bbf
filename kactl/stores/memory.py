"""In-memory store for tests, simulations, benchmarks, and clusters that need not survive a restart.

Several clients share one `MemoryState`, as several processes share a server. There are no threads, and a call waits for
nothing but one turn of the event loop, so every call is atomic.
"""

from collections.abc import Collection, Mapping, Sequence

from kactl.errors import ControllerMoved, NotFound, TopicExists
from kactl.model import (
    NO_BROKER,
    ZERO_ID,
    Assignment,
    Broker,
    ControllerRecord,
    Fence,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.state.records import named

from .base import Assignments, Changed, Changes, Committed, Leaderships, Names, Notification, Write
from .entries import leader_write, topic_numbers
from .memory_requests import MemoryRequests
from .memory_state import MemoryState
from .topic_assignment import TopicAssignment, join, split

__all__ = ["MemoryState", "MemoryStore"]


class MemoryStore(MemoryRequests):
    """One client of a `MemoryState`; see `kactl.stores.base.Store` for the methods.

    Args:
        state: shared with other clients; a new one if None.
        clock: for broker sessions. The client's own session ends on leaving the context, or by `expire`.
    """

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        state = await self._turn()
        self._watches.arm(Changed.CONTROLLER)
        return state.controller[0] if state.controller else None

    async def contest(self, controller_id: int, *, take_over: bool = False) -> Fence:
        state = await self._turn()
        if state.controller and not take_over:
            raise ControllerMoved(ours=0, theirs=state.epoch)
        assert self._session is not None
        state.epoch += 1
        state.controller = (ControllerRecord(controller_id, state.epoch, self._clock.now_ms()), self._session)
        state.changed(Changed.CONTROLLER)
        return Fence(epoch=state.epoch, version=state.epoch)

    async def resign(self, fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)
        if state.controller:
            state.controller = None
            state.changed(Changed.CONTROLLER_GONE)

    async def check(self, fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        state = await self._turn()
        self._watches.arm(Changed.BROKERS)
        return {number: broker for number, (broker, _) in sorted(state.brokers.items())}

    async def broker(self, broker: int) -> Broker | None:
        state = await self._turn()
        return state.brokers[broker][0] if broker in state.brokers else None

    async def topics(self) -> list[str]:
        state = await self._turn()
        if not self._watches.has_listener:
            return sorted(state.topics)
        self._watches.arm(Changed.TOPICS)
        self._deleted_topics.compare(state.topic_numbers)
        return sorted(state.topics)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._deleted_topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        state = await self._turn()
        present = [state.topics[name] for name in topics if name in state.topics]
        self._watches.arm_all(Changed.TOPIC, (topic.ref.name for topic in present))
        if self._watches.has_listener:
            for topic in present:
                self._deleted_topics.record_read(topic.ref.name, state.topic_numbers[topic.ref.name])
        return join([topic.ref for topic in present], [topic.assignment for topic in present])

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        state = await self._turn()
        if topic.name in state.topics:
            raise TopicExists(topic.name)
        state.configs[topic.name] = dict(config)
        state.create_topic(topic, TopicAssignment.of(assignment))
        state.changed(Changed.TOPICS)

    async def create_topics(self, assignments: Assignments) -> None:
        """Create many topics at once, without configuration. Not fenced.

        Raises:
            TopicExists: one of them exists; nothing was changed.
        """
        state = await self._turn()
        for topic in assignments.topics:
            if topic.name in state.topics:
                raise TopicExists(topic.name)
        for topic, assignment in zip(assignments.topics, split(assignments), strict=True):
            state.create_topic(topic, assignment)
        state.changed(Changed.TOPICS)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        state = await self._turn()
        if fence:
            state.check(fence)
        if topic.name not in state.topics:
            raise NotFound("topic", topic.name)
        stored = state.topics[topic.name]
        stored.ref = topic if topic.id != ZERO_ID else stored.ref
        stored.assignment = TopicAssignment.of(assignment)
        state.topic_written(topic.name)
        state.changed(Changed.TOPIC, topic.name)

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        state = await self._turn()
        self._watches.arm_all(Changed.TOPIC_CONFIG, topics)
        return {topic: dict(state.configs.get(topic, {})) for topic in topics}

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        state = await self._turn()
        state.configs[topic] = dict(config)
        state.changed(Changed.TOPIC_CONFIG, topic)

    async def default_config(self) -> dict[str, str]:
        state = await self._turn()
        self._watches.arm(Changed.DEFAULT_CONFIG)
        return dict(state.default_config)

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        state = await self._turn()
        state.default_config = dict(config)
        state.changed(Changed.DEFAULT_CONFIG)

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        state = await self._turn()
        return state.entries.read(topic_numbers(names, state.topic_numbers), names.partition)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        state = await self._turn()
        state.check(fence)
        topic = topic_numbers(write.names, state.topic_numbers)
        committed, entries, rows = state.entries.plan_write(write, topic, fence.epoch)
        state.put(entries, rows)
        state.report_leaderships(write.names, committed)
        return committed

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        memory = await self._turn()
        write = leader_write(name, state, expected=expected)
        topic = topic_numbers(write.names, memory.topic_numbers)
        committed, entries, rows = memory.entries.plan_write(write, topic, state.controller_epoch)
        memory.put(entries, rows)
        memory.report_leaderships(write.names, committed)
        return int(committed.version[0]) if committed.committed[0] else None

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        state = await self._turn()
        entries = None if since is None else state.log.since(since[0])
        if since is None or entries is None:
            return Changes.unknown((state.seq,))
        topics = frozenset(name for name, seq in state.topics_written.items() if seq > since[0])
        names = {number: name for name, number in state.topic_numbers.items()}
        return Changes((state.seq,), False, topics, named(*entries, names))

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        await self._turn()
        self._watches.watch_leaderships(names)

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await self._notify(Changed.ISR_NOTIFICATIONS, tuple(partitions), NO_BROKER)

    async def notify_log_dir(self, broker: int) -> None:
        await self._notify(Changed.LOG_DIR_NOTIFICATIONS, (), broker)

    async def isr_notifications(self) -> list[Notification]:
        return await self._notifications(Changed.ISR_NOTIFICATIONS)

    async def log_dir_notifications(self) -> list[Notification]:
        return await self._notifications(Changed.LOG_DIR_NOTIFICATIONS)

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)
        deleted = [one for one in notifications if state.notifications.pop(one.key, None)]
        for kind in {_kind(notification) for notification in deleted}:
            state.changed(kind)

    async def _notify(self, kind: Changed, partitions: tuple[TopicPartition, ...], broker: int) -> None:
        state = await self._turn()
        key = f"{next(state.notification_ids):010}"
        state.notifications[key] = Notification(key, partitions, broker)
        state.changed(kind)

    async def _notifications(self, kind: Changed) -> list[Notification]:
        state = await self._turn()
        self._watches.arm(kind)
        return [notification for notification in state.notifications.values() if _kind(notification) is kind]


def _kind(notification: Notification) -> Changed:
    return Changed.ISR_NOTIFICATIONS if notification.broker == NO_BROKER else Changed.LOG_DIR_NOTIFICATIONS
