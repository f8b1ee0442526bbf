"""The Kafka listener: its sockets, and the lifecycle of its connections.

A listener of protocol PLAINTEXT does not authenticate peers. They reach the controller only through the requests that
any client may send, and are told apart by their addresses (`identity`). Listeners with SASL or client certificates
demand a login (`authentication`) and decide about each request (`authorization`).
"""

import asyncio
import functools
import itertools
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from kactl.model import Broker, Endpoint
from kactl.model.errors import BadConfig
from kactl.runtime.addresses import host_and_port, plain_address
from kactl.runtime.front_door import BACKLOG, FrontDoor
from kactl.runtime.listening import listening_sockets
from kactl.runtime.logs import logger
from kactl.security.access import Authorizer
from kactl.security.tls.encryption import Encryption
from kactl.security.tls.server_tls import certificate_of, has_valid_certificate
from kactl.security.tls.tls_turns import TlsTurns
from kactl.telemetry.attempts import Audit, no_audit
from kactl.transports.kafka.credentials import BrokerCredentials

from .admission import Admission, Slot
from .authentication import LOGIN_TIMEOUT_S, Authentication, Login
from .authorization import Authorization, OpenListener
from .broker_handlers import BrokerHandlers
from .config_handlers import ConfigHandlers
from .connection import Connection, Shared
from .counters import ListenerCounters, PeerRejected
from .discovery_handlers import DiscoveryHandlers
from .identity import BrokerAddresses, Claim, Network
from .limits import Limits
from .partition_handlers import PartitionHandlers
from .permits import Permits
from .pools import Pools
from .quotas import QuotaKeeper, Quotas
from .relay import Relay
from .responses import Handler
from .served_controller import ServedController
from .stream import Stream, shared_buffer
from .topic_handlers import TopicHandlers
from .turns import Turns
from .user_handlers import UserHandlers, UserRecords

log = logger(__name__)

# Descriptors reserved for the store, the admin API, the brokers' channels and files; at most half of all.
_DESCRIPTORS_KEPT: Final = 256
# A relayed connection has a second descriptor, to the broker.
_DESCRIPTORS_EACH: Final = 2


class ListenerSecurity(NamedTuple):
    """Security of one listener.

    Attributes:
        tls: for protocols SSL and SASL_SSL; or a function that returns it for each connection. With another context
            clients cannot resume sessions whose certificate was verified before.
        authorizer: decides about requests; None to allow all.
        accepts: returns whether the certificate of a connection's client still counts.
    """

    authentication: Authentication = Authentication()
    tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    authorizer: Authorizer | None = None
    accepts: Callable[[ssl.SSLObject], bool] = has_valid_certificate

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of a connection that begins now."""
        return self.tls() if callable(self.tls) else self.tls


OPEN: Final = ListenerSecurity()


class ListenerSettings(NamedTuple):
    """Settings of a listener.

    Attributes:
        partitions, replication_factor: the defaults of topics that are created.
        listed_as: kactl's entry in the list of brokers that clients receive; None if it has none.
        broker_networks: networks from which brokers connect besides the addresses that they are registered under.
        checks_broker_addresses: whether the requests of a broker are accepted only from its own hosts, on listeners
            without logins.
        security: of each listener, by its name; listeners that are missing are in clear text and open.
        quotas: of each principal, on listeners that decide about requests.
        relays: whether requests for brokers are relayed: unread on listeners that allow all, and once they are
            authorized on the others.
        credentials: of kactl at the brokers, for requests that are relayed once they are authorized.
        audit: receives attempts to change something, and denials.
        relays_unread: returns whether requests may be relayed unread now, and users changed, on listeners that allow
            all: no broker authorizes.
        users: the cluster's stored users; None if there are none.
    """

    partitions: int = 1
    replication_factor: int = 1
    listed_as: Broker | None = None
    limits: Limits = Limits()
    broker_networks: tuple[Network, ...] = ()
    checks_broker_addresses: bool = True
    security: Mapping[str, ListenerSecurity] = {}
    quotas: Quotas = Quotas()
    relays: bool = True
    credentials: BrokerCredentials | None = None
    relays_unread: Callable[[], bool] = lambda: True
    users: UserRecords | None = None
    audit: Audit = no_audit


class BoundListener(list[socket.socket]):
    """The sockets of one listener, one for each address of its host. No connection is accepted yet.

    They are closed at the end of a `with` block, and by the `KafkaListener` that they are given to.

    Raises:
        BadConfig: an address cannot be listened on.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            super().__init__(listening_sockets(endpoint.host, endpoint.port, backlog=BACKLOG))
        except OSError as error:
            where = f"{endpoint.listener}://{host_and_port(endpoint.host, endpoint.port)}"
            remedy = "stop the process that uses it, or configure another address"
            raise BadConfig("kafka.listeners", f"{where} cannot be listened on ({error.strerror}): {remedy}") from None

    @property
    def port(self) -> int:
        """The port of all sockets, which is a free one if the endpoint has port 0."""
        return int(self[0].getsockname()[1])

    def close(self) -> None:
        for each in self:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connections_for(descriptors: int, wanted: int) -> int:
    """Returns the number of connections that fit into the limit of open files; at most `wanted`, at least one."""
    left = descriptors - min(_DESCRIPTORS_KEPT, descriptors // 2)
    return max(1, min(wanted, left // _DESCRIPTORS_EACH))


class KafkaListener:
    """A listener that serves for as long as its `async with` block lasts.

    Args:
        sockets: bound sockets by the name of the listener; closed at the end of the block.
    """

    def __init__(
        self,
        controller: ServedController,
        sockets: Mapping[str, Sequence[socket.socket]],
        settings: ListenerSettings,
        *,
        counters: ListenerCounters | None = None,
    ) -> None:
        self._controller = controller
        self._sockets = dict(sockets)
        self._settings = settings
        self._limits = settings.limits
        self.counters = ListenerCounters() if counters is None else counters
        self._addresses = BrokerAddresses(controller.brokers, settings.broker_networks)
        self._pools = Pools.of(self._limits)
        self._admission = Admission(
            self._limits,
            connections_max=self._connections_max(),
            broker_addresses=self._addresses,
            brokers=lambda: self._addresses.count,
            counters=self.counters,
        )
        self.counters.reserved = lambda: {"client": self._pools.clients.held, "broker": self._pools.brokers.held}
        handlers: dict[int, Handler] = {
            **BrokerHandlers(controller).handlers(),
            **TopicHandlers(
                controller, partitions=settings.partitions, replication_factor=settings.replication_factor
            ).handlers(),
            **PartitionHandlers(controller).handlers(),
            **UserHandlers(controller, settings.users).handlers(),
        }
        # Shared by all connections of a listener.
        self._handlers = {
            name: {
                **handlers,
                **DiscoveryHandlers(
                    controller,
                    listener_name=name,
                    listed_as=lambda: settings.listed_as,
                    has_logins=self._security(name).authentication.demands_login,
                    relays_checked=settings.relays and self._security(name).authorizer is not None,
                ).handlers(),
            }
            for name in self._sockets
        }
        self._authorizations = {
            name: Authorization(security.authorizer, controller.topics)
            for name in self._sockets
            if (security := self._security(name)).authorizer is not None
        }
        self._open = OpenListener(
            self._addresses.may_be if settings.checks_broker_addresses else None, settings.relays_unread
        )
        self._quotas = QuotaKeeper(
            settings.quotas,
            controller.budget,
            default_partitions=settings.partitions,
            partitions_of=controller.partition_count,
            topics=controller.topics,
        )
        self._configs = ConfigHandlers(controller.node_id)
        self._turn = itertools.count()
        self._doors: list[FrontDoor] = []
        self._buffer = shared_buffer()
        self._tls_turns = TlsTurns()

    def _security(self, name: str) -> ListenerSecurity:
        return self._settings.security.get(name, OPEN)

    @property
    def held(self) -> int:
        """The bytes reserved for requests now, over all connections."""
        return self._pools.clients.held + self._pools.brokers.held

    def knows(self, claim: Claim) -> bool:
        """Returns whether the claim is a broker's current registration, as of the last update of the registrations."""
        return self._addresses.is_live(claim)

    async def __aenter__(self) -> Self:
        self._shared = Shared(
            limits=self._limits,
            pools=self._pools,
            admission=self._admission,
            addresses=self._addresses,
            turns=Turns(("brokers", "candidates", "clients")),
            counters=self.counters,
        )
        self._addresses.update()
        self._looking = asyncio.create_task(self._addresses.run())
        for name, sockets in self._sockets.items():
            door = FrontDoor(
                sockets,
                functools.partial(self._take, name),
                make_room=self._admission.make_room,
                exhausted=functools.partial(self._exhausted, f"the listener {name}"),
                name=f"the listener {name}",
            )
            door.open()
            self._doors.append(door)
            for each in sockets:
                where = host_and_port(*each.getsockname()[:2])
                log.info("listening for brokers and tools on %s://%s", name, where)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for door in self._doors:
            door.close()
        self._looking.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._looking])
            await self._admission.close()

    def _connections_max(self) -> int:
        """Returns the configured number, or the one that the limit of open files allows."""
        wanted = self._limits.connections_max
        descriptors = _descriptors()
        allowed = wanted if descriptors is None else connections_for(descriptors, wanted)
        if allowed < wanted:
            log.warning(
                "kafka.max-connections is %d, and the process may open %s files: at most %d connections are accepted. "
                "Raise the limit to %d (ulimit -n, LimitNOFILE)",
                wanted, descriptors, allowed, wanted * _DESCRIPTORS_EACH + _DESCRIPTORS_KEPT,
            )  # fmt: skip
        return allowed

    def _exhausted(self, name: str, reason: str) -> None:
        remedy = "raise the limit of open files, or lower kafka.max-connections"
        self.counters.reject(PeerRejected("descriptors", reason), name, action=remedy)

    def _take(self, name: str, connection: socket.socket, address: tuple[str, int]) -> bool:
        """Serve a new connection. Returns False if it is not admitted."""
        host = plain_address(str(address[0]))
        try:
            slot = self._admission.admit(host)
        except PeerRejected as rejected:
            connection.close()
            self.counters.reject(rejected, host_and_port(host, address[1]))
            return False
        self._admission.run(slot, connection, self._serve(name, connection, slot))
        return True

    async def _serve(self, name: str, accepted: socket.socket, slot: Slot) -> None:
        """Serve one connection to its end. Errors of the peer are logged and not raised.

        The slot of a linked one is released when the task has ended and the descriptor is closed.
        """
        peer = f"{slot.address} on {name}"
        task = slot.task
        assert task is not None
        connection: Connection | None = None
        stream: Stream | None = None

        def on_lost() -> None:
            if task.done():
                self._admission.leave(slot)
            elif connection is None or not connection.is_busy:
                task.cancel()

        try:
            tls = self._security(name).context
            made = Stream(self._buffer, on_lost)
            encryption = None if tls is None else Encryption(tls, made, self._buffer, turns=self._tls_turns)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: encryption or made, accepted)
            if encryption is not None:
                await encryption.handshake(LOGIN_TIMEOUT_S)
            stream, slot.is_linked = made, True
            address = stream.transport.get_extra_info("peername") or ("unknown", 0)
            peer = f"{host_and_port(slot.address, address[1])} on {name}"
            connection = self._connection(name, stream, slot, peer)
            await connection.run()
        except PeerRejected as rejected:
            self.counters.reject(rejected, peer)
        except ssl.SSLError as error:
            self.counters.reject(PeerRejected("tls", _failed_tls(error)), peer)
        except OSError as error:
            log.debug("%s: the connection was lost: %s", peer, error)
        except asyncio.CancelledError:
            pass  # the listener ends, the connection was lost, or it was evicted
        except Exception:
            self.counters.rejected["error"] += 1
            log.exception("%s: the connection ended with an internal error", peer)
        finally:
            if stream is not None and stream.is_lost:
                self._admission.leave(slot)
            elif stream is not None and slot.is_evicted:
                stream.abort()
            elif stream is not None:
                stream.close(abort_s=self._limits.write_timeout_s)

    def _connection(self, name: str, stream: Stream, slot: Slot, peer: str) -> Connection:
        login = login_of(self._security(name), slot.address, stream)
        permits = Permits(
            login,
            slot,
            decisions=self._authorizations.get(name, self._open),
            quotas=self._quotas,
            has_quotas=name in self._authorizations,
            audit=self._settings.audit,
            counters=self.counters,
            peer=peer,
        )
        return Connection(
            stream,
            slot,
            self._shared,
            handlers=self._handlers[name],
            configs=self._configs,
            relay=self._relay(name) if self._settings.relays else None,
            is_checked=name in self._authorizations,
            login=login,
            permits=permits,
            peer=peer,
        )

    def _relay(self, name: str) -> Relay:
        settings, is_checked = self._settings, name in self._authorizations
        return Relay(
            name,
            self._controller.brokers,
            turn=next(self._turn),
            limits=self._limits,
            buffer=self._buffer,
            credentials=(settings.credentials or BrokerCredentials()) if is_checked else None,
            allowed=(lambda: True) if is_checked else settings.relays_unread,
        )


def login_of(security: ListenerSecurity, host: str, stream: Stream) -> Login:
    """Returns the login of a connection that has just begun.

    Raises:
        ConnectionResetError: it has failed already.
        PeerRejected: the subject of its certificate is not a principal.
    """
    encrypted: ssl.SSLObject | None = stream.transport.get_extra_info("ssl_object")
    # Without verification OpenSSL asks for no certificate.
    certificate = None if encrypted is None else certificate_of(encrypted)
    if encrypted is None or certificate is None:
        return security.authentication.login(host)
    return security.authentication.login(host, certificate, holds=functools.partial(security.accepts, encrypted))


def _failed_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return f"TLS failed ({error.reason or error}): check the peer's security.protocol and certificates"


def _descriptors() -> int | None:
    """Returns the process's limit of open files; None if there is none."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
