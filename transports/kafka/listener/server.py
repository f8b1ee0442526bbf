"""The Kafka listener: its sockets, and the lifecycle of its connections.

This listener does not authenticate peers. They reach the controller only through the requests that any client may send.
The listener stores the connections, and which of them belong to brokers (`identity`), and no other data of a peer.
"""

import asyncio
import itertools
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from kactl.errors import BadConfig
from kactl.model import Broker, Endpoint
from kactl.runtime.logs import logger

from .acceptor import Acceptor
from .admission import Admission, Slot
from .broker_handlers import BrokerHandlers
from .config_handlers import ConfigHandlers
from .connection import Connection, Shared
from .counters import ListenerCounters, PeerRejected
from .discovery_handlers import DiscoveryHandlers
from .fair_queue import FairQueues
from .identity import BrokerAddresses, Claim, Network, plain_address
from .limits import Limits
from .partition_handlers import PartitionHandlers
from .pools import Pools
from .relay import Relay
from .responses import Handler
from .served_controller import ServedController
from .stream import Stream, shared_buffer
from .topic_handlers import TopicHandlers

log = logger(__name__)

# Queue of connections to accept, as long as the default limit of connections. With a shorter queue a broker's attempt
# waits for a second if 1,000 others connect at once.
_BACKLOG: Final = 1024
# Descriptors reserved for the store, the admin API, the brokers' channels and files; at most half of all.
_DESCRIPTORS_KEPT: Final = 256
# A relayed connection has a second descriptor, to the broker.
_DESCRIPTORS_EACH: Final = 2


class ListenerSettings(NamedTuple):
    """Settings of a listener.

    Attributes:
        partitions, replication_factor: the defaults of topics that are created.
        listed_as: kactl's entry in the list of brokers that clients receive; None if it has none.
        broker_networks: networks from which brokers connect besides the addresses that they are registered under.
    """

    partitions: int = 1
    replication_factor: int = 1
    listed_as: Broker | None = None
    limits: Limits = Limits()
    broker_networks: tuple[Network, ...] = ()


def bound(endpoint: Endpoint) -> socket.socket:
    """Bind a socket to an address. Returns it; no connection is accepted yet.

    Raises:
        BadConfig: the address cannot be bound.
    """
    where = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
    try:
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        return socket.create_server((endpoint.host, endpoint.port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadConfig(
            "kafka.listeners",
            f"{where} cannot be listened on ({reason}): stop the process that uses it, or configure another address",
        ) from None


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
        sockets: Mapping[str, socket.socket],
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
        )
        self.counters.reserved = lambda: {"client": self._pools.clients.held, "broker": self._pools.brokers.held}
        handlers: dict[int, Handler] = {
            **BrokerHandlers(controller).handlers(),
            **TopicHandlers(
                controller, partitions=settings.partitions, replication_factor=settings.replication_factor
            ).handlers(),
            **PartitionHandlers(controller).handlers(),
        }
        # Shared by all connections of a listener.
        self._handlers = {
            name: {
                **handlers,
                **DiscoveryHandlers(controller, listener_name=name, listed_as=lambda: settings.listed_as).handlers(),
            }
            for name in self._sockets
        }
        self._configs = ConfigHandlers(controller.node_id)
        self._turn = itertools.count()
        self._serving: set[asyncio.Task[None]] = set()
        self._acceptors: list[Acceptor] = []
        self._buffer = shared_buffer()

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
            turns=FairQueues(("brokers", "candidates", "clients")),
            counters=self.counters,
        )
        self._addresses.update()
        self._looking = asyncio.create_task(self._addresses.run())
        for name, bound_socket in self._sockets.items():

            def take(connection: socket.socket, host: str, name: str = name) -> None:
                self._take(name, connection, host)

            host, port = bound_socket.getsockname()[:2]
            bound_socket.listen(_BACKLOG)
            self._acceptors.append(
                Acceptor(bound_socket, take=take, make_room=self._admission.make_room, counters=self.counters)
            )
            log.info("listening for brokers and tools on %s://%s:%d", name, host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        tasks = {*self._serving, self._looking}
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)

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

    def _take(self, name: str, connection: socket.socket, host: str) -> None:
        """Serve a new connection.

        Raises:
            Refused: it is not admitted.
        """
        slot = self._admission.admit(plain_address(host))
        self._count()
        task = asyncio.get_running_loop().create_task(self._serve(name, connection, slot))
        slot.close = task.cancel
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, name: str, accepted: socket.socket, slot: Slot) -> None:
        """Serve one connection to its end. Errors of the peer are logged and not raised.

        Its slot is released when the task has ended and the descriptor is closed.
        """
        peer = f"{slot.address} on {name}"
        task = asyncio.current_task()
        assert task is not None
        connection: Connection | None = None
        stream: Stream | None = None

        def on_lost() -> None:
            if task.done():
                self._left(slot)
            elif connection is None or not connection.is_busy:
                task.cancel()

        try:
            _, stream = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Stream(self._buffer, on_lost), accepted
            )
            address = stream.transport.get_extra_info("peername") or ("unknown", 0)
            peer = f"{address[0]}:{address[1]} on {name}"
            connection = self._connection(name, stream, slot, peer)
            await connection.run()
        except PeerRejected as rejected:
            self.counters.reject(rejected, peer)
        except OSError as error:
            log.debug("%s: the connection was lost: %s", peer, error)
        except asyncio.CancelledError:
            pass  # the listener ends, the connection was lost, or it was evicted
        except Exception:
            self.counters.rejected["error"] += 1
            log.exception("%s: the connection ended with an internal error", peer)
        finally:
            if stream is None:
                accepted.close()
                self._left(slot)
            elif stream.is_lost:
                self._left(slot)
            elif slot.is_evicted:
                stream.abort()
            else:
                stream.close(abort_s=self._limits.write_timeout_s)

    def _left(self, slot: Slot) -> None:
        self._admission.leave(slot)
        self._count()

    def _count(self) -> None:
        self.counters.connections = self._admission.count
        self.counters.identified = self._admission.identified_count

    def _connection(self, name: str, stream: Stream, slot: Slot, peer: str) -> Connection:
        return Connection(
            stream,
            slot,
            self._shared,
            handlers=self._handlers[name],
            configs=self._configs,
            relay=Relay(
                name, self._controller.brokers, turn=next(self._turn), limits=self._limits, buffer=self._buffer
            ),
            peer=peer,
        )


def _descriptors() -> int | None:
    """Returns the process's limit of open files; None if there is none."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
