"""A store in memory: for tests, simulations, benchmarks, and clusters that may forget.

Several clients share one `MemoryState`, as several processes share a server. Nothing is a thread, and no call waits for
anything but its turn of the event loop, so each is atomic.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.clock import Clock, SystemClock
from kactl.errors import ControllerMoved, IllegalState, NotFound, TopicExists
from kactl.model import (
    NO_BROKER,
    Assignment,
    Broker,
    ControllerRecord,
    Fence,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.store import Assignments, Changed, Committed, Leaderships, Names, Notification, StoreEvent, Write

from .entries import leader_write, topic_numbers
from .memory_state import MemorySession, MemoryState
from .pieces import Piece, joined, parted
from .watches import Watches

__all__ = ["MemoryState", "MemoryStore"]


class MemoryStore:
    """One client of a `MemoryState`; see `kactl.store.Store` for what the methods promise.

    Args:
        state: what is shared with other clients; a new one if None.
        clock: for the sessions of brokers. The client's own session ends when it is left, or by `expire`.
    """

    def __init__(self, state: MemoryState | None = None, *, clock: Clock | None = None) -> None:
        self.state = MemoryState() if state is None else state
        self._clock = SystemClock() if clock is None else clock
        self._watches = Watches()
        self._session: int | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._broker_sessions: list[MemorySession] = []

    def another(self) -> "MemoryStore":
        """A second client of the same state."""
        return MemoryStore(self.state, clock=self._clock)

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._session = self.state.open_session()
        self.state.watches.append(self._watches)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is None or self._tasks is None:
            raise IllegalState("a MemoryStore was left that was not entered")
        self.state.watches.remove(self._watches)
        session, self._session = self._session, None
        self.state.end_session(session)
        for broker_session in self._broker_sessions:
            await broker_session.close()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def expire(self) -> None:
        """End the client's own session as a server does with a silent one; a new session follows at once."""
        if self._session is None:
            raise IllegalState("a MemoryStore has no session before it is entered")
        self.state.end_session(self._session)
        self._watches.fire(StoreEvent(Changed.SESSION_LOST))
        self._session = self.state.open_session()
        self._watches.fire(StoreEvent(Changed.SESSION_OPENED))

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._watches.subscribe(listener)

    async def new_session(self, timeout_ms: int) -> MemorySession:
        state = await self._turn()
        session = MemorySession(state, self._clock, timeout_ms)
        assert self._tasks is not None
        self._broker_sessions.append(session)
        self._tasks.start_soon(session.expire_when_silent)
        return session

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
        self._watches.arm(Changed.TOPICS)
        return sorted(state.topics)

    async def assignments(self, topics: Collection[str]) -> Assignments:
        state = await self._turn()
        present = [state.topics[name] for name in topics if name in state.topics]
        self._watches.arm_all(Changed.TOPIC, (topic.ref.name for topic in present))
        return joined([topic.ref for topic in present], [topic.piece for topic in present])

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        state = await self._turn()
        if topic.name in state.topics:
            raise TopicExists(topic.name)
        state.configs[topic.name] = dict(config)
        state.create_topic(topic, Piece.of(assignment))
        state.changed(Changed.TOPICS)

    async def create_topics(self, assignments: Assignments) -> None:
        """Create many topics at once, without configuration. Not fenced.

        Raises:
            TopicExists: one of them is there; nothing was changed.
        """
        state = await self._turn()
        for topic in assignments.topics:
            if topic.name in state.topics:
                raise TopicExists(topic.name)
        for topic, piece in zip(assignments.topics, parted(assignments), strict=True):
            state.create_topic(topic, piece)
        state.changed(Changed.TOPICS)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        state = await self._turn()
        if fence:
            state.check(fence)
        if topic.name not in state.topics:
            raise NotFound("topic", topic.name)
        held = state.topics[topic.name]
        held.ref, held.piece = topic, Piece.of(assignment)
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

    async def deletions(self) -> list[str]:
        """None: there is no call that marks a topic for deletion."""
        await self._turn()
        return []

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        state = await self._turn()
        return state.entries.read(topic_numbers(names, state.topic_numbers), names.partition)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        state = await self._turn()
        state.check(fence)
        topic = topic_numbers(write.names, state.topic_numbers)
        committed, made, rows = state.entries.judge(write, topic, fence.epoch)
        state.entries.put(made, rows)
        return committed

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        held = await self._turn()
        write = leader_write(name, state, expected=expected)
        topic = topic_numbers(write.names, held.topic_numbers)
        committed, made, rows = held.entries.judge(write, topic, state.controller_epoch)
        held.entries.put(made, rows)
        return int(committed.version[0]) if committed.kept[0] else None

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
        gone = [one for one in notifications if state.notifications.pop(one.key, None)]
        for what in {_kind(one) for one in gone}:
            state.changed(what)

    async def _notify(self, what: Changed, partitions: tuple[TopicPartition, ...], broker: int) -> None:
        state = await self._turn()
        key = f"{next(state.notification_ids):010}"
        state.notifications[key] = Notification(key, partitions, broker)
        state.changed(what)

    async def _notifications(self, what: Changed) -> list[Notification]:
        state = await self._turn()
        self._watches.arm(what)
        return [one for one in state.notifications.values() if _kind(one) is what]

    async def _turn(self) -> MemoryState:
        """The state, after others had their turn: a call to a real store lets them have it, too."""
        if self._session is None:
            raise IllegalState("a MemoryStore is used inside `async with` only")
        await anyio.lowlevel.checkpoint()
        return self.state


def _kind(notification: Notification) -> Changed:
    return Changed.ISR_NOTIFICATIONS if notification.broker == NO_BROKER else Changed.LOG_DIR_NOTIFICATIONS
