"""Client of the in-memory store."""

from collections.abc import Collection, Mapping, Sequence

from kactl.model import (
    NO_BROKER,
    Assignment,
    Broker,
    ControllerRecord,
    Fence,
    Leadership,
    Maintenance,
    Membership,
    TopicPartition,
    TopicRef,
)

from ..base import Assignments, Changed, Changes, Committed, Leaderships, Names, Notification, Write
from .operations import ServerConnection
from .requests import MemoryRequests


class MemoryStore(MemoryRequests):
    """Store in memory, for tests, and for clusters that may forget everything when their process ends.

        async with kactl.Controller(1) as controller: ...  # has such a store, as controller.store

    Clients of one `MemoryState` share its content.

    Args:
        state: shared with other clients; a new one if None.
        clock: of the server, for the sessions of brokers. The client's own session ends on leaving the context, or by
            `expire`.
        link: way to the server; a direct call to `state`, by `clock`, if None.
    """

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        return await self._open_link.ask(ServerConnection.controller)

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        return await self._open_link.ask(ServerConnection.contest, controller_id, take_over=take_over, address=address)

    async def resign(self, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.resign, fence)

    async def check(self, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.check, fence)

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        return await self._open_link.ask(ServerConnection.brokers)

    async def broker(self, broker: int) -> Broker | None:
        return await self._open_link.ask(ServerConnection.broker, broker)

    async def membership(self) -> Membership:
        return await self._open_link.ask(ServerConnection.membership)

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.write_maintenance, maintenance, fence)

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        return await self._open_link.ask(ServerConnection.register_remote, broker, incarnation, timeout_ms, fence)

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.end_remote, broker, epoch, fence)

    async def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.evict, broker, epoch, fence)

    async def topics(self) -> list[str]:
        is_watched = self._listener is not None
        numbers = await self._open_link.ask(ServerConnection.topics, watched=is_watched)
        if is_watched:
            self._deleted_topics.compare(numbers)
        return sorted(numbers)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._deleted_topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        assignments, numbers = await self._open_link.ask(ServerConnection.assignments, topics)
        if self._listener is not None:
            for name, number in numbers.items():
                self._deleted_topics.record_read(name, number)
        return assignments

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        await self._open_link.ask(ServerConnection.create_topic, topic, assignment, config)

    async def create_topics(self, assignments: Assignments) -> None:
        """Create many topics at once, without configuration. Not fenced.

        Raises:
            TopicExists: one of them exists; nothing was changed.
        """
        await self._open_link.ask(ServerConnection.create_topics, assignments)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        await self._open_link.ask(ServerConnection.write_assignment, topic, assignment, fence)

    async def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        return await self._open_link.ask(ServerConnection.topic_id_copies, topics)

    async def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        await self._open_link.ask(ServerConnection.write_topic_ids, topics, fence, copies_only=copies_only)

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        return await self._open_link.ask(ServerConnection.topic_configs, topics)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await self._open_link.ask(ServerConnection.set_topic_config, topic, config)

    async def default_config(self) -> dict[str, str]:
        return await self._open_link.ask(ServerConnection.default_config)

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        await self._open_link.ask(ServerConnection.set_default_config, config)

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        return await self._open_link.ask(ServerConnection.leaderships, names)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        return await self._open_link.ask(ServerConnection.commit, write, fence)

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        return await self._open_link.ask(ServerConnection.write_isr, name, state, expected=expected)

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        return await self._open_link.ask(ServerConnection.changes, since)

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        await self._open_link.ask(ServerConnection.watch_leaderships, names)

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await self._open_link.ask(ServerConnection.notify, Changed.ISR_NOTIFICATIONS, tuple(partitions), NO_BROKER)

    async def notify_log_dir(self, broker: int) -> None:
        await self._open_link.ask(ServerConnection.notify, Changed.LOG_DIR_NOTIFICATIONS, (), broker)

    async def isr_notifications(self) -> list[Notification]:
        return await self._open_link.ask(ServerConnection.notifications, Changed.ISR_NOTIFICATIONS)

    async def log_dir_notifications(self) -> list[Notification]:
        return await self._open_link.ask(ServerConnection.notifications, Changed.LOG_DIR_NOTIFICATIONS)

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.delete_notifications, notifications, fence)
