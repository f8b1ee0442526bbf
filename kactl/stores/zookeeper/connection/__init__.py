"""Connections to a ZooKeeper ensemble: one server connection at a time, and the session that outlives it.

    Client ──send──▶ Connection ──frames──▶ server
           ◀─answered, lost, watch_fired, tree_changed, state_changed, settled─

`interface` defines a connection and its listener. There are two implementations:

* `native`, kactl's own asyncio client. From the bottom: `frames` splits the received bytes into frames, `messages`
  encodes what is not a request of the client, `armed_watches` holds the watches, `credentials` are the encryption and
  the identity, `socket_connection` is one connection from its handshake to its end, and `native` finds servers and
  keeps the session over all of its connections.
* `kazoo_connection`, kazoo's client with its threads: the oracle for the native one, and a fallback.

Neither arms watches again after a reconnection by itself. ZooKeeper's own `setWatches` would fire all watches whose
node was written since a transaction that the client names, one for all watches. kactl needs to know for each watch what
its reader had seen, and therefore reads and compares (`kactl.stores.zookeeper.watches`). Events in a tree that was
watched as a whole are unknown after a gap in any case: such a watch reports writes, and the server does not keep them.
"""

import random
from typing import Final, Literal, Protocol

from kactl.model.errors import BadConfig

from .credentials import NONE, Credentials, Scheme
from .interface import Connection, ConnectionListener, State

__all__ = [
    "KINDS",
    "NONE",
    "Connection",
    "ConnectionListener",
    "Credentials",
    "Factory",
    "Kind",
    "Scheme",
    "State",
    "make",
]

Kind = Literal["kactl", "kazoo"]
KINDS: Final[tuple[Kind, ...]] = ("kactl", "kazoo")


class Factory(Protocol):
    """Makes connections of another implementation."""

    def __call__(
        self, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener, rng: random.Random
    ) -> Connection:
        """Returns a connection that has to be opened; see `make`."""


def make(
    kind: Kind | Factory,
    hosts: str,
    *,
    session_timeout_ms: int,
    listener: ConnectionListener,
    rng: random.Random,
    credentials: Credentials = NONE,
) -> Connection:
    """Returns a connection that has to be opened.

    Args:
        kind: one of kactl's implementations by its name, or a factory.
        hosts: `host:port[,host:port...]`; the default port is 2181.
        rng: orders the servers, and spreads the pauses of many clients. kazoo's client draws from its own source.
        credentials: of the connection; only kactl's own client knows any.

    Raises:
        BadConfig: `hosts` is malformed, or another client was chosen for a connection with credentials.
    """
    if kind != "kactl" and not credentials.is_default:
        raise BadConfig("client", f'{kind!r} connects in clear text and without an identity: use "kactl"')
    if callable(kind):
        return kind(hosts, session_timeout_ms=session_timeout_ms, listener=listener, rng=rng)
    # kazoo's client is slow to import, and rarely used.
    if kind == "kazoo":
        from .kazoo_connection import KazooConnection

        return KazooConnection(hosts, session_timeout_ms=session_timeout_ms, listener=listener)
    from .native import NativeConnection

    return NativeConnection(
        hosts, session_timeout_ms=session_timeout_ms, listener=listener, rng=rng, credentials=credentials
    )
