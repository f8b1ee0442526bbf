"""The listener: addresses, connections, and their end.

It only ever asks the controller what anybody may ask. It holds nothing but the connections themselves, so that nobody
can make kactl remember a thing by speaking to it, a controller's epoch least of all.
"""

import asyncio
import itertools
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from kactl.errors import BadConfig
from kactl.logs import logger
from kactl.model import Broker, Endpoint

from .answers import Answer
from .broker import BrokerAnswers
from .cluster import Ruled
from .connection import Connection
from .frames import PIECE_SIZE, Frames, Held, Limits
from .own_answers import OwnAnswers
from .own_configs import OwnConfigs
from .partitions import PartitionAnswers
from .relay import Relay
from .tally import Refused, Tally
from .topics import TopicAnswers

log = logger(__name__)

# How many connections may wait to be accepted.
_BACKLOG: Final = 128


class ListenerSettings(NamedTuple):
    """What the listener was told.

    Attributes:
        partitions, replication_factor: of topics that are asked for without.
        listed_as: our entry in the list of brokers that clients are given; None if we have none.
    """

    partitions: int = 1
    replication_factor: int = 1
    listed_as: Broker | None = None
    limits: Limits = Limits()


def bound(endpoint: Endpoint) -> socket.socket:
    """A socket that is bound to an address, and on which nobody is accepted yet.

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
        self._held = Held(self._limits.held_max)
        self._answers: dict[int, Answer] = {
            **BrokerAnswers(ruled).answers(),
            **TopicAnswers(
                ruled, partitions=settings.partitions, replication_factor=settings.replication_factor
            ).answers(),
            **PartitionAnswers(ruled).answers(),
        }
        self._turn = itertools.count()
        self._serving: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    @property
    def held(self) -> int:
        """How many bytes of requests are held now, over all connections."""
        return self._held.size

    async def __aenter__(self) -> Self:
        self._reading = anyio.CapacityLimiter(1)
        for name, each in self._sockets.items():

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name) -> None:
                await self._serve(name, reader, writer)

            self._servers.append(await asyncio.start_server(serve, sock=each, limit=PIECE_SIZE))
            host, port = each.getsockname()[:2]
            log.info("listening for brokers and tools on %s://%s:%d", name, host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._serving)

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. Nothing that a peer does leaves this."""
        task = asyncio.current_task()
        assert task is not None
        peer = _peer(name, writer)
        self._serving.add(task)
        self.tally.connections = len(self._serving)
        try:
            if len(self._serving) > self._limits.connections_max:
                raise Refused("connections", f"{self._limits.connections_max} are connected already")
            await self._connection(name, reader, writer).run()
        except Refused as refused:
            self.tally.refuse(refused, peer)
        except OSError as error:
            log.debug("%s is gone: %s", peer, error)
        except asyncio.CancelledError:
            pass  # the listener ends, and nobody waits for what becomes of this task
        except Exception:
            self.tally.refused["error"] += 1
            log.exception("%s: its connection ended by an error that should not be", peer)
        finally:
            self._let_go(writer)
            self._serving.discard(task)
            self.tally.connections = len(self._serving)

    def _let_go(self, writer: asyncio.StreamWriter) -> None:
        """Close, and give what was answered before some time to be read; whoever reads nothing loses it."""
        writer.close()
        if writer.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(self._limits.write_timeout_s, writer.transport.abort)

    def _connection(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection:
        own = OwnAnswers(self._ruled, listener_name=name, listed_as=lambda: self._settings.listed_as)
        return Connection(
            Frames(reader, self._limits, self._held),
            writer,
            answers={**self._answers, **own.answers()},
            configs=OwnConfigs(self._ruled.node_id),
            relay=Relay(name, self._ruled.brokers, turn=next(self._turn), limits=self._limits),
            limits=self._limits,
            tally=self.tally,
            reading=self._reading,
        )


def _peer(name: str, writer: asyncio.StreamWriter) -> str:
    address = writer.get_extra_info("peername") or ("unknown", 0)
    return f"{address[0]}:{address[1]} on {name}"
