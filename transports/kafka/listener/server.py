"""The listener: addresses, connections, and their end.

Peers are not authenticated. They reach the controller through the requests that any client may send; the listener
keeps the connections, and which of them are brokers' (`identity`), and nothing else that a peer says.
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
from .broker_handlers import BrokerAnswers
from .config_handlers import OwnConfigs
from .connection import Connection, Shared
from .counters import Refused, Tally
from .discovery_handlers import OwnAnswers
from .fair_queue import Turns
from .identity import BrokerAddresses, Claim, Network, plain_address
from .limits import Limits
from .partition_handlers import PartitionAnswers
from .pools import Pools
from .relay import Relay
from .responses import Answer
from .served_controller import Ruled
from .stream import Stream, shared_buffer
from .topic_handlers import TopicAnswers

log = logger(__name__)

# How many connections may wait to be accepted: as many as a listener takes by default. A shorter queue makes a broker's
# attempt wait for a second when 1,000 others connect at once.
_BACKLOG: Final = 1024
# Descriptors that are left to the store, the admin API, the brokers' channels and files; half of few.
_DESCRIPTORS_KEPT: Final = 256
# A relayed connection has a second descriptor, to the broker.
_DESCRIPTORS_EACH: Final = 2


class ListenerSettings(NamedTuple):
    """Settings of a listener.

    Attributes:
        partitions, replication_factor: of topics that are created without.
        listed_as: our entry in the list of brokers that clients receive; None if we have none.
        broker_networks: from which brokers connect besides the addresses that they are registered under.
    """

    partitions: int = 1
    replication_factor: int = 1
    listed_as: Broker | None = None
    limits: Limits = Limits()
    broker_networks: tuple[Network, ...] = ()


def bound(endpoint: Endpoint) -> socket.socket:
    """A socket that is bound to an address, and on which nothing is accepted yet.

    Raises:
        BadConfig: it cannot be listened on.
    """
    where = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
    try:
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        return socket.create_server((endpoint.host, endpoint.port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadConfig(
            "kafka.listeners",
            f"{where} cannot be listened on ({reason}): stop who listens there, or name another address",
        ) from None


def connections_for(descriptors: int, wanted: int) -> int:
    """How many connections fit into a process's limit of open files; `wanted` at most, one at least."""
    left = descriptors - min(_DESCRIPTORS_KEPT, descriptors // 2)
    return max(1, min(wanted, left // _DESCRIPTORS_EACH))


class KafkaListener:
    """Serves for as long as the `async with` block lasts.

    Args:
        sockets: bound ones, by the name of the listener; closed with this.
    """

    def __init__(
        self,
        ruled: Ruled,
        sockets: Mapping[str, socket.socket],
        settings: ListenerSettings,
        *,
        tally: Tally | None = None,
    ) -> None:
        self._ruled = ruled
        self._sockets = dict(sockets)
        self._settings = settings
        self._limits = settings.limits
        self.tally = Tally() if tally is None else tally
        self._addresses = BrokerAddresses(ruled.brokers, settings.broker_networks)
        self._pools = Pools.of(self._limits)
        self._admission = Admission(
            self._limits,
            connections_max=self._connections_max(),
            broker_addresses=self._addresses,
            brokers=lambda: self._addresses.count,
        )
        self.tally.reserved = lambda: {"client": self._pools.clients.held, "broker": self._pools.brokers.held}
        self._answers: dict[int, Answer] = {
            **BrokerAnswers(ruled).answers(),
            **TopicAnswers(
                ruled, partitions=settings.partitions, replication_factor=settings.replication_factor
            ).answers(),
            **PartitionAnswers(ruled).answers(),
        }
        self._turn = itertools.count()
        self._serving: set[asyncio.Task[None]] = set()
        self._acceptors: list[Acceptor] = []
        self._buffer = shared_buffer()

    @property
    def held(self) -> int:
        """How many bytes are reserved for requests now, over all connections."""
        return self._pools.clients.held + self._pools.brokers.held

    def knows(self, claim: Claim) -> bool:
        """Whether a broker is registered with that epoch, as of the last look at the registrations."""
        return self._addresses.is_live(claim)

    async def __aenter__(self) -> Self:
        self._shared = Shared(
            limits=self._limits,
            pools=self._pools,
            admission=self._admission,
            addresses=self._addresses,
            turns=Turns(("brokers", "candidates", "clients")),
            tally=self.tally,
        )
        self._addresses.look()
        self._looking = asyncio.create_task(self._addresses.run())
        for name, each in self._sockets.items():

            def take(connection: socket.socket, host: str, name: str = name) -> None:
                self._take(name, connection, host)

            host, port = each.getsockname()[:2]
            each.listen(_BACKLOG)
            self._acceptors.append(Acceptor(each, take=take, make_room=self._admission.make_room, tally=self.tally))
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
        """The configured number, or the one that the limit of open files allows."""
        wanted = self._limits.connections_max
        descriptors = _descriptors()
        allowed = wanted if descriptors is None else connections_for(descriptors, wanted)
        if allowed < wanted:
            log.warning(
                "kafka.max-connections is %d, and the process may open %s files: at most %d connections are taken. "
                "Raise the limit to %d (ulimit -n, LimitNOFILE)",
                wanted, descriptors, allowed, wanted * _DESCRIPTORS_EACH + _DESCRIPTORS_KEPT,
            )  # fmt: skip
        return allowed

    def _take(self, name: str, connection: socket.socket, host: str) -> None:
        """Serve a new connection.

        Raises:
            Refused: there is no place for it.
        """
        slot = self._admission.admit(plain_address(host))
        self._count()
        task = asyncio.get_running_loop().create_task(self._serve(name, connection, slot))
        slot.close = task.cancel
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, name: str, accepted: socket.socket, slot: Slot) -> None:
        """One connection, to its end. No error of a peer leaves this.

        Its place is free when the task has ended and the descriptor is closed.
        """
        peer = f"{slot.address} on {name}"
        task = asyncio.current_task()
        assert task is not None
        connection: Connection | None = None
        stream: Stream | None = None

        def on_lost() -> None:
            if task.done():
                self._left(slot)
            elif connection is None or not connection.is_asking:
                task.cancel()

        try:
            _, stream = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Stream(self._buffer, on_lost), accepted
            )
            address = stream.transport.get_extra_info("peername") or ("unknown", 0)
            peer = f"{address[0]}:{address[1]} on {name}"
            connection = self._connection(name, stream, slot, peer)
            await connection.run()
        except Refused as refused:
            self.tally.refuse(refused, peer)
        except OSError as error:
            log.debug("%s is gone: %s", peer, error)
        except asyncio.CancelledError:
            pass  # the listener ends, the peer is gone, or another connection has taken the place
        except Exception:
            self.tally.refused["error"] += 1
            log.exception("%s: its connection ended by an unexpected error", peer)
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
        self.tally.connections = self._admission.count
        self.tally.identified = self._admission.identified_count

    def _connection(self, name: str, stream: Stream, slot: Slot, peer: str) -> Connection:
        own = OwnAnswers(self._ruled, listener_name=name, listed_as=lambda: self._settings.listed_as)
        return Connection(
            stream,
            slot,
            self._shared,
            answers={**self._answers, **own.answers()},
            configs=OwnConfigs(self._ruled.node_id),
            relay=Relay(name, self._ruled.brokers, turn=next(self._turn), limits=self._limits, buffer=self._buffer),
            peer=peer,
        )


def _descriptors() -> int | None:
    """The process's limit of open files; None if there is none."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
