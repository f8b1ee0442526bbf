"""The Kafka listener of a controller, built from its configuration."""

import contextlib
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kactl.actors.system import Controller
from kactl.admin.served_certificates import ServedCertificates
from kactl.config.settings import Config
from kactl.kafka.own_controller import ListenerController
from kactl.model import NO_EPOCH, Broker
from kactl.runtime.background import Background
from kactl.runtime.reloading import Reloads
from kactl.runtime.threads import run_in_thread
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSettings
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.overrides import by_address
from kactl.transports.kafka.listener.quotas import Quotas
from kactl.transports.kafka.listener.user_file import UserFile

from .listener_security import AclFollower, OpenRelayGuard, listener_security, listener_tls

if TYPE_CHECKING:
    from kactl.stores.zookeeper.access import AccessRecords
    from kactl.transports.kafka import BrokerCredentials


def listed_as(config: Config) -> Broker | None:
    """Returns the controller's entry in the list of brokers; None if it has none."""
    kafka = config.kafka
    return (
        Broker(config.node_id, NO_EPOCH, kafka.advertised, kafka.controller_rack or None) if kafka.advertised else None
    )


@contextlib.contextmanager
def listening(config: Config) -> Iterator[dict[str, BoundListener]]:
    """Bind the addresses before anything else is started, so that an address in use is an early error.

    Raises:
        BadConfig: an address cannot be listened on.
    """
    with contextlib.ExitStack() as stack:
        yield {endpoint.listener: stack.enter_context(BoundListener(endpoint)) for endpoint in config.kafka.endpoints}


@contextlib.asynccontextmanager
async def listener(
    controller: Controller,
    config: Config,
    sockets: dict[str, BoundListener],
    access: "AccessRecords | None" = None,
    *,
    credentials: "BrokerCredentials | None" = None,
    certificates: ServedCertificates | None = None,
    reloads: Reloads | None = None,
) -> AsyncIterator[KafkaListener | None]:
    """Serve brokers and tools while the block runs; yields None without sockets.

    Args:
        access: the brokers' users and access control lists; None if there are none.
        credentials: of kactl at the brokers, for requests that are relayed once they are authorized.
        certificates: receives the certificate of the listeners.
        reloads: receives their files.

    Raises:
        BadConfig: a file that the configuration names cannot be used.
    """
    if not sockets:
        yield None
        return
    tls = listener_tls(config.kafka)
    reloads = Reloads() if reloads is None else reloads
    reloads.add(*tls)
    if tls and certificates is not None:
        certificates.add("kafka", tls[0])
    users = None
    if config.kafka.users:
        users = await run_in_thread(UserFile, Path(config.kafka.users), access)
        reloads.add(users)
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
            connections_overrides=await by_address(config.kafka.max_connections_per_ip_overrides),
        ),
        broker_networks=config.kafka.networks,
        checks_broker_addresses=config.kafka.broker_identity == "address",
        security=security,
        quotas=Quotas(config.kafka.mutation_rate, config.kafka.mutation_burst),
        # Without an authorizer brokers would take the requests of every client for kactl's own.
        relays=config.kafka.relay != "off" and (config.kafka.authorizes or not config.kafka.authenticates),
        credentials=credentials,
        relays_unread=lambda: guard.is_open,
        users=access,
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
        elif authorizer is None:
            await guard.look()
            tasks = await stack.enter_async_context(Background("the relay"))
            tasks.start_soon(guard.run, name="authorizer of the brokers")
        serving = await stack.enter_async_context(KafkaListener(ListenerController(controller), sockets, settings))
        # Objects created so far are permanent. Collections that traverse them block the loop for 40 ms under load.
        gc.freeze()
        controller.telemetry.observe(serving.counters.readings())
        yield serving
