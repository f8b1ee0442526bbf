"""The Kafka listener of a controller, built from its configuration."""

import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import numpy as np

from kactl.actors.system import Controller
from kactl.admin.served_certificates import ServedCertificates
from kactl.config.settings import Config
from kactl.errors import ActionTimedOut, NotController
from kactl.messages.admin import ControllerRequest
from kactl.model import NO_EPOCH, NO_LEADER, ZERO_ID, Broker, TopicRef
from kactl.runtime.background import Background
from kactl.state.rows import Rows
from kactl.transports.kafka.listener import KafkaListener, ListenerSettings
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.quotas import Quotas
from kactl.transports.kafka.listener.user_file import UserFile

from .listener_security import AclFollower, OpenRelayGuard, listener_security, listener_tls

if TYPE_CHECKING:
    from kactl.stores.zookeeper.access import AccessRecords
    from kactl.transports.kafka import BrokerCredentials


class ListenerController:
    """Adapter from a controller of this process to the listener: its `ServedController`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def node_id(self) -> int:
        return self._controller.node_id

    @property
    def active_id(self) -> int | None:
        return self._controller.loop.active_id

    @property
    def is_active(self) -> bool:
        return self._controller.is_active

    async def ask(self, request: ControllerRequest) -> Any:
        return await self._controller.ask(request)

    def brokers(self) -> list[Broker]:
        return self._controller.brokers()

    def topics(self) -> list[TopicRef]:
        return self._controller.topics()

    def rows(self, topic: str) -> Rows | None:
        table = self._controller.cluster.table
        known = table.topic(topic)
        return None if known is None else table.rows(table.rows_of(known))

    def partition_count(self, topic: str) -> int:
        table = self._controller.cluster.table
        known = table.topic(topic)
        return 0 if known is None else len(table.rows_of(known))

    async def wait_led(self, topic: str, *, partitions: int, timeout_ms: float) -> None:
        table = self._controller.cluster.table

        def led() -> bool:
            known = table.topic(topic)
            rows = np.zeros(0, np.intp) if known is None else np.asarray(table.rows_of(known))
            return len(rows) >= partitions and bool((table.rows(rows).leader != NO_LEADER).all())

        await self._until(led, f"electing leaders for topic {topic}", timeout_ms)

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        table = self._controller.cluster.table

        def gone() -> bool:
            known = table.topic(topic.name)
            return known is None or ZERO_ID != topic.id != known.ref.id

        await self._until(gone, f"deleting topic {topic.name}", timeout_ms)

    async def _until(self, reached: Callable[[], bool], action: str, timeout_ms: float) -> None:
        """Wait for a condition, which is checked after each event."""
        epoch = self._controller.cluster.fence.epoch
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not self.is_active or self._controller.cluster.fence.epoch != epoch:
                        # After a resignation the table is no longer maintained.
                        raise NotController(self.active_id)
                    if reached():
                        return
                    await self._controller.history.changed()
        except TimeoutError:
            raise ActionTimedOut(action, timeout_ms) from None


def listed_as(config: Config) -> Broker | None:
    """Returns the controller's entry in the list of brokers; None if it has none."""
    advertised = config.kafka.advertised
    return Broker(config.node_id, NO_EPOCH, advertised) if advertised else None


@contextlib.contextmanager
def listening(config: Config) -> Iterator[dict[str, socket.socket]]:
    """Bind the addresses before anything else is started, so that an address in use is an early error.

    Raises:
        BadConfig: an address cannot be listened on.
    """
    from kactl.transports.kafka.listener import bound

    with contextlib.ExitStack() as stack:
        yield {endpoint.listener: stack.enter_context(bound(endpoint)) for endpoint in config.kafka.endpoints}


@contextlib.asynccontextmanager
async def listener(
    controller: Controller,
    config: Config,
    sockets: dict[str, socket.socket],
    access: "AccessRecords | None" = None,
    *,
    credentials: "BrokerCredentials | None" = None,
    certificates: ServedCertificates | None = None,
) -> AsyncIterator[KafkaListener | None]:
    """Serve brokers and tools while the block runs; yields None without sockets.

    Args:
        access: the brokers' users and access control lists; None if there are none.
        credentials: of kactl at the brokers, for requests that are relayed once they are authorized.
        certificates: receives the certificate of the listeners.

    Raises:
        BadConfig: a file that the configuration names cannot be used.
    """
    if not sockets:
        yield None
        return
    tls = listener_tls(config.kafka)
    if tls and certificates is not None:
        certificates.add("kafka", tls[0])
    users = None
    if config.kafka.users:
        users = await anyio.to_thread.run_sync(UserFile, Path(config.kafka.users), access)
    security, authorizer = listener_security(config.kafka, access, tls, users=users)
    guard = OpenRelayGuard(access)
    settings = ListenerSettings(
        partitions=config.kafka.num_partitions,
        replication_factor=config.kafka.default_replication_factor,
        listed_as=listed_as(config),
        limits=Limits(
            frame_size_max=config.kafka.socket_request_max_bytes,
            request_size_max=config.kafka.request_max_bytes,
            broker_request_size_max=config.kafka.broker_request_max_bytes,
            connections_max=config.kafka.max_connections,
            connections_per_address_max=config.kafka.max_connections_per_ip,
        ),
        broker_networks=config.kafka.networks,
        checks_broker_addresses=config.kafka.broker_identity == "address",
        security=security,
        quotas=Quotas(config.kafka.mutation_rate, config.kafka.mutation_burst),
        # Without an authorizer brokers would take the requests of every client for kactl's own.
        relays=config.kafka.relay != "off" and (config.kafka.authorizes or not config.kafka.authenticates),
        credentials=credentials,
        relays_unread=lambda: guard.is_open,
        audit=controller.attempted,
    )
    async with contextlib.AsyncExitStack() as stack:
        if tls:
            tasks = await stack.enter_async_context(Background("the certificates of the Kafka listener"))
            for each in tls:
                tasks.start_soon(each.run, name="certificate")
        if users is not None:
            tasks = await stack.enter_async_context(Background("the users of the Kafka listener"))
            tasks.start_soon(users.run, name="users")
        if authorizer is not None and access is not None and config.kafka.authorizer != "super-users":
            follower = AclFollower(authorizer, access)
            await follower.look()
            tasks = await stack.enter_async_context(Background("the access control lists"))
            tasks.start_soon(follower.run, name="access control lists")
        elif settings.relays and authorizer is None:
            await guard.look()
            tasks = await stack.enter_async_context(Background("the relay"))
            tasks.start_soon(guard.run, name="authorizer of the brokers")
        serving = await stack.enter_async_context(KafkaListener(ListenerController(controller), sockets, settings))
        # Objects created so far are permanent. Collections that traverse them block the loop for 40 ms under load.
        gc.freeze()
        controller.telemetry.observe(serving.counters.readings())
        yield serving
