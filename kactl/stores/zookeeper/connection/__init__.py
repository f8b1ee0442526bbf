"""Connections to a ZooKeeper ensemble: one server connection at a time, and the session that outlives it.

    Client ──send──▶ Connection ──frames──▶ server
           ◀─answered, lost, watch_fired, tree_changed, state_changed, settled─

`interface` defines a connection and its listener. From the bottom: `frames` splits the received bytes into frames,
`messages` encodes what is not a request of the client, `armed_watches` holds the watches, `credentials` are the
encryption and the identity, `socket_connection` is one connection from its handshake to its end, and `native` finds
servers and keeps the session over all of its connections.

A connection does not arm watches again after a reconnection by itself. ZooKeeper's own `setWatches` would fire all
watches whose node was written since a transaction that the client names, one for all watches. kactl needs to know for
each watch what its reader had seen, and therefore reads and compares (`kactl.stores.zookeeper.watches`). Events in a
tree that was watched as a whole are unknown after a gap in any case: such a watch reports writes, and the server does
not keep them.
"""

import random
from typing import Protocol

from kactl.model.errors import BadConfig

from .credentials import NONE, Credentials, Scheme
from .interface import Connection, ConnectionListener, State
from .native import NativeConnection

__all__ = [
    "NONE",
    "Connection",
    "ConnectionListener",
    "Credentials",
    "Factory",
    "Scheme",
    "State",
    "make",
]


class Factory(Protocol):
    """Makes connections of another implementation."""

    def __call__(
        self, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener, rng: random.Random
    ) -> Connection:
        """Returns a connection that has to be opened; see `make`."""


def make(
    factory: Factory | None,
    hosts: str,
    *,
    session_timeout_ms: int,
    listener: ConnectionListener,
    rng: random.Random,
    credentials: Credentials = NONE,
) -> Connection:
    """Returns a connection that has to be opened.

    Args:
        factory: of another implementation; None for kactl's own.
        hosts: `host:port[,host:port...]`; the default port is 2181.
        rng: orders the servers, and spreads the pauses of many clients.
        credentials: of the connection; only kactl's own client knows any.

    Raises:
        BadConfig: `hosts` is malformed, or another client was chosen for a connection with credentials.
    """
    if factory is None:
        return NativeConnection(
            hosts, session_timeout_ms=session_timeout_ms, listener=listener, rng=rng, credentials=credentials
        )
    if not credentials.is_default:
        raise BadConfig("client", "connects in clear text and without an identity: leave it out")
    return factory(hosts, session_timeout_ms=session_timeout_ms, listener=listener, rng=rng)
