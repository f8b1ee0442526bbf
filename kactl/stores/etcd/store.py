"""etcd implementation of `kactl.stores.base.Store`. This module dispatches; each subject has a module of its own."""

import math
import random
import ssl
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio

from kactl.decide.state.rows import Ints
from kactl.model import (
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
from kactl.model.errors import BadConfig, IllegalState, StoreError
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.logs import logger
from kactl.runtime.patience import START_TIMEOUT_MS, Patience
from kactl.runtime.secret import Secret
from kactl.stores.base import (
    Assignments,
    Changed,
    Changes,
    Committed,
    Leaderships,
    Names,
    Notification,
    Session,
    StoreEvent,
    Write,
)
from kactl.stores.deleted_topics import DeletedTopics
from kactl.stores.opening import check_unopened

from . import elections
from .admin_records import AdminRecords
from .armed_watches import RevisionWatches
from .brokers import Brokers
from .calls import Calls
from .client import Client
from .keys import Keys
from .leadership import LeadershipStore
from .session import EtcdSession, OwnSession
from .topics import Topics
from .watch import ClusterWatch

log = logger(__name__)

_T = TypeVar("_T")

# A third of the default session of participants with the controller: their leases outlast the controllership.
SESSION_TIMEOUT_MS: Final = 3_000
# More lower the rate: the server executes one transaction after another.
MAX_IN_FLIGHT: Final = 4


class EtcdStore:
    """Store in etcd, for programs on several hosts.

        store = kactl.EtcdStore(["https://10.0.0.1:2379", "https://10.0.0.2:2379"])
        async with kactl.Controller(1, store=store) as controller: ...

    The controller opens and closes it.

    Args:
        endpoints: `http://host:port` or `https://host:port` of one or several members.
        cluster: name of the cluster; all keys are below `<prefix>/<cluster>/`.
        prefix: begins with a slash.
        session_timeout_ms: how long the controllership outlives a process that was killed; rounded up to whole seconds,
            and raised to the server's minimum. A call that gets no answer raises StoreUnavailable after that time.
        start_timeout_ms: how long entering the store waits for a server; None waits for ever. The reasons are logged
            meanwhile. What cannot change by waiting, as a wrong password, is raised at once.
        max_in_flight: maximum number of concurrent transactions of one large call.
        batch_partitions: maximum number of rows in one transaction; None for as many as the server accepts.
        user, password: of etcd's authentication; without them, the client certificate of `tls` names the user.
        tls: for https; None for the certificates that the system trusts. Its ALPN protocols are set.
        rng: draws the order of the endpoints and the names of notifications; by default from the operating system.
        clock: for the times of sessions, and those that are stored; by default the machine's.

    Raises:
        BadConfig: an argument is invalid.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        cluster: str = "kactl",
        prefix: str = "/kactl",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        start_timeout_ms: int | None = START_TIMEOUT_MS,
        max_in_flight: int = MAX_IN_FLIGHT,
        batch_partitions: int | None = None,
        user: str | None = None,
        password: Secret | str | None = None,
        tls: ssl.SSLContext | None = None,
        rng: random.Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        limits = {"session_timeout_ms": session_timeout_ms, "max_in_flight": max_in_flight}
        for name, value in limits.items():
            if value < 1:
                raise BadConfig(name, f"{value} should be at least 1")
        if batch_partitions is not None and batch_partitions < _BATCH_MIN:
            raise BadConfig("batch_partitions", f"{batch_partitions} should be at least {_BATCH_MIN}")
        self._clock = SystemClock() if clock is None else clock
        self._start_timeout_ms = start_timeout_ms
        self._rng = rng or random.SystemRandom()
        self._calls = Calls(
            [endpoints] if isinstance(endpoints, str) else endpoints,
            user=user,
            password=password,
            tls=tls,
            limit_ms=session_timeout_ms,
            rng=self._rng,
        )
        self._client = Client(self._calls, Keys(prefix, cluster), max_in_flight=max_in_flight)
        self._watches = RevisionWatches()
        self._deleted_topics = DeletedTopics()
        self._topics = Topics(self._client)
        self._leadership = LeadershipStore(self._client, self._topics, rows_max=batch_partitions)
        self._session = OwnSession(
            self._client,
            self._tell,
            clock=self._clock,
            timeout_ms=session_timeout_ms,
            on_lost=self._on_session_lost,
        )
        self._watch = ClusterWatch(
            self._client,
            self._topics,
            self._watches,
            self._deleted_topics,
            on_client_key=self._session.on_key_deleted,
            on_restored=self._session.give_up,
        )
        self._brokers = Brokers(self._client, self._clock)
        self._records = AdminRecords(self._client, self._watch.unreadable_requests, self._rng)
        self._broker_sessions: list[EtcdSession] = []
        self._stack: BlockStack | None = None

    @property
    def is_open(self) -> bool:
        return self._stack is not None

    async def __aenter__(self) -> Self:
        check_unopened(self)
        async with BlockStack("the etcd store") as stack:
            await stack.enter_async_context(self._calls)
            patience = Patience("the etcd store is not open", self._clock, self._start_timeout_ms)
            await patience.repeat(self._watch.begin)
            await self._check_rights()
            stack.push_async_callback(self._close)
            await patience.repeat(self._session.open)
            tasks = await stack.enter_async_context(Background("the session of the etcd store"))
            tasks.start_soon(self._session.run)
            tasks.start_soon(self._watch.run)
            tasks.start_soon(self._watch.verify, self._session.write_key)
            self._stack = stack.pop_all()
        return self

    async def _check_rights(self) -> None:
        """Report a user with more rights than this store needs. Missing ones are errors of the first write."""
        if self._calls.has_user and await self._client.may_read(self._client.keys.outside):
            log.warning(
                "the user of etcd has rights outside of %s: grant it READWRITE on this prefix only; whoever finds "
                "its password has them too",
                self._client.keys.root.decode(),
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._stack is None:
            raise IllegalState("an EtcdStore was exited without being entered")
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, error, trace)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            for session in self._broker_sessions:
                try:
                    await session.close()
                except StoreError:
                    log.warning("a broker's session could not be ended and will time out", exc_info=True)
            await self._session.close()

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._watches.subscribe(listener)

    @property
    def trouble(self) -> str:
        return self._calls.trouble

    @property
    def session_id(self) -> int:
        """The lease of the client's own session; it changes after each loss."""
        return self._session.lease

    async def new_session(self, timeout_ms: int) -> Session:
        granted = await self._client.grant_lease(math.ceil(timeout_ms / 1000))
        session = EtcdSession(self._client, granted, self._clock, one_member=await self._client.members() == 1)
        self._broker_sessions = [session, *(other for other in self._broker_sessions if other.is_open)]
        return session

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        return await self._watched(Changed.CONTROLLER, elections.read(self._client))

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        lease = self._session.live_lease
        return await elections.contest(
            self._client, controller_id, lease, take_over=take_over, address=address, clock=self._clock
        )

    async def resign(self, fence: Fence) -> None:
        await elections.resign(self._client, fence)

    async def check(self, fence: Fence) -> None:
        await self._client.check(fence)

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        return await self._watched(Changed.BROKERS, self._brokers.read_all())

    async def broker(self, broker: int) -> Broker | None:
        return await self._brokers.read_one(broker)

    async def membership(self) -> Membership:
        return await self._watched(Changed.BROKERS, self._brokers.membership())

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        await self._records.write_maintenance(maintenance, fence)

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        return await self._brokers.register_remote(broker, incarnation, timeout_ms, fence)

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._brokers.end_remote(broker, epoch, fence)

    async def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        await self._brokers.evict(broker, epoch, fence)

    async def topics(self) -> list[str]:
        numbers = await self._watched(Changed.TOPICS, self._topics.all_numbers())
        if self._watches.has_listener:
            self._deleted_topics.compare(numbers)
        return sorted(numbers)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._deleted_topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        assignments, numbers = await self._watched(Changed.TOPIC, self._topics.assignments(topics), names=topics)
        if self._watches.has_listener:
            for name, number in numbers.items():
                self._deleted_topics.record_read(name, number)
        return assignments

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        await self._topics.create(topic, assignment, config)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        await self._topics.write_assignment(topic, assignment, fence)

    async def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        return await self._topics.id_copies(topics)

    async def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        await self._topics.write_ids(topics, fence, copies_only=copies_only)

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        return await self._watched(Changed.TOPIC_CONFIG, self._topics.configs(topics), names=topics)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await self._topics.set_config(topic, config)

    async def default_config(self) -> dict[str, str]:
        return await self._watched(Changed.DEFAULT_CONFIG, self._topics.default_config())

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        await self._topics.set_default_config(config)

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        await self._topics.mark_deletion(topic)

    async def deletions(self) -> list[str]:
        return await self._watched(Changed.DELETIONS, self._topics.deletions())

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        await self._topics.unmark_deletions(topics, fence)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        failed = await self._topics.delete(topics, fence)
        for topic in topics:
            if topic not in failed:
                self._deleted_topics.forget(topic)
        return failed

    async def partitions_begun(self, topic: str) -> list[int]:
        return await self._topics.partitions_begun(topic)

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        await self._records.request_reassignment(targets)

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        return await self._watched(Changed.REASSIGNMENT_REQUEST, self._records.reassignment_request())

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        await self._records.set_reassignment_request(targets, fence)

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        await self._records.request_preferred_election(partitions)

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        return await self._watched(Changed.PREFERRED_ELECTION_REQUEST, self._records.preferred_election_request())

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        await self._records.delete_preferred_election_request(fence)

    # -- features and producer ids

    async def features(self) -> Features | None:
        return await self._records.features()

    async def write_features(self, features: Features, fence: Fence) -> Features:
        return await self._records.write_features(features, fence)

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return await self._records.producer_ids()

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        return await self._records.write_producer_ids(block, expected=expected)

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        return await self._leadership.read(names)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        return await self._leadership.commit(write, fence)

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        if since is None:
            return Changes.unknown(await self._watch.record())
        until = await self._watch.catch_up(self._session.write_key)
        changes = await self._watch.changes(since, until)
        if last:
            self._watch.stop_recording()
        return changes

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        return await self._leadership.write_isr(name, state, expected=expected)

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        await self._watch.watch_leaderships(names)

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await self._records.notify_isr(partitions)

    async def notify_log_dir(self, broker: int) -> None:
        await self._records.notify_log_dir(broker)

    async def isr_notifications(self) -> list[Notification]:
        return await self._watched(Changed.ISR_NOTIFICATIONS, self._records.isr_notifications())

    async def log_dir_notifications(self) -> list[Notification]:
        return await self._watched(Changed.LOG_DIR_NOTIFICATIONS, self._records.log_dir_notifications())

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        await self._records.delete_notifications(notifications, fence)

    # -- events

    async def _watched(self, kind: Changed, read: Coroutine[Any, Any, _T], names: Collection[str] = ("",)) -> _T:
        """Returns what a read returns, with a watch armed for every change that it has not seen."""
        with self._watches.read(kind, names):
            return await read

    def _on_session_lost(self) -> None:
        self._watches.clear()
        self._watch.forget()
        self._deleted_topics.forget()

    def _tell(self, event: StoreEvent) -> None:
        self._watches.fire(event)


# The fence, a topic and a row.
_BATCH_MIN: Final = 2
