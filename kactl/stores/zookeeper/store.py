"""ZooKeeper implementation of `kactl.stores.base.Store`, in Kafka's own layout.

This module dispatches; each subject has a module of its own.
"""

import random
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from kazoo.protocol.states import KazooState

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
from kactl.model.errors import BadConfig, ControllerMoved, StoreDamaged, StoreError
from kactl.runtime.background import BlockStack
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.logs import logger
from kactl.runtime.patience import START_TIMEOUT_MS, Patience
from kactl.runtime.secret import Secret
from kactl.security.sasl import SaslMechanism
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
from kactl.stores.opening import check_unopened

from . import (
    admin_requests,
    config_node,
    connection,
    controllership,
    deletion,
    feature_node,
    layout,
    maintenance_node,
    notification,
    registration,
    start_check,
    state_node,
    topic_ids,
    topic_node,
    tree,
)
from .access import AccessRecords
from .acls import NodeAcls
from .client import Client
from .config_changes import ConfigChanges
from .controller_entry import ControllerEntry
from .session import ZooKeeperSession
from .session_state import SessionState
from .topic_lives import TopicLives
from .tree_changes import TreeChanges
from .watches import Watches

log = logger(__name__)

# Kafka's default.
SESSION_TIMEOUT_MS: Final = 18_000
# Twice Kafka's default; with a hundred writes in each request, two thousand writes are in flight.
MAX_IN_FLIGHT: Final = 20
# About 30 KB in a multi, far below a server's limit of 1 MB.
BATCH_PARTITIONS: Final = 100


class ZooKeeperStore:
    """One client of the store; see `kactl.stores.base.Store` for the methods.

    Reads arm watches if there is a listener. After a lost connection all of them are armed again, and changes made
    meanwhile are reported; after a lost session there are none until the next reads.

    Args:
        connect: `host:port[,host:port...][/chroot]`; a missing chroot is created, with its parents.
        session_timeout_ms: how long the controllership outlives a lost connection; the server may limit it to its own
            bounds. A call raises StoreUnavailable after twice that time without any response.
        start_timeout_ms: how long entering the store waits for a server; None waits for ever. The reasons are logged
            meanwhile. What cannot change by waiting, as a wrong password, is raised at once.
        max_in_flight: maximum number of unanswered requests.
        batch_partitions: maximum number of writes in one multi.
        sticky: keep /controller when this instance stops, so that no broker becomes the controller, not even while no
            kactl instance runs. All instances have to agree on it. To return the cluster to its brokers, delete
            /controller after the last instance has stopped.
        client: a factory of connections in place of kactl's own.
        rng: draws the cluster id of an empty chroot, and the order and the times of reconnections; by default from the
            operating system.
        clock: for times that are stored with the controllership and with registrations; by default the machine's.
        tls: for the servers' secure port; their certificates are compared with the hosts in `connect`.
        username, password: of every connection's identity.
        scheme: how the identity is proved: by SASL's DIGEST-MD5, as brokers do, or by scheme digest, for ensembles that
            no broker uses. The latter sends the password itself: use tls, too.
        mechanism: another mechanism of SASL, such as GSSAPI, in place of username and password.
        listed_as: the entry of this instance in /brokers/ids while it is the controller, where brokers up to 2.8 look
            for its address; None for none.
        set_acl: whether new nodes give other identities than the creator's only the right to read, as those of brokers
            with `zookeeper.set.acl=true`; None to do as the nodes that exist.

    Raises:
        BadConfig: an argument is invalid.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        start_timeout_ms: int | None = START_TIMEOUT_MS,
        max_in_flight: int = MAX_IN_FLIGHT,
        batch_partitions: int = BATCH_PARTITIONS,
        sticky: bool = False,
        client: connection.Factory | None = None,
        rng: random.Random | None = None,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        username: str | None = None,
        password: Secret | str | None = None,
        scheme: connection.Scheme = "sasl",
        mechanism: SaslMechanism | None = None,
        set_acl: bool | None = None,
        listed_as: Broker | None = None,
    ) -> None:
        _check(connect, session_timeout_ms, max_in_flight, batch_partitions, client)
        secret = None if password is None else Secret.of(password)
        self._credentials = connection.Credentials(tls, username, secret, scheme, mechanism)
        if set_acl and self._credentials.is_default:
            raise BadConfig(
                "set_acl",
                "needs an identity: give username and password, mechanism, or tls with a client certificate",
            )
        self._acls = NodeAcls(set_acl)
        self._connect = connect
        self._factory = client
        self._rng = rng or random.SystemRandom()
        self._clock = clock or SystemClock()
        self._start_timeout_ms = start_timeout_ms
        self._batch = batch_partitions
        self._sticky = sticky
        self._listener: Callable[[StoreEvent], None] | None = None
        self._sessions: list[ZooKeeperSession] = []
        self._ended_sessions: set[int] = set()
        self._lost = False
        self._has_tree = False
        self._cluster_id: bytes | None = None
        self._seen_connected = False
        self._client = Client(
            connect,
            session_timeout_ms=session_timeout_ms,
            max_in_flight=max_in_flight,
            on_state=self._on_state,
            on_watch=self._on_watch,
            on_tree=self._on_tree,
            factory=client,
            rng=self._rng,
            credentials=self._credentials,
            acls=self._acls,
        )
        self._lives = TopicLives()
        self._armed = Watches(self._client, self._tell, self._check_configs)
        self._config_changes = ConfigChanges(self._client, self._armed, self._tell)
        self._session_state = SessionState(self._tell, timeout_ms=lambda: self._client.granted_timeout_ms)
        self._tree_changes = TreeChanges(self._client)
        held = (layout.CONTROLLER, layout.LOCK) if sticky else (layout.CONTROLLER,)
        self._entry = ControllerEntry(self._client, listed_as, self._clock, held=held)

    @property
    def is_open(self) -> bool:
        return self._client.is_open

    async def __aenter__(self) -> Self:
        check_unopened(self)
        await self._client.open(Patience("the ZooKeeper store is not open", self._clock, self._start_timeout_ms))
        try:
            await self._acls.adapt(
                self._client, identity=None if self._credentials.is_default else self._credentials.identity
            )
            await self.check_permissions()
            await self._make_tree()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._session_state.reset()
        stack = BlockStack("the ZooKeeper store")
        stack.push_async_callback(self._client.close)
        for session in reversed(self._sessions):
            stack.push_async_callback(session.close)
        return await stack.__aexit__(kind, error, trace)

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._listener = listener

    @property
    def access(self) -> AccessRecords:
        """The brokers' users and access control lists."""
        return AccessRecords(self._client)

    async def check_permissions(self) -> None:
        """Log which nodes of a secure cluster others may change, or read although they hold credentials.

        Raises:
            StoreError: this connection may not do what a controller does, or the permissions cannot be read.
        """
        if self._acls.is_automatic or not self._credentials.is_default:
            credentials = self._credentials
            await start_check.check(
                self._client, secure=self._acls.secure, identity=credentials.identity, digest=credentials.digest_id
            )

    @property
    def trouble(self) -> str:
        return self._client.trouble

    async def new_session(self, timeout_ms: int) -> Session:
        self._sessions = [session for session in self._sessions if not session.is_over]
        session = ZooKeeperSession(
            self._connect,
            timeout_ms=timeout_ms,
            ended=self._ended_sessions,
            factory=self._factory,
            rng=self._rng,
            clock=self._clock,
            credentials=self._credentials,
            acls=self._acls,
        )
        self._sessions.append(session)
        await session.open()
        return session

    # -- the controllership

    async def controller(self) -> ControllerRecord | None:
        record = await controllership.read(self._client, self._watches, sticky=self._sticky)
        self._entry.observe(record)
        return record

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        if not self._has_tree:
            await self._make_tree()  # with the session, the servers may have lost their data
        fence = await controllership.contest(
            self._client,
            controller_id,
            take_over=take_over,
            address=address,
            sticky=self._sticky,
            clock=self._clock,
        )
        self._entry.elected(fence)
        return fence

    async def _make_tree(self) -> None:
        """Create what a cluster needs, if it is missing. A cluster keeps the id under which brokers know it."""
        cluster_id = self._cluster_id or tree.new_cluster_id(self._rng)
        stored = await tree.make(self._client, cluster_id)
        if self._cluster_id not in (None, stored):
            raise StoreDamaged(
                f"{layout.CLUSTER_ID} at {self._connect}",
                f"the id of the cluster is {stored.decode(errors='replace')}, and was {cluster_id.decode()} before",
                "name servers of one ensemble in connect; if the cluster was replaced, restart this program",
            )
        self._cluster_id, self._has_tree = stored, True

    async def resign(self, fence: Fence) -> None:
        before = self._entry.resigning()
        try:
            await controllership.resign(self._client, fence, sticky=self._sticky, before=before)
        except ControllerMoved:
            self._entry.withdraw()
            raise
        self._entry.forget()

    async def check(self, fence: Fence) -> None:
        await controllership.check(self._client, fence)

    # -- brokers and topics

    async def brokers(self) -> dict[int, Broker]:
        return await self._brokers(await registration.read_nodes(self._client, self._watches))

    async def membership(self) -> Membership:
        nodes, maintenance = await registration.read_with_maintenance(self._client, self._watches)
        return Membership(await self._brokers(nodes), maintenance)

    async def _brokers(self, nodes: dict[int, Any]) -> dict[int, Broker]:
        brokers = registration.decoded(nodes)
        await self._entry.keep(nodes, brokers)
        return brokers

    async def broker(self, broker: int) -> Broker | None:
        return await registration.read_one(self._client, broker, self._watches)

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        await maintenance_node.write(self._client, maintenance, fence)

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        return await registration.register_remote(
            self._client, broker, incarnation, timeout_ms, fence, now_ms=self._clock.now_ms()
        )

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        await registration.end_remote(self._client, broker, epoch, fence)

    async def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        await registration.evict(self._client, broker, epoch, fence)

    async def topics(self) -> list[str]:
        if self._watches is None:
            return await topic_node.listed(self._client, None)
        self._config_changes.begin()
        return await topic_node.listed(self._client, self._watches)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._armed.topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        return await topic_node.assignments(self._client, topics, self._watches, self._lives)

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        await topic_node.create(self._client, topic, assignment, config)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        await topic_node.write_assignment(self._client, topic, assignment, fence, self._lives)

    async def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        return await topic_ids.copies(self._client, topics)

    async def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
        await topic_ids.write(self._client, topics, fence, self._lives, batch=self._batch, copies_only=copies_only)

    async def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        return await config_node.of_topics(self._client, topics)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await config_node.set_of_topic(self._client, topic, config)

    async def default_config(self) -> dict[str, str]:
        if self._watches is not None:
            self._config_changes.begin()
        return await config_node.of_all_brokers(self._client)

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        await config_node.set_of_all_brokers(self._client, config)

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        await deletion.mark(self._client, topic)

    async def deletions(self) -> list[str]:
        return await topic_node.names(self._client, layout.DELETIONS, self._watches)

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        await deletion.unmark(self._client, topics, fence, batch=self._batch)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        failed = await deletion.delete(self._client, topics, fence, batch=self._batch)
        for topic in topics:
            if topic not in failed:
                self._armed.topics.forget(topic)
                self._lives.forget(topic)
        return failed

    async def partitions_begun(self, topic: str) -> list[int]:
        return await deletion.partitions_begun(self._client, topic)

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        await admin_requests.request_reassignment(self._client, targets)

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        return await admin_requests.reassignment(self._client, self._watches)

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        await admin_requests.set_reassignment(self._client, targets, fence)

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        await admin_requests.request_preferred_election(self._client, partitions)

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        return await admin_requests.preferred_election(self._client, self._watches)

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        await admin_requests.delete_preferred_election(self._client, fence)

    # -- features and producer ids

    async def features(self) -> Features | None:
        return await feature_node.read(self._client)

    async def write_features(self, features: Features, fence: Fence) -> Features:
        return await feature_node.write(self._client, features, fence)

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return await feature_node.producer_ids(self._client)

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        return await feature_node.write_producer_ids(self._client, block, expected=expected)

    # -- leadership

    async def leaderships(self, names: Names) -> Leaderships:
        return await state_node.read(self._client, names)

    async def commit(self, write: Write, fence: Fence) -> Committed:
        return await state_node.commit(self._client, write, fence, self._lives, batch=self._batch)

    async def changes(self, since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
        return await self._tree_changes.read(since, last=last)

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        return await state_node.write_isr(self._client, name, state, expected=expected)

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        await state_node.watch(names, self._armed)

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await notification.notify_isr(self._client, partitions)

    async def notify_log_dir(self, broker: int) -> None:
        await notification.notify_log_dir(self._client, broker)

    async def isr_notifications(self) -> list[Notification]:
        return await notification.isr(self._client, self._watches)

    async def log_dir_notifications(self) -> list[Notification]:
        return await notification.log_dir(self._client, self._watches)

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        await notification.remove(self._client, notifications, fence, batch=self._batch)

    # -- events

    @property
    def _watches(self) -> Watches | None:
        """Where reads record the watches they armed; None if there is no listener."""
        return None if self._listener is None else self._armed

    def _on_tree(self, path: str) -> None:
        self._tree_changes.on_write(path)

    def _on_watch(self, event: str, path: str) -> None:
        self._armed.on_watch(event, path)

    def _check_configs(self) -> None:
        self._config_changes.check()

    def _on_state(self, kazoo_state: str) -> None:
        if kazoo_state != KazooState.CONNECTED:
            self._tree_changes.forget()
            self._armed.disconnected()
        if kazoo_state == KazooState.LOST:
            self._session_state.reset()
            self._lost = True
            self._has_tree = False
            self._armed.forget()
            self._config_changes.forget()
            self._entry.forget()
            self._tell(StoreEvent(Changed.SESSION_LOST))
        elif kazoo_state == KazooState.CONNECTED:
            self._session_state.connected()
            if self._lost:
                self._lost = False
                self._tell(StoreEvent(Changed.SESSION_OPENED))
            elif self._seen_connected:
                self._armed.rearm()
            self._seen_connected = True
        elif not self._lost:
            self._session_state.disconnected()

    def _tell(self, event: StoreEvent) -> None:
        if event.what is Changed.CONTROLLER_GONE:
            self._entry.withdraw()
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            # An error of the listener must not lose the responses that follow this event.
            log.exception("the listener failed to handle %s", event)


def _check(connect: str, session_timeout_ms: int, max_in_flight: int, batch_partitions: int, client: object) -> None:
    if client is not None and not callable(client):
        raise BadConfig("client", f"{client!r} is no factory of connections: leave it out for kactl's own")
    hosts, _, chroot = connect.partition("/")
    if not all(host.strip() for host in hosts.split(",")):
        raise BadConfig("connect", f"{connect!r} should be host:port[,host:port...][/chroot]")
    if chroot and not all(chroot.rstrip("/").split("/")):
        raise BadConfig("connect", f"the chroot of {connect!r} has an empty part")
    limits = {
        "session_timeout_ms": session_timeout_ms,
        "max_in_flight": max_in_flight,
        "batch_partitions": batch_partitions,
    }
    for name, value in limits.items():
        if value < 1:
            raise BadConfig(name, f"{value} should be 1 or more")
