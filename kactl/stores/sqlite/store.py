"""SQLite implementation of `kactl.stores.base.Store`. All database access runs in one thread."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import numpy as np

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
from kactl.model.errors import IllegalState, StoreDamaged, StoreError
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.clock import Clock, SystemClock
from kactl.stores.base import (
    Assignments,
    Changed,
    Changes,
    Committed,
    Leaderships,
    Names,
    Notification,
    StoreEvent,
    Write,
)
from kactl.stores.deleted_topics import DeletedTopics
from kactl.stores.entries import leader_write
from kactl.stores.opening import check_unopened
from kactl.stores.topic_assignment import TopicAssignment, split
from kactl.stores.watch_registry import Watches

from .connection import Connect, connect
from .lease import POLL_MS, SESSION_TIMEOUT_MS, Lease, SqliteSession
from .sessions import NO_HOLDER, Holder
from .thread import DatabaseThread


class SqliteStore:
    """Store in a file, for the programs of one host.

        async with kactl.Controller(1, store=kactl.SqliteStore("cluster.db")) as controller: ...

    The controller opens and closes it.

    Args:
        path: the file; it is created if it does not exist, in an existing folder. A relative path counts from the
            working directory of now.
        clock: sessions end by its boot time, which all processes of a host share.
        session_timeout_ms: how long the controllership outlives a process that was killed.
        holder: an exclusive lock that this process holds until its end. On entering, the sessions of the previous
            holder of the lock are ended, since that process has ended.
        poll_ms: how often this client looks for changes by other processes and for its own duties. It delays their
            notification, and should be a small part of `session_timeout_ms`.
        connect: opens the connections to the file.

    Raises:
        StoreDamaged: on entering; the file is damaged, or not a kactl store. It was left unchanged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        holder: Holder = NO_HOLDER,
        poll_ms: float = POLL_MS,
        connect: Connect = connect,
    ) -> None:
        self.path = _absolute(Path(path))
        self._watches = Watches()
        self._deleted_topics = DeletedTopics()
        clock = SystemClock() if clock is None else clock
        fire = self._watches.fire
        self._thread = DatabaseThread(self.path, fire, clock=clock, holder=holder, connect=connect)
        self._lease = Lease(self._thread, fire, clock=clock, timeout_ms=session_timeout_ms, poll_ms=poll_ms)
        self._stack: BlockStack | None = None

    @property
    def session_id(self) -> int:
        """The row of the client's own session in the table of leases; it changes after each loss."""
        return self._lease.session

    @property
    def is_open(self) -> bool:
        return self._stack is not None

    async def __aenter__(self) -> Self:
        check_unopened(self)
        async with BlockStack("the SQLite store") as stack:
            await self._thread.open()
            stack.push_async_callback(self._close)
            await self._lease.open()
            tasks = await stack.enter_async_context(Background("the session of the SQLite store"))
            tasks.start_soon(self._lease.run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._stack is None:
            raise IllegalState("a SqliteStore was exited without being entered")
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, error, trace)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._lease.close()
            await self._thread.close()

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._watches.subscribe(listener)

    @property
    def trouble(self) -> str:
        return self._lease.trouble

    async def new_session(self, timeout_ms: int) -> SqliteSession:
        return await self._lease.open_another(timeout_ms)

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        arm = partial(self._watches.arm, Changed.CONTROLLER)
        return await self._thread.watch(arm, self._thread.sessions.controller)

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        return await self._lease.contest(controller_id, take_over=take_over, address=address)

    async def resign(self, fence: Fence) -> None:
        await self._thread.run(self._thread.sessions.resign, fence)

    async def check(self, fence: Fence) -> None:
        await self._thread.run(self._thread.sessions.check, fence)

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        arm = partial(self._watches.arm, Changed.BROKERS)
        return await self._thread.watch(arm, self._thread.sessions.brokers)

    async def broker(self, broker: int) -> Broker | None:
        return await self._thread.run(self._thread.sessions.broker, broker)

    async def membership(self) -> Membership:
        arm = partial(self._watches.arm, Changed.BROKERS)
        return await self._thread.watch(arm, self._membership)

    def _membership(self) -> Membership:
        return Membership(self._thread.sessions.brokers(), self._thread.requests.maintenance())

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        await self._thread.run(self._thread.requests.write_maintenance, maintenance, fence)

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        return await self._thread.run(self._thread.sessions.register_remote, broker, incarnation, timeout_ms, fence)

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._thread.run(self._thread.sessions.end_remote, broker, epoch, fence)

    async def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._thread.run(self._thread.sessions.evict, broker, epoch, fence)

    async def topics(self) -> list[str]:
        arm = partial(self._watches.arm, Changed.TOPICS)
        numbers = await self._thread.watch(arm, self._thread.catalog.topics)
        if self._watches.has_listener:
            self._deleted_topics.compare(numbers)
        return sorted(numbers)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._deleted_topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        arm = partial(self._watches.arm_all, Changed.TOPIC, topics)
        assignments, numbers = await self._thread.watch(arm, self._thread.catalog.assignments, topics)
        if self._watches.has_listener:
            for ref, number in zip(assignments.topics, numbers, strict=True):
                self._deleted_topics.record_read(ref.name, number)
        return assignments

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        await self._thread.run(
            self._thread.catalog.create_topics, [topic], [TopicAssignment.of(assignment)], {topic.name: config}
        )

    async def create_topics(self, assignments: Assignments) -> None:
        """Create many topics in one transaction, without configuration. Not fenced.

        Raises:
            TopicExists: one of them exists; nothing was changed.
        """
        await self._thread.run(self._thread.catalog.create_topics, assignments.topics, split(assignments), {})

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        await self._thread.run(self._thread.catalog.write_assignment, topic, TopicAssignment.of(assignment), fence)

    async def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        return await self._thread.run(self._thread.catalog.topic_id_copies, topics)

    async def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        await self._thread.run(self._thread.catalog.write_topic_ids, topics, fence, copies_only=copies_only)

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        arm = partial(self._watches.arm_all, Changed.TOPIC_CONFIG, topics)
        return await self._thread.watch(arm, self._thread.catalog.configs, topics)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await self._thread.run(self._thread.catalog.set_config, topic, config)

    async def default_config(self) -> dict[str, str]:
        arm = partial(self._watches.arm, Changed.DEFAULT_CONFIG)
        return await self._thread.watch(arm, self._thread.catalog.default_config)

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        await self._thread.run(self._thread.catalog.set_default_config, config)

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        await self._thread.run(self._thread.requests.mark_deletion, topic)

    async def deletions(self) -> list[str]:
        arm = partial(self._watches.arm, Changed.DELETIONS)
        return await self._thread.watch(arm, self._thread.requests.deletions)

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        await self._thread.run(self._thread.requests.unmark_deletions, topics, fence)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        await self._thread.run(self._thread.requests.delete_topics, list(topics), fence)
        for topic in topics:
            self._deleted_topics.forget(topic)
        return {}

    async def partitions_begun(self, topic: str) -> list[int]:
        return await self._thread.run(self._thread.catalog.partitions_begun, topic)

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        await self._thread.run(self._thread.requests.request_reassignment, targets)

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        arm = partial(self._watches.arm, Changed.REASSIGNMENT_REQUEST)
        return await self._thread.watch(arm, self._thread.requests.reassignment_request)

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        await self._thread.run(self._thread.requests.set_reassignment_request, targets, fence)

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        await self._thread.run(self._thread.requests.request_preferred_election, partitions)

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        arm = partial(self._watches.arm, Changed.PREFERRED_ELECTION_REQUEST)
        return await self._thread.watch(arm, self._thread.requests.preferred_election_request)

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        await self._thread.run(self._thread.requests.delete_preferred_election_request, fence)

    # -- features and producer ids

    async def features(self) -> Features | None:
        return await self._thread.run(self._thread.requests.features)

    async def write_features(self, features: Features, fence: Fence) -> Features:
        return await self._thread.run(self._thread.requests.write_features, features, fence)

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return await self._thread.run(self._thread.requests.producer_ids)

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        return await self._thread.run(self._thread.requests.write_producer_ids, block, expected=expected)

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        return await self._thread.run(self._thread.catalog.leaderships, names)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        if not len(write):
            return Committed(np.zeros(0, np.uint8), np.zeros(0, np.int32))
        return await self._thread.run(self._thread.catalog.commit, write, fence, controller_epoch=fence.epoch)

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        write = leader_write(name, state, expected=expected)
        committed = await self._thread.run(
            self._thread.catalog.commit, write, None, controller_epoch=state.controller_epoch
        )
        return int(committed.version[0]) if committed.committed[0] else None

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        return await self._thread.run(self._thread.catalog.changes, since)

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        await self._thread.run(self._thread.catalog.watch_leaderships, names)

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await self._thread.run(self._thread.catalog.notify, Changed.ISR_NOTIFICATIONS, partitions, NO_BROKER)

    async def notify_log_dir(self, broker: int) -> None:
        await self._thread.run(self._thread.catalog.notify, Changed.LOG_DIR_NOTIFICATIONS, (), broker)

    async def isr_notifications(self) -> list[Notification]:
        arm = partial(self._watches.arm, Changed.ISR_NOTIFICATIONS)
        return await self._thread.watch(arm, self._thread.catalog.notifications, Changed.ISR_NOTIFICATIONS)

    async def log_dir_notifications(self) -> list[Notification]:
        arm = partial(self._watches.arm, Changed.LOG_DIR_NOTIFICATIONS)
        return await self._thread.watch(arm, self._thread.catalog.notifications, Changed.LOG_DIR_NOTIFICATIONS)

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        await self._thread.run(self._thread.catalog.delete_notifications, notifications, fence)


def _absolute(path: Path) -> Path:
    """The store opens connections at any time: the path must not depend on a working directory that changes."""
    try:
        return path.absolute()
    except FileNotFoundError:
        reason = "is relative, and the working directory of this process does not exist any more"
        raise StoreDamaged(str(path), reason, "name an absolute path") from None
